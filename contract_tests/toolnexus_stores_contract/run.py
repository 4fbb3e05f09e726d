"""One check, made: the part that every front end shares."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from .check import LEVELS, NotApplicable, Violation
from .factory import NotAStore, described, place_of
from .report import Outcome
from .subject import Subject

if TYPE_CHECKING:
    from .check import Check
    from .factory import Factory

__all__ = ["attempt", "perform"]


async def perform(check: Check, factory: Factory, *, limit: float | None = None) -> None:
    """Make *check* on the storage that *factory* opens; return if the promise was kept.

    Raises `Violation` with the promise and what was seen, `NotApplicable` with the reason, or
    `NotAStore`. A store that takes longer than *limit*, or the check's own, is a violation.
    """
    __tracebackhide__ = True
    seconds = limit or check.timeout
    clock = asyncio.timeout(seconds)
    if "name" in check.needs and not isinstance(factory, str):
        raise NotApplicable("another process needs a factory that is named as a string")
    try:
        async with clock, _subject_of(check, factory) as subject:
            await check.body(subject)
    except Violation as violation:
        violation.promised = check.promise
        raise
    except TimeoutError as error:
        if not clock.expired():
            raise
        hangs = Violation(f"did not end within {seconds:g} s")
        hangs.promised = check.promise
        raise hangs from error


def _subject_of(check: Check, factory: Factory) -> Any:
    if check.level in LEVELS:
        return Subject(factory, check)
    from .driver_subject import DriverSubject  # noqa: PLC0415 - needs our stores

    return DriverSubject(factory)


async def attempt(check: Check, factory: Factory, *, limit: float | None = None) -> Outcome:
    """Make *check* and say how it ended; whatever the store raises is a broken promise."""
    began = time.perf_counter()

    def ended(result: Any, seen: str = "", error: BaseException | None = None) -> Outcome:
        return Outcome(check, result, seen, time.perf_counter() - began, place_of(error))

    try:
        await perform(check, factory, limit=limit)
    except NotApplicable as reason:
        return ended("inapplicable", str(reason))
    except Violation as violation:
        return ended("broken", violation.seen, violation.__cause__)
    except NotAStore as error:
        return ended("broken", str(error), error.__cause__)
    except Exception as error:  # what a store can make a check stumble over
        return ended("broken", f"the check could not go on: {described(error)}", error)
    return ended("kept")
