"""The driver under test, as a check sees it."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, TypeVar, final

from toolnexus_stores.driver import Conflict, Edit

from .check import Check, Need, Violation
from .factory import NotAStore, described, enter
from .subject import SubjectBase
from .values import require_same, shown, transcript

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from toolnexus_stores.driver import Driver, Fault, Head, Record, Version

    Body = Callable[["DriverSubject"], Awaitable[None]]

__all__ = ["DriverSubject", "OpenedDriver", "check", "content_of", "edit", "texts_of"]

T = TypeVar("T")

_METHODS = ("open", "head", "read", "write", "delete", "keys", "close", "explain", "where")
_TRIES = 40
_PAUSE = 0.05  # the store waits as well, and longer, before it tries again


def check(
    promise: str, *, timeout: float = 30, needs: tuple[Need, ...] = ()
) -> Callable[[Body], Check]:
    """Make a `Check` of an async function that is given a `DriverSubject`."""

    def made(body: Body) -> Check:
        return Check(f"driver.{body.__name__}", promise, "driver", body, timeout, needs)

    return made


@final
class DriverSubject(SubjectBase):
    """A storage that drivers can be opened on. Keys are fresh, so that it may be shared."""

    kind = "driver"

    async def open(self) -> OpenedDriver:
        """A driver of its own on the storage, open."""
        driver = await enter(self._make, self._open)
        missing = [name for name in _METHODS if not callable(getattr(driver, name, None))]
        if missing:
            kind = type(driver).__name__
            raise NotAStore(f"the factory gave {kind}, which lacks {', '.join(missing)}")
        opened = OpenedDriver(driver)
        try:
            await opened.retried(driver.open)
        except Exception as error:
            raise NotAStore(f"the driver cannot be opened: {described(error)}") from error
        return opened

    async def reopened(self) -> OpenedDriver:
        """Close everything that is open and open the storage anew."""
        await self.close()
        return await self.open()

    def new_key(self, first: str = "t") -> str:
        """A key that was never used, as the store makes them."""
        return f"{first}/{self._fresh()}"


@final
class OpenedDriver:
    """An open driver. What it raises is a violation, unless it is a `Conflict`.

    What it explains as transient is tried again, as the store does.
    """

    def __init__(self, raw: Driver) -> None:
        self.raw = raw

    async def head(self, key: str) -> Head | None:
        """The driver's ``head``."""
        return await self._called("head", lambda: self.raw.head(key))

    async def read(self, key: str) -> Record | None:
        """The driver's ``read``."""
        return await self._called("read", lambda: self.raw.read(key))

    async def write(self, key: str, edit: Edit) -> Version:
        """The driver's ``write``."""
        return await self._called("write", lambda: self.raw.write(key, edit))

    async def delete(self, key: str) -> bool:
        """The driver's ``delete``."""
        return await self._called("delete", lambda: self.raw.delete(key))

    async def keys(self, prefix: str) -> list[str]:
        """All that the driver's ``keys`` gives."""

        async def listed() -> list[str]:
            return [key async for key in self.raw.keys(prefix)]

        return await self._called("keys", listed)

    def explain(self, error: Exception) -> Fault | None:
        """The driver's ``explain``."""
        try:
            return self.raw.explain(error)
        except Exception as raised:
            raise Violation(f"explain raised {described(raised)}") from raised

    def where(self, key: str) -> str:
        """The driver's ``where``."""
        try:
            return self.raw.where(key)
        except Exception as raised:
            raise Violation(f"where raised {described(raised)}") from raised

    async def put(
        self, key: str, texts: Sequence[bytes], *, keep: int = 0, meta: bytes = b"{}"
    ) -> Version:
        """Write *texts* over whatever is stored, of which the first *keep* are the same."""
        head = await self.head(key)
        return await self.write(
            key, edit(None if head is None else head.version, texts, keep=keep, meta=meta)
        )

    async def require(self, key: str, texts: Sequence[bytes] | None, when: str = "read") -> None:
        """Raise `Violation` unless the record of *key* has exactly these *texts*."""
        require_same(content_of(await self.read(key)), None if texts is None else [*texts], when)

    async def require_conflict(self, key: str, edit: Edit) -> None:
        """Raise `Violation` unless *edit* is a conflict and changes nothing."""
        before = await self.read(key)
        try:
            await self.write(key, edit)
        except Conflict:
            require_same(
                content_of(await self.read(key)), content_of(before), "read after Conflict"
            )
            return
        raise Violation(
            f"write took an edit of version {edit.expected}, which is not the stored one"
        )

    async def retried(self, call: Callable[[], Awaitable[T]]) -> T:
        """What *call* gives, tried again as long as the driver says that this may help."""
        for _ in range(_TRIES):
            try:
                return await call()
            except Exception as error:
                fault = self.explain(error)
                if fault is None or not fault.transient or fault.ambiguous:
                    raise
            await asyncio.sleep(_PAUSE)
        return await call()

    async def _called(self, name: str, call: Callable[[], Awaitable[T]]) -> T:
        __tracebackhide__ = True
        try:
            return await self.retried(call)
        except Conflict:
            raise
        except Exception as error:
            raise Violation(f"{name} raised {described(error)}") from error


def edit(
    expected: Version | None, texts: Sequence[bytes], *, keep: int = 0, meta: bytes = b"{}"
) -> Edit:
    """The edit that makes a record of *texts*, of which the first *keep* are stored already."""
    return Edit(expected, meta, keep, texts[keep:], lambda: texts)


def texts_of(stamp: str, total: int, *, characters: int = 0) -> list[bytes]:
    """*total* texts that say which write they belong to, their place and how many there are."""
    messages = transcript(stamp, total, characters=characters)
    return [json.dumps(message).encode("ascii") for message in messages]


def content_of(record: Record | None) -> list[bytes] | None:
    """The texts of *record*. `Violation` if they are something else than a list of bytes."""
    if record is None:
        return None
    texts: Any = record.texts
    if not isinstance(texts, list) or not all(isinstance(text, bytes) for text in texts):
        raise Violation(f"read gave texts of another kind: {shown(texts)}")
    return texts
