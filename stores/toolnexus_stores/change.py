"""What kind of change a save is, seen from what is stored."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Change", "Drop", "Kind", "change_of", "drop_of"]

Kind = Literal["create", "same", "append", "rewind", "rewrite"]
"""``create``: nothing was stored. ``same``: nothing changes. ``append``: the stored messages stay
and others follow. ``rewind``: the new transcript is a strict prefix of the stored one, as when the
runtime rolls a suspended turn back. ``rewrite``: stored messages are replaced, as by a compaction
or by another writer's turn."""


@dataclass(frozen=True, slots=True)
class Change:
    """The difference between the stored transcript and the one to save."""

    kind: Kind
    keep: int
    """How many leading messages are the same in both."""
    dropped: int
    """How many stored messages are not in the new transcript at their place."""


def change_of(stored: Sequence[bytes] | None, new: Sequence[bytes]) -> Change:
    """Compare two transcripts of frozen messages; None for one that is not stored."""
    if stored is None:
        return Change("create", 0, 0)
    keep = _common(stored, new)
    dropped = len(stored) - keep
    if dropped:
        return Change("rewind" if keep == len(new) else "rewrite", keep, dropped)
    return Change("same" if keep == len(new) else "append", keep, 0)


def _common(one: Sequence[bytes], other: Sequence[bytes]) -> int:
    """The length of the common prefix."""
    shorter = min(len(one), len(other))
    if one[:shorter] == other[:shorter]:  # the usual case, compared in one call
        return shorter
    return next(i for i in count() if one[i] != other[i])


@dataclass(frozen=True, slots=True)
class Drop:
    """Which stored messages a rewrite drops: those between what is kept at both ends."""

    start: int
    """The first that is dropped."""
    end: int
    """The first of those that are kept at the end."""
    tail: int | None
    """Where in the new transcript these begin; None if none are kept."""

    @property
    def inserted(self) -> tuple[int, int] | None:
        """Where the summary of them stands in the new transcript, if there is one.

        That is: fewer messages than were dropped, between those that are kept at both ends. An
        edited message is none.
        """
        if self.tail is None or self.tail >= self.end:
            return None
        return self.start, self.tail

    def inside(self, inserted: tuple[int, int] | None) -> bool:
        """Whether only what an earlier rewrite *inserted*, a summary, is dropped."""
        return inserted is not None and inserted[0] <= self.start and self.end <= inserted[1]


def drop_of(stored: Sequence[bytes], new: Sequence[bytes], keep: int) -> Drop:
    """What is dropped when *new* replaces *stored*, of which the first *keep* messages stay.

    A compaction keeps a tail, and the turn goes on after it: so the end of *stored* is looked for
    anywhere in *new*, and the longest such tail is taken.
    """
    longest, place = 0, None
    for end in range(len(new), keep, -1):
        most = min(len(stored), end) - keep
        length = 0
        while length < most and stored[-1 - length] == new[end - 1 - length]:
            length += 1
        if length > longest:
            longest, place = length, end - length
        if longest >= end - keep:  # no longer one can end further left
            break
    return Drop(keep, len(stored) - longest, place)
