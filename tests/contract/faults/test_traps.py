"""Each trap is caught by the check that is named for it, and the good stores by none."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING

import pytest
from toolnexus_stores_contract import NotApplicable, Violation, all_checks, perform
from toolnexus_stores_contract.check import Terms
from toolnexus_stores_contract.faults import replay

from . import stores
from .stores import CAUGHT_BY, PLACE

if TYPE_CHECKING:
    from pathlib import Path

    from toolnexus_stores_contract import Check

CHECKS = {check.id: check for check in all_checks()}
DISK = [
    *("atomic.killed_at_any_call", "atomic.killed_in_any_write", "atomic.error_at_any_call"),
    *("atomic.short_write", "atomic.cancelled_in_any_call", "atomic.overtaken_in_any_call"),
    *("atomic.power_loss", "durable.power_loss_after_save"),
]


def named(store: type) -> str:
    return f"{stores.__name__}:{store.__name__}"


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PLACE, str(tmp_path))


@pytest.mark.parametrize(
    ("store", "id"),
    [(store, id) for store, ids in CAUGHT_BY.items() for id in ids],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_a_trap_is_caught_and_the_token_repeats_it(store: type, id: str) -> None:
    with pytest.raises(Violation) as caught:
        asyncio.run(perform(CHECKS[id], named(store)))
    assert caught.value.promised == CHECKS[id].promise
    token = re.search(r"replay: (\S+)", caught.value.seen)
    if token is None:
        assert id.startswith("concurrent.")
        return
    with pytest.raises(Violation):
        asyncio.run(replay(named(store), token[1]))


@pytest.mark.parametrize("check", [CHECKS[id] for id in DISK], ids=lambda check: check.id)
@pytest.mark.parametrize("store", [stores.ReplacedFile, stores.Rows, stores.RowsWithAllSynced])
def test_a_good_store_passes(store: type, check: Check) -> None:
    counts = asyncio.run(perform(check, named(store)))
    assert min(counts.values()) > 0


def test_less_is_promised_by_a_store_that_survives_the_process_only() -> None:
    check, factory = CHECKS["durable.power_loss_after_save"], named(stores.ProcessOnlyFile)
    asyncio.run(perform(check, factory, terms=Terms("process")))
    with pytest.raises(Violation, match="promised was"):
        asyncio.run(perform(check, factory))


def test_never_part_of_a_transcript_is_promised_all_the_same() -> None:
    check, factory = CHECKS["durable.power_loss_after_save"], named(stores.NotSynced)
    with pytest.raises(Violation, match="get raised"):
        asyncio.run(perform(check, factory, terms=Terms("process")))


@pytest.mark.parametrize("id", DISK)
def test_what_makes_no_system_call_is_inconclusive(id: str) -> None:
    with pytest.raises(NotApplicable, match="inconclusive: a save made no system call"):
        asyncio.run(perform(CHECKS[id], named(stores.InTheModule)))


def test_what_writes_by_mapping_is_inconclusive() -> None:
    for id in ("atomic.killed_at_any_call", "atomic.power_loss"):
        with pytest.raises(NotApplicable, match="inconclusive: the save is not seen whole: mmap"):
            asyncio.run(perform(CHECKS[id], named(stores.Mapped)))


def test_a_factory_without_a_name_is_inconclusive() -> None:
    with pytest.raises(NotApplicable, match="a factory that is named"):
        asyncio.run(perform(CHECKS[DISK[0]], stores.ReplacedFile))


def test_a_store_that_fails_without_any_fault_is_not_passed() -> None:
    for id in DISK:
        with pytest.raises((NotApplicable, Violation), match="without any fault"):
            asyncio.run(perform(CHECKS[id], named(stores.SavesNothing)))
