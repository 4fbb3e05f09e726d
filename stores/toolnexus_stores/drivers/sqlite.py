"""``sqlite://``: the embedded default. One database file, WAL, every commit synced to the disk.

A save touches the head row and the rows of the changed tail, in one transaction; saves that wait
together commit together, and cross to the connection's thread and back together. Reads run on a
connection of their own and wait for nobody.

Why these settings (https://www.sqlite.org/pragma.html#pragma_synchronous, wal.html):

- ``journal_mode=WAL`` with ``synchronous=FULL`` syncs the log on every commit. The default journal
  mode with FULL does not sync the directory after it unlinks the journal, so that a power loss can
  undo an acknowledged commit.
- WAL needs shared memory: not on network file systems.
- ``BEGIN IMMEDIATE``: a transaction that reads first and then upgrades fails at once under
  contention, whatever the busy timeout.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import sqlite3
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, final

from toolnexus_stores.driver import Conflict, Edit, Fault, Head, Record, Version
from toolnexus_stores.errors import FormatTooNew, InvalidURL
from toolnexus_stores.options import DriverOptions, Location

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
    from sqlite3 import Row

    from aiosqlite import Connection

__all__ = ["SqliteDriver", "SqliteOptions"]

Durability = Literal["power", "process"]

_MEMORY = ":memory:"
_SCHEMA_VERSION = 1
_BUSY_SECONDS = 2.0  # how long SQLite itself waits for a lock; the store tries again after that
_BATCH = 64  # saves that share one commit, at most
_KEYS_AT_ONCE = 1_000

# `place` is the conversation's number and the message's position in one integer, so that a
# transcript's rows lie side by side in the table itself and an append writes to no second index.
_POSITION_BITS = 24
_SCHEMA = f"""
BEGIN IMMEDIATE;
CREATE TABLE IF NOT EXISTS toolnexus_schema (version INTEGER NOT NULL);
INSERT INTO toolnexus_schema
    SELECT {_SCHEMA_VERSION} WHERE NOT EXISTS (SELECT * FROM toolnexus_schema);
