"""What another process does with a driver, on behalf of a check."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolnexus_stores.driver import Conflict

from .check import Violation
from .driver_subject import content_of, edit

if TYPE_CHECKING:
    from .driver_subject import OpenedDriver

__all__ = ["count_up", "put", "read"]


async def read(driver: OpenedDriver, key: str) -> list[str] | None:
    """One read."""
    texts = content_of(await driver.read(key))
    return None if texts is None else [text.decode("ascii") for text in texts]


async def put(driver: OpenedDriver, key: str, texts: list[str]) -> None:
    """One write, over whatever is stored."""
    await driver.put(key, [text.encode("ascii") for text in texts])


async def count_up(driver: OpenedDriver, key: str, times: int) -> None:
    """Add one to the number that is stored, *times* times, whoever else does so meanwhile."""
    for _ in range(times):
        while True:
            record = await driver.read(key)
            texts = content_of(record)
            if record is None or not texts:
                raise Violation(f"read gave {'nothing' if record is None else 'no texts'}")
            try:
                await driver.write(key, edit(record.head.version, [b"%d" % (int(texts[0]) + 1)]))
            except Conflict:
                continue
            break
