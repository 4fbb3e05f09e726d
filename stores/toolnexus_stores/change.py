"""What kind of change a save is, seen from what is stored."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Change", "Kind", "change_of"]

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
