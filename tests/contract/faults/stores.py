"""Stores on disk for the fault layers: good ones, and ones that fall into a trap each.

A factory of each is named ``tests.contract.faults.stores:<name>``; where its storage is, the
environment says (`PLACE`), so that another process opens the same.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import json
import mmap
import os
import secrets
import shutil
import sqlite3
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

Message: TypeAlias = dict[str, Any]

PLACE = "TOOLNEXUS_TEST_PLACE"
"""The variable of the environment that holds a directory."""


CAUGHT_BY: dict[type, tuple[str, ...]] = {}
"""Each trap, and the checks that must find it."""

S = TypeVar("S", bound=type)


def caught_by(*checks: str) -> Callable[[S], S]:
    def noted(store: S) -> S:
        CAUGHT_BY[store] = checks
        return store

    return noted


def name_of(id: str) -> str:
    return hashlib.sha256(id.encode("utf-8", "surrogatepass")).hexdigest()[:16]


class ReplacedFile:
    """Good: staged beside, synced, renamed, the directory synced; one writer at a time."""

    def __init__(self) -> None:
        self.root = Path(os.environ[PLACE])

    def file(self, id: str) -> Path:
        return self.root / f"{name_of(id)}.json"

    async def get(self, id: str) -> list[Message] | None:
        with suppress(FileNotFoundError):
            found: list[Message] = json.loads(self.file(id).read_bytes())
            return found
        return None

    async def save(self, id: str, messages: list[Message]) -> None:
        self.write(self.file(id), json.dumps(messages).encode())

    def write(self, file: Path, data: bytes) -> None:
        with (self.root / ".lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self.stage_and_replace(file, data)

    def staged(self, file: Path) -> Path:
        return file.with_suffix(f".{secrets.token_hex(8)}")

    def stage_and_replace(self, file: Path, data: bytes) -> None:
        staged = self.staged(file)
        try:
            with staged.open("wb") as stream:
                self.write_all(stream.fileno(), data)
                self.sync(stream.fileno())
            self.replace(staged, file)
        except OSError:
            staged.unlink(missing_ok=True)
            raise
        self.sync_directory()

    def write_all(self, descriptor: int, data: bytes) -> None:
        while data:
            data = data[os.write(descriptor, data) :]

    def sync(self, descriptor: int) -> None:
        os.fsync(descriptor)

    def replace(self, staged: Path, file: Path) -> None:
        staged.replace(file)

    def sync_directory(self) -> None:
        descriptor = os.open(self.root, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


class ProcessOnlyFile(ReplacedFile):
    """Good, if it says that it survives the end of a process only."""

    def sync_directory(self) -> None:
        pass


@caught_by(
    "atomic.killed_at_any_call",
    "atomic.killed_in_any_write",
    "atomic.error_at_any_call",
    "atomic.power_loss",
)
class OverwrittenInPlace(ReplacedFile):
    def stage_and_replace(self, file: Path, data: bytes) -> None:
        file.write_bytes(data)


@caught_by("atomic.killed_at_any_call", "atomic.killed_in_any_write")
class LineByLine(ReplacedFile):
    """JSON Lines, rewritten in place; a torn end is passed over in silence."""

    async def get(self, id: str) -> list[Message] | None:
        if not self.file(id).exists():
            return None
        found = []
        for line in self.file(id).read_bytes().splitlines():
            with suppress(ValueError):
                found.append(json.loads(line))
        return found

    async def save(self, id: str, messages: list[Message]) -> None:
        with self.file(id).open("wb", buffering=0) as stream:
            for message in messages:
                stream.write(json.dumps(message).encode() + b"\n")


@caught_by("atomic.power_loss")
class NeverSynced(ReplacedFile):
    """Renamed and nothing else: the name may be on the disk before the content."""

    def sync(self, descriptor: int) -> None:
        pass

    def sync_directory(self) -> None:
        pass


@caught_by("atomic.power_loss")
class NotSynced(ReplacedFile):
    def sync(self, descriptor: int) -> None:
        pass


@caught_by("atomic.power_loss")
class SyncedTooLate(ReplacedFile):
    """The content is synced after the rename that makes it current."""

    def sync(self, descriptor: int) -> None:
        pass

    def replace(self, staged: Path, file: Path) -> None:
        staged.replace(file)
        with file.open("rb") as stream:
            os.fsync(stream.fileno())


@caught_by("durable.power_loss_after_save")
class DirectoryNotSynced(ReplacedFile):
    def sync_directory(self) -> None:
        pass


@caught_by("atomic.short_write")
class ShortWriteIgnored(ReplacedFile):
    def write_all(self, descriptor: int, data: bytes) -> None:
        os.write(descriptor, data)


@caught_by("atomic.error_at_any_call", "atomic.short_write")
class FullDiskSwallowed(ReplacedFile):
    def write(self, file: Path, data: bytes) -> None:
        with suppress(OSError):
            super().write(file, data)


@caught_by("atomic.killed_at_any_call")
class StagedOnAnotherFileSystem(ReplacedFile):
    """`shutil.move` copies where it cannot rename."""

    def staged(self, file: Path) -> Path:
        return Path("/dev/shm") / f"{file.stem}.{secrets.token_hex(8)}"

    def replace(self, staged: Path, file: Path) -> None:
        shutil.move(staged, file)


@caught_by("atomic.killed_at_any_call")
class LockLeftBehind(ReplacedFile):
    """A lock file that only its maker removes: a process that dies locks everybody out."""

    def write(self, file: Path, data: bytes) -> None:
        lock = self.root / "busy"
        os.close(os.open(lock, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        try:
            self.stage_and_replace(file, data)
        finally:
            lock.unlink()


@caught_by("atomic.cancelled_in_any_call")
class WrittenInThread(ReplacedFile):
    """Stages, syncs and replaces properly, in a worker thread that nobody waits for."""

    async def save(self, id: str, messages: list[Message]) -> None:
        data = json.dumps(messages).encode()
        await asyncio.to_thread(self.stage_and_replace, self.file(id), data)


@caught_by("atomic.overtaken_in_any_call")
class OneStagedName(ReplacedFile):
    """Two writers of one conversation stage in one file, and nothing keeps them apart."""

    def write(self, file: Path, data: bytes) -> None:
        self.stage_and_replace(file, data)

    def staged(self, file: Path) -> Path:
        return file.with_suffix(".staged")


class Rows:
    """Good: one row per conversation; WAL, synced on every commit."""

    pragmas: ClassVar[tuple[str, ...]] = ("journal_mode = WAL", "synchronous = FULL")
    tables = "CREATE TABLE IF NOT EXISTS texts (id TEXT PRIMARY KEY, text TEXT)"
    isolation: Any = ""

    def __init__(self) -> None:
        self.database = sqlite3.connect(
            Path(os.environ[PLACE]) / "rows.db", isolation_level=self.isolation
        )
        for pragma in self.pragmas:
            self.database.execute(f"PRAGMA {pragma}")
        self.database.execute(self.tables)
        self.database.commit()

    async def get(self, id: str) -> list[Message] | None:
        row = self.database.execute("SELECT text FROM texts WHERE id = ?", (id,)).fetchone()
        return None if row is None else json.loads(row[0])

    async def save(self, id: str, messages: list[Message]) -> None:
        with self.database:
            self.database.execute("REPLACE INTO texts VALUES (?, ?)", (id, json.dumps(messages)))

    async def close(self) -> None:
        self.database.close()


class RowsWithAllSynced(Rows):
    """Good: the journal's removal is synced too."""

    pragmas = ("journal_mode = DELETE", "synchronous = EXTRA")


