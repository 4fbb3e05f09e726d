"""The gallery: stores that each break one promise, in a way that really happens.

Each names the check that must catch it. A mutant in memory is shared between openings, as its
storage would be; one on disk gets a directory. Each can be opened by name, by other processes too.
"""

from __future__ import annotations

import asyncio
import atexit
import copy
import json
import math
import re
import threading
import time
import unicodedata
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from .good_stores import DirectoryStore, Message, TextStore, encoded, settle

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

__all__ = ["MUTANTS", "Mutant", "named", "opened"]

S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class Mutant:
    """A broken store and the checks that are there to catch it."""

    make: Callable[..., Any]
    caught_by: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.make.__name__


MUTANTS: list[Mutant] = []
_in_memory: dict[tuple[str, str], Any] = {}


def mutant(*caught_by: str) -> Callable[[type[S]], type[S]]:
    def noted(store: type[S]) -> type[S]:
        MUTANTS.append(Mutant(store, caught_by))
        return store

    return noted


def opened(name: str, place: str) -> Any:
    """The store called *name* on the storage at *place*: a directory, or this process's memory."""
    make: Any = globals()[name]
    if issubclass(make, DirectoryStore):
        return make(Path(place))
    if (name, place) not in _in_memory:
        _in_memory[name, place] = make()
    return _in_memory[name, place]


def named(name: str, place: object) -> str:
    """What names that factory, for other processes too."""
    return f"{__name__}:opened({name!r}, {str(place)!r})"


# Missing and empty.


@mutant("core.saved_empty")
class EmptyAsMissing(TextStore):
    async def get(self, id: str) -> list[Message] | None:
        return await super().get(id) or None


@mutant("core.never_saved")
class MissingAsEmpty(TextStore):
    async def get(self, id: str) -> list[Message] | None:
        return await super().get(id) or []


@mutant("core.emptied", "core.rollback")
class NothingToSave(TextStore):
    async def save(self, id: str, messages: list[Message]) -> None:
        if messages or id not in self.texts:
            await super().save(id, messages)


# Replacement.


@mutant("core.saved_twice", "core.grows", "core.read_your_write")
class AppendOnly(TextStore):
    async def save(self, id: str, messages: list[Message]) -> None:
        await super().save(id, [*(await self.get(id) or []), *messages])


@mutant("core.shrinks", "core.rollback")
class KeepsOldRows(TextStore):
    """Upserts rows by position and never deletes one."""

    async def save(self, id: str, messages: list[Message]) -> None:
        beyond = (await self.get(id) or [])[len(messages) :]
        await super().save(id, [*messages, *beyond])


@mutant("core.edited_in_place", "core.replaced")
class InsertsOnlyNewRows(TextStore):
    """Trusts that stored messages never change."""

    async def save(self, id: str, messages: list[Message]) -> None:
        stored = (await self.get(id) or [])[: len(messages)]
        await super().save(id, [*stored, *messages[len(stored) :]])


@mutant("core.nothing_merged", "core.edited_in_place")
class Merges(TextStore):
    async def save(self, id: str, messages: list[Message]) -> None:
        stored = (await self.get(id) or []) + [{}] * len(messages)
        merged = [{**old, **new} for old, new in zip(stored, messages, strict=False)]
        await super().save(id, merged)


@mutant("core.compaction", "core.rollback", "core.shrinks")
class RefusesShorter(TextStore):
    """Takes every shorter transcript for a lost update."""

    async def save(self, id: str, messages: list[Message]) -> None:
        if len(messages) < len(await self.get(id) or []):
            raise RuntimeError("conflict")
        await super().save(id, messages)


@mutant("core.gated_turn")
class SavesOncePerRead(TextStore):
    """Insists on an optimistic version that each read renews, and each save spends."""

    def __init__(self) -> None:
        super().__init__()
        self.spent: set[str] = set()

    async def get(self, id: str) -> list[Message] | None:
        return await super().get(id)

    async def save(self, id: str, messages: list[Message]) -> None:
        if messages == await self.get(id) and id not in self.spent:
            self.spent.add(id)
        elif id in self.spent:
            self.spent.remove(id)
            return
        await super().save(id, messages)


