"""One check, made: the part that every front end shares."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from .check import Violation
from .subject import Subject

if TYPE_CHECKING:
    from .check import Check, Survives
    from .factory import Factory

__all__ = ["perform"]


_EXHAUSTIVE = 100
"""How many times as long an exhaustive check may take."""


async def perform(
    check: Check, factory: Factory, *, survives: Survives = "power", exhaustive: bool = False
) -> dict[str, int]:
    """Make *check* on the storage that *factory* opens; return if the promise was kept.

    What is returned is how much was tried, by the checks that count. Raises `Violation` with the
    promise and what was seen, `NotApplicable` with the reason, or `NotAStore`. A store that takes
    longer than the check's timeout is a violation.
    """
    __tracebackhide__ = True
    seconds = check.timeout * (_EXHAUSTIVE if exhaustive else 1)
    limit = asyncio.timeout(seconds)
    try:
        async with limit, Subject(factory, survives=survives, exhaustive=exhaustive) as subject:
            await check.body(subject)
            return subject.counts
    except Violation as violation:
        violation.promised = check.promise
        raise
    except TimeoutError as error:
        if not limit.expired():
            raise
        hangs = Violation(f"did not end within {seconds:g} s")
        hangs.promised = check.promise
        raise hangs from error
