"""One I/O event loop per process, used from any loop and any thread.

The runtime calls a store from successive `asyncio.run` calls, from several loops and threads at
once, and from a loop inside a worker thread while an outer one is live. Client libraries bind their
connections to one loop. So all drivers live on one loop of our own, in a daemon thread, and a call
crosses over and back. A fork starts a new one; a process may exit without closing anything.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
import os
import threading
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, final

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

__all__ = ["Caller", "Commitment", "Portal", "current_portal"]

T = TypeVar("T")

_LOG = logging.getLogger("toolnexus_stores")


@final
class Commitment:
    """Whether a piece of work has passed the point after which its outcome must be awaited."""

    __slots__ = ("made",)

    def __init__(self) -> None:
        self.made = False

    def make(self) -> None:
        """From here on the work is not withdrawn."""
        self.made = True


@final
class Portal:
    """The I/O loop and the way onto it."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._kept: set[object] = set()
        # A daemon, so that the process exits at once even if nobody closed a store; threads that
        # clients start from it inherit that.
        threading.Thread(target=self._serve, name="toolnexus-stores-io", daemon=True).start()

    def _serve(self) -> None:
        # This frame holds the portal, and with it what it keeps, until the very end of the process:
        # the interpreter must not take an open backend apart while it shuts down.
        self._loop.run_forever()

    def keep(self, resource: object) -> None:
        """Hold *resource* until `release`, whoever else forgets it."""
        self._kept.add(resource)

    def release(self, resource: object) -> None:
        """Hold *resource* no longer."""
        self._kept.discard(resource)

    async def run(self, work: Coroutine[Any, Any, T], commitment: Commitment | None = None) -> T:
        """Run *work* on the I/O loop and return what it returns, on the caller's loop.

        A caller that is cancelled withdraws the work, waits until it has ended, and is cancelled
        then. Work whose *commitment* is made is not withdrawn but awaited, so that no write
        outlives its caller.
        """
        caller = asyncio.get_running_loop()
        if caller is self._loop:
            return await work
        waiter: asyncio.Future[T] = caller.create_future()
        call = _Call(work, waiter, commitment)
        self._loop.call_soon_threadsafe(call.start)
        cancelled: asyncio.CancelledError | None = None
        while not waiter.done():
            try:
                await asyncio.wait((waiter,))
            except asyncio.CancelledError as error:
                cancelled = error
                self._loop.call_soon_threadsafe(call.withdraw)
        if cancelled is None:
            return waiter.result()
        if not waiter.cancelled():
            waiter.exception()  # seen: what the caller asked for is to be cancelled
        raise cancelled

    def post(self, work: Coroutine[Any, Any, object]) -> None:
        """Run *work* on the I/O loop with nobody waiting for it."""
        self._loop.call_soon_threadsafe(_Call(work, None, None).start)


@final
class Caller:
    """The event loop and the context that a call came from, for what the host gave us to call."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._context = contextvars.copy_context()

    async def call(self, function: Callable[[T], object], argument: T) -> None:
        """Call *function* there, await what it returns, and raise what it raises."""

        async def called() -> None:
            outcome = function(argument)
            if inspect.isawaitable(outcome):
                await outcome

        if asyncio.get_running_loop() is self._loop:
            await called()
            return
        begin = partial(asyncio.run_coroutine_threadsafe, called(), self._loop)
        await asyncio.wrap_future(self._context.run(begin))

    def post(self, function: Callable[[T], object], argument: T) -> None:
        """Call *function* there, with nobody waiting for it."""

        def called() -> None:
            try:
                function(argument)
            except Exception:
                _LOG.exception("a callback of the host failed")

        try:
            self._loop.call_soon_threadsafe(called, context=self._context)
        except RuntimeError:  # the caller's loop was closed meanwhile: nobody listens any more
            return


@final
class _Call:
    """One piece of work on its way over and back. Its methods run on the I/O loop."""

    __slots__ = ("_commitment", "_task", "_waiter", "_work")

    def __init__(
        self,
        work: Coroutine[Any, Any, T],
        waiter: asyncio.Future[T] | None,
        commitment: Commitment | None,
    ) -> None:
        self._work: Coroutine[Any, Any, Any] = work
        self._waiter: asyncio.Future[Any] | None = waiter
        self._commitment = commitment
        self._task: asyncio.Task[Any] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._work)
        if self._waiter is not None:
            self._task.add_done_callback(self._deliver)

    def withdraw(self) -> None:
        if self._task is not None and not (self._commitment and self._commitment.made):
            self._task.cancel()

    def _deliver(self, task: asyncio.Task[Any]) -> None:
        waiter = self._waiter
        assert waiter is not None  # noqa: S101 - `start` adds this callback for a waiter only
        try:
            waiter.get_loop().call_soon_threadsafe(_settle, waiter, task)
        except RuntimeError:  # the caller's loop was closed meanwhile: nobody waits any more
            if not task.cancelled():
                task.exception()


def _settle(waiter: asyncio.Future[Any], task: asyncio.Task[Any]) -> None:
    if task.cancelled():
        waiter.cancel()
        return
    error = task.exception()
    if error is None:
        waiter.set_result(task.result())
    else:
        waiter.set_exception(error)


@final
class _Current:
    """The portal of this process, made on first use."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._portal: Portal | None = None

    def get(self) -> Portal:
        with self._lock:
            if self._portal is None:
                self._portal = Portal()
            return self._portal

    def forget(self) -> None:
        """In a forked child: the parent's loop thread is not here, and its lock may be held."""
        self._lock = threading.Lock()
        self._portal = None


_current = _Current()
os.register_at_fork(after_in_child=_current.forget)


def current_portal() -> Portal:
    """The portal of this process."""
    return _current.get()
