"""How a process ends that used a store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolnexus_stores_contract.check import Violation, check
from toolnexus_stores_contract.programs import save
from toolnexus_stores_contract.values import transcript

if TYPE_CHECKING:
    from toolnexus_stores_contract.subject import Subject


@check("core", "A process that closes nothing ends all the same.", timeout=60, needs=("name",))
async def process_ends(subject: Subject) -> None:
    """A thread that waits for its store to be closed keeps a script from ending, for ever."""
    async with subject.process(
        save, subject.new_id(), transcript("one", 2), end="leave"
    ) as process:
        process.go()
        await process.result()
        if not await process.ended():
            raise Violation("the process still runs 10 s after its last line")
