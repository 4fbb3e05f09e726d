"""Which save is put to the test, and how it is told what became of it.

Small values hide tears and large ones hide nothing, so a save is tried with several sizes.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

from toolnexus_stores_contract.check import Violation
from toolnexus_stores_contract.factory import described, enter
from toolnexus_stores_contract.subject import reader_of
from toolnexus_stores_contract.values import Message, difference, require_one_of, transcript

if TYPE_CHECKING:
    from collections.abc import Callable

    from .victims import Line

__all__ = ["SCENARIOS", "Case", "Scenario", "Seen"]

AGAIN: Final = "again"
_LARGE = 1_400  # in each of 200 messages: more than 256 KiB


@dataclass(frozen=True, slots=True)
class Scenario:
    """What is stored, and the save that is disturbed."""

    name: str
    old: list[Message] | None
    new: list[Message]
    from_the_start: bool = False
    """Also the opening of the store is disturbed, not only the save, and nothing is prepared: if
    the storage is new, so is the making of it."""


_GROWN = transcript("new", 8)
SCENARIOS: Final = {
    each.name: each
    for each in (
        Scenario("create", None, transcript("new", 5), from_the_start=True),
        Scenario("replace", transcript("old", 5), transcript("new", 5)),
        Scenario("append", _GROWN[:5], _GROWN),
        Scenario("single", transcript("old", 1), transcript("new", 1)),
        Scenario("many", transcript("old", 200), transcript("new", 200)),
        Scenario(
            "large",
            transcript("old", 200, characters=_LARGE),
            transcript("new", 200, characters=_LARGE),
        ),
    )
}


@dataclass(frozen=True, slots=True)
class Seen:
    """What a get gave: the name of the save whose transcript it was, or what was wrong."""

    name: str | None
    text: str

    @classmethod
    def parse(cls, value: Any) -> Seen | None:
        """From what a victim said."""
        return None if value is None else cls(*value)

    def said(self) -> list[str | None]:
        """For a `Line`."""
        return [self.name, self.text]


@final
class Case:
    """One scenario on one id of one storage."""

    def __init__(self, make: Callable[[], Any], scenario: Scenario, id: str) -> None:
        self.make = make
        self.scenario = scenario
        self.id = id
        self.known: dict[str, list[Message] | None] = {
            "old": scenario.old,
            "new": scenario.new,
            "next": [*scenario.new, *transcript("next", 2)],
            AGAIN: transcript(AGAIN, 3),
        }

    async def prepare(self, line: Line) -> None:
        """A victim that stores the old transcript, in peace."""
        async with AsyncExitStack() as stack:
            store = await enter(self.make, stack)
            await store.save(self.id, self.scenario.old or self.scenario.new)
            await reader_of(store)(self.id)
        line.say("prepared", sorted(sys.modules))

    async def save(self, line: Line, strike: Callable[[bool], object] | None = None) -> None:
        """A victim that saves the new transcript, and if it survives that, goes on.

        *strike* switches the fault on and off; without it the supervisor does.
        """
        strike = strike or (lambda armed: line.say("arm" if armed else "disarm"))
        if self.scenario.from_the_start:
            strike(True)
        store = None
        try:
            store = await enter(self.make, AsyncExitStack())
            if not self.scenario.from_the_start:
                await reader_of(store)(self.id)
                strike(True)
            await store.save(self.id, self.scenario.new)
        except Exception as error:
            line.say("refused", described(error))
        else:
            line.say("acknowledged")
        strike(False)
        if store is not None:
            line.say("disarmed")
            line.say("seen", (await self.look(store)).said())
            line.say("again", (await self._save_again(store)).said())

    async def inspect(self, line: Line) -> None:
        """A victim that opens the storage anew, looks, and saves once more."""
        async with AsyncExitStack() as stack:
            try:
                store = await enter(self.make, stack)
            except Exception as error:
                line.say("seen", Seen(None, f"opening the store raised {described(error)}").said())
                return
            line.say("seen", (await self.look(store)).said())
            line.say("again", (await self._save_again(store)).said())

    async def save_twice(self, line: Line) -> None:
        """A victim that saves the new transcript and the next, and says how far it is."""
        line.say("arm")
        store = await enter(self.make, AsyncExitStack())
        await reader_of(store)(self.id)
        for name in ("new", "next"):
            line.say("began", name)
            await store.save(self.id, self.known[name])
            line.say("acknowledged", name)

    async def judge(self, line: Line) -> None:
        """A victim that inspects the storage anew, as long as it is told to."""
        while line.say("next"):
            await self.inspect(line)

    async def look(self, store: Any) -> Seen:
        """What the store finds."""
        try:
            found = await reader_of(store)(self.id)
        except Exception as error:
            return Seen(None, f"get raised {described(error)}")
        for name, value in self.known.items():
            if difference(found, value) is None:
                return Seen(
                    name,
                    f"get gave the {name} transcript" if value is not None else "get gave None",
                )
        try:
            require_one_of(found, *self.known.values())
        except Violation as violation:
            return Seen(None, violation.seen.partition(";")[0])
        raise AssertionError("unreachable")

    async def _save_again(self, store: Any) -> Seen:
        try:
            async with asyncio.timeout(8):
                await store.save(self.id, self.known[AGAIN])
        except Exception as error:
            return Seen(None, f"the next save raised {described(error)}")
        return await self.look(store)
