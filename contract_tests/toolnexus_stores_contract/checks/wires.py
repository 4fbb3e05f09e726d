"""A connection that breaks, at whatever byte.

These checks are made on stores whose factory's name holds the URL of a server;
`toolnexus_stores_contract.faults.wire` says how.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolnexus_stores_contract.check import check
from toolnexus_stores_contract.faults import cuts

if TYPE_CHECKING:
    from toolnexus_stores_contract.subject import Subject

_SECONDS = 120


@check(
    "atomic",
    "A connection that breaks in a save leaves the old transcript or the new one, and a store that "
    "goes on.",
    timeout=_SECONDS,
    needs=("name",),
    storage="server",
)
async def cut_in_save(subject: Subject) -> None:
    """A proxy restarts, a network blinks. Commands that are sent one by one are executed up to the
    cut, and a pool that keeps a dead connection fails the next turn too.
    """
    await cuts.cut_saves(subject)


@check(
    "atomic",
    "A get whose connection breaks gives the whole transcript or raises.",
    timeout=_SECONDS,
    needs=("name",),
    storage="server",
)
async def cut_in_get(subject: Subject) -> None:
    """An answer that ends early must not pass for a short transcript, nor for none: the next save
    would replace the whole one with it.
    """
    await cuts.cut_gets(subject)


@check(
    "atomic",
    "What an abandoned save sent does not overwrite a later save when it arrives at last.",
    timeout=_SECONDS,
    needs=("name",),
    storage="server",
)
async def delivered_late(subject: Subject) -> None:
    """A save times out, its retry succeeds, and then the bytes of the first arrive: without a
    version that fences them, they win.
    """
    await cuts.deliver_late(subject)
