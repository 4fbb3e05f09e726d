"""A store over SQLite against a raw `sqlite3` loop, measured side by side in one run.

    python tests/benchmarks/sqlite_loop.py [--turns N] [--rounds N] [--quick] [--dir PLACE]

Both sides work in one process, in one directory, each on a database of its own, with the same
durability: WAL, ``synchronous=FULL``, SQLite's own checkpoints. They take turns turn by turn, the
first one alternating, so that a noise of the machine meets both. So trust the ratios, not the
milliseconds: a slower disk makes every save alike, a faster processor every get.

A turn is a get of the transcript and a save of it with four messages more. The raw loop is what a
careful user writes by hand in the same thread: a row a message, an index on the conversation, one
transaction of inserts for the new messages, `json.loads` of every row on get. (Of three layouts
tried it is the fastest: a primary key of conversation and position is slower, with a rowid or
without.) It does less than a store: it cannot replace what it stored, sees no damage, does not
find out about another writer, and nothing calls it from a second event loop or thread.

What is measured, each under its own function:

- *whole loop*: the sum of all gets and saves of one conversation.
- *save at the end*: what a save costs more when everything before it is stored already.
- *bytes a save*: what a save appends to the write-ahead log.
- *conversations at once*: turns a second of many conversations in one store.
- *mirror*: the memory that a store keeps for transcripts it has seen.

The exit status is 0 whether goals are met or not; it is 1 if the measurement is wrong: a side did
not store what it was given, or a number that cannot be.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import gc
import inspect
import json
import os
import platform
import random
import sqlite3
import sys
import tempfile
import tracemalloc
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import TYPE_CHECKING, Any, TypeAlias

import toolnexus_stores
from rich.console import Console
from rich.table import Table
from toolnexus_stores import open_store

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from toolnexus_stores import Store

Message: TypeAlias = dict[str, Any]
Turn: TypeAlias = list[Message]

LOOP_FASTER = 1.3
SAVE_ALLOWANCE = 0.75e-3  # seconds for every 1,000 messages stored before
BYTES_RATIO = 1.2
CONCURRENT_FASTER = 1.2

EARLY = 10  # the turn that the last one is compared with
AROUND = 5  # turns on each side of it that its median takes in
TAILS = 8  # saves whose bytes are averaged: one alone can be lucky with a half-full page
ID = "root/planner"
MIB = 2**20


@dataclass(frozen=True)
class Options:
    """How much to measure."""

    turns: int = 1_000
    rounds: int = 3
    at_once: int = 32
    turns_before: int = 50
    """Turns that each of the concurrent conversations has already: about 200 KB."""
    turns_each: int = 12
    conversations: int = 10_000
    """Conversations that go through the mirror, two turns (about 8 KB) each."""
    budget: int = 16 * MIB
    """The mirror's, about a fifth of what goes through it."""


@dataclass(frozen=True)
class Finding:
    """One line of the report; without a goal it is there for the record."""

    what: str
    measured: str
    goal: str = ""
    met: bool = True


@dataclass(frozen=True)
class Cost:
    """Seconds of one turn."""

    get: float
    save: float
    save_busy: float
    """Of all this process's threads, on a processor, during the save."""


@dataclass(frozen=True)
class Round:
    """The same conversation on both sides, turn by turn."""

    raw: list[Cost]
    ours: list[Cost]
    raw_first_get: float
    """Of the whole transcript, by a connection just opened."""
    ours_first_get: float
    """Of the whole transcript, by a store just opened: nothing is in its mirror."""


class WrongMeasurement(Exception):
    """What was measured is not what this script says it measures."""


# -- the conversation


def turns_of(count: int, seed: int) -> list[Turn]:
    """*count* turns as an agent produces them: question, tool call, tool result, answer.

    About 4 KB a turn, 1 MB in 250 turns. The text is cut from Python's own sources, so that JSON
    has as many quotes and newlines to escape as in a real tool result; a few characters in it are
    not ASCII.
    """
    source = "".join(inspect.getsource(module) for module in (argparse, inspect, tempfile))
    prose = " ".join(source.split())
    chance = random.Random(seed)
    return [_turn(chance, source, prose, number) for number in range(count)]


