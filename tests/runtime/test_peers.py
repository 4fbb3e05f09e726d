"""A remote peer over A2A: the ``contextId`` that it chose is the conversation id."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest
from toolnexus import create_toolkit

from .dialects import Reply, said_by
from .other_process import as_json, read_elsewhere

if TYPE_CHECKING:
    from collections.abc import Callable

    from toolnexus_stores import Store

    from .conftest import MakeClient, Serve
    from .model_server import Asked

    Opened = Callable[..., Store]

DEADLINE = 10


def count(asked: Asked) -> Reply:
    return Reply(f"you have spoken {len(said_by('user', asked.messages))} times")


def send(url: str, text: str, context: str) -> str:
    """Send *text* as a peer does; the id of the task that the server made of it."""
    message = {
        "role": "user",
        "contextId": context,
        "parts": [{"kind": "text", "text": text}],
    }
    call = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
    with urllib.request.urlopen(url, json.dumps(call).encode(), timeout=DEADLINE) as answer:
        task: str = json.load(answer)["result"]["id"]
    return task


@pytest.mark.parametrize("context", ["ctx-1", "../../etc/\x00 \U0001f436 'CTX-1'" * 200])
async def test_a_peers_turns_are_remembered_by_its_context_id(
    durable_url: str, opened: Opened, serve: Serve, make_client: MakeClient, context: str
) -> None:
    ended: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    toolkit = await create_toolkit(builtins=False)
    client = make_client(serve(count), opened(durable_url))
    server = await toolkit.serve(
        "127.0.0.1:0", client=client, a2a={"name": "desk"}, on_task=ended.put_nowait
    )
    try:
        outcomes = []
        for text, where in [("one", context), ("two", context), ("other", "ctx-2")]:
            task = await asyncio.to_thread(send, server.url, text, where)
            event = await asyncio.wait_for(ended.get(), DEADLINE)
            assert (event["id"], event["state"]) == (task, "completed")
            outcomes.append(event["result"])
    finally:
        await server.stop()
        await toolkit.close()

    assert [outcome.text for outcome in outcomes] == [
        "you have spoken 1 times",
        "you have spoken 2 times",
        "you have spoken 1 times",
    ]
    assert said_by("user", outcomes[1].messages) == ["one", "two"]
    assert as_json(read_elsewhere(durable_url)) == as_json(
        {context: outcomes[1].messages, "ctx-2": outcomes[2].messages}
    )