CREATE TABLE IF NOT EXISTS toolnexus_conversations (
    number INTEGER PRIMARY KEY,
    key TEXT NOT NULL UNIQUE,
    version INTEGER NOT NULL,
    meta TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS toolnexus_messages (place INTEGER PRIMARY KEY, text TEXT NOT NULL);
CREATE VIEW IF NOT EXISTS toolnexus_transcripts AS
    SELECT key, place & {2**_POSITION_BITS - 1} AS position, text
    FROM toolnexus_conversations JOIN toolnexus_messages
    ON place BETWEEN number << {_POSITION_BITS} AND (number + 1 << {_POSITION_BITS}) - 1;
COMMIT;
"""  # noqa: S608 - numbers of this module only
_HEAD = "SELECT version, meta FROM toolnexus_conversations WHERE key = ?"
# The head comes first, as position -1: one statement reads one snapshot.
_READ = f"""
SELECT -1, version, meta FROM toolnexus_conversations WHERE key = :key
UNION ALL
SELECT place, NULL, text FROM toolnexus_messages WHERE place BETWEEN
    (SELECT number FROM toolnexus_conversations WHERE key = :key) << {_POSITION_BITS} AND
    ((SELECT number FROM toolnexus_conversations WHERE key = :key) + 1 << {_POSITION_BITS}) - 1
ORDER BY 1
"""  # noqa: S608 - numbers of this module only
_CREATE = """
INSERT INTO toolnexus_conversations (key, version, meta) VALUES (?, ?, ?)
ON CONFLICT (key) DO NOTHING RETURNING number
"""
_ADVANCE = """
UPDATE toolnexus_conversations SET version = ?, meta = ? WHERE key = ? AND version = ?
RETURNING number
"""
_REMOVE = "DELETE FROM toolnexus_conversations WHERE key = ? RETURNING number"
_CUT = "DELETE FROM toolnexus_messages WHERE place BETWEEN ? AND ?"
_ADD = "INSERT INTO toolnexus_messages (place, text) VALUES (?, ?)"
_KEYS = """
SELECT key FROM toolnexus_conversations WHERE key > ? AND substr(key, 1, ?) = ?
ORDER BY key LIMIT ?
"""


class SqliteOptions(DriverOptions):
    """``sqlite:///relative.db``, ``sqlite:////absolute.db`` or ``sqlite:///:memory:``."""

    aliases: ClassVar[frozenset[str]] = frozenset({"sqlite+aiosqlite"})
    requires: ClassVar[Mapping[str, str]] = {"aiosqlite": "aiosqlite"}

    path: str

    durability: Durability = "power"
    """``power``: an acknowledged save survives a power loss (``synchronous=FULL``). ``process``: it
    survives the end of the process; a power loss may undo the last saves (``NORMAL``)."""

    @classmethod
    def locate(cls, location: Location) -> Mapping[str, object]:
        """The database file."""
        path = location.path[1:]
        if location.netloc or not path:
            raise InvalidURL("sqlite:// takes sqlite:///relative.db or sqlite:////absolute.db")
        # Absolute from here on: what the process does to its working directory moves nothing.
        return {"path": path if path == _MEMORY else str(Path(path).absolute())}

    def driver(self) -> SqliteDriver:
        """A driver over the file."""
        return SqliteDriver(self.path, durability=self.durability)


@final
@dataclass(eq=False, slots=True)
class _Job:
    """A write or a delete that waits for the writer."""

    key: str
    edit: Edit | None
    done: asyncio.Future[Version | None]
    outcome: Version | Exception | None = None
    """None: the record is not as the edit expects, or there is nothing to delete."""


@final
class SqliteDriver:
    """Records in two tables of the database file at *path*, made if missing (mode 0600).

    The tables are named ``toolnexus_…``: the file may hold other tables of the host's.
    """

    def __init__(self, path: str, *, durability: Durability = "power") -> None:
        self._path = path
        self._power = durability == "power"
        self._reader: Connection | None = None
        self._writer: Connection | None = None
        # Without a file there is one connection, on which a reader would see an open transaction.
        self._turns = asyncio.Lock() if path == _MEMORY else nullcontext()
        self._jobs: asyncio.Queue[_Job | None] = asyncio.Queue()
        self._batch: list[_Job] = []
        self._writing: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """See `Driver.open`."""
        writer = await self._connect(partial(_BatchConnection, self._batch))
        try:
            for pragma in self._pragmas():
                await writer.execute_fetchall(pragma)
            await writer.executescript(_SCHEMA)
            await self._check_schema(writer)
            reader = writer if self._path == _MEMORY else await self._connect()
        except BaseException:
            await writer.close()
            raise
        self._writer, self._reader = writer, reader
        self._writing = asyncio.create_task(self._write_batches(writer))

    async def head(self, key: str) -> Head | None:
        """See `Driver.head`."""
        rows = list(await self._fetched(_HEAD, (key,)))
        return _head(*rows[0]) if rows else None

    async def read(self, key: str) -> Record | None:
        """See `Driver.read`."""
        rows = await self._fetched(_READ, {"key": key})
        lines = iter(rows)
        first = next(lines, None)
        if first is None:
            return None
        return Record(_head(first[1], first[2]), [row[2].encode("ascii") for row in lines])

    async def write(self, key: str, edit: Edit) -> Version:
        """See `Driver.write`."""
        version = await self._queued(key, edit)
        if version is None:
            raise Conflict(f"the version of {key} is another one")
        return version

    async def delete(self, key: str) -> bool:
        """See `Driver.delete`."""
        return await self._queued(key, None) is not None

    async def keys(self, prefix: str) -> AsyncIterator[str]:
        """See `Driver.keys`."""
        last = ""
        while True:
            rows = await self._fetched(_KEYS, (last, len(prefix), prefix, _KEYS_AT_ONCE))
            found = [row[0] for row in rows]
            for key in found:
                yield key
            if len(found) < _KEYS_AT_ONCE:
                return
            last = found[-1]

    async def close(self) -> None:
        """See `Driver.close`. The last process to close folds the log into the database file."""
        if self._writing is not None:
            self._jobs.put_nowait(None)
            await self._writing
        for connection in {self._reader, self._writer} - {None}:
            await connection.close()  # type: ignore[union-attr] # None is subtracted
        self._reader = self._writer = self._writing = None

    def explain(self, error: Exception) -> Fault | None:
        """See `Driver.explain`; codes from https://www.sqlite.org/rescode.html."""
        if isinstance(error, OSError):
            reason = os.strerror(error.errno).lower() if error.errno else "the file system failed"
            return Fault(reason)
        if not isinstance(error, sqlite3.Error):
            return None
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}:
            return Fault("the database file is damaged, or not a database", damaged=True)
        if code in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL}:
            return Fault("the database is locked by another writer", transient=True)
        reason = _REASONS.get(code, "SQLite reported an error")
        return Fault(reason, ambiguous=code == sqlite3.SQLITE_IOERR)

    def where(self, key: str) -> str:
        """The file."""
        return f"{self._path}, key {key}"

    async def _connect(
        self, factory: Callable[..., sqlite3.Connection] = sqlite3.Connection
    ) -> Connection:
        import aiosqlite  # noqa: PLC0415 - no client is imported before the first call

        if self._path != _MEMORY:
            await asyncio.to_thread(_create_private, self._path)
        # The connection's thread inherits from the I/O loop's that it is a daemon: a process that
        # closes nothing still exits.
        return await aiosqlite.connect(
            self._path,
            isolation_level=None,
            timeout=_BUSY_SECONDS,
            cached_statements=64,
            factory=factory,
        )

    def _pragmas(self) -> Iterable[str]:
        yield f"PRAGMA synchronous = {'FULL' if self._power else 'NORMAL'}"
        yield "PRAGMA fullfsync = 1"  # macOS: through the drive's cache; elsewhere without effect
        yield "PRAGMA journal_mode = WAL"

    async def _check_schema(self, connection: Connection) -> None:
        ((version,),) = await connection.execute_fetchall("SELECT version FROM toolnexus_schema")
        if version > _SCHEMA_VERSION:
            raise FormatTooNew(
                f"the database has schema {version}; this version of toolnexus-stores knows "
                f"{_SCHEMA_VERSION}: upgrade it"
            )

    async def _fetched(
        self, query: str, parameters: tuple[object, ...] | dict[str, object]
    ) -> Iterable[Row]:
        if self._reader is None:
            raise RuntimeError("the driver is not open")
        async with self._turns:
            return await self._reader.execute_fetchall(query, parameters)

    async def _queued(self, key: str, edit: Edit | None) -> Version | None:
        """Hand a change to the writer; it happens, or not, whatever becomes of the caller."""
        if self._writing is None:
            raise RuntimeError("the driver is not open")
        done: asyncio.Future[Version | None] = asyncio.get_running_loop().create_future()
        self._jobs.put_nowait(_Job(key, edit, done))
        return await done

    async def _write_batches(self, connection: Connection) -> None:
        """The one writer: takes what waits, commits it together, until `close`."""
        ending = False
        while not ending:
            batch = [await self._jobs.get()]
            while len(batch) < _BATCH and not self._jobs.empty():
                batch.append(self._jobs.get_nowait())
            ending = None in batch
            # A caller that was cancelled while its change waited has withdrawn it.
            self._batch[:] = [job for job in batch if job is not None and not job.done.done()]
            if self._batch:
                async with self._turns:
                    await connection.commit()
                for job in self._batch:
                    _settle(job)