@mutant("core.ids_apart")
class OneConversation(TextStore):
    """Forgets the id."""

    async def get(self, id: str) -> list[Message] | None:
        return await super().get("the only one")

    async def save(self, id: str, messages: list[Message]) -> None:
        await super().save("the only one", messages)


@mutant("core.read_twice")
class ReadsOnce(TextStore):
    """A queue that was taken for a table."""

    async def get(self, id: str) -> list[Message] | None:
        found = await super().get(id)
        self.texts.pop(id, None)
        return found


# Copies.


@mutant("core.saved_list", "core.returned_list", "core.saved_messages", "core.returned_messages")
class KeepsTheListItself(TextStore):
    def __init__(self) -> None:
        super().__init__()
        self.lists: dict[str, list[Message]] = {}

    async def get(self, id: str) -> list[Message] | None:
        return self.lists.get(id)

    async def save(self, id: str, messages: list[Message]) -> None:
        self.lists[id] = messages


@mutant("core.saved_messages", "core.returned_messages")
class ShallowCopy(KeepsTheListItself):
    async def get(self, id: str) -> list[Message] | None:
        found = self.lists.get(id)
        return None if found is None else list(found)

    async def save(self, id: str, messages: list[Message]) -> None:
        self.lists[id] = list(messages)


@mutant("core.json_form", "core.content_that_is_not_json", "core.cycles")
class DeepCopy(KeepsTheListItself):
    async def get(self, id: str) -> list[Message] | None:
        return copy.deepcopy(self.lists.get(id))

    async def save(self, id: str, messages: list[Message]) -> None:
        self.lists[id] = copy.deepcopy(messages)


@mutant("core.callers_messages")
class StampsTheCallersMessages(TextStore):
    async def save(self, id: str, messages: list[Message]) -> None:
        await super().save(id, messages)
        for message in messages:
            message["saved"] = True


class Row(dict[str, Any]):
    """A row of some client library."""


@mutant("core.plain_types")
class GivesRows(TextStore):
    async def get(self, id: str) -> list[Message] | None:
        found = await super().get(id)
        return None if found is None else [Row(each) for each in found]


# Fidelity.


def through(convert: Callable[[Any], Any]) -> type[TextStore]:
    """A store that applies *convert* to every value, on its way in."""

    def converted(value: Any) -> Any:
        if isinstance(value, dict):
            return convert({key: converted(each) for key, each in value.items()})
        if isinstance(value, list | tuple):
            return [converted(each) for each in value]
        return convert(value)

    class Converting(TextStore):
        async def save(self, id: str, messages: list[Message]) -> None:
            encoded(messages)
            await super().save(id, converted(messages))

    return Converting


def text_only(convert: Callable[[str], str]) -> Callable[[Any], Any]:
    return lambda value: convert(value) if isinstance(value, str) else value


@mutant("core.text")
class DropsNonAscii(through(text_only(lambda text: text.encode("ascii", "ignore").decode()))):  # type: ignore[misc]
    pass


@mutant("core.text")
class StripsText(through(text_only(str.strip))):  # type: ignore[misc]
    pass


@mutant("core.control_characters")
class DropsNul(through(text_only(lambda text: text.replace("\x00", "")))):  # type: ignore[misc]
    pass


@mutant("core.lone_surrogates")
class ReplacesHalfCharacters(
    through(text_only(lambda text: text.encode("utf-8", "replace").decode()))  # type: ignore[misc]
):
    pass


@mutant("core.large_message", "core.large")
class CutsAt64KiB(through(text_only(lambda text: text[:65_536]))):  # type: ignore[misc]
    pass


@mutant("core.anthropic_dialect", "core.large_message")
class CutsAt255(through(text_only(lambda text: text[:255]))):  # type: ignore[misc]
    """A VARCHAR(255) of a lenient database."""


@mutant("core.kinds_of_value", "core.openai_dialect")
class DropsNulls(
    through(  # type: ignore[misc]
        lambda value: (
            {key: each for key, each in value.items() if each is not None}
            if isinstance(value, dict)
            else value
        )
    )
):
    pass


@mutant("core.key_order", "core.changes_of_key_order")
class SortsKeys(
    through(  # type: ignore[misc]
        lambda value: dict(sorted(value.items())) if isinstance(value, dict) else value
    )
):
    """What ``jsonb`` does."""


