"""The two wire dialects of the runtime: how a model's reply is written, how a transcript is read.

The runtime keeps what a provider sends as it came, so a transcript is in its provider's dialect.
The readers here know both; no dialect is converted into the other.
"""

from __future__ import annotations

import base64
import itertools
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

__all__ = [
    "Call",
    "Message",
    "Reply",
    "Style",
    "anthropic_body",
    "anthropic_events",
    "calls_in",
    "openai_body",
    "openai_events",
    "pictures_in",
    "results_in",
    "said_by",
]

Style = Literal["openai", "anthropic"]
Message = dict[str, Any]
Json = dict[str, Any]

_OPENAI_USAGE = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
_ANTHROPIC_USAGE = {"input_tokens": 11, "output_tokens": 7}


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call that the model asks for."""

    id: str
    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Reply:
    """What the model says in one turn, in no dialect yet.

    *extra* are keys of the provider's own, which no runtime knows: they travel with the message
    (openai) or its text block (anthropic).
    """

    text: str = ""
    calls: tuple[Call, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)
    status: int = 200


# What the server writes.


def openai_body(reply: Reply) -> Json:
    """*reply* as a chat completion."""
    message: Message = {"role": "assistant", "content": reply.text or None, **reply.extra}
    if reply.calls:
        message["tool_calls"] = [_function_call(call) for call in reply.calls]
    choice = {"index": 0, "message": message, "finish_reason": _finish(reply)}
    return {"object": "chat.completion", "choices": [choice], "usage": _OPENAI_USAGE}


def openai_events(reply: Reply) -> Iterator[Json]:
    """*reply* as the chunks of a streamed chat completion, in pieces as small as real ones."""
    for piece in _pieces(reply.text):
        yield _chunk({"content": piece})
    for index, call in enumerate(reply.calls):
        start = {"index": index, **_function_call(call)}
        start["function"] = {"name": call.name, "arguments": ""}
        yield _chunk({"tool_calls": [start]})
        for piece in _pieces(json.dumps(call.arguments)):
            yield _chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    yield {"choices": [{"index": 0, "delta": {}, "finish_reason": _finish(reply)}]}
    yield {"choices": [], "usage": _OPENAI_USAGE}


def anthropic_body(reply: Reply) -> Json:
    """*reply* as a message of the Messages API."""
    content: list[Json] = []
    if reply.text:
        content.append({"type": "text", "text": reply.text, **reply.extra})
    content += [_tool_use(call, call.arguments) for call in reply.calls]
    return {
        "type": "message",
        "role": "assistant",
        "content": content,
        "stop_reason": _stop(reply),
        "usage": _ANTHROPIC_USAGE,
    }


def anthropic_events(reply: Reply) -> Iterator[Json]:
    """*reply* as the events of a streamed message, in pieces as small as real ones."""
    yield {"type": "message_start", "message": {"usage": {"input_tokens": 11}}}
    indexes = itertools.count()
    if reply.text:
        deltas = ({"type": "text_delta", "text": piece} for piece in _pieces(reply.text))
        yield from _block(next(indexes), {"type": "text", "text": ""}, deltas)
    for call in reply.calls:
        deltas = (
            {"type": "input_json_delta", "partial_json": piece}
            for piece in _pieces(json.dumps(call.arguments))
        )
        yield from _block(next(indexes), _tool_use(call, {}), deltas)
    yield {
        "type": "message_delta",
        "delta": {"stop_reason": _stop(reply)},
        "usage": {"output_tokens": 7},
    }
    yield {"type": "message_stop"}


def _function_call(call: Call) -> Json:
    function = {"name": call.name, "arguments": json.dumps(call.arguments)}
    return {"id": call.id, "type": "function", "function": function}


def _tool_use(call: Call, arguments: Mapping[str, Any]) -> Json:
    return {"type": "tool_use", "id": call.id, "name": call.name, "input": dict(arguments)}


def _finish(reply: Reply) -> str:
    return "tool_calls" if reply.calls else "stop"


def _stop(reply: Reply) -> str:
    return "tool_use" if reply.calls else "end_turn"


def _chunk(delta: Json) -> Json:
    return {
        "object": "chat.completion.chunk",
        "choices": [{"index": 0, "delta": delta, "finish_reason": None}],
    }


def _block(index: int, start: Json, deltas: Iterable[Json]) -> Iterator[Json]:
    yield {"type": "content_block_start", "index": index, "content_block": start}
    for delta in deltas:
        yield {"type": "content_block_delta", "index": index, "delta": delta}
    yield {"type": "content_block_stop", "index": index}


def _pieces(text: str) -> list[str]:
    return [text[start : start + 5] for start in range(0, len(text), 5)]


# What a test reads.


def said_by(role: str, messages: Sequence[Message]) -> list[str]:
    """The plain text of every message of *role* that has any."""
    texts = (_text_of(message) for message in messages if message["role"] == role)
    return [text for text in texts if text]


def calls_in(messages: Sequence[Message]) -> list[Call]:
    """Every tool call that the model asked for, in order."""
    calls = [
        Call(call["id"], call["function"]["name"], json.loads(call["function"]["arguments"]))
        for message in messages
        for call in message.get("tool_calls", ())
    ]
    return calls or [
        Call(block["id"], block["name"], block["input"]) for block in _blocks(messages, "tool_use")
    ]


def results_in(messages: Sequence[Message]) -> list[tuple[str, str]]:
    """The call id and the text of every tool result, in order."""
    results = [
        (message["tool_call_id"], message["content"])
        for message in messages
        if message["role"] == "tool"
    ]
    return results or [
        (block["tool_use_id"], block["content"]) for block in _blocks(messages, "tool_result")
    ]


def pictures_in(messages: Sequence[Message]) -> list[bytes]:
    """The bytes of every image, attached or returned by a tool, in its canonical form."""
    carriers = [*messages, *_blocks(messages, "tool_result")]
    parts = [part for carrier in carriers for part in carrier.get("parts", ())]
    return [
        base64.b64decode(part["data"], validate=True)
        for part in [*_blocks(messages, "image"), *parts]
        if part["type"] == "image" and part["mimeType"] == "image/png"
    ]


def _text_of(message: Message) -> str:
    content = message.get("content")
    if isinstance(content, str):
        return content
    return "".join(block["text"] for block in _blocks([message], "text"))


def _blocks(messages: Sequence[Message], kind: str) -> list[Json]:
    return [
        block
        for message in messages
        if isinstance(message.get("content"), list)
        for block in message["content"]
        if block["type"] == kind
    ]
