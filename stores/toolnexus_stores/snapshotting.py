"""The hook around the runtime's compactor: it sees what a run drops before that was ever stored."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from .codec import Message
    from .store import Store

__all__ = ["snapshotting"]

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