def _turn(chance: random.Random, source: str, prose: str, number: int) -> Turn:
    def cut(text: str, length: float) -> str:
        start = chance.randrange(len(text) - 20_000)
        return text[start : start + min(20_000, max(20, int(length)))]

    call = "call_" + base64.b32encode(chance.randbytes(15)).decode().lower()
    arguments = {"path": f"/srv/app/module_{number}.py", "query": cut(prose, 80), "limit": 200}
    function = {"name": "read_file", "arguments": json.dumps(arguments)}
    flourish = chance.choice(["", "", "", " — naïve", " 日本語", " ✅"])
    return [
        {"role": "user", "content": cut(prose, chance.gauss(180, 50)) + flourish},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": call, "type": "function", "function": function}],
        },
        {
            "role": "tool",
            "tool_call_id": call,
            "content": cut(source, chance.lognormvariate(7.5, 0.8)),  # median 1.8 KB, mean 2.5 KB
        },
        {"role": "assistant", "content": cut(prose, chance.gauss(400, 120)) + flourish},
    ]


def joined(turns: Iterable[Turn]) -> list[Message]:
    """The transcript that *turns* make."""
    return [message for turn in turns for message in turn]


# -- the two sides


class RawLoop:
    """Conversations in a table of rows, by hand."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._connection.executescript(
            """
            PRAGMA journal_mode = WAL;
            PRAGMA synchronous = FULL;
            CREATE TABLE IF NOT EXISTS messages
                (id INTEGER PRIMARY KEY, conversation TEXT NOT NULL, text TEXT NOT NULL);
            CREATE INDEX IF NOT EXISTS messages_of ON messages (conversation);
            """
        )

    def get(self, id: str) -> list[Message]:
        """Every message of *id*, decoded."""
        rows = self._connection.execute(
            "SELECT text FROM messages WHERE conversation = ? ORDER BY id", (id,)
        )
        return [json.loads(text) for (text,) in rows]

    def add(self, id: str, tail: Sequence[Message]) -> None:
        """Insert the new messages of *id*, and commit."""
        rows = [(id, json.dumps(message)) for message in tail]
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.executemany(
            "INSERT INTO messages (conversation, text) VALUES (?, ?)", rows
        )
        self._connection.execute("COMMIT")

    def close(self) -> None:
        """Close the connection; SQLite folds the log into the database."""
        self._connection.close()


def raw_turn(raw: RawLoop, id: str, turn: Turn) -> Cost:
    """One turn by hand."""
    start = perf_counter()
    messages = raw.get(id)
    read, busy = perf_counter(), process_time()
    messages += turn
    raw.add(id, messages[-len(turn) :])
    return Cost(read - start, perf_counter() - read, process_time() - busy)


async def store_turn(store: Store, id: str, turn: Turn) -> Cost:
    """One turn as the runtime takes it."""
    start = perf_counter()
    messages = await store.get(id) or []
    read, busy = perf_counter(), process_time()
    messages += turn
    await store.save(id, messages)
    return Cost(read - start, perf_counter() - read, process_time() - busy)


def opened(path: Path, **options: Any) -> Store:
    """The store over the database at *path*, everything at its default."""
    return open_store(f"sqlite:///{path}", **options)


# -- the whole loop, and a save at its end


async def one_round(place: Path, options: Options, number: int) -> Round:
    """One conversation from its first turn to its last, on fresh databases."""
    turns = turns_of(options.turns, seed=number)
    paths = place / f"raw-{number}.db", place / f"ours-{number}.db"
    costs: tuple[list[Cost], list[Cost]] = ([], [])
    async with opened(paths[1]) as store:
        with closing(RawLoop(paths[0])) as raw:
            for index, turn in enumerate(turns):
                for side in ((0, 1), (1, 0))[index % 2]:
                    taken = await store_turn(store, ID, turn) if side else raw_turn(raw, ID, turn)
                    costs[side].append(taken)
    first_gets = await _first_gets(paths, joined(turns))
    return Round(*costs, *first_gets)


async def _first_gets(paths: tuple[Path, Path], expected: list[Message]) -> tuple[float, float]:
    """Read both databases anew: seconds of each, and a check that both hold what they should."""
    with closing(RawLoop(paths[0])) as raw:
        start = perf_counter()
        by_raw: list[Message] | None = raw.get(ID)
        raw_seconds = perf_counter() - start
    async with opened(paths[1]) as store:
        await store.open()
        start = perf_counter()
        by_ours = await store.get(ID)
        our_seconds = perf_counter() - start
    if by_raw != expected or by_ours != expected:
        raise WrongMeasurement("a transcript read back is not the one that was saved")
    return raw_seconds, our_seconds


def whole_loop(rounds: Sequence[Round]) -> Finding:
    """How many times faster all gets and saves of a conversation are."""
    ratios = [_seconds(each.raw) / _seconds(each.ours) for each in rounds]
    seconds = "; ".join(f"{_seconds(r.raw):.2f} s : {_seconds(r.ours):.2f} s" for r in rounds)
    return Finding(
        "whole loop, raw : ours",
        f"{_spread(ratios)} ({seconds})",
        f"at least {LOOP_FASTER}x",
        median(ratios) >= LOOP_FASTER,
    )


def save_at_the_end(rounds: Sequence[Round], options: Options) -> Finding:
    """What a save costs more at the last turn than at the tenth: medians of turns around them.

    A median leaves out the saves that happened to checkpoint; the whole loop has them in. The goal
    is in milliseconds, not a ratio: on a busy machine (see the load) it says little. The processor
    time beside it leaves out the disk, and the waiting for a processor that others use.
    """
    saves = [[cost.save for cost in each.ours] for each in rounds]
    early, late = (_around(saves, turn) for turn in (EARLY, options.turns))
    busy = [[cost.save_busy for cost in each.ours] for each in rounds]
    early_busy, late_busy = (_around(busy, turn) for turn in (EARLY, options.turns))
    allowance = SAVE_ALLOWANCE * len(rounds[0].ours) * 4 / 1_000
    return Finding(
        f"save at turn {options.turns}, against turn {EARLY}",
        f"{late * 1e3:.2f} ms against {early * 1e3:.2f} ms: {(late - early) * 1e3:+.2f} ms"
        f" (on a processor {(late_busy - early_busy) * 1e3:+.2f} ms)",
        f"at most {allowance * 1e3:+.2f} ms",
        late - early <= allowance,
    )


def for_the_record(rounds: Sequence[Round], options: Options) -> Iterator[Finding]:
    """Medians of the single calls, raw : ours."""
    for turn in (EARLY, options.turns // 10, options.turns):
        for name in ("get", "save"):
            raw, ours = (
                _around([[getattr(cost, name) for cost in costs] for costs in side], turn)
                for side in ([each.raw for each in rounds], [each.ours for each in rounds])
            )
            yield Finding(f"{name} at turn {turn}", f"{raw * 1e3:.2f} ms : {ours * 1e3:.2f} ms")
    raw = median(each.raw_first_get for each in rounds)
    ours = median(each.ours_first_get for each in rounds)
    yield Finding(
        f"first get of {options.turns} turns, nothing in the mirror",
        f"{raw * 1e3:.1f} ms : {ours * 1e3:.1f} ms",
    )


def _seconds(costs: Iterable[Cost]) -> float:
    return sum(cost.get + cost.save for cost in costs)


def _around(rounds: Iterable[Sequence[float]], turn: int) -> float:
    """The median over the turns around *turn*, in all rounds."""
    return median(seconds for each in rounds for seconds in each[turn - AROUND - 1 : turn + AROUND])


def _spread(ratios: Sequence[float]) -> str:
    return f"{median(ratios):.2f}x [{min(ratios):.2f}, {max(ratios):.2f}]"


# -- bytes a save


async def bytes_a_save(place: Path, options: Options) -> Finding:
    """What the same saves write at turn 10 and at the last turn.

    Measured as the growth of the write-ahead log, where every commit puts each page that it
    changed, whole: the file ``…-wal`` is looked at before and after. The database was closed just
    before, so that the log starts empty, and the few saves stay far from the 1,000 pages at which
    SQLite starts the log again: it can only grow, by exactly what was written. What a checkpoint
    later copies out of the log is not in it; that is at most the same pages once more.
    """
    turns = turns_of(options.turns + TAILS, seed=99)
    before, tails = turns[: options.turns], turns[options.turns :]
    text = sum(len(json.dumps(message)) for message in joined(tails)) / TAILS
    early, late = [
        await _log_growth(place / f"bytes-{turn}.db", before[: turn - 1], tails)
        for turn in (EARLY, options.turns)
    ]
    by_hand = _log_growth_by_hand(place / "bytes-raw.db", before, tails)
    if min(early, late, by_hand) < text:
        raise WrongMeasurement("the log grew by less than the text that was saved")
    return Finding(
        f"bytes a save writes at turn {options.turns}, against turn {EARLY}",
        f"{late / early:.2f}x ({late / 1e3:.1f} KB : {early / 1e3:.1f} KB for {text / 1e3:.1f} KB"
        f" of JSON; by hand {by_hand / 1e3:.1f} KB)",
        f"at most {BYTES_RATIO}x",
        late / early <= BYTES_RATIO,
    )


async def _log_growth(path: Path, before: list[Turn], tails: list[Turn]) -> float:
    async with opened(path) as store:
        await store.save(ID, joined(before))
    async with opened(path) as store:
        messages = await store.get(ID) or []
        size = _log_size(path)
        for tail in tails:
            messages += tail
            await store.save(ID, messages)
        return (_log_size(path) - size) / len(tails)


def _log_growth_by_hand(path: Path, before: list[Turn], tails: list[Turn]) -> float:
    with closing(RawLoop(path)) as raw:
        raw.add(ID, joined(before))
    with closing(RawLoop(path)) as raw:
        size = _log_size(path)
        for tail in tails:
            raw.add(ID, tail)
        return (_log_size(path) - size) / len(tails)


def _log_size(path: Path) -> int:
    log = path.with_name(path.name + "-wal")
    return log.stat().st_size if log.exists() else 0


# -- conversations at once


async def conversations_at_once(place: Path, options: Options) -> Finding:
    """Turns a second of many conversations, ours all at once, the raw loop's one after another.

    Ours: one store, one coroutine a conversation, together in `asyncio.gather`. By hand: one
    connection in one thread takes turn 1 of every conversation, then turn 2, and so on, as the user
    of a plain `sqlite3` connection does; it commits each turn. A turn counts when its save has
    returned: durable on both sides. Every conversation has 50 turns when the clock starts, and our
    store has them in its mirror, as in a process that has been serving them.
    """
    turns = turns_of(options.turns_before + options.turns_each, seed=7)
    before, after = joined(turns[: options.turns_before]), turns[options.turns_before :]
    rates: tuple[list[float], list[float]] = ([], [])
    async with opened(place / "at-once-ours.db") as store:
        with closing(RawLoop(place / "at-once-raw.db")) as raw:
            for number in range(options.rounds):
                ids = [f"{ID}.{number}.{n}" for n in range(options.at_once)]
                for side in ((0, 1), (1, 0))[number % 2]:
                    seconds = (
                        await _together(store, ids, before, after)
                        if side
                        else _in_line(raw, ids, before, after)
                    )
                    rates[side].append(len(ids) * len(after) / seconds)
                for id in (ids[0], ids[-1]):
                    if not await store.get(id) == raw.get(id) == joined(turns):
                        raise WrongMeasurement("a transcript is not the one that was saved")
    ratios = [ours / raw_rate for raw_rate, ours in zip(*rates, strict=True)]
    return Finding(
        f"{options.at_once} conversations at once, turns a second, ours : raw",
        f"{_spread(ratios)} ({median(rates[1]):.0f} : {median(rates[0]):.0f})",
        f"at least {CONCURRENT_FASTER}x",
        median(ratios) >= CONCURRENT_FASTER,
    )


async def _together(store: Store, ids: list[str], before: Turn, after: list[Turn]) -> float:
    async def conversation(id: str) -> None:
        for turn in after:
            await store_turn(store, id, turn)

    await asyncio.gather(*(store.save(id, before) for id in ids))
    start = perf_counter()
    await asyncio.gather(*map(conversation, ids))
    return perf_counter() - start


def _in_line(raw: RawLoop, ids: list[str], before: Turn, after: list[Turn]) -> float:
    for id in ids:
        raw.add(id, before)
    start = perf_counter()
    for turn in after:
        for id in ids:
            raw_turn(raw, id, turn)
    return perf_counter() - start


# -- the mirror


async def mirror(place: Path, options: Options) -> Finding:
    """The memory a store holds after many more conversations than its budget has room for.

    As `tracemalloc` counts it: every Python object that is still there, the store's, the driver's
    and the mirror's together, less what was there before. What malloc rounds up and SQLite's own
    page caches (2 MB a connection) are not in it.
    """
    samples = [joined(turns_of(2, seed)) for seed in range(50)]
    size = sum(len(json.dumps(sample)) for sample in samples) / len(samples)
    through = size * options.conversations
    async with opened(place / "mirror.db", cache=options.budget) as store:
        await store.save("warm-up", samples[0])
        gc.collect()
        tracemalloc.start()
        start = tracemalloc.get_traced_memory()[0]
        await _save_all(store, samples, options.conversations)
        gc.collect()
        held = tracemalloc.get_traced_memory()[0] - start
        tracemalloc.stop()
        for number in (0, options.conversations - 1):
            if await store.get(f"{ID}.{number}") != samples[number % len(samples)]:
                raise WrongMeasurement("a conversation is not the one that was saved")
    if through > 2 * options.budget and held < options.budget / 2:
        raise WrongMeasurement("the mirror holds next to nothing: its budget was not tried")
    return Finding(
        f"mirror with {options.conversations:,} conversations, {through / MIB:.0f} MiB of JSON",
        f"{held:,} bytes held of {options.budget:,}",
        "inside its budget",
        held <= options.budget,
    )


async def _save_all(store: Store, samples: list[list[Message]], conversations: int) -> None:
    numbers = iter(range(conversations))

    async def some() -> None:
        for number in numbers:
            await store.save(f"{ID}.{number}", samples[number % len(samples)])

    await asyncio.gather(*(some() for _ in range(64)))


# -- the report


async def measured(place: Path, options: Options, console: Console) -> tuple[Table, Table]:
    """Measure everything, one part after another; what was found."""
    rounds: list[Round] = []
    for number in range(options.rounds):
        console.print(f"round {number + 1} of {options.rounds}: {options.turns} turns on each side")
        rounds.append(await one_round(place, options, number))
    goals = [whole_loop(rounds), save_at_the_end(rounds, options)]
    console.print(f"bytes a save, and {options.at_once} conversations at once")
    goals.append(await bytes_a_save(place, options))
    goals.append(await conversations_at_once(place, options))
    console.print(f"the mirror with {options.conversations:,} conversations")
    goals.append(await mirror(place, options))
    record = Table("for the record", "raw : ours")
    for finding in for_the_record(rounds, options):
        record.add_row(finding.what, finding.measured)
    return _with_goals(goals), record


def _with_goals(goals: Iterable[Finding]) -> Table:
    table = Table("", "measured: median [lowest, highest round]", "goal", "")
    for finding in goals:
        verdict = "[green]met[/]" if finding.met else "[red]NOT met[/]"
        measured = finding.measured.replace("[", r"\[")
        table.add_row(finding.what, measured, finding.goal, verdict)
    return table


def sync_seconds(place: Path) -> float:
    """What it takes here to bring a few kilobytes to the disk; next to nothing: it is not one."""
    taken = []
    with (place / "sync").open("wb", buffering=0) as file:
        for _ in range(50):
            file.write(bytes(8_192))
            start = perf_counter()
            os.fsync(file.fileno())
            taken.append(perf_counter() - start)
    return median(taken)


def introduce(place: Path, options: Options, console: Console) -> None:
    """Say what is measured, and on what."""
    size = sum(len(json.dumps(message)) for message in joined(turns_of(options.turns, seed=0)))
    console.print(
        f"{platform.python_implementation()} {platform.python_version()}, "
        f"SQLite {sqlite3.sqlite_version}, fsync {sync_seconds(place) * 1e3:.2f} ms in "
        f"{place.parent}; {os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}"
    )
    console.print(f"toolnexus_stores of {Path(toolnexus_stores.__file__).parent}")
    console.print(
        f"one conversation of {options.turns} turns, {4 * options.turns} messages, "
        f"{size / 1e6:.1f} MB of JSON; {options.rounds} rounds"
    )


def options_of(arguments: argparse.Namespace) -> Options:
    """What the command line asks for."""
    options = Options()
    if arguments.quick:
        options = replace(options, turns=200, rounds=1, conversations=2_000, budget=4 * MIB)
    if arguments.turns is not None:
        options = replace(options, turns=arguments.turns)
    if arguments.rounds is not None:
        options = replace(options, rounds=arguments.rounds)
    return options


def _at_least(least: int) -> Any:
    def number(text: str) -> int:
        if int(text) < least:
            raise argparse.ArgumentTypeError(f"at least {least}")
        return int(text)

    return number


def main() -> int:
    """Measure and report; the exit status."""
    parser = argparse.ArgumentParser(
        description="A store over SQLite against a raw sqlite3 loop, side by side."
    )
    parser.add_argument("--turns", type=_at_least(100), help="of the long conversation (1,000)")
    parser.add_argument("--rounds", type=_at_least(1), help="of each comparison (3)")
    parser.add_argument("--quick", action="store_true", help="fewer of everything: a smoke test")
    parser.add_argument(
        "--dir",
        type=Path,
        default=Path(),
        help="where to make the databases, on a real disk: /tmp may be memory (here)",
    )
    arguments = parser.parse_args()
    options = options_of(arguments)
    console = Console(width=None if sys.stdout.isatty() else 160, highlight=False)
    gc.collect()
    gc.freeze()
    with tempfile.TemporaryDirectory(prefix=".bench-", dir=arguments.dir.absolute()) as place:
        introduce(Path(place), options, console)
        try:
            tables = asyncio.run(measured(Path(place), options, console))
        except WrongMeasurement as error:
            console.print(f"the measurement is wrong: {error}")
            return 1
    console.print(*tables, sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