@caught_by("durable.power_loss_after_save")
class RowsByDefault(Rows):
    """SQLite as it comes."""

    pragmas = ("journal_mode = DELETE", "synchronous = FULL")


@caught_by("durable.power_loss_after_save")
class RowsSyncedAtCheckpoints(Rows):
    pragmas = ("journal_mode = WAL", "synchronous = NORMAL")


@caught_by("atomic.power_loss")
class RowsNeverSynced(Rows):
    pragmas = ("journal_mode = DELETE", "synchronous = OFF")


@caught_by("atomic.killed_at_any_call", "atomic.power_loss")
class RowPerMessage(Rows):
    """Each statement commits by itself."""

    tables = "CREATE TABLE IF NOT EXISTS lines (id TEXT, n INT, text TEXT, PRIMARY KEY (id, n))"
    isolation = None

    async def get(self, id: str) -> list[Message] | None:
        query = "SELECT text FROM lines WHERE id = ? ORDER BY n"
        return [json.loads(text) for (text,) in self.database.execute(query, (id,))] or None

    async def save(self, id: str, messages: list[Message]) -> None:
        self.database.execute("DELETE FROM lines WHERE id = ?", (id,))
        for n, message in enumerate(messages):
            row = (id, n, json.dumps(message))
            self.database.execute("INSERT INTO lines VALUES (?, ?, ?)", row)


@caught_by("concurrent.cancelled_at_each_await")
class AwaitsInTransaction(Rows):
    """A task that is cancelled between BEGIN and COMMIT leaves the transaction open."""

    isolation = None

    async def save(self, id: str, messages: list[Message]) -> None:
        for statement in ("BEGIN IMMEDIATE", None, "COMMIT"):
            await asyncio.sleep(0)
            if statement:
                self.database.execute(statement)
            else:
                row = (id, json.dumps(messages))
                self.database.execute("REPLACE INTO texts VALUES (?, ?)", row)


class InTheModule:
    """Keeps everything in the process."""

    texts: ClassVar[dict[str, str]] = {}

    async def get(self, id: str) -> list[Message] | None:
        return json.loads(self.texts[id]) if id in self.texts else None

    async def save(self, id: str, messages: list[Message]) -> None:
        self.texts[id] = json.dumps(messages)


class SavesNothing(InTheModule):
    async def save(self, id: str, messages: list[Message]) -> None:
        raise RuntimeError("not today")


class Mapped(ReplacedFile):
    """Writes through a mapping, which no system call shows."""

    def write_all(self, descriptor: int, data: bytes) -> None:
        name = f"/proc/self/fd/{descriptor}"
        readable = os.open(name, os.O_RDWR)
        os.ftruncate(readable, len(data))
        with mmap.mmap(readable, len(data)) as memory:
            memory[:] = data
        os.close(readable)
