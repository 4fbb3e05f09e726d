"""The gallery of drivers: each breaks one promise of the protocol, as really happens."""

from __future__ import annotations

import asyncio
import fnmatch
import hashlib
import json
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from toolnexus_stores.driver import Conflict, Edit, Fault, Head, Record, Version

from .good_drivers import DictDriver, FolderDriver
from .good_stores import settle
from .mutants import Mutant

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

__all__ = ["DRIVER_MUTANTS", "named", "opened"]

D = TypeVar("D")

DRIVER_MUTANTS: list[Mutant] = []
_in_memory: dict[tuple[str, str], dict[str, Record]] = {}


def mutant(*caught_by: str) -> Callable[[type[D]], type[D]]:
    def noted(driver: type[D]) -> type[D]:
        DRIVER_MUTANTS.append(Mutant(driver, caught_by))
        return driver

    return noted


def opened(name: str, place: str) -> DictDriver:
    """The driver called *name* over the storage at *place*: a directory, or memory."""
    make: Any = globals()[name]
    if issubclass(make, FolderDriver):
        folder: FolderDriver = make(Path(place))
        return folder
    made: DictDriver = make(_in_memory.setdefault((name, place), {}))
    return made


def named(name: str, place: object) -> str:
    """What names that factory, for other processes too."""
    return f"{__name__}:opened({name!r}, {str(place)!r})"


# Records.


@mutant("driver.absent")
class MissingIsEmpty(DictDriver):
    async def read(self, key: str) -> Record | None:
        return await super().read(key) or Record(Head("none", b"{}"), [])


@mutant("driver.created")
class ReturnsAnotherVersion(DictDriver):
    """The one that the write was made from."""

    async def write(self, key: str, edit: Edit) -> Version:
        version = await super().write(key, edit)
        return edit.expected or f"{version}0"


@mutant("driver.empty")
class EmptyIsMissing(DictDriver):
    async def read(self, key: str) -> Record | None:
        record = await super().read(key)
        return record if record and record.texts else None


@mutant("driver.texts_exact")
class ParsesTexts(DictDriver):
    """A column of JSON."""

    def edited(self, stored: Record | None, edit: Edit) -> Record:
        record = super().edited(stored, edit)
        return Record(record.head, [json.dumps(json.loads(text)).encode() for text in record.texts])


@mutant("driver.meta_exact")
class WritesMetaOnce(DictDriver):
    def edited(self, stored: Record | None, edit: Edit) -> Record:
        record = super().edited(stored, edit)
        meta = stored.head.meta if stored else edit.meta
        return Record(Head(record.head.version, meta), record.texts)


@mutant("driver.extended", "driver.cut")
class KeepsNothing(DictDriver):
    """Takes the tail for the whole."""

    def edited(self, stored: Record | None, edit: Edit) -> Record:
        return Record(super().edited(stored, edit).head, list(edit.tail))


@mutant("driver.cut", "driver.replaced", "driver.empty")
class NeverCuts(DictDriver):
    """Upserts rows by position."""

    def edited(self, stored: Record | None, edit: Edit) -> Record:
        record = super().edited(stored, edit)
        beyond = stored.texts[len(record.texts) :] if stored else []
        return Record(record.head, [*record.texts, *beyond])


@mutant("driver.replaced")
class ComparesLengths(DictDriver):
    def edited(self, stored: Record | None, edit: Edit) -> Record:
        record = super().edited(stored, edit)
        same = stored is not None and len(stored.texts) == len(record.texts)
        return Record(record.head, stored.texts if stored and same else record.texts)


@mutant("driver.large")
class ReadsOnePage(DictDriver):
    async def read(self, key: str) -> Record | None:
        record = await super().read(key)
        return None if record is None else Record(record.head, record.texts[:1_000])


