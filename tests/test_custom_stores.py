"""The page for authors of stores does what it says: each block of it is run, in order."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest
from toolnexus_stores_contract.report import BROKEN, INCOMPLETE, KEPT, UNTESTABLE

from .test_readme import blocks_of, table_under

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "custom-stores.md").read_text("utf-8")
SECONDS = 300


@dataclass
class Reader:
    """Somebody who types in the page, in a directory of their own."""

    place: Path
    printed: str = ""

    def file(self, text: str) -> None:
        name, _, program = text.partition("\n")
        (self.place / name.removeprefix("# ")).write_text(program)

    def installed(self, text: str) -> None:
        """What an installer makes of the entry points of a project."""
        groups = tomllib.loads(text)["project"]["entry-points"]
        information = self.place / "mydriver-1.dist-info"
        information.mkdir()
        (information / "METADATA").write_text("Metadata-Version: 2.1\nName: mydriver\nVersion: 1\n")
        (information / "entry_points.txt").write_text(
            "".join(
                f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in entries.items())
                for group, entries in groups.items()
            )
        )

    def run(self, commands: str) -> None:
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        done = subprocess.run(
            ["/bin/sh", "-c", commands],
            cwd=self.place,
            env={**os.environ, "PATH": path, "PYTHONPATH": str(self.place), "COLUMNS": "80"},
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert "Traceback" not in done.stderr
        self.printed = done.stdout

    def sees(self, text: str) -> None:
        pattern = "".join(
            ".*" if part == "…" else re.escape(part) for part in re.split("(…)", text)
        )
        assert re.search(rf"^{pattern}$", self.printed.strip("\n"), re.DOTALL | re.MULTILINE), (
            self.printed
        )


# One test for each of the two halves, so that they can run apart.
HALVES = ("a store", "a driver")


@pytest.mark.timeout(600)
@pytest.mark.parametrize("half", HALVES)
def test_the_page_does_what_it_says(half: str, tmp_path: Path) -> None:
    store, driver = PAGE.split("## Write a driver")
    reader = Reader(tmp_path)
    does = {"python": reader.file, "toml": reader.installed, "sh": reader.run}
    blocks = list(blocks_of(store if half == "a store" else driver))
    assert len(blocks) > 5
    for block in blocks:
        if block.language == "text":
            reader.sees(block.text.strip("\n"))
        else:
            does[block.language](block.text)


def test_the_store_is_as_short_as_promised() -> None:
    [first, *_] = [block.text for block in blocks_of(PAGE) if block.language == "python"]
    assert len(first.splitlines()) <= 30


def test_the_exit_statuses_are_those_of_the_command() -> None:
    rows = table_under(PAGE, "Read the answer")
    assert [int(row[0]) for row in rows] == [KEPT, BROKEN, UNTESTABLE, INCOMPLETE]


def test_the_options_are_those_of_the_command() -> None:
    from toolnexus_stores.cli import _app  # noqa: PLC0415 - needs an extra
    from typer.main import get_command  # noqa: PLC0415 - the same

    command = get_command(_app()).commands["check"]  # type: ignore[attr-defined] # a group
    real = {option for parameter in command.params for option in parameter.opts if option[0] == "-"}
    told = {
        option
        for row in table_under(PAGE, "Read the answer", 1)
        for option in re.findall(r"(?<!\w)--?[a-z]+", row[0])
    }
    assert told == real
