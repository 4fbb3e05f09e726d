"""What was saved is there for whoever opens the storage next."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from toolnexus_stores_contract.check import check
from toolnexus_stores_contract.programs import converse, get, require_one_order, save
from toolnexus_stores_contract.values import Message, require_one_of, require_same, transcript

if TYPE_CHECKING:
    from toolnexus_stores_contract.subject import Subject

_SECONDS = 1.6
_ODD: list[Message] = [
    {"role": "user", "content": "NUL \x00, half \ud83c, \u2028, Zürich"},
    {"zeta": 1, "a": [1, 1.0, True, None, -0.0, 10**22 + 1], "": {"b": {}, "a": []}},
]


@check("durable", "A store that is opened anew reads what was saved before.")
async def reopened(subject: Subject) -> None:
    """The process ends between two turns. What was saved must be there for the next one."""
    store = await subject.open()
    id, absent = subject.new_id(), subject.new_id()
    await store.save(id, transcript("one", 5))
    await store.save(id, transcript("two", 3))
    store = await subject.reopened()
    require_same(await store.get(id), transcript("two", 3))
    require_same(await store.get(absent), None, "get of one that was never saved")


@check(
    "durable", "A transcript that was saved empty is an empty list in a store that is opened anew."
)
async def reopened_empty(subject: Subject) -> None:
    """A file or a row without content is easily taken for none."""
    store = await subject.open()
    emptied, empty = subject.new_id(), subject.new_id()
    await store.save(emptied, transcript("before", 3))
    for id in (emptied, empty):
        await store.save(id, [])
    store = await subject.reopened()
    for id in (emptied, empty):
        require_same(await store.get(id), [])


@check("durable", "What is odd about a value survives a reopening too.")
async def reopened_exactly(subject: Subject) -> None:
    """What is exact in a cache may not be in the file: caches hide an encoding that loses
    something.
    """
    store = await subject.open()
    id = subject.new_id()
    await store.save(id, _ODD)
    store = await subject.reopened()
    require_same(await store.get(id), _ODD, key_order=True)


@check("durable", "A save goes on from what an earlier opening saved.")
async def reopened_and_extended(subject: Subject) -> None:
    """A store that opens must go on with what it finds, not start anew or add beside it."""
    id = subject.new_id()
    messages = transcript("one", 8)
    for total in (2, 4, 8, 6):
        store = await subject.reopened()
        await store.save(id, messages[:total])
    store = await subject.reopened()
    require_same(await store.get(id), messages[:6])


@check("durable", "Two stores that are open at once see each other's saves at once.")
async def opened_twice(subject: Subject) -> None:
    """Two workers serve one user in turn. A cache that is never checked, or a write that waits,
    shows the old turn.
    """
    one, other = await subject.open(), await subject.open()
    id = subject.new_id()
    for number in range(4):
        await one.save(id, transcript(f"one {number}", 2 + number))
        require_same(await other.get(id), transcript(f"one {number}", 2 + number), "the other")
        await other.save(id, transcript(f"other {number}", 5 - number))
        require_same(await one.get(id), transcript(f"other {number}", 5 - number), "the one")


@check(
    "durable",
    "Another process reads what was saved, and its saves are read here.",
    timeout=60,
    needs=("name",),
)
async def another_process(subject: Subject) -> None:
    """Only another process proves that nothing depended on the memory of this one."""
    store = await subject.open()
    id = subject.new_id()
    await store.save(id, transcript("here", 2))
    require_same(await subject.elsewhere(get, id), transcript("here", 2), "get in another process")
    await subject.elsewhere(save, id, transcript("elsewhere", 3))
    require_same(await store.get(id), transcript("elsewhere", 3))


@check(
    "durable",
    "What was saved is there, even if the process ends without closing the store.",
    timeout=60,
    needs=("name",),
)
async def never_closed(subject: Subject) -> None:
    """Scripts end, and servers are stopped, without a close. An acknowledged save must not need
    one.
    """
    id = subject.new_id()
    await subject.elsewhere(save, id, transcript("one", 4), end="leave")
    store = await subject.open()
    require_same(await store.get(id), transcript("one", 4), "get after that process")


@check(
    "durable",
    "What was saved is there, even if the process is killed right after the save returned.",
    timeout=60,
    needs=("name",),
)
async def killed(subject: Subject) -> None:
    """A container that runs out of memory runs no exit hook. What waits in a buffer is lost."""
    id = subject.new_id()
    for number in range(2):
        await subject.elsewhere(save, id, transcript(f"{number}", 4 - number), end="die")
    store = await subject.open()
    require_same(await store.get(id), transcript("1", 3), "get after that process")


@check(
    "durable", "Saves that were acknowledged before a close are there, those under way are whole."
)
async def closed_meanwhile(subject: Subject) -> None:
    """A queue that is dropped on close takes acknowledged turns with it."""
    for steps in range(6):
        store = await subject.open()
        ids = [subject.new_id() for _ in range(6)]
        saving = [asyncio.create_task(store.save(id, transcript(id, 20))) for id in ids]
        for _ in range(steps):
            await asyncio.sleep(0)
        await subject.close()
        ended = await asyncio.gather(*saving, return_exceptions=True)
        store = await subject.open()
        for id, error in zip(ids, ended, strict=True):
            found = await store.get(id)
            if error is None:
                require_same(found, transcript(id, 20), "get of an acknowledged save")
            else:
                require_one_of(found, None, transcript(id, 20), when="get of a refused save")
        await subject.close()


@check(
    "durable",
    "Processes that use one storage at once see the saves in one order, and each of them whole.",
    timeout=60,
    needs=("name",),
)
async def history(subject: Subject) -> None:
    """Workers of one server share their storage. A cache that is checked too seldom, or a write in
    two steps, shows only when they work at once.
    """
    store = await subject.open()
    ids = [subject.new_id(), subject.new_id()]
    seconds = subject.terms.seconds(_SECONDS)
    async with (
        subject.process(converse, "process 1", ids, seconds) as one,
        subject.process(converse, "process 2", ids, seconds) as other,
    ):
        await asyncio.gather(one.ready(), other.ready())
        one.go()
        other.go()
        done = await asyncio.gather(
            converse(store, "this process", ids, seconds), one.result(), other.result()
        )
    subject.count("operations checked", sum(map(len, done)))
    require_one_order(each for client in done for each in client)
