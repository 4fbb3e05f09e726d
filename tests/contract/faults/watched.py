"""Victims for the tests of the supervisor, run by ``python -m``: in a fresh interpreter.

``python -m tests.contract.faults.watched NAME DIRECTORY [AIM]`` runs one and prints what became of
it as JSON. Paths are printed relative to the directory.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolnexus_stores_contract.faults.disk import Before
from toolnexus_stores_contract.faults.syscalls import Aim
from toolnexus_stores_contract.faults.victims import Line, observe

if TYPE_CHECKING:
    from collections.abc import Callable

BODIES: dict[str, Callable[[Path, Line], None]] = {}


def victim(body: Callable[[Path, Line], None]) -> Callable[[Path, Line], None]:
    BODIES[body.__name__] = body
    return body


@victim
def every_call(place: Path, line: Line) -> None:
    descriptor = os.open("a", os.O_RDWR | os.O_CREAT)
    os.write(descriptor, b"one")
    os.pwrite(descriptor, b"two", 10)
    os.writev(descriptor, [b"th", b"", b"ree"])
    os.pwritev(descriptor, [b"four"], 20)
    os.ftruncate(descriptor, 30)
    os.truncate("a", 25)
    os.posix_fallocate(descriptor, 0, 40)
    os.fsync(descriptor)
    os.fdatasync(descriptor)
    os.mkdir("d")
    directory = os.open("d", os.O_RDONLY)
    os.rename("a", "b", dst_dir_fd=directory)
    os.link("d/b", place / "c")
    os.symlink("c", "s")
    os.unlink("s")
    os.unlink("b", dir_fd=directory)
    os.fsync(directory)
    os.rmdir("d")
    with open("c", "ab") as stream:
        stream.write(b"end")
    os.sendfile(descriptor, os.open("c", os.O_RDONLY), 0, 3)
    os.sync()


@victim
def not_files(place: Path, line: Line) -> None:
    """What must not be counted: pipes, sockets, devices, reading, private mappings."""
    (place / "x").write_bytes(b"0")
    line.say("arm")
    reading, writing = os.pipe()
    os.write(writing, b"x" * 10)
    os.read(reading, 10)
    with open("/dev/null", "wb") as stream:
        stream.write(b"y")
    (place / "x").read_bytes()
    threading.Thread(target=os.getpid).start()


@victim
def three_writes(place: Path, line: Line) -> None:
    (place / "f").write_bytes(b"as it was")
    line.say("arm")
    descriptor = os.open(place / "f", os.O_WRONLY | os.O_TRUNC)
    for data in (b"a" * 10, b"b" * 10, b"c" * 10):
        try:
            line.say("wrote", os.write(descriptor, data))
        except OSError as error:
            line.say("wrote", os.strerror(error.errno or 0))
    line.say("disarm")
    line.say("at last", os.write(descriptor, b"d"))


@victim
def hangs(place: Path, line: Line) -> None:
    line.say("arm")
    time.sleep(60)


@victim
def dies(place: Path, line: Line) -> None:
    line.say("arm")
    os.abort()


@victim
def raises(place: Path, line: Line) -> None:
    raise ValueError("what it says")


@victim
def child_process(place: Path, line: Line) -> None:
    line.say("arm")
    subprocess.run(["/bin/sh", "-c", "echo hello > child"], check=True, cwd=place)


@victim
def two_threads(place: Path, line: Line) -> None:
    line.say("arm")
    began = time.monotonic()
    held = threading.Thread(target=(place / "held").write_bytes, args=(b"h",))
    held.start()
    time.sleep(0.02)
    (place / "free").write_bytes(b"f")
    free = time.monotonic() - began
    held.join()
    line.say("seconds", [free, time.monotonic() - began])


@victim
def changes_everything(place: Path, line: Line) -> None:
    (place / "kept").write_bytes(b"changed")
    (place / "gone").unlink()
    (place / "tree" / "leaf").unlink()
    (place / "tree").rmdir()
    (place / "new").mkdir()
    (place / "new" / "file").write_bytes(b"new")
    (place / "moved").rename(place / "new" / "moved")


def _shown(text: object, place: Path) -> str:
    return str(text).replace(f"{place}/", "").replace(str(place), ".")


def main() -> None:
    name, place, *aim = sys.argv[1:]
    root = Path(place)
    os.chdir(root)
    before = Before()

    async def body(line: Line) -> None:
        if name == "every_call":
            line.say("arm")
        BODIES[name](root, line)

    ending = observe(
        body,
        before,
        aim=Aim.parse(aim[0]) if aim else None,
        seconds=0.5 if name == "hangs" else 10,
        listen=lambda word, value: None,
    )
    if name == "changes_everything":
        before.restore()
    told: dict[str, Any] = {
        "status": ending.status,
        "hung": ending.hung,
        "said": [(each.word, each.value, each.calls) for each in ending.said],
        "trace": [_shown(each, root) for each in ending.trace],
        "at": [each.at for each in ending.trace],
        "fired": None if ending.fired is None else _shown(ending.fired, root),
        "unseen": [_shown(each, root) for each in ending.unseen],
    }
    json.dump(told, sys.stdout)


if __name__ == "__main__":
    main()
