"""A TCP proxy that cuts, after exactly so many bytes, and one that delivers late.

Between a store and its server: `rerouted` rewrites host and port of a store's URL. Bytes are
counted from `Proxy.arm` on, over all connections and by direction: "out" to the server, "back" to
the store. When the chosen number has passed, the fault fires, once:

- ``rst``: both sides see a reset; ``fin``: both see an orderly end;
- ``half``: whom the bytes were for sees an end, and the other direction stays;
- ``hang``: nothing more passes, and nobody is told;
- ``late``: what the store sends from there on is kept and the store sees a reset, the server
  nothing; `Proxy.deliver` sends it on, when the store has long gone on without it.

Limits: one host, TCP, no TLS: a certificate would be for another name.
"""

from __future__ import annotations

import asyncio
import re
import socket
import struct
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Self, TypeAlias, final, get_args
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from toolnexus_stores_contract.check import NotApplicable

if TYPE_CHECKING:
    from asyncio import StreamReader, StreamWriter
    from types import TracebackType

__all__ = [
    "DIRECTIONS",
    "HOWS",
    "Cut",
    "Direction",
    "How",
    "Proxy",
    "Route",
    "is_served",
    "rerouted",
    "route_of",
]

Direction: TypeAlias = Literal["out", "back"]
How: TypeAlias = Literal["rst", "fin", "half", "hang", "late"]
DIRECTIONS: tuple[Direction, ...] = get_args(Direction)
HOWS: tuple[How, ...] = get_args(How)

_SOON = 0.002  # seconds for the receiver to act on the bytes that passed before a cut
_LATE = 0.2  # seconds for a server to answer what was delivered late
_PORTS = {"postgresql": 5432, "postgres": 5432, "redis": 6379, "http": 80}
_URL = re.compile(r"[a-z][a-z0-9+]*://[^\s'\"()]+")


@dataclass(frozen=True, slots=True)
class Cut:
    """After *at* bytes in one direction, *how*."""

    direction: Direction
    at: int
    how: How

    def __str__(self) -> str:
        return f"{self.direction}:{self.at}:{self.how}"

    @classmethod
    def parse(cls, text: str) -> Cut:
        """The reverse of `str`. Raises `ValueError`."""
        direction, at, how = text.split(":")
        for known in DIRECTIONS:
            for way in HOWS:
                if (direction, how) == (known, way):
                    return cls(known, int(at), way)
        raise ValueError(f"not a cut: {text}")


@dataclass(frozen=True, slots=True)
class Route:
    """Where a store's server is, and where in its factory's name that is said."""

    factory: str
    url: str
    host: str
    port: int


def route_of(factory: str) -> Route:
    """The way to the server of the URL in *factory*. Raises `NotApplicable` if there is none."""
    found = _URL.search(factory)
    if found is None:
        raise NotApplicable("the wire can be cut only if the factory's name holds a URL")
    url = found[0]
    endpoint = dict(parse_qsl(urlsplit(url).query)).get("endpoint_url", url)
    parts = urlsplit(endpoint)
    try:
        host, port = parts.hostname, parts.port or _PORTS.get(parts.scheme.partition("+")[0])
    except ValueError:  # several hosts
        host = port = None
    if not host or port is None or "," in parts.netloc:
        raise NotApplicable(f"no plain TCP server of its own behind {parts.scheme}://")
    return Route(factory, url, host, port)


def is_served(factory: str) -> bool:
    """Whether *factory* holds the URL of a server that `route_of` finds the way to."""
    try:
        route_of(factory)
    except NotApplicable:
        return False
    return True


def rerouted(route: Route, port: int) -> str:
    """The factory of *route*, with its server at *port* of 127.0.0.1."""
    parts = urlsplit(route.url)
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    if "endpoint_url" in query:
        query["endpoint_url"] = _moved(query["endpoint_url"], port)
        url = parts._replace(query=urlencode(query, quote_via=quote)).geturl()
    else:
        url = _moved(route.url, port)
    return route.factory.replace(route.url, url)


def _moved(url: str, port: int) -> str:
    parts = urlsplit(url)
    user, at, _ = parts.netloc.rpartition("@")
    return parts._replace(netloc=f"{user}{at}127.0.0.1:{port}").geturl()


