"""The runtime's own compaction over our stores: seen, kept, and undone when a turn is."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from toolnexus import ToolResult, pending
from toolnexus.agents import AgentRuntime, agent
from toolnexus.agents.compaction import compactor
from toolnexus_stores import HookFailed, snapshotting

from .dialects import Call, Reply, results_in, said_by
from .model_server import in_turn
from .test_agents import approval_of, llm, spawned
from .toolkits import tool, toolkit_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from toolnexus import ToolContext
    from toolnexus_stores import Store

    from .conftest import MakeClient, Serve
    from .dialects import Message, Style
    from .model_server import Asked

    Opened = Callable[..., Store]

LONG = "x" * 400  # about a hundred tokens
Events = list[dict[str, Any]]


@pytest.fixture
def events() -> Events:
    return []


@pytest.fixture
def store(durable_url: str, opened: Opened, events: Events) -> Store:
    return opened(durable_url, snapshots=20, on_metric=events.append)


def shorten(messages: list[Message]) -> str:
    return f"{len(messages)} messages"


def at(tokens: int, summarize: Callable[[list[Message]], str] = shorten) -> Any:
    return compactor(max_tokens=tokens, keep_tail=tokens // 3, summarize=summarize)


def hooks(before_llm: Any) -> dict[str, Any]:
    return {"before_llm": before_llm}


def answer(asked: Asked) -> Reply:
    return Reply(f"answer {len(said_by('user', asked.messages))} {LONG}")


async def converse(client: Any, turns: int, id: str = "chat") -> list[Message]:
    messages: list[Message] = []
    for n in range(turns):
        messages = (await client.ask(f"question {n} {LONG}", id=id)).messages
    return messages


def told(messages: list[Message]) -> set[str]:
    """The questions that are in *messages*, by number."""
    return {text.split()[1] for text in said_by("user", messages) if text.startswith("question")}


async def every_question_is_kept(store: Store, turns: int, id: str = "chat") -> None:
    kept = await store.snapshots(id)
    found = told(await store.get(id) or [])
    for each in kept:
        found |= told(await store.restore(id, each.digest))
    assert found == {str(n) for n in range(turns)}
    assert (await store.verify(id)).ok


async def test_the_store_alone_keeps_what_was_stored(
    store: Store, serve: Serve, make_client: MakeClient, events: Events
) -> None:
    client = make_client(serve(answer), store, hooks=hooks(at(700)))
    messages = await converse(client, 8)
    assert "[Summary of earlier conversation]" in str(messages)
    assert events
    await every_question_is_kept(store, 8)


async def test_the_wrapper_keeps_what_was_never_stored(
    store: Store, serve: Serve, make_client: MakeClient, events: Events
) -> None:
    """A new conversation whose prompt is compacted away before it is ever saved."""

    def look(page: int) -> str:
        return f"page {page} {LONG * 3}"

    calls = [Call(f"call-{n}", "look", {"page": n}) for n in range(3)]
    # A tail begins at a user's message, so that a second one is needed for the first to go.
    model = serve(in_turn(*(Reply(calls=(call,)) for call in calls), Reply("done")))

    def nudge(event: dict[str, Any]) -> Any:
        extra = {"role": "user", "content": "go on"}
        return None if event["turn"] != 2 else {"messages": [*event["messages"], extra]}

    compact = at(500)

    async def nudged(event: dict[str, Any]) -> Any:
        changed = nudge(event)
        return await compact({**event, **changed}) if changed else await compact(event)

    client = make_client(model, store, hooks=hooks(snapshotting(nudged, store)))
    result = await client.ask(f"question 0 {LONG}", await toolkit_of(look), id="new")
    assert told(result.messages) == set()
    assert len(events) == 1
    (kept,) = await store.snapshots("new")
    assert kept.kind == "compaction"
    found = await store.verify("new")
    assert [(each.effect, each.snapshot) for each in found.entries] == [(True, "intact")]
    assert told(await store.restore("new", kept.digest)) == {"0"}
    assert found.ok


async def test_each_compaction_of_a_run_is_an_event(
    store: Store, serve: Serve, make_client: MakeClient, events: Events
) -> None:
    shots: list[list[Message]] = []

    def summarize(messages: list[Message]) -> str:
        return f"{len(messages)} messages"

    before_llm = snapshotting(at(400, summarize), store)

    async def noted(event: dict[str, Any]) -> Any:
        outcome = await before_llm(event)
        if outcome:
            shots.append(list(event["messages"]))
        return outcome

    client = make_client(serve(answer), store, hooks=hooks(noted))
    await converse(client, 6)
    assert len(events) == len(shots) >= 2
    assert {event["kind"] for event in events} == {"compaction"}
    kept = {each.digest for each in await store.snapshots("chat")}
    assert {event["snapshot"] for event in events} == kept
    by_digest = {event["snapshot"]: shot for event, shot in zip(events, shots, strict=True)}
    for digest, shot in by_digest.items():
        assert await store.restore("chat", digest) == shot
    assert (await store.verify("chat")).ok


async def test_an_agents_compactions_are_kept_too(
    store: Store, serve: Serve, style: Style, events: Events
) -> None:
    model = serve(answer)
    before_llm = snapshotting(at(400), store)
    poet = agent("poet", does="writes", soul="You are POET.", hooks=hooks(before_llm))
    for n in range(6):
        await poet.run(f"question {n} {LONG}", llm=llm(model, style), store=store)
    assert len(events) >= 2
    assert {event["id"] for event in events} == {"root/poet.1"}
    await every_question_is_kept(store, 6, "root/poet.1")


async def test_in_a_scope_it_is_kept_in_that_scope(
    store: Store, serve: Serve, style: Style
) -> None:
    model = serve(answer)
    poet = agent("poet", does="w", soul="POET", hooks=hooks(snapshotting(at(400), store)))
    user = store.scoped("user-42")
    for n in range(6):
        await poet.run(f"question {n} {LONG}", llm=llm(model, style), store=user)
    assert await store.snapshots("root/poet.1") == []
    await every_question_is_kept(user, 6, "root/poet.1")


async def test_a_suspended_turn_that_compacted_leaves_no_wrong_entry(
    store: Store, serve: Serve, style: Style, events: Events
) -> None:
    async def refund(ctx: ToolContext | None = None) -> ToolResult:
        if ctx is not None and ctx.answer is not None and ctx.answer.ok:
            return ToolResult("refunded", is_error=False)
        return pending(kind="approval", prompt="Approve the refund?")

    def script(asked: Asked) -> Reply:
        last = asked.messages[-1:]
        wanted = not results_in(last) and "refund" in said_by("user", last)[0]
        return Reply(calls=(Call("r1", "refund"),)) if wanted else answer(asked)

    desk = agent(
        "desk",
        does="refunds",
        soul="You are DESK.",
        uses={"tools": [tool(refund)]},
        hooks=hooks(snapshotting(at(500), store)),
    )
    runtime = AgentRuntime(registry=desk.registry(), llm=llm(serve(script), style), store=store)
    handle = spawned(runtime, "desk")
    for n in range(2):
        await runtime.run_turn(handle, f"question {n} {LONG}")
    before = await store.get("root/desk.1")
    assert events == []
    suspended = await runtime.run_turn(handle, f"question 2 refund {LONG}")

    assert suspended.status == "pending"
    assert len(events) == 1
    assert await store.get("root/desk.1") == before  # rolled back
    found = await store.verify("root/desk.1")
    assert found.ok
    assert [(each.kind, each.effect) for each in found.entries] == [
        ("compaction", True),
        ("rewind", True),
    ]
    await runtime.resume(approval_of(suspended))
    assert "[Summary" in str(await store.get("root/desk.1"))
    await every_question_is_kept(store, 3, "root/desk.1")


async def test_a_summariser_that_fails_leaves_everything_untouched(
    store: Store, serve: Serve, make_client: MakeClient, events: Events
) -> None:
    def fail(messages: list[Message]) -> str:
        raise ConnectionError("no summary today")

    model = serve(answer)
    await converse(make_client(model, store), 4)
    before = await store.get("chat")
    client = make_client(model, store, hooks=hooks(snapshotting(at(200, fail), store)))
    with pytest.raises(ConnectionError):
        await client.ask("question 4", id="chat")
    assert await store.get("chat") == before
    assert await store.snapshots("chat") == []
    assert events == []


async def test_a_veto_stops_the_run_before_it_compacts(
    durable_url: str, opened: Opened, serve: Serve, make_client: MakeClient
) -> None:
    def refuse(compaction: object) -> None:
        raise PermissionError

    store = opened(durable_url, snapshots=3, before_compaction=refuse)
    model = serve(answer)
    await converse(make_client(model, store), 4)
    before = await store.get("chat")
    asked = len(model.asked)
    client = make_client(model, store, hooks=hooks(snapshotting(at(200), store)))
    with pytest.raises(HookFailed):
        await client.ask("question 4", id="chat")
    assert await store.get("chat") == before
    assert len(model.asked) == asked  # nothing was paid for


async def test_interleaved_streams_are_told_apart(
    store: Store, serve: Serve, make_client: MakeClient, events: Events
) -> None:
    # A short answer at the end: the runtime's own queue of what is streamed is a short one.
    model = serve(lambda asked: answer(asked) if not asked.body.get("stream") else Reply("Yes."))
    plain = make_client(model, store)
    for id in ("one", "other"):
        await plain.ask(f"question 0 {LONG} {id}", id=id)
        await plain.ask(f"question 1 {LONG} {id}", id=id)
    client = make_client(model, store, hooks=hooks(snapshotting(at(300), store)))
    # Both are begun in the same task, and go on in turns.
    streams = [client.stream("question 2", id=id) for id in ("one", "other")]
    while streams:
        for stream in list(streams):
            if await anext(stream, None) is None:
                streams.remove(stream)
    assert sorted(event["id"] for event in events) == ["one", "other"]
    for id in ("one", "other"):
        (kept,) = await store.snapshots(id)
        messages = await store.restore(id, kept.digest)
        assert all(text.endswith((id, "question 2")) for text in said_by("user", messages))


async def test_a_failed_ask_does_not_lend_its_id_to_the_next_run(
    store: Store, serve: Serve, make_client: MakeClient
) -> None:
    def script(asked: Asked) -> Reply:
        fails = "fail" in said_by("user", asked.messages)[-1]
        return Reply("no credit", status=402) if fails else answer(asked)

    client = make_client(serve(script), store, hooks=hooks(snapshotting(at(250), store)))
    with pytest.raises(Exception, match="no credit"):
        await client.ask("fail", id="new")
    history = [{"role": "user", "content": f"question 0 {LONG}"}] * 3
    with pytest.raises(LookupError, match="give it id="):
        await client.run(f"question 1 {LONG}", history=history)  # stateless: it has no id
    assert await store.snapshots("new") == []


async def test_a_run_without_an_id_can_be_given_one(
    store: Store, serve: Serve, make_client: MakeClient
) -> None:
    before_llm = snapshotting(at(250), store, id="given")
    client = make_client(serve(answer), store, hooks=hooks(before_llm))
    history = [{"role": "user", "content": f"question {n} {LONG}"} for n in range(3)]
    await client.run(f"question 3 {LONG}", history=history)
    (kept,) = await store.snapshots("given")
    assert told(await store.restore("given", kept.digest)) == {"0", "1", "2", "3"}


async def test_runs_side_by_side_are_told_apart(
    store: Store, serve: Serve, make_client: MakeClient, events: Events
) -> None:
    client = make_client(serve(answer), store, hooks=hooks(snapshotting(at(400), store)))
    ids = [f"chat {n}" for n in range(5)]
    await asyncio.gather(*(converse(client, 6, id) for id in ids))
    assert {event["id"] for event in events} == set(ids)
    for id in ids:
        await every_question_is_kept(store, 6, id)


def test_a_store_without_snapshots_cannot_be_wrapped(opened: Opened) -> None:
    with pytest.raises(ValueError, match="snapshots="):
        snapshotting(at(100), opened("memory://"))
