"""The store under test, as a check sees it."""

from __future__ import annotations

import secrets
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, Self, final

from .check import METHODS, NotApplicable, Terms, Violation
from .factory import Factory, NotAStore, described, enter, passwords_of, resolve
from .process import Process

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from types import TracebackType

    from .check import Check
    from .process import End
    from .values import Message

    Program = Callable[..., Awaitable[Any]]

__all__ = ["Opened", "Subject", "SubjectBase", "methods_of", "reader_of"]


class SubjectBase:
    """A storage that can be opened, again and again, and closed when the check ends."""

    kind = "store"

    def __init__(self, factory: Factory) -> None:
        self._factory = factory
        self.terms = Terms()
        """What is said of all checks at once."""

        self.counts: dict[str, int] = {}
        """How much was tried, for the report."""

        self._make = resolve(factory, kind=self.kind)
        self._open = AsyncExitStack()
        self._tag = secrets.token_hex(6)
        self._count = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            await self._open.aclose()
        except Exception as closing:
            if error is None:
                raise Violation(f"close raised {described(closing)}") from closing

    async def close(self) -> None:
        """Close everything that is open."""
        closing, self._open = self._open, AsyncExitStack()
        await closing.aclose()

    @property
    def passwords(self) -> list[str]:
        """The passwords in the factory's name, which nothing may show."""
        return passwords_of(self._factory)

    def _fresh(self) -> str:
        self._count += 1
        return f"contract-{self._tag}-{self._count}"

    def count(self, what: str, number: int = 1) -> None:
        """Note how much of *what* was tried."""
        self.counts[what] = self.counts.get(what, 0) + number

    @property
    def name(self) -> str:
        """The factory's name, for other processes. Raises `NotApplicable` if it has none."""
        if not isinstance(self._factory, str):
            raise NotApplicable(
                "another process can open the storage only if the factory is named as a string"
            )
        return self._factory

    @asynccontextmanager
    async def process(
        self, program: Program, *arguments: object, end: End = "close"
    ) -> AsyncIterator[Process]:
        """A new process that opens the storage too, and is to run *program* on it."""
        async with Process(self.kind, self.name, program, arguments, end) as process:
            yield process

    async def elsewhere(self, program: Program, *arguments: object, end: End = "close") -> Any:
        """What *program* returns on what a new process opens, once that process has ended."""
        async with self.process(program, *arguments, end=end) as process:
            process.go()
            result = await process.result()
            if not await process.ended():
                raise Violation("the other process does not end")
            return result


@final
class Subject(SubjectBase):
    """A store to be opened. Ids are fresh in every check, so that storage may be shared."""

    def __init__(self, factory: Factory, check: Check | None = None) -> None:
        super().__init__(factory)
        self._check = check

    async def open(self) -> Opened:
        """Open the storage, once more if it is open already."""
        store = await enter(self._make, self._open)
        if "save" not in methods_of(store) or not {"get", "load"} & methods_of(store):
            kind = type(store).__name__
            raise NotAStore(f"the factory gave {kind}, which lacks get(id) or save(id, messages)")
        if self._check is not None:
            _require(self._check, methods_of(store))
        return Opened(store)

    async def reopened(self) -> Opened:
        """Close everything that is open and open the storage anew."""
        await self.close()
        return await self.open()

    def new_id(self) -> str:
        """An id that was never used."""
        return self._fresh()


def _require(check: Check, methods: set[str]) -> None:
    missing = [need for need in check.needs if need != "name" and need not in methods]
    if missing and missing[0] in METHODS.get(check.level, ()):
        raise Violation(f"the store has no {missing[0]}()")
    if missing:
        raise NotApplicable(f"the store has no {missing[0]}()")


@final
class Opened:
    """An open store. What its methods raise is a violation, unless a check uses `raw`."""

    def __init__(self, raw: Any) -> None:
        self.raw = raw

    async def get(self, id: str) -> list[Message] | None:
        """The store's ``get``, or ``load``."""
        __tracebackhide__ = True
        found: list[Message] | None = await _called("get", reader_of(self.raw)(id))
        return found

    async def save(self, id: str, messages: list[Message]) -> None:
        """The store's ``save``."""
        __tracebackhide__ = True
        await _called("save", self.raw.save(id, messages))

    async def ids(self) -> list[str]:
        """All that the store's ``ids`` gives."""
        __tracebackhide__ = True
        found: list[str] = await _called("ids", _listed(self.raw))
        return found

    async def delete(self, id: str) -> object:
        """The store's ``delete``."""
        __tracebackhide__ = True
        return await _called("delete", self.raw.delete(id))

    async def snapshots(self, id: str) -> list[str]:
        """The digests that the store's ``snapshots`` gives, newest first."""
        __tracebackhide__ = True
        found = await _called("snapshots", self.raw.snapshots(id))
        return [each.digest for each in found]

    async def restore(self, id: str, digest: str) -> list[Message]:
        """The store's ``restore``."""
        __tracebackhide__ = True
        found: list[Message] = await _called("restore", self.raw.restore(id, digest))
        return found

    async def close(self) -> None:
        """The store's ``close``."""
        __tracebackhide__ = True
        await _called("close", self.raw.close())


async def _called(name: str, call: Awaitable[Any]) -> Any:
    __tracebackhide__ = True
    try:
        return await call
    except Exception as error:
        raise Violation(f"{name} raised {described(error)}") from error


async def _listed(store: Any) -> list[str]:
    return [id async for id in store.ids()]


def reader_of(store: Any) -> Any:
    """The method that reads: ``get``, as the runtime calls it, or ``load``."""
    return store.get if callable(getattr(store, "get", None)) else store.load


def methods_of(store: object) -> set[str]:
    """Which of the methods that a check can need *store* has."""
    names = ("get", "load", "save", "snapshots", "restore", "ids", "delete", "close")
    return {name for name in names if callable(getattr(store, name, None))}
