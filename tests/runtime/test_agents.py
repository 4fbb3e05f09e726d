"""The agent runtime over a durable store: delegation, suspension, interrupts, the completion gate.

An agent's conversation id is its handle id. What its transcript must be is known from the other
side of the wire: what the model was last shown, and what it said to that.
"""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest
from toolnexus import Answer, ToolResult, pending
from toolnexus.agents import Agent, AgentRuntime, Completion, Handle, Verdict, agent

from .dialects import Call, Reply, anthropic_body, calls_in, openai_body, results_in, said_by
from .model_server import in_turn
from .other_process import as_json, read_elsewhere
from .toolkits import tool

if TYPE_CHECKING:
    from collections.abc import Callable

    from toolnexus import ToolContext
    from toolnexus.agents import TaskResult
    from toolnexus_stores import Store

    from .conftest import Serve
    from .dialects import Message, Style
    from .model_server import Asked, ModelServer

    Start = Callable[..., AgentRuntime]

DEADLINE = 10


@pytest.fixture
def start(style: Style) -> Start:
    """An agent runtime whose agents talk to a model server in this dialect."""

    def make(who: Agent, model: ModelServer, store: Store) -> AgentRuntime:
        return AgentRuntime(registry=who.registry(), llm=llm(model, style), store=store)

    return make


def llm(model: ModelServer, style: Style) -> dict[str, Any]:
    return {"base_url": model.url, "style": style, "model": "scripted", "api_key": "none needed"}


def shown_and_said(asked: Asked, reply: Reply) -> list[Message]:
    """The transcript in which *asked* was the last request and *reply* the answer to it."""
    if asked.style == "openai":
        return [*asked.messages, openai_body(reply)["choices"][0]["message"]]
    content = anthropic_body(reply)["content"]
    return [*asked.messages, {"role": "assistant", "content": content}]


def last_asked(model: ModelServer, soul: str) -> Asked:
    """The last request that the agent with this soul made."""
    return [asked for asked in model.asked if soul in asked.system][-1]


def spawned(runtime: AgentRuntime, name: str) -> Handle:
    handle = runtime.spawn(runtime.root, name)
    assert isinstance(handle, Handle)
    return handle


def approval_of(suspended: TaskResult) -> Answer:
    assert suspended.pending is not None
    return Answer(id=suspended.pending.id, ok=True)


def team() -> Agent:
    helper = agent("helper", does="finds things", soul="You are HELPER.")
    return agent("lead", does="delegates", soul="You are LEAD.", team=[helper])


def delegate(asked: Asked) -> Reply:
    """The lead hands its prompt on; the helper answers; the lead repeats what it was told."""
    if "HELPER" in asked.system:
        return Reply(f"the key is under the {said_by('user', asked.messages)[-1]}")
    results = results_in(asked.messages)
    if results:
        return Reply(f"I heard: {results[-1][1]}")
    place = said_by("user", asked.messages)[-1]
    return Reply(calls=(Call("t1", "task", {"agent": "helper", "prompt": place}),))


async def test_delegation_keeps_the_parent_and_the_child(
    durable_url: str, store: Store, serve: Serve, style: Style
) -> None:
    model = serve(delegate)
    result = await team().run("mat", llm=llm(model, style), store=store)

    assert result.text == "I heard: the key is under the mat"
    lead = shown_and_said(last_asked(model, "LEAD"), Reply(result.text))
    helper = shown_and_said(last_asked(model, "HELPER"), Reply("the key is under the mat"))
    assert results_in(lead) == [("t1", "the key is under the mat")]
    assert said_by("user", helper) == ["mat"]
    assert as_json(read_elsewhere(durable_url)) == as_json(
        {"root/lead.1": lead, "root/lead.1/helper.1": helper}
    )


async def test_scopes_keep_two_users_agents_apart(
    durable_url: str, store: Store, serve: Serve, style: Style
) -> None:
    model = serve(delegate)
    places = {"user-1": "mat", "user-2": "pot"}
    for user, place in places.items():
        await team().run(place, llm=llm(model, style), store=store.scoped(user))

    for user, place in places.items():
        found = read_elsewhere(durable_url, scope=user)
        assert sorted(found) == ["root/lead.1", "root/lead.1/helper.1"]
        assert said_by("user", found["root/lead.1"]) == [place]
        assert results_in(found["root/lead.1"]) == [("t1", f"the key is under the {place}")]
    assert as_json(read_elsewhere(durable_url)) == as_json({})


def approval_agent() -> Agent:
    async def refund(ctx: ToolContext | None = None) -> ToolResult:
        if ctx is not None and ctx.answer is not None and ctx.answer.ok:
            return ToolResult("refunded", is_error=False)
        return pending(kind="approval", prompt="Approve the refund?")

    return agent("desk", does="refunds", soul="You are DESK.", uses={"tools": [tool(refund)]})


def refund_on_request(asked: Asked) -> Reply:
    """Calls the refund tool when the last message asks for it, and says what came of anything."""
    last = asked.messages[-1:]
    if results_in(last):
        return Reply(f"Outcome: {results_in(last)[0][1]}")
    if "refund" in said_by("user", last)[0]:
        return Reply(calls=(Call("r1", "refund"),))
    return Reply("Hello.")


