"""What each promise was tested with: ``python -m tests.contract.points`` writes README's table.

Each check is made once on each backend that it can be made on, on the servers of the tests, and the
table says how much it tried. A promise that is broken ends it.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from toolnexus_stores_contract import all_checks, perform
from toolnexus_stores_contract.faults.servers import outlive

from tests.conftest import url_below
from tests.servers import start_postgres, start_redis, start_s3
from tests.servers.server import OURS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from toolnexus_stores_contract import Check

    from tests.servers.server import Server

__all__ = ["COLUMNS", "OUTLIVED", "PAGE", "ROWS", "columns_of"]

PAGE = Path(__file__).parents[2] / "README.md"
COLUMNS = {
    "file": "file",
    "sqlite": "SQLite",
    "postgres": "Postgres",
    "redis": "Redis",
    "s3": "S3",
}
_FILES = ("file", "sqlite")
_SAVES = {"postgres": 400, "redis": 400, "s3": 100}
_BEGIN, _END = "<!-- points -->\n", "<!-- /points -->\n"


@dataclass(frozen=True)
class Row:
    """A check, how it is made in a few words, and what it counts."""

    id: str
    how: str
    counted: str
    unit: str


ROWS = (
    Row("atomic.killed_at_any_call", "SIGKILL before each system call", "calls hit", "calls"),
    Row("atomic.killed_in_any_write", "SIGKILL within each write", "writes torn", "cuts"),
    Row("atomic.error_at_any_call", "an error from each system call", "calls hit", "errors"),
    Row("atomic.short_write", "each write is taken in part", "writes torn", "cuts"),
    Row("atomic.power_loss", "legal states of the disk", "distinct crash states", "states"),
    Row(
        "durable.power_loss_after_save",
        "the same, after the acknowledgement",
        "distinct crash states",
        "states",
    ),
    Row("atomic.cancelled_in_any_call", "cancelled in each call", "threads held", "calls"),
    Row("atomic.overtaken_in_any_call", "stopped in each call", "threads held", "calls"),
    Row("atomic.cut_in_save", "reset, end, half-close", "cuts in a save", "cuts"),
    Row("atomic.cut_in_get", "reset, end, half-close", "cuts in a get", "cuts"),
    Row("atomic.delivered_late", "bytes held back, then sent", "late deliveries", "deliveries"),
    Row("concurrent.cancelled_at_each_await", "cancelled at each", "awaits cancelled", "awaits"),
    Row("concurrent.history", "tasks and threads at once", "operations checked", "operations"),
    Row("durable.history", "three processes at once", "operations checked", "operations"),
)

OUTLIVED = "A save that was acknowledged outlives its server."
_OUTLIVED_HOW = "SIGKILL of the server in a save loop, five times"


def columns_of(check: Check) -> Sequence[str]:
    """The backends that *check* can be made on."""
    served = tuple(name for name in COLUMNS if name not in _FILES)
    return {"files": _FILES, "server": served, None: tuple(COLUMNS)}[check.storage]


def _table(urls: Mapping[str, str], servers: Mapping[str, Server]) -> Iterator[str]:
    yield f"| promise | tested by | {' | '.join(COLUMNS.values())} |"
    yield "| --- " * (2 + len(COLUMNS)) + "|"
    checks = {check.id: check for check in all_checks()}
    for row in ROWS:
        check = checks[row.id]
        tried = {name: _tried(check, row, urls[name]) for name in columns_of(check)}
        yield _line(check.promise, row.how, row.unit, tried)
    tried = {name: _outlived(urls[name], server, name) for name, server in servers.items()}
    yield _line(OUTLIVED, _OUTLIVED_HOW, "saves", tried)


def _tried(check: Check, row: Row, url: str) -> int:
    print(f"{check.id} on {url.partition(':')[0]}", file=sys.stderr)
    return asyncio.run(perform(check, url))[row.counted]


def _outlived(url: str, server: Server, name: str) -> int:
    toll = asyncio.run(outlive(f"{url}&timeout=60", server, saves=_SAVES[name]))
    return toll.acknowledged


def _line(promise: str, how: str, unit: str, tried: Mapping[str, int]) -> str:
    cells = [f"{tried[name]:,}" if name in tried else "-" for name in COLUMNS]
    return f"| {promise} | {how}: {unit} | {' | '.join(cells)} |"


def _measured() -> str:
    """The table, on storage of its own."""
    with ExitStack() as stack:
        place = Path(stack.enter_context(TemporaryDirectory()))
        s3 = start_s3(OURS)
        stack.callback(s3.close)
        os.environ |= s3.environment
        servers: dict[str, Server] = {
            "postgres": start_postgres(OURS),
            "redis": start_redis(OURS),
            "s3": s3,
        }
        stack.callback(servers["postgres"].close)
        stack.callback(servers["redis"].close)
        urls = {name: server.fresh_url() for name, server in servers.items()}
        urls |= {name: url_below(name, place) for name in _FILES}
        return "".join(f"{line}\n" for line in _table(urls, servers))


def main() -> None:
    """See the module."""
    page = PAGE.read_text("utf-8")
    pattern = re.compile(f"(?<={_BEGIN}).*?(?={_END})", re.DOTALL)
    if not pattern.search(page):
        raise SystemExit(f"{PAGE.name} has no place for the table")
    measured = _measured()
    PAGE.write_text(pattern.sub(lambda _: measured, page), encoding="utf-8")


if __name__ == "__main__":
    main()
