"""The same conversation on every backend, by the URL alone; memory as the runtime has it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolnexus import InMemoryConversationStore, create_client

from tests.conftest import DURABLE, url_of
from tests.runtime.dialects import Call, Reply
from tests.runtime.model_server import ModelServer, in_turn
from tests.runtime.other_process import as_json, read_elsewhere
from tests.runtime.toolkits import toolkit_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    import pytest
    from toolnexus_stores import Store


async def talk(store: Any) -> list[dict[str, Any]]:
    """Two turns of an agent with a tool over *store*."""

    def track(order: int) -> str:
        return f"order {order} is in Lyon\x00"

    call = Call("call-1", "track", {"order": 4711})
    replies = (Reply("Let me look.", (call,)), Reply("It is in Lyon."), Reply("You are welcome."))
    with ModelServer(in_turn(*replies)) as model:
        client = create_client(
            base_url=model.url, style="openai", model="m", api_key="none", store=store
        )
        toolkit = await toolkit_of(track)
        await client.ask("Where is 4711?", toolkit, id="chat")
        result = await client.ask("Thank you.", toolkit, id="chat")
    messages: list[dict[str, Any]] = result.messages
    return messages


async def test_the_url_alone_decides_where_a_conversation_is(
    request: pytest.FixtureRequest, opened: Callable[..., Store]
) -> None:
    expected = as_json({"chat": await talk(InMemoryConversationStore())})
    for backend in DURABLE:
        url = url_of(backend, request)
        await talk(opened(url))
        assert as_json(read_elsewhere(url)) == expected, backend
