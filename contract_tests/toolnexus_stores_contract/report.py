"""What a run of the suite found, and the exit status that says so."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from .check import DRIVER_LEVELS, LEVELS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from .check import Check, Level

__all__ = ["BROKEN", "INCOMPLETE", "KEPT", "UNTESTABLE", "Outcome", "Report", "Result"]

KEPT, BROKEN, UNTESTABLE, INCOMPLETE = range(4)
"""The exit statuses: every claimed promise is kept; one is broken, or an expected failure is none;
the store could not be tested at all, or was not asked for properly; not all that was claimed was
tested."""

Result = Literal["kept", "broken", "inapplicable"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one check ended."""

    check: Check
    result: Result
    seen: str = ""
    """What was seen of a broken promise, or why the check was not applicable."""
    seconds: float = 0
    where: str = ""
    """Where in the author's code it went wrong, if an exception says so."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """How much was tried, by the checks that count."""


@dataclass(frozen=True, slots=True)
class Report:
    """How all of them ended."""

    store: str
    """The factory, as it may be shown."""

    claims: tuple[Level, ...]
    """The levels that the store claims; a broken promise of another level is a note only."""

    outcomes: tuple[Outcome, ...]
    """One for each check that was made, in order."""

    expected_failures: Mapping[str, str] = field(default_factory=dict)
    """Check id -> why the store breaks that promise on purpose; those that concern this run."""

    not_offered: Mapping[Level, str] = field(default_factory=dict)
    """Level that is not claimed -> why it was not tested any further."""

    notes: tuple[str, ...] = ()
    """What is worth knowing, and breaks no promise."""

    stopped: str = ""
    """Why not all checks were made, if they were not."""

    driver: bool = False
    """It is a driver that was tested."""

    named: bool = True
    """The factory has a name, by which a command can find it."""

    @property
    def levels(self) -> tuple[Level, ...]:
        """Every level of this kind of subject, in order."""
        return DRIVER_LEVELS if self.driver else LEVELS

    def of(self, level: Level, *results: Result) -> list[Outcome]:
        """The outcomes of *level* that are one of *results*."""
        return [o for o in self.outcomes if o.check.level == level and o.result in results]

    @property
    def violations(self) -> list[Outcome]:
        """Promises that are claimed, broken, and not expected to be."""
        return [
            outcome
            for level in self.claims
            for outcome in self.of(level, "broken")
            if outcome.check.id not in self.expected_failures
        ]

    @property
    def expected(self) -> list[Outcome]:
        """Promises that are broken as expected."""
        return [o for o in self._expected() if o.result == "broken"]

    @property
    def stale_expectations(self) -> list[str]:
        """Ids of expected failures that did not fail: the list would not be true."""
        return sorted(self.expected_failures.keys() - {o.check.id for o in self.expected})

    @property
    def problems(self) -> list[str]:
        """Why this report proves less than was asked for."""
        untested = [
            f"{level} is claimed, and none of its checks could be made" for level in self._vacuous()
        ]
        return [*untested, *([self.stopped] if self.stopped else [])]

    @property
    def exit_code(self) -> int:
        """See `KEPT` and its neighbours."""
        if self.violations or self.stale_expectations:
            return BROKEN
        return INCOMPLETE if self.problems or not self.claims else KEPT

    @property
    def summary(self) -> str:
        """All levels in one line: ``core 55/55 · concurrent 7/8 · not claimed: management``."""
        claimed = [f"{level} {self.count(level)}" for level in self.claims]
        others = [self._unclaimed(level) for level in self.levels if level not in self.claims]
        told = [each for each in others if each]
        return " · ".join([*claimed, *([f"not claimed: {', '.join(told)}"] if told else [])])

    def count(self, level: Level) -> str:
        """Of the checks of *level* that were made, how many were kept."""
        return f"{len(self.of(level, 'kept'))}/{len(self.of(level, 'kept', 'broken'))}"

    @property
    def counts(self) -> dict[str, int]:
        """How much was tried, in all checks together."""
        total: Counter[str] = Counter()
        for outcome in self.outcomes:
            total.update(outcome.counts)
        return dict(total)

    def _unclaimed(self, level: Level) -> str:
        if level in self.not_offered:
            return level
        return f"{level} ({self.count(level)} kept)" if self.of(level, "kept", "broken") else ""

    def _expected(self) -> Iterable[Outcome]:
        return (o for o in self.outcomes if o.check.id in self.expected_failures)

    def _vacuous(self) -> list[Level]:
        return [level for level in self.claims if not self.of(level, "kept", "broken")]
