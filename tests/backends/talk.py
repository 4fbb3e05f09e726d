"""A conversation that goes on while something happens to the server."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from toolnexus_stores import Store

__all__ = ["converse_while", "turns"]


def turns(count: int) -> list[dict[str, Any]]:
    """A transcript of *count* messages that say which they are."""
    return [{"role": ("user", "assistant")[n % 2], "content": f"message {n}"} for n in range(count)]


async def converse_while(store: Store, happens: Callable[[], object]) -> int:
    """Save one message more at a time while *happens* runs, and ten times after.

    Every save is acknowledged, and each one is read back. The number of saves.
    """
    task = asyncio.create_task(asyncio.to_thread(happens))
    count = after = 0
    while after < 10:
        after += task.done()
        count += 1
        await store.save("talk", turns(count))
        assert await store.get("talk") == turns(count)
    await task
    return count
