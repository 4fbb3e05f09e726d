"""`Store`: conversations that survive, over any driver."""

from __future__ import annotations

import asyncio
import logging
import secrets
import threading
import time
import weakref
from typing import TYPE_CHECKING, TypeVar, final

from .change import change_of
from .codec import canonical, freeze, frozen_text, parse_text, thaw
from .driver import Conflict, Edit
from .engine import Engine
from .errors import CorruptRecord, FormatTooNew, StoreClosed, shown_id
from .keys import Keys, check_id
from .meta import FORMAT, Meta, UnreadableMeta, chain, last_link
from .mirror import Known
from .options import StoreOptions
from .portal import Commitment, current_portal

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
    from types import TracebackType
    from typing import Any, Self

    from .codec import Message
    from .driver import Driver, Head, Version
    from .engine import Operation
    from .portal import Portal

__all__ = ["Store"]

T = TypeVar("T")

_LOG = logging.getLogger("toolnexus_stores")
_HEADS_AT_ONCE = 32


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
    ) -> None:
        options = options or StoreOptions()
        keys = Keys() if options.scope is None else Keys().scoped(options.scope)
        self._shared = _Shared(driver, options)
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
        check_id(id)

        async def work(engine: Engine) -> list[Message] | None:
            async with engine.operation(f"get of {shown_id(id)}") as operation:
                known = await self._current(engine, operation, id)
                return None if known is None else thaw(known.frozen)

        return await self._run(work)

    load = get

    async def save(self, id: str, messages: Sequence[Message]) -> None:
        """Replace the transcript of *id* by *messages*, as they are now.

        A reader sees the old transcript or the new one, never a mixture, whatever dies. When this
        returns, the new one is durable to the degree of the URL's ``durability``, and every other
        process reads it. Of two concurrent saves the last one wins. A caller that is cancelled
        before the write begins withdraws it; later, it learns of the outcome first (within
        ``timeout``) and is cancelled then.

        Raises, with the stored transcript as it was: `InvalidId` and `InvalidTranscript` before any
        I/O; `CorruptRecord` or `FormatTooNew` if what is stored cannot be read; `Unavailable`,
        whose ``ambiguous`` says if the write may have happened all the same.
        """
        check_id(id)
        draft = _Draft(freeze(messages))
        commitment = Commitment()

        async def work(engine: Engine) -> None:
            async with (
                engine.operation(f"save of {shown_id(id)}", commitment) as operation,
                engine.line(self._keys.transcript(id)),
            ):
                await self._replace(engine, operation, id, draft)

        await self._run(work, commitment)

    async def delete(self, id: str) -> bool:
        """Remove the transcript of *id*, damaged or not; say whether there was one."""
        check_id(id)
        key = self._keys.transcript(id)
        commitment = Commitment()

        async def work(engine: Engine) -> bool:
            async with (
                engine.operation(f"delete of {shown_id(id)}", commitment) as operation,
                engine.line(key),
            ):
                engine.mirror.drop(key)
                return await operation.delete(key)

        return await self._run(work, commitment)

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
            for id in await self._run(lambda engine, batch=batch: _ids_of(engine, batch)):
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

    async def _current(self, engine: Engine, operation: Operation, id: str) -> Known | None:
        """What is stored now; from the mirror, if the backend says that it is still current."""
        key = self._keys.transcript(id)
        known = engine.mirror.get(key)
        if known is not None:
            head = await operation.head(key)
            if head is None:
                engine.mirror.drop(key)
                return None
            if head.version == known.version:
                return known
        return await self._read(engine, operation, id)

    async def _read(self, engine: Engine, operation: Operation, id: str) -> Known | None:
        key = self._keys.transcript(id)
        engine.mirror.drop(key)
        record = await operation.read(key)
        if record is None:
            return None
        meta = _meta_of(record.head, operation, key, id)
        links = chain(record.texts)
        if len(record.texts) != meta.count:
            operation.corrupt(f"{len(record.texts)} messages of {meta.count}", key)
        if last_link(links) != meta.digest:
            operation.corrupt("its messages do not match their digest", key)
        try:
            frozen = [parse_text(text) for text in record.texts]
        except (ValueError, RecursionError) as error:
            operation.corrupt("a message is not JSON", key, cause=error)
        known = Known(record.head.version, meta, frozen, links)
        engine.mirror.put(key, known)
        return known

    async def _replace(
        self, engine: Engine, operation: Operation, id: str, draft: _Draft
    ) -> None:
        """Make *draft* the transcript of *id*, whatever other writers do meanwhile."""
        key = self._keys.transcript(id)
        known = engine.mirror.get(key)
        # Before any I/O: what has no JSON form is refused while nothing has happened yet.
        draft.settle(change_of(known.frozen, draft.frozen).keep if known else 0)
        if known is None:
            known = await self._read(engine, operation, id)
        while True:
            change = change_of(known.frozen if known else None, draft.frozen)
            try:
                if change.kind != "same":
                    await self._write(engine, operation, id, draft, known, change.keep)
                    return
                head = await operation.head(key)
                if head is not None and known is not None and head.version == known.version:
                    return
            except Conflict:
                pass  # another writer came between; what it wrote is what this save replaces
            known = await self._read(engine, operation, id)

    async def _write(
        self,
        engine: Engine,
        operation: Operation,
        id: str,
        draft: _Draft,
        known: Known | None,
        keep: int,
    ) -> None:
        key = self._keys.transcript(id)
        tail = draft.texts(keep)
        links = chain(tail, known.links_of(keep) if known else b"")
        now = time.time()
        meta = Meta(
            format=FORMAT,
            id=id,
            count=len(draft.frozen),
            digest=last_link(links),
            token=secrets.token_hex(8),
            created=known.meta.created if known else now,
            updated=now,
        )
        expected = known.version if known else None
        edit = Edit(expected, meta.encode(), keep, tail, lambda: draft.texts(0))
        engine.mirror.drop(key)  # until the outcome is known, nothing is
        version = await operation.write(key, edit, meta.token)
        # What was equal shares its bytes with what was known: a long transcript is held once.
        kept = known.frozen[:keep] if known else []
        engine.mirror.put(key, Known(version, meta, [*kept, *draft.frozen[keep:]], links))


