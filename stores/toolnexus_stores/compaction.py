"""What a compaction is to its host: seen before it happens, and kept.

The runtime's compaction replaces the stored transcript by a summary. That a save does so is seen
from what is stored, before it is written.
"""

from __future__ import annotations

import json
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from .codec import Message
    from .journal import EntryKind

__all__ = ["Compaction", "CountTokens", "Hook", "OnMetric", "estimate_tokens"]


@dataclass(frozen=True, slots=True)
class Compaction:
    """Stored messages are about to be dropped."""

    id: str
    kind: EntryKind
    stored: list[Message]
    """The transcript that is to be replaced."""
    new: list[Message]
    """What replaces it."""
    dropped: range
    """Which of `stored` are dropped: those between what is kept at both ends."""
    dropped_tokens: int
    kept_tokens: int
    """Of the tail of `stored` that `new` keeps after the dropped range."""
    digest: str
    """Of `stored`: the name of its snapshot, if snapshots are on."""

    @property
    def dropped_messages(self) -> list[Message]:
        """The messages that are dropped."""
        return self.stored[self.dropped.start : self.dropped.stop]


Hook: TypeAlias = Callable[[Compaction], Awaitable[object] | object]
"""``before_compaction``: sync or async, called on the event loop of the call that compacts."""

OnMetric: TypeAlias = Callable[[dict[str, Any]], object]
"""What a host gives the runtime as ``on_metric``."""

CountTokens: TypeAlias = Callable[[list["Message"]], int]


def estimate_tokens(messages: list[Message]) -> int:
    """The runtime's own estimate: a quarter of the characters of each message's compact JSON.

    As in ``toolnexus.agents.compaction``, SPEC.md 7F; our tests hold it against the runtime's.
    """
    return sum(
        math.ceil(len(json.dumps(each, separators=(",", ":"), ensure_ascii=False)) / 4)
        for each in messages
    )
