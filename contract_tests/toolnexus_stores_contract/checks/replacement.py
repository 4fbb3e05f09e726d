"""A save replaces the whole transcript, whatever was there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolnexus_stores_contract.check import check
from toolnexus_stores_contract.values import require_same, transcript

if TYPE_CHECKING:
    from toolnexus_stores_contract.subject import Subject


@check("core", "get after save gives what was saved.")
async def read_your_write(subject: Subject) -> None:
    """The runtime reads what it saved in the same turn, and sends that to the model."""
    store = await subject.open()
    id = subject.new_id()
    for total in (1, 2, 5):
        messages = transcript(f"of {total}", total)
        await store.save(id, messages)
        require_same(await store.get(id), messages)


@check("core", "Each get gives the same until the next save: reading changes nothing.")
async def read_twice(subject: Subject) -> None:
    """An agent's turn gets its transcript twice: the runtime does, and then the client that it
    drives.
    """
    store = await subject.open()
    id = subject.new_id()
    await store.save(id, transcript("one", 3))
    for when in ("the first get", "the second get", "the third get"):
        require_same(await store.get(id), transcript("one", 3), when)


@check("core", "A save of the same transcript does not add to it.")
async def saved_twice(subject: Subject) -> None:
    """The runtime saves a whole transcript, not what is new of it. A store that appends shows the
    model every message again and again.
    """
    store = await subject.open()
    id = subject.new_id()
    await store.save(id, transcript("one", 3))
    await store.save(id, transcript("one", 3))
    require_same(await store.get(id), transcript("one", 3))


@check("core", "A longer transcript replaces a shorter one: each turn saves all of it again.")
async def grows(subject: Subject) -> None:
    """Each turn saves all that was said before, and two messages more."""
    store = await subject.open()
    id = subject.new_id()
    messages = transcript("one", 12)
    for total in range(2, 13, 2):
        await store.save(id, messages[:total])
        require_same(await store.get(id), messages[:total], f"get after {total} messages")


@check("core", "A shorter transcript replaces a longer one, and nothing of that one is left.")
async def shrinks(subject: Subject) -> None:
    """A compaction and a rollback both save fewer messages than are stored. Old messages that stay
    behind come back into the prompt, in the wrong place.
    """
    store = await subject.open()
    id = subject.new_id()
    await store.save(id, transcript("long", 20))
    await store.save(id, transcript("short", 2))
    require_same(await store.get(id), transcript("short", 2))
    prefix = transcript("long", 20)[:1]
    await store.save(id, prefix)
    require_same(await store.get(id), prefix, "get after a save of one message")


@check("core", "A transcript of the same length replaces another, message for message.")
async def replaced(subject: Subject) -> None:
    """A rewind and another answer have the length of what they replace. To compare lengths is not
    enough.
    """
    store = await subject.open()
    id = subject.new_id()
    await store.save(id, transcript("before", 4))
    await store.save(id, transcript("after", 4))
    require_same(await store.get(id), transcript("after", 4))


@check("core", "A message that changes in place is stored as it is now.")
async def edited_in_place(subject: Subject) -> None:
    """Hosts and hooks redact messages in the middle. A store that writes only what lies beyond its
    last message keeps what was to be forgotten.
    """
    store = await subject.open()
    id = subject.new_id()
    messages = transcript("one", 6)
    await store.save(id, messages)
    messages[1]["content"] = "edited"
    messages[4].pop("content")
    await store.save(id, messages)
    require_same(await store.get(id), messages)


@check("core", "Nothing of a message that was replaced is merged into its successor.")
async def nothing_merged(subject: Subject) -> None:
    """Upserts of a document database merge. A key that was removed, a secret for example, must be
    gone.
    """
    store = await subject.open()
    id = subject.new_id()
    await store.save(id, [{"role": "user", "content": "x", "name": "ada", "meta": {"a": 1}}])
    await store.save(id, [{"role": "user", "content": "x", "meta": {"b": 2}}])
    require_same(await store.get(id), [{"role": "user", "content": "x", "meta": {"b": 2}}])


@check("core", "A save of one id changes no other.")
async def ids_apart(subject: Subject) -> None:
    """Agents of one runtime save in turn, under ids of their own. One user must never read
    another's.
    """
    store = await subject.open()
    ids = [subject.new_id() for _ in range(5)]
    for total in (1, 4, 2):
        for id in ids:
            await store.save(id, transcript(id, total))
        for id in ids:
            require_same(await store.get(id), transcript(id, total), f"get of {id}")
