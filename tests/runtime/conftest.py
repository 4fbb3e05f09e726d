"""What the runtime's tests ask for: a dialect, a scripted model, clients over a store."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, cast

import pytest
from toolnexus import create_client

from .model_server import ModelServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from toolnexus import Client
    from toolnexus_stores import Store

    from .dialects import Style
    from .model_server import Script

    Serve = Callable[[Script], ModelServer]
    MakeClient = Callable[..., Client]


@pytest.fixture
def store(durable_url: str, opened: Callable[..., Store]) -> Store:
    """A fresh store on each backend that another process can read."""
    return opened(durable_url)


@pytest.fixture(params=["openai", "anthropic"])
def style(request: pytest.FixtureRequest) -> Style:
    """Each dialect that the runtime speaks."""
    return cast("Style", request.param)


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Starts a model server; when the test ends, no script may have failed unseen."""
    servers: list[ModelServer] = []
    with contextlib.ExitStack() as running:

        def start(script: Script) -> ModelServer:
            servers.append(running.enter_context(ModelServer(script)))
            return servers[-1]

        yield start
    assert [failure for server in servers for failure in server.failures] == []


@pytest.fixture
def make_client(style: Style) -> MakeClient:
    """A client of the runtime that talks to a model server in this dialect."""

    def make(model: ModelServer, store: Store, **options: Any) -> Client:
        return create_client(
            base_url=model.url,
            style=style,
            model="scripted",
            api_key="none needed",
            retries=0,
            store=store,
            **options,
        )

    return make
