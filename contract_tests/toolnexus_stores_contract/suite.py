"""The whole suite on one store: what the command runs, and what a program can await."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, final

from .check import METHODS, Terms
from .factory import NotAStore, shown_factory, without_passwords
from .plan import planned
from .report import Report
from .run import seconds_of
from .runner import runner_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from .check import Check, Level, Survives
    from .factory import Factory
    from .plan import Plan
    from .report import Outcome
    from .runner import Runner

__all__ = ["Progress", "check_driver", "check_store"]

_OPENING_SECONDS = 30.0
_HANGS = 3  # a store that hangs that often is not worth the time that the other checks would take


@dataclass(frozen=True, slots=True)
class Progress:
    """A check begins, or has ended."""

    check: Check
    number: int
    """Its place among those that are to be made, from 1."""
    total: int
    outcome: Outcome | None
    """How it ended; None: it begins."""


async def check_store(  # noqa: PLR0913 - each is for the author to say, by name
    factory: Factory,
    *,
    claims: Collection[str] | None = None,
    levels: Collection[str] | None = None,
    select: Collection[str] | None = None,
    expected_failures: Mapping[str, str] | None = None,
    limit: float | None = None,
    survives: Survives = "power",
    exhaustive: bool = False,
    on_progress: Callable[[Progress], None] | None = None,
) -> Report:
    """Put the store that *factory* opens to the test, and report.

    *factory* is the URL of one of our stores, ``"package.module:factory"`` (arguments may follow,
    as literals in parentheses), or a callable. What has a name is tested in a process of its own,
    so nothing that the store does can hang or end this one. A callable is called in threads of this
    process, in an event loop of its own for each check; it is not tested across processes.

    *claims* are the levels that the store promises to keep, ``core`` always; the others are tried
    out, and what is found is noted. *levels* and *select* (ids, or parts of them) narrow down what
    is tested; without *claims*, what they name is claimed. *expected_failures* says for each check
    id why that promise is broken on purpose. *limit* replaces each check's own number of seconds.
    *survives* says what an acknowledged save survives: ``"power"``, the loss of it, or only the end
    of the ``"process"``. *exhaustive* is for the night: every byte and every state, for hours.

    Raises `NotAStore` if there is nothing to be tested, `BadPlan` if no such check exists.
    """
    plan = planned(
        "store",
        claims=claims,
        levels=levels,
        select=select,
        expected_failures=expected_failures,
    )
    return await _Run(
        "store", factory, plan, Terms(survives, exhaustive), limit, on_progress
    ).report()


async def check_driver(
    factory: Factory,
    *,
    select: Collection[str] | None = None,
    expected_failures: Mapping[str, str] | None = None,
    limit: float | None = None,
    on_progress: Callable[[Progress], None] | None = None,
) -> Report:
    """The same for a driver (see `toolnexus_stores.driver`), which *factory* makes, not yet open.

    A URL means the driver that `open_store` would use for it.
    """
    plan = planned("driver", select=select, expected_failures=expected_failures)
    return await _Run("driver", factory, plan, Terms(), limit, on_progress).report()


@final
class _Run:
    """One run of a plan."""

    def __init__(  # noqa: PLR0913, PLR0917 - private, called twice
        self,
        kind: str,
        factory: Factory,
        plan: Plan,
        terms: Terms,
        limit: float | None,
        on_progress: Callable[[Progress], None] | None,
    ) -> None:
        self._kind = kind
        self._factory = factory
        self._plan = plan
        self._terms = terms
        self._limit = limit
        self._on_progress = on_progress or (lambda _: None)
        self._outcomes: list[Outcome] = []
        self._not_offered: dict[Level, str] = {}
        self._hangs = 0

    async def report(self) -> Report:
        """Make the checks of the plan, as long as it makes sense."""
        stopped = ""
        async with runner_of(self._kind, self._factory, self._terms) as runner:
            methods = await self._methods(runner)
            for number, check in enumerate(self._plan.checks, 1):
                if self._hangs == _HANGS:
                    left = len(self._plan.checks) - number + 1
                    stopped = f"{_HANGS} checks did not end; {left} more were not made"
                    break
                if self._is_offered(check, methods):
                    await self._make(runner, check, number)
        return Report(
            store=shown_factory(self._factory),
            claims=self._plan.claims,
            outcomes=tuple(self._outcomes),
            expected_failures=self._plan.expected_failures,
            not_offered=self._not_offered,
            notes=(*self._abilities(), *runner.notes),
            stopped=stopped,
            driver=self._kind == "driver",
            named=isinstance(self._factory, str),
        )

    async def _methods(self, runner: Runner) -> set[str]:
        try:
            return await runner.methods(self._limit or _OPENING_SECONDS)
        except NotAStore as error:
            raise NotAStore(without_passwords(str(error), self._factory)) from error.__cause__

    def _is_offered(self, check: Check, methods: set[str]) -> bool:
        """Whether to make *check*: what is not claimed is tried out as far as it makes sense."""
        if check.level in self._plan.claims:
            return True
        missing = [need for need in METHODS.get(check.level, ()) if need not in methods]
        if missing:
            self._not_offered.setdefault(check.level, f"the store has no {missing[0]}()")
        return check.level not in self._not_offered

    async def _make(self, runner: Runner, check: Check, number: int) -> None:
        total = len(self._plan.checks)
        self._on_progress(Progress(check, number, total, None))
        limit = self._limit or seconds_of(check, self._terms)
        outcome = await runner.attempt(check, limit)
        outcome = replace(outcome, seen=without_passwords(outcome.seen, self._factory))
        self._on_progress(Progress(check, number, total, outcome))
        self._hangs += outcome.result == "broken" and outcome.seconds >= limit
        first = not any(each.check.level == check.level for each in self._outcomes)
        if first and outcome.result == "broken" and check.level not in self._plan.claims:
            self._not_offered[check.level] = f"{check.id}: {outcome.seen}"
        self._outcomes.append(outcome)

    def _abilities(self) -> list[str]:
        """What works and is not claimed."""
        kept = {o.check.level for o in self._outcomes if o.result == "kept"} - {*self._plan.claims}
        broken = {o.check.level for o in self._outcomes if o.result == "broken"}
        return [
            f"{level} is kept too, and not claimed: if it is meant to be, claim it"
            for level in sorted(kept - broken)
        ]
