"""A server that dies in the middle of saves, and comes back: what was acknowledged is there.

Writers save one conversation each, again and again, and each save says its number. When enough of
them are acknowledged half of the writers rest, since a save that is tried again would hide that
the one before it is gone; the others are in the middle of a save when the server is killed
(SIGKILL). It is started again, and each conversation holds one whole save, not older than the last
acknowledged and not newer than the last attempted.

Limits: what the kill of a process cannot show is not shown. What a server wrote survives it without
any fsync, so neither Postgres's ``synchronous_commit`` nor Redis's ``appendfsync`` is tested with
regard to a power loss; a server that keeps everything in its process is found out.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, final

from toolnexus_stores_contract.check import Violation
from toolnexus_stores_contract.factory import described, enter, resolve
from toolnexus_stores_contract.subject import reader_of
from toolnexus_stores_contract.values import difference, require_same, transcript

if TYPE_CHECKING:
    from toolnexus_stores_contract.factory import Factory

__all__ = ["Mortal", "Toll", "outlive"]

_MESSAGES = 3


class Mortal(Protocol):
    """A server of the caller's own. Both methods block."""

    def kill(self) -> None:
        """End it at once."""
        ...

    def start(self) -> None:
        """Start it, and return when it answers."""
        ...


@dataclass(slots=True)
class Toll:
    """How much was tried."""

    rounds: int = 0
    acknowledged: int = 0
    failed: int = 0


async def outlive(
    factory: Factory, server: Mortal, *, rounds: int = 5, saves: int = 400, writers: int = 8
) -> Toll:
    """Let *server* die once in each of *rounds*, after *saves* acknowledged ones.

    Raises `Violation` if one of them is not there, or if a conversation is none of its saves.
    """
    toll = Toll()
    async with AsyncExitStack() as stack:
        store = await enter(resolve(factory), stack)
        talks = [_Talk(f"outlive-{id(toll)}-{number}") for number in range(writers)]
        for _ in range(rounds):
            await _live_and_die(store, talks, server, saves, toll)
            toll.rounds += 1
    return toll


async def _live_and_die(
    store: Any, talks: list[_Talk], server: Mortal, saves: int, toll: Toll
) -> None:
    enough, dead = asyncio.Event(), asyncio.Event()
    goal = toll.acknowledged + saves

    async def write(talk: _Talk, end: asyncio.Event) -> None:
        while not end.is_set():
            await talk.save(store, toll)
            if toll.acknowledged >= goal:
                enough.set()

    resting = asyncio.gather(*(write(talk, enough) for talk in talks[::2]))
    writing = asyncio.gather(*(write(talk, dead) for talk in talks[1::2]))
    await resting
    await asyncio.to_thread(server.kill)
    dead.set()  # what is under way may wait until the server is back, or fail
    await asyncio.to_thread(server.start)
    await writing
    for talk in talks:
        await talk.verify(store)


@final
class _Talk:
    """One conversation, and what is known of it."""

    def __init__(self, id: str) -> None:
        self._id = id
        self._tried = 0
        self._acknowledged = 0

    async def save(self, store: Any, toll: Toll) -> None:
        self._tried += 1
        number = self._tried
        try:
            await store.save(self._id, self._value(number))
        except Exception:
            toll.failed += 1
        else:
            self._acknowledged = number
            toll.acknowledged += 1

    async def verify(self, store: Any) -> None:
        try:
            found = await reader_of(store)(self._id)
        except Exception as error:
            raise Violation(f"get after the crash raised {described(error)}") from error
        for number in range(self._tried, self._acknowledged - 1, -1):
            if difference(found, self._value(number)) is None:
                self._acknowledged = number  # seen: it must not go away again
                return
        require_same(found, self._value(self._acknowledged), "get after the server's crash")

    def _value(self, number: int) -> Any:
        return transcript(str(number), _MESSAGES) if number else None
