"""What was saved is out of the caller's reach, and so is what is stored.

The list that the runtime passes to ``save`` is the one that its host is given, and hosts edit it.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

from toolnexus_stores_contract.check import Violation, check
from toolnexus_stores_contract.values import Message, require_same, transcript

if TYPE_CHECKING:
    from toolnexus_stores_contract.subject import Subject


def _nested() -> list[Message]:
    return [
        {"role": "user", "content": [{"type": "text", "text": "saved"}]},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "arguments": {"n": 1}}]},
    ]


def _spoil(messages: list[Message]) -> None:
    messages[0]["content"][0]["text"] = "changed afterwards"
    messages[1]["tool_calls"].append({"id": "2"})


@check("core", "A list that is changed after its save leaves what is stored alone.")
async def saved_list(subject: Subject) -> None:
    """The list that is passed to save is the one that the host is given as a result, and goes on
    using.
    """
    store = await subject.open()
    id = subject.new_id()
    messages = transcript("saved", 3)
    await store.save(id, messages)
    messages.append({"role": "user", "content": "added afterwards"})
    del messages[0]
    require_same(await store.get(id), transcript("saved", 3))


@check("core", "A message that is changed deep inside after its save leaves what is stored alone.")
async def saved_messages(subject: Subject) -> None:
    """Hosts edit messages that they were given, to show them for example. A copy of the list alone
    shares them with the store.
    """
    store = await subject.open()
    id = subject.new_id()
    messages = _nested()
    await store.save(id, messages)
    _spoil(messages)
    require_same(await store.get(id), _nested())


@check("core", "A list that get returned belongs to the caller.")
async def returned_list(subject: Subject) -> None:
    """The runtime appends the next turn to the list that it got. If the turn fails, nothing may
    have changed.
    """
    store = await subject.open()
    id = subject.new_id()
    await store.save(id, transcript("saved", 3))
    first = await store.get(id)
    require_same(first, transcript("saved", 3))
    if first is not None:
        first.clear()
    require_same(await store.get(id), transcript("saved", 3), "the second get")


@check("core", "A message that get returned belongs to the caller, however deep it is changed.")
async def returned_messages(subject: Subject) -> None:
    """Hooks edit messages in place before they are sent. What is stored must not follow them."""
    store = await subject.open()
    id = subject.new_id()
    await store.save(id, _nested())
    first = await store.get(id)
    require_same(first, _nested())
    if first is not None:
        _spoil(first)
    require_same(await store.get(id), _nested(), "the second get")


@check("core", "A save leaves the caller's messages as they are.")
async def callers_messages(subject: Subject) -> None:
    """What a store adds to a message, an id or a date, is sent to the provider, which may refuse
    it.
    """
    store = await subject.open()
    messages = _nested()
    before = copy.deepcopy(messages)
    await store.save(subject.new_id(), messages)
    require_same(messages, before, "the caller's list, after save,")


@check("core", "get gives plain dicts in a plain list, as the runtime extends and edits them.")
async def plain_types(subject: Subject) -> None:
    """The runtime concatenates lists and serialises dicts. A row, a cursor or a tuple fails there,
    later.
    """
    store = await subject.open()
    id = subject.new_id()
    await store.save(id, transcript("saved", 2))
    found = await store.get(id)
    kinds = [type(found).__name__, *sorted({type(each).__name__ for each in found or ()})]
    if kinds != ["list", "dict"]:
        raise Violation(f"get gave {' of '.join(kinds)}")
