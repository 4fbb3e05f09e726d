"""What was saved is there for whoever opens the storage next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolnexus_stores_contract.check import check
from toolnexus_stores_contract.values import Message, require_same, transcript

if TYPE_CHECKING:
    from toolnexus_stores_contract.subject import Subject

_ODD: list[Message] = [
    {"role": "user", "content": "NUL \x00, half \ud83c, \u2028, Zürich"},
    {"zeta": 1, "a": [1, 1.0, True, None, -0.0, 10**22 + 1], "": {"b": {}, "a": []}},
]


@check("durable", "A store that is opened anew reads what was saved before.")
async def reopened(subject: Subject) -> None:
    store = await subject.open()
    id, empty, absent = subject.new_id(), subject.new_id(), subject.new_id()
    await store.save(id, transcript("one", 5))
    await store.save(id, transcript("two", 3))
    await store.save(empty, [])
    store = await subject.reopened()
    require_same(await store.get(id), transcript("two", 3))
    require_same(await store.get(empty), [], "get of one that was saved empty")
    require_same(await store.get(absent), None, "get of one that was never saved")


@check("durable", "What is odd about a value survives a reopening too.")
async def reopened_exactly(subject: Subject) -> None:
    store = await subject.open()
    id = subject.new_id()
    await store.save(id, _ODD)
    store = await subject.reopened()
    require_same(await store.get(id), _ODD)


@check("durable", "A save goes on from what an earlier opening saved.")
async def reopened_and_extended(subject: Subject) -> None:
    id = subject.new_id()
    messages = transcript("one", 8)
    for total in (2, 4, 8, 6):
        store = await subject.reopened()
        await store.save(id, messages[:total])
    store = await subject.reopened()
    require_same(await store.get(id), messages[:6])


@check("durable", "Two stores that are open at once see each other's saves at once.")
async def opened_twice(subject: Subject) -> None:
    one, other = await subject.open(), await subject.open()
    id = subject.new_id()
    for number in range(4):
        await one.save(id, transcript(f"one {number}", 2 + number))
        require_same(await other.get(id), transcript(f"one {number}", 2 + number), "the other")
        await other.save(id, transcript(f"other {number}", 5 - number))
        require_same(await one.get(id), transcript(f"other {number}", 5 - number), "the one")


@check("durable", "Another process reads what was saved, and its saves are read here.")
async def another_process(subject: Subject) -> None:
    store = await subject.open()
    id = subject.new_id()
    await store.save(id, _ODD)
    require_same(await subject.elsewhere("get", id), _ODD, "get in another process")
    await subject.elsewhere("save", id, transcript("elsewhere", 3))
    require_same(await store.get(id), transcript("elsewhere", 3))
    require_same(await subject.elsewhere("get", subject.new_id()), None, "get of a new id")
