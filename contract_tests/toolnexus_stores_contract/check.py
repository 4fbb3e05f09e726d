"""What a check is, and the ways in which it ends.

A check is an async function that is given the store under test and returns if a promise was kept.
It raises `Violation` if not, and `NotApplicable` if it cannot tell. It never uses ``assert``, which
``python -O`` removes: a check that cannot fail proves nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from .subject import Subject

    Body = Callable[[Subject], Awaitable[None]]

__all__ = ["LEVELS", "Check", "Level", "NotApplicable", "Survives", "Violation", "check"]

Level = Literal["core", "concurrent", "durable", "atomic", "management"]
"""``core``: the two methods. ``concurrent``: one store used from many tasks, threads and event
loops. ``durable``: what was saved is there for the next store and the next process. ``atomic``: the
old transcript or the new one, under every fault that can be made. ``management``: ``ids()``,
``delete(id)`` and ``close()`` beside the two methods."""

Survives = Literal["power", "process"]
"""What an acknowledged save survives: the loss of power, or only the end of the process."""

LEVELS: tuple[Level, ...] = get_args(Level)


@dataclass(frozen=True, slots=True)
class Check:
    """One promise, and the code that puts it to the test."""

    id: str
    """``level.name``: what reports, selections and expected failures say."""

    promise: str
    """What a store that passes promises: one sentence."""

    level: Level
    """The claim that it belongs to."""

    body: Body
    """The test. Raises `Violation`, `NotApplicable`, or an error of the suite's own."""

    timeout: float = 30
    """Seconds. A store that takes longer hangs."""


def check(level: Level, promise: str, *, timeout: float = 30) -> Callable[[Body], Check]:
    """Make a `Check` of an async function; its name is the function's."""

    def made(body: Body) -> Check:
        return Check(f"{level}.{body.__name__}", promise, level, body, timeout)

    return made


class Violation(AssertionError):
    """The store broke a promise. The text says what was seen."""

    def __init__(self, seen: str) -> None:
        super().__init__(seen)
        self.seen = seen
        self.promised = ""

    def __str__(self) -> str:
        return f"{self.promised}\n  {self.seen}" if self.promised else self.seen


class NotApplicable(Exception):
    """The check cannot be made on this store, for the reason given. Not a pass."""
