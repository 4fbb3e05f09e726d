"""A store over Postgres and Redis against the raw client, and over S3 by its requests.

    python -m tests.benchmarks.servers [postgres] [redis] [s3] [--turns N] [--rounds N] [--quick]

The servers are those of the tests (`tests/servers`): private ones, or what the environment names.
Both sides take turns turn by turn in one process, each on storage of its own, the first one
alternating. A turn is a get of the transcript and a save of it with four messages more. The raw
side is what a careful user writes by hand with the same client: a row, or an element of a list, a
message; a save adds the new ones in one call, a get fetches and decodes them all. It cannot replace
what it stored, sees no damage, and does not find out about another writer.

Bytes and round trips are counted by a relay in front of the server, apart from the timing. Of S3
only requests and bytes are measured: the time of a server on this machine says nothing of a
service.

The exit status is 0 whether goals are met or not; it is 1 if the measurement is wrong.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import os
import secrets
import sys
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any, Protocol
from unittest import mock
from urllib.parse import urlsplit

import asyncpg
from redis.asyncio import Redis
from rich.console import Console
from toolnexus_stores import open_store

from tests.benchmarks.sqlite_loop import (
    ID,
    Cost,
    Finding,
    WrongMeasurement,
    at_least,
    goals_table,
    joined,
    seconds_of,
    spread,
    store_turn,
    turns_of,
)
from tests.servers import StrictS3, start_postgres, start_redis

if TYPE_CHECKING:
    from asyncio import StreamReader, StreamWriter
    from collections.abc import AsyncIterator, Callable, Sequence

    from toolnexus_stores import Store

    from tests.benchmarks.sqlite_loop import Message, Turn
    from tests.servers import PostgresServer, RedisServer

_TABLE = f"toolnexus_raw_{secrets.token_hex(4)}"


LOOP_SHARE = 0.8
BYTES_RATIO = 1.15
CONCURRENT_FASTER = 1.2
_GOODBYE = 10  # seconds for the connections of a store that was closed to end
SMALL = 1_000  # bytes, of the answer to a get of what did not change
SHARE_OF_GZIP = 1.1


@dataclass(frozen=True)
class Options:
    """How much to measure."""

    turns: int = 1_000
    rounds: int = 2
    at_once: int = 32
    turns_before: int = 50
    turns_each: int = 12


class Raw(Protocol):
    """Conversations by hand, in one connection."""

    async def get(self, id: str) -> list[Message]:
        """Every message of *id*, decoded."""
        ...

    async def add(self, id: str, tail: Sequence[Message]) -> None:
        """Store the new messages of *id*."""
        ...

    async def close(self) -> None:
        """Close the connection."""
        ...


class RawPostgres:
    """A table of rows, a message each."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    @classmethod
    async def opened(cls, url: str) -> RawPostgres:
        """On a table of its own, which `close` drops."""
        connection = await asyncpg.connect(url.partition("?")[0])
        await connection.execute(
            f"""
            CREATE TABLE {_TABLE}
                (id bigserial PRIMARY KEY, conversation text NOT NULL, text text NOT NULL);
            CREATE INDEX ON {_TABLE} (conversation, id);
            """
        )
        return cls(connection)

    async def get(self, id: str) -> list[Message]:
        """See `Raw`."""
        rows = await self._connection.fetch(
            f"SELECT text FROM {_TABLE} WHERE conversation = $1 ORDER BY id", id
        )
        return [json.loads(row[0]) for row in rows]

    async def add(self, id: str, tail: Sequence[Message]) -> None:
        """See `Raw`; one statement, one commit."""
        await self._connection.execute(
            f"INSERT INTO {_TABLE} (conversation, text) SELECT $1, unnest($2::text[])",
            id,
            [json.dumps(message) for message in tail],
        )

    async def close(self) -> None:
        """See `Raw`."""
        await self._connection.execute(f"DROP TABLE {_TABLE}")
        await self._connection.close()


class RawRedis:
    """A list, an element a message."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._keys: set[str] = set()

    @classmethod
    async def opened(cls, url: str) -> RawRedis:
        """On keys of its own."""
        return cls(Redis.from_url(url.partition("?")[0]))

    async def get(self, id: str) -> list[Message]:
        """See `Raw`."""
        texts: list[bytes] = await self._client.lrange(f"{_TABLE}:{id}", 0, -1)
        return [json.loads(text) for text in texts]

    async def add(self, id: str, tail: Sequence[Message]) -> None:
        """See `Raw`."""
        key = f"{_TABLE}:{id}"
        self._keys.add(key)
        await self._client.rpush(key, *map(json.dumps, tail))

    async def close(self) -> None:
        """See `Raw`."""
        for key in self._keys:
            await self._client.delete(key)
        await self._client.aclose()


async def raw_turn(raw: Raw, id: str, turn: Turn) -> Cost:
    """One turn by hand."""
    start = perf_counter()
    messages = await raw.get(id)
    read = perf_counter()
    messages += turn
    await raw.add(id, messages[-len(turn) :])
    return Cost(read - start, perf_counter() - read, 0)


# -- time


async def whole_loop(raw: Raw, store: Store, options: Options, name: str) -> Finding:
    """The sum of all gets and saves of one conversation, ours as a share of the raw side's."""
    shares = []
    for number in range(options.rounds):
        id, turns = f"{ID}.{number}", turns_of(options.turns, seed=number)
        costs: tuple[list[Cost], list[Cost]] = ([], [])
        for index, turn in enumerate(turns):
            for side in ((0, 1), (1, 0))[index % 2]:
                taken = store_turn(store, id, turn) if side else raw_turn(raw, id, turn)
                costs[side].append(await taken)
        if not await raw.get(id) == await store.get(id) == joined(turns):
            raise WrongMeasurement("a transcript read back is not the one that was saved")
        shares.append(seconds_of(costs[1]) / seconds_of(costs[0]))
    return Finding(
        f"{name}: loop of {options.turns} turns, ours as a share of raw",
        spread(shares),
        f"at most {LOOP_SHARE}x",
        median(shares) <= LOOP_SHARE,
    )