@mutant("core.not_finite")
class NanAsNull(
    through(  # type: ignore[misc]
        lambda value: None if isinstance(value, float) and not math.isfinite(value) else value
    )
):
    pass


@mutant("core.integers")
class IntegersAsFloats(
    through(  # type: ignore[misc]
        lambda value: (
            float(value) if isinstance(value, int) and not isinstance(value, bool) else value
        )
    )
):
    """What a language with one kind of number does."""


@mutant("core.floats")
class RoundsFloats(
    through(lambda value: round(value, 6) if isinstance(value, float) else value)  # type: ignore[misc]
):
    pass


@mutant("core.keys")
class ReplacesDotsInKeys(
    through(  # type: ignore[misc]
        lambda value: (
            {re.sub(r"[.$]", "_", key): each for key, each in value.items()}
            if isinstance(value, dict)
            else value
        )
    )
):
    """What document databases ask for."""


@mutant("core.changes_of_kind")
class SkipsWhatIsEqual(TextStore):
    """Python says that 1 == True."""

    async def save(self, id: str, messages: list[Message]) -> None:
        if await self.get(id) != messages:
            await super().save(id, messages)


@mutant("core.deep")
class RefusesDeep(TextStore):
    async def save(self, id: str, messages: list[Message]) -> None:
        if re.search(r"[\[{]{100}", re.sub(r"[^\[{]", "", encoded(messages))):
            raise ValueError("too deep")
        await super().save(id, messages)


@mutant("core.many_messages")
class ReadsOnePage(TextStore):
    """Forgets that a query gives a thousand items at most."""

    async def get(self, id: str) -> list[Message] | None:
        found = await super().get(id)
        return None if found is None else found[:1_000]


@mutant("core.unknown_shapes")
class KnowsItsRoles(TextStore):
    async def save(self, id: str, messages: list[Message]) -> None:
        encoded(messages)
        if any(
            each.get("role") not in {"system", "user", "assistant", "tool"} for each in messages
        ):
            raise ValueError("unknown role")
        await super().save(id, messages)


# Refusals.


@mutant("core.content_that_is_not_json", "core.cycles")
class SwallowsErrors(TextStore):
    async def save(self, id: str, messages: list[Message]) -> None:
        try:
            await super().save(id, messages)
        except TypeError:
            return


@mutant("core.content_that_is_not_json", "core.messages_that_are_not_objects", "core.cycles")
class DeletesBeforeItEncodes(TextStore):
    async def save(self, id: str, messages: list[Message]) -> None:
        self.texts.pop(id, None)
        await super().save(id, messages)


@mutant("core.refused_first_save")
class WritesMessageByMessage(TextStore):
    async def save(self, id: str, messages: list[Message]) -> None:
        before = self.texts.get(id)
        for total in range(len(messages) + 1):
            try:
                await super().save(id, messages[:total])
            except TypeError:
                if before is not None:  # but not what was there: nothing
                    self.texts[id] = before
                raise


@mutant("core.content_that_is_not_json")
class StoresRepr(TextStore):
    async def save(self, id: str, messages: list[Message]) -> None:
        self.texts[id] = json.dumps(messages, default=repr)


@mutant("core.messages_that_are_not_objects")
class StoresAnyJson(TextStore):
    async def save(self, id: str, messages: list[Message]) -> None:
        self.texts[id] = json.dumps(messages)


@mutant("core.refusals_keep_secrets")
class ShowsTheMessage(TextStore):
    async def save(self, id: str, messages: list[Message]) -> None:
        try:
            await super().save(id, messages)
        except TypeError as error:
            raise TypeError(f"cannot store {messages!r}") from error


@mutant("core.refusals_keep_secrets")
class ShowsItsUrl(TextStore):
    """Opened at ``db://ada:hunter2@host``, as the bites test opens it."""

    async def save(self, id: str, messages: list[Message]) -> None:
        try:
            await super().save(id, messages)
        except TypeError:
            raise TypeError("db://ada:hunter2@host: cannot store that") from None


@mutant("core.refusals_are_typed")
class RefusesVaguely(TextStore):
    async def save(self, id: str, messages: list[Message]) -> None:
        try:
            await super().save(id, messages)
        except TypeError:
            raise RuntimeError("save failed") from None


