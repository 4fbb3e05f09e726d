"""What comes back is exactly ``json.loads(json.dumps(messages))``.

Messages are opaque. What looks odd here has come from a real provider or a real tool, and a store
that refuses or changes it loses an answer that was paid for.
"""

from __future__ import annotations

import base64
import json
import math
from typing import TYPE_CHECKING, Any

from toolnexus_stores_contract.check import check
from toolnexus_stores_contract.values import Message, require_same, transcript

if TYPE_CHECKING:
    from toolnexus_stores_contract.subject import Subject


async def _comes_back(
    subject: Subject, messages: list[Message], promised: Any = None, *, key_order: bool = False
) -> None:
    store = await subject.open()
    id = subject.new_id()
    await store.save(id, messages)
    expected = messages if promised is None else promised
    require_same(await store.get(id), expected, key_order=key_order)
    # Once more on top of itself, as each turn does: what was read is saved again.
    again = [*(await store.get(id) or []), {"role": "user", "content": "and on"}]
    await store.save(id, again)
    require_same(await store.get(id), again, "get after the next turn", key_order=key_order)


def _said(*contents: Any) -> list[Message]:
    return [{"role": "user", "content": content} for content in contents]


@check("core", "Text comes back character for character, in every script.")
async def text(subject: Subject) -> None:
    """Encodings, escapes and templates between the store and its backend each ruin
    some character.
    """
    await _comes_back(
        subject,
        _said(
            *("", " ", "\n", "\r\n", "\t", "'", '"', "\\", "\\u0041", "%s", "{}", "${HOME}", "--"),
            *("Zürich", "проект-мой", "ひらがな", "مرحبا", "\U0001f469‍\U0001f680", "é", "é"),
            *("\u2028\u2029", "\ufeff", "\x7f\x80\x9f", "\uffff", "\U0010ffff"),
        ),
    )


@check("core", "NUL and other control characters come back: tools print them.")
async def control_characters(subject: Subject) -> None:
    """The output of tools holds NUL and escape sequences. Databases refuse NUL, or end the text
    there.
    """
    everything = "".join(map(chr, range(32)))
    said = _said("what is the \x00 weather", "\x00", everything)
    await _comes_back(subject, [*said, {"role": "tool", "\x00": "in a key", "\n": "too"}])


@check("core", "Half an emoji comes back: streams are cut in the middle of one.")
async def lone_surrogates(subject: Subject) -> None:
    """Streams and truncating tools cut emoji in half. A store that cannot encode that loses the
    whole turn.
    """
    said = _said("tail \ud83c", "\udc00 head", "\udfff\ud800")
    await _comes_back(subject, [*said, {"role": "tool", "\ud800": "in a key"}])


@check("core", "Integers come back exactly, of any size.")
async def integers(subject: Subject) -> None:
    """Ids of the outside world have 19 digits and more, and a float has 15."""
    numbers = [0, -1, 2**31, 2**53 + 1, 2512292042121000001, -(2**63), 2**64, 10**22 + 1, 2**200]
    await _comes_back(subject, [{"role": "tool", "content": "", "numbers": numbers}])


@check("core", "Floats come back exactly; minus zero too.")
async def floats(subject: Subject) -> None:
    """A score that changes on its way is another score; a signed body is another body."""
    numbers = [0.1, -0.0, 1e-320, 1.7976931348623157e308, 1 / 3, 1e22, 123456789.123456789]
    await _comes_back(subject, [{"role": "tool", "content": "", "numbers": numbers}])


@check("core", "NaN and the infinities come back: scores of a provider can be that.")
async def not_finite(subject: Subject) -> None:
    """Python's JSON reads and writes NaN, and providers send it. Many databases do not take it."""
    await _comes_back(
        subject, [{"role": "tool", "score": math.nan, "bounds": [math.inf, -math.inf]}]
    )


@check("core", "1, 1.0 and true stay three values; null stays a value.")
async def kinds_of_value(subject: Subject) -> None:
    """In Python 1 == 1.0 == True. For a provider they are an integer, a number and a boolean."""
    values: list[Any] = [1, 1.0, True, 0, 0.0, False, None, "", [], {}, "1", "null", "true"]
    named = {f"value {number}": value for number, value in enumerate(values)}
    await _comes_back(subject, [{"role": "tool", "values": values, "named": named}])


@check("core", "A change from 1 to true or to 1.0 is a change.")
async def changes_of_kind(subject: Subject) -> None:
    """A store that skips what is equal skips this change, as Python says that 1 == True."""
    store = await subject.open()
    id = subject.new_id()
    for value in (1, True, 1.0, 1, False, 0, -0.0, 0.0):
        await store.save(id, [{"role": "tool", "value": value}])
        require_same(await store.get(id), [{"role": "tool", "value": value}])


