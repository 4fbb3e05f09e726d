"""One store, used by many at once: tasks, threads, event loops."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

from toolnexus_stores_contract.check import check
from toolnexus_stores_contract.programs import converse, require_one_order
from toolnexus_stores_contract.values import require_one_of, require_same, transcript

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from toolnexus_stores_contract.subject import Opened, Subject

_WRITERS = 8
_SAVES = 5
_SECONDS = 1.2


@check("concurrent", "Tasks that save one id at once leave one of their transcripts, whole.")
async def writers_of_one_id(subject: Subject) -> None:
    """Nothing serialises the turns of one conversation: two requests with the same
    id save at once.
    """
    store = await subject.open()
    id = subject.new_id()
    written = [transcript(f"writer {n}", 1 + 7 * n) for n in range(_WRITERS)]
    for turn in range(_SAVES):
        written.reverse()  # now the longest transcript is begun first, now the shortest
        await asyncio.gather(*(store.save(id, each) for each in written))
        require_one_of(await store.get(id), *written, when=f"get after round {turn}")
    last = transcript("last", 3)
    await store.save(id, last)
    require_same(await store.get(id), last, "get after one more save")


@check("concurrent", "A reader sees one whole transcript or another, never a part or a mixture.")
async def readers_of_one_id(subject: Subject) -> None:
    """A store that deletes and then inserts shows a moment in which the conversation is empty."""
    writer, reader = await subject.open(), await subject.open()
    id = subject.new_id()
    small, big = transcript("small", 1), transcript("big", 400, characters=200)
    await writer.save(id, small)
    shared = await reader.get(id) is not None  # a bare in-memory store is two stores
    readers = [writer, reader] if shared else [writer]

    async def read(store: Opened, until: asyncio.Task[None]) -> None:
        while not until.done():
            require_one_of(await store.get(id), small, big)
            await asyncio.sleep(0)

    async def write() -> None:
        for _ in range(10):
            await writer.save(id, big)
            await writer.save(id, small)

    writing = asyncio.create_task(write())
    await asyncio.gather(writing, *(read(each, writing) for each in readers for _ in range(2)))


@check("concurrent", "Conversations that are saved at once do not touch each other.")
async def writers_of_many_ids(subject: Subject) -> None:
    """One store serves all agents. What it keeps between two awaits must belong to one call."""
    store = await subject.open()
    ids = [subject.new_id() for _ in range(40)]

    async def converse(id: str) -> None:
        for total in (2, 4, 6):
            messages = [*(await store.get(id) or []), *transcript(f"{id} {total}", 2)]
            await store.save(id, messages)
            require_same(await store.get(id), messages, f"get of {id}")

    await asyncio.gather(*(converse(id) for id in ids))


@check("concurrent", "What is saved is what was passed, even if the caller changes it meanwhile.")
async def copied_at_entry(subject: Subject) -> None:
    """A host that goes on while the save is under way changes the very objects that are being
    written.
    """
    store = await subject.open()
    id = subject.new_id()
    for _ in range(_SAVES):
        messages = transcript("passed", 50)
        saving = asyncio.create_task(store.save(id, messages))
        await asyncio.sleep(0)  # the save has begun
        messages[-1]["content"] = "changed while it was saved"
        messages.append({"role": "user", "content": "added while it was saved"})
        await saving
        require_same(await store.get(id), transcript("passed", 50))


def _in_a_loop_of_its_own(work: Coroutine[Any, Any, object]) -> object:
    return asyncio.run(work)


@check("concurrent", "Tasks and threads see the saves of a conversation in one order.")
async def history(subject: Subject) -> None:
    """Each client may be given something that was true at some time, and all of it together
    something that never was: a get that goes back behind an earlier one, or behind an acknowledged
    save.
    """
    store = await subject.open()
    ids = [subject.new_id(), subject.new_id()]
    seconds = subject.terms.seconds(_SECONDS)
    in_tasks = [converse(store, f"task {n}", ids, seconds) for n in (1, 2, 3)]
    in_threads = [
        asyncio.to_thread(_in_a_loop_of_its_own, converse(store, f"thread {n}", ids, seconds))
        for n in (1, 2)
    ]
    done: list[Any] = await asyncio.gather(*in_tasks, *in_threads)
    subject.count("operations checked", sum(map(len, done)))
    require_one_order(each for client in done for each in client)


@check("concurrent", "A store outlives the event loop that used it first.")
async def event_loops_in_turn(subject: Subject) -> None:
    """Scripts call asyncio.run several times with one store. Connections of many clients belong to
    the loop that opened them.
    """
    store = await subject.open()
    id = subject.new_id()
    for total in (1, 2, 3):
        messages = transcript(f"loop {total}", total)
        await asyncio.to_thread(_in_a_loop_of_its_own, store.save(id, messages))
        found = await asyncio.to_thread(_in_a_loop_of_its_own, store.get(id))
        require_same(found, messages, "get in another event loop")
    require_same(await store.get(id), messages, "get in the first event loop")


@check("concurrent", "Threads with event loops of their own may use a store at once.")
async def event_loops_at_once(subject: Subject) -> None:
    """A tool that is not async runs an agent in a thread, with a loop of its own, over the same
    store.
    """
    store = await subject.open()
    shared = subject.new_id()
    ids = [subject.new_id() for _ in range(4)]
    together = threading.Barrier(len(ids))

    async def converse(id: str) -> None:
        together.wait(10)  # blocks this loop only: until there are four threads
        for total in range(1, 6):
            messages = transcript(id, total)
            await store.save(id, messages)
            await store.save(shared, messages)
            require_same(await store.get(id), messages, f"get of {id} in its own event loop")
            seen = await store.get(shared)
            require_one_of(seen, *(transcript(each, n) for each in ids for n in range(1, 6)))

    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(len(ids)) as threads:
        conversing = (partial(_in_a_loop_of_its_own, converse(id)) for id in ids)
        await asyncio.gather(*(loop.run_in_executor(threads, each) for each in conversing))
    for id in ids:
        require_same(await store.get(id), transcript(id, 5), f"get of {id}")
