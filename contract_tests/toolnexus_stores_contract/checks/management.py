"""Listing, deleting and closing, for stores that offer them as `toolnexus_stores.Store` does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolnexus_stores_contract.check import Violation, check
from toolnexus_stores_contract.values import require_same, shown, transcript

if TYPE_CHECKING:
    from toolnexus_stores_contract.subject import Opened, Subject


async def _listed(store: Opened, id: str) -> bool:
    """Whether *id* is listed; twice is a violation."""
    times = [each async for each in store.raw.ids()].count(id)
    if times > 1:
        raise Violation(f"ids() gives {shown(id)} {times} times")
    return times == 1


@check("management", "ids() gives the id of every conversation, verbatim, each once.")
async def listed(subject: Subject) -> None:
    store = await subject.open()
    shapes = ["{}", "{}/a", "../{}", "{}\x00", "{}\ud83c", "{} ", "{}\n", "мой-{}"]
    shapes.append("{}" + "x" * 2_700)
    base = subject.new_id()
    for shape in shapes:
        await store.save(shape.replace("{}", base), [])
    for shape in shapes:
        if not await _listed(store, shape.replace("{}", base)):
            raise Violation(f"ids() does not give {shown(shape)}")


@check("management", "ids() does not give what was only read.")
async def not_listed(subject: Subject) -> None:
    store = await subject.open()
    id = subject.new_id()
    await store.get(id)
    if await _listed(store, id):
        raise Violation("ids() gives an id that was never saved")


@check("management", "delete(id) makes a conversation absent, and says whether there was one.")
async def deleted(subject: Subject) -> None:
    store = await subject.open()
    id, other = subject.new_id(), subject.new_id()
    require_same(await store.raw.delete(id), False, "delete of an id that was never saved")
    await store.save(id, transcript("one", 3))
    await store.save(other, transcript("other", 3))
    require_same(await store.raw.delete(id), True, "delete")
    require_same(await store.get(id), None, "get after delete")
    require_same(await store.get(other), transcript("other", 3), "get of another id")
    if await _listed(store, id):
        raise Violation("ids() gives a deleted id")
    require_same(await store.raw.delete(id), False, "a second delete")


@check("management", "A deleted conversation can begin again, with nothing of the old one.")
async def begun_again(subject: Subject) -> None:
    store = await subject.open()
    id = subject.new_id()
    await store.save(id, transcript("before", 9))
    await store.raw.delete(id)
    await store.save(id, transcript("after", 2))
    require_same(await store.get(id), transcript("after", 2))


@check("management", "After close() a store refuses clearly; to close twice does nothing.")
async def closed(subject: Subject) -> None:
    store = await subject.open()
    id = subject.new_id()
    await store.save(id, transcript("one", 2))
    await store.raw.close()
    await store.raw.close()
    for name, arguments in (("get", (id,)), ("save", (id, []))):
        try:
            await getattr(store, name)(*arguments)
        except Violation:  # it raised, as it should
            continue
        raise Violation(f"{name} after close() worked")
