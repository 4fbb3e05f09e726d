"""What a compaction is to its host: seen before it happens, and kept.

The runtime's compaction replaces the stored transcript by a summary. That a save does so is seen
from what is stored; messages that were never stored, only `snapshotting` sees.
"""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from .codec import Message
    from .journal import EntryKind
    from .store import Store

__all__ = ["Compaction", "CountTokens", "Hook", "OnMetric", "estimate_tokens", "snapshotting"]


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


BeforeLlm: TypeAlias = Callable[[dict[str, Any]], Any]


def snapshotting(compact: BeforeLlm, store: Store, *, id: str | None = None) -> BeforeLlm:
    """A ``before_llm`` hook around the runtime's ``compactor(...)`` that keeps what it drops.

    Before the run goes on with a compacted transcript, the whole one is kept as a snapshot, with
    what was never saved: on a new conversation, the user's prompt. The store's hook is called and
    its event emitted then, once for each compaction. If any of it fails the run fails, and what is
    stored stays as it was.

    Whose conversation it is, the hook learns from the messages that `Store.get` gave to this run.
    Give *id* for a run that reads from no store, or if several new conversations are begun in one
    task; a `LookupError` says when it cannot be told. Raises `ValueError` for a store that keeps no
    snapshots.
    """
    if not store.keeps_snapshots:
        raise ValueError("snapshotting needs a store that keeps snapshots: give it snapshots=")

    async def before_llm(event: dict[str, Any]) -> Any:
        messages: list[Message] = event["messages"]
        outcome = compact(event)
        if inspect.isawaitable(outcome):
            outcome = await outcome
        compacted = outcome.get("messages") if isinstance(outcome, dict) else None
        first = event.get("turn") == 0
        if compacted is not None:
            await store.keep_unsaved(messages, compacted, id=id, first=first)
        elif id is None:
            store.follow_run(messages, first=first)
        return outcome

    return before_llm
