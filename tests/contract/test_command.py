"""``toolnexus-stores check``, as an author meets it."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest
from toolnexus_stores.cli import _app
from toolnexus_stores_contract import LEVELS, all_checks, all_driver_checks
from typer.testing import CliRunner

from tests.conftest import url_below

from .faults import stores

if TYPE_CHECKING:
    from pathlib import Path

    from typer.testing import Result

ODD = "tests.contract.odd_stores"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(_app(), ["check", *arguments], env={"COLUMNS": "200"})


def test_a_store_that_keeps_what_it_claims() -> None:
    result = run(f"{ODD}:plain", "-k", "core.saved", "-k", "core.grows")
    assert (result.exit_code, result.stdout) == (0, f"{ODD}:plain: core 5/5\n")
    assert result.stderr == "   1 of 5: core\n"


def test_a_violation_says_what_was_promised_what_was_seen_and_how_to_see_it_again() -> None:
    result = run(f"{ODD}:Forgets", "-k", "saved_empty")
    assert result.exit_code == 1
    assert result.stdout == (
        "BROKEN core.saved_empty\n"
        "  promised  A transcript that was saved empty is an empty list, not None.\n"
        "  seen      get gave None, not an empty transcript\n"
        f"  again     toolnexus-stores check {ODD}:Forgets -k core.saved_empty\n"
        "\n"
        f"{ODD}:Forgets: core 0/1\n"
    )
    again = result.stdout.partition("again     toolnexus-stores check ")[2].splitlines()[0]
    assert run(*again.split()).stdout == result.stdout


def test_a_fault_is_repeated_by_its_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(stores.PLACE, str(tmp_path))
    broken, good = (f"{stores.__name__}:{name}" for name in ("NotSynced", "ReplacedFile"))
    result = run(broken, "-k", "atomic.power_loss")
    token = result.stdout.partition("replay: ")[2].split()[0]
    assert (result.exit_code, token.partition(":")[0]) == (1, "crashstates")
    again = run(broken, "--replay", token)
    assert (again.exit_code, token in again.stdout) == (1, True)
    assert run(good, "--replay", "syscalls:replace:#2:kill").exit_code == 0
    assert run(good, "--replay", "wire:save:out:8:rst").exit_code == 3
    assert run(good, "--replay", "nonsense").exit_code == 2


def test_how_much_was_tried_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(stores.PLACE, str(tmp_path))
    result = run(f"{stores.__name__}:ReplacedFile", "-k", "killed_at_any_call", "--json")
    counts = json.loads(result.stdout)["counts"]
    assert result.exit_code == 0
    assert min(counts["system calls"], counts["calls hit"]) > 0


def test_claims_and_expected_failures() -> None:
    arguments = [f"{ODD}:plain", "-k", "core.grows", "-k", "durable.reopened"]
    assert run(*arguments, "--claim", "core").exit_code == 0
    assert run(*arguments, "--claim", "concurrent,durable").exit_code == 0  # the one object
    fresh = [f"{ODD}:TextStore", *arguments[1:]]
    assert run(*fresh, "--claim", "concurrent,durable").exit_code == 1
    result = run(*fresh, "--claim", "durable", "--expect", "durable.reopened=it is for tests")
    assert (result.exit_code, "durable.reopened: it is for tests" in result.stdout) == (0, True)
    assert run(*arguments, "--expect", "core.grows=once").exit_code == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "name a store: its URL, or module:factory"),
        (("nowhere:x",), "the factory 'nowhere:x' cannot be imported"),
        ((f"{ODD}:raises",), "the factory raised RuntimeError: no table 'x'"),
        ((f"{ODD}:blocks", "--timeout", "0.3"), "did not end within 0.3 s, and blocks its event"),
        ((f"{ODD}:nothing",), "the factory gave NoneType"),
        ((f"{ODD}:plain", "-k", "shrunk"), "no check is named shrunk"),
        ((f"{ODD}:plain", "--level", "durabel"), "did you mean durable?"),
        ((f"{ODD}:plain", "--expect", "core.grows"), "say why core.grows is to fail"),
        (("--explain", "core.shrink"), "did you mean core.shrinks?"),
        (
            (f"{ODD}:plain", "-k", "core.grows", "--junit", "/nowhere/x.xml"),
            "/nowhere/x.xml: No such file or directory",
        ),
    ],
)
def test_what_cannot_be_tested_is_one_clear_line(arguments: tuple[str, ...], words: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    [*_, line] = result.stderr.splitlines()
    assert line.startswith("toolnexus-stores: ")
    assert words in line


def test_a_level_that_could_not_be_tested_is_no_success(tmp_path: Path) -> None:
    result = run(url_below("memory", tmp_path), "--driver", "-k", "driver.absent")
    assert result.exit_code == 0
    assert result.stdout.endswith("memory://: driver 1/1\n")


def test_the_forms_of_a_report(tmp_path: Path) -> None:
    junit, markdown = tmp_path / "report.xml", tmp_path / "report.md"
    result = run(
        *(f"{ODD}:Forgets", "-k", "core.saved_empty", "-k", "core.grows", "--json"),
        *("--junit", str(junit), "--markdown", str(markdown)),
    )
    assert result.exit_code == 1
    assert json.loads(result.stdout)["levels"]["core"]["kept"] == 1
    assert ElementTree.parse(junit).getroot().get("failures") == "1"
    assert markdown.read_text().startswith("![contract: 1 broken](")


def test_the_list_has_every_check() -> None:
    lines = run("--list").stdout.splitlines()
    assert lines[::2] == [check.id for check in all_checks()]
    assert [line.strip() for line in lines[1::2]] == [check.promise for check in all_checks()]
    assert run("--list", "--level", "durable").stdout.startswith("durable.reopened\n")
    assert run("--list", "--driver").stdout.count("driver.") == len(all_driver_checks())


@pytest.mark.parametrize("check", [*all_checks()[:3], all_driver_checks()[0]], ids=lambda c: c.id)
def test_a_check_is_explained(check: object) -> None:
    [check] = [each for each in (*all_checks(), *all_driver_checks()) if each is check]
    text = run("--explain", check.id).stdout
    assert text.startswith(f"{check.id}\n\nPromise: {check.promise}\n\nWhy: {check.why}\n\n")
    assert text.endswith(check.source)


def test_the_help_has_every_option_and_the_exit_statuses() -> None:
    text = run("--help").stdout
    for option in ("-k", "--level", "--claim", "--expect", "--list", "--explain", "--json"):
        assert option in text
    for option in ("--junit", "--markdown", "--driver", "--timeout"):
        assert option in text
    assert "Exit status: 0 every claimed promise is kept; 1 a promise is broken" in " ".join(
        text.split()
    )
    for level in LEVELS:
        assert level in text


def test_the_installed_command(tmp_path: Path) -> None:
    (tmp_path / "mystore.py").write_text(
        "import json\n"
        "texts = {}\n"
        "class Store:\n"
        "    async def get(self, id):\n"
        "        return json.loads(texts[id]) if id in texts else None\n"
        "    async def save(self, id, messages):\n"
        "        texts[id] = json.dumps(messages)\n"
    )
    from_here = [sys.executable, "-c", "from toolnexus_stores.cli import main; main()"]
    done = subprocess.run(
        [*from_here, "check", "mystore:Store", "-k", "shrinks"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "mystore:Store: core 1/1\n")


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_without_its_extra_the_command_says_what_to_install(missing: str) -> None:
    program = (
        "import importlib.util as u; find = u.find_spec;"
        f"u.find_spec = lambda name: None if name == {missing!r} else find(name);"
        "from toolnexus_stores.cli import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 2
    assert done.stderr == (
        f"toolnexus-stores needs {missing}: pip install 'toolnexus-stores[cli]'\n"
    )
