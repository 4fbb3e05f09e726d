"""How far the experiments go: what fits into every run, or everything.

Every system call of every scenario is hit either way. The difference is where a write is torn, how
large the transcripts are, and how many crash states are looked at.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Offsets", "Reach", "reach_of"]

Offsets: TypeAlias = Literal["half", "few", "sectors", "every"]
"""Where a write of n bytes is torn: ½ · 1, ⅓, ½, n-1 · these and every 512 · everywhere."""


@final
@dataclass(frozen=True, slots=True)
class Reach:
    """What is tried."""

    calls: Sequence[str]
    """Scenarios in which each call is killed, and made to fail."""

    some_calls: Sequence[str]
    """Scenarios in which that is done to some of the calls: the first, the last, some between."""

    tears: Mapping[str, Offsets]
    """Scenarios in which each write is torn, and where."""

    power: Sequence[str]
    """Scenarios whose crash states are looked at."""

    states: int
    """Crash states of each of them, at most."""


_EVERY_RUN: Final = Reach(
    calls=("replace", "append", "create"),
    some_calls=("large",),
    tears={"replace": "sectors", "append": "few", "single": "few", "create": "half"},
    power=("replace", "append", "create"),
    states=400,
)
_EVERY: Final[Offsets] = "every"
_ALL: Final = ("replace", "append", "single", "create", "many", "large")
_EXHAUSTIVE: Final = Reach(
    calls=_ALL,
    some_calls=(),
    tears={**dict.fromkeys(_ALL[:4], _EVERY), "many": "sectors", "large": "sectors"},
    power=_ALL,
    states=10_000,
)


def reach_of(*, exhaustive: bool) -> Reach:
    """What fits into every run, or everything."""
    return _EXHAUSTIVE if exhaustive else _EVERY_RUN
