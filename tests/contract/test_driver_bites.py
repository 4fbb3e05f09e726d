"""The suite for drivers bites: every mutant is caught, every check catches one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from toolnexus_stores_contract import Check, Violation, all_driver_checks, perform

from .driver_mutants import DRIVER_MUTANTS, named

if TYPE_CHECKING:
    from pathlib import Path

    from .mutants import Mutant

BY_ID = {check.id: check for check in all_driver_checks()}
ONLY_HERE = {"driver.another_process", "driver.processes_at_once"}


@pytest.mark.parametrize(
    ("mutant", "caught_by"),
    [pytest.param(m, id, id=f"{m.name}-{id}") for m in DRIVER_MUTANTS for id in m.caught_by],
)
def test_a_mutant_is_caught(mutant: Mutant, caught_by: str, tmp_path: Path) -> None:
    with pytest.raises(Violation) as caught:
        asyncio.run(perform(BY_ID[caught_by], named(mutant.name, tmp_path / "records")))
    assert BY_ID[caught_by].promise in str(caught.value)


@pytest.mark.parametrize("check", all_driver_checks(), ids=lambda check: check.id)
@pytest.mark.parametrize("good", ["DictDriver", "FolderDriver"])
def test_a_good_driver_passes(check: Check, good: str, tmp_path: Path) -> None:
    if good == "FolderDriver" or check.id not in ONLY_HERE:
        asyncio.run(perform(check, named(good, tmp_path / "records")))


def test_every_check_catches_a_mutant() -> None:
    caught = {id for mutant in DRIVER_MUTANTS for id in mutant.caught_by}
    assert caught - BY_ID.keys() == set()
    assert BY_ID.keys() - caught == set()


@pytest.mark.parametrize("check", all_driver_checks(), ids=lambda check: check.id)
def test_a_check_says_what_and_why(check: Check) -> None:
    assert check.promise.endswith(".")
    assert check.why.endswith(".")
    assert f"async def {check.id.partition('.')[2]}(" in check.source