@final
class _Draft:
    """Messages to save, brought to JSON form as far as that is not known to be so."""

    def __init__(self, frozen: list[bytes]) -> None:
        self.frozen = frozen
        self._texts: dict[int, bytes] = {}

    def settle(self, start: int) -> None:
        """Bring everything from *start* on to JSON form; what is before it is so already."""
        for index in range(start, len(self.frozen)):
            self.frozen[index], self._texts[index] = canonical(self.frozen[index], index)

    def texts(self, start: int) -> list[bytes]:
        """The texts from *start* on."""
        return [
            self._texts[index] if index in self._texts else frozen_text(self.frozen[index])
            for index in range(start, len(self.frozen))
        ]


@final
class _Shared:
    """What a store and its scoped views have in common: one engine for each portal they meet."""

    def __init__(self, driver: Callable[[], Driver], options: StoreOptions) -> None:
        self._driver = driver
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
        self._engine = engine = Engine(
            self._driver(), timeout=self._options.timeout, cache=int(self._options.cache)
        )
        # A store that is dropped without `close` must not keep its connections for ever.
        self._finalizer = weakref.finalize(self, _release, portal, engine)
        self._finalizer.atexit = False  # at exit the I/O loop is gone, and the process with it

    async def close(self) -> None:
        with self._lock:
            self._closed = True
            portal, engine, self._engine = self._portal, self._engine, None
            if self._finalizer is not None:
                self._finalizer.detach()
        if portal is not None and engine is not None and portal is current_portal():
            await portal.run(engine.close(), _made())


def _release(portal: Portal, engine: Engine) -> None:
    if portal is current_portal():
        portal.post(engine.close())


def _made() -> Commitment:
    commitment = Commitment()
    commitment.make()
    return commitment


async def _ids_of(engine: Engine, keys: Sequence[str]) -> list[str]:
    """The ids of those records that are still there and can be read."""
    found = await asyncio.gather(*(_id_of(engine, key) for key in keys))
    return [id for id in found if id is not None]


async def _id_of(engine: Engine, key: str) -> str | None:
    try:
        async with engine.operation(f"listing of {key}") as operation:
            head = await operation.head(key)
            return None if head is None else _meta_of(head, operation, key).id
    except (CorruptRecord, FormatTooNew) as error:
        _LOG.error("left out of a listing: %s", error)  # noqa: TRY400 - the text says it all
        return None


def _meta_of(head: Head, operation: Operation, key: str, id: str | None = None) -> Meta:
    """The notes on a record. Raises `CorruptRecord` or `FormatTooNew`."""
    try:
        meta = Meta.decode(head.meta)
    except UnreadableMeta as error:
        operation.corrupt(str(error), key, cause=error)
    if meta.format > FORMAT:
        raise FormatTooNew(
            f"the record {key} has format {meta.format}; this version of toolnexus-stores knows "
            f"{FORMAT}: upgrade it"
        )
    if id is not None and meta.id != id:
        operation.corrupt("it belongs to another conversation", key)
    return meta