async def test_a_suspended_first_turn_is_rolled_back_to_an_empty_transcript(
    durable_url: str, store: Store, serve: Serve, start: Start
) -> None:
    model = serve(refund_on_request)
    runtime = start(approval_agent(), model, store)
    desk = spawned(runtime, "desk")
    suspended = await runtime.run_turn(desk, "refund me")

    assert suspended.status == "pending"
    assert as_json(read_elsewhere(durable_url)) == as_json({"root/desk.1": []})

    resumed = await runtime.resume(approval_of(suspended))
    assert resumed.text == "Outcome: refunded"
    done = shown_and_said(model.asked[-1], Reply("Outcome: refunded"))
    assert (calls_in(done), results_in(done)) == ([Call("r1", "refund")], [("r1", "refunded")])
    assert as_json(read_elsewhere(durable_url)) == as_json({"root/desk.1": done})


async def test_a_suspended_later_turn_is_rolled_back_to_the_turn_before(
    durable_url: str, store: Store, serve: Serve, start: Start
) -> None:
    model = serve(refund_on_request)
    runtime = start(approval_agent(), model, store)
    desk = spawned(runtime, "desk")
    await runtime.run_turn(desk, "hello")
    greeted = shown_and_said(model.asked[-1], Reply("Hello."))
    suspended = await runtime.run_turn(desk, "refund me")

    assert suspended.status == "pending"
    assert as_json(read_elsewhere(durable_url)) == as_json({"root/desk.1": greeted})

    await runtime.resume(approval_of(suspended))
    done = shown_and_said(model.asked[-1], Reply("Outcome: refunded"))
    assert done[: len(greeted)] == greeted
    assert said_by("user", done) == ["hello", "refund me"]
    assert as_json(read_elsewhere(durable_url)) == as_json({"root/desk.1": done})


async def test_a_suspended_child_rolls_its_parent_back_too(
    durable_url: str, store: Store, serve: Serve, start: Start
) -> None:
    def script(asked: Asked) -> Reply:
        if "DESK" in asked.system:
            return refund_on_request(asked)
        results = results_in(asked.messages)
        if results:
            return Reply(f"Desk said: {results[-1][1]}")
        call = Call("t1", "task", {"agent": "desk", "prompt": "refund this"})
        return Reply(calls=(call,))

    boss = agent("boss", does="delegates", soul="You are BOSS.", team=[approval_agent()])
    model = serve(script)
    runtime = start(boss, model, store)
    suspended = await runtime.run_turn(spawned(runtime, "boss"), "Get my money back.")

    assert suspended.status == "pending"
    assert as_json(read_elsewhere(durable_url)) == as_json(
        {"root/boss.1": [], "root/boss.1/desk.1": []}
    )

    resumed = await runtime.resume(approval_of(suspended))
    assert resumed.text == "Desk said: Outcome: refunded"
    desk = shown_and_said(last_asked(model, "DESK"), Reply("Outcome: refunded"))
    parent = shown_and_said(last_asked(model, "BOSS"), Reply(resumed.text))
    assert results_in(desk) == [("r1", "refunded")]
    assert results_in(parent) == [("t1", "Outcome: refunded")]
    assert as_json(read_elsewhere(durable_url)) == as_json(
        {"root/boss.1": parent, "root/boss.1/desk.1": desk}
    )


async def test_an_interrupted_turn_leaves_no_trace(
    durable_url: str, store: Store, serve: Serve, start: Start
) -> None:
    asked_slowly, let_go = threading.Event(), threading.Event()

    def script(asked: Asked) -> Reply:
        if said_by("user", asked.messages)[-1] == "think":
            asked_slowly.set()
            assert let_go.wait(DEADLINE)
        return Reply(f"turn {len(said_by('user', asked.messages))}")

    model = serve(script)
    runtime = start(agent("muse", does="thinks", soul="You are MUSE."), model, store)
    muse = spawned(runtime, "muse")
    await runtime.run_turn(muse, "hello")
    before = shown_and_said(model.asked[-1], Reply("turn 1"))

    try:
        thinking = asyncio.create_task(runtime.run_turn(muse, "think"))
        assert await asyncio.to_thread(asked_slowly.wait, DEADLINE)
        runtime.interrupt(muse)
        assert (await thinking).status == "interrupted"
    finally:
        let_go.set()
    assert as_json(read_elsewhere(durable_url)) == as_json({"root/muse.1": before})

    await runtime.run_turn(muse, "go on")
    after = shown_and_said(model.asked[-1], Reply("turn 2"))
    assert said_by("user", after) == ["hello", "go on"]
    assert said_by("assistant", after) == ["turn 1", "turn 2"]
    assert as_json(read_elsewhere(durable_url)) == as_json({"root/muse.1": after})


async def test_every_attempt_of_a_gated_turn_is_kept(
    durable_url: str, store: Store, serve: Serve, style: Style
) -> None:
    attempts: list[int] = []

    def verify(result: object) -> Verdict:
        attempts.append(len(attempts))
        return Verdict(ok=len(attempts) == 2, reason="too short")

    model = serve(in_turn(Reply("No."), Reply("No, thank you.")))
    gate = Completion(verify=verify, max_attempts=2)
    poet = agent("poet", does="writes", soul="You are POET.", completion=gate)
    result = await poet.run("A line.", llm=llm(model, style), store=store)

    assert result.text == "No, thank you."
    done = shown_and_said(model.asked[-1], Reply("No, thank you."))
    assert said_by("assistant", done) == ["No.", "No, thank you."]
    assert "too short" in said_by("user", done)[1]
    assert as_json(read_elsewhere(durable_url)) == as_json({"root/poet.1": done})