async def conversations_at_once(raw: Raw, store: Store, options: Options, name: str) -> Finding:
    """Turns a second: our conversations all at once, the raw loop's one after another."""
    turns = turns_of(options.turns_before + options.turns_each, seed=7)
    before, after = joined(turns[: options.turns_before]), turns[options.turns_before :]
    ratios = []
    for number in range(max(3, options.rounds)):
        ids = [f"{ID}-at-once.{number}.{n}" for n in range(options.at_once)]
        for id in ids:
            await raw.add(id, before)
            await store.save(id, before)
        seconds = [0.0, 0.0]
        for side in ((0, 1), (1, 0))[number % 2]:
            start = perf_counter()
            await (_together(store, ids, after) if side else _in_line(raw, ids, after))
            seconds[side] = perf_counter() - start
        if not await raw.get(ids[-1]) == await store.get(ids[-1]) == joined(turns):
            raise WrongMeasurement("a transcript is not the one that was saved")
        ratios.append(seconds[0] / seconds[1])
    return Finding(
        f"{name}: {options.at_once} conversations at once, turns a second, ours : raw",
        spread(ratios),
        f"at least {CONCURRENT_FASTER}x",
        median(ratios) >= CONCURRENT_FASTER,
    )


async def _together(store: Store, ids: list[str], after: list[Turn]) -> None:
    async def conversation(id: str) -> None:
        for turn in after:
            await store_turn(store, id, turn)

    await asyncio.gather(*map(conversation, ids))


async def _in_line(raw: Raw, ids: list[str], after: list[Turn]) -> None:
    for turn in after:
        for id in ids:
            await raw_turn(raw, id, turn)


# -- bytes and round trips


class Relay:
    """Passes bytes on to a server, and counts them."""

    def __init__(self, host: str, port: int) -> None:
        self._target = host, port
        self.sent = self.answered = self.round_trips = 0
        self._asking = False
        self._passing: set[asyncio.Task[Any] | None] = set()

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[int]:
        """The port on 127.0.0.1 that it listens on meanwhile; who connects closes first."""
        server = await asyncio.start_server(self._pass_on, "127.0.0.1", 0)
        try:
            yield server.sockets[0].getsockname()[1]
        finally:
            server.close()
            async with asyncio.timeout(_GOODBYE):
                await asyncio.gather(*filter(None, self._passing))

    def forget(self) -> None:
        """Count from 0 again."""
        self.sent = self.answered = self.round_trips = 0
        self._asking = False

    async def _pass_on(self, reader: StreamReader, writer: StreamWriter) -> None:
        self._passing.add(asyncio.current_task())
        there = await asyncio.open_connection(*self._target)
        await asyncio.gather(
            self._pump(reader, there[1], self._count_sent),
            self._pump(there[0], writer, self._count_answered),
        )

    @staticmethod
    async def _pump(
        reader: StreamReader, writer: StreamWriter, count: Callable[[int], None]
    ) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(65_536):
                count(len(data))
                writer.write(data)
                await writer.drain()
        writer.close()

    def _count_sent(self, length: int) -> None:
        self.sent += length
        self.round_trips += not self._asking
        self._asking = True

    def _count_answered(self, length: int) -> None:
        self.answered += length
        self._asking = False


