"""Missing and empty are two answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolnexus_stores_contract.check import check
from toolnexus_stores_contract.values import require_same, transcript

if TYPE_CHECKING:
    from toolnexus_stores_contract.subject import Subject


@check("core", "get of an id that was never saved gives None.")
async def never_saved(subject: Subject) -> None:
    """The runtime takes None for a conversation that begins, and anything else for one that goes
    on.
    """
    store = await subject.open()
    id = subject.new_id()
    require_same(await store.get(id), None, "the first get")
    require_same(await store.get(id), None, "the second get")


@check("core", "A transcript that was saved empty is an empty list, not None.")
async def saved_empty(subject: Subject) -> None:
    """A conversation that was emptied is not one that never was: a later rollback
    tells them apart.
    """
    store = await subject.open()
    id = subject.new_id()
    await store.save(id, [])
    require_same(await store.get(id), [])


@check("core", "save(id, []) empties a transcript; the runtime's rollback does exactly this.")
async def emptied(subject: Subject) -> None:
    """A suspended first turn is rolled back by saving an empty list. A store that takes that for
    nothing to do resumes a turn that was taken back.
    """
    store = await subject.open()
    id = subject.new_id()
    await store.save(id, transcript("before", 3))
    await store.save(id, [])
    require_same(await store.get(id) or [], [])  # whether it is None says core.saved_empty
    await store.save(id, transcript("after", 2))
    require_same(await store.get(id), transcript("after", 2), "get after the next save")
