"""What cannot be stored is refused, and a refusal costs nothing."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from toolnexus_stores_contract.check import Violation, check
from toolnexus_stores_contract.values import require_same, shown, transcript

if TYPE_CHECKING:
    from toolnexus_stores_contract.subject import Opened, Subject

_SECRET = "the customer's own words"  # noqa: S105 - what an error must not show


async def _refused(store: Opened, id: Any, messages: Any) -> Exception:
    """What the store raised; a save that went through is a violation."""
    try:
        await store.raw.save(id, messages)
    except Exception as error:
        return error
    raise Violation(f"save took {shown(messages)} under the id {shown(id)}")


def _cyclic() -> dict[str, Any]:
    message: dict[str, Any] = {"role": "user", "content": []}
    message["content"].append(message)
    return message


async def _old_value_survives(subject: Subject, *refused: Any) -> None:
    store = await subject.open()
    id = subject.new_id()
    await store.save(id, transcript("before", 3))
    for messages in refused:
        await _refused(store, id, messages)
        require_same(await store.get(id), transcript("before", 3), "get after the refused save")
    await store.save(id, transcript("after", 2))
    require_same(await store.get(id), transcript("after", 2), "get after the next save")


@check("core", "Content that is not JSON is refused, and the stored transcript stays.")
async def content_that_is_not_json(subject: Subject) -> None:
    kept = transcript("before", 3)
    await _old_value_survives(
        subject,
        [*kept, {"role": "user", "content": b"bytes"}],
        [*kept, {"role": "user", "content": {"a", "set"}}],
        [*kept, {"role": "user", "content": datetime.now(UTC)}],
        [*kept, {"role": "user", "content": object()}],
        [{"role": "user", "content": {("a", "tuple"): 1}}],
    )


@check("core", "A message that holds itself is refused, and the stored transcript stays.")
async def cycles(subject: Subject) -> None:
    await _old_value_survives(subject, [*transcript("before", 3), _cyclic()])


@check("core", "Messages that are not objects are refused, and the stored transcript stays.")
async def messages_that_are_not_objects(subject: Subject) -> None:
    await _old_value_survives(subject, ["text"], [None], [*transcript("before", 3), 7], None, 7)


@check("core", "A refused first save leaves nothing behind.")
async def refused_first_save(subject: Subject) -> None:
    store = await subject.open()
    id = subject.new_id()
    await _refused(store, id, [*transcript("one", 2), {"role": "user", "content": b"bytes"}])
    require_same(await store.get(id), None, "get after the refused save")


@check("core", "No error shows what a transcript says: the runtime hands it to remote peers.")
async def refusals_keep_secrets(subject: Subject) -> None:
    store = await subject.open()
    refused = {"role": "user", "content": _SECRET, _SECRET: b"bytes", "more": {_SECRET}}
    error: BaseException | None = await _refused(store, subject.new_id(), [refused])
    while error is not None:
        if _SECRET in str(error):
            raise Violation(f"the text of {type(error).__name__} shows the message's content")
        error = error.__cause__
