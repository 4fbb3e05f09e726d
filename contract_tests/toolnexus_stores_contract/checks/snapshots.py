"""What a save drops is kept first, for stores that offer it as `toolnexus_stores.Store` does.

Such a store has ``snapshots(id)``, which gives what is kept, newest first, as objects with a
``digest``; and ``restore(id, digest)``, which makes one of them the transcript again and gives its
messages. The factory opens it with snapshots switched on, and room for at least ten.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from toolnexus_stores_contract.check import Violation, check
from toolnexus_stores_contract.values import difference, require_one_of, require_same, transcript

if TYPE_CHECKING:
    from toolnexus_stores_contract.check import Need
    from toolnexus_stores_contract.subject import Opened, Subject
    from toolnexus_stores_contract.values import Message

_BOTH: tuple[Need, ...] = ("snapshots", "restore")
_NOTHING_LIKE_IT = "0" * 32
_STEPS = 24  # of the event loop: more than a save of any store with tasks of its own takes


def _compacted(full: list[Message], summary: str) -> list[Message]:
    """What the runtime's compaction makes of *full*: system prompt, summary, tail."""
    return [full[0], {"role": "system", "content": summary}, *full[-4:]]


def _with_prompt(stamp: str, total: int) -> list[Message]:
    return [{"role": "system", "content": "Be brief."}, *transcript(stamp, total)]


async def _kept(store: Opened, id: str) -> list[list[Message]]:
    """Every transcript that is kept, as `restore` gives it. What is current is put back."""
    current = await store.get(id)
    digests = await store.snapshots(id)
    found = [await store.restore(id, digest) for digest in digests]
    await store.save(id, current or [])
    return found


async def _require_kept(store: Opened, id: str, dropped: list[Message], when: str) -> None:
    found = await _kept(store, id)
    if all(difference(each, dropped) is not None for each in found):
        raise Violation(f"none of {len(found)} snapshots is the transcript that {when} replaced")


async def _require_refused(store: Opened, id: str, digest: str, otherwise: str) -> None:
    try:
        await store.restore(id, digest)
    except Violation:  # it raised, as it should
        return
    raise Violation(f"restore {otherwise}")


@check(
    "snapshots",
    "A compaction keeps the transcript that it replaces, and restore gives it back.",
    needs=_BOTH,
)
async def kept(subject: Subject) -> None:
    """A summary is lossy and made by a model. Without its source nobody can tell what it lost."""
    store = await subject.open()
    id = subject.new_id()
    full = _with_prompt("full", 40)
    await store.save(id, full)
    await store.save(id, _compacted(full, "So far: forty messages."))
    require_same(await store.get(id), _compacted(full, "So far: forty messages."))
    digests = await store.snapshots(id)
    if len(digests) != 1:
        raise Violation(f"there are {len(digests)} snapshots after one compaction")
    require_same(await store.restore(id, digests[0]), full, "restore")
    require_same(await store.get(id), full, "get after restore")


@check("snapshots", "A save that drops nothing keeps nothing.", needs=_BOTH)
async def nothing_dropped(subject: Subject) -> None:
    """A snapshot of every turn costs a copy each, and pushes out those that matter."""
    store = await subject.open()
    id = subject.new_id()
    for total in (1, 2, 2, 9):  # a transcript that grows, and one that is saved twice
        await store.save(id, transcript("nine", 9)[:total])
    digests = await store.snapshots(id)
    if digests:
        raise Violation(f"there are {len(digests)} snapshots, and nothing was dropped")


@check("snapshots", "Every one of several compactions keeps what it replaces.", needs=_BOTH)
async def each_of_several(subject: Subject) -> None:
    """A long conversation is compacted again and again. The second must not cost the first."""
    store = await subject.open()
    id = subject.new_id()
    replaced: list[list[Message]] = []
    current = _with_prompt("first", 20)
    await store.save(id, current)
    for stamp in ("second", "third"):
        replaced.append(current)
        current = [*_compacted(current, f"before the {stamp}"), *transcript(stamp, 20)]
        await store.save(id, current)
    for number, dropped in enumerate(replaced, 1):
        await _require_kept(store, id, dropped, f"compaction {number}")
    require_same(await store.get(id), current)


@check("snapshots", "An edit of an old message keeps the transcript with the old one.", needs=_BOTH)
async def edited(subject: Subject) -> None:
    """A redaction, or a bug, changes what was said. The number of messages does not show it."""
    store = await subject.open()
    id = subject.new_id()
    before = transcript("before", 6)
    await store.save(id, before)
    after = [*before[:2], {**before[2], "content": "something else"}, *before[3:]]
    await store.save(id, after)
    await _require_kept(store, id, before, "the edit")


