"""The same storage, opened again, twice, and by other processes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from toolnexus_stores_contract.check import Violation
from toolnexus_stores_contract.driver_programs import count_up, put, read
from toolnexus_stores_contract.driver_subject import check, edit, texts_of
from toolnexus_stores_contract.factory import NotAStore
from toolnexus_stores_contract.values import require_same

if TYPE_CHECKING:
    from toolnexus_stores_contract.driver_subject import DriverSubject


@check("A driver that is opened anew finds what was written before, by the same version.")
async def reopened(subject: DriverSubject) -> None:
    """The process ends between two turns."""
    driver = await subject.open()
    key, gone = subject.new_key(), subject.new_key()
    await driver.put(gone, texts_of("gone", 1))
    await driver.delete(gone)
    version = await driver.put(key, texts_of("one", 5), meta=b'{"count":5}')
    driver = await subject.reopened()
    head = await driver.head(key)
    require_same(
        None if head is None else (head.version, head.meta), (version, b'{"count":5}'), "head"
    )
    await driver.require(key, texts_of("one", 5))
    await driver.require(gone, None, "read of what was deleted")
    await driver.write(key, edit(version, texts_of("one", 5)[:2], keep=2))
    await driver.require(key, texts_of("one", 5)[:2], "read after the next edit")


@check("Two drivers that are open at once see each other's writes, and conflict with them.")
async def opened_twice(subject: DriverSubject) -> None:
    """Two workers serve one user in turn. What one of them remembers is not what is stored."""
    one, other = await subject.open(), await subject.open()
    key = subject.new_key()
    version = await one.put(key, texts_of("one", 3))
    await other.require(key, texts_of("one", 3), "read of the other")
    await other.put(key, texts_of("other", 2))
    await one.require_conflict(key, edit(version, texts_of("late", 4), keep=3))
    await one.require(key, texts_of("other", 2), "read of the one")
    await other.delete(key)
    await one.require(key, None, "read of what the other deleted")


@check("Drivers that are opened at once on fresh storage all open.")
async def opened_at_once(subject: DriverSubject) -> None:
    """Workers start together, and each of them makes what does not exist yet."""
    try:
        drivers = await asyncio.gather(*(subject.open() for _ in range(6)))
    except NotAStore as error:
        raise Violation(str(error)) from error
    keys = [subject.new_key() for _ in drivers]
    puts = (each.put(key, texts_of(key, 1)) for each, key in zip(drivers, keys, strict=True))
    await asyncio.gather(*puts)
    for key in keys:
        await drivers[0].require(key, texts_of(key, 1))


@check(
    "Another process reads what was written, and its writes are read here.",
    timeout=60,
    needs=("name",),
)
async def another_process(subject: DriverSubject) -> None:
    """Only another process proves that nothing depended on the memory of this one."""
    driver = await subject.open()
    key = subject.new_key()
    await driver.put(key, texts_of("here", 3))
    found = await subject.elsewhere(read, key)
    require_same(found, [text.decode() for text in texts_of("here", 3)], "read in another process")
    await subject.elsewhere(put, key, [text.decode() for text in texts_of("there", 2)])
    await driver.require(key, texts_of("there", 2))


@check("Processes that count up a number lose none of their steps.", timeout=60, needs=("name",))
async def processes_at_once(subject: DriverSubject) -> None:
    """Workers of one server share their storage. What excludes writers must exclude those of other
    processes.
    """
    driver = await subject.open()
    key = subject.new_key()
    await driver.put(key, [b"0"])
    async with (
        subject.process(count_up, key, 20) as one,
        subject.process(count_up, key, 20) as other,
    ):
        await asyncio.gather(one.ready(), other.ready())
        one.go()
        other.go()
        await asyncio.gather(one.result(), other.result(), count_up(driver, key, 20))
    await driver.require(key, [b"60"], "read after 3 processes counted to 20")
