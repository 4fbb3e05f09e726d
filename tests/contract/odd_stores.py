"""Factories that an author may hand in: every kind of good one, and what goes wrong with others."""

from __future__ import annotations

import asyncio
import os
import re
import sys
import threading
import time
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

from .good_stores import Message, TextStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

the_one = TextStore()


def plain() -> TextStore:
    return the_one


def called(name: str, *, times: int = 1) -> TextStore:
    return the_one if (name, times) == ("it", 2) else TextStore()


async def coroutine() -> TextStore:
    return the_one


async def async_generator() -> AsyncIterator[TextStore]:
    yield the_one


def generator() -> Iterator[TextStore]:
    yield the_one


@asynccontextmanager
async def async_context() -> AsyncIterator[TextStore]:
    yield the_one


@contextmanager
def context() -> Iterator[TextStore]:
    yield the_one


class Loads:
    """Has ``load`` in place of ``get``."""

    load = the_one.get
    save = the_one.save


class Forgets(TextStore):
    async def get(self, id: str) -> list[Message] | None:
        return await super().get(id) or None


class Blocks(TextStore):
    """Blocks its event loop when a transcript shrinks."""

    async def save(self, id: str, messages: list[Message]) -> None:
        if len(messages) < len(await self.get(id) or []):
            self.block()
        await super().save(id, messages)

    def block(self) -> None:
        time.sleep(1_000)


class HoldsTheInterpreter(Blocks):
    """In C, without giving another thread a turn."""

    def block(self) -> None:
        re.match(r"(a+)+$", "a" * 60 + "b")


class Sleeps(Blocks):
    async def save(self, id: str, messages: list[Message]) -> None:
        if len(messages) < len(await self.get(id) or []):
            await asyncio.sleep(1_000)
        await TextStore.save(self, id, messages)


class Exits(Blocks):
    def block(self) -> None:
        os._exit(7)


class Prints(TextStore):
    async def save(self, id: str, messages: list[Message]) -> None:
        print("saving", flush=True)
        print("saving", file=sys.stderr, flush=True)
        await super().save(id, messages)


class LeavesAThread(TextStore):
    def __init__(self) -> None:
        super().__init__()
        threading.Thread(target=threading.Event().wait, args=(60,), name="left-behind").start()


class CannotClose(TextStore):
    async def close(self) -> None:
        raise RuntimeError("still in use")


class GivesNumbers(TextStore):
    async def get(self, id: str) -> Any:
        return 7


class Hidden(TextStore):
    """Shows the URL that it was given in every error."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.url = url

    async def save(self, id: str, messages: list[Message]) -> None:
        try:
            await super().save(id, messages)
        except TypeError:
            raise TypeError(f"{self.url}: no") from None


def raises() -> TextStore:
    raise RuntimeError("no table 'x'")


def raises_the_url(url: str) -> TextStore:
    raise ConnectionError(f"{url} refused")


def exits() -> TextStore:
    sys.exit("bye")


def nothing() -> None:
    return None


def no_save() -> object:
    class Reads:
        async def get(self, id: str) -> None:
            return None

    return Reads()


def blocks() -> TextStore:
    time.sleep(1_000)
    return the_one


async def sleeps() -> TextStore:
    await asyncio.sleep(1_000)
    return the_one


class SleepsInEverySave(TextStore):
    async def save(self, id: str, messages: list[Message]) -> None:
        await asyncio.sleep(1_000)


class IsAway(TextStore):
    async def get(self, id: str) -> list[Message] | None:
        raise ConnectionError("refused")

    async def save(self, id: str, messages: list[Message]) -> None:
        raise ConnectionError("refused")
