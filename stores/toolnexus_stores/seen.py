"""What a caller last saw of each conversation, so that a save made on stale ground is known as one.

The runtime tells a store nothing but ids. But its calls of one turn come from one line of tasks: a
task reads, a child of it reads and saves, and the parent may roll back. So what was seen is noted
in a context variable that children inherit: each task that reads gets notes of its own, and a save
moves the notes of its ancestors along, where they were on the same version. Two tasks that read the
same version do not share notes: the second of them to save stands on stale ground.

Nothing here is needed for a save to be atomic. A caller of which nothing is known, as its task was
started elsewhere, is never called stale.
"""

from __future__ import annotations

import asyncio
import weakref
from collections import OrderedDict
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias, final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .driver import Version

__all__ = ["UNKNOWN", "Base", "Place", "forget", "last_seen", "moved", "note", "run_of"]

Place: TypeAlias = tuple[int, str]
"""A store's number in this process, and a key."""

_MOST_PLACES = 256  # of one task; older ones are forgotten
_DEEPEST = 16  # tasks in a line; what older ones saw is forgotten


@final
class Unknown:
    """Nothing is known of what the caller saw."""


UNKNOWN: Final = Unknown()

Base: TypeAlias = "Version | Unknown | None"
"""The version that a caller last saw; None: it saw that there was none."""


@final
@dataclass(slots=True)
class _Sight:
    """One conversation as it was last seen."""

    version: Version | None
    id: str
    mark: object = None
    """A message of the run that read it: the very object, as runs pass their messages on."""


@final
class _Line:
    """The notes of one task, and whose child it is."""

    __slots__ = ("depth", "parent", "sights", "task")

    def __init__(self, parent: _Line | None, task: asyncio.Task[Any] | None) -> None:
        self.depth: int = 1 if parent is None else parent.depth + 1
        self.parent = parent if self.depth <= _DEEPEST else None
        self.task = None if task is None else weakref.ref(task)
        self.sights: OrderedDict[Place, _Sight] = OrderedDict()

    def upwards(self) -> Iterator[_Line]:
        """The line itself and its ancestors."""
        line: _Line | None = self
        while line is not None:
            yield line
            line = line.parent


_line: ContextVar[_Line | None] = ContextVar("toolnexus_stores_line", default=None)


def _own_line() -> _Line:
    """The notes of the current task, begun if it has none."""
    line, task = _line.get(), asyncio.current_task()
    if line is None or line.task is None or line.task() is not task:
        line = _Line(line, task)
        _line.set(line)
    return line


def _lines() -> Iterator[_Line]:
    line = _line.get()
    if line is not None:
        yield from line.upwards()


def note(place: Place, version: Version | None, id: str, messages: Sequence[object] | None) -> None:
    """A get at *place* gave *messages* of *version*."""
    sights = _own_line().sights
    sights[place] = _Sight(version, id, messages[-1] if messages else None)
    sights.move_to_end(place)
    if len(sights) > _MOST_PLACES:
        sights.popitem(last=False)


def last_seen(place: Place) -> Base:
    """The version that this line of tasks last saw at *place*."""
    for line in _lines():
        if place in line.sights:
            return line.sights[place].version
    return UNKNOWN


def moved(place: Place, base: Base, version: Version) -> None:
    """A save at *place*, made by a caller that had seen *base*, gave *version*."""
    for line in _lines():
        sight = line.sights.get(place)
        if sight is not None and sight.version == base:
            sight.version = version


def forget(place: Place) -> None:
    """A save at *place* has ended in a way that its caller does not learn."""
    for line in _lines():
        line.sights.pop(place, None)


def run_of(
    number: int, before: Sequence[object], after: Sequence[object], *, first: bool
) -> tuple[str, str]:
    """Key and id of the conversation, of store *number*, that a run with *before* is in.

    The run is known by a message object that an earlier get, or an earlier call of this, has seen
    in it; the *first* call of a run on a new conversation by there being only one such. *after*
    are the messages that the run goes on with. Raises `LookupError` if that does not tell.
    """
    present = set(map(id, before))
    sights = [
        (key, sight)
        for line in _lines()
        for (owner, key), sight in line.sights.items()
        if owner == number
    ]
    found = [each for each in sights if each[1].mark and id(each[1].mark) in present]
    if not found and first:
        found = [each for each in sights if each[1].mark is None]
    places = {(key, sight.id) for key, sight in found}
    if len(places) != 1:
        raise LookupError("which conversation is compacted cannot be told: give it id=")
    for _, sight in found:
        sight.mark = after[-1] if after else None
    return places.pop()
