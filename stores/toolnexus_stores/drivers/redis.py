"""``redis://``: a hash for the head and a list for the texts, under one hash tag.

A save is one Lua script: compare the version, cut the list, push the tail, set the head. Redis runs
a script whole or, if it lacks memory, not at all (https://redis.io/docs/latest/develop/programmability/eval-intro/),
and a script that is sent twice finds its own version and does nothing. A get takes head and texts
in one transaction. Plain Redis 6 and later, Valkey, Cluster and Sentinel; no modules.

An acknowledged save is as durable as the server's persistence makes it (``appendfsync always``
survives a power loss, ``everysec`` may lose a second), and a failover to a replica may lose what
was not replicated yet (https://redis.io/docs/latest/operate/oss_and_stack/management/replication/).
"""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, final
from urllib.parse import unquote

from pydantic import BeforeValidator, Field, SecretStr

from toolnexus_stores.driver import Conflict, Damaged, Edit, Fault, Head, Record, Version
from toolnexus_stores.errors import InvalidURL
from toolnexus_stores.options import DriverOptions, Location

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

__all__ = ["RedisDriver", "RedisOptions"]

_LOG = logging.getLogger("toolnexus_stores")
_HEAD, _TEXTS = b":head", b":texts"

# KEYS: head, texts. ARGV: expected version or "", new version, meta, keep, milliseconds to live or
# "", then the tail. Pushed in portions, as Lua's stack holds a few thousand values.
_WRITE = """
local stored = redis.call('HGET', KEYS[1], 'version') or ''
if stored == ARGV[2] then return 1 end
if stored ~= ARGV[1] then return 0 end
local keep = tonumber(ARGV[4])
local left = redis.call('PTTL', KEYS[1])
if keep == 0 then
    redis.call('DEL', KEYS[2])
elseif redis.call('LLEN', KEYS[2]) > keep then
    redis.call('LTRIM', KEYS[2], 0, keep - 1)
end
for start = 6, #ARGV, 1000 do
    redis.call('RPUSH', KEYS[2], unpack(ARGV, start, math.min(start + 999, #ARGV)))
end
redis.call('HSET', KEYS[1], 'version', ARGV[2], 'meta', ARGV[3])
if ARGV[5] ~= '' then left = tonumber(ARGV[5]) end
if left > 0 then
    redis.call('PEXPIRE', KEYS[1], left)
    redis.call('PEXPIRE', KEYS[2], left)
end
return 1
"""

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def _duration(value: object) -> object:
    """``90s``, ``15m``, ``12h``, ``30d``, ``4w``; anything else is pydantic's to judge."""
    if isinstance(value, str):
        match = re.fullmatch(r"([0-9]+)([smhdw])", value)
        if match is None:
            raise ValueError("a number and one of s, m, h, d, w, such as 30d")
        return timedelta(**{_UNITS[match[2]]: int(match[1])})
    return value