@mutant("driver.keys_apart")
class CutsKeys(DictDriver):
    """A VARCHAR(255)."""

    async def read(self, key: str) -> Record | None:
        return await super().read(key[:255])

    async def head(self, key: str) -> Head | None:
        return await super().head(key[:255])

    async def write(self, key: str, edit: Edit) -> Version:
        return await super().write(key[:255], edit)


@mutant("driver.deleted")
class DeletesTheHeadOnly(DictDriver):
    """The rows stay, and the next record of that key has them in front."""

    def __init__(self, records: dict[str, Record]) -> None:
        super().__init__(records)
        self.left: list[bytes] = []

    async def delete(self, key: str) -> bool:
        if key in self.records:
            self.left = self.records[key].texts
        return await super().delete(key)

    def edited(self, stored: Record | None, edit: Edit) -> Record:
        record = super().edited(stored, edit)
        return record if stored else Record(record.head, [*self.left, *record.texts])


# Versions.


@mutant("driver.creates_once")
class CreatesOverIt(DictDriver):
    async def write(self, key: str, edit: Edit) -> Version:
        if edit.expected is None:
            self.records.pop(key, None)
        return await super().write(key, edit)


@mutant("driver.stale", "driver.one_winner", "driver.opened_twice")
class LastWriterWins(DictDriver):
    def version_of(self, record: Record | None) -> Any:
        return _Any()


class _Any:
    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = None  # type: ignore[assignment] # equal to everything


@mutant("driver.gone")
class RevivesTheDeleted(DictDriver):
    """INSERT … ON CONFLICT DO UPDATE WHERE version = expected: inserts if there is nothing."""

    async def write(self, key: str, edit: Edit) -> Version:
        if key not in self.records and edit.expected is not None:
            edit = Edit(None, edit.meta, 0, edit.whole(), edit.whole)
        return await super().write(key, edit)


@mutant("driver.versions_are_new", "driver.gone")
class CountsFromOne(DictDriver):
    def new_version(self, stored: Record | None, edit: Edit) -> Version:
        return str(int(stored.head.version) + 1) if stored else "1"


@mutant("driver.versions_are_new")
class HashesTheContent(DictDriver):
    """As an object store's tag does."""

    def new_version(self, stored: Record | None, edit: Edit) -> Version:
        return hashlib.sha256(b"\n".join(edit.whole())).hexdigest()


# Listing.


@mutant("driver.listed")
class MatchesLike(DictDriver):
    async def keys(self, prefix: str) -> AsyncIterator[str]:
        for key in list(self.records):
            if fnmatch.fnmatchcase(key, prefix.replace("_", "?") + "*"):
                yield key


@mutant("driver.listed")
class ListsTheFolder(DictDriver):
    async def keys(self, prefix: str) -> AsyncIterator[str]:
        async for key in super().keys(prefix.rpartition("/")[0] + "/"):
            yield key


@mutant("driver.not_listed")
class ListsTheDeleted(DictDriver):
    def __init__(self, records: dict[str, Record]) -> None:
        super().__init__(records)
        self.index: list[str] = []

    async def write(self, key: str, edit: Edit) -> Version:
        if key not in self.index:
            self.index.append(key)
        return await super().write(key, edit)

    async def keys(self, prefix: str) -> AsyncIterator[str]:
        for key in [key for key in self.index if key.startswith(prefix)]:
            yield key


@mutant("driver.many_keys")
class ListsOnePage(DictDriver):
    async def keys(self, prefix: str) -> AsyncIterator[str]:
        count = 0
        async for key in super().keys(prefix):
            count += 1
            if count <= 1_000:
                yield key


@mutant("driver.listed_meanwhile")
class ListsByOffset(DictDriver):
    """LIMIT 5 OFFSET n: what is removed moves the rest forward, past the cursor."""

    async def keys(self, prefix: str) -> AsyncIterator[str]:
        offset = 0
        while page := sorted(key for key in self.records if key.startswith(prefix))[offset:][:5]:
            for key in page:
                yield key
            await settle()
            offset += 5


