"""One check, made: the part that every front end shares."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from .check import LEVELS, NotApplicable, Terms, Violation
from .factory import NotAStore, described, place_of
from .report import Outcome
from .subject import Subject

if TYPE_CHECKING:
    from .check import Check
    from .factory import Factory

__all__ = ["attempt", "perform", "seconds_of"]


_TERMS = Terms()
_EXHAUSTIVE = 100
"""How many times as long an exhaustive check may take."""


async def perform(
    check: Check,
    factory: Factory,
    *,
    limit: float | None = None,
    terms: Terms = _TERMS,
) -> dict[str, int]:
    """Make *check* on the storage that *factory* opens; return if the promise was kept.

    What is returned is how much was tried, by the checks that count. Raises `Violation` with the
    promise and what was seen, `NotApplicable` with the reason, or `NotAStore`. A store that takes
    longer than *limit*, or the check's own, is a violation.
    """
    __tracebackhide__ = True
    seconds = limit or seconds_of(check, terms)
    clock = asyncio.timeout(seconds)
    if "name" in check.needs and not isinstance(factory, str):
        raise NotApplicable("another process needs a factory that is named as a string")
    try:
        async with clock, _subject_of(check, factory) as subject:
            subject.terms = terms
            await check.body(subject)
            return dict(subject.counts)
    except Violation as violation:
        violation.promised = check.promise
        raise
    except TimeoutError as error:
        if not clock.expired():
            raise
        hangs = Violation(f"did not end within {seconds:g} s")
        hangs.promised = check.promise
        raise hangs from error


def seconds_of(check: Check, terms: Terms) -> float:
    """How long *check* may take, if nobody says otherwise."""
    return check.timeout * (_EXHAUSTIVE if terms.exhaustive else 1)


def _subject_of(check: Check, factory: Factory) -> Any:
    if check.level in LEVELS:
        return Subject(factory, check)
    from .driver_subject import DriverSubject  # noqa: PLC0415 - needs our stores

    return DriverSubject(factory)


async def attempt(
    check: Check,
    factory: Factory,
    *,
    limit: float | None = None,
    terms: Terms = _TERMS,
) -> Outcome:
    """Make *check* and say how it ended; whatever the store raises is a broken promise."""
    began = time.perf_counter()

    def ended(result: Any, seen: str = "", error: BaseException | None = None) -> Outcome:
        return Outcome(check, result, seen, time.perf_counter() - began, place_of(error))

    try:
        counts = await perform(check, factory, limit=limit, terms=terms)
    except NotApplicable as reason:
        return ended("inapplicable", str(reason))
    except Violation as violation:
        return ended("broken", violation.seen, violation.__cause__)
    except NotAStore as error:
        return ended("broken", str(error), error.__cause__)
    except Exception as error:  # what a store can make a check stumble over
        return ended("broken", f"the check could not go on: {described(error)}", error)
    return replace(ended("kept"), counts=counts)