@check("core", "Keys keep their order: some providers sign what they sent.")
async def key_order(subject: Subject) -> None:
    """Signed and cached prompts depend on the exact text. `jsonb` and sorted keys change it."""
    message = {"zeta": 1, "a": {"y": 1, "x": 2}, "content": "x", "role": "user", "B": 3, "b": 4}
    await _comes_back(subject, [message, dict(reversed(message.items()))], key_order=True)


@check("core", "A change of nothing but the order of keys is a change.")
async def changes_of_key_order(subject: Subject) -> None:
    """A store that compares dicts to find out what changed does not see this change."""
    store = await subject.open()
    id = subject.new_id()
    for message in ({"role": "user", "name": "a"}, {"name": "a", "role": "user"}):
        await store.save(id, [message])
        require_same(await store.get(id), [message], key_order=True)


@check("core", "Keys come back whatever they look like.")
async def keys(subject: Subject) -> None:
    """Document databases give '.', '$' and '_id' a meaning of their own. Arguments of tools have
    such keys.
    """
    odd = ["", " ", "a.b", "$set", "__proto__", "_id", "id", "key", "0", "/", "A", "a", "messages"]
    numbered = {key: number for number, key in enumerate(odd)}
    await _comes_back(subject, [{"role": "user", **numbered}])


@check("core", "What JSON has no word for is stored as JSON would: tuples, keys that are numbers.")
async def json_form(subject: Subject) -> None:
    """The runtime saves objects that were never JSON. All stores must agree on what becomes of
    them, or a conversation changes when it moves.
    """
    messages: list[Any] = [{"role": "tool", "pair": (1, (2, 3)), "by_number": {1: "a", 2.5: "b"}}]
    await _comes_back(subject, messages, json.loads(json.dumps(messages)))


@check("core", "Nested values come back, a hundred levels deep.")
async def deep(subject: Subject) -> None:
    """Arguments and results of tools nest. A limit that is met in the middle of a turn loses the
    turn.
    """
    value: Any = "bottom"
    for level in range(50):
        value = {"level": level, "inner": [value]}
    await _comes_back(subject, [{"role": "tool", "content": value}])


@check("core", "Five thousand messages come back, each in its place.", timeout=60)
async def many_messages(subject: Subject) -> None:
    """Queries come in pages. A store that forgets the second page loses the end,
    the newest part.
    """
    await _comes_back(subject, transcript("many", 5_000))


@check("core", "Ten megabytes come back.", timeout=60)
async def large(subject: Subject) -> None:
    """Conversations with documents and images are that large. Limits of a column, a request or an
    item cut them, or make the save fail after the answer was paid for.
    """
    await _comes_back(subject, transcript("large", 20, characters=500_000))


@check("core", "One message of two megabytes comes back: an image, for example.", timeout=60)
async def large_message(subject: Subject) -> None:
    """One message can hold an image. Limits of 64 KiB, 400 KB and 1 MB are common, some without an
    error.
    """
    picture = base64.b64encode(bytes(range(256)) * 6_000).decode()
    part = {"type": "image", "mimeType": "image/png", "data": picture}
    await _comes_back(subject, [{"role": "user", "content": "see", "parts": [part]}])


@check("core", "A transcript in OpenAI's dialect comes back.")
async def openai_dialect(subject: Subject) -> None:
    """The runtime stores what the wire has: content that is null or a list, calls with arguments as
    text.
    """
    call = {"id": "call_1", "type": "function"}
    await _comes_back(
        subject,
        [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "Where is it?"}]},
            {
                "role": "assistant",
                "content": None,
                "refusal": None,
                "annotations": [],
                "tool_calls": [{**call, "function": {"name": "f", "arguments": '{"n": 1}'}}],
            },
            {"role": "tool", "tool_call_id": "call_1", "content": "in Lyon"},
            {"role": "assistant", "content": "It is in Lyon.", "reasoning_content": "…"},
        ],
    )


@check("core", "A transcript in Anthropic's dialect comes back; signatures byte for byte.")
async def anthropic_dialect(subject: Subject) -> None:
    """A thinking block is refused by the provider if one byte of its signature has changed."""
    signature = "EqQBCkYIARgCKkDz" + base64.b64encode(bytes(range(256))).decode() + "/+=="
    await _comes_back(
        subject,
        [
            {"role": "user", "content": "Where is it?"},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "…", "signature": signature},
                    {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"n": 1}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "toolu_1",
                        "content": "in Lyon",
                        "is_error": False,
                    }
                ],
            },
        ],
    )


@check("core", "Roles, keys and shapes that nobody knows yet pass through untouched.")
async def unknown_shapes(subject: Subject) -> None:
    """Providers invent keys and roles. A store that validates them breaks with the next model."""
    await _comes_back(
        subject,
        [{}, {"content": "no role"}, {"role": 7}, {"role": "from the future", "x": [[[]]]}],
    )