# Many at once.


@mutant("driver.one_winner", "driver.counted")
class ChecksAndThenWrites(DictDriver):
    async def write(self, key: str, edit: Edit) -> Version:
        stored = self.records.get(key)
        if self.version_of(stored) != edit.expected:
            raise Conflict(key)
        await settle()
        record = self.edited(stored, edit)
        self.records[key] = record
        return record.head.version


@mutant("driver.readers")
class ReadsInTwoSteps(DictDriver):
    async def read(self, key: str) -> Record | None:
        head = await super().head(key)
        await settle()
        record = await super().read(key)
        return None if record is None or head is None else Record(head, record.texts)


@mutant("driver.cancelled")
class WritesInTwoSteps(DictDriver):
    """The texts, and then the head."""

    async def write(self, key: str, edit: Edit) -> Version:
        stored = self.records.get(key)
        if self.version_of(stored) != edit.expected:
            raise Conflict(key)
        record = self.edited(stored, edit)
        if stored:
            half = [*stored.texts[: edit.keep], *edit.tail[: len(edit.tail) // 2]]
            self.records[key] = Record(stored.head, half)
        await settle()
        self.records[key] = record
        return record.head.version


@mutant("driver.cancelled")
class WritesAfterItsCaller(DictDriver):
    """A thread cannot be cancelled, and here it checks the version before it waits for the disk."""

    async def write(self, key: str, edit: Edit) -> Version:
        stored = self.records.get(key)
        if self.version_of(stored) != edit.expected:
            raise Conflict(key)
        record = self.edited(stored, edit)

        def publish() -> None:
            time.sleep(sum(map(len, record.texts)) / 20e6)  # what a disk takes
            self.records[key] = record

        await asyncio.to_thread(publish)
        return record.head.version


# Places.


@mutant("driver.reopened", "driver.opened_twice", "driver.opened_at_once")
class KeepsToItself(DictDriver):
    def __init__(self, records: dict[str, Record]) -> None:
        super().__init__({})


@mutant("driver.opened_twice")
class CachesForEver(DictDriver):
    def __init__(self, records: dict[str, Record]) -> None:
        super().__init__(records)
        self.cache: dict[str, Record] = {}

    async def read(self, key: str) -> Record | None:
        return self.cache.get(key) or await super().read(key)

    async def write(self, key: str, edit: Edit) -> Version:
        version = await super().write(key, edit)
        self.cache[key] = self.records[key]
        return version

    async def delete(self, key: str) -> bool:
        self.cache.pop(key, None)
        return await super().delete(key)


@mutant("driver.opened_at_once")
class CreatesWithoutCare(FolderDriver):
    async def open(self) -> None:
        if not self.root.exists():
            await settle()
            self.root.mkdir(parents=True)


@mutant("driver.another_process", "driver.processes_at_once")
class InThisProcess(DictDriver):
    """In memory, which other processes do not have."""


@mutant("driver.processes_at_once")
class LocksItsThreadsOnly(FolderDriver):
    """Checks and publishes without an await, which excludes the tasks of this process only."""

    @contextmanager
    def locked(self) -> Iterator[None]:
        yield

    def publish(self, key: str, record: Record) -> None:
        time.sleep(0.001)  # what a disk takes
        super().publish(key, record)


# Errors.


@mutant("driver.bugs_are_bugs")
class ExplainsEverything(DictDriver):
    def explain(self, error: Exception) -> Fault | None:
        return Fault("the backend failed")


@mutant("driver.reasons_keep_secrets")
class ShowsTheError(DictDriver):
    def explain(self, error: Exception) -> Fault | None:
        return Fault(str(error)) if isinstance(error, OSError) else None


@mutant("driver.place_is_told")
class LooksForIt(DictDriver):
    def where(self, key: str) -> str:
        return f"memory, version {self.records[key].head.version}"