class RedisOptions(DriverOptions):
    """``redis://user:password@host:port/0``; ``rediss://`` for TLS; ``unix:///path/of/socket``.

    ``redis+cluster://host1,host2`` and ``redis+sentinel://host1,host2/service/0`` name nodes of a
    cluster, and sentinels that know the service's master.
    """

    requires: ClassVar[Mapping[str, str]] = {"redis": "toolnexus-stores[redis]"}

    scheme: Literal[
        "redis",
        "rediss",
        "unix",
        "redis+cluster",
        "rediss+cluster",
        "redis+sentinel",
        "rediss+sentinel",
    ]
    netloc: str
    path: str

    prefix: str = Field(default="toolnexus", pattern=r"^[^{}]{0,100}$")
    """What the names of all keys begin with."""

    ttl: Annotated[timedelta | None, BeforeValidator(_duration)] = Field(
        default=None, gt=timedelta(0)
    )
    """How long after its last save a conversation lives (``30d``). Without it none expires, and a
    time to live that somebody else gave a conversation is kept."""

    pool_size: int = Field(default=10, ge=1)
    """Calls under way at once, at most; others wait."""

    db: int | None = Field(default=None, ge=0)
    username: str | None = None
    password: SecretStr | None = None
    sentinel_username: str | None = None
    sentinel_password: SecretStr | None = None
    client_name: str | None = None
    ssl_ca_certs: str | None = None
    ssl_certfile: str | None = None
    ssl_keyfile: str | None = None
    ssl_cert_reqs: Literal["none", "optional", "required"] | None = None
    ssl_check_hostname: bool | None = None

    @classmethod
    def locate(cls, location: Location) -> Mapping[str, object]:
        """The servers, the credentials and the database, still as they are written."""
        return {"scheme": location.scheme, "netloc": location.netloc, "path": location.path}

    def model_post_init(self, _: object) -> None:
        """Refuse a location that makes no sense, while no connection was tried."""
        self._topology()
        self._connection()

    def driver(self) -> RedisDriver:
        """A driver over the server or servers."""
        return RedisDriver(
            self._topology(), prefix=self.prefix, ttl=self.ttl, pool_size=self.pool_size
        )

    def _topology(self) -> Callable[[Mapping[str, Any]], Any]:
        """What makes the client, given the options that all clients share."""
        options = self._connection()
        kind = self.scheme.partition("+")[2] or self.scheme
        if kind == "cluster":
            return _Cluster(self._hosts(6379), options)
        if kind == "sentinel":
            return _Sentinels(self._hosts(26379), self._service(), self._asking(), options)
        if kind == "unix":
            return _Server({"unix_socket_path": self.path, **options})
        ((host, port),) = self._hosts(6379, several=False)
        return _Server({"host": host, "port": port, **options})

    def _connection(self) -> dict[str, Any]:
        """The options of each connection."""
        user, _, password = self.netloc.rpartition("@")[0].partition(":")
        secret = self.password.get_secret_value() if self.password else unquote(password)
        found: dict[str, Any] = {
            "db": self._database(),
            "username": self.username or unquote(user),
            "password": secret,
            "client_name": self.client_name,
        }
        if self.scheme.startswith("rediss"):
            found["ssl"] = True
            found |= {
                name: getattr(self, name)
                for name in type(self).model_fields
                if name.startswith("ssl_") and getattr(self, name) is not None
            }
        return {name: value for name, value in found.items() if value or value is False}

    def _hosts(self, port: int, *, several: bool = True) -> list[tuple[str, int]]:
        found = []
        for each in self.netloc.rpartition("@")[2].split(","):
            match = re.fullmatch(r"(?:\[([^\]]+)\]|([^:\[\]]*))(?::([0-9]{1,5}))?", each)
            if match is None:
                raise InvalidURL("a host is host, host:port or [IPv6]:port")
            found.append((match[1] or match[2] or "localhost", int(match[3] or port)))
        if len(found) > 1 and not several:
            raise InvalidURL("redis:// takes one host; see redis+cluster:// and redis+sentinel://")
        return found

    def _parts(self) -> list[str]:
        return [] if self.scheme == "unix" else [part for part in self.path.split("/") if part]

    def _service(self) -> str:
        parts = self._parts()
        if not parts:
            raise InvalidURL("redis+sentinel://hosts/service: the service is missing")
        return parts[0]

    def _database(self) -> int:
        parts = self._parts()[self.scheme.endswith("+sentinel") :]
        if len(parts) > 1 or not all(re.fullmatch("[0-9]{1,6}", part) for part in parts):
            raise InvalidURL("the database of a Redis URL is a number: redis://host:6379/0")
        number = int(parts[0]) if parts else 0
        if self.db is not None and parts and self.db != number:
            raise InvalidURL("the database is given twice, in the path and as an option")
        number = self.db or number
        if number and self.scheme.endswith("+cluster"):
            raise InvalidURL("a Redis cluster has only the database 0")
        return number

    def _asking(self) -> dict[str, Any]:
        """How to authenticate to the sentinels."""
        secret = self.sentinel_password and self.sentinel_password.get_secret_value()
        found = {"username": self.sentinel_username, "password": secret}
        return {name: value for name, value in found.items() if value}


