"""What an experiment found."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, final

__all__ = ["ENOUGH", "Result"]

ENOUGH: Final = 3
"""Violations of one kind tell no more than that."""


@final
@dataclass(slots=True)
class Result:
    """Counts of what was tried, and what came of it."""

    counts: dict[str, int] = field(default_factory=dict[str, int])
    violations: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """(token that replays it, what was seen)."""

    inconclusive: list[str] = field(default_factory=list[str])
    """What could not be tried, and why."""

    def count(self, what: str, number: int = 1) -> None:
        """Add to a count."""
        self.counts[what] = self.counts.get(what, 0) + number
