"""A store behind a wire that is cut: in a save, in a get, and one that delivers late."""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, final

from toolnexus_stores_contract.check import NotApplicable, Violation
from toolnexus_stores_contract.factory import described, enter, resolve
from toolnexus_stores_contract.subject import reader_of
from toolnexus_stores_contract.values import difference, require_one_of, require_same, transcript

from .wire import DIRECTIONS, Cut, Proxy, rerouted, route_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from toolnexus_stores_contract.subject import Subject
    from toolnexus_stores_contract.values import Message

    from .wire import How

__all__ = ["cut_gets", "cut_once", "cut_saves", "deliver_late"]

_STRIDE: Final = 8
_IN_EVERY_RUN: Final[tuple[How, ...]] = ("rst", "fin", "half")
_EXHAUSTIVE: Final[tuple[How, ...]] = (*_IN_EVERY_RUN, "hang")
_SECONDS: Final = 25.0  # of cuts, in every run
_TRIAL: Final = 20  # cuts that show how long one takes
_PATIENCE: Final = 15.0
_TRIES: Final = 3
_MESSAGES: Final = 5


async def cut_saves(subject: Subject) -> None:
    """Cut the wire in a save, at every few bytes. Raises `Violation` or `NotApplicable`."""
    async with _wired(subject) as wire:
        await wire.insist(wire.save("old"))
        await _sweep(subject, wire, "save", wire.size_of_a_save, wire.cut_save)


async def cut_gets(subject: Subject) -> None:
    """Cut the wire in a get, at every few bytes. Raises `Violation` or `NotApplicable`."""
    async with _wired(subject) as wire:
        await wire.insist(wire.save("old"))
        await _sweep(subject, wire, "get", wire.size_of_a_get, wire.cut_get)


