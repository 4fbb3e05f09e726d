"""What the runtime really does with a store, call for call (toolnexus 0.21)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolnexus_stores_contract.check import check
from toolnexus_stores_contract.values import require_same, transcript

if TYPE_CHECKING:
    from toolnexus_stores_contract.subject import Subject


@check("core", "A suspended turn rolls back: the halted transcript, then the one before the turn.")
async def rollback(subject: Subject) -> None:
    """The client saves the halted transcript, then the runtime saves the one from before the turn.
    The second one must win, whatever its length.
    """
    store = await subject.open()
    for before in (transcript("before", 4), []):
        id = subject.new_id()
        if before:
            await store.save(id, before)
        snapshot = await store.get(id)
        await store.get(id)  # the runtime reads, then the client that it drives does
        await store.save(id, [*before, *transcript("halted", 3)])
        await store.save(id, snapshot or [])
        # Whether None or an empty list comes back is core.saved_empty's to say.
        require_same(await store.get(id) or [], before, "get after the rollback")
        await store.save(id, [*before, *transcript("resumed", 5)])
        require_same(await store.get(id), [*before, *transcript("resumed", 5)], "the resumed turn")


@check("core", "A completion gate reads and saves twice in one turn.")
async def gated_turn(subject: Subject) -> None:
    """A gate that refuses an answer makes the client get and save again, within the turn."""
    store = await subject.open()
    id = subject.new_id()
    messages = transcript("first", 2)
    for attempt in ("second", "third"):
        require_same(await store.get(id), None if attempt == "second" else messages)
        await store.save(id, messages)
        read = await store.get(id)
        require_same(read, messages, "get inside the turn")
        messages = [*messages, *transcript(attempt, 2)]
        await store.save(id, messages)
    require_same(await store.get(id), messages, "get after the turn")


@check("core", "A compaction replaces the transcript by a summary, which later turns extend.")
async def compaction(subject: Subject) -> None:
    """After a compaction the stored transcript is a summary and a tail, and the next turn adds to
    that.
    """
    store = await subject.open()
    id = subject.new_id()
    system = {"role": "system", "content": "Be brief."}
    full = [system, *transcript("full", 40)]
    await store.save(id, full)
    summary = {"role": "system", "content": "So far: forty messages."}
    compacted = [system, summary, *full[-4:]]
    await store.save(id, compacted)
    require_same(await store.get(id), compacted, "get after the compaction")
    await store.save(id, [*compacted, *transcript("later", 2)])
    require_same(await store.get(id), [*compacted, *transcript("later", 2)], "the next turn")
    await store.save(id, full)
    require_same(await store.get(id), full, "get after the full transcript was put back")
