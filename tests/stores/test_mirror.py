"""The mirror: inside its budget, and never believed without the backend's word."""

from __future__ import annotations

import gc
import threading
import tracemalloc
from typing import TYPE_CHECKING, Any

import pytest
from toolnexus_stores import open_store
from toolnexus_stores.codec import freeze
from toolnexus_stores.meta import Meta, chain
from toolnexus_stores.mirror import Known, Mirror

if TYPE_CHECKING:
    from collections.abc import Callable

    from toolnexus_stores import Store

MIB = 2**20


def known(id: str, messages: list[dict[str, Any]]) -> Known:
    frozen = freeze(messages)
    meta = Meta(1, id, len(frozen), "d" * 32, "t" * 16, 1.5, 2.5)
    return Known(f"version of {id}", meta, frozen, chain(frozen))


def test_ten_thousand_conversations_stay_inside_the_budget() -> None:
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    mirror = Mirror(8 * MIB)
    for n in range(10_000):
        messages = [{"role": "user", "content": f"message {i} of {n}"} for i in range(n % 40)]
        mirror.put(f"t/conversation-{n}", known(f"conversation {n}", messages))
    gc.collect()
    used = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert mirror.size <= 8 * MIB
    assert 4 * MIB < used <= 8 * MIB  # what it says it uses is what it uses, or a little more
    assert len(mirror) > 500


def test_the_least_recently_used_goes_first() -> None:
    cost = known("a", [{}]).cost()
    mirror = Mirror(cost * 2)
    mirror.put("a", known("a", [{}]))
    mirror.put("b", known("b", [{}]))
    mirror.get("a")
    mirror.put("c", known("c", [{}]))
    assert mirror.get("b") is None
    assert mirror.get("a") is not None
    assert mirror.get("c") is not None
    mirror.drop("a")
    mirror.drop("a")
    mirror.drop("c")
    assert mirror.size == 0


def test_what_is_larger_than_the_budget_is_not_kept() -> None:
    mirror = Mirror(100)
    mirror.put("a", known("a", [{}]))
    assert (len(mirror), mirror.size) == (0, 0)


@pytest.mark.parametrize("cache", ["64MiB", "0", "3KiB"])
async def test_another_stores_save_is_seen(
    durable_url: str, opened: Callable[..., Store], cache: str
) -> None:
    one, other = opened(durable_url, cache=cache), opened(durable_url, cache=cache)
    for n in range(10):
        messages = [{"n": i} for i in range(n)]
        await one.save("a", messages)
        assert await other.get("a") == messages
        await other.save("a", [*messages, {"by": "other"}])
        assert await one.get("a") == [*messages, {"by": "other"}]
    await other.delete("a")
    assert await one.get("a") is None
    await one.save("a", [{"n": "again"}])
    assert await other.get("a") == [{"n": "again"}]


async def test_a_save_of_the_same_is_still_a_save(
    durable_url: str, opened: Callable[..., Store]
) -> None:
    one, other = opened(durable_url), opened(durable_url)
    await one.save("a", [{"by": "one"}])
    await other.save("a", [{"by": "other"}])
    await one.save("a", [{"by": "one"}])  # the same as what *this* store wrote last
    assert await other.get("a") == [{"by": "one"}]


async def test_a_dropped_store_gives_its_connections_back(tmp_path: Any) -> None:
    before = threading.active_count()
    store = open_store(f"sqlite:///{tmp_path}/x.db")
    await store.save("a", [])
    during = threading.active_count()
    del store
    gc.collect()
    for _ in range(200):  # the I/O loop closes it in its own time
        if threading.active_count() <= during - 2:
            break
        async with open_store("memory://") as other:
            await other.get("x")
    assert before <= threading.active_count() <= during - 2
