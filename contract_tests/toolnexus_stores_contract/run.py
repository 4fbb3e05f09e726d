"""One check, made: the part that every front end shares."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from .check import Violation
from .subject import Subject

if TYPE_CHECKING:
    from .check import Check
    from .factory import Factory

__all__ = ["perform"]


async def perform(check: Check, factory: Factory) -> None:
    """Make *check* on the storage that *factory* opens; return if the promise was kept.

    Raises `Violation` with the promise and what was seen, `NotApplicable` with the reason, or
    `NotAStore`. A store that takes longer than the check's timeout is a violation.
    """
    __tracebackhide__ = True
    limit = asyncio.timeout(check.timeout)
    try:
        async with limit, Subject(factory) as subject:
            await check.body(subject)
    except Violation as violation:
        violation.promised = check.promise
        raise
    except TimeoutError as error:
        if not limit.expired():
            raise
        hangs = Violation(f"did not end within {check.timeout:g} s")
        hangs.promised = check.promise
        raise hangs from error
