"""The page on faults does what it says: each block of it is run, in order."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.servers.net import free_port
from tests.servers.redis import from_wheel, installed
from tests.servers.server import NotOfferedError

from .test_custom_stores import Reader
from .test_readme import blocks_of

if TYPE_CHECKING:
    from tests.servers.redis import RedisServer

PAGE = (Path(__file__).parents[1] / "docs" / "faults.md").read_text("utf-8")


@pytest.fixture
def redis_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``redis-server`` on the path, also where only the wheel has one."""
    try:
        program = installed()
    except NotOfferedError:
        program = from_wheel()
    place = tmp_path / "bin"
    place.mkdir()
    (place / "redis-server").symlink_to(program.path)
    monkeypatch.setenv("PATH", f"{place}{os.pathsep}{os.environ['PATH']}")


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("redis_program")
def test_the_page_does_what_it_says(redis: RedisServer, tmp_path: Path) -> None:
    given = {
        "redis://127.0.0.1:6399/0": redis.fresh_url().partition("?")[0],
        "6398": str(free_port()),
    }
    page = PAGE
    for written, real in given.items():
        page = page.replace(written, real)
    reader = Reader(tmp_path)
    does = {"python": reader.file, "sh": reader.run}
    blocks = list(blocks_of(page))
    assert sum(block.language == "text" for block in blocks) >= 9
    for block in blocks:
        if block.language == "text":
            reader.sees(block.text.strip("\n"))
        else:
            does[block.language](block.text)
