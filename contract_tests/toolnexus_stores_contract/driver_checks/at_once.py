"""One driver, used by many tasks at once: its methods run concurrently on its loop."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from toolnexus_stores.driver import Conflict

from toolnexus_stores_contract.check import Violation
from toolnexus_stores_contract.driver_programs import count_up
from toolnexus_stores_contract.driver_subject import check, content_of, edit, texts_of
from toolnexus_stores_contract.values import require_one_of, require_same

if TYPE_CHECKING:
    from toolnexus_stores_contract.driver_subject import DriverSubject, OpenedDriver

_WRITERS = 8


@check("Of writes that were made from the same version one happens; the others conflict.")
async def one_winner(subject: DriverSubject) -> None:
    """Only so can the store see whose messages a save replaces."""
    driver = await subject.open()
    key = subject.new_key()
    version = None
    for turn in range(5):
        texts = [texts_of(f"{turn} {n}", 1 + n) for n in range(_WRITERS)]
        writing = (driver.write(key, edit(version, each)) for each in texts)
        ended = await asyncio.gather(*writing, return_exceptions=True)
        won = [n for n, each in enumerate(ended) if not isinstance(each, BaseException)]
        for each in ended:
            if isinstance(each, BaseException) and not isinstance(each, Conflict):
                raise each
        if len(won) != 1:
            raise Violation(f"{len(won)} of {_WRITERS} writes of one version happened")
        await driver.require(key, texts[won[0]], "read of the winner's record")
        version = str(ended[won[0]])


@check("Numbers that many tasks count up are counted up as often as they say.")
async def counted(subject: DriverSubject) -> None:
    """Read, change, write if it is still the same: this is how the store saves."""
    driver = await subject.open()
    key = subject.new_key()
    await driver.put(key, [b"0"])
    await asyncio.gather(*(count_up(driver, key, 5) for _ in range(4)))
    await driver.require(key, [b"20"], "read after 4 tasks counted to 5")


@check("A reader sees one whole record or another, with its own head.")
async def readers(subject: DriverSubject) -> None:
    """A read in two steps, head and texts, meets a write between them."""
    driver = await subject.open()
    key = subject.new_key()
    records = {b'{"n":1}': texts_of("small", 1), b'{"n":300}': texts_of("big", 300, characters=100)}
    await driver.put(key, records[b'{"n":1}'], meta=b'{"n":1}')

    async def write() -> None:
        for _ in range(8):
            for meta, texts in reversed(records.items()):
                await driver.put(key, texts, meta=meta)
                await asyncio.sleep(0)  # a driver in memory would not let the readers read

    async def read(until: asyncio.Task[None]) -> None:
        while not until.done():
            record = await driver.read(key)
            if record is None or record.head.meta not in records:
                raise Violation("read gave no record, or a head that nobody wrote")
            require_same(content_of(record), records[record.head.meta], "read, as its head says,")
            await asyncio.sleep(0)

    writing = asyncio.create_task(write())
    await asyncio.gather(writing, read(writing), read(writing))


async def _cancelled(driver: OpenedDriver, key: str, texts: list[bytes], seconds: float) -> None:
    """Begin to write *texts*, and be cancelled after a number of steps and some time."""
    head = await driver.head(key)
    writing = asyncio.create_task(
        driver.raw.write(key, edit(None if head is None else head.version, texts))
    )
    if seconds <= 0:
        for _ in range(int(-seconds)):
            await asyncio.sleep(0)
    else:
        await asyncio.sleep(seconds)
    writing.cancel()
    await asyncio.gather(writing, return_exceptions=True)


@check(
    "A write that is cancelled happens or does not; the driver works on, and nothing comes later."
)
async def cancelled(subject: DriverSubject) -> None:
    """The store gives a save up when its caller does, or its time is over, and goes on."""
    driver = await subject.open()
    key = subject.new_key()
    old, new, later = texts_of("old", 3), texts_of("new", 200, characters=500), texts_of("later", 1)
    began = time.perf_counter()
    await driver.put(key, new)
    seconds = time.perf_counter() - began
    for pause in (0, -1, -2, -3, -5, *(seconds * part / 6 for part in range(1, 8))):
        await _put_at_last(driver, key, old)
        await _cancelled(driver, key, new, pause)
        require_one_of(
            content_of(await driver.read(key)), old, new, when="read after the cancelled write"
        )
        await _put_at_last(driver, key, later)
        await driver.require(key, later, "read right after the next write")
        await asyncio.sleep(seconds)
        await driver.require(key, later, "read some time after the next write")


async def _put_at_last(driver: OpenedDriver, key: str, texts: list[bytes]) -> None:
    """Write *texts*, once more if a cancelled write landed before them, which is a conflict."""
    for _ in range(20):
        try:
            await driver.put(key, texts)
        except Conflict:
            continue
        return
    raise Violation("twenty writes in a row conflicted, with nobody else writing")
