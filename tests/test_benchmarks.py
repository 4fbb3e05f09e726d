"""The benchmarks run, and what they count rather than time is as promised."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from .benchmarks import compacting, servers

if TYPE_CHECKING:
    from pathlib import Path

COUNTED = ("bytes sent a save", "get of an unchanged conversation", "its gzip size")


@pytest.mark.parametrize(("name", "counted"), [("postgres", 2), ("redis", 2), ("s3", 2)])
def test_what_goes_over_the_wire(
    name: str, counted: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert servers.main([name, "--quick"]) == 0
    lines = [
        line for line in capsys.readouterr().out.splitlines() if any(c in line for c in COUNTED)
    ]
    assert len(lines) == counted
    assert [line for line in lines if "NOT met" in line or "met" not in line] == []


def test_a_compacting_save_is_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert compacting.main(["--rounds", "1", "--dir", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert [printed.count(f"{name}: compacting save") for name in ("file", "sqlite")] == [1, 1]
