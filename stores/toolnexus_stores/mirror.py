"""What this process last knew of each conversation.

A private, exact copy of every recently used transcript, frozen and named by its version. It is
never trusted on its own: a reader asks the backend for the version, a writer's compare-and-set
does. What it saves is the decoding and encoding of everything that did not change.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from .meta import LINK, Meta, Notes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .driver import Version

__all__ = ["Foreseen", "Foresight", "Known", "Mirror"]

# What CPython spends beside the content, on a 64-bit build: a bytes object's header and its slot
# in a list; and for a conversation the entry, its meta, its key and the place in the dictionary.
_BYTES_PER_MESSAGE = 33 + 8
_BYTES_PER_CONVERSATION = 2_000

_MOST_FORESEEN = 64  # conversations


@final
@dataclass(frozen=True, slots=True)
class Known:
    """One version of one transcript. Never changed, so that it can be used across awaits."""

    version: Version
    meta: Meta
    frozen: Sequence[bytes]
    links: bytes
    """The digest chain, `meta.LINK` bytes a message."""

    def links_of(self, keep: int) -> bytes:
        """The digest chain of the first *keep* messages."""
        return self.links[: keep * LINK]

    def cost(self) -> int:
        """Bytes that remembering this takes, a little over-estimated."""
        content = sum(map(len, self.frozen)) + len(self.frozen) * _BYTES_PER_MESSAGE
        return content + len(self.links) + len(self.meta.id) * 4 + _BYTES_PER_CONVERSATION


@final
class Mirror:
    """The known transcripts by key, least recently used first out, inside a budget of bytes."""

    def __init__(self, budget: int) -> None:
        self._budget = budget
        self._known: OrderedDict[str, tuple[Known, int]] = OrderedDict()
        self.size = 0
        """Bytes in use; at most the budget."""

    def __len__(self) -> int:
        return len(self._known)

    def get(self, key: str) -> Known | None:
        """What is known of *key*, if anything."""
        entry = self._known.get(key)
        if entry is None:
            return None
        self._known.move_to_end(key)
        return entry[0]

    def put(self, key: str, known: Known) -> None:
        """Remember *known*, unless it alone exceeds the budget."""
        self.drop(key)
        cost = known.cost()
        if cost > self._budget:
            return
        self._known[key] = known, cost
        self.size += cost
        while self.size > self._budget:
            _, (_, freed) = self._known.popitem(last=False)
            self.size -= freed

    def drop(self, key: str) -> None:
        """Forget *key*."""
        entry = self._known.pop(key, None)
        if entry is not None:
            self.size -= entry[1]

    def clear(self) -> None:
        """Forget everything."""
        self._known.clear()
        self.size = 0


@final
@dataclass(frozen=True, slots=True)
class Foreseen:
    """A compaction that a run has made, whose transcript is still to be saved."""

    begins: frozenset[str]
    """The digests of all transcripts that the snapshot of it begins with."""
    after: str
    """The digest of the messages that the run went on with."""
    notes: Notes
    """For the transcript that begins with these."""
    too_many: frozenset[str]
    """Snapshots that may go when that is saved."""


@final
class Foresight:
    """The newest compaction that `keep_unsaved` saw of each of a few conversations, by key.

    Known to this process only: without it there is a snapshot too many, never one too few.
    """

    def __init__(self) -> None:
        self._foreseen: OrderedDict[str, Foreseen] = OrderedDict()

    def put(self, key: str, foreseen: Foreseen) -> None:
        """Remember *foreseen* for the conversation at *key*."""
        self._foreseen[key] = foreseen
        self._foreseen.move_to_end(key)
        if len(self._foreseen) > _MOST_FORESEEN:
            self._foreseen.popitem(last=False)

    def get(self, key: str) -> Foreseen | None:
        """What is remembered for *key*."""
        return self._foreseen.get(key)
