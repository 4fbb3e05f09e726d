"""Missing and empty are two answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolnexus_stores_contract.check import check
from toolnexus_stores_contract.values import require_same, transcript

if TYPE_CHECKING:
    from toolnexus_stores_contract.subject import Subject


@check("core", "get of an id that was never saved gives None.")
async def never_saved(subject: Subject) -> None:
    store = await subject.open()
    id = subject.new_id()
    require_same(await store.get(id), None, "the first get")
    require_same(await store.get(id), None, "the second get")


@check("core", "A transcript that was saved empty is an empty list, not None.")
async def saved_empty(subject: Subject) -> None:
    store = await subject.open()
    id = subject.new_id()
    await store.save(id, [])
    require_same(await store.get(id), [])


@check("core", "save(id, []) empties a transcript; the runtime's rollback does exactly this.")
async def emptied(subject: Subject) -> None:
    store = await subject.open()
    id = subject.new_id()
    await store.save(id, transcript("before", 3))
    await store.save(id, [])
    require_same(await store.get(id), [])
    await store.save(id, transcript("after", 2))
    require_same(await store.get(id), transcript("after", 2), "get after the next save")