@final
class _Server:
    """Makes a client of one server."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = options

    def __call__(self, common: Mapping[str, Any]) -> Any:
        from redis.asyncio import Redis  # noqa: PLC0415 - no client before the first call

        return Redis(**self._options, **common)


@final
class _Cluster:
    """Makes a client of a cluster."""

    def __init__(self, nodes: list[tuple[str, int]], options: Mapping[str, Any]) -> None:
        self._nodes = nodes
        self._options = {name: value for name, value in options.items() if name != "db"}

    def __call__(self, common: Mapping[str, Any]) -> Any:
        from redis.asyncio.cluster import ClusterNode, RedisCluster  # noqa: PLC0415 - as above

        nodes = [ClusterNode(host, port) for host, port in self._nodes]
        return RedisCluster(startup_nodes=nodes, **self._options, **common)


@final
class _Sentinels:
    """Makes a client of whichever server is the service's master now."""

    def __init__(
        self,
        hosts: list[tuple[str, int]],
        service: str,
        asking: Mapping[str, Any],
        options: Mapping[str, Any],
    ) -> None:
        self._hosts = hosts
        self._service = service
        self._asking = asking
        self._options = options

    def __call__(self, common: Mapping[str, Any]) -> Any:
        from redis.asyncio import sentinel  # noqa: PLC0415 - as above

        make: Any = sentinel.Sentinel  # redis-py gives it no types
        sentinels = make(self._hosts, sentinel_kwargs={**common, **self._asking})
        return sentinels.master_for(self._service, **self._options, **common)


@final
class RedisDriver:
    """Records on one Redis, or spread over a cluster; *connect* makes the client."""

    def __init__(
        self,
        connect: Callable[[Mapping[str, Any]], Any],
        *,
        prefix: str = "toolnexus",
        ttl: timedelta | None = None,
        pool_size: int = 10,
    ) -> None:
        self._connect = connect
        self._prefix = prefix
        self._ttl = "" if ttl is None else str(int(ttl.total_seconds() * 1000))
        self._places = asyncio.Semaphore(pool_size)
        self._client: Any = None

    async def open(self) -> None:
        """See `Driver.open`."""
        from redis.asyncio.retry import Retry  # noqa: PLC0415 - as above
        from redis.backoff import NoBackoff  # noqa: PLC0415

        # Not tried again by the client: the store does that, and resolves what is ambiguous.
        once = Retry(NoBackoff(), 0)
        client = self._connect({"retry": once, "decode_responses": False})
        try:
            await _warn_of_losses(client)
        except BaseException:
            await _closed(client)
            raise
        self._client = client

    async def head(self, key: str) -> Head | None:
        """See `Driver.head`."""
        head, _ = self._names(key)
        async with self._place() as client:
            return _head(await client.hmget(head, "version", "meta"))

    async def read(self, key: str) -> Record | None:
        """See `Driver.read`."""
        head, texts = self._names(key)
        async with self._place() as client, client.pipeline(transaction=True) as pipeline:
            pipeline.hmget(head, "version", "meta")
            pipeline.lrange(texts, 0, -1)
            found, stored = await pipeline.execute()
        read = _head(found)
        if read is None and stored:
            raise Damaged("its head is missing, evicted perhaps", where=self.where(key))
        return None if read is None else Record(read, stored)

    async def write(self, key: str, edit: Edit) -> Version:
        """See `Driver.write`."""
        version = secrets.token_hex(8)
        arguments = (edit.expected or "", version, edit.meta, edit.keep, self._ttl, *edit.tail)
        async with self._place() as client:
            if not await _evaluated(client, _WRITE, self._names(key), arguments):
                raise Conflict(f"the version of {key} is another one")
        return version

    async def delete(self, key: str) -> bool:
        """See `Driver.delete`."""
        async with self._place() as client:
            return bool(await client.delete(*self._names(key)))

    async def keys(self, prefix: str) -> AsyncIterator[str]:
        """See `Driver.keys`. Walks over all keys of the database, whosever they are."""
        start = f"{{{self._prefix}:".encode()
        pattern = re.sub(rb"([*?\[\]\\^])", rb"\\\1", start + prefix.encode()) + b"*}" + _HEAD
        seen: set[bytes] = set()  # SCAN gives a key more than once when tables are resized
        async with self._place() as client:
            async for name in client.scan_iter(match=pattern, count=1_000):
                if name not in seen:
                    seen.add(name)
                    yield name[len(start) : -len(b"}" + _HEAD)].decode("ascii")

    async def close(self) -> None:
        """See `Driver.close`."""
        if self._client is not None:
            await _closed(self._client)

    def explain(self, error: Exception) -> Fault | None:
        """See `Driver.explain`."""
        from redis import exceptions  # noqa: PLC0415 - as above

        for kind, fault in _FAULTS.items():
            if isinstance(error, getattr(exceptions, kind)):
                return fault
        if isinstance(error, exceptions.ResponseError):
            code = str(error).partition(" ")[0]
            return _REFUSALS.get(code, Fault("the server refused the command"))
        if isinstance(error, exceptions.RedisError | OSError):
            return Fault("the connection to the server broke", transient=True, ambiguous=True)
        return None

    def where(self, key: str) -> str:
        """The names of the keys."""
        return " and ".join(name.decode() for name in self._names(key))

    def _names(self, key: str) -> tuple[bytes, bytes]:
        """The head and the texts; the braces keep both on one node of a cluster."""
        tag = f"{{{self._prefix}:{key}}}".encode()
        return tag + _HEAD, tag + _TEXTS

    @asynccontextmanager
    async def _place(self) -> AsyncIterator[Any]:
        """The client, when one of the places is free."""
        if self._client is None:
            raise RuntimeError("the driver is not open")
        async with self._places:
            yield self._client


