"""A second process that outlives a test run and ends what the run left behind.

The run holds a pipe to it and writes a line for whatever must be gone in the end, `+process PID
SIGNAL`, `+container NAME`, `+directory PATH` or `+file PATH`, and the same with `-` once it is
gone. The watch acts when the pipe closes or the run's process is no more, so a SIGKILL is an end
like any other. It runs as a script and imports nothing of ours.
"""

import atexit
import contextlib
import functools
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

GRACE = 3.0
PROC = Path("/proc")


def note(item: str) -> None:
    """Have *item* cleaned up at the end of this run."""
    os.write(_pipe(), f"+{item}\n".encode())


def forget(item: str) -> None:
    """Take *item* back: it is gone."""
    os.write(_pipe(), f"-{item}\n".encode())


@functools.cache
def _pipe() -> int:
    watch = subprocess.Popen(
        [sys.executable, "-I", __file__],
        cwd="/",
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # a signal to the run's whole group is not for the watch
    )
    assert watch.stdin is not None
    atexit.register(watch.wait, 30)
    atexit.register(watch.stdin.close)  # runs first
    return watch.stdin.fileno()


def is_gone(pid: int) -> bool:
    """Whether *pid* has ended, reaped or not."""
    return _processes().get(pid, (0, "Z"))[1] == "Z"


def kill_family(pid: int) -> list[int]:
    """Kill *pid* and its children, and no process that is not of them; return who they were."""
    _signal(pid, signal.SIGSTOP)  # so that it starts no more children
    family = [pid, *(child for child, (parent, _) in _processes().items() if parent == pid)]
    for member in family:
        _signal(member, signal.SIGKILL)
    return family


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _processes() -> dict[int, tuple[int, str]]:
    """Every process with its parent and its state letter, from /proc or else from `ps`."""
    if not (PROC / "self").exists():
        argv = ["ps", "-axo", "pid=,ppid=,state="]
        done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=10)
        rows = (line.split() for line in done.stdout.splitlines())
        return {int(pid): (int(parent), state[0]) for pid, parent, state in rows}
    found: dict[int, tuple[int, str]] = {}
    for entry in PROC.glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it ended meanwhile
            state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
            found[int(entry.name)] = int(parent), state
    return found


def _lines() -> Iterator[str]:
    """Every line of the run, until it has ended.

    A process that the run forked may hold the pipe open beyond that: the parent tells.
    """
    parent, rest = os.getppid(), b""
    while True:
        if select.select([0], [], [], 0.2)[0]:
            chunk = os.read(0, 65536)
            if not chunk:
                return
            *whole, rest = (rest + chunk).split(b"\n")
            yield from (line.decode() for line in whole)
        elif os.getppid() != parent:
            return


def _left(lines: Iterable[str]) -> list[list[str]]:
    """What was noted and not forgotten."""
    items: dict[str, None] = {}
    for line in lines:
        if line.startswith("+"):
            items[line[1:]] = None
        else:
            items.pop(line[1:], None)
    return [item.split(" ", 1) for item in items]


def _end(processes: list[list[str]]) -> None:
    """End them in their own orderly way, all at once, and kill those that linger."""
    pids = [int(pid) for pid, _ in processes]
    for pid, (_, number) in zip(pids, processes, strict=True):
        _signal(pid, int(number))
    deadline = time.monotonic() + GRACE
    while time.monotonic() < deadline and not all(map(is_gone, pids)):
        time.sleep(0.05)
    for pid in pids:
        if not is_gone(pid):
            kill_family(pid)


def _remove_containers(names: list[str]) -> None:
    from testcontainers.core.docker_client import DockerClient  # noqa: PLC0415 - optional, slow

    client = DockerClient().client
    for name in names:
        with contextlib.suppress(Exception):  # it was never made, or is gone
            client.containers.get(name).remove(force=True, v=True)


def _main() -> None:
    left = _left(_lines())
    _end([rest.split() for kind, rest in left if kind == "process"])
    for kind, rest in left:
        if kind == "directory":
            shutil.rmtree(rest, ignore_errors=True)
        elif kind == "file":
            Path(rest).unlink(missing_ok=True)
    if names := [rest for kind, rest in left if kind == "container"]:
        _remove_containers(names)


if __name__ == "__main__":
    _main()
