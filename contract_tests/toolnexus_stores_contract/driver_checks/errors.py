"""What a driver says of errors and of places."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from toolnexus_stores.driver import Fault

from toolnexus_stores_contract.check import Violation
from toolnexus_stores_contract.driver_subject import check, texts_of
from toolnexus_stores_contract.values import shown

if TYPE_CHECKING:
    from toolnexus_stores_contract.driver_subject import DriverSubject

_SECRET = "secret-host"  # noqa: S105 - what a reason must not show


@check("explain does not take a bug for a fault of the backend.")
async def bugs_are_bugs(subject: DriverSubject) -> None:
    """The store tells its host that the backend is away, and tries again. Bugs would look like
    that.
    """
    driver = await subject.open()
    for error in (TypeError("x"), KeyError("x"), AttributeError("x"), ZeroDivisionError("x")):
        found = driver.explain(error)
        if found is not None:
            raise Violation(f"explain({error!r}) gave {found.reason!r}")


@check("The reason that explain gives is a few words, without a host, a path or a value.")
async def reasons_keep_secrets(subject: DriverSubject) -> None:
    """The store puts the reason into an error that the runtime shows to remote peers."""
    driver = await subject.open()
    for error in (
        OSError(errno.ENOENT, f"nothing at {_SECRET}", f"/{_SECRET}/x"),
        ConnectionRefusedError(errno.ECONNREFUSED, f"{_SECRET}:5432 refused"),
        TimeoutError(f"{_SECRET} does not answer"),
        OSError(f"{_SECRET} is unwell"),
    ):
        found = driver.explain(error)
        if found is None:
            continue
        if not isinstance(found, Fault) or not isinstance(found.reason, str):
            raise Violation(f"explain gave {shown(found)}")
        if _SECRET in found.reason or "\n" in found.reason or not found.reason:
            raise Violation(f"explain gave the reason {shown(found.reason)}")


@check(
    "where says in words where a record lies, also of one that is not there, without a password."
)
async def place_is_told(subject: DriverSubject) -> None:
    """It is what a person who has to repair the record is given."""
    driver = await subject.open()
    key = subject.new_key()
    for _ in range(2):
        place = driver.where(key)
        if not isinstance(place, str) or not place:
            raise Violation(f"where gave {shown(place)}")
        if any(password in place for password in subject.passwords):
            raise Violation("where shows the password of the URL")
        await driver.put(key, texts_of("one", 1))
