r"""``file://``: one JSON Lines file per conversation, replaced whole.

Line 1 is the head, ``{"version": …, "bytes": …, "crc32": …, "meta": …}``; then one message a line,
so that ``head``, ``jq`` and ``grep`` work on it. A write is: lock, check the version, stage a new
file beside the old one, sync it, rename it over the old one, sync the directory. Readers take no
lock: the file they opened is whole. A file that is cut or changed, at whatever byte, does not fit
its own head, and a write that finds it so leaves it alone.

Layout of the directory::

    <part of the key>/…/<last part>.jsonl    a record
    .locks/00 … .locks/ff                    what writers lock, by the key's hash; never removed
    .staged/                                 files that are not published yet; what a killed
                                             process leaves here goes at a later `open`

Limits: a POSIX file system with working `flock` and atomic `rename` (not an object store mounted
as one). Every save writes the whole file.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import hashlib
import json
import os
import re
import secrets
import sys
import time
import zlib
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, final

from toolnexus_stores.driver import Conflict, Damaged, Edit, Fault, Head, Record, Version
from toolnexus_stores.errors import InvalidURL
from toolnexus_stores.options import DriverOptions, Location

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping

__all__ = ["FileDriver", "FileOptions"]

Durability = Literal["power", "process"]

_SUFFIX = ".jsonl"
_PART = re.compile(r"[a-z0-9_-][a-z0-9._-]*")
_LOCK_PATIENCE = 1.0  # seconds in a worker thread; the store tries again until its own timeout
_LOCK_POLL = 0.002
_STAGED_SECONDS = 3600  # what is staged for longer than that was left by a process that died
_TRANSIENT = {errno.EAGAIN, errno.EINTR, errno.ESTALE, errno.EMFILE, errno.ENFILE}


class FileOptions(DriverOptions):
    """``file:///absolute/dir`` or ``file://./relative/dir``."""

    path: Path

    durability: Durability = "power"
    """``power``: an acknowledged save survives a power loss. ``process``: it survives the end of
    the process, and a power loss may bring the transcript before it back; never part of one."""

    @classmethod
    def locate(cls, location: Location) -> Mapping[str, object]:
        """The directory."""
        if location.netloc in {"", "localhost"} and location.path.startswith("/"):
            path = location.path
        elif location.netloc in {".", ".."} and location.path:
            path = location.netloc + location.path
        else:
            raise InvalidURL("file:// takes file:///absolute/dir or file://./relative/dir")
        # Absolute from here on: what the process does to its working directory moves nothing.
        return {"path": Path(path).absolute()}

    def driver(self) -> FileDriver:
        """A driver over the directory."""
        return FileDriver(self.path, durability=self.durability)


@final
class FileDriver:
    """Records as files below *root*, which is made on `open` (mode 0700; files 0600)."""

    def __init__(self, root: Path, *, durability: Durability = "power") -> None:
        self._root = root
        self._locks = root / ".locks"
        self._staged = root / ".staged"
        self._power = durability == "power"

    async def open(self) -> None:
        """See `Driver.open`."""
        await asyncio.to_thread(self._prepare)

    async def head(self, key: str) -> Head | None:
        """See `Driver.head`."""
        return await asyncio.to_thread(self._head, key)

    async def read(self, key: str) -> Record | None:
        """See `Driver.read`."""
        return await asyncio.to_thread(self._read, key)

    async def write(self, key: str, edit: Edit) -> Version:
        """See `Driver.write`.

        A cancelled write goes on in its worker thread; the version check keeps it from replacing
        anything newer than what it was made from.
        """
        return await asyncio.to_thread(self._write, key, edit)

    async def delete(self, key: str) -> bool:
        """See `Driver.delete`."""
        return await asyncio.to_thread(self._delete, key)

    async def keys(self, prefix: str) -> AsyncIterator[str]:
        """See `Driver.keys`."""
        for key in await asyncio.to_thread(lambda: list(self._keys(prefix))):
            yield key

    async def close(self) -> None:
        """Nothing is held open between calls."""

    def explain(self, error: Exception) -> Fault | None:
        """See `Driver.explain`."""
        if isinstance(error, _Unsynced):
            return Fault("the directory could not be synced to disk", ambiguous=True)
        if not isinstance(error, OSError):
            return None
        reason = os.strerror(error.errno).lower() if error.errno else "the file system failed"
        if isinstance(error, _Locked):
            reason = "another process holds the lock of this conversation"
        return Fault(reason, transient=error.errno in _TRANSIENT)

    def where(self, key: str) -> str:
        """The file."""
        return str(self._file(key))

    def _prepare(self) -> None:
        for directory in (self._root, self._locks, self._staged):
            _make_directory(directory, sync=self._power)
        for left in self._staged.iterdir():
            with suppress(FileNotFoundError):  # another process tidies up as well
                if time.time() - left.stat().st_mtime > _STAGED_SECONDS:
                    left.unlink()

    def _file(self, key: str) -> Path:
        *parts, last = key.split("/")
        for part in (*parts, last):
            if not _PART.fullmatch(part):
                raise ValueError(f"not a key: {key!r}")
        return self._root.joinpath(*parts, last + _SUFFIX)

    def _head(self, key: str) -> Head | None:
        file = self._file(key)
        try:
            descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        with os.fdopen(descriptor, "rb") as stream:
            first = _parsed_line(stream.readline(), file)
            if os.fstat(descriptor).st_size != stream.tell() + first.bytes:
                raise Damaged("the file does not have the length that it says", where=str(file))
            return first.head

    def _read(self, key: str) -> Record | None:
        file = self._file(key)
        try:
            data = file.read_bytes()
        except FileNotFoundError:
            return None
        head, texts = _parsed(data, file)
        return Record(head, texts.split(b"\n")[:-1])

    def _write(self, key: str, edit: Edit) -> Version:
        file = self._file(key)
        with self._locked(key):
            head, texts = self._stored(file)
            if (None if head is None else head.version) != edit.expected:
                raise Conflict(f"the version of {key} is another one")
            kept = _first_lines(texts, edit.keep)
            body = b"".join((kept, *(text + b"\n" for text in edit.tail)))
            version = secrets.token_hex(8)
            line = b'{"version":"%s","bytes":%d,"crc32":%d,"meta":%s}\n' % (
                version.encode(),
                len(body),
                zlib.crc32(body),
                edit.meta,
            )
            if file.parent != self._root:
                _make_directory(file.parent, sync=self._power)
            self._publish(file, (line, body))
            return version

    def _stored(self, file: Path) -> tuple[Head | None, bytes]:
        try:
            data = file.read_bytes()
        except FileNotFoundError:
            return None, b""
        return _parsed(data, file)

    def _publish(self, file: Path, pieces: tuple[bytes, ...]) -> None:
        """Stage, sync, replace, sync the directory. The only place that makes a file current."""
        staged = self._staged / secrets.token_hex(16)
        try:
            _write_whole(staged, pieces)
            staged.replace(file)
        except BaseException:
            staged.unlink(missing_ok=True)
            raise
        if self._power:
            try:
                _sync_directory(file.parent)
            except OSError as error:
                raise _Unsynced(error.errno, "directory not synced") from error

    def _delete(self, key: str) -> bool:
        file = self._file(key)
        with self._locked(key):
            try:
                file.unlink()
            except FileNotFoundError:
                return False
            if self._power:
                _sync_directory(file.parent)
            return True

    def _keys(self, prefix: str) -> Iterator[str]:
        """Keys share their leading parts with their directories, so only those are walked."""
        start = self._root.joinpath(*prefix.split("/")[:-1])
        for directory, inside, names in os.walk(start):
            inside[:] = [name for name in inside if not name.startswith(".")]
            relative = Path(directory).relative_to(self._root)
            for name in names:
                if name.endswith(_SUFFIX):
                    key = (relative / name[: -len(_SUFFIX)]).as_posix()
                    if key.startswith(prefix):
                        yield key

    @contextmanager
    def _locked(self, key: str) -> Iterator[None]:
        """Exclude every other writer of *key*, in this process and in others."""
        shard = hashlib.sha256(key.encode()).hexdigest()[:2]
        descriptor = os.open(self._locks / shard, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, mode=0o600)
        try:
            _lock(descriptor)
            yield
        finally:
            os.close(descriptor)  # releases the lock


