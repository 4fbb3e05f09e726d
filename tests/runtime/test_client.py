"""The runtime's client over a durable store: whatever it saved, a new process reads the same."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from toolnexus import ToolResult, image, pending
from toolnexus.client import ProviderError
from toolnexus.content import to_dict

from .dialects import Call, Reply, calls_in, pictures_in, results_in, said_by
from .model_server import in_turn
from .other_process import as_json, read_elsewhere
from .toolkits import toolkit_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from toolnexus_stores import Store

    from .conftest import MakeClient, Serve
    from .dialects import Message, Style
    from .model_server import Asked

    Opened = Callable[..., Store]

PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010806000000"
    "1f15c4890000000d49444154789c63f8cfc0f01f00050001ff89993d1d"
    "0000000049454e44ae426082"
)


async def test_a_conversation_goes_on_in_a_second_store(
    durable_url: str, opened: Opened, serve: Serve, make_client: MakeClient
) -> None:
    def recall(asked: Asked) -> Reply:
        return Reply(f"{asked.system} So far: {' / '.join(said_by('user', asked.messages))}")

    model = serve(recall)
    first = make_client(model, opened(durable_url), system_prompt="Be brief.")
    await first.ask("I am Ada.", id="chat")
    second = make_client(model, opened(durable_url), system_prompt="Be brief.")
    result = await second.ask("Who am I?", id="chat")

    assert result.text == "Be brief. So far: I am Ada. / Who am I?"
    assert said_by("user", result.messages) == ["I am Ada.", "Who am I?"]
    assert said_by("assistant", result.messages)[0] == "Be brief. So far: I am Ada."
    assert as_json(read_elsewhere(durable_url)) == as_json({"chat": result.messages})


async def test_a_tool_call_keeps_its_id_arguments_and_result(
    durable_url: str, store: Store, serve: Serve, make_client: MakeClient, style: Style
) -> None:
    def track(order: int) -> str:
        return f"order {order} is in Lyon"

    call = Call("call-1", "track", {"order": 4711})
    model = serve(in_turn(Reply("Let me look.", (call,)), Reply("It is in Lyon.")))
    toolkit = await toolkit_of(track)
    result = await make_client(model, store).ask("Where is it?", toolkit, id="chat")

    found = read_elsewhere(durable_url)
    assert as_json(found) == as_json({"chat": result.messages})
    answering = {"openai": "tool", "anthropic": "user"}[style]
    assert [m["role"] for m in found["chat"]] == ["user", "assistant", answering, "assistant"]
    assert calls_in(found["chat"]) == [call]
    assert results_in(found["chat"]) == [("call-1", "order 4711 is in Lyon")]
    assert said_by("assistant", found["chat"]) == ["Let me look.", "It is in Lyon."]


async def test_parallel_tool_calls_keep_the_order_they_were_asked_in(
    durable_url: str, store: Store, serve: Serve, make_client: MakeClient
) -> None:
    last_ran = asyncio.Event()

    async def slow() -> str:
        await last_ran.wait()
        return "slow, asked first"

    async def quick() -> str:
        last_ran.set()
        return "quick, asked last"

    calls = (Call("a", "slow"), Call("b", "slow"), Call("c", "quick"))
    model = serve(in_turn(Reply(calls=calls), Reply("All done.")))
    toolkit = await toolkit_of(slow, quick)
    result = await make_client(model, store).ask("Go.", toolkit, id="chat")

    found = read_elsewhere(durable_url)
    assert as_json(found) == as_json({"chat": result.messages})
    assert calls_in(found["chat"]) == list(calls)
    assert results_in(found["chat"]) == [
        ("a", "slow, asked first"),
        ("b", "slow, asked first"),
        ("c", "quick, asked last"),
    ]


async def test_an_attached_image_is_kept_and_shown_to_the_model_again(
    durable_url: str, opened: Opened, serve: Serve, make_client: MakeClient
) -> None:
    model = serve(in_turn(Reply("A pixel."), Reply("Still a pixel.")))
    prompt = ["What is this?", image(PNG, mime_type="image/png", name="pixel.png")]
    await make_client(model, opened(durable_url)).ask(prompt, id="chat")

    found = read_elsewhere(durable_url)
    assert pictures_in(found["chat"]) == [PNG]
    assert found["chat"][0]["content"][1]["name"] == "pixel.png"

    result = await make_client(model, opened(durable_url)).ask("And now?", id="chat")
    assert model.asked[1].messages[0] == model.asked[0].messages[0]
    assert as_json(read_elsewhere(durable_url)) == as_json({"chat": result.messages})


async def test_a_tool_result_keeps_its_image(
    durable_url: str, opened: Opened, serve: Serve, make_client: MakeClient, style: Style
) -> None:
    def screenshot() -> ToolResult:
        part = image(PNG, mime_type="image/png")
        # The openai dialect takes the canonical dict only; in the other the dataclass itself
        # becomes part of the transcript and reaches `save`.
        parts: list[Any] = [to_dict(part) if style == "openai" else part]
        return ToolResult("taken", is_error=False, parts=parts)

    call = Call("shot", "screenshot")
    model = serve(in_turn(Reply(calls=(call,)), Reply("I see a pixel."), Reply("Yes.")))
    toolkit = await toolkit_of(screenshot)
    first = await make_client(model, opened(durable_url)).ask("Look.", toolkit, id="chat")

    found = read_elsewhere(durable_url)
    assert pictures_in(found["chat"]) == [PNG]
    assert results_in(found["chat"]) == [("shot", "taken")]
    assert as_json(found) == as_json({"chat": first.messages})

    second = await make_client(model, opened(durable_url)).ask("Sure?", toolkit, id="chat")
    # What was stored goes to the model as what was in memory did.
    assert model.asked[2].messages[: len(model.asked[1].messages)] == model.asked[1].messages
    assert as_json(read_elsewhere(durable_url)) == as_json({"chat": second.messages})


async def test_a_stream_has_saved_when_it_says_done(
    durable_url: str, store: Store, serve: Serve, make_client: MakeClient
) -> None:
    def track(order: int) -> str:
        return f"order {order} is in Lyon"

    call = Call("call-1", "track", {"order": 4711})
    model = serve(in_turn(Reply("Let me look.", (call,)), Reply("It is in Lyon.")))
    toolkit = await toolkit_of(track)
    deltas: list[str] = []
    found: dict[str, list[Message]] = {}
    async for event in make_client(model, store).stream("Where is it?", toolkit, id="chat"):
        if event["type"] == "text":
            deltas.append(event["delta"])
        elif event["type"] == "done":
            found = read_elsewhere(durable_url)
            assert as_json(found) == as_json({"chat": event["result"].messages})

    assert "".join(deltas) == "Let me look.It is in Lyon."
    assert calls_in(found["chat"]) == [call]
    assert results_in(found["chat"]) == [("call-1", "order 4711 is in Lyon")]
    assert said_by("assistant", found["chat"]) == ["Let me look.", "It is in Lyon."]


async def test_a_suspended_run_is_kept_as_it_halted(
    durable_url: str, store: Store, serve: Serve, make_client: MakeClient
) -> None:
    def refund() -> ToolResult:
        result: ToolResult = pending(kind="approval", prompt="Approve the refund?")
        return result

    model = serve(in_turn(Reply(calls=(Call("r", "refund"),))))
    toolkit = await toolkit_of(refund)
    result = await make_client(model, store).ask("Refund me.", toolkit, id="chat")

    assert result.status == "pending"
    assert results_in(result.messages) == [("r", "Approve the refund?")]
    assert as_json(read_elsewhere(durable_url)) == as_json({"chat": result.messages})


async def test_a_run_that_hits_its_turn_limit_is_kept(
    durable_url: str, store: Store, serve: Serve, make_client: MakeClient
) -> None:
    def again() -> str:
        return "and again"

    calls = [Call(f"call-{n}", "again") for n in range(3)]
    model = serve(in_turn(*(Reply(calls=(call,)) for call in calls)))
    toolkit = await toolkit_of(again)
    result = await make_client(model, store, max_turns=3).ask("Loop.", toolkit, id="chat")

    assert (result.status, result.limit) == ("incomplete", "maxTurns")
    assert calls_in(result.messages) == calls
    assert as_json(read_elsewhere(durable_url)) == as_json({"chat": result.messages})


async def test_a_failed_turn_leaves_the_conversation_as_it_was(
    durable_url: str, store: Store, serve: Serve, make_client: MakeClient
) -> None:
    model = serve(in_turn(Reply("Hello."), Reply("no more credit", status=402), Reply("Back.")))
    client = make_client(model, store)
    first = await client.ask("Hi.", id="chat")
    with pytest.raises(ProviderError, match="no more credit"):
        await client.ask("Still there?", id="chat")
    assert as_json(read_elsewhere(durable_url)) == as_json({"chat": first.messages})

    third = await client.ask("And now?", id="chat")
    assert said_by("user", third.messages) == ["Hi.", "And now?"]
    assert as_json(read_elsewhere(durable_url)) == as_json({"chat": third.messages})


async def test_what_only_the_provider_understands_stays_byte_exact(
    durable_url: str, opened: Opened, serve: Serve, make_client: MakeClient, style: Style
) -> None:
    odd = {
        "signature": "EqQBCkYIARgC/+==\x00\ud83d",
        "cost": 10**22 + 1,
        "logprob": -0.0,
        "flags": {"z": True, "a": 1, "1": None, "rate": 1.0},
    }
    model = serve(in_turn(Reply("Hello.", extra=odd), Reply("Again.")))
    await make_client(model, opened(durable_url)).ask("Hi \x00 \ud800!", id="chat")

    spoken = read_elsewhere(durable_url)["chat"][1]
    carrier = spoken if style == "openai" else spoken["content"][0]
    assert as_json({"odd": [{key: carrier[key] for key in odd}]}) == as_json({"odd": [odd]})

    result = await make_client(model, opened(durable_url)).ask("Go on.", id="chat")
    assert as_json({"wire": model.asked[1].messages}) == as_json({"wire": result.messages[:3]})
    assert as_json(read_elsewhere(durable_url)) == as_json({"chat": result.messages})