async def on_the_wire(url: str, options: Options, name: str) -> list[Finding]:
    """What the last saves of a conversation send, and what a get of an unchanged one takes."""
    there = urlsplit(url)
    relay = Relay(there.hostname or "", there.port or 0)
    turns = turns_of(options.turns + 8, seed=99)
    before, tails = turns[: options.turns], turns[options.turns :]
    text = sum(len(json.dumps(message)) for message in joined(tails)) / len(tails)
    async with relay.listening() as port:
        through = url.replace(f":{there.port}", f":{port}", 1)
        async with open_store(through) as store:
            await store.save(ID, messages := joined(before))
            for tail in tails:
                if tail is tails[0]:  # the first save may open another connection
                    await store.save(ID, messages := [*messages, *turns_of(1, seed=1)[0]])
                    relay.forget()
                await store.save(ID, messages := [*messages, *tail])
            sent, trips = relay.sent / len(tails), relay.round_trips / len(tails)
            await store.get(ID)  # the first get of a connection may prepare its statement
            relay.forget()
            unchanged = await store.get(ID)
            asked = relay.round_trips, relay.sent + relay.answered
    if unchanged != messages or sent < text or not asked[0]:
        raise WrongMeasurement("the relay did not see what was saved")
    return [
        Finding(
            f"{name}: bytes sent a save, against the {text / 1e3:.1f} KB of its new messages",
            f"{sent / text:.2f}x in {trips:.1f} round trips",
            f"at most {BYTES_RATIO}x",
            sent / text <= BYTES_RATIO,
        ),
        Finding(
            f"{name}: get of an unchanged conversation",
            f"round trips: {asked[0]}, bytes both ways: {asked[1]}",
            f"1 round trip, at most {SMALL} bytes",
            asked[0] == 1 and asked[1] <= SMALL,
        ),
    ]


async def requests_of_s3() -> list[Finding]:
    """What a save of about 1 MB of new and old messages asks of S3, and a get of it."""
    messages = joined(turns_of(250, seed=3))
    with StrictS3() as server, mock.patch.dict(os.environ, server.environment):
        async with open_store(server.url) as store:
            await store.save(ID, messages[:-4])
            await store.get(ID)
            server.forget_requests()
            await store.save(ID, messages)
            saving = server.requests
            server.forget_requests()
            if await store.get(ID) != messages:
                raise WrongMeasurement("a transcript read back is not the one that was saved")
            reading = server.requests
    text = b"\n".join(json.dumps(message).encode() for message in messages)
    least = len(gzip.compress(text, 1))
    sent = sum(each.received for each in saving)
    return [
        Finding(
            f"s3: save of {len(text) / 1e6:.1f} MB, bytes sent against its gzip size",
            f"{sent / least:.2f}x in {_named(saving)}",
            f"1 PUT, at most {SHARE_OF_GZIP}x",
            [each.method for each in saving] == ["PUT"] and sent <= SHARE_OF_GZIP * least,
        ),
        Finding(
            "s3: get of an unchanged conversation",
            _named(reading),
            "1 HEAD",
            [each.method for each in reading] == ["HEAD"],
        ),
    ]


def _named(requests: Sequence[Any]) -> str:
    return ", ".join(each.method for each in requests) or "no request"


# -- the report


async def measured(
    server: PostgresServer | RedisServer, name: str, options: Options
) -> list[Finding]:
    """Everything of one server."""
    url = server.fresh_url()
    raw: Raw = await (RawPostgres if name == "postgres" else RawRedis).opened(url)
    try:
        async with open_store(url) as store:
            timed = [
                await whole_loop(raw, store, options, name),
                await conversations_at_once(raw, store, options, name),
            ]
    finally:
        await raw.close()
    return [*timed, *await on_the_wire(server.fresh_url(), options, name)]


_STARTS: dict[str, Callable[[], PostgresServer | RedisServer]] = {
    "postgres": start_postgres,
    "redis": start_redis,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and report; the exit status."""
    options, names = _asked(arguments)
    console = Console(width=None if sys.stdout.isatty() else 160, highlight=False)
    console.print(f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}")
    try:
        findings = [each for name in names for each in _measured(name, options, console)]
    except WrongMeasurement as error:
        console.print(f"the measurement is wrong: {error}")
        return 1
    console.print(goals_table(findings))
    return 0


def _measured(name: str, options: Options, console: Console) -> list[Finding]:
    if name == "s3":
        return asyncio.run(requests_of_s3())
    server = _STARTS[name]()
    try:
        console.print(f"{name}: {server.kind}, {options.rounds} rounds of {options.turns} turns")
        return asyncio.run(measured(server, name, options))
    finally:
        server.close()


def _asked(arguments: Sequence[str] | None) -> tuple[Options, list[str]]:
    parser = argparse.ArgumentParser(
        description="A store on a server against the raw client, side by side."
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="postgres, redis, s3; else all")
    parser.add_argument("--turns", type=at_least(20), help="of the long conversation (1,000)")
    parser.add_argument("--rounds", type=at_least(1), help="of each comparison (2)")
    parser.add_argument("--quick", action="store_true", help="fewer of everything: a smoke test")
    given = parser.parse_args(arguments)
    names = given.names or [*_STARTS, "s3"]
    if unknown := {*names} - {*_STARTS, "s3"}:
        parser.error(f"no such backend: {', '.join(sorted(unknown))}")
    base = Options(turns=40, rounds=1, turns_before=2, turns_each=2) if given.quick else Options()
    options = Options(
        given.turns or base.turns,
        given.rounds or base.rounds,
        base.at_once,
        base.turns_before,
        base.turns_each,
    )
    return options, names


if __name__ == "__main__":
    sys.exit(main())
