"""A system call that changes files, in words: which file, which bytes, where.

Read from ``/proc/<pid>`` (proc(5)) of the thread that waits in it.
"""

from __future__ import annotations

import ctypes
import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from .seccomp import Notification

__all__ = ["DELETED", "NAMING", "OPENING", "SYNCING", "WRITING", "Call", "read_call"]

WRITING = frozenset({"write", "pwrite64", "writev", "pwritev", "pwritev2"})
OPENING = frozenset({"open", "openat", "openat2", "creat"})
SYNCING = frozenset({"fsync", "fdatasync", "sync_file_range", "syncfs", "sync", "msync"})
NAMING = frozenset(
    {"truncate", "rename", "renameat", "renameat2", "link", "linkat", "unlink", "unlinkat"}
    | {"symlink", "symlinkat", "mkdir", "mkdirat", "rmdir"}
)
"""What changes a file or a name by its name."""

DELETED = " (deleted)"
_AT_FDCWD = -100
_AT_REMOVEDIR = 0x200


@dataclass(frozen=True, slots=True)
class Call:
    """One system call that is about to happen."""

    name: str

    path: str = ""
    """Of the file or the name that it is about; absolute. Empty if it is about neither."""

    target: str = ""
    """The second name, of a rename or a link."""

    data: bytes = b""
    """What it writes."""

    at: int = 0
    """Where it writes (-1: at the end), or the length that it gives the file."""

    flags: int = 0
    """How the file was opened, or is to be."""

    descriptor: int = -1
    """Of the thread's process, for a call on an open file."""

    def __str__(self) -> str:
        where = f" -> {self.target}" if self.target else ""
        size = f" {len(self.data)} bytes" if self.data else ""
        return f"{self.name} {self.path}{where}{size}"


def read_call(notification: Notification) -> Call:
    """What the thread is about to do. Raises `OSError` if it died meanwhile."""
    process, name, arguments = _Process(notification.pid), notification.name, notification.arguments
    if name in {"sync", "io_uring_setup"}:
        return Call(name)
    if name in WRITING:
        return _writing(process, name, arguments)
    if name in OPENING or name in NAMING:
        return _naming(process, name, arguments)
    return _on_descriptor(process, name, arguments)


@final
class _Process:
    """What ``/proc`` tells of a thread."""

    def __init__(self, pid: int) -> None:
        self._place = f"/proc/{pid}"

    def bytes_at(self, address: int, count: int) -> bytes:
        descriptor = os.open(f"{self._place}/mem", os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.pread(descriptor, count, address)
        finally:
            os.close(descriptor)

    def text_at(self, address: int) -> str:
        found = b""
        while b"\0" not in found:  # by pages: the one after it may not be there
            start = address + len(found)
            found += self.bytes_at(start, 4096 - start % 4096)
        return os.fsdecode(found.split(b"\0", 1)[0])

    def path_of(self, descriptor: int) -> str:
        """Of an open file; something that is not absolute for a pipe or a socket."""
        return os.readlink(f"{self._place}/fd/{descriptor}")  # noqa: PTH115 - no Path for a hot path

    def directory(self) -> str:
        """The working directory."""
        return str(Path(f"{self._place}/cwd").readlink())

    def state_of(self, descriptor: int) -> tuple[int, int]:
        """(position, flags) of an open file."""
        with open(f"{self._place}/fdinfo/{descriptor}", encoding="ascii") as lines:  # noqa: PTH123 - no Path for a hot path
            values = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
        return int(values["pos"]), int(values["flags"], 8)

    def absolute(self, directory: int, address: int) -> str:
        path = self.text_at(address)
        number = ctypes.c_int(directory & 0xFFFFFFFF).value
        if not path.startswith("/"):
            start = self.directory() if number == _AT_FDCWD else self.path_of(number)
            path = f"{start}/{path}"
        if path.startswith("/proc/self/fd/"):  # how an unnamed file is linked: open(2), O_TMPFILE
            return self.path_of(int(path.rpartition("/")[2]))
        return os.path.normpath(path)


def _writing(process: _Process, name: str, arguments: tuple[int, ...]) -> Call:
    descriptor, address, count, at = arguments[:4]
    path = process.path_of(descriptor)
    if not path.startswith("/"):
        return Call(name)
    position, flags = process.state_of(descriptor)
    if name in {"write", "pwrite64"}:
        data = process.bytes_at(address, count)
    else:
        pairs = struct.iter_unpack("QQ", process.bytes_at(address, 16 * count))
        data = b"".join(process.bytes_at(start, size) for start, size in pairs if size)
    if name in {"write", "writev"} or at == 2**64 - 1:  # pwritev2(2): -1 is the current position
        at = -1 if flags & os.O_APPEND else position
    return Call(name, path, data=data, at=at, flags=flags, descriptor=descriptor)


def _naming(process: _Process, name: str, arguments: tuple[int, ...]) -> Call:
    """A call that takes names. Those that end in "at" take a directory before each."""
    if name.startswith("symlink"):
        place = (_AT_FDCWD, arguments[1]) if name == "symlink" else arguments[1:3]
        return Call(name, process.absolute(*place))
    relative = name.endswith(("at", "at2"))
    directory = arguments[0] if relative else _AT_FDCWD
    after = arguments[2:] if relative else arguments[1:]
    path = process.absolute(directory, arguments[1] if relative else arguments[0])
    if name.startswith(("rename", "link")):
        other = after[0] if relative else _AT_FDCWD
        return Call(name, path, process.absolute(other, after[1] if relative else after[0]))
    if name == "creat":
        return Call(name, path, flags=os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
    first = after[0] if after else 0
    if name == "openat2":
        (first,) = struct.unpack("Q", process.bytes_at(first, 8))
    if name == "unlinkat" and first & _AT_REMOVEDIR:
        name = "rmdir"
    return Call(name, path, flags=first, at=first if name == "truncate" else 0)


def _on_descriptor(process: _Process, name: str, arguments: tuple[int, ...]) -> Call:
    """A call on an open file, among them those whose bytes are not seen."""
    if name == "msync":
        return Call(name)
    place = {"mmap": 4, "copy_file_range": 2, "splice": 2}.get(name, 0)
    descriptor = ctypes.c_int(arguments[place] & 0xFFFFFFFF).value
    if descriptor < 0:  # anonymous memory
        return Call(name)
    path = process.path_of(descriptor)
    at = 0
    if name == "ftruncate":
        at = arguments[1]
    elif name == "fallocate":
        at = arguments[2] + arguments[3]
    flags = arguments[1] if name == "fallocate" else 0
    return Call(name, path, at=at, flags=flags, descriptor=descriptor)
