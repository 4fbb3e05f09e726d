"""The store under test, as a check sees it."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import sys
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Self, final

from .check import NotApplicable, Violation
from .factory import Factory, enter, resolve

if TYPE_CHECKING:
    from types import TracebackType

    from .check import Survives
    from .values import Message

__all__ = ["Opened", "Subject", "described", "reader_of"]


@final
class Subject:
    """A storage that can be opened, again and again, and closed when the check ends.

    Ids are fresh in every check, so that storage may be shared between checks and between runs.
    """

    def __init__(
        self, factory: Factory, *, survives: Survives = "power", exhaustive: bool = False
    ) -> None:
        self._factory = factory
        self.survives = survives
        """What the store says that an acknowledged save survives."""

        self.exhaustive = exhaustive
        """Whether checks that can go on for hours should."""

        self.counts: dict[str, int] = {}
        """How much was tried, for the report."""

        self._make = resolve(factory)
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
        await self._open.aclose()

    async def open(self) -> Opened:
        """Open the storage, once more if it is open already."""
        return Opened(await enter(self._make, self._open))

    async def reopened(self) -> Opened:
        """Close everything that is open and open the storage anew."""
        await self._open.aclose()
        self._open = AsyncExitStack()
        return await self.open()

    def new_id(self) -> str:
        """An id that was never used."""
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

    async def elsewhere(self, method: str, *arguments: object) -> Any:
        """Call *method* of a store that a new process opens; what it returned, through JSON."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", f"{__package__}.elsewhere", self.name),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        try:
            request = json.dumps([method, *arguments]).encode()
            answer, complaints = await process.communicate(request)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode:
            last = complaints.decode(errors="replace").strip().splitlines()[-1:]
            raise Violation(f"{method} in another process failed: {' '.join(last)[:300]}")
        return json.loads(answer)


@final
class Opened:
    """An open store. What its two methods raise is a violation, unless a check uses `raw`."""

    def __init__(self, raw: Any) -> None:
        self.raw = raw

    async def get(self, id: str) -> list[Message] | None:
        """The store's ``get``, or ``load``."""
        __tracebackhide__ = True
        try:
            found: list[Message] | None = await reader_of(self.raw)(id)
        except Exception as error:
            raise Violation(f"get raised {described(error)}") from error
        return found

    async def save(self, id: str, messages: list[Message]) -> None:
        """The store's ``save``."""
        __tracebackhide__ = True
        try:
            await self.raw.save(id, messages)
        except Exception as error:
            raise Violation(f"save raised {described(error)}") from error


def reader_of(store: Any) -> Any:
    """The method that reads: ``get``, as the runtime calls it, or ``load``."""
    return store.get if callable(getattr(store, "get", None)) else store.load


def described(error: BaseException) -> str:
    """*error* in one short line."""
    text = " ".join(ascii(str(error))[1:-1].split())
    return f"{type(error).__name__}: {text[:200]}" if text else type(error).__name__
