"""What a line of tasks last saw, and which run a message belongs to."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest
from toolnexus_stores import seen

HERE = (1, "t/a")


def messages(count: int) -> list[dict[str, Any]]:
    return [{"n": n} for n in range(count)]


async def in_a_task(work: Any) -> Any:
    async def run() -> Any:
        return work()

    return await asyncio.create_task(run())


async def test_nothing_is_known_of_a_caller_that_has_not_read() -> None:
    assert seen.last_seen(HERE) is seen.UNKNOWN
    await in_a_task(lambda: seen.note(HERE, "v1", "a", None))
    assert seen.last_seen(HERE) is seen.UNKNOWN  # a child's notes are the child's


async def test_a_child_sees_what_its_parent_saw() -> None:
    seen.note(HERE, "v1", "a", None)
    assert await in_a_task(lambda: seen.last_seen(HERE)) == "v1"


async def test_a_save_of_a_child_moves_its_parent_along() -> None:
    seen.note(HERE, "v1", "a", None)

    def child() -> None:
        seen.note(HERE, "v1", "a", None)
        seen.moved(HERE, "v1", "v2")

    await in_a_task(child)
    assert seen.last_seen(HERE) == "v2"
    await in_a_task(lambda: seen.moved(HERE, "v0", "v3"))  # who stood elsewhere does not
    assert seen.last_seen(HERE) == "v2"


async def test_a_sibling_stays_where_it_was() -> None:
    seen.note(HERE, "v1", "a", None)
    go_on = asyncio.Event()

    async def waits() -> object:
        seen.note(HERE, "v1", "a", None)
        await go_on.wait()
        return seen.last_seen(HERE)

    waiting = asyncio.create_task(waits())
    await asyncio.sleep(0)

    def sibling() -> None:
        seen.note(HERE, "v1", "a", None)
        seen.moved(HERE, "v1", "v2")

    await in_a_task(sibling)
    go_on.set()
    assert await waiting == "v1"


async def test_a_run_is_known_by_its_messages() -> None:
    mine, others = messages(3), messages(3)
    seen.note(HERE, "v1", "a", mine)
    seen.note((1, "t/b"), "v1", "b", others)
    run = [*mine, {"n": "prompt"}]
    assert seen.run_of(1, run, run, first=True) == ("t/a", "a")
    compacted = [{"n": "summary"}, run[-1]]
    assert seen.run_of(1, [*run, {"n": "more"}], compacted, first=False) == ("t/a", "a")
    assert seen.run_of(1, [*compacted, {"n": "yet more"}], compacted, first=False)[1] == "a"
    equal = messages(3)
    with pytest.raises(LookupError, match="id="):
        seen.run_of(1, equal, equal, first=True)  # equal, but not the same
    with pytest.raises(LookupError):
        seen.run_of(2, run, run, first=True)  # of another store


async def test_a_new_conversation_is_known_if_there_is_one_only() -> None:
    seen.note(HERE, None, "a", None)
    run = messages(1)
    with pytest.raises(LookupError):
        seen.run_of(1, run, run, first=False)  # a later call of a run that is not known
    assert seen.run_of(1, run, run, first=True)[1] == "a"
    other = messages(1)
    with pytest.raises(LookupError):
        seen.run_of(1, other, other, first=True)  # it has its run now
    seen.note((1, "t/b"), None, "b", None)
    seen.note((1, "t/c"), None, "c", None)
    with pytest.raises(LookupError):
        seen.run_of(1, other, other, first=True)


async def test_notes_do_not_grow_without_end() -> None:
    for n in range(1_000):
        seen.note((1, f"t/{n}"), "v", f"{n}", None)
    assert seen.last_seen((1, "t/0")) is seen.UNKNOWN
    assert seen.last_seen((1, "t/999")) == "v"

    async def chain(left: int) -> int:
        seen.note(HERE, f"v{left}", "a", None)
        if left:
            return await asyncio.create_task(chain(left - 1))
        return sum(1 for _ in seen._lines())

    assert await asyncio.create_task(chain(100)) <= 17
    gc.collect()