def _settle(job: _Job) -> None:
    """Tell the caller, if it still waits."""
    if job.done.done():
        return
    if isinstance(job.outcome, Exception):
        job.done.set_exception(job.outcome)
    else:
        job.done.set_result(job.outcome)


@final
class _BatchConnection(sqlite3.Connection):
    """A connection whose `commit` makes the changes that wait in *batch*, and commits them.

    So that all of them take one way to the connection's thread and back.
    """

    def __init__(self, batch: list[_Job], *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._batch = batch

    def commit(self) -> None:
        """All of the batch in one transaction; if that fails, each in one of its own.

        So that no conversation's fault (a full disk, a text too large) fails another's save. Each
        job's outcome says what became of it.
        """
        try:
            self._commit_together(self._batch)
        except Exception as error:
            if len(self._batch) == 1:
                self._batch[0].outcome = error
                return
            for job in self._batch:
                self._commit_alone(job)

    def _commit_alone(self, job: _Job) -> None:
        try:
            self._commit_together([job])
        except Exception as error:
            job.outcome = error

    def _commit_together(self, jobs: Sequence[_Job]) -> None:
        self.execute("BEGIN IMMEDIATE")
        try:
            for job in jobs:
                job.outcome = self._applied(job)
            self.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):  # SQLite rolls back by itself after some errors
                self.execute("ROLLBACK")
            raise

    def _applied(self, job: _Job) -> Version | None:
        """One change inside the open transaction; None if its record is not as it expects."""
        edit = job.edit
        if edit is None:
            removed = self.execute(_REMOVE, (job.key,)).fetchone()
            if removed is None:
                return None
            self.execute(_CUT, _places(removed[0], 0))
            return "removed"
        version, meta = secrets.randbits(62), edit.meta.decode("ascii")
        if edit.expected is None:
            head = self.execute(_CREATE, (job.key, version, meta)).fetchone()
        else:
            head = self.execute(_ADVANCE, (version, meta, job.key, int(edit.expected))).fetchone()
        if head is None:
            return None
        first, last = _places(head[0], edit.keep)
        if edit.expected is not None:
            self.execute(_CUT, (first, last))
        rows = ((first + i, text.decode("ascii")) for i, text in enumerate(edit.tail))
        self.executemany(_ADD, rows)
        return str(version)


def _places(number: int, keep: int) -> tuple[int, int]:
    """The rows of a conversation from position *keep* on: first and last place."""
    return (number << _POSITION_BITS) + keep, (number + 1 << _POSITION_BITS) - 1


def _head(version: int, meta: str) -> Head:
    return Head(str(version), meta.encode("ascii"))


def _create_private(path: str) -> None:
    """Make the file before SQLite does, which would make it readable by everybody.

    Only if it is not there: to close any descriptor of a database drops the locks that this
    process holds on it, and with them the log's safety (https://www.sqlite.org/howtocorrupt.html,
    2.2). A file that is made just now is locked by nobody.
    """
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode=0o600))


_REASONS = {
    sqlite3.SQLITE_FULL: "the disk is full",
    sqlite3.SQLITE_READONLY: "the database is read-only",
    sqlite3.SQLITE_CANTOPEN: "the database file cannot be opened",
    sqlite3.SQLITE_IOERR: "the disk reported an error",
    sqlite3.SQLITE_PERM: "access to the database file is denied",
    sqlite3.SQLITE_TOOBIG: "a message is larger than SQLite stores",
}
