"""Retries, lost acknowledgements, timeouts, order and cancellation.

The driver here is the memory driver with faults put in front of it or behind it: what a network
does to a real one, at a moment that a test can choose.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from typing import TYPE_CHECKING

import pytest
from toolnexus_stores import Store, StoreOptions, Unavailable
from toolnexus_stores.driver import Edit, Fault, Head, Record, Version
from toolnexus_stores.drivers.memory import MemoryDriver

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

OLD = [{"n": "old"}]
NEW = [{"n": "old"}, {"n": "new"}]


class Lost(Exception):
    """The connection broke."""


class Refused(Exception):
    """The backend said no; the text names the host, as clients' texts do."""


class FaultyDriver:
    """Memory, but each write takes the next fault of `faults`: before, after, refuse or hang."""

    def __init__(self) -> None:
        self.inner = MemoryDriver()
        self.faults: deque[str] = deque()
        self.read_faults: deque[str] = deque()
        self.calls: list[str] = []
        self.hanging = threading.Event()
        self._go_on: asyncio.Future[None] | None = None

    async def open(self) -> None:
        self.calls.append("open")

    async def head(self, key: str) -> Head | None:
        self.calls.append("head")
        return await self.inner.head(key)

    async def read(self, key: str) -> Record | None:
        self.calls.append("read")
        if self.read_faults:
            await self._fail(self.read_faults.popleft())
        return await self.inner.read(key)

    async def write(self, key: str, edit: Edit) -> Version:
        self.calls.append("write")
        fault = self.faults.popleft() if self.faults else ""
        if fault and fault != "after":
            await self._fail(fault)
        version = await self.inner.write(key, edit)
        if fault == "after":
            raise Lost("after")
        return version

    def let_go(self) -> None:
        """The hanging call goes on, on its own loop."""
        assert self._go_on is not None
        self._go_on.get_loop().call_soon_threadsafe(self._go_on.set_result, None)

    async def _fail(self, fault: str) -> None:
        if fault == "hang":
            self._go_on = asyncio.get_running_loop().create_future()
            self.hanging.set()
            await self._go_on
        elif fault == "refuse":
            raise Refused("no access for joe at db.example.com")
        elif fault == "bug":
            raise KeyError("a bug")
        else:
            raise Lost(fault)

    async def delete(self, key: str) -> bool:
        return await self.inner.delete(key)

    def keys(self, prefix: str) -> AsyncIterator[str]:
        return self.inner.keys(prefix)

    async def close(self) -> None:
        self.calls.append("close")

    def explain(self, error: Exception) -> Fault | None:
        if isinstance(error, Lost):
            return Fault("the connection was lost", transient=True, ambiguous=True)
        return Fault("access is denied") if isinstance(error, Refused) else None

    def where(self, key: str) -> str:
        return key


@pytest.fixture
def driver() -> FaultyDriver:
    return FaultyDriver()


@pytest.fixture
def store(driver: FaultyDriver) -> Store:
    return Store(lambda: driver, StoreOptions(timeout=5))


@pytest.mark.parametrize("faults", [["before"], ["after"], ["before", "before", "after"]])
async def test_a_lost_connection_costs_no_turn(
    store: Store, driver: FaultyDriver, faults: list[str]
) -> None:
    await store.save("a", OLD)
    driver.faults.extend(faults)
    await store.save("a", NEW)
    assert await store.get("a") == NEW


async def test_a_lost_acknowledgement_is_recognised_and_not_written_again(
    store: Store, driver: FaultyDriver
) -> None:
    driver.faults.append("after")
    await store.save("a", OLD)
    # open, first read; the write that landed; the same write, which conflicts; the head: our token
    assert driver.calls == ["open", "read", "write", "write", "head"]
    assert await store.get("a") == OLD


async def test_another_writers_conflict_is_not_taken_for_our_own(
    store: Store, driver: FaultyDriver
) -> None:
    await store.save("a", OLD)
    other = Store(lambda: driver.inner)
    await other.save("a", [{"n": "other"}])
    driver.faults.append("before")
    await store.save("a", NEW)
    assert await store.get("a") == NEW  # the last writer wins
    assert await other.get("a") == NEW