@mutant("core.retried")
class KeepsItsDraft(TextStore):
    """Adds up what it is going to write, and forgets to begin anew after a refusal."""

    def __init__(self) -> None:
        super().__init__()
        self.draft: list[Message] = []

    async def save(self, id: str, messages: list[Message]) -> None:
        for message in messages:
            encoded([message])
            self.draft.append(message)
        await super().save(id, self.draft)
        self.draft = []


# Ids.


def naming(name: Callable[[Any], Any]) -> type[TextStore]:
    """A store that keeps a conversation under *name* of its id."""

    class Naming(TextStore):
        async def get(self, id: str) -> list[Message] | None:
            return await super().get(name(id))

        async def save(self, id: str, messages: list[Message]) -> None:
            await super().save(name(id), messages)

    return Naming


@mutant("core.separators", "core.paths")
class SanitisesIds(naming(lambda name: re.sub(r"\W", "_", str(name)))):  # type: ignore[misc]
    pass


@mutant("core.letter_case")
class LowersIds(naming(lambda name: str(name).lower())):  # type: ignore[misc]
    """What some file systems do."""


@mutant("core.unicode_forms")
class NormalisesIds(naming(lambda name: unicodedata.normalize("NFC", str(name)))):  # type: ignore[misc]
    """What other file systems do."""


@mutant("core.ends")
class StripsIds(naming(lambda name: str(name).strip(" ."))):  # type: ignore[misc]
    pass


@mutant("core.long_ids")
class CutsIds(naming(lambda name: str(name)[:100])):  # type: ignore[misc]
    pass


@mutant("core.control_characters_in_ids")
class EndsIdsAtNul(naming(lambda name: str(name).partition("\x00")[0])):  # type: ignore[misc]
    """What a C library does."""


@mutant("core.ids_of_other_types")
class CallsStrOnIds(naming(str)):  # type: ignore[misc]
    pass


@mutant("core.prefixes")
class MatchesPrefixes(TextStore):
    """``LIKE 'id%'``."""

    async def get(self, id: str) -> list[Message] | None:
        found = [text for key, text in self.texts.items() if str(key).startswith(id)]
        return None if not found else json.loads(found[-1])


@mutant("core.reserved_names")
class MatchesWildcards(TextStore):
    """``LIKE 'id'``."""

    async def get(self, id: str) -> list[Message] | None:
        escaped = re.escape(id).replace("%", ".*").replace("_", ".")
        pattern = re.compile(escaped, re.DOTALL)
        found = [text for key, text in self.texts.items() if pattern.fullmatch(str(key))]
        return None if not found else json.loads(found[-1])


@mutant("core.paths", "core.separators")
class RawPath(DirectoryStore):
    def file(self, id: str) -> Path:
        name = str(id).replace("\x00", "").encode("utf-8", "ignore").decode().lstrip("/")
        file = self.root.joinpath("a", "b", "c", name[:200])
        file.parent.mkdir(parents=True, exist_ok=True)
        return file


# Concurrency.


@mutant("concurrent.writers_of_one_id", "concurrent.cancelled")
class MixesWriters(TextStore):
    """Autocommitted rows."""

    async def save(self, id: str, messages: list[Message]) -> None:
        own = json.loads(encoded(messages))
        for position, message in enumerate(own):
            await settle()
            stored = (await self.get(id) or [])[: len(own)]
            stored[position : position + 1] = [message]
            await super().save(id, stored)


@mutant("concurrent.readers_of_one_id", "concurrent.cancelled")
class DeletesThenInserts(TextStore):
    async def save(self, id: str, messages: list[Message]) -> None:
        own = json.loads(encoded(messages))
        self.texts.pop(id, None)
        await settle()
        await super().save(id, own)


@mutant("concurrent.copied_at_entry")
class CopiesLate(TextStore):
    async def save(self, id: str, messages: list[Message]) -> None:
        await settle()
        await super().save(id, messages)


@mutant("concurrent.cancelled_for_good")
class WritesAfterItsCaller(TextStore):
    """`asyncio.to_thread` cannot be cancelled."""

    async def save(self, id: str, messages: list[Message]) -> None:
        text = encoded(messages)
        await asyncio.to_thread(self.write, id, text)

    def write(self, id: str, text: str) -> None:
        time.sleep(len(text) / 50e6)  # what a disk takes
        self.texts[id] = text


