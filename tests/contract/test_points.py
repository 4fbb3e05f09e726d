"""The table of what was tried says what the suite promises, and a number where there is one."""

from __future__ import annotations

import re

import pytest
from toolnexus_stores_contract import all_checks

from tests.test_readme import table_under

from .points import COLUMNS, OUTLIVED, PAGE, ROWS, Row, columns_of

CHECKS = {check.id: check for check in all_checks()}
TABLE = {row[0]: row[2:] for row in table_under(PAGE.read_text("utf-8"), "What it was tested with")}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_a_number_for_each_backend_that_the_check_can_be_made_on(row: Row) -> None:
    check = CHECKS[row.id]
    numbers = [
        name for name, cell in zip(COLUMNS, TABLE[check.promise], strict=True) if cell != "-"
    ]
    assert tuple(numbers) == tuple(columns_of(check))


def test_every_check_with_faults_has_a_row() -> None:
    told = {CHECKS[row.id].promise for row in ROWS} | {OUTLIVED}
    assert told == TABLE.keys()
    assert {id for id in CHECKS if id.startswith("atomic.")} <= {row.id for row in ROWS}
    for cells in TABLE.values():
        assert all(re.fullmatch(r"-|[1-9][\d,]*", cell) for cell in cells)
