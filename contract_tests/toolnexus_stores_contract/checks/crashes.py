"""The old transcript or the new one, whatever befalls the process, the disk or the machine.

These checks are made on stores whose storage is files; `toolnexus_stores_contract.faults` says how.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolnexus_stores_contract.check import check
from toolnexus_stores_contract.faults.bench import experiment

if TYPE_CHECKING:
    from toolnexus_stores_contract.subject import Subject

_SECONDS = 55


@check(
    "atomic",
    "A process that is killed in a save leaves the old transcript or the new one, and a store that "
    "works.",
    timeout=_SECONDS,
)
async def killed_at_any_call(subject: Subject) -> None:
    await experiment(subject, "killed")


@check(
    "atomic",
    "A process that is killed when part of a write is done leaves the old transcript or the new "
    "one.",
    timeout=_SECONDS,
)
async def killed_in_any_write(subject: Subject) -> None:
    await experiment(subject, "torn")


@check(
    "atomic",
    "A save in which the disk reports an error keeps the old transcript, or is done, or says that "
    "it failed.",
    timeout=_SECONDS,
)
async def error_at_any_call(subject: Subject) -> None:
    await experiment(subject, "failing")


@check(
    "atomic",
    "A write that the disk takes only a part of, full or not, tears nothing.",
    timeout=_SECONDS,
)
async def short_write(subject: Subject) -> None:
    await experiment(subject, "short")


@check(
    "atomic",
    "A power loss in a save leaves the old transcript or the new one, and a store that works.",
    timeout=_SECONDS,
)
async def power_loss(subject: Subject) -> None:
    await experiment(subject, "power", acknowledged=False)


@check("durable", "A power loss takes back no acknowledged save.", timeout=_SECONDS)
async def power_loss_after_save(subject: Subject) -> None:
    await experiment(subject, "power", acknowledged=True)


@check(
    "atomic",
    "A save that is cancelled while a thread of it is busy does not overwrite a later one.",
    timeout=_SECONDS,
)
async def cancelled_in_any_call(subject: Subject) -> None:
    await experiment(subject, "cancelled")


@check(
    "atomic",
    "While one process stands still in the middle of a save, another may save: one of the two "
    "transcripts is there then, whole.",
    timeout=_SECONDS,
)
async def overtaken_in_any_call(subject: Subject) -> None:
    await experiment(subject, "overtaken")