@final
class Proxy:
    """Listens on 127.0.0.1 and passes everything on to *host* and *port*, until it is armed."""

    def __init__(self, host: str, port: int) -> None:
        self._upstream = (host, port)
        self._connections: set[_Connection] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._cut: Cut | None = None
        self.port = 0
        self.passed: dict[Direction, int] = {"out": 0, "back": 0}
        """Bytes since it was armed."""

        self.fired = False
        """Whether the fault of the last `arm` has come about."""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._server is not None:
            self._server.close()
        for each in list(self._connections):
            each.reset()
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=2)
            for task in late:  # it waits for the server still
                task.cancel()
        await asyncio.sleep(0)  # a transport closes its socket in the loop's next turn

    def arm(self, cut: Cut | None = None) -> None:
        """Count from here, and make *cut* when its number has passed."""
        self._cut, self.fired = cut, False
        self.passed = {"out": 0, "back": 0}

    def disarm(self) -> None:
        """Let everything pass; connections that hang are reset."""
        self._cut = None
        for each in [each for each in self._connections if each.hangs]:
            each.reset()

    async def deliver(self) -> int:
        """Send on what was kept; how many bytes. The server gets time to act on it."""
        late = [each for each in self._connections if each.kept]
        count = sum(len(each.kept) for each in late)
        for each in late:
            await each.deliver()
        return count

    def allowed(self, direction: Direction, size: int) -> int | None:
        """How many of the next *size* bytes pass before the cut; None if it is not among them."""
        cut = self._cut
        passed = self.passed[direction]
        if cut and not self.fired and cut.direction == direction and passed + size > cut.at:
            self.fired = True
            self.passed[direction] = cut.at
            return cut.at - passed
        self.passed[direction] += size
        return None

    @property
    def how(self) -> How:
        """What happens at the cut."""
        return self._cut.how if self._cut else "rst"

    async def _accept(self, reader: StreamReader, writer: StreamWriter) -> None:
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        await asyncio.wait([task])

    async def _serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        try:
            upstream = await asyncio.open_connection(*self._upstream)
        except OSError:
            writer.close()
            return
        except asyncio.CancelledError:
            writer.transport.abort()
            raise
        connection = _Connection(self, (reader, writer), upstream)
        self._connections.add(connection)
        try:
            await connection.run()
        finally:
            self._connections.discard(connection)


@final
class _Connection:
    """One connection of the store, and the one to the server that belongs to it."""

    def __init__(
        self,
        proxy: Proxy,
        store: tuple[StreamReader, StreamWriter],
        server: tuple[StreamReader, StreamWriter],
    ) -> None:
        self._proxy = proxy
        self._store, self._server = store, server
        self._over = asyncio.Event()
        self._abandoned = False
        self._answered = asyncio.Event()
        self.hangs = False
        self.kept = b""
        for _, writer in (store, server):
            writer.transport.get_extra_info("socket").setsockopt(
                socket.IPPROTO_TCP, socket.TCP_NODELAY, 1
            )

    async def run(self) -> None:
        """Pass bytes both ways until both ends are over."""
        ways = (
            self._pump("out", self._store[0], self._server[1]),
            self._pump("back", self._server[0], self._store[1]),
        )
        with suppress(OSError):
            await asyncio.gather(*ways)
        self._close()

    def reset(self) -> None:
        """Both sides see a reset."""
        for _, writer in (self._store, self._server):
            _reset(writer)
        self._over.set()

    async def deliver(self) -> None:
        """Send on what was kept, wait for the server to answer, and end."""
        writer = self._server[1]
        writer.write(self.kept)
        self.kept = b""
        with suppress(OSError):
            await writer.drain()
        with suppress(TimeoutError):
            async with asyncio.timeout(_LATE):
                await self._answered.wait()
        self.reset()

    def _close(self) -> None:
        for _, writer in (self._store, self._server):
            writer.close()
        self._over.set()

    async def _pump(self, way: Direction, reader: StreamReader, writer: StreamWriter) -> None:
        while data := await reader.read(65536):
            if self._abandoned:  # nobody is there who would hear the answer
                self._answered.set()
                continue
            count = self._proxy.allowed(way, len(data))
            if count is not None:
                await self._fail(writer, data, count)
                return
            writer.write(data)
            await writer.drain()
        self._answered.set()
        with suppress(OSError):
            writer.write_eof()

    async def _fail(self, writer: StreamWriter, data: bytes, count: int) -> None:
        how = self._proxy.how
        if count:
            writer.write(data[:count])
            await writer.drain()
        if how == "late":
            self.kept, self._abandoned = data[count:], True
            self._answered.clear()
            _reset(self._store[1])
            await self._over.wait()
            return
        await asyncio.sleep(_SOON)
        if how == "rst":
            self.reset()
        elif how == "fin":
            self._close()
        else:
            if how == "half":
                with suppress(OSError):
                    writer.write_eof()
            self.hangs = True
            await self._over.wait()


def _reset(writer: StreamWriter) -> None:
    """End it without the usual goodbye (socket(7), SO_LINGER)."""
    with suppress(OSError):
        writer.transport.get_extra_info("socket").setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
        )
    writer.transport.abort()