async def test_a_refusal_is_not_tried_again_and_shows_no_host(
    store: Store, driver: FaultyDriver
) -> None:
    await store.save("a", OLD)
    driver.faults.append("refuse")
    with pytest.raises(Unavailable, match="save of 'a' failed: access is denied") as caught:
        await store.save("a", NEW)
    assert not caught.value.ambiguous
    assert isinstance(caught.value.__cause__, Refused)
    assert driver.calls.count("write") == 2
    assert await store.get("a") == OLD


async def test_what_is_no_fault_of_the_backend_is_raised_as_it_is(
    store: Store, driver: FaultyDriver
) -> None:
    driver.faults.append("bug")
    with pytest.raises(KeyError):
        await store.save("a", OLD)


@pytest.mark.parametrize(("fault", "ambiguous"), [("before", True), ("hang", True)])
async def test_out_of_time_while_writing_is_ambiguous(
    driver: FaultyDriver, fault: str, ambiguous: bool
) -> None:
    store = Store(lambda: driver, StoreOptions(timeout=0.2))
    driver.faults.extend([fault] * 1_000)
    with pytest.raises(Unavailable, match=r"within 0\.2 s") as caught:
        await store.save("a", OLD)
    assert caught.value.ambiguous is ambiguous
    driver.faults.clear()
    await store.save("a", OLD)
    assert await store.get("a") == OLD


async def test_out_of_time_while_reading_is_not_ambiguous(driver: FaultyDriver) -> None:
    store = Store(lambda: driver, StoreOptions(timeout=0.2))
    driver.read_faults.append("hang")
    with pytest.raises(Unavailable) as caught:
        await store.save("a", OLD)
    assert not caught.value.ambiguous
    assert await store.get("a") is None


async def test_saves_of_one_id_are_written_in_the_order_of_their_calls(
    store: Store, driver: FaultyDriver
) -> None:
    await asyncio.gather(*(store.save("a", [{"n": n}]) for n in range(50)))
    assert await store.get("a") == [{"n": 49}]
    assert driver.calls.count("write") == 50
    assert driver.calls.count("read") == 1  # the mirror knew the rest


async def hanging_save(driver: FaultyDriver, store: Store) -> asyncio.Task[None]:
    """A save whose write has begun and does not end."""
    driver.faults.append("hang")
    saving = asyncio.create_task(store.save("a", NEW))
    assert await asyncio.to_thread(driver.hanging.wait, 10)
    return saving


async def test_a_save_that_is_cancelled_in_line_is_withdrawn(
    store: Store, driver: FaultyDriver
) -> None:
    await store.save("a", OLD)
    first = await hanging_save(driver, store)
    second = asyncio.create_task(store.save("a", [{"n": "withdrawn"}]))
    await asyncio.sleep(0)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    driver.let_go()
    await first
    assert await store.get("a") == NEW


async def test_a_save_that_is_cancelled_while_it_writes_ends_first(
    store: Store, driver: FaultyDriver
) -> None:
    await store.save("a", OLD)
    saving = await hanging_save(driver, store)
    for _ in range(3):  # an impatient caller
        saving.cancel()
        await asyncio.sleep(0)
        assert not saving.done()
    driver.let_go()
    with pytest.raises(asyncio.CancelledError):
        await saving
    assert await store.get("a") == NEW


async def test_cancelling_ends_within_the_timeout(driver: FaultyDriver) -> None:
    store = Store(lambda: driver, StoreOptions(timeout=0.3))
    saving = await hanging_save(driver, store)
    saving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await saving
    assert await store.get("a") is None


async def test_close_waits_for_what_is_under_way(store: Store, driver: FaultyDriver) -> None:
    saving = await hanging_save(driver, store)
    closing = asyncio.create_task(store.close())
    await asyncio.sleep(0)
    assert not closing.done()
    driver.let_go()
    await saving
    await closing
    assert driver.calls[-2:] == ["write", "close"]


async def test_an_unchanged_get_is_one_small_round_trip(store: Store, driver: FaultyDriver) -> None:
    await store.save("a", OLD)
    driver.calls.clear()
    assert await store.get("a") == OLD
    assert driver.calls == ["head"]


async def test_a_turn_costs_a_head_and_a_write(store: Store, driver: FaultyDriver) -> None:
    await store.save("a", OLD)
    driver.calls.clear()
    await store.get("a")
    await store.save("a", NEW)
    assert driver.calls == ["head", "write"]
