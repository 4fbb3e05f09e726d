"""What every test server has in common, and how one is obtained."""

import contextlib
import os
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import ClassVar, Literal, Protocol, TypeVar, get_args
from urllib.parse import urlencode, urlsplit

from .net import wait_until

Source = Literal["environment", "docker", "binary", "wheel"]
SOURCES: tuple[Source, ...] = get_args(Source)
OURS = SOURCES[1:]
START_TIMEOUT = 30.0
ATTEMPTS = 3


class NoServerError(RuntimeError):
    """A backend has no server on this machine; the message says what to install."""


class NotOfferedError(Exception):
    """One source has no server to offer, for the reason given; the next one may."""


class ServerDiedError(RuntimeError):
    """The server process ended by itself; the message holds the end of its log."""


class NotOursError(RuntimeError):
    """A test wanted to stop a server that was running before the tests were."""


class ImpostorError(RuntimeError):
    """Something else answers where our server should."""


class Runner(Protocol):
    """What starts and ends a server: a process, a container, or nothing of ours."""

    @property
    def pid(self) -> int | None:
        """Its process id here, if it has one."""
        ...

    @property
    def directory(self) -> Path | None:
        """Its private directory here, if it has one."""
        ...

    @property
    def running(self) -> bool:
        """Whether it is up, as far as one can tell without asking the server."""
        ...

    def start(self) -> None:
        """Start it; it may not answer yet. No effect while it runs."""
        ...

    def check(self) -> None:
        """Raise `ServerDiedError` if it ended by itself."""
        ...

    def stop(self) -> None:
        """End it in its own orderly way, keeping its data."""
        ...

    def kill(self) -> None:
        """End it at once, keeping its data."""
        ...

    def close(self) -> None:
        """End it for good and remove its data."""
        ...


class Foreign:
    """A server that somebody else runs: used, never stopped."""

    pid: int | None = None
    directory: Path | None = None
    running = True

    def start(self) -> None: ...

    def check(self) -> None: ...

    def stop(self) -> None:
        raise NotOursError("this server was given by its URL; take a fresh one to stop it")

    kill = stop

    def close(self) -> None: ...


class Server(ABC):
    """A server for tests; `url` is what `open_store` takes.

    `start` returns when it answers and is known to be the one that was started; after `stop` or
    `kill` it is gone, and `start` brings it back on the same URL with what it had made durable.
    All of them block: an async test calls them through `asyncio.to_thread`.
    """

    transient: ClassVar[tuple[type[Exception], ...]] = (OSError,)
    """What its client raises while it is not up yet."""

    def __init__(self, runner: Runner, *, url: str, obtained: str) -> None:
        self.url = url
        self.kind = obtained
        self._obtained = obtained
        self._runner = runner
        self._spaces: list[str] = []

    @abstractmethod
    def identify(self) -> str:
        """Return its name and version, asked over the network.

        Raises `ImpostorError` when the one that answers is not the one that was started.
        """

    @property
    def running(self) -> bool:
        """Whether it is up."""
        return self._runner.running

    @property
    def pid(self) -> int | None:
        """Its process id while it runs, if it is a process of this machine."""
        return self._runner.pid

    @property
    def directory(self) -> Path | None:
        """Its private directory, if it is a process of this machine."""
        return self._runner.directory

    def start(self) -> None:
        """Start it and wait until it answers. No effect while it runs."""
        self._runner.start()
        wait_until(self._answers, timeout=START_TIMEOUT, what="start", transient=self.transient)

    def _answers(self) -> bool:
        self._runner.check()
        self.kind = f"{self._obtained}: {self.identify()}"
        return True

    def stop(self) -> None:
        """End it in its own orderly way, keeping its data."""
        self._runner.stop()

    def kill(self) -> None:
        """End it at once (SIGKILL), keeping its data."""
        self._runner.kill()

    def restart(self) -> None:
        """Stop it and start it again."""
        self.stop()
        self.start()

    def close(self) -> None:
        """End it for good and remove its data; of a server that isn't ours only what we stored."""
        if isinstance(self._runner, Foreign):
            for space in self._spaces:
                self._clear(space)
        self._runner.close()

    def fresh_url(self) -> str:
        """Return a URL like `url` over storage of its own, which is empty."""
        self._spaces.append(f"t{secrets.token_hex(8)}")
        return self._url_of(self._spaces[-1])

    def _url_of(self, space: str) -> str:
        return with_options(self.url, scope=space)

    @abstractmethod
    def _clear(self, space: str) -> None:
        """Remove what was stored through the `fresh_url` of *space*."""


def with_options(url: str, **options: str) -> str:
    """Return *url* with more options in its query."""
    parts = urlsplit(url)
    query = "&".join(filter(None, [parts.query, urlencode(options)]))
    return parts._replace(query=query).geturl()


S = TypeVar("S", bound=Server)


def obtain(
    name: str,
    makers: Mapping[Source, Callable[[], S]],
    *,
    sources: tuple[Source, ...],
    advice: str,
) -> S:
    """Return a started server from the first source that offers one.

    A source that offers one which then does not start is an error, not a reason to go on.
    Raises `NoServerError` with every source's reason and the *advice*.
    """
    reasons = []
    for source in sources:
        try:
            _require_allowed(source)
            return _first_started(makers[source])
        except NotOfferedError as exc:
            reasons.append(f"  {source}: {exc}")
    raise NoServerError("\n".join([f"no {name} for the tests", *reasons, advice]))


def _require_allowed(source: Source) -> None:
    """Heed `TOOLNEXUS_TEST_SOURCES`, which is how one of them is tried by itself."""
    asked = os.environ.get("TOOLNEXUS_TEST_SOURCES")
    if asked and source not in asked.split(","):
        raise NotOfferedError("not in TOOLNEXUS_TEST_SOURCES")


def _first_started(make: Callable[[], S]) -> S:
    """Make and start one, again if somebody took its port in between."""
    for _ in range(ATTEMPTS - 1):
        with contextlib.suppress(ServerDiedError, ImpostorError):
            return _started(make())
    return _started(make())


def _started(server: S) -> S:
    try:
        server.start()
    except BaseException:
        server.close()
        raise
    return server


def from_environment(variable: str) -> str:
    """Return the URL in *variable*; raises `NotOfferedError` without one."""
    url = os.environ.get(variable)
    if not url:
        raise NotOfferedError(f"{variable} is not set")
    return url
