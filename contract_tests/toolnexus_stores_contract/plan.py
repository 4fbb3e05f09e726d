"""Which checks are to be made, and which of them the store claims to pass."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, cast

from .check import DRIVER_LEVELS, LEVELS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from .check import Check, Level

__all__ = ["BadPlan", "Plan", "all_of", "named", "planned"]


class BadPlan(ValueError):
    """What was asked for names no check or no level, or contradicts itself."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run does."""

    checks: tuple[Check, ...]
    """In the order in which they are made."""

    claims: tuple[Level, ...]
    """The levels that are claimed, of those that are to be tested."""

    expected_failures: Mapping[str, str]
    """Of the checks that are made: id -> reason."""


def all_of(kind: str) -> tuple[Check, ...]:
    """Every check for that kind of subject, level by level."""
    if kind == "driver":
        from .driver_checks import CHECKS as DRIVER_CHECKS  # noqa: PLC0415 - needs our stores

        return DRIVER_CHECKS
    from .checks import CHECKS  # noqa: PLC0415 - pytest must get to rewrite them first

    return CHECKS


def named(id: str, kind: str) -> Check:
    """The check with that id. Raises `BadPlan`."""
    found = next((check for check in all_of(kind) if check.id == id), None)
    if found is None:
        raise BadPlan(f"no such check: {id}{_hint(id, (check.id for check in all_of(kind)))}")
    return found


def planned(
    kind: str,
    *,
    claims: Collection[str] | None = None,
    levels: Collection[str] | None = None,
    select: Collection[str] | None = None,
    expected_failures: Mapping[str, str] | None = None,
) -> Plan:
    """The plan that follows from what an author says. Raises `BadPlan`.

    Without *claims*, what *levels* or *select* name counts as claimed; without those too, ``core``.
    """
    known = DRIVER_LEVELS if kind == "driver" else LEVELS
    for asked in (claims or (), levels or ()):
        _require_known(asked, known)
    chosen = [check for check in all_of(kind) if not levels or check.level in levels]
    if claims and levels and not {*claims} <= {*levels}:
        raise BadPlan(f"{_list({*claims} - {*levels})} is claimed, and left out of the levels")
    if select:
        chosen = _selected(chosen, select)
    tested = {check.level for check in chosen}
    unsaid = levels or (tested if select else known[:1])
    claimed = set(unsaid) if claims is None else {known[0], *claims}
    expected = dict(expected_failures or {})
    for id in expected:
        named(id, kind)
    ids = {check.id for check in chosen if check.level in claimed}
    unclaimed = (
        {id for id in expected if named(id, kind).level not in claimed} if not select else set()
    )
    if unclaimed:
        raise BadPlan(f"expected to fail, but not of a level that is claimed: {_list(unclaimed)}")
    return Plan(
        tuple(chosen),
        tuple(level for level in known if level in claimed & tested),
        {id: reason for id, reason in expected.items() if id in ids},
    )


def _require_known(asked: Iterable[str], known: tuple[Level, ...]) -> None:
    for level in asked:
        if level not in known:
            raise BadPlan(
                f"no such level: {level}{_hint(level, known)}; there are {', '.join(known)}"
            )


def _selected(checks: list[Check], select: Collection[str]) -> list[Check]:
    """Those whose id is one of *select*, or has a part that is."""
    ids = {check.id for check in checks}
    found: set[str] = set()
    for asked in select:
        matching = {asked} if asked in ids else {id for id in ids if asked in id}
        if not matching:
            raise BadPlan(f"no check is named {asked}{_hint(asked, ids)}")
        found |= matching
    return [check for check in checks if check.id in found]


def _hint(asked: str, known: Iterable[str]) -> str:
    close = get_close_matches(asked, list(known), n=1)
    return f" (did you mean {close[0]}?)" if close else ""


def _list(names: Iterable[Any]) -> str:
    return ", ".join(sorted(cast("Iterable[str]", names)))
