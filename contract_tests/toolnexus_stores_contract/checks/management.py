"""Listing, deleting and closing, for stores that offer them as `toolnexus_stores.Store` does."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from toolnexus_stores_contract.check import Violation, check
from toolnexus_stores_contract.values import require_same, shown, transcript

from .ids import ALL_SHAPES

if TYPE_CHECKING:
    from toolnexus_stores_contract.subject import Opened, Subject


async def _taken(store: Opened, id: str) -> bool:
    """Whether the store takes *id*; that it should is for the checks of ids to say."""
    try:
        await store.save(id, [])
    except Violation:
        return False
    return True


async def _listed(store: Opened, id: str) -> bool:
    """Whether *id* is listed; twice is a violation."""
    times = (await store.ids()).count(id)
    if times > 1:
        raise Violation(f"ids() gives {shown(id)} {times} times")
    return times == 1


@check(
    "management", "ids() gives the id of every conversation, verbatim, each once.", needs=("ids",)
)
async def listed(subject: Subject) -> None:
    """A listing is how conversations are found, exported and deleted. Escaped names are not the
    ids.
    """
    store = await subject.open()
    base = subject.new_id()
    ids = [shape.replace("{}", base) for shape in ALL_SHAPES]
    ids = [id for id in ids if await _taken(store, id)]
    found = [id for id in await store.ids() if base in id]
    for id in ids:
        if found.count(id) != 1:
            raise Violation(f"ids() gives {shown(id)} {found.count(id)} times")
    others = set(found) - set(ids)
    if others:
        raise Violation(f"ids() gives {shown(min(others))}, which was never saved")


@check("management", "ids() does not give what was only read.", needs=("ids",))
async def not_listed(subject: Subject) -> None:
    """A read that creates fills the store with conversations that nobody had."""
    store = await subject.open()
    id = subject.new_id()
    await store.get(id)
    if await _listed(store, id):
        raise Violation("ids() gives an id that was never saved")


@check(
    "management",
    "delete(id) makes a conversation absent, and says whether there was one.",
    needs=("delete",),
)
async def deleted(subject: Subject) -> None:
    """To delete is a legal duty. It must be complete, and say truly whether there was something."""
    store = await subject.open()
    id, other = subject.new_id(), subject.new_id()
    require_same(await store.delete(id), False, "delete of an id that was never saved")
    await store.save(id, transcript("one", 3))
    await store.save(other, transcript("other", 3))
    require_same(await store.delete(id), True, "delete")
    require_same(await store.get(id), None, "get after delete")
    require_same(await store.get(other), transcript("other", 3), "get of another id")
    require_same(await store.delete(id), False, "a second delete")


@check(
    "management",
    "ids() does not give what was deleted, and gives it again when it is saved again.",
    needs=("ids", "delete"),
)
async def not_listed_once_deleted(subject: Subject) -> None:
    """Who exports what is listed exports what was to be forgotten, or meets ids
    that are not there.
    """
    store = await subject.open()
    id, other = subject.new_id(), subject.new_id()
    for each in (id, other):
        await store.save(each, transcript(each, 2))
    await store.delete(id)
    if await _listed(store, id):
        raise Violation("ids() gives a deleted id")
    if not await _listed(store, other):
        raise Violation("ids() has lost another id")
    await store.save(id, [])
    if not await _listed(store, id):
        raise Violation("ids() does not give an id that was saved again after its delete")


@check(
    "management",
    "A deleted conversation can begin again, with nothing of the old one.",
    needs=("delete",),
)
async def begun_again(subject: Subject) -> None:
    """The id of an agent comes back in the next run. What was deleted must not come
    back with it.
    """
    store = await subject.open()
    id = subject.new_id()
    await store.save(id, transcript("before", 9))
    await store.delete(id)
    await store.save(id, transcript("after", 2))
    require_same(await store.get(id), transcript("after", 2))


@check(
    "management",
    "After close() a store refuses clearly; to close twice does nothing.",
    needs=("close",),
)
async def closed(subject: Subject) -> None:
    """A write after close goes nowhere, or into a connection that somebody else has. It must be an
    error.
    """
    store = await subject.open()
    id = subject.new_id()
    await store.save(id, transcript("one", 2))
    await store.close()
    await store.close()
    for name, arguments in (("get", (id,)), ("save", (id, []))):
        try:
            await getattr(store, name)(*arguments)
        except Violation:  # it raised, as it should
            continue
        raise Violation(f"{name} after close() worked")


@check(
    "management",
    "close() while saves are under way ends them; none of them hangs.",
    needs=("close",),
)
async def closed_meanwhile(subject: Subject) -> None:
    """A host that shuts down closes its store while turns still end. Each of them
    needs an answer.
    """
    store = await subject.open()
    ids = [subject.new_id() for _ in range(8)]
    for steps in range(4):
        saving = [asyncio.create_task(store.raw.save(id, transcript(id, 20))) for id in ids]
        for _ in range(steps):
            await asyncio.sleep(0)
        await store.close()
        _, hanging = await asyncio.wait(saving, timeout=5)
        for task in hanging:
            task.cancel()
        await asyncio.gather(*saving, return_exceptions=True)
        if hanging:
            raise Violation(f"{len(hanging)} of {len(ids)} saves had not ended 5 s after close()")
        store = await subject.reopened()
