"""The suite bites: every mutant is caught by the checks named for it, every check catches one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from toolnexus_stores_contract import Check, Violation, all_checks, perform

from .faults.stores import CAUGHT_BY
from .good_stores import DirectoryStore, TextStore
from .mutants import MUTANTS, Mutant

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

BY_ID = {check.id: check for check in all_checks()}
# What needs a factory with a name is bitten in test_front_pytest.py and faults/test_traps.py.
BITTEN_ELSEWHERE = {"durable.another_process"}.union(*CAUGHT_BY.values())


def factory_of(make: Callable[..., Any], place: Path) -> Callable[[], Any]:
    """Opens the same storage each time: a directory, or the one instance."""
    if isinstance(make, type) and issubclass(make, DirectoryStore):
        return lambda: make(place / "store")
    instance = make()
    return lambda: instance


@pytest.mark.parametrize(
    ("mutant", "caught_by"),
    [pytest.param(m, id, id=f"{m.name}-{id}") for m in MUTANTS for id in m.caught_by],
)
def test_a_mutant_is_caught(mutant: Mutant, caught_by: str, tmp_path: Path) -> None:
    with pytest.raises(Violation) as caught:
        asyncio.run(perform(BY_ID[caught_by], factory_of(mutant.make, tmp_path)))
    assert BY_ID[caught_by].promise in str(caught.value)


@pytest.mark.parametrize("check", all_checks(), ids=lambda check: check.id)
@pytest.mark.parametrize("good", [TextStore, DirectoryStore])
def test_a_good_store_passes(check: Check, good: Callable[..., Any], tmp_path: Path) -> None:
    if check.level not in levels_of(good) or check.id in BITTEN_ELSEWHERE:
        return
    asyncio.run(perform(check, factory_of(good, tmp_path)))


def levels_of(good: object) -> set[str]:
    return {"core", "concurrent"} | ({"durable", "management"} if good is DirectoryStore else set())


def test_every_check_catches_a_mutant() -> None:
    caught = {id for mutant in MUTANTS for id in mutant.caught_by}
    assert caught - BY_ID.keys() == set()
    assert BY_ID.keys() - caught - BITTEN_ELSEWHERE == set()