async def _closed(client: Any) -> None:
    """Close *client*, and the sentinels that it asks, which it leaves open."""
    await client.aclose()
    pool = getattr(client, "connection_pool", None)
    sentinels = getattr(getattr(pool, "sentinel_manager", None), "sentinels", ())
    for each in sentinels:
        await each.aclose()


async def _evaluated(
    client: Any, script: str, keys: tuple[bytes, ...], arguments: tuple[Any, ...]
) -> Any:
    """The result of *script*, sent by its digest once the server knows it."""
    import hashlib  # noqa: PLC0415 - SHA-1 names scripts, it guards nothing

    from redis.exceptions import NoScriptError  # noqa: PLC0415 - as above

    digest = hashlib.sha1(script.encode(), usedforsecurity=False).hexdigest()
    try:
        return await client.evalsha(digest, len(keys), *keys, *arguments)
    except NoScriptError:
        return await client.eval(script, len(keys), *keys, *arguments)


def _head(found: list[bytes | None]) -> Head | None:
    version, meta = found
    return None if version is None or meta is None else Head(version.decode(), meta)


async def _warn_of_losses(client: Any) -> None:
    """Connect, and say so in the log if the server's settings may lose conversations."""
    found = await client.info()
    # A cluster answers for one node, or for each of them by name.
    nodes = found.values() if all(isinstance(each, dict) for each in found.values()) else [found]
    for node in nodes:
        policy = str(node.get("maxmemory_policy", "noeviction"))
        if policy != "noeviction":
            _LOG.warning(
                "Redis may evict conversations when memory is short (maxmemory-policy %s): "
                "set maxmemory-policy noeviction",
                policy,
            )
            return
    if any(not node.get("aof_enabled", 1) for node in nodes):
        _LOG.warning(
            "Redis may lose the last conversations when it stops (appendonly no): "
            "set appendonly yes, and appendfsync always if none may be lost"
        )


_LOST = Fault("the connection to the server broke", transient=True, ambiguous=True)
_REFUSED = Fault("the server refused the credentials")
# By the name of the exception, the special before the general.
_FAULTS = {
    "AuthenticationError": _REFUSED,
    "AuthenticationWrongNumberOfArgsError": _REFUSED,
    "AuthorizationError": _REFUSED,
    "NoPermissionError": Fault("the user may not run a command that the store needs"),
    "BusyLoadingError": Fault("the server is loading its data", transient=True),
    "MaxConnectionsError": Fault("the server has no connection left", transient=True),
    "ReadOnlyError": Fault("the server is a read-only replica", transient=True),
    "OutOfMemoryError": Fault("the server is out of memory (maxmemory)"),
    "ClusterDownError": Fault("the cluster is down", transient=True),
    "MasterDownError": Fault("the master is down", transient=True),
    "TryAgainError": Fault("the cluster is moving the key", transient=True),
    "RedisClusterException": Fault(
        "no node of the cluster could be reached", transient=True, ambiguous=True
    ),
    "SlotNotCoveredError": Fault("the cluster does not cover the key's slot", transient=True),
    "ConnectionError": _LOST,
    "TimeoutError": _LOST,
}
_REFUSALS = {
    "OOM": _FAULTS["OutOfMemoryError"],
    "NOAUTH": _REFUSED,
    "WRONGPASS": _REFUSED,
    "NOPERM": _FAULTS["NoPermissionError"],
    "MISCONF": Fault("the server cannot write to its disk"),
    "NOREPLICAS": Fault("the server lacks replicas", transient=True),
    "BUSY": Fault("the server is busy with a script", transient=True),
    "READONLY": _FAULTS["ReadOnlyError"],
    "LOADING": _FAULTS["BusyLoadingError"],
    "WRONGTYPE": Fault("a key of the store holds something else"),
}
