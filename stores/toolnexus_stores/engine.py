"""One open backend: its driver, its time limits, its retries, and the order of its writes.

Everything here runs on the I/O loop. This is the one place where client errors become store
errors, where a transient fault is tried again, and where a lost acknowledgement is resolved.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, NoReturn, TypeVar, final
from weakref import WeakValueDictionary

from .driver import Damaged
from .errors import Conflict, CorruptRecord, StoreError, Unavailable
from .meta import Meta, UnreadableMeta
from .mirror import Foresight, Mirror

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    from .driver import Driver, Edit, Fault, Head, Record, Version
    from .portal import Commitment

__all__ = ["Engine", "Operation"]

T = TypeVar("T")

_FIRST_PAUSE = 0.01
_LONGEST_PAUSE = 1.0


@final
class Engine:
    """A driver, opened once, and what this process knows of its records."""

    def __init__(self, driver: Driver, *, timeout: float, cache: int) -> None:
        self.driver = driver
        self.mirror = Mirror(cache)
        self.foresight = Foresight()
        self.vault: Engine | None = None
        """Where the snapshots are, if not here."""
        self._timeout = timeout
        self._opening = asyncio.Lock()
        self._opened = False
        self._lines: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._under_way: set[Operation] = set()
        self._idle = asyncio.Event()
        self._idle.set()

    def line(self, key: str) -> asyncio.Lock:
        """Where writers of *key* wait: first come, first served."""
        lock = self._lines.get(key)
        if lock is None:
            lock = self._lines[key] = asyncio.Lock()
        return lock

    @asynccontextmanager
    async def operation(
        self, what: str, commitment: Commitment | None = None
    ) -> AsyncIterator[Operation]:
        """One call of the store, *what* it is for error texts; at most ``timeout`` seconds long."""
        operation = Operation(self.driver, what, self._timeout, commitment)
        self._under_way.add(operation)
        self._idle.clear()
        try:
            async with asyncio.timeout(self._timeout) as limit:
                operation.limit = limit
                await self._open(operation)
                yield operation
        except TimeoutError as error:
            operation.give_up(error)
        finally:
            self._under_way.discard(operation)
            if not self._under_way:
                self._idle.set()

    async def _open(self, operation: Operation) -> None:
        if self._opened:
            return
        async with self._opening:
            if not self._opened:
                await operation.retried(self.driver.open)
                self._opened = True

    async def close(self) -> None:
        """Wait for what is under way, at most ``timeout`` seconds, then release the backend."""
        try:
            async with asyncio.timeout(self._timeout):
                await self._idle.wait()
        except TimeoutError:
            pass  # each operation is bounded by the same time: none can be far from its end
        self.mirror.clear()
        if self.vault is not None:
            await self.vault.close()
        if self._opened:
            self._opened = False
            await self.driver.close()


@final
class Operation:
    """One call of a store on its way to the driver."""

    def __init__(
        self, driver: Driver, what: str, timeout: float, commitment: Commitment | None
    ) -> None:
        self._driver = driver
        self._what = what
        self._timeout = timeout
        self._commitment = commitment
        self._fault: Fault | None = None
        self._ambiguous = False
        self.limit: asyncio.Timeout | None = None

    async def head(self, key: str) -> Head | None:
        """`Driver.head`, tried again while that may help."""
        return await self.retried(lambda: self._driver.head(key), key)

    async def read(self, key: str) -> Record | None:
        """`Driver.read`, tried again while that may help."""
        return await self.retried(lambda: self._driver.read(key), key)

    async def delete(self, key: str) -> bool:
        """`Driver.delete`, tried again while that may help; not withdrawn once begun."""
        return await self._change(lambda: self._driver.delete(key), key)

    async def write(self, key: str, edit: Edit, token: str) -> Version:
        """`Driver.write`, tried again while that may help; not withdrawn once begun.

        If an acknowledgement was lost, the next attempt conflicts with the first; the save token
        in the head then tells our own write from somebody else's. Raises `Conflict` for the latter.
        """
        try:
            return await self._change(lambda: self._driver.write(key, edit), key)
        except Conflict:
            if not self._ambiguous:
                raise
        head = await self.head(key)
        if head is None or _token(head) != token:
            self._ambiguous = False  # whatever became of it, it is not what is stored now
            raise Conflict(f"{self._what}: another writer was faster")
        return head.version

    async def _change(self, step: Callable[[], Awaitable[T]], key: str) -> T:
        if self._commitment is not None:
            self._commitment.make()
        return await self.retried(lambda: self._watched(step), key)

    async def _watched(self, step: Callable[[], Awaitable[T]]) -> T:
        # While the driver writes, running out of time leaves the outcome unknown.
        before, self._ambiguous = self._ambiguous, True
        try:
            done = await step()
        except Exception as error:
            fault = self._driver.explain(error)
            self._ambiguous = before or (fault is not None and fault.ambiguous)
            raise
        self._ambiguous = False
        return done

    async def keys(self, prefix: str) -> AsyncIterator[str]:
        """`Driver.keys`; the time limit counts from one key to the next."""
        loop = asyncio.get_running_loop()
        try:
            async for key in self._driver.keys(prefix):
                yield key
                if self.limit is not None:
                    self.limit.reschedule(loop.time() + self._timeout)
        except Exception as error:
            self._translated(error, prefix)

    async def retried(self, step: Callable[[], Awaitable[T]], key: str = "") -> T:
        """Take *step* until it succeeds, or its error is one that trying again cannot mend."""
        for pause in _pauses():
            try:
                return await step()
            except StoreError:
                raise
            except Damaged as error:
                self.corrupt(str(error), key, error.where, error)
            except Exception as error:
                fault = self._driver.explain(error)
                if fault is None or not fault.transient:
                    self._translated(error, key)
                self._fault = fault
            await asyncio.sleep(pause)
        raise AssertionError("the pauses never end")

    def _translated(self, error: Exception, key: str) -> NoReturn:
        fault = self._driver.explain(error)
        if fault is None:
            raise error
        if fault.damaged:
            self.corrupt(fault.reason, key, self._driver.where(key), error)
        raise Unavailable(
            f"{self._what} failed: {fault.reason}", ambiguous=self._ambiguous
        ) from error

    def corrupt(
        self, what: str, key: str, where: str = "", cause: Exception | None = None
    ) -> NoReturn:
        """Raise `CorruptRecord` for the record of *key*."""
        where = where or self._driver.where(key)
        error = CorruptRecord(
            f"{self._what}: the stored record is damaged ({what}); its bytes are kept: "
            "repair them, or give them up with delete()",
            where=where,
        )
        error.add_note(f"they are kept in: {where}")  # for tracebacks; no part of the text
        raise error from cause

    @contextmanager
    def unlimited(self) -> Iterator[None]:
        """Outside the time limit, which begins anew afterwards."""
        limit = self.limit
        if limit is not None:
            limit.reschedule(None)
        try:
            yield
        finally:
            if limit is not None:
                limit.reschedule(asyncio.get_running_loop().time() + self._timeout)

    def give_up(self, error: TimeoutError) -> NoReturn:
        """Raise `Unavailable` for running out of time."""
        reason = f": {self._fault.reason}" if self._fault else ""
        raise Unavailable(
            f"{self._what} did not succeed within {self._timeout:g} s{reason}",
            ambiguous=self._ambiguous,
        ) from error


def _token(head: Head) -> str | None:
    try:
        return Meta.decode(head.meta).token
    except UnreadableMeta:
        return None


def _pauses() -> Iterator[float]:
    """Seconds to wait between attempts: exponential backoff with full jitter, without end."""
    longest = _FIRST_PAUSE
    while True:
        yield random.uniform(0, longest)  # noqa: S311 - spreads load, guards nothing
        longest = min(2 * longest, _LONGEST_PAUSE)
