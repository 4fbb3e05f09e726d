"""Whether what many clients saw of one value can be true: a checker of concurrent histories.

A conversation is a register: a save writes it whole, a get reads it whole. A history is right if
the operations can be put into one order in which each get gives what the last save before it wrote,
and each operation takes its effect between its beginning and its end. (That is linearizability.)
Because every save writes a value of its own, this can be decided without a search: Gibbons and
Korach, "Testing Shared Memories", SIAM Journal on Computing 26(4), 1997.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["Operation", "contradiction"]

Moment: TypeAlias = float
"""On a clock that all clients share."""


@dataclass(frozen=True, slots=True)
class Operation:
    """What one client asked for, and when; a get that gave nothing back has no place here."""

    client: str
    kind: Literal["save", "get"]
    value: str | None
    """The stamp that was written or read. None: the conversation was absent."""
    began: Moment
    ended: Moment | None
    """When the client had the answer. None: never, so a save may take effect at any later time."""

    @property
    def end(self) -> Moment:
        """`ended`, or the end of time."""
        return math.inf if self.ended is None else self.ended

    def __str__(self) -> str:
        if self.client == "":
            return "the beginning"
        if self.kind == "save":
            return f"the save {self.value}"
        return f"the get by {self.client} that gave {self.value or 'None'}"


_BEGINNING = Operation("", "save", None, -math.inf, -math.inf)
"""What makes the conversation absent."""


class _Cluster:
    """One save and the gets that gave it. In any right order they follow each other directly."""

    def __init__(self, operations: Sequence[Operation]) -> None:
        self.first_to_end = min(operations, key=attrgetter("end"))
        self.last_to_begin = max(operations, key=attrgetter("began"))
        self.end = self.first_to_end.end
        self.began = self.last_to_begin.began


def contradiction(operations: Iterable[Operation]) -> str | None:
    """Why no order explains the *operations* on one conversation; None if one does.

    Each save must write a value of its own, and none of them None, which is the value at first.
    """
    saves: dict[str | None, Operation] = {None: _BEGINNING}
    members: dict[str | None, list[Operation]] = {None: [_BEGINNING]}
    gets = []
    for operation in operations:
        if operation.kind == "get":
            gets.append(operation)
        elif operation.value in saves:
            raise ValueError(f"two saves of {operation.value}")
        else:
            saves[operation.value] = operation
            members[operation.value] = [operation]
    for get in gets:
        save = saves.get(get.value)
        if save is None:
            return f"{get} is of a save that nobody made"
        if get.end < save.began:
            return f"{get} ended before that save began"
        members[get.value].append(get)
    return _conflict_of([_Cluster(each) for each in members.values()])


def _conflict_of(clusters: Sequence[_Cluster]) -> str | None:
    """Two clusters of which each must come before the other, in words; None if there are none.

    One comes before the other if an operation of the one ended before one of the other began. A
    cluster with such a pair of its own spans the time between them, and no other value can be the
    current one within that span.
    """
    spans = sorted((each for each in clusters if each.end < each.began), key=attrgetter("end"))
    for one, other in pairwise(spans):
        if other.end < one.began:
            return _told(one, other)
    ends = [span.end for span in spans]
    for point in clusters:
        if point.end >= point.began:
            # Spans follow each other, so only the last that ends before it begins can enclose it.
            before = bisect_left(ends, point.began) - 1
            if before >= 0 and point.end < spans[before].began:
                return _told(spans[before], point)
    return None


def _told(one: _Cluster, other: _Cluster) -> str:
    return (
        f"{one.first_to_end} ended before {other.last_to_begin} began, and "
        f"{other.first_to_end} ended before {one.last_to_begin} began: "
        "no order of the saves explains both"
    )
