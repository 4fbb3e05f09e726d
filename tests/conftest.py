"""What every test may ask for: the URL of each backend, and stores that are closed afterwards."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
from toolnexus_stores import Store, open_store

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

pytest_plugins = [
    "tests.servers.fixtures",
    "tests.servers.pgbouncer",
    "tests.servers.redis_groups",
]

SERVED = ("postgres", "redis", "s3")
DURABLE = ("file", "sqlite", *SERVED)
BACKENDS = ("memory", *DURABLE)


def url_of(backend: str, request: pytest.FixtureRequest) -> str:
    """A URL of *backend* whose storage is fresh: below the test's directory, or on a server."""
    if backend in SERVED:
        url: str = request.getfixturevalue(backend).fresh_url()
        return url
    return url_below(backend, request.getfixturevalue("tmp_path"))


def url_below(backend: str, place: Path) -> str:
    """A URL of a *backend* without a server, whose storage is fresh and below *place*."""
    return {
        "memory": "memory://",
        "file": f"file://{place}/transcripts",
        "sqlite": f"sqlite:///{place}/transcripts.db",
    }[backend]


@pytest.fixture(params=DURABLE)
def durable_url(request: pytest.FixtureRequest) -> str:
    """The URL of fresh storage that a second store, or a second process, can open too."""
    return url_of(request.param, request)


@pytest.fixture(params=BACKENDS)
def url(request: pytest.FixtureRequest) -> str:
    """The URL of fresh storage on each backend."""
    return url_of(request.param, request)


@pytest.fixture
async def opened() -> AsyncIterator[Callable[..., Store]]:
    """`open_store`, with every store closed when the test ends."""
    stores: list[Store] = []

    def open_and_note(url: str, **options: Any) -> Store:
        stores.append(open_store(url, **options))
        return stores[-1]

    yield open_and_note
    for store in stores:
        await store.close()


@pytest.fixture
async def store(url: str, opened: Callable[..., Store]) -> Store:
    """A fresh store on each backend."""
    return opened(url)


@pytest.fixture
def open_umask() -> Iterator[None]:
    """A process that would let everybody read what it writes."""
    before = os.umask(0)
    yield
    os.umask(before)
