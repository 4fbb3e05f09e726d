"""What a compacting save costs when the transcript is kept, against a plain rewrite of the same.

    python -m tests.benchmarks.compacting [--rounds N] [--dir PLACE]

The transcript has about 1 MB. A plain rewrite replaces every message of it, in a store without
snapshots. A compacting save replaces it by a summary and a tail, in a store that keeps snapshots:
it writes the transcript under its digest, a journal entry, and the compacted transcript. Both sides
take turns, on files and on SQLite, with power-loss durability.

The exit status is 0 whether the goal is met or not; it is 1 if the measurement is wrong.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING

from rich.console import Console
from toolnexus_stores import open_store

from tests.benchmarks.sqlite_loop import (
    Finding,
    WrongMeasurement,
    at_least,
    goals_table,
    joined,
    spread,
    turns_of,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.benchmarks.sqlite_loop import Message

TIMES_A_REWRITE = 3.0
TURNS = 250  # about 1 MB


async def cost(url: str, rounds: int) -> Finding:
    """How many times a plain rewrite a compacting save takes."""
    ratios = []
    async with open_store(url) as plain, open_store(f"{url}?snapshots=5") as keeping:
        for number in range(rounds):
            before, after = (joined(turns_of(TURNS, seed=2 * number + n)) for n in (0, 1))
            compacted = [before[0], {"role": "system", "content": "a summary"}, *before[-8:]]
            rewritten, compacting = f"rewritten-{number}", f"compacting-{number}"
            await plain.save(rewritten, before)
            await keeping.save(compacting, before)
            seconds = [0.0, 0.0]
            for side in ((0, 1), (1, 0))[number % 2]:
                start = perf_counter()
                if side:
                    await keeping.save(compacting, compacted)
                else:
                    await plain.save(rewritten, after)
                seconds[side] = perf_counter() - start
            ratios.append(seconds[1] / seconds[0])
            [kept] = await keeping.snapshots(compacting)
            found: list[Message] = await keeping.restore(compacting, kept.digest)
            if found != before or await plain.get(rewritten) != after:
                raise WrongMeasurement("what is stored is not what was saved")
    return Finding(
        f"{url.partition(':')[0]}: compacting save, against a plain rewrite",
        spread(ratios),
        f"at most {TIMES_A_REWRITE}x",
        median(ratios) <= TIMES_A_REWRITE,
    )


async def measured(place: Path, rounds: int) -> list[Finding]:
    """On both backends of this machine."""
    return [
        await cost(f"file://{place}/transcripts", rounds),
        await cost(f"sqlite:///{place}/transcripts.db", rounds),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and report; the exit status."""
    parser = argparse.ArgumentParser(description="What keeping a transcript adds to a compaction.")
    parser.add_argument("--rounds", type=at_least(1), default=9, help="of each comparison (9)")
    parser.add_argument(
        "--dir",
        type=Path,
        default=Path(),
        help="where to write, on a real disk: /tmp may be memory (here)",
    )
    given = parser.parse_args(arguments)
    console = Console(width=None if sys.stdout.isatty() else 160, highlight=False)
    with tempfile.TemporaryDirectory(prefix=".bench-", dir=given.dir.absolute()) as place:
        try:
            findings = asyncio.run(measured(Path(place), given.rounds))
        except WrongMeasurement as error:
            console.print(f"the measurement is wrong: {error}")
            return 1
    console.print(goals_table(findings))
    return 0


if __name__ == "__main__":
    sys.exit(main())