async def deliver_late(subject: Subject) -> None:
    """Keep what a save sends, and deliver it after a later save. Raises as the others."""
    async with _wired(subject) as wire:
        await wire.insist(wire.save("old"))
        size = (await wire.size_of_a_save())["out"]
        for at in range(0, size, max(1, size // 16)):
            await _accused("late", Cut("out", at, "late"), wire.late)
        subject.count("late deliveries", wire.delivered)
        if not wire.delivered:
            raise NotApplicable("inconclusive: nothing could be delivered late")


async def cut_once(subject: Subject, token: str) -> None:
    """The one fault of a token, without its ``wire:``."""
    what, _, rest = token.partition(":")
    async with _wired(subject) as wire:
        await wire.insist(wire.save("old"))
        tries = {"save": wire.cut_save, "get": wire.cut_get, "late": wire.late}
        await _accused(what, Cut.parse(rest), tries[what])


async def _sweep(
    subject: Subject,
    wire: _Wire,
    what: str,
    measure: Callable[[], Awaitable[dict[Any, int]]],
    attempt: Callable[[Cut], Awaitable[None]],
) -> None:
    """Make every cut that is planned; how many fit into the time, the first ones show."""
    cuts = _cuts(await measure(), exhaustive=subject.terms.exhaustive)
    began, made, fired = time.monotonic(), 0, 0
    while made < len(cuts):
        await _accused(what, cuts[made], attempt)
        made += 1
        fired += wire.proxy.fired or wire.fired
        if made == _TRIAL and not subject.terms.exhaustive:
            most = max(_TRIAL, round(_SECONDS / (time.monotonic() - began) * _TRIAL))
            if len(cuts) > most:
                subject.count(f"cuts in a {what} left out for want of time", len(cuts) - most)
                del cuts[most:]
    subject.count(f"cuts in a {what}", fired)
    if made > fired:  # said in the report: what did not come about is not passed
        subject.count(f"cuts in a {what} that did not come about", made - fired)
    if not fired:
        raise NotApplicable("inconclusive: no byte passed the proxy")


def _cuts(size: dict[Any, int], *, exhaustive: bool) -> list[Cut]:
    """In an order of which each beginning covers the whole length."""
    found = [
        Cut(direction, at, how)
        for direction in DIRECTIONS
        for at in range(0, size[direction], 1 if exhaustive else _STRIDE)
        for how in (_EXHAUSTIVE if exhaustive else _IN_EVERY_RUN)
    ]
    random.Random(len(found)).shuffle(found)  # noqa: S311 - the same order each time
    return found


async def _accused(what: str, cut: Cut, attempt: Callable[[Cut], Awaitable[None]]) -> None:
    """Make one attempt; a violation says which cut it was."""
    try:
        await attempt(cut)
    except Violation as violation:
        token = f"wire:{what}:{cut}"
        where = {"out": "to the server", "back": "from the server"}[cut.direction]
        seen = f"{cut.how} after {cut.at} bytes {where}, in a {what}: {violation.seen}"
        raise Violation(f"{seen}\n  replay: {token}") from violation


@asynccontextmanager
async def _wired(subject: Subject) -> AsyncIterator[_Wire]:
    route = route_of(subject.name)
    async with Proxy(route.host, route.port) as proxy, AsyncExitStack() as stack:
        through = await enter(resolve(rerouted(route, proxy.port)), stack)
        direct = await enter(resolve(route.factory), stack)
        stack.callback(proxy.disarm)
        yield _Wire(proxy, through, direct, subject.new_id())


@final
class _Wire:
    """One storage, opened through the proxy and directly."""

    def __init__(self, proxy: Proxy, through: Any, direct: Any, id: str) -> None:
        self.proxy = proxy
        self._through, self._direct, self._id = through, direct, id
        self._count = 0
        self.delivered = 0
        self.fired = False

    def value(self, name: str) -> list[Message]:
        """A transcript that no other attempt saves."""
        return transcript(f"{name} {self._count}", _MESSAGES)

    def save(self, name: str) -> Callable[[], Awaitable[None]]:
        """Save it through the proxy, as often as this is called."""
        return lambda: self._through.save(self._id, self.value(name))

    async def get(self) -> Any:
        """Through the proxy."""
        return await reader_of(self._through)(self._id)

    async def stored(self, *names: str, when: str) -> None:
        """Require one of these to be stored, for whoever reads it directly."""
        found = await reader_of(self._direct)(self._id)
        require_one_of(found, *(self.value(name) for name in names), when=when)

    async def insist(self, step: Callable[[], Awaitable[Any]]) -> None:
        """Try some times: the wire is whole now. Raises `Violation`."""
        for attempt in range(_TRIES):
            error = await _error_of(step())
            if error is None:
                return
            if attempt == _TRIES - 1:
                raise Violation(
                    f"the wire is whole again, and {_TRIES} tries fail: {described(error)}"
                )

    async def size_of_a_save(self) -> dict[Any, int]:
        """Bytes that pass in a save, by direction.

        In the second: a connection's first one may prepare statements, and each cut meets one on
        which a save was made before.
        """
        for name in ("first", "new"):
            self._count += 1
            await self.insist(self.save("old"))
            self.proxy.arm()
            await self.insist(self.save(name))
        return dict(self.proxy.passed)

    async def size_of_a_get(self) -> dict[Any, int]:
        """Bytes that pass in a get of what somebody else saved; in the second, as above."""
        for _ in range(2):
            self._count += 1
            await self._direct.save(self._id, self.value("other"))
            self.proxy.arm()
            await self.insist(self.get)
        return dict(self.proxy.passed)

    async def cut_save(self, cut: Cut) -> None:
        """A save with a cut; then what is stored, and whether the store goes on."""
        self._count += 1
        await self.insist(self.save("old"))
        self.proxy.arm(cut)
        error = await _error_of(self.save("new")())
        self.fired = self.proxy.fired
        await self._judge_save(error)
        self.proxy.disarm()
        await self.insist(self.save("final"))
        await self.stored("final", when="get after a later save")
        await self.insist(self._read_final)

    async def _judge_save(self, error: Exception | None) -> None:
        """What is stored is what the store said it is."""
        if error is None:
            await self.stored("new", when="get after the acknowledged save")
            return
        await self.stored("old", "new", when=f"get after {type(error).__name__}")
        found = await reader_of(self._direct)(self._id)
        lost = difference(found, self.value("new")) is None
        if lost and getattr(error, "ambiguous", True) is False:
            raise Violation(
                f"the save happened, and {described(error)} says that it certainly did not"
            )

    async def _read_final(self) -> None:
        require_same(await self.get(), self.value("final"), "get through the healed connection")

    async def cut_get(self, cut: Cut) -> None:
        """A get with a cut gives the whole transcript, or raises; and the next one works."""
        self._count += 1
        await self._direct.save(self._id, self.value("other"))
        self.proxy.arm(cut)
        found: Any = None

        async def read() -> None:
            nonlocal found
            found = await self.get()

        error = await _error_of(read())
        self.fired = self.proxy.fired
        if error is None:
            require_same(found, self.value("other"), "get")
        self.proxy.disarm()
        await self.insist(self.get)
        require_same(await self.get(), self.value("other"), "the next get")

    async def late(self, cut: Cut) -> None:
        """What an abandoned save sent reaches the server after a later one is acknowledged."""
        self._count += 1
        await self.insist(self.save("old"))
        self.proxy.arm(cut)
        await _error_of(self.save("abandoned")())
        await self.insist(self.save("later"))
        await self.stored("later", when="get after the later save")
        self.delivered += bool(await self.proxy.deliver())
        await self.stored("later", when="get, when the abandoned save had arrived,")
        self.proxy.disarm()
        await self.insist(self.get)
        require_same(await self.get(), self.value("later"), "get through the store itself")


async def _error_of(step: Awaitable[Any]) -> Exception | None:
    """What *step* raises, if it does. Raises `Violation` if it does not end."""
    try:
        async with asyncio.timeout(_PATIENCE):
            await step
    except Violation:
        raise
    except TimeoutError as error:
        raise Violation(f"it did not end within {_PATIENCE:g} s") from error
    except Exception as error:
        return error
    return None
