"""What another process does with a store, on behalf of a check, and what is done here beside it."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from .check import Violation
from .history import Operation, contradiction
from .values import stamp_of, transcript

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from .subject import Opened
    from .values import Message

__all__ = ["converse", "get", "require_one_order", "save"]

_TOTALS = (1, 12, 3, 40)
_MOST_TURNS = 400


async def get(store: Opened, id: str) -> list[Message] | None:
    """One get."""
    return await store.get(id)


async def save(store: Opened, id: str, messages: list[Message]) -> None:
    """One save."""
    await store.save(id, messages)


async def converse(
    store: Opened, client: str, ids: Sequence[str], seconds: float
) -> list[tuple[str, Any]]:
    """Save and get the *ids* in turn for some time; each id with what was done, and when.

    A get that gives something else than one whole save is a violation at once.
    """
    done: list[tuple[str, Any]] = []
    deadline = time.monotonic() + seconds
    for turn in range(_MOST_TURNS):
        if time.monotonic() > deadline:
            break
        id = ids[turn % len(ids)]
        stamp = f"{client}/{turn}"
        began = time.monotonic_ns()
        await store.save(id, transcript(stamp, _TOTALS[turn % len(_TOTALS)]))
        done.append((id, (client, "save", stamp, began, time.monotonic_ns())))
        await asyncio.sleep(0)
        for each in ids:
            began = time.monotonic_ns()
            found = stamp_of(await store.get(each))
            done.append((each, (client, "get", found, began, time.monotonic_ns())))
    return done


def require_one_order(done: Iterable[tuple[str, Any]]) -> None:
    """Raise `Violation` unless, for each id, one order of saves explains what everybody saw."""
    __tracebackhide__ = True
    by_id: dict[str, list[Operation]] = {}
    for id, operation in done:
        by_id.setdefault(id, []).append(Operation(*operation))
    for operations in by_id.values():
        found = contradiction(operations)
        if found is not None:
            raise Violation(found)
