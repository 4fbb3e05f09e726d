"""Messages <-> JSON texts, and what "JSON form" means.

What is stored of ``messages`` is exactly ``json.loads(json.dumps(messages))``: tuples become
lists, keys become strings; key order, big integers, ``-0.0``, NUL, lone surrogates, NaN and
infinities survive, because a provider can send them and a refused save is a lost answer. Messages
are opaque: no role, key or dialect is known here.

A message has three shapes in this package:

- *frozen*: its `marshal` bytes. Fast to make, to compare and to thaw, type-strict (1, 1.0 and True
  differ; so do two orders of keys), and out of the caller's reach. Never leaves the process.
- *text*: its JSON, ASCII-escaped, on one line. This is what is stored.
- *thawed*: plain Python, made anew for every reader.
"""

from __future__ import annotations

import json
import marshal
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

from .errors import InvalidTranscript

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "DEEPEST",
    "Message",
    "canonical",
    "freeze",
    "frozen_text",
    "parse_text",
    "thaw",
]

Message: TypeAlias = dict[str, Any]
"""One message, as the runtime hands it over: a JSON object."""

DEEPEST = 200
"""How deep a message may nest. Python's own JSON reader gives up near 1,000 levels, earlier on a
deep stack, so what could be written might not be readable again. Real messages stay below 20."""

_MARSHAL_VERSION = 2  # the last version without back references: equal values, equal bytes
_ENCODE = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode
_DECODE = json.JSONDecoder().decode


@runtime_checkable
class _Dumpable(Protocol):
    """A pydantic model, as far as it matters here."""

    def model_dump(self, *, mode: str) -> object: ...


def freeze(messages: object) -> list[bytes]:
    """Copy *messages* beyond the caller's reach, one frozen message each.

    Runs where the caller runs, so that what is saved is what was passed even if the caller goes on
    to change it. Raises `InvalidTranscript` for anything but a sequence of JSON objects whose
    content can be copied; whether that content is JSON is for `canonical` to say.
    """
    if not isinstance(messages, Sequence) or isinstance(messages, str | bytes | bytearray):
        raise InvalidTranscript(f"messages is a list of messages, not {type(messages).__name__}")
    return [_freeze_message(message, index) for index, message in enumerate(messages)]


def _freeze_message(message: object, index: int) -> bytes:
    if type(message) is dict:
        try:
            return marshal.dumps(message, _MARSHAL_VERSION)
        except ValueError:  # holds something that is not plain; the slow way says what
            pass
    try:
        plain = _plain(message, f"messages[{index}]", 0)
    except RecursionError:  # the caller's own stack is deep already
        raise InvalidTranscript(f"messages[{index}]: nested too deep for this stack") from None
    if not isinstance(plain, dict):
        raise InvalidTranscript(f"messages[{index}]: {type(message).__name__} is not a JSON object")
    return marshal.dumps(plain, _MARSHAL_VERSION)


def _plain(value: object, path: str, depth: int) -> object:
    """*value* of plain dicts, lists and scalars, as `json.dumps` would take it."""
    if depth > DEEPEST:
        raise InvalidTranscript(f"{_head(path)}: nested deeper than {DEEPEST} levels, or in itself")
    if value is None or isinstance(value, str | int | float):
        return _plain_scalar(value)
    if isinstance(value, Mapping):
        return _plain_object(value, path, depth)
    if isinstance(value, list | tuple):
        return [_plain(item, f"{path}[{i}]", depth + 1) for i, item in enumerate(value)]
    if isinstance(value, _Dumpable):
        return _plain(value.model_dump(mode="json"), path, depth + 1)
    part = _content_part(value)
    if part is None:
        raise InvalidTranscript(f"{path}: {type(value).__name__} is not JSON")
    return part


def _plain_scalar(value: str | float | None) -> str | float | None:
    """The value of a subclass (a StrEnum, an IntEnum, a NumPy float), as `json.dumps` sees it."""
    if isinstance(value, str):
        return str.__str__(value)
    if value is None or isinstance(value, bool):
        return value
    return int(value) if isinstance(value, int) else float(value)


def _plain_object(value: Mapping[object, object], path: str, depth: int) -> dict[str, object]:
    plain: dict[str, object] = {}
    for key, item in value.items():
        name = _key(key, path)
        if name in plain:
            raise InvalidTranscript(f"{path}: two keys are the same one in JSON")
        plain[name] = _plain(item, f"{path}{_step(name)}", depth + 1)
    return plain


def _key(key: object, path: str) -> str:
    if isinstance(key, str):
        return str.__str__(key)
    if key is None or isinstance(key, int | float):
        return str(next(iter(_DECODE(_ENCODE({key: 0})))))
    raise InvalidTranscript(f"{path}: a key of type {type(key).__name__} is not JSON")


def _content_part(value: object) -> dict[str, Any] | None:
    """The wire form of one of the runtime's content parts, by the runtime's own `to_dict`.

    Found through the value's own class, so that the runtime need not be installed.
    """
    module = type(value).__module__
    if not module.startswith("toolnexus.") or type(value).__name__ != "ContentPart":
        return None
    from toolnexus.content import to_dict  # noqa: PLC0415 - it is loaded: the value came from it

    wire: dict[str, Any] = to_dict(value)
    return wire


def canonical(frozen: bytes, index: int) -> tuple[bytes, bytes]:
    """The JSON form of a frozen message: ``(frozen, text)``.

    Raises `InvalidTranscript`, naming the path and the type, if it has none.
    """
    value = marshal.loads(frozen)
    try:
        text = _ENCODE(value)
        again = marshal.dumps(_DECODE(text), _MARSHAL_VERSION)
    except (TypeError, ValueError, RecursionError) as error:
        _plain(value, f"messages[{index}]", 0)
        raise InvalidTranscript(f"messages[{index}]: {_reason(error)}") from None
    if again != frozen or text.count("[") + text.count("{") > DEEPEST:
        _plain(value, f"messages[{index}]", 0)
    return again, text.encode("ascii")


def frozen_text(frozen: bytes) -> bytes:
    """The text of a message that is in JSON form already."""
    return _ENCODE(marshal.loads(frozen)).encode("ascii")


def parse_text(text: bytes) -> bytes:
    """The frozen message of a stored text. Raises `ValueError` if it is not a JSON object."""
    message = _DECODE(text.decode("ascii"))
    if type(message) is not dict:
        raise ValueError("not a JSON object")
    return marshal.dumps(message, _MARSHAL_VERSION)


def thaw(frozen: Sequence[bytes]) -> list[Message]:
    """Plain messages, shared with nobody."""
    return list(_thawed(frozen))


def _thawed(frozen: Sequence[bytes]) -> Iterator[Message]:
    # One small C call a message: a single large one would hold the interpreter lock for all of it.
    for message in frozen:
        yield marshal.loads(message)


def _head(path: str) -> str:
    return path[: path.index("]") + 1]


def _step(name: str) -> str:
    """A key as a path shows it. Keys can be anybody's text, so only what looks like a name."""
    return f".{name}" if name.isidentifier() and len(name) <= 40 else "[…]"


def _reason(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return f"nested deeper than {DEEPEST} levels"
    if "integer string conversion" in str(error):
        return "an integer has more digits than Python converts (sys.set_int_max_str_digits)"
    return "not JSON"
