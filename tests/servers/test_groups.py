"""The cluster, the sentinel and the pooler keep their promises."""

from urllib.parse import urlsplit

import redis

from .pgbouncer import PgBouncer
from .redis import ask, client_of
from .redis_groups import RedisCluster, RedisSentinel


def test_cluster_spreads_keys_and_comes_back(redis_cluster: RedisCluster) -> None:
    server = redis_cluster
    password = urlsplit(server.url.partition(",")[0]).password

    def counts() -> list[object]:
        return [ask(server.node_url(port), "DBSIZE") for port in server.ports]

    with redis.RedisCluster("127.0.0.1", server.ports[0], password=password) as client:
        for n in range(60):
            client.set(f"key-{n}", n)
    before = counts()
    assert all(before)
    server.kill()
    assert not server.running
    server.start()
    assert counts() == before


def test_sentinel_promotes_the_replica(redis_sentinel: RedisSentinel) -> None:
    server = redis_sentinel
    first = server.master_port()
    with client_of(server.node_url(first)) as client:
        client.set("kept", "7")
        assert client.wait(1, 2000) == 1  # it waits for what its own connection wrote
    server.fail_over()
    second = server.master_port()
    assert second != first
    assert ask(server.node_url(second), "GET", "kept") == "7"
    server.start()
    assert server.running


def test_pgbouncer_shares_one_connection_between_clients(pgbouncer: PgBouncer) -> None:
    backends = {pgbouncer.query("select pg_backend_pid()")[0] for _ in range(5)}
    assert len(backends) == 1
    pgbouncer.restart()
    assert pgbouncer.query("select 1") == [(1,)]
