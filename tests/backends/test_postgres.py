"""Postgres: its URL, its schema, its rights, and a server that goes away."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
from toolnexus_stores import CorruptRecord, FormatTooNew, InvalidURL, Store, Unavailable, open_store
from toolnexus_stores.drivers.postgres import PostgresOptions
from toolnexus_stores.options import Location

from tests.runtime.other_process import read_elsewhere
from tests.servers.server import with_options

from .talk import converse_while, turns

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.servers import PostgresServer
    from tests.servers.pgbouncer import PgBouncer

    Opened = Callable[..., Store]


def connection(url: str) -> dict[str, Any]:
    """What asyncpg would be given for *url*."""
    parts = urlsplit(url)
    query = dict(pair.split("=") for pair in parts.query.split("&") if pair)
    location = Location(parts.scheme, parts.netloc, parts.path)
    return PostgresOptions.model_validate(
        {**query, **PostgresOptions.locate(location)}
    ).connection()


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("postgresql://h/db", {"host": ["h"], "port": [5432], "database": "db"}),
        ("postgresql://joe:p%40%2F%23@h:6/db", {"user": "joe", "password": "p@/#", "port": [6]}),
        ("postgresql://joe@[::1]:6/db", {"host": ["::1"], "port": [6], "user": "joe"}),
        (
            "postgresql://a,b:7,[::2]/db?target_session_attrs=read-write",
            {
                "host": ["a", "b", "::2"],
                "port": [5432, 7, 5432],
                "target_session_attrs": "read-write",
            },
        ),
        ("postgresql:///db?host=/run/postgresql", {"host": ["/run/postgresql"], "port": [5432]}),
        ("postgresql:///?dbname=x&user=u", {"database": "x", "user": "u"}),
        ("postgresql:///db?host=a,b&port=1,2", {"host": ["a", "b"], "port": [1, 2]}),
        ("postgresql://h/db?connect_timeout=3", {"timeout": 3.0}),
        (
            "postgresql://h/db?sslmode=verify-full&sslrootcert=/ca.pem&application_name=desk",
            {
                "dsn": "postgresql:///?sslmode=verify-full&sslrootcert=%2Fca.pem"
                "&application_name=desk"
            },
        ),
        ("postgresql://h/db?channel_binding=prefer", {}),
    ],
)
def test_what_a_url_means(url: str, expected: dict[str, Any]) -> None:
    found = connection(url)
    assert {name: found[name] for name in expected} == expected
    assert open_store(url)


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("postgresql://h/db?channel_binding=require", "channel_binding"),
        ("postgresql://h/db?sslmode=on", "sslmode"),
        ("postgresql://h/db?sslmod=require", "did you mean sslmode"),
        ("postgresql://h/db?gssencmode=require", "unknown option 'gssencmode'"),
        ("postgresql://h/db?target_session_attrs=read-only", "target_session_attrs"),
        ("postgresql://h:port/db", "a host is"),
        ("postgresql://h/db?host=other", "the host is given twice"),
        ("postgresql:///db?host=a,b&port=1,2,3", "as many ports as hosts"),
        ("postgresql://h/db?table=a-b", "table"),
        ('postgresql://h/db?schema=a"b', "schema"),
        ("postgresql://h/db?pool_size=0", "pool_size"),
        ("postgresql+asyncpq://h/db", "unknown scheme"),
    ],
)
def test_what_a_url_cannot_say(url: str, complaint: str) -> None:
    with pytest.raises(InvalidURL, match=complaint):
        open_store(url)


def test_other_spellings_of_the_scheme() -> None:
    for scheme in ("postgres", "postgresql+asyncpg", "postgresql+psycopg", "postgres+asyncpg"):
        assert open_store(f"{scheme}://h/db")


def test_sixteen_processes_first_use_an_empty_database_at_once(
    postgres: PostgresServer,
) -> None:
    url = postgres.fresh_url()
    program = (
        "import asyncio, sys\nfrom toolnexus_stores import open_store\n"
        "async def main():\n"
        "    store = open_store(sys.argv[1])\n"
        "    sys.stdin.readline()\n"
        "    await store.save(sys.argv[2], [{'n': int(sys.argv[2])}])\n"
        "    await store.close()\n"
        "asyncio.run(main())\n"
    )
    children = [
        subprocess.Popen(
            [sys.executable, "-c", program, url, str(n)],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for n in range(16)
    ]
    with ThreadPoolExecutor(16) as threads:
        ended = list(threads.map(lambda child: child.communicate("go\n", 50), children))
    assert [child.returncode for child in children] == [0] * 16, ended
    assert read_elsewhere(url) == {str(n): [{"n": n}] for n in range(16)}


async def test_sixteen_stores_first_use_an_empty_database_at_once(
    postgres: PostgresServer, opened: Opened
) -> None:
    for _ in range(5):
        url = postgres.fresh_url()
        stores = [opened(url, pool_size=1) for _ in range(16)]
        await asyncio.gather(*(store.save(f"{n}", turns(1)) for n, store in enumerate(stores)))
        for store in stores:
            await store.close()


async def test_tables_of_other_names_are_apart(postgres: PostgresServer, opened: Opened) -> None:
    url = postgres.fresh_url()
    one, other = opened(url, table="one"), opened(url, table="other")
    await one.save("a", turns(3))
    assert await other.get("a") is None
    assert [id async for id in other.ids()] == []


async def test_a_save_touches_the_head_and_the_tail_only(
    postgres: PostgresServer, opened: Opened
) -> None:
    url = postgres.fresh_url()
    schema = url.rpartition("schema=")[2]
    store = opened(url)
    await store.save("a", turns(50))

    def places() -> dict[Any, Any]:
        rows = postgres.query(
            f'SELECT position, ctid::text || xmin::text FROM "{schema}".toolnexus_messages'
        )
        return {row[0]: row[1] for row in rows}

    before = places()
    await store.save("a", turns(52))
    after = places()
    assert {position for position in after if after[position] != before.get(position)} == {50, 51}
    await store.save("a", [*turns(48), {"role": "user", "content": "other"}])
    last = places()
    assert set(last) == set(range(49))
    assert {position for position in last if last[position] != after[position]} == {48}
    await store.delete("a")
    assert places() == {}


async def test_a_pool_of_two_serves_a_hundred_saves(
    postgres: PostgresServer, opened: Opened
) -> None:
    store = opened(postgres.fresh_url(), pool_size=2)
    await asyncio.gather(*(store.save(f"{n}", turns(n % 7)) for n in range(100)))
    assert [await store.get(f"{n}") for n in range(100)] == [turns(n % 7) for n in range(100)]


async def test_connections_that_the_server_ended_are_replaced(
    postgres: PostgresServer, opened: Opened
) -> None:
    url = with_options(postgres.fresh_url(), application_name="victim")
    store = opened(url, pool_size=3)
    for count in range(1, 6):
        await asyncio.gather(*(store.save(f"{n}", turns(count)) for n in range(6)))
        postgres.query(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE application_name = 'victim'"
        )
    await store.save("0", turns(9))
    assert await store.get("0") == turns(9)


async def test_connections_that_are_ended_all_the_time(
    postgres: PostgresServer, opened: Opened
) -> None:
    store = opened(with_options(postgres.fresh_url(), application_name="harried"))

    def harry() -> None:
        for _ in range(20):
            postgres.query(
                "SELECT pg_terminate_backend(pid), pg_sleep(0.01) FROM pg_stat_activity "
                "WHERE application_name = 'harried'"
            )

    await converse_while(store, harry)


async def test_a_server_that_is_killed_and_comes_back_is_survived(
    fresh_postgres: PostgresServer, opened: Opened
) -> None:
    store = opened(fresh_postgres.url)

    def kill_and_start() -> None:
        fresh_postgres.kill()
        fresh_postgres.start()

    counts = [await converse_while(store, kill_and_start) for _ in range(2)]
    async with open_store(fresh_postgres.url) as other:
        assert await other.get("talk") == turns(counts[-1])


async def test_a_server_that_turns_read_only_for_a_while_is_survived(
    fresh_postgres: PostgresServer, opened: Opened
) -> None:
    store = opened(fresh_postgres.url)
    await store.save("a", turns(1))

    def set_read_only(value: str) -> None:
        fresh_postgres.query(f"ALTER SYSTEM SET default_transaction_read_only = {value}")
        fresh_postgres.query("SELECT pg_reload_conf()")

    await asyncio.to_thread(set_read_only, "on")
    hasty = opened(fresh_postgres.url, timeout=2)
    with pytest.raises(Unavailable, match="read-only") as caught:
        await hasty.save("a", turns(3))
    assert not caught.value.ambiguous
    assert await hasty.get("a") == turns(1)
    saving = asyncio.create_task(store.save("a", turns(2)))
    await asyncio.sleep(0.2)
    await asyncio.to_thread(_reset_read_only, fresh_postgres)
    await saving
    assert await store.get("a") == turns(2)


def _reset_read_only(server: PostgresServer) -> None:
    # ALTER SYSTEM writes a file, not a table: it is allowed.
    server.query("ALTER SYSTEM RESET default_transaction_read_only")
    server.query("SELECT pg_reload_conf()")


async def test_the_wrong_password_is_refused_at_once(
    postgres: PostgresServer, opened: Opened
) -> None:
    parts = urlsplit(postgres.url)
    url = parts._replace(netloc=parts.netloc.replace(str(parts.password), "wr%6Fng-password"))
    store = opened(url.geturl())
    async with asyncio.timeout(5):
        for use in (store.get("a"), store.save("a", turns(1)), store.open()):
            with pytest.raises(Unavailable, match="refused the credentials") as caught:
                await use
            assert not caught.value.ambiguous
            assert "wrong-password" not in f"{caught.value!r} {caught.value.__cause__!r} {store!r}"


async def test_a_database_that_does_not_exist(postgres: PostgresServer, opened: Opened) -> None:
    url = urlsplit(postgres.url)._replace(path="/nowhere").geturl()
    with pytest.raises(Unavailable, match="database does not exist"):
        await opened(url).get("a")


async def test_a_server_that_is_not_there(opened: Opened) -> None:
    store = opened("postgresql://joe:secret@127.0.0.1:1/db", timeout=0.5)
    with pytest.raises(Unavailable, match=r"within 0\.5 s: the server could not be reached") as e:
        await store.save("a", turns(1))
    assert not e.value.ambiguous
    assert "127.0.0.1" not in str(e.value)


async def test_a_role_that_may_not_make_tables_uses_those_that_are_there(
    postgres: PostgresServer, opened: Opened
) -> None:
    url = postgres.fresh_url()
    schema = url.rpartition("schema=")[2]
    parts = urlsplit(url)
    postgres.query(f"CREATE ROLE {schema} LOGIN PASSWORD 'weak'")
    host = parts.netloc.rpartition("@")[2]
    as_weak = parts._replace(netloc=f"{schema}:weak@{host}").geturl()
    with pytest.raises(Unavailable, match="lacks a right"):
        await opened(as_weak).save("a", turns(1))

    await opened(url).save("a", turns(1))
    postgres.query(f'GRANT USAGE ON SCHEMA "{schema}" TO {schema}')
    postgres.query(
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {schema}"
    )
    store = opened(as_weak)
    await store.save("a", turns(2))
    assert await store.get("a") == turns(2)
    assert await store.delete("a")


async def test_a_schema_of_a_later_version_is_left_alone(
    postgres: PostgresServer, opened: Opened
) -> None:
    url = postgres.fresh_url()
    await opened(url).save("a", turns(1))
    schema = url.rpartition("schema=")[2]
    postgres.query(f'UPDATE "{schema}".toolnexus_schema SET version = 2')
    with pytest.raises(FormatTooNew, match="upgrade"):
        await opened(url).save("a", turns(2))


async def test_a_half_made_schema_is_completed(postgres: PostgresServer, opened: Opened) -> None:
    url = postgres.fresh_url()
    schema = url.rpartition("schema=")[2]
    postgres.query(f'CREATE SCHEMA "{schema}"')
    postgres.query(f'CREATE TABLE "{schema}".toolnexus_schema (version integer PRIMARY KEY)')
    store = opened(url)
    await store.save("a", turns(1))
    assert await store.get("a") == turns(1)


async def test_a_message_that_was_changed_in_the_table_is_damage(
    postgres: PostgresServer, opened: Opened
) -> None:
    url = postgres.fresh_url()
    schema = url.rpartition("schema=")[2]
    await opened(url).save("a", turns(3))
    postgres.query(f'DELETE FROM "{schema}".toolnexus_messages WHERE position = 1')
    with pytest.raises(CorruptRecord, match="2 messages of 3") as caught:
        await opened(url).get("a")
    assert "toolnexus_conversations" in caught.value.where


async def test_behind_a_pooler_in_transaction_mode(pgbouncer: PgBouncer, opened: Opened) -> None:
    store = opened(pgbouncer.fresh_url(), pool_size=4)
    await asyncio.gather(*(store.save(f"{n}", turns(n % 9)) for n in range(40)))
    for n in range(40):
        assert await store.get(f"{n}") == turns(n % 9)
    await converse_while(store, pgbouncer.restart)
