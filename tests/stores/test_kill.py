"""SIGKILL in the middle of a save: the old transcript or the new one, and no acknowledged one lost.

A child saves one self-identifying transcript after the other and reports each acknowledgement
through a pipe. The parent kills it at a random moment of a save, then a fresh store reads what is
there: whole, and not older than the last acknowledgement.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any

import pytest
from toolnexus_stores import open_store

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from pathlib import Path

KILLS = 200
KILLS_WITH_A_SERVER = 20  # the client dies, not what makes a save atomic
SIZES = {"50 B": (1, 20), "5 MB": (100, 52_000)}  # messages, characters in each


def transcript(stamp: int, count: int, characters: int) -> list[dict[str, Any]]:
    """*count* messages that each say which save they belong to, and how many there are."""
    return [
        {"stamp": stamp, "index": index, "total": count, "content": "x" * characters}
        for index in range(count)
    ]


def save_for_ever(url: str, start: int, size: tuple[int, int], reports: Connection) -> None:
    """In the child: save stamp after stamp; report ``-stamp`` before, ``stamp`` after each."""

    async def run() -> None:
        store = open_store(url)
        stamp = start
        while True:
            messages = transcript(stamp, *size)
            reports.send(-stamp)
            await store.save("a", messages)
            reports.send(stamp)
            stamp += 1

    asyncio.run(run())


def killed_at_random(url: str, start: int, size: tuple[int, int], within: float) -> list[int]:
    """What the child reported until it was killed."""
    context = get_context("forkserver")
    context.set_forkserver_preload(["toolnexus_stores", "aiosqlite", __name__])
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=save_for_ever, args=(url, start, size, theirs))
    child.start()
    theirs.close()
    reports = [ours.recv()]
    time.sleep(random.uniform(0, within))  # the moment of the kill is the test's input
    assert child.pid is not None
    os.kill(child.pid, signal.SIGKILL)
    try:
        while True:
            reports.append(ours.recv())
    except EOFError:
        child.join()
        return reports
    finally:
        ours.close()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("size", SIZES)
async def test_a_killed_save_leaves_the_old_transcript_or_the_new_one(
    durable_url: str, size: str, tmp_path: Path
) -> None:
    shape = SIZES[size]
    embedded = durable_url.startswith(("file", "sqlite"))
    kills = KILLS if embedded else KILLS_WITH_A_SERVER
    stamp = acknowledged = in_the_middle = 0
    within = 0.1
    for _ in range(kills):
        began = time.monotonic()
        reports = await asyncio.to_thread(killed_at_random, durable_url, stamp + 1, shape, within)
        acknowledged = max([acknowledged, *reports])
        begun = max(map(abs, reports))
        async with open_store(durable_url) as store:
            found = await store.get("a")
        stamp = found[0]["stamp"] if found else 0
        assert found in (None, transcript(stamp, *shape))
        assert acknowledged <= stamp <= max(begun, acknowledged)
        in_the_middle += begun > acknowledged
        # Most kills should come while one of the first saves is under way.
        saves = max(1, len(reports) // 2)
        within = 0.9 * within + 0.1 * min(2.0, 2 * (time.monotonic() - began) / saves)
    assert in_the_middle > kills // 10
    print(f"{kills} kills, {in_the_middle} with a save under way, {stamp} saves")