@check("snapshots", "A turn that a stale save drops is kept.", needs=_BOTH)
async def stale_save(subject: Subject) -> None:
    """Two workers answer in one conversation. The last one wins, and the paid answer of the other
    must not be gone without a trace.
    """
    store = await subject.open()
    id = subject.new_id()
    common = transcript("common", 4)
    await store.save(id, common)
    await store.get(id)
    first, second = ([*common, *transcript(stamp, 2)] for stamp in ("first", "second"))
    for turn in (first, second):  # both were made of what the get gave
        await asyncio.create_task(store.save(id, turn))
    require_same(await store.get(id), second)
    await _require_kept(store, id, first, "the second turn")


@check("snapshots", "What restore replaces is kept as well.", needs=_BOTH)
async def restored_by_mistake(subject: Subject) -> None:
    """Who restores the wrong one at night wants to go back."""
    store = await subject.open()
    id = subject.new_id()
    full = _with_prompt("full", 20)
    compacted = [*_compacted(full, "So far: twenty."), *transcript("later", 3)]
    await store.save(id, full)
    await store.save(id, compacted)
    await store.restore(id, (await store.snapshots(id))[0])
    await _require_kept(store, id, compacted, "restore")


@check("snapshots", "restore of what was never kept raises, and changes nothing.", needs=_BOTH)
async def not_kept(subject: Subject) -> None:
    """A mistyped digest, or one of another conversation, must not cost the transcript."""
    store = await subject.open()
    id, other = subject.new_id(), subject.new_id()
    for each in (id, other):
        await store.save(each, _with_prompt(each, 20))
    await store.save(other, _compacted(_with_prompt(other, 20), "So far: twenty."))
    [of_the_other] = await store.snapshots(other)
    if await store.snapshots(id):
        raise Violation("a conversation has a snapshot of another one")
    for digest in (_NOTHING_LIKE_IT, "", "../secret", of_the_other):
        await _require_refused(store, id, digest, "did not refuse what is not of this conversation")
        require_same(await store.get(id), _with_prompt(id, 20), "get after the refused restore")


@check("snapshots", "A snapshot is there as long as its conversation is.", needs=_BOTH)
async def reopened(subject: Subject) -> None:
    """A wrong summary is noticed weeks later, by another process than the one that kept it."""
    store = await subject.open()
    id = subject.new_id()
    full = _with_prompt("full", 20)
    await store.save(id, full)
    await store.save(id, _compacted(full, "So far: twenty."))
    store = await subject.reopened()
    if await store.get(id) is not None:
        await _require_kept(store, id, full, "the compaction before the store was opened anew")


@check("snapshots", "ids() does not give a snapshot.", needs=(*_BOTH, "ids"))
async def not_listed(subject: Subject) -> None:
    """What is listed is exported, counted and compacted. A snapshot is no conversation."""
    store = await subject.open()
    id = subject.new_id()
    before = set(await store.ids())
    full = _with_prompt("full", 20)
    await store.save(id, full)
    await store.save(id, _compacted(full, "So far: twenty."))
    more = set(await store.ids()) - before - {id}
    if any(id in each for each in more):
        raise Violation("ids() gives more than the conversation after a compaction")


@check("snapshots", "delete(id) removes the snapshots too.", needs=(*_BOTH, "delete"))
async def deleted(subject: Subject) -> None:
    """To delete is a legal duty, and what was said is in the snapshots as much as in the
    transcript.
    """
    store = await subject.open()
    id = subject.new_id()
    full = _with_prompt("full", 20)
    await store.save(id, full)
    await store.save(id, _compacted(full, "So far: twenty."))
    [digest] = await store.snapshots(id)
    await store.delete(id)
    for when in ("after delete", "when the id is used again"):
        if await store.snapshots(id):
            raise Violation(f"snapshots(id) still gives one {when}")
        await _require_refused(store, id, digest, f"still gives it back {when}")
        await store.save(id, transcript("new", 1))


@check("snapshots", "A compaction that is cancelled drops nothing that is not kept.", needs=_BOTH)
async def cancelled(subject: Subject) -> None:
    """The save that compacts takes several steps. Whatever it was cancelled in, the source must be
    the transcript, or a snapshot.
    """
    store = await subject.open()
    full = _with_prompt("full", 20)
    compacted = _compacted(full, "So far: twenty.")
    for steps in range(_STEPS):
        id = subject.new_id()
        await store.save(id, full)
        saving = asyncio.create_task(store.raw.save(id, compacted))
        for _ in range(steps):
            await asyncio.sleep(0)
        saving.cancel()
        await asyncio.gather(saving, return_exceptions=True)
        found = await store.get(id)
        require_one_of(found, full, compacted, when="get after the cancelled compaction")
        if difference(found, full) is not None:
            await _require_kept(store, id, full, "the cancelled compaction")