class _Unsynced(OSError):
    """The new file is current, but a power loss may undo that."""


class _Locked(BlockingIOError):
    """Somebody else holds the lock."""


def _lock(descriptor: int) -> None:
    deadline = time.monotonic() + _LOCK_PATIENCE
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if time.monotonic() > deadline:
                raise _Locked(errno.EAGAIN, "locked") from error
            time.sleep(_LOCK_POLL)
        else:
            return


def _write_whole(file: Path, pieces: tuple[bytes, ...]) -> None:
    """Create *file* with *pieces*, and have its bytes on the disk."""
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode=0o600)
    try:
        for piece in pieces:
            rest = memoryview(piece)
            while rest:
                rest = rest[os.write(descriptor, rest) :]  # may write less than it was given
        # Also without "power": a rename that outlives its content would leave an empty file.
        _sync(descriptor)
    finally:
        os.close(descriptor)


def _sync(descriptor: int) -> None:
    """`os.fsync` that reaches the disk; on macOS it would stop at the drive's cache (fsync(2))."""
    if sys.platform == "darwin":
        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
    else:
        os.fsync(descriptor)


def _make_directory(directory: Path, *, sync: bool) -> None:
    """Make *directory* and its parents, for the owner alone, whatever the umask."""
    if directory.is_dir():
        return
    if not directory.parent.exists():
        _make_directory(directory.parent, sync=sync)
    directory.mkdir(mode=0o700, exist_ok=True)
    if sync:
        _sync_directory(directory.parent)


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _parsed(data: bytes, file: Path) -> tuple[Head, bytes]:
    """The head and the bytes of the texts."""
    end = data.find(b"\n") + 1
    first = _parsed_line(data[:end], file)
    texts = data[end:]
    if len(texts) != first.bytes:
        raise Damaged("the file does not have the length that it says", where=str(file))
    if zlib.crc32(texts) != first.crc32:
        raise Damaged("the messages do not match their checksum", where=str(file))
    return first.head, texts


@final
@dataclass(frozen=True, slots=True)
class _FirstLine:
    """The head, and what is said of the bytes that follow its line."""

    head: Head
    bytes: int
    crc32: int


def _parsed_line(line: bytes, file: Path) -> _FirstLine:
    """What a file's first line says."""
    start, separator, meta = line.partition(b',"meta":')
    try:
        values = json.loads(start + b"}")
        version, length, crc32 = values["version"], values["bytes"], values["crc32"]
    except (ValueError, KeyError, TypeError) as error:
        raise Damaged("the first line is not a head", where=str(file)) from error
    kinds = (type(version), type(length), type(crc32))
    if not (separator and meta.endswith(b"}\n") and kinds == (str, int, int)):
        raise Damaged("the first line is not a head", where=str(file))
    return _FirstLine(Head(version, meta[:-2]), length, crc32)


def _first_lines(texts: bytes, count: int) -> bytes:
    """The first *count* lines of *texts*."""
    if count == texts.count(b"\n"):
        return texts
    end = 0
    for _ in range(count):
        end = texts.index(b"\n", end) + 1
    return texts[:end]
