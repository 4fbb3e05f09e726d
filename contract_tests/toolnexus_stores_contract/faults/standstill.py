"""A thread that stands still in the middle of a save, and who goes on meanwhile.

- `cancel_held`: the save is cancelled while a thread of it waits in a system call; another save is
  acknowledged; then the thread goes on. The later save must stay.
- `overtake_held`: another process saves meanwhile. One of the two transcripts must be there, whole.

A store that lets nobody pass (by a lock, or by waiting for its thread) is as good as one that
makes the late write fail.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final

from toolnexus_stores_contract.factory import described, enter
from toolnexus_stores_contract.subject import reader_of

from .disk import Before
from .result import ENOUGH, Result
from .scenarios import AGAIN, SCENARIOS, Case, Seen
from .sweep import prepared
from .syscalls import Aim, Hold
from .victims import Ending, observe, observe_two

if TYPE_CHECKING:
    from collections.abc import Callable

    from .victims import Line

__all__ = ["cancel_held", "hold_once", "overtake_held"]

_HELD: Final = 0.15
_PATIENCE: Final = 0.04  # seconds until a save is cancelled, that takes some milliseconds
_SCENARIO: Final = "replace"


def cancel_held(make: Callable[[], object], *, tag: str) -> Result:
    """Hold a thread at each call of a save, cancel the save, save again. Raises `Unsupported`."""
    return _at_each_call(make, tag, _cancelled)


def overtake_held(make: Callable[[], object], *, tag: str) -> Result:
    """Hold a process at each call of a save, save in another. Raises `Unsupported`."""
    return _at_each_call(make, tag, _overtaken)


def hold_once(make: Callable[[], object], way: str, number: int, *, tag: str) -> Result:
    """The one experiment of a token."""
    result = Result()
    case = Case(make, SCENARIOS[_SCENARIO], tag)
    with prepared(case, result):
        _judged({"cancelled": _cancelled, "overtaken": _overtaken}[way], case, number, result)
    return result


def _at_each_call(
    make: Callable[[], object], tag: str, way: Callable[[Case, Before, Aim], _Outcome]
) -> Result:
    result, case = Result(), Case(make, SCENARIOS[_SCENARIO], tag)
    with prepared(case, result) as ready:
        before = Before()
        calls = len(observe(case.save, before).trace) if ready else 0
        before.restore()
        if not calls:
            result.inconclusive.append("a save made no system call that changes a file")
        for number in range(1, calls + 1):
            if len(result.violations) < ENOUGH:
                _judged(way, case, number, result)
    return result


class _Outcome:
    """What came of it: the call that was held, and what is wrong."""

    def __init__(self, ending: Ending, wrong: str | None) -> None:
        self.ending = ending
        self.wrong = wrong


def _judged(
    way: Callable[[Case, Before, Aim], _Outcome], case: Case, number: int, result: Result
) -> None:
    before = Before()
    outcome = way(case, before, Aim(number, Hold(_HELD)))
    before.restore()
    if outcome.ending.fired is None:
        result.inconclusive.append(f"no thread stood still at call {number}")
        return
    result.count("threads held")
    if outcome.wrong:
        token = f"standstill:{way.__name__.removeprefix('_')}:{number}"
        result.violations.append((token, f"held in {outcome.ending.fired}: {outcome.wrong}"))


def _cancelled(case: Case, before: Before, aim: Aim) -> _Outcome:
    ending = observe(lambda line: _cancel_and_save(case, line), before, aim=aim)
    found = observe(case.inspect, before, watch="names")
    if ending.hung or ending.heard("raised"):
        return _Outcome(ending, ending.heard("raised") or "the save after it did not end")
    for seen, when in (
        (Seen.parse(ending.heard("soon")), "right after the later save"),
        (Seen.parse(ending.heard("late")), "when the held thread had gone on"),
        (Seen.parse(found.heard("seen")), "in another process, in the end"),
    ):
        if seen is None or seen.name != AGAIN:
            text = seen.text if seen else "get did not end"
            return _Outcome(
                ending, f"the save was cancelled, a later one acknowledged; {when} {text}"
            )
    return _Outcome(ending, None)


async def _cancel_and_save(case: Case, line: Line) -> None:
    store = await enter(case.make, AsyncExitStack())
    await reader_of(store)(case.id)
    line.say("arm")
    began = time.monotonic()
    saving = asyncio.ensure_future(store.save(case.id, case.scenario.new))
    await asyncio.wait((saving,), timeout=_PATIENCE)
    saving.cancel()
    await asyncio.wait((saving,))
    await store.save(case.id, case.known[AGAIN])
    line.say("soon", (await case.look(store)).said())
    await asyncio.sleep(max(0.0, began + 2 * _HELD - time.monotonic()))
    line.say("late", (await case.look(store)).said())


def _overtaken(case: Case, before: Before, aim: Aim) -> _Outcome:
    first, second = observe_two(
        lambda line: _save(case, "new", line),
        lambda line: _save(case, "next", line),
        before,
        aim=aim,
    )
    found = observe(case.inspect, before, watch="names")
    for ending in (first, second):
        if ending.hung or ending.heard("raised"):
            raised = ending.heard("raised") or "did not end"
            return _Outcome(first, f"of two processes that save at once, one {raised}")
    seen, again = Seen.parse(found.heard("seen")), Seen.parse(found.heard("again"))
    names = [each for end in (first, second) if (each := end.heard("acknowledged"))] or ["old"]
    names += [each for end in (first, second) if (each := end.heard("refused"))]
    if seen is None or seen.name not in names:
        text = seen.text if seen else "get did not end"
        wanted = " or ".join(f"the {each} transcript" for each in names)
        return _Outcome(first, f"another process saved meanwhile; {text}; promised was {wanted}")
    if again is None or again.name != AGAIN:
        return _Outcome(first, f"another process saved meanwhile; {again and again.text}")
    return _Outcome(first, None)


async def _save(case: Case, name: str, line: Line) -> None:
    store: Any = await enter(case.make, AsyncExitStack())
    await reader_of(store)(case.id)
    if name == "new":
        line.say("arm")
    else:
        while not line.say("now?"):  # noqa: ASYNC110 - what it waits for is another process
            await asyncio.sleep(0.002)
    try:
        await store.save(case.id, case.known[name])
    except Exception as error:
        line.say("refused", name)
        line.say("because", described(error))
    else:
        line.say("acknowledged", name)
