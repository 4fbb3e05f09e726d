"""`Store`: conversations that survive, over any driver."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
import weakref
from contextlib import suppress
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, TypeVar, final

from . import seen
from .archive import Archive, Snapshot, kept
from .codec import freeze, thaw
from .engine import Engine
from .errors import CorruptRecord, FormatTooNew, StoreClosed, StoreError, shown_id
from .journal import check_chain
from .keeper import Keeper, Policy, Terms, hooked, journal_key
from .keys import Keys, check_id
from .meta import Notes
from .options import StoreOptions
from .portal import Caller, Commitment, current_portal
from .transcript import Draft, Transcript, meta_of
from .verify import Verification, verified

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
    from types import TracebackType
    from typing import Any, Self

    from .codec import Message
    from .driver import Driver, Version
    from .engine import Operation
    from .journal import EntryKind
    from .mirror import Known
    from .portal import Portal

__all__ = ["Store"]

T = TypeVar("T")

_LOG = logging.getLogger("toolnexus_stores")
_HEADS_AT_ONCE = 32
_numbers = count(1)


@final
class Store:
    """Conversations by id, durable and atomic. What the runtime takes as ``store=``.

    Usable from any event loop and any thread, also several at once, and after a fork. Made by
    `open_store`; or over a driver of your own: ``Store(MyDriver)``.
    """

    def __init__(
        self,
        driver: Callable[[], Driver],
        options: StoreOptions | None = None,
        *,
        label: str = "",
        policy: Policy | None = None,
        vault: Callable[[], Driver] | None = None,
    ) -> None:
        options = options or StoreOptions()
        keys = Keys() if options.scope is None else Keys().scoped(options.scope)
        self._shared = _Shared(driver, vault, options)
        self._policy = policy or Policy(options.snapshots)
        self._refuse = options.on_conflict == "error"
        self._keys = keys
        self._label = label or getattr(driver, "__name__", "custom driver")
        self._is_view = False

    def __repr__(self) -> str:
        scope = f" scope={self._keys.prefix!r}" if self._keys.prefix else ""
        return f"<Store {self._label}{scope}>"

    def scoped(self, scope: str) -> Store:
        """A view of the same storage whose conversations no other scope sees.

        Agent ids repeat from run to run (``root/helper.1``): give every user a scope, or they read
        each other's conversations. Closing a view does nothing; the store it came from owns the
        connection.
        """
        view = Store.__new__(Store)
        view._shared = self._shared
        view._keys = self._keys.scoped(scope)
        view._label = self._label
        view._policy = self._policy
        view._refuse = self._refuse
        view._is_view = True
        return view

    async def open(self) -> None:
        """Connect now, rather than at the first call, so that a wrong URL is seen at the start."""

        async def work(engine: Engine) -> None:
            async with engine.operation("open"):
                pass

        await self._run(work)

    async def get(self, id: str) -> list[Message] | None:
        """The transcript of *id*: None if it was never saved, ``[]`` if it was saved empty.

        Reads what the last acknowledged save by any process wrote; never part of one. The list and
        everything in it belong to the caller. Raises `InvalidId`, `Unavailable`, `CorruptRecord`
        or `FormatTooNew`.
        """
        place = self._place(id)
        known = await self._run(partial(_read, id=id, key=place[1]))
        # In the caller's thread: a large transcript does not hold up the others' I/O.
        messages = None if known is None else thaw(known.frozen)
        seen.note(place, None if known is None else known.version, id, messages)
        return messages

    load = get

    async def save(self, id: str, messages: Sequence[Message]) -> None:
        """Replace the transcript of *id* by *messages*, as they are now.

        A reader sees the old transcript or the new one, never a mixture, whatever dies. When this
        returns, the new one is durable to the degree of the URL's ``durability``, and every other
        process reads it. Of two concurrent saves the last one wins. A caller that is cancelled
        before the write begins withdraws it; later, it learns of the outcome first (within
        ``timeout``) and is cancelled then.

        Raises, with the stored transcript as it was: `InvalidId` and `InvalidTranscript` before any
        I/O; `CorruptRecord` or `FormatTooNew` if what is stored cannot be read; `HookFailed` if
        ``before_compaction`` vetoes; `Conflict` only with ``on_conflict=error``; `Unavailable`,
        whose ``ambiguous`` says if the write may have happened all the same.
        """
        place = self._place(id)
        if place in hooked.get():
            raise StoreError("before_compaction may not save the conversation it is called for")
        await self._replace(id, Draft(freeze(messages)), "rewrite")

    async def _replace(self, id: str, draft: Draft, kind: EntryKind) -> None:
        place, commitment = self._place(id), Commitment()
        base, caller = seen.last_seen(place), self._caller()

        async def work(engine: Engine) -> Version:
            async with (
                engine.operation(f"save of {shown_id(id)}", commitment) as operation,
                engine.line(place[1]),
            ):
                keeper = self._keeper(engine, operation, caller, id)
                terms = Terms(base, keeper, refuse=self._refuse, kind=kind)
                transcript = Transcript(engine.mirror, operation, place[1], id)
                return await transcript.replace(draft, terms)

        try:
            version = await self._run(work, commitment)
        except BaseException:
            seen.forget(place)  # whatever became of it: what the caller saw is no ground any more
            raise
        seen.moved(place, base, version)

    async def delete(self, id: str) -> bool:
        """Remove *id*: transcript, snapshots and journal, damaged or not; say if there was one."""
        place, commitment = self._place(id), Commitment()

        async def work(engine: Engine) -> bool:
            async with (
                engine.operation(f"delete of {shown_id(id)}", commitment) as operation,
                engine.line(place[1]),
            ):
                engine.mirror.drop(place[1])
                found = await operation.delete(place[1])
                await _forgotten(self._archive(engine, id))
                return found

        found = await self._run(work, commitment)
        seen.forget(place)
        return found

    @property
    def keeps_snapshots(self) -> bool:
        """Whether a save that drops messages keeps them: ``snapshots=`` is not 0."""
        return self._policy.snapshots > 0

    async def snapshots(self, id: str) -> list[Snapshot]:
        """What is kept of *id*, newest first. Raises `CorruptRecord` for a damaged journal."""
        check_id(id)

        async def work(engine: Engine) -> list[Snapshot]:
            return kept(await self._archive(engine, id).entries())

        return await self._run(work)

    async def snapshot(self, id: str) -> str | None:
        """Keep the transcript of *id* as it is; the snapshot's digest, None if it has no message.

        Raises `ValueError` for a store that keeps no snapshots.
        """
        self._require_snapshots()
        place, caller = self._place(id), Caller()

        async def work(engine: Engine) -> str | None:
            async with (
                engine.operation(f"snapshot of {shown_id(id)}") as operation,
                engine.line(place[1]),
            ):
                transcript = Transcript(engine.mirror, operation, place[1], id)
                known = await transcript.current()
                if known is None or not known.frozen:
                    return None
                keeper = self._keeper(engine, operation, caller, id)
                assert keeper is not None  # noqa: S101 - snapshots are on
                await keeper.keep_by_hand(known)
                await keeper.after_save()
                return known.meta.digest

        return await self._run(work)

    async def restore(self, id: str, digest: str) -> list[Message]:
        """Make the snapshot *digest* the transcript of *id* again; what it says.

        A save like any other: what it drops is kept, and it can be vetoed. Raises `LookupError` if
        there is no such snapshot, `CorruptRecord` if it is damaged, and what `save` raises.
        """
        self._require_snapshots()
        check_id(id)

        async def work(engine: Engine) -> Known | None:
            return await self._archive(engine, id).snapshot(digest)

        known = await self._run(work) if digest.isalnum() else None
        if known is None:
            raise LookupError(f"restore of {shown_id(id)}: there is no such snapshot")
        await self._replace(id, Draft(list(known.frozen)), "restore")
        return thaw(known.frozen)

    async def verify(self, id: str) -> Verification:
        """Hold the transcript of *id*, its snapshots and its journal against each other.

        Reports whatever it finds, and raises only what keeps it from reading (`Unavailable`). The
        journal's hashes are checked under ``TOOLNEXUS_STORE_KEY``, if that is set.
        """
        place = self._place(id)

        async def work(engine: Engine) -> Verification:
            try:
                async with engine.operation(f"verify of {shown_id(id)}") as operation:
                    transcript = Transcript(engine.mirror, operation, place[1], id)
                    known = await transcript.read()
            except CorruptRecord:
                known, damaged = None, True
            else:
                damaged = False
            return await verified(self._archive(engine, id), id, known, damaged, journal_key())

        return await self._run(work)

    async def gc(self, *, older_than: float = 3600) -> int:
        """Remove the spare snapshots of this scope, which a crash or a veto left; how many.

        A snapshot is spare if no journal entry promises it, and it was made *older_than* seconds
        ago: a younger one may belong to a save that is under way.
        """

        async def keys(engine: Engine) -> list[str]:
            async with self._shared.vault(engine).operation("gc") as operation:
                return [key async for key in operation.keys(self._keys.snapshots())]

        removed = 0
        for key in await self._run(keys):
            removed += await self._run(partial(self._collected, key=key, older_than=older_than))
        return removed

    async def _collected(self, engine: Engine, key: str, older_than: float) -> bool:
        """Whether the snapshot at *key* was spare, and is removed."""
        async with self._shared.vault(engine).operation("gc") as operation:
            head = await operation.head(key)
            if head is None:
                return False
            meta = meta_of(head, operation, key)
            if time.time() - meta.created < older_than:
                return False
        found = await self.verify(meta.id)
        if any(each.digest == meta.digest and each.snapshot != "pruned" for each in found.entries):
            return False
        async with self._shared.vault(engine).operation("gc") as operation:
            return await operation.delete(key)

    async def keep_unsaved(
        self,
        messages: Sequence[Message],
        compacted: Sequence[Message],
        *,
        id: str | None = None,
        first: bool = False,
    ) -> None:
        """Keep *messages*, saved or not, which a run goes on without: it has them *compacted*.

        What `snapshotting` calls. Without *id* the conversation is the one whose messages, as `get`
        gave them, are in the run; the *first* call of a run on a new conversation is in the only
        new one that its task has read. Raises `LookupError` if that does not tell.
        """
        self._require_snapshots()
        keys = self._keys
        if id is None:
            key, id = seen.run_of(self._shared.number, messages, compacted, first=first)
            keys = Keys.around(key)
        await self._keep_unsaved(
            keys, check_id(id), Draft(freeze(messages)), Draft(freeze(compacted))
        )

    async def _keep_unsaved(self, keys: Keys, id: str, draft: Draft, compacted: Draft) -> None:
        key, caller = keys.transcript(id), Caller()
        draft.settle(0)
        compacted.settle(0)

        async def work(engine: Engine) -> None:
            async with (
                engine.operation(f"snapshot of {shown_id(id)}") as operation,
                engine.line(key),
            ):
                known = await Transcript(engine.mirror, operation, key, id).current()
                keeper = self._keeper(engine, operation, caller, id, keys)
                assert keeper is not None  # noqa: S101 - snapshots are on
                notes = known.meta.notes if known else Notes()
                await keeper.keep_unsaved(draft.frozen, compacted.frozen, notes)

        await self._run(work)

    def follow_run(self, messages: Sequence[Message], *, first: bool = False) -> None:
        """Remember whose run this is, from its *messages*, for a later `keep_unsaved`."""
        with suppress(LookupError):
            seen.run_of(self._shared.number, messages, messages, first=first)

    def _require_snapshots(self) -> None:
        if not self.keeps_snapshots:
            raise ValueError("this store keeps no snapshots: open it with snapshots=")

    def _place(self, id: str) -> seen.Place:
        return self._shared.number, self._keys.transcript(check_id(id))

    def _caller(self) -> Caller | None:
        return None if self._policy.idle else Caller()

    def _archive(self, engine: Engine, id: str, keys: Keys | None = None) -> Archive:
        return Archive(engine, self._shared.vault(engine), keys or self._keys, id)

    def _keeper(
        self,
        engine: Engine,
        operation: Operation,
        caller: Caller | None,
        id: str,
        keys: Keys | None = None,
    ) -> Keeper | None:
        if caller is None:
            return None
        keys = keys or self._keys
        return Keeper(
            self._policy,
            self._archive(engine, id, keys),
            engine.foresight,
            operation,
            caller,
            id=id,
            place=(self._shared.number, keys.transcript(id)),
        )

    async def ids(self) -> AsyncIterator[str]:
        """The id of every conversation in this scope, verbatim, in no particular order.

        A conversation that is saved or deleted meanwhile may or may not be among them. A damaged
        record is left out and named in the log (logger ``toolnexus_stores``, level ERROR).
        """

        async def keys(engine: Engine) -> list[str]:
            async with engine.operation("listing") as operation:
                return [key async for key in operation.keys(self._keys.transcripts())]

        found = await self._run(keys)
        for start in range(0, len(found), _HEADS_AT_ONCE):
            batch = found[start : start + _HEADS_AT_ONCE]
            for id in await self._run(partial(_ids_of, keys=batch)):
                yield id

    async def close(self) -> None:
        """Finish what is under way and release the backend. Closing twice does nothing."""
        if not self._is_view:
            await self._shared.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def _run(
        self,
        work: Callable[[Engine], Coroutine[Any, Any, T]],
        commitment: Commitment | None = None,
    ) -> T:
        portal, engine = self._shared.engine()
        return await portal.run(work(engine), commitment)


@final
class _Shared:
    """What a store and its scoped views have in common: one engine for each portal they meet."""

    def __init__(
        self,
        driver: Callable[[], Driver],
        vault: Callable[[], Driver] | None,
        options: StoreOptions,
    ) -> None:
        self.number = next(_numbers)
        """Tells stores of this process apart."""
        self._driver = driver
        self._vault_driver = vault
        self._options = options
        self._lock = threading.Lock()
        self._portal: Portal | None = None
        self._engine: Engine | None = None
        self._finalizer: weakref.finalize[..., _Shared] | None = None
        self._inherited: list[Engine] = []
        self._closed = False

    def engine(self) -> tuple[Portal, Engine]:
        """The engine on this process's I/O loop. Raises `StoreClosed`."""
        portal = current_portal()
        with self._lock:
            if self._closed:
                raise StoreClosed("the store is closed")
            if self._engine is None or self._portal is not portal:
                self._renew(portal)
            assert self._engine is not None  # noqa: S101 - made just now
            return portal, self._engine

    def _renew(self, portal: Portal) -> None:
        if self._engine is not None and self._finalizer is not None:
            # After a fork: the connections are the parent's, and closing them here would end them
            # there. They are kept, unused, so that no destructor does so either.
            self._inherited.append(self._engine)
            self._finalizer.detach()
        self._portal = portal
        self._engine = engine = self._engine_over(self._driver())
        if self._vault_driver is not None:
            engine.vault = self._engine_over(self._vault_driver(), cache=0)
        portal.keep(engine)
        # A store that is dropped without `close` must not keep its connections for ever.
        self._finalizer = weakref.finalize(self, _release, portal, engine)
        self._finalizer.atexit = False  # at exit the I/O loop is gone, and the process with it

    def _engine_over(self, driver: Driver, cache: int | None = None) -> Engine:
        budget = int(self._options.cache) if cache is None else cache
        return Engine(driver, timeout=self._options.timeout, cache=budget)

    @staticmethod
    def vault(engine: Engine) -> Engine:
        """Where the snapshots of the conversations in *engine* are."""
        return engine.vault or engine

    async def close(self) -> None:
        with self._lock:
            self._closed = True
            portal, engine, self._engine = self._portal, self._engine, None
            if self._finalizer is not None:
                self._finalizer.detach()
        if portal is not None and engine is not None and portal is current_portal():
            commitment = Commitment()
            commitment.make()
            await portal.run(_closed(portal, engine), commitment)


