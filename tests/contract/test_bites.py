"""The suite bites: every mutant is caught by the checks named for it, every check catches one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from toolnexus_stores_contract import Check, Violation, all_checks, perform, process

from .faults.stores import CAUGHT_BY
from .faults.wired import CAUGHT_ON_THE_WIRE
from .good_stores import DirectoryStore, KeepingStore, TextStore
from .mutants import MUTANTS, Mutant, named

if TYPE_CHECKING:
    from pathlib import Path

BY_ID = {check.id: check for check in all_checks()}
GOOD: dict[type, tuple[str, ...]] = {
    TextStore: ("core", "concurrent"),
    DirectoryStore: ("core", "concurrent", "durable", "management"),
    KeepingStore: ("core", "snapshots", "management"),
}


def place_of(mutant: Mutant, tmp_path: Path) -> str:
    """A directory, or for the one whose fault is to show it, a URL with a password."""
    return "db://ada:hunter2@host" if mutant.name == "ShowsItsUrl" else str(tmp_path / "store")


@pytest.mark.parametrize(
    ("mutant", "caught_by"),
    [pytest.param(m, id, id=f"{m.name}-{id}") for m in MUTANTS for id in m.caught_by],
)
def test_a_mutant_is_caught(
    mutant: Mutant, caught_by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "_ENDING_SECONDS", 2.0)
    factory = named(mutant.name, place_of(mutant, tmp_path))
    with pytest.raises(Violation) as caught:
        asyncio.run(perform(BY_ID[caught_by], factory))
    assert BY_ID[caught_by].promise in str(caught.value)


@pytest.mark.parametrize("check", all_checks(), ids=lambda check: check.id)
@pytest.mark.parametrize("good", GOOD, ids=lambda good: good.__name__)
def test_a_good_store_passes(check: Check, good: type, tmp_path: Path) -> None:
    if check.level in GOOD[good]:
        asyncio.run(perform(check, named(good.__name__, tmp_path / "store")))


def test_every_check_catches_a_mutant() -> None:
    caught = {id for mutant in MUTANTS for id in mutant.caught_by}
    caught = caught.union(*CAUGHT_BY.values(), *CAUGHT_ON_THE_WIRE.values())  # in faults/
    assert caught - BY_ID.keys() == set()
    assert BY_ID.keys() - caught == set()


@pytest.mark.parametrize("check", all_checks(), ids=lambda check: check.id)
def test_a_check_says_what_and_why(check: Check) -> None:
    assert check.promise.endswith(".")
    assert check.why.endswith(".")
    assert f"async def {check.id.partition('.')[2]}(" in check.source
    assert check.timeout >= 30
