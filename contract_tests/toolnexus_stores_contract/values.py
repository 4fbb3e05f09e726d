"""Values that accuse by themselves, and a comparison that lets nothing pass.

Every message of `transcript` says which save it belongs to, its place and how many there are. So a
torn, mixed or stale transcript is recognised from the value alone.
"""

from __future__ import annotations

from itertools import zip_longest
from typing import Any, TypeAlias

from .check import Violation

__all__ = ["Message", "difference", "require_one_of", "require_same", "shown", "stamp_of"]
__all__ += ["transcript"]

Message: TypeAlias = dict[str, Any]

_ABSENT = object()
_SHOWN_CHARACTERS = 60
_LISTED = 3


def transcript(stamp: str, total: int, *, characters: int = 0) -> list[Message]:
    """*total* messages of the save *stamp*, each with at least *characters* of content."""
    filler = "." * characters
    return [
        {
            "role": ("user", "assistant")[index % 2],
            "content": f"message {index} of {total} of save {stamp}{filler}",
            "stamp": stamp,
            "index": index,
            "total": total,
        }
        for index in range(total)
    ]


def stamp_of(value: object) -> str | None:
    """The stamp of *value*; None if it is None. `Violation` if it is not one whole transcript."""
    __tracebackhide__ = True
    if value is None:
        return None
    first = value[0] if isinstance(value, list) and value else None
    stamp = first.get("stamp") if isinstance(first, dict) else None
    total = first.get("total") if isinstance(first, dict) else None
    if not (isinstance(stamp, str) and isinstance(total, int)):
        raise Violation(f"get gave {_told(value)}")
    require_same(value, transcript(stamp, total))
    return stamp


def shown(value: object) -> str:
    """*value* as a report shows it: its type and the beginning of its text, printable."""
    if value is None or isinstance(value, bool):
        return str(value)
    text = ascii(value)
    if len(text) > _SHOWN_CHARACTERS:
        text = f"{text[:_SHOWN_CHARACTERS]}…"
    return f"{text} ({type(value).__name__})"


def require_same(
    seen: object, promised: object, when: str = "get", *, key_order: bool = False
) -> None:
    """Raise `Violation` unless *seen* is exactly *promised*, types included.

    The order of keys counts only if *key_order* says so: a store that loses it breaks the promise
    that is made about it, and no other.
    """
    __tracebackhide__ = True
    found = difference(seen, promised, key_order=key_order)
    if found is None:
        return
    if type(seen) is not type(promised):
        raise Violation(f"{when} gave {_told(seen)}, not {_told(promised)}")
    raise Violation(f"{when} gave {_told(seen)}: {found}")


def require_one_of(seen: object, *promised: object, when: str = "get") -> None:
    """Raise `Violation` unless *seen* is exactly one of *promised*, whatever the order of keys."""
    __tracebackhide__ = True
    found = [difference(seen, each, key_order=False) for each in promised]
    if None in found:
        return
    told = [_told(each) for each in promised]
    if _told(seen) in told:
        raise Violation(f"{when} gave {_told(seen)}: {found[told.index(_told(seen))]}")
    more = f" or {len(told) - _LISTED} others" if len(told) > _LISTED else ""
    wanted = " or ".join(told[:_LISTED])
    raise Violation(f"{when} gave {_told(seen)}; promised was {wanted}{more}")


def difference(
    seen: object, promised: object, path: str = "the value", *, key_order: bool = True
) -> str | None:
    """The first place where the two differ, in words; None if they are the same.

    1, 1.0 and True differ, and so do -0.0 and 0.0, a list and a tuple, and two orders of keys if
    *key_order* says so. NaN is the same as NaN.
    """
    if type(seen) is not type(promised):
        return f"{path} is {shown(seen)}, not {shown(promised)}"
    if isinstance(seen, dict) and isinstance(promised, dict):
        return _difference_of_objects(seen, promised, path, key_order=key_order)
    if isinstance(seen, list) and isinstance(promised, list):
        return _difference_of_lists(seen, promised, path, key_order=key_order)
    # repr tells -0.0 from 0.0 and finds NaN like NaN; for a string it is not needed.
    same = seen == promised if isinstance(seen, str) else repr(seen) == repr(promised)
    return None if same else _first_difference(seen, promised, path)


def _difference_of_objects(
    seen: dict[Any, Any], promised: dict[Any, Any], path: str, *, key_order: bool
) -> str | None:
    for key in promised:
        if key not in seen:
            return f"{path} has lost its key {shown(key)}"
    for key in seen:
        if key not in promised:
            return f"{path} has a key that was not saved, {shown(key)}"
    if key_order and list(seen) != list(promised):
        return f"{path} has its keys in another order: {shown(list(seen))}"
    found = (
        difference(seen[key], promised[key], f"{path}.{key}", key_order=key_order)
        for key in promised
    )
    return next((each for each in found if each is not None), None)


def _difference_of_lists(
    seen: list[Any], promised: list[Any], path: str, *, key_order: bool
) -> str | None:
    if len(seen) != len(promised):
        return f"{path} has {len(seen)} items, not {len(promised)}"
    found = (
        difference(one, other, f"{path}[{index}]", key_order=key_order)
        for index, (one, other) in enumerate(zip(seen, promised, strict=True))
    )
    return next((each for each in found if each is not None), None)


def _first_difference(seen: object, promised: object, path: str) -> str:
    if not (isinstance(seen, str) and isinstance(promised, str)):
        return f"{path} is {shown(seen)}, not {shown(promised)}"
    pairs = enumerate(zip_longest(seen, promised))
    at = next(index for index, (one, other) in pairs if one != other)
    one, other = (shown(text[at : at + 20]) for text in (seen, promised))
    return f"{path}, from character {at}, is {one}, not {other}"


def _told(value: object) -> str:
    """What *value* says of itself."""
    if not isinstance(value, list) or not value:
        return "an empty transcript" if value == [] else shown(value)
    if not all(isinstance(each, dict) and "stamp" in each for each in value):
        return f"{len(value)} messages"
    stamps = list(dict.fromkeys(str(each["stamp"]) for each in value))
    if len(stamps) > 1:
        return f"a mixture of the saves {', '.join(stamps)}"
    total = value[0].get("total")
    whole = [each.get("index") for each in value] == list(range(len(value)))
    if whole and total == len(value):
        return f"the save {stamps[0]}"
    return f"{len(value)} of the {total} messages of the save {stamps[0]}"
