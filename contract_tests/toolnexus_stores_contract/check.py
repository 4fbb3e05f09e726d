"""What a check is, and the ways in which it ends.

A check is an async function that is given the store under test and returns if a promise was kept.
It raises `Violation` if not, and `NotApplicable` if it cannot tell. It never uses ``assert``, which
``python -O`` removes: a check that cannot fail proves nothing.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from .subject import Subject

    Body = Callable[[Subject], Awaitable[None]]

__all__ = [
    "DRIVER_LEVELS",
    "LEVELS",
    "METHODS",
    "Check",
    "Level",
    "Need",
    "NotApplicable",
    "Storage",
    "Survives",
    "Terms",
    "Violation",
    "check",
]

Level = Literal["core", "concurrent", "durable", "atomic", "snapshots", "management", "driver"]
"""``core``: the two methods. ``concurrent``: one store used from many tasks, threads and event
loops. ``durable``: what was saved is there for the next store and for other processes.
``atomic``: the old transcript or the new one, under every fault that can be made.
``snapshots``: what a save drops is kept, with ``snapshots(id)`` and ``restore(id, digest)``.
``management``: ``ids()``, ``delete(id)`` and ``close()`` beside the two methods. ``driver``: the
protocol of `toolnexus_stores.driver`, which no store has to know of."""

LEVELS: tuple[Level, ...] = ("core", "concurrent", "durable", "atomic", "snapshots", "management")
"""What a store can claim, in the order in which it is tested."""

DRIVER_LEVELS: tuple[Level, ...] = ("driver",)
"""What a driver claims."""

Survives = Literal["power", "process"]
"""What an acknowledged save survives: the loss of power, or only the end of the process."""

Need = Literal["name", "snapshots", "restore", "ids", "delete", "close"]
"""``name``: another process can call the factory, as it is named by a string. Else a method."""

Storage = Literal["files", "server"]
"""Where a store keeps its conversations: in files that its own process writes, or with a server
that its factory's name holds the URL of."""

METHODS: Mapping[Level, tuple[Need, ...]] = {
    "snapshots": ("snapshots", "restore"),
    "management": ("ids", "delete", "close"),
}
"""What a store that claims the level has beside ``get`` and ``save``."""


_LONGER = 30


@dataclass(frozen=True, slots=True)
class Terms:
    """What an author says of all checks at once."""

    survives: Survives = "power"
    exhaustive: bool = False
    """Checks that can go on for hours do: every byte and every state, not some."""

    def seconds(self, usual: float) -> float:
        """How long to do what finds more the longer it is done, if *usual* is for every run."""
        return _LONGER * usual if self.exhaustive else usual


@dataclass(frozen=True, slots=True)
class Check:
    """One promise, and the code that puts it to the test."""

    id: str
    """``level.name``: what reports, selections and expected failures say."""

    promise: str
    """What a store that passes promises: one sentence."""

    level: Level
    """The claim that it belongs to."""

    body: Callable[[Any], Awaitable[None]]
    """The test: of a `Subject`, or of a `DriverSubject`. Raises `Violation` or `NotApplicable`."""

    timeout: float = 30
    """Seconds. A store that takes longer hangs."""

    needs: tuple[Need, ...] = ()
    """What must be there to make the check at all, beside ``get`` and ``save``."""

    storage: Storage | None = None
    """The only kind of storage that the check can be made on, if it is not every kind."""

    @property
    def why(self) -> str:
        """What goes wrong in the field without the promise."""
        return inspect.getdoc(self.body) or ""

    @property
    def source(self) -> str:
        """The code of the test."""
        return inspect.getsource(self.body)


def check(
    level: Level,
    promise: str,
    *,
    timeout: float = 30,
    needs: tuple[Need, ...] = (),
    storage: Storage | None = None,
) -> Callable[[Body], Check]:
    """Make a `Check` of an async function; its name is the function's, its reason the docstring."""

    def made(body: Body) -> Check:
        return Check(f"{level}.{body.__name__}", promise, level, body, timeout, needs, storage)

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
