"""The wire's traps are caught, each by the check that is named for it, and a token repeats it."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest
from toolnexus_stores_contract import Violation, all_checks, perform
from toolnexus_stores_contract.faults import replay

from . import wired
from .wired import CAUGHT_ON_THE_WIRE

CHECKS = {check.id: check for check in all_checks()}


# The threads of a broken store go on for a while when its check has ended.
@pytest.mark.filterwarnings(
    "ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning"
)
@pytest.mark.parametrize(
    ("store", "id"),
    [(store, id) for store, ids in CAUGHT_ON_THE_WIRE.items() for id in ids],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_a_trap_is_caught_and_the_token_repeats_it(
    store: Any, id: str, request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue(store.server).fresh_url()
    factory = f"{wired.__name__}:{store.__name__}({url!r})"
    with pytest.raises(Violation) as caught:
        asyncio.run(perform(CHECKS[id], factory))
    assert caught.value.promised == CHECKS[id].promise
    token = re.search(r"replay: (\S+)", caught.value.seen)
    assert token is not None
    with pytest.raises(Violation):
        asyncio.run(replay(factory, token[1]))
