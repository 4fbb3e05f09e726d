"""Redis: its URLs, lives of keys, servers that are full, replaced, or gone for a while."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
from toolnexus_stores import CorruptRecord, InvalidURL, Store, Unavailable, open_store
from toolnexus_stores.driver import Conflict, Edit
from toolnexus_stores.drivers.redis import RedisDriver, RedisOptions
from toolnexus_stores.options import Location

from tests.servers.redis import ask, start_redis

from .talk import converse_while, turns

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.servers import RedisServer
    from tests.servers.redis_groups import RedisCluster, RedisSentinel

    Opened = Callable[..., Store]


def options_of(url: str) -> dict[str, Any]:
    """What each connection would be given for *url*."""
    parts = urlsplit(url)
    query = dict(pair.split("=") for pair in parts.query.split("&") if pair)
    location = Location(parts.scheme, parts.netloc, parts.path)
    options = RedisOptions.model_validate({**query, **RedisOptions.locate(location)})
    return options._connection()


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("redis://h", {}),
        ("redis://h/3", {"db": 3}),
        ("redis://h?db=3", {"db": 3}),
        ("redis://:123456xxx%23@h:6379/0", {"password": "123456xxx#"}),
        ("redis://joe:p%40%2F@h/0", {"username": "joe", "password": "p@/"}),
        ("rediss://h/0", {"ssl": True}),
        (
            "rediss://h?ssl_cert_reqs=none&ssl_check_hostname=false",
            {"ssl": True, "ssl_cert_reqs": "none", "ssl_check_hostname": False},
        ),
        ("unix:///run/redis.sock?db=2", {"db": 2}),
        ("redis+sentinel://:pw@h1,h2:3/service/4", {"password": "pw", "db": 4}),
        ("redis+cluster://:pw@h1,[::1]:3", {"password": "pw"}),
        ("rediss+cluster://h1", {"ssl": True}),
    ],
)
def test_what_a_url_means(url: str, expected: dict[str, Any]) -> None:
    assert options_of(url) == expected
    assert open_store(url)


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("redis://h/notanumber", "database of a Redis URL is a number"),
        ("redis://h/0/1", "database of a Redis URL is a number"),
        ("redis://h/1?db=2", "the database is given twice"),
        ("redis://:123456xxx#@h:6379/0", "%23"),
        ("redis://a,b/0", "takes one host"),
        ("redis://h:port/0", "a host is"),
        ("redis+cluster://h/3", "only the database 0"),
        ("redis+sentinel://h", "service is missing"),
        ("redis://h?ttl=30", "ttl"),
        ("redis://h?ttl=0d", "ttl"),
        ("redis://h?prefix={x}", "prefix"),
        ("redis://h?timout=3", "did you mean timeout"),
    ],
)
def test_what_a_url_cannot_say(url: str, complaint: str) -> None:
    with pytest.raises(InvalidURL, match=complaint) as caught:
        open_store(url)
    assert "123456" not in str(caught.value)


def names(server: RedisServer) -> set[str]:
    found = server.ask("KEYS", "*")
    assert isinstance(found, list)
    return set(map(str, found))


async def test_a_conversation_does_not_expire_unless_asked(
    redis: RedisServer, opened: Opened
) -> None:
    store = opened(redis.fresh_url(), prefix="lasting")
    await store.save("a", turns(3))
    kept = [name for name in names(redis) if name.startswith("{lasting:")]
    assert len(kept) == 2
    assert [redis.ask("TTL", name) for name in kept] == [-1, -1]


async def test_a_life_that_somebody_else_gave_is_kept(redis: RedisServer, opened: Opened) -> None:
    store = opened(redis.fresh_url(), prefix="lent")
    await store.save("a", turns(3))
    kept = [name for name in names(redis) if name.startswith("{lent:")]
    for name in kept:
        redis.ask("EXPIRE", name, "1000")
    for messages in (turns(4), turns(2), [{"n": "other"}]):
        await store.save("a", messages)
        lives = [int(str(redis.ask("TTL", name))) for name in kept]
        assert all(900 < life <= 1000 for life in lives)


async def test_a_life_that_was_asked_for_slides_from_the_last_save(
    redis: RedisServer, opened: Opened
) -> None:
    url = redis.fresh_url()
    store = opened(url, prefix="sliding", ttl="1h")
    await store.save("a", turns(3))
    kept = [name for name in names(redis) if name.startswith("{sliding:")]
    for name in kept:
        assert 3500 < int(str(redis.ask("TTL", name))) <= 3600
        redis.ask("EXPIRE", name, "5")
    await store.save("a", turns(4))
    assert all(3500 < int(str(redis.ask("TTL", name))) <= 3600 for name in kept)
    for name in kept:
        redis.ask("PEXPIRE", name, "1")
    await asyncio.sleep(0.01)
    assert await store.get("a") is None
    assert [id async for id in store.ids()] == []


async def test_prefixes_are_apart_and_may_hold_wildcards(
    redis: RedisServer, opened: Opened
) -> None:
    url = redis.fresh_url()
    one, other = opened(url, prefix="a*[x]?"), opened(url, prefix="ab[x]c")
    await one.save("a", turns(1))
    await other.save("b", turns(2))
    assert [id async for id in one.ids()] == ["a"]
    assert [id async for id in other.ids()] == ["b"]
    assert await one.get("b") is None


async def test_a_script_that_the_server_forgot_is_sent_again(
    redis: RedisServer, opened: Opened
) -> None:
    store = opened(redis.fresh_url())
    await store.save("a", turns(1))
    redis.ask("SCRIPT", "FLUSH")
    await store.save("a", turns(2))
    assert await store.get("a") == turns(2)


async def test_a_write_that_is_sent_twice_happens_once(redis: RedisServer) -> None:
    location = urlsplit(redis.url)
    options = RedisOptions.model_validate(
        RedisOptions.locate(Location(location.scheme, location.netloc, location.path))
    )
    driver: RedisDriver = options.driver()
    await driver.open()
    try:
        await driver.delete("t/twice")
        version = await driver.write("t/twice", Edit(None, b"{}", 0, [b"{}"], lambda: [b"{}"]))
        edit = Edit(version, b"{}", 1, [b"{}"] * 2, lambda: [b"{}"] * 3)
        await driver.write("t/twice", edit)
        with pytest.raises(Conflict):
            await driver.write("t/twice", edit)
        record = await driver.read("t/twice")
        assert record is not None
        assert len(record.texts) == 3
        await driver.delete("t/twice")
    finally:
        await driver.close()


async def test_two_calls_at_once_serve_a_hundred_saves(redis: RedisServer, opened: Opened) -> None:
    store = opened(redis.fresh_url(), pool_size=2)
    await asyncio.gather(*(store.save(f"{n}", turns(n % 7)) for n in range(100)))
    assert [await store.get(f"{n}") for n in range(100)] == [turns(n % 7) for n in range(100)]


@pytest.mark.parametrize("part", ["head", "texts"])
async def test_a_part_that_was_evicted_is_damage(
    redis: RedisServer, opened: Opened, part: str
) -> None:
    url = redis.fresh_url()
    store = opened(url, prefix=f"evicted-{part}")
    await store.save("a", turns(3))
    (name,) = (
        each
        for each in names(redis)
        if each.startswith(f"{{evicted-{part}:") and each.endswith(part)
    )
    redis.ask("DEL", name)
    with pytest.raises(CorruptRecord):
        await opened(url, prefix=f"evicted-{part}").get("a")
    assert await store.delete("a")
    assert await store.get("a") is None


async def test_a_full_server_refuses_and_keeps_what_it_has(
    fresh_redis: RedisServer, opened: Opened
) -> None:
    store = opened(fresh_redis.url)
    await store.save("a", turns(3))
    fresh_redis.ask("CONFIG", "SET", "maxmemory", "1")
    with pytest.raises(Unavailable, match="out of memory") as caught:
        await store.save("a", turns(5))
    assert not caught.value.ambiguous
    fresh_redis.ask("CONFIG", "SET", "maxmemory", "0")
    assert await store.get("a") == turns(3)
    await store.save("a", turns(5))
    assert await store.get("a") == turns(5)


async def test_a_server_that_is_killed_and_comes_back_is_survived(
    fresh_redis: RedisServer, opened: Opened
) -> None:
    store = opened(fresh_redis.url)

    def kill_and_start() -> None:
        fresh_redis.kill()
        fresh_redis.start()

    counts = [await converse_while(store, kill_and_start) for _ in range(3)]
    async with open_store(fresh_redis.url) as other:
        assert await other.get("talk") == turns(counts[-1])


async def test_connections_that_the_server_ended_are_replaced(
    redis: RedisServer, opened: Opened
) -> None:
    store = opened(redis.fresh_url(), client_name="victim", pool_size=3)
    for count in range(1, 6):
        await asyncio.gather(*(store.save(f"{n}", turns(count)) for n in range(6)))
        redis.ask("CLIENT", "KILL", "TYPE", "normal")
    assert await store.get("5") == turns(5)


async def test_a_replica_is_waited_for_until_it_is_promoted(
    fresh_redis: RedisServer, opened: Opened
) -> None:
    store = opened(fresh_redis.url)
    await store.save("a", turns(1))
    fresh_redis.ask("REPLICAOF", "127.0.0.1", "1")
    with pytest.raises(Unavailable, match="read-only"):
        await opened(fresh_redis.url, timeout=2).save("a", turns(3))
    saving = asyncio.create_task(store.save("a", turns(2)))
    await asyncio.sleep(0.1)
    assert not saving.done()
    fresh_redis.ask("REPLICAOF", "NO", "ONE")
    await saving
    assert await store.get("a") == turns(2)


async def test_the_wrong_password_is_refused_at_once(redis: RedisServer, opened: Opened) -> None:
    parts = urlsplit(redis.url)
    store = opened(parts._replace(netloc=f":wr%6Fng@{parts.hostname}:{parts.port}").geturl())
    async with asyncio.timeout(5):
        with pytest.raises(Unavailable, match="refused the credentials") as caught:
            await store.save("a", turns(1))
    assert "wrong" not in f"{caught.value!r} {caught.value.__cause__!r} {store!r}"


async def test_a_server_that_is_not_there(opened: Opened) -> None:
    store = opened("redis://:secret@127.0.0.1:1/0", timeout=0.5)
    with pytest.raises(Unavailable, match=r"within 0\.5 s"):
        await store.save("a", turns(1))


@pytest.mark.parametrize(
    ("settings", "advice"),
    [
        ({"maxmemory-policy": "allkeys-lru"}, "set maxmemory-policy noeviction"),
        ({"appendonly": "no"}, "set appendonly yes"),
        ({}, ""),
    ],
)
async def test_settings_that_lose_conversations_are_named(
    opened: Opened, caplog: pytest.LogCaptureFixture, settings: dict[str, str], advice: str
) -> None:
    server = await asyncio.to_thread(lambda: start_redis(("binary", "wheel"), settings=settings))
    try:
        with caplog.at_level(logging.WARNING, "toolnexus_stores"):
            await opened(server.url).open()
    finally:
        await asyncio.to_thread(server.close)
    assert (advice in caplog.text) if advice else not caplog.text


async def test_over_a_unix_socket(redis_here: RedisServer, opened: Opened) -> None:
    password = urlsplit(redis_here.url).password
    store = opened(f"unix://:{password}@{redis_here.socket}?db=0")
    await store.save("a", turns(3))
    assert await store.get("a") == turns(3)


async def test_a_cluster(redis_cluster: RedisCluster, opened: Opened) -> None:
    store = opened(redis_cluster.fresh_url())
    ids = [f"conversation {n}" for n in range(60)]
    await asyncio.gather(*(store.save(id, turns(n % 9)) for n, id in enumerate(ids)))
    for n, id in enumerate(ids):
        assert await store.get(id) == turns(n % 9)
    assert sorted([id async for id in store.ids()]) == sorted(ids)
    await asyncio.gather(*(store.delete(id) for id in ids[1:]))
    assert [id async for id in store.ids()] == ids[:1]


async def test_a_cluster_that_is_killed_and_comes_back_is_survived(
    redis_cluster: RedisCluster, opened: Opened
) -> None:
    store = opened(redis_cluster.fresh_url())

    def kill_and_start() -> None:
        redis_cluster.kill()
        redis_cluster.start()

    await converse_while(store, kill_and_start)


async def test_a_failover_in_the_middle_of_a_conversation_is_survived(
    redis_sentinel: RedisSentinel, opened: Opened
) -> None:
    store = opened(redis_sentinel.fresh_url())
    first = redis_sentinel.master_port()
    await store.save("talk", turns(1))
    await asyncio.to_thread(ask, redis_sentinel.node_url(first), "WAIT", "1", "2000")
    await asyncio.to_thread(redis_sentinel.fail_over)
    count = await converse_while(store, lambda: None)
    assert redis_sentinel.master_port() != first
    assert await store.get("talk") == turns(count)
    await asyncio.to_thread(redis_sentinel.start)
