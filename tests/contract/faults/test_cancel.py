"""A coroutine is cancelled at the suspension that was chosen."""

from __future__ import annotations

import asyncio

import pytest
from toolnexus_stores_contract.faults.cancel import CancelledAt


@pytest.mark.parametrize("number", range(5))
async def test_it_is_cancelled_at_the_chosen_suspension(number: int) -> None:
    steps = []

    async def work() -> str:
        for step in range(3):
            steps.append(step)
            await asyncio.sleep(0)
        return "done"

    async def run() -> str:
        return await saving

    saving = CancelledAt(work(), number)
    task = asyncio.create_task(run())
    if number < 3:
        with pytest.raises(asyncio.CancelledError):
            await task
        assert steps == list(range(number + 1))
    else:
        assert await task == "done"
        assert saving.suspensions == 3


async def test_what_catches_the_cancellation_goes_on() -> None:
    async def work() -> str:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await asyncio.sleep(0)
        return "finished all the same"

    async def run() -> str:
        return await CancelledAt(work(), 0)

    assert await asyncio.create_task(run()) == "finished all the same"


async def test_what_it_raises_comes_through() -> None:
    async def work() -> None:
        await asyncio.sleep(0)
        raise ValueError("its own")

    with pytest.raises(ValueError, match="its own"):
        await CancelledAt(work(), 9)