def _release(portal: Portal, engine: Engine) -> None:
    if portal is current_portal():
        portal.post(_closed(portal, engine))


async def _closed(portal: Portal, engine: Engine) -> None:
    try:
        await engine.close()
    finally:
        portal.release(engine)


async def _read(engine: Engine, id: str, key: str) -> Known | None:
    """What is stored now."""
    async with engine.operation(f"get of {shown_id(id)}") as operation:
        return await Transcript(engine.mirror, operation, key, id).current()


async def _forgotten(archive: Archive) -> None:
    """Remove the snapshots that a journal names, and the journal; a damaged one names fewer."""
    record = await archive.raw_journal()
    if record is not None:
        _, entries = check_chain(record.texts, None)
        await archive.remove({entry.snapshot for entry in entries} - {""})
        await archive.remove_journal()


async def _ids_of(engine: Engine, keys: Sequence[str]) -> list[str]:
    """The ids of those records that are still there and can be read."""
    found = await asyncio.gather(*(_id_of(engine, key) for key in keys))
    return [id for id in found if id is not None]


async def _id_of(engine: Engine, key: str) -> str | None:
    try:
        async with engine.operation(f"listing of {key}") as operation:
            head = await operation.head(key)
            return None if head is None else meta_of(head, operation, key).id
    except CorruptRecord as error:
        _LOG.error("left out of a listing: %s: %s", error, error.where)
    except FormatTooNew as error:
        _LOG.error("left out of a listing: %s", error)
    return None
