"""One store under many event loops: one after the other, side by side, and one inside another."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from toolnexus_stores import Store, open_store

from .dialects import Call, Reply, results_in, said_by
from .model_server import in_turn
from .other_process import as_json, read_elsewhere
from .toolkits import toolkit_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .conftest import MakeClient, Serve
    from .dialects import Message
    from .model_server import Asked

DEADLINE = 20
THREADS = 4
TURNS = 3


@pytest.fixture
def store(durable_url: str) -> Iterator[Store]:
    """A fresh store on each durable backend, for tests that have no loop of their own."""
    store = open_store(durable_url)
    yield store
    asyncio.run(store.close())


def count(asked: Asked) -> Reply:
    return Reply(f"answer {len(said_by('user', asked.messages))}")


def test_two_runs_one_after_the_other(
    durable_url: str, store: Store, serve: Serve, make_client: MakeClient
) -> None:
    client = make_client(serve(count), store)
    asyncio.run(client.ask("one", id="chat"))
    result = asyncio.run(client.ask("two", id="chat"))

    assert said_by("user", result.messages) == ["one", "two"]
    assert said_by("assistant", result.messages) == ["answer 1", "answer 2"]
    assert as_json(read_elsewhere(durable_url)) == as_json({"chat": result.messages})


def test_threads_with_loops_of_their_own(
    durable_url: str, store: Store, serve: Serve, make_client: MakeClient
) -> None:
    client = make_client(serve(count), store)
    together = threading.Barrier(THREADS)

    async def talk(id: str) -> list[Message]:
        messages: list[Message] = []
        for turn in range(TURNS):
            together.wait(DEADLINE)  # blocks this thread's own loop, so that all turns coincide
            messages = (await client.ask(f"{id} turn {turn}", id=id)).messages
        return messages

    ids = [f"chat-{number}" for number in range(THREADS)]
    with ThreadPoolExecutor(THREADS) as threads:
        transcripts = list(threads.map(lambda each: asyncio.run(talk(each)), ids))

    for id, messages in zip(ids, transcripts, strict=True):
        assert said_by("user", messages) == [f"{id} turn {turn}" for turn in range(TURNS)]
        assert said_by("assistant", messages) == ["answer 1", "answer 2", "answer 3"]
    assert as_json(read_elsewhere(durable_url)) == as_json(dict(zip(ids, transcripts, strict=True)))


def test_a_tool_that_runs_a_loop_of_its_own(
    durable_url: str, store: Store, serve: Serve, make_client: MakeClient
) -> None:
    expert = make_client(serve(in_turn(Reply("Use yeast."))), store)
    heard: list[list[Message]] = []

    def ask_expert(question: str) -> str:
        # The runtime calls a plain function in a worker thread while its own loop is live.
        asyncio.run(store.save("notes", [{"role": "note", "content": question}]))
        result = asyncio.run(expert.ask(question, id="expert"))
        heard.append(result.messages)
        text: str = result.text
        return text

    call = Call("q", "ask_expert", {"question": "How does bread rise?"})
    baker = make_client(serve(in_turn(Reply(calls=(call,)), Reply("With yeast."))), store)

    async def bake() -> list[Message]:
        toolkit = await toolkit_of(ask_expert)
        messages: list[Message] = (await baker.ask("Bread?", toolkit, id="baker")).messages
        return messages

    messages = asyncio.run(bake())

    assert results_in(messages) == [("q", "Use yeast.")]
    [inner] = heard
    assert said_by("user", inner) == ["How does bread rise?"]
    assert said_by("assistant", inner) == ["Use yeast."]
    note = {"role": "note", "content": "How does bread rise?"}
    assert as_json(read_elsewhere(durable_url)) == as_json(
        {"baker": messages, "expert": inner, "notes": [note]}
    )
