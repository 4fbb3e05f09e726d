"""A write is a compare-and-set: it happens to the version that it was made from, or not at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolnexus_stores_contract.check import Violation
from toolnexus_stores_contract.driver_subject import check, edit, texts_of

if TYPE_CHECKING:
    from toolnexus_stores_contract.driver_subject import DriverSubject


@check("A write that is to create a record conflicts if there is one.")
async def creates_once(subject: DriverSubject) -> None:
    """Two processes begin the same conversation. The second must learn of the first."""
    driver = await subject.open()
    key = subject.new_key()
    await driver.put(key, texts_of("one", 3))
    await driver.require_conflict(key, edit(None, texts_of("other", 2)))
    await driver.put(key, [])
    await driver.require_conflict(key, edit(None, texts_of("other", 2)))


@check("A write that was made from an older version conflicts, and changes nothing.")
async def stale(subject: DriverSubject) -> None:
    """An edit keeps texts that it has not got. Applied to another version it makes a mixture."""
    driver = await subject.open()
    key = subject.new_key()
    first = await driver.put(key, texts_of("one", 3))
    await driver.put(key, texts_of("two", 3), meta=b'{"second":2}')
    for keep in (0, 3):
        await driver.require_conflict(key, edit(first, texts_of("late", 4), keep=keep))


@check(
    "A write that expects a version conflicts if the record is gone, and does not bring it back."
)
async def gone(subject: DriverSubject) -> None:
    """Somebody deleted the conversation meanwhile. An edit alone cannot make it whole again."""
    driver = await subject.open()
    key = subject.new_key()
    version = await driver.put(key, texts_of("one", 3))
    await driver.delete(key)
    await driver.require_conflict(key, edit(version, texts_of("late", 4), keep=3))
    await driver.put(key, texts_of("again", 1))
    await driver.require_conflict(key, edit(version, texts_of("late", 4), keep=1))


@check("No two states of a key have the same version, not even after a delete.")
async def versions_are_new(subject: DriverSubject) -> None:
    """The store keeps a copy for a version. A version that comes back brings the
    wrong copy back.
    """
    driver = await subject.open()
    key = subject.new_key()
    seen: set[str] = set()
    for turn in range(12):
        if turn % 4 == 3:
            await driver.delete(key)
        version = await driver.put(key, texts_of("the same", 2))
        if version in seen:
            raise Violation(f"write {turn} gave the version of an earlier one")
        seen.add(version)
