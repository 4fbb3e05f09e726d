"""A save that is cancelled happened or did not, and nothing of it comes later."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from toolnexus_stores_contract.check import Violation, check
from toolnexus_stores_contract.faults.cancel import CancelledAt
from toolnexus_stores_contract.values import require_one_of, require_same, transcript

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from toolnexus_stores_contract.subject import Opened, Subject
    from toolnexus_stores_contract.values import Message

    Pause = Callable[[], Awaitable[object]]

_TOTAL = 60
_LONG = 400
_CHARACTERS = 1_500
_MOST_AWAITS = 200


async def _steps(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def _moments(seconds: float) -> Iterator[Pause]:
    """When to cancel: after each of the first steps, then at parts of a save's duration."""
    for count in range(10):
        yield partial(_steps, count)
    for part in range(1, 12):
        yield partial(asyncio.sleep, seconds * part / 10)


async def _duration(store: Opened, id: str, messages: list[Message]) -> float:
    """Seconds that a save of *messages* takes; the median of a few."""
    taken = []
    for _ in range(5):
        await store.save(id, [])
        began = time.perf_counter()
        await store.save(id, messages)
        taken.append(time.perf_counter() - began)
    return sorted(taken)[2]


async def _cancelled_after(pause: Pause, saving: asyncio.Task[None]) -> None:
    await pause()
    saving.cancel()
    try:
        await saving
    except asyncio.CancelledError:
        return
    except Violation:
        return  # it was told in another way that the save was given up


@check(
    "concurrent",
    "A cancelled save leaves the old transcript or the new one, and a store that works.",
)
async def cancelled(subject: Subject) -> None:
    """The runtime cancels a save when it is interrupted, closed, or out of time. A transaction that
    stays open, or a half-written value, is found by the next turn.
    """
    store = await subject.open()
    id = subject.new_id()
    old, new = transcript("old", _TOTAL), transcript("new", _TOTAL)
    for pause in _moments(await _duration(store, id, new)):
        await store.save(id, old)
        await _cancelled_after(pause, asyncio.create_task(store.save(id, new)))
        require_one_of(await store.get(id), old, new, when="get after the cancelled save")


@check("concurrent", "A save that was cancelled can be made again, and then it is there, once.")
async def retried(subject: Subject) -> None:
    """A turn that was interrupted is taken up again, and saves the same messages. What is left of
    the first attempt must not be counted, skipped or added.
    """
    store = await subject.open()
    old, new = transcript("old", 3), transcript("new", _TOTAL)
    seconds = await _duration(store, subject.new_id(), new)
    for pause in _moments(seconds):
        id = subject.new_id()
        await store.save(id, old)
        await _cancelled_after(pause, asyncio.create_task(store.save(id, new)))
        await store.save(id, new)
        require_same(await store.get(id), new, "get after the same save once more")


@check("concurrent", "A cancelled save does not overwrite one that was acknowledged after it.")
async def cancelled_for_good(subject: Subject) -> None:
    """A write that was handed to another thread goes on after its caller was cancelled. If it lands
    after a later save, an acknowledged turn is lost.
    """
    store = await subject.open()
    id = subject.new_id()
    # What takes long is cancelled, and what takes no time is saved at once after it.
    long, short = transcript("cancelled", _LONG, characters=_CHARACTERS), transcript("later", 1)
    seconds = await _duration(store, id, long)
    for pause in _moments(seconds):
        await _cancelled_after(pause, asyncio.create_task(store.save(id, long)))
        await store.save(id, short)
        require_same(await store.get(id), short, "get right after the later save")
        await asyncio.sleep(2 * seconds)  # time enough for the cancelled one to land
        require_same(await store.get(id), short, "get some time after the later save")


@check(
    "concurrent",
    "A save may be cancelled at each of its awaits: old or new is there, and the next save works.",
)
async def cancelled_at_each_await(subject: Subject) -> None:
    """Between BEGIN and COMMIT, a cancelled task leaves the transaction open, and everybody else
    waits for its lock. Timing finds that rarely: there are few awaits, and each is tried.
    """
    store, other = await subject.open(), await subject.open()
    id = subject.new_id()
    await store.save(id, transcript("first", 1))
    readers = [store, other] if await other.get(id) is not None else [store]  # or one in memory
    for number in range(_MOST_AWAITS):
        old, new, final = (transcript(f"{name} {number}", 5) for name in ("old", "new", "final"))
        await store.save(id, old)
        saving = CancelledAt(store.save(id, new), number)
        await _outcome(saving)
        for reader in readers:
            require_one_of(
                await reader.get(id), old, new, when=f"get, cancelled at await {number},"
            )
        await store.save(id, final)
        for reader in readers:
            require_same(await reader.get(id), final, f"get, after a cancellation at {number},")
        subject.count("awaits cancelled")
        if saving.suspensions <= number:
            return


async def _outcome(saving: CancelledAt[None]) -> None:
    """Wait for it in a task of its own, for that one is cancelled."""

    async def wait() -> None:
        with suppress(Violation):  # it may say that it failed
            await saving

    task = asyncio.create_task(wait())
    with suppress(asyncio.CancelledError):
        await task
