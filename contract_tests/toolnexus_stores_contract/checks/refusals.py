"""What cannot be stored is refused, and a refusal costs nothing."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from toolnexus_stores_contract.check import NotApplicable, Violation, check
from toolnexus_stores_contract.values import require_same, shown, transcript

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from toolnexus_stores_contract.subject import Opened, Subject

_SECRET = "the customer's own words"  # noqa: S105 - what an error must not show


async def _refused(store: Opened, id: Any, messages: Any) -> Exception:
    """What the store raised; a save that went through is a violation."""
    try:
        await store.raw.save(id, messages)
    except Exception as error:
        return error
    raise Violation(f"save took {shown(messages)}")


async def _refusal_of(store: Opened, id: Any, messages: Any) -> Exception:
    """The same where a store that takes everything has nothing to show: another check says so."""
    try:
        return await _refused(store, id, messages)
    except Violation:
        raise NotApplicable(
            "the store refused nothing, see core.content_that_is_not_json"
        ) from None


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
    """A store finds out while it encodes. By then nothing of the old transcript may have been
    touched, and nothing may be stored in its place, such as a `repr`.
    """
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
    """Hooks build messages out of messages. An endless recursion must not end the process or the
    old value.
    """
    await _old_value_survives(subject, [*transcript("before", 3), _cyclic()])


@check("core", "Messages that are not objects are refused, and the stored transcript stays.")
async def messages_that_are_not_objects(subject: Subject) -> None:
    """What get gives goes straight to a provider. Better to refuse it where the
    mistake was made.
    """
    await _old_value_survives(subject, ["text"], [None], [*transcript("before", 3), 7], None, 7)


@check("core", "A refused first save leaves nothing behind.")
async def refused_first_save(subject: Subject) -> None:
    """A conversation that is there but empty, or half there, is taken for one that goes on."""
    store = await subject.open()
    id = subject.new_id()
    await _refusal_of(store, id, [*transcript("one", 2), {"role": "user", "content": b"bytes"}])
    require_same(await store.get(id), None, "get after the refused save")


@check("core", "What cannot be stored is refused by a TypeError or a ValueError.")
async def refusals_are_typed(subject: Subject) -> None:
    """A caller must tell its own mistake, which no repetition mends, from a backend
    that is away.
    """
    store = await subject.open()
    for content in (b"bytes", object(), {"a", "set"}):
        error = await _refusal_of(store, subject.new_id(), [{"role": "user", "content": content}])
        if not isinstance(error, TypeError | ValueError):
            raise Violation(f"save raised {type(error).__name__} for {shown(content)}")


@check(
    "core", "After a refused save the repaired one is stored as it is, however often it is tried."
)
async def retried(subject: Subject) -> None:
    """Whoever is refused repairs the message and saves again. What the first attempt left behind
    must not be added.
    """
    store = await subject.open()
    id = subject.new_id()
    messages = transcript("repaired", 4)
    for before in (None, transcript("before", 2)):
        if before:
            await store.save(id, before)
        await _refusal_of(store, id, [*messages[:3], {**messages[3], "content": b"bytes"}])
        for when in ("the first save that works", "one more save"):
            await store.save(id, messages)
            require_same(await store.get(id), messages, f"get after {when}")


@check("core", "No error shows what a transcript says, or a password of the store's URL.")
async def refusals_keep_secrets(subject: Subject) -> None:
    """The runtime sends the text of an error to the remote peer and into the prompt of the parent
    agent.
    """
    store = await subject.open()
    message = {"role": "user", "content": _SECRET, _SECRET: b"bytes", "more": {_SECRET}}
    error = await _refusal_of(store, subject.new_id(), [message])
    for each in _with_causes(error):
        _require_silence(each, "the message's content", [_SECRET])
        _require_silence(each, "a password", subject.passwords)


def _require_silence(error: BaseException, what: str, secrets: Iterable[str]) -> None:
    shown_by_it = f"{error} {error!r}"
    if any(secret in shown_by_it or ascii(secret)[1:-1] in shown_by_it for secret in secrets):
        raise Violation(f"the text of {type(error).__name__} shows {what}")


def _with_causes(error: BaseException | None) -> Iterator[BaseException]:
    """*error*, and what a traceback would show with it."""
    while error is not None:
        yield error
        hidden = error.__suppress_context__
        error = error.__cause__ or (None if hidden else error.__context__)