@mutant("concurrent.event_loops_in_turn", "concurrent.event_loops_at_once")
class BoundToItsFirstLoop(TextStore):
    """As clients with a connection of their own are."""

    def __init__(self) -> None:
        super().__init__()
        self.loop: asyncio.AbstractEventLoop | None = None

    async def save(self, id: str, messages: list[Message]) -> None:
        self.loop = self.loop or asyncio.get_running_loop()
        if self.loop is not asyncio.get_running_loop():
            raise RuntimeError("got Future attached to a different loop")
        await super().save(id, messages)


@mutant("concurrent.event_loops_at_once")
class BoundToItsThread(TextStore):
    """As a `sqlite3` connection is."""

    def __init__(self) -> None:
        super().__init__()
        self.users: set[int] = set()

    async def save(self, id: str, messages: list[Message]) -> None:
        self.users.add(threading.get_ident())
        if len(self.users) > 2:
            raise RuntimeError("created in another thread")
        await settle()
        await super().save(id, json.loads(encoded(messages)))


@mutant("concurrent.writers_of_many_ids")
class OneScratchBuffer(TextStore):
    """Shares between calls what belongs to one."""

    async def save(self, id: str, messages: list[Message]) -> None:
        self.scratch = encoded(messages)
        await settle()
        self.texts[id] = self.scratch


@mutant("concurrent.retried")
class CountsItsRows(TextStore):
    """Adds row by row what it has not counted yet, and counts at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: dict[str, list[str]] = {}
        self.counted: dict[str, int] = {}

    async def get(self, id: str) -> list[Message] | None:
        return [json.loads(row) for row in self.rows[id]] if id in self.rows else None

    async def save(self, id: str, messages: list[Message]) -> None:
        new = [encoded([message])[1:-1] for message in messages]
        rows = self.rows.setdefault(id, [])
        if rows[: self.counted.get(id, 0)] != new[: self.counted.get(id, 0)]:
            rows.clear()
            self.counted[id] = 0
        del rows[len(new) :]
        for row in new[self.counted.get(id, 0) :]:
            await settle()
            rows.append(row)
        self.counted[id] = len(new)


@mutant("concurrent.history")
class ReadsFromAReplica(TextStore):
    """Which falls behind when two saves overlap, until the next one that does not."""

    def __init__(self) -> None:
        super().__init__()
        self.replica = TextStore()
        self.saving = 0

    async def get(self, id: str) -> list[Message] | None:
        return await self.replica.get(id)

    async def save(self, id: str, messages: list[Message]) -> None:
        own = json.loads(encoded(messages))
        self.saving += 1
        try:
            await settle()
            await super().save(id, own)
        finally:
            self.saving -= 1
        if not self.saving:
            await self.replica.save(id, own)


# Durability, and management.


@mutant(
    "durable.reopened",
    "durable.opened_twice",
    "durable.reopened_exactly",
    "durable.another_process",
)
class MemoryOnly(DirectoryStore):
    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.memory = TextStore()

    async def get(self, id: str) -> list[Message] | None:
        return await self.memory.get(id)

    async def save(self, id: str, messages: list[Message]) -> None:
        await self.memory.save(id, messages)


@mutant("durable.reopened_empty")
class HasNoFileForNothing(DirectoryStore):
    """Removes the file of an empty transcript, and remembers that it did."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.empty: set[str] = set()

    async def get(self, id: str) -> list[Message] | None:
        return [] if id in self.empty else await super().get(id)

    async def save(self, id: str, messages: list[Message]) -> None:
        await super().save(id, messages)
        self.empty.discard(id)
        if not messages:
            self.empty.add(id)
            self.file(id).unlink()


@mutant("durable.opened_twice", "durable.history", "durable.another_process")
class CachesForEver(DirectoryStore):
    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.cache = TextStore()

    async def get(self, id: str) -> list[Message] | None:
        found = await self.cache.get(id)
        return await super().get(id) if found is None else found

    async def save(self, id: str, messages: list[Message]) -> None:
        await super().save(id, messages)
        await self.cache.save(id, messages)


