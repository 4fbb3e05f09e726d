"""What was acknowledged survives the death of its server; and a server that forgets is told."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from toolnexus_stores_contract import Violation
from toolnexus_stores_contract.faults.servers import outlive

from tests.servers import start_redis
from tests.servers.server import OURS

if TYPE_CHECKING:
    from tests.servers.server import Server

pytestmark = pytest.mark.timeout(180)  # a server's start takes seconds where it is not alone


@pytest.mark.parametrize(("backend", "saves"), [("postgres", 400), ("redis", 400), ("s3", 100)])
def test_acknowledged_saves_outlive_the_server(
    backend: str, saves: int, request: pytest.FixtureRequest
) -> None:
    server: Server = request.getfixturevalue(f"fresh_{backend}")
    toll = asyncio.run(outlive(f"{server.fresh_url()}&timeout=60", server, saves=saves))
    assert toll.rounds == 5
    assert toll.acknowledged >= 5 * saves


def test_a_server_that_forgets_is_told(pytestconfig: pytest.Config) -> None:
    if "redis" in (pytestconfig.getoption("--without") or ()):
        pytest.skip("left out by --without redis")
    server = start_redis(OURS, settings={"appendonly": "no", "save": '""'})
    try:
        with pytest.raises(Violation, match="get after the server's crash"):
            asyncio.run(outlive(server.fresh_url(), server, rounds=1, saves=50))
    finally:
        server.close()
