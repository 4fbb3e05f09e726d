"""Every key is listed, once."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from toolnexus_stores_contract.check import Violation
from toolnexus_stores_contract.driver_subject import check, texts_of
from toolnexus_stores_contract.values import shown

if TYPE_CHECKING:
    from collections.abc import Collection

    from toolnexus_stores_contract.driver_subject import DriverSubject, OpenedDriver

_MANY = 1_050  # more than a page of any backend
_AT_ONCE = 50


async def _require_listed(driver: OpenedDriver, prefix: str, keys: Collection[str]) -> None:
    found = await driver.keys(prefix)
    twice = sorted({key for key in found if found.count(key) > 1}) if len(found) < _MANY else []
    if twice or len(found) != len(set(found)):
        raise Violation(f"keys({shown(prefix)}) gives a key twice, {shown((twice or found)[0])}")
    for wrong, word in ((set(keys) - set(found), "lacks"), (set(found) - set(keys), "gives also")):
        if wrong:
            raise Violation(f"keys({shown(prefix)}) {word} {shown(min(wrong))}")


@check("keys gives every key that begins with the prefix, once, and no other.")
async def listed(subject: DriverSubject) -> None:
    """Scopes are prefixes. A key too many shows one user the conversations of another."""
    driver = await subject.open()
    base = subject.new_key()
    inside = [f"{base}/t/a", f"{base}/t/ab", f"{base}/t/a_c", f"{base}/t/b/c", f"{base}/t/a.d"]
    outside = [f"{base}/j/a", f"{base}/tt/a", f"{base}-t/a", f"x/{base}/t/a", f"{base}/t-a"]
    for key in (*inside, *outside):
        await driver.put(key, texts_of(key, 1))
    await _require_listed(driver, f"{base}/t/", inside)
    await _require_listed(driver, f"{base}/t/a", [key for key in inside if "/t/a" in key])
    await _require_listed(driver, f"{base}/t/a_", [f"{base}/t/a_c"])
    await _require_listed(driver, f"{base}/t/b/c", [f"{base}/t/b/c"])
    await _require_listed(driver, f"{base}/none/", [])


@check("keys gives no key that was deleted, or only read.")
async def not_listed(subject: DriverSubject) -> None:
    """What is listed is exported. What was to be forgotten must not be among it."""
    driver = await subject.open()
    base = subject.new_key()
    for name in ("a", "b"):
        await driver.put(f"{base}/{name}", texts_of(name, 1))
    await driver.delete(f"{base}/a")
    await driver.read(f"{base}/c")
    await driver.head(f"{base}/d")
    await _require_listed(driver, f"{base}/", [f"{base}/b"])


@check("keys gives them all, however many there are.", timeout=60)
async def many_keys(subject: DriverSubject) -> None:
    """Backends list in pages of a hundred or a thousand. What is on the second page exists too."""
    driver = await subject.open()
    base = subject.new_key()
    keys = [f"{base}/{number}" for number in range(_MANY)]
    for start in range(0, _MANY, _AT_ONCE):
        await asyncio.gather(*(driver.put(key, []) for key in keys[start : start + _AT_ONCE]))
    await _require_listed(driver, f"{base}/", keys)


@check("A key that is there all the time is listed, whatever else comes and goes meanwhile.")
async def listed_meanwhile(subject: DriverSubject) -> None:
    """A listing of a store in use must not fail, and not skip what nobody touched."""
    driver = await subject.open()
    base = subject.new_key()
    steady = [f"{base}/steady-{number}" for number in range(20)]
    for key in steady:
        await driver.put(key, [])

    async def come_and_go(name: str) -> None:
        for turn in range(10):
            await driver.put(f"{base}/{name}-{turn}/deeper", [])
            await asyncio.sleep(0)  # a driver in memory would not let the listing have its turn
            await driver.delete(f"{base}/{name}-{turn}/deeper")

    async def read(until: asyncio.Task[None]) -> None:
        while not until.done():
            found = await driver.keys(f"{base}/")
            for key in steady:
                if found.count(key) != 1:
                    raise Violation(f"keys gave {shown(key)} {found.count(key)} times meanwhile")
            await asyncio.sleep(0)

    changing = [asyncio.create_task(come_and_go(name)) for name in ("a", "z")]
    await asyncio.gather(*changing, *(read(each) for each in changing))
