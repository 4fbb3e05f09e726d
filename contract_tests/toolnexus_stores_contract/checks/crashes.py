"""The old transcript or the new one, whatever befalls the process, the disk or the machine.

These checks are made on stores whose storage is files; `toolnexus_stores_contract.faults` says how.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolnexus_stores_contract.check import check
from toolnexus_stores_contract.faults.bench import experiment

if TYPE_CHECKING:
    from toolnexus_stores_contract.subject import Subject

_SECONDS = 120


@check(
    "atomic",
    "A process that is killed in a save leaves the old transcript or the new one, and a store that "
    "works.",
    timeout=_SECONDS,
    needs=("name",),
    storage="files",
)
async def killed_at_any_call(subject: Subject) -> None:
    """A deployment, a container's end or the kernel short of memory: all are a SIGKILL that comes
    between two system calls. A lock or a journal that is left behind must not lock anyone out.
    """
    await experiment(subject, "killed")


@check(
    "atomic",
    "A process that is killed when part of a write is done leaves the old transcript or the new "
    "one.",
    timeout=_SECONDS,
    needs=("name",),
    storage="files",
)
async def killed_in_any_write(subject: Subject) -> None:
    """A write is not atomic: the kernel may have taken half of it when the process dies."""
    await experiment(subject, "torn")


@check(
    "atomic",
    "A save in which the disk reports an error keeps the old transcript, or is done, or says that "
    "it failed.",
    timeout=_SECONDS,
    needs=("name",),
    storage="files",
)
async def error_at_any_call(subject: Subject) -> None:
    """A full disk, a broken one, a quota: a save that hides the error loses the turn unseen."""
    await experiment(subject, "failing")


@check(
    "atomic",
    "A write that the disk takes only a part of, full or not, tears nothing.",
    timeout=_SECONDS,
    needs=("name",),
    storage="files",
)
async def short_write(subject: Subject) -> None:
    """When the disk fills up, a write takes what fits and returns that number, without an error:
    who does not look at it publishes half a transcript.
    """
    await experiment(subject, "short")


@check(
    "atomic",
    "A power loss in a save leaves the old transcript or the new one, and a store that works.",
    timeout=_SECONDS,
    needs=("name",),
    storage="files",
)
async def power_loss(subject: Subject) -> None:
    """What was not synced may be on the disk, or not, or in part, and in another order than it was
    written in: a rename may survive, and the content of the file that was renamed not.
    """
    await experiment(subject, "power", acknowledged=False)


@check(
    "durable",
    "A power loss takes back no acknowledged save.",
    timeout=_SECONDS,
    needs=("name",),
    storage="files",
)
async def power_loss_after_save(subject: Subject) -> None:
    """The answer was paid for and shown to the user. A missing fsync, of the file or of its
    directory, makes it as if it had never been.
    """
    await experiment(subject, "power", acknowledged=True)


@check(
    "atomic",
    "A save that is cancelled while a thread of it is busy does not overwrite a later one.",
    timeout=_SECONDS,
    needs=("name",),
    storage="files",
)
async def cancelled_in_any_call(subject: Subject) -> None:
    """Cancelling a task does not stop its worker thread. The runtime gives up on a turn, saves the
    next one, and the thread wakes up and puts the old one over it.
    """
    await experiment(subject, "cancelled")


@check(
    "atomic",
    "While one process stands still in the middle of a save, another may save: one of the two "
    "transcripts is there then, whole.",
    timeout=_SECONDS,
    needs=("name",),
    storage="files",
)
async def overtaken_in_any_call(subject: Subject) -> None:
    """A process may be stopped for seconds anywhere. Two that stage in one file mix theirs."""
    await experiment(subject, "overtaken")
