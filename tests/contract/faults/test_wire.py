"""The wire's traps are caught, each by the check that is named for it, and a token repeats it."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING

import pytest
from toolnexus_stores_contract import Violation, all_checks, perform
from toolnexus_stores_contract.faults import replay

from . import wired
from .wired import CAUGHT_ON_THE_WIRE

if TYPE_CHECKING:
    from tests.servers.redis import RedisServer

CHECKS = {check.id: check for check in all_checks()}


@pytest.mark.parametrize(
    ("store", "id"),
    [(store, id) for store, ids in CAUGHT_ON_THE_WIRE.items() for id in ids],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_a_trap_is_caught_and_the_token_repeats_it(
    store: type, id: str, redis: RedisServer
) -> None:
    factory = f"{wired.__name__}:{store.__name__}({redis.fresh_url()!r})"
    with pytest.raises(Violation) as caught:
        asyncio.run(perform(CHECKS[id], factory))
    assert caught.value.promised == CHECKS[id].promise
    token = re.search(r"replay: (\S+)", caught.value.seen)
    assert token is not None
    with pytest.raises(Violation):
        asyncio.run(replay(factory, token[1]))
