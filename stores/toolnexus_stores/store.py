"""`Store`: conversations that survive, over any driver."""

from __future__ import annotations

import asyncio
import logging
import threading
import weakref
from functools import partial
from typing import TYPE_CHECKING, TypeVar, final

from .codec import freeze, thaw
from .engine import Engine
from .errors import CorruptRecord, FormatTooNew, StoreClosed, shown_id
from .keys import Keys, check_id
from .options import StoreOptions
from .portal import Commitment, current_portal
from .transcript import Draft, Transcript, meta_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
    from types import TracebackType
    from typing import Any, Self

    from .codec import Message
    from .driver import Driver
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
        key = self._keys.transcript(check_id(id))

        async def work(engine: Engine) -> list[Message] | None:
            async with engine.operation(f"get of {shown_id(id)}") as operation:
                known = await Transcript(engine.mirror, operation, key, id).current()
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
        key = self._keys.transcript(check_id(id))
        draft = Draft(freeze(messages))
        commitment = Commitment()

        async def work(engine: Engine) -> None:
            async with (
                engine.operation(f"save of {shown_id(id)}", commitment) as operation,
                engine.line(key),
            ):
                await Transcript(engine.mirror, operation, key, id).replace(draft)

        await self._run(work, commitment)

    async def delete(self, id: str) -> bool:
        """Remove the transcript of *id*, damaged or not; say whether there was one."""
        key = self._keys.transcript(check_id(id))
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
        portal.keep(engine)
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