@mutant("durable.opened_twice", "durable.never_closed", "durable.killed")
class WritesOnClose(MemoryOnly):
    async def get(self, id: str) -> list[Message] | None:
        found = await self.memory.get(id)
        return await DirectoryStore.get(self, id) if found is None else found

    async def close(self) -> None:
        for id, text in self.memory.texts.items():
            await DirectoryStore.save(self, id, json.loads(text))


@mutant("durable.killed")
class WritesAtExit(WritesOnClose):
    """A cache that an exit hook writes back."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        atexit.register(self.flush)

    def flush(self) -> None:
        for id, text in self.memory.texts.items():
            self.write(self.file(id), f"[{encoded([{'id': id}])},{text}]")


@mutant("durable.history")
class WritesInPlace(DirectoryStore):
    def write(self, file: Path, text: str) -> None:
        with file.open("w") as stream:
            stream.write(text[:20])
            stream.flush()
            time.sleep(0.002)  # what a disk takes
            stream.write(text[20:])


@mutant("durable.history")
class SharesItsTemporaryName(DirectoryStore):
    def write(self, file: Path, text: str) -> None:
        staged = file.with_name("new.staged")
        with staged.open("w") as stream:
            stream.write(text)
            stream.flush()
            time.sleep(0.002)  # what a disk takes
        staged.replace(file)


@mutant("core.process_ends")
class LeavesAThread(DirectoryStore):
    """A worker that waits for a close."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.done = threading.Event()
        threading.Thread(target=self.done.wait, name="worker").start()

    async def close(self) -> None:
        self.done.set()


@mutant("durable.closed_meanwhile")
class DropsItsQueueOnClose(DirectoryStore):
    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.open = True

    async def save(self, id: str, messages: list[Message]) -> None:
        own = json.loads(encoded(messages))
        await settle()
        if self.open:
            await super().save(id, own)

    async def close(self) -> None:
        self.open = False


@mutant("management.closed_meanwhile")
class ForgetsWhoWaits(DirectoryStore):
    """Its one writer ends on close, and with it the answers to those in line."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.turn = asyncio.Lock()

    async def save(self, id: str, messages: list[Message]) -> None:
        await self.turn.acquire()
        await settle()
        await DirectoryStore.save(self, id, messages)
        self.turn.release()

    async def close(self) -> None:
        with suppress(RuntimeError):
            self.turn.release()
        await self.turn.acquire()


@mutant("durable.reopened_and_extended", "durable.reopened")
class StartsAnew(DirectoryStore):
    """Removes what it takes for leftovers when it opens."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        for file in root.iterdir():
            file.unlink()


@mutant("management.listed")
class ListsNames(DirectoryStore):
    async def ids(self) -> AsyncIterator[str]:
        async for id in DirectoryStore.ids(self):
            yield re.sub(r"\W", "_", id)


@mutant("management.not_listed")
class CreatesOnRead(DirectoryStore):
    async def get(self, id: str) -> list[Message] | None:
        if not self.file(id).exists():
            await self.save(id, [])
        return await super().get(id)


@mutant("management.deleted")
class DeletesSilently(DirectoryStore):
    async def delete(self, id: str) -> bool:
        await super().delete(id)
        return True


@mutant("management.not_listed_once_deleted")
class ListsTheDeleted(DirectoryStore):
    """An index beside the data, which nobody tidies."""

    async def save(self, id: str, messages: list[Message]) -> None:
        await super().save(id, messages)
        with (self.root / ".index").open("a") as index:
            index.write(json.dumps(id) + "\n")

    async def ids(self) -> AsyncIterator[str]:
        with suppress(FileNotFoundError):
            lines = (self.root / ".index").read_text().splitlines()
            for id in dict.fromkeys(map(json.loads, lines)):
                yield id


@mutant("management.begun_again")
class HidesTheDeleted(DirectoryStore):
    """A tombstone that a later save does not take away."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.hidden: set[str] = set()

    async def delete(self, id: str) -> bool:
        self.hidden.add(id)
        return await super().delete(id)

    async def get(self, id: str) -> list[Message] | None:
        return None if id in self.hidden else await super().get(id)


@mutant("management.closed")
class WorksOnAfterClose(DirectoryStore):
    async def close(self) -> None:
        return
