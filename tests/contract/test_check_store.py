"""`check_store` and `check_driver`: what they say of a store, whatever it does."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import pytest
from toolnexus_stores_contract import (
    LEVELS,
    BadPlan,
    NotAStore,
    Outcome,
    Progress,
    Report,
    all_checks,
    check_driver,
    check_store,
    runner,
)
from toolnexus_stores_contract.formats import to_json, to_junit, to_markdown, to_text
from toolnexus_stores_contract.report import BROKEN, INCOMPLETE, KEPT

from tests.conftest import url_below

from . import odd_stores
from .good_stores import TextStore

if TYPE_CHECKING:
    from pathlib import Path

ODD = "tests.contract.odd_stores"
SHRINKS = ["core.shrinks"]
BY_ID = {check.id: check for check in all_checks()}
FORGETS = ["core.saved_empty"]


def checked(factory: Any, **options: Any) -> Report:
    return asyncio.run(check_store(factory, **options))


@pytest.mark.parametrize(
    "factory",
    [
        *("plain", "coroutine", "async_generator", "generator", "async_context", "context"),
        *("TextStore", "Loads", "called('it', times=2)"),
    ],
)
def test_every_way_to_name_a_factory(factory: str) -> None:
    report = checked(f"{ODD}:{factory}", select=["core.saved", "core.shrinks"])
    assert (report.exit_code, report.summary) == (KEPT, "core 5/5")
    assert report.store == f"{ODD}:{factory}"


@pytest.mark.parametrize("factory", [odd_stores.plain, odd_stores.async_context, TextStore])
def test_every_kind_of_callable(factory: Any) -> None:
    report = checked(factory, select=["core.saved", "core.shrinks"])
    assert (report.exit_code, report.summary) == (KEPT, "core 5/5")


def test_claims_of_a_store_that_is_a_url(tmp_path: Path) -> None:
    some = ["core.grows", "concurrent.retried", "durable.killed", "snapshots.kept"]
    some += ["management.deleted"]
    url = f"{url_below('sqlite', tmp_path)}?snapshots=10"
    report = checked(url, claims=LEVELS, select=some)
    levels = ("core", "concurrent", "durable", "snapshots", "management")
    assert report.summary == " · ".join(f"{level} 1/1" for level in levels)
    assert (report.exit_code, report.violations, report.notes) == (KEPT, [], ())


def test_what_is_not_claimed_is_tried_out_and_noted() -> None:
    report = checked(f"{ODD}:TextStore", levels=None)
    assert report.claims == ("core",)
    assert report.exit_code == KEPT
    assert report.not_offered.keys() == {"durable", "snapshots", "management"}
    assert report.not_offered["snapshots"] == "the store has no snapshots()"
    assert report.not_offered["management"] == "the store has no ids()"
    assert report.not_offered["durable"].startswith("durable.reopened: get gave None")
    assert [note.partition(" is ")[0] for note in report.notes] == ["concurrent"]
    assert "core 58/58 · not claimed: concurrent (11/11 kept), durable, snapshots, management" in (
        to_text(report)
    )


def test_what_is_claimed_and_broken_is_a_violation() -> None:
    report = checked(f"{ODD}:TextStore", claims=["durable"], select=["core.grows", "durable.reop"])
    assert report.exit_code == BROKEN
    assert [outcome.check.id for outcome in report.violations] == [
        "durable.reopened",
        "durable.reopened_empty",
        "durable.reopened_exactly",
        "durable.reopened_and_extended",
    ]


def test_what_is_named_is_claimed() -> None:
    report = checked(f"{ODD}:TextStore", select=["durable.reopened"])
    assert report.claims == ("durable",)
    assert {outcome.check.id for outcome in report.violations} == {"durable.reopened"}
    assert checked(f"{ODD}:TextStore", levels=["management"]).exit_code == BROKEN


def test_a_callable_is_not_tested_across_processes() -> None:
    report = checked(TextStore, claims=["durable"], select=["durable.killed", "core.shrinks"])
    assert report.exit_code == INCOMPLETE
    assert report.problems == ["durable is claimed, and none of its checks could be made"]
    [killed] = [each for each in report.outcomes if each.check.id == "durable.killed"]
    assert (killed.result, killed.seen) == (
        "inapplicable",
        "another process needs a factory that is named as a string",
    )
    assert "Not tested\n  durable.killed: another process needs" in to_text(report)
    assert "Incomplete\n  durable is claimed" in to_text(report)


def test_expected_failures() -> None:
    reasons = dict.fromkeys(FORGETS, "by design")
    report = checked(f"{ODD}:Forgets", select=[*FORGETS, *SHRINKS], expected_failures=reasons)
    assert (report.exit_code, report.summary) == (KEPT, "core 1/2")
    assert "Fails as expected\n  core.saved_empty: by design\n" in to_text(report)

    stale = {**reasons, "core.shrinks": "once"}
    report = checked(f"{ODD}:Forgets", select=[*FORGETS, *SHRINKS], expected_failures=stale)
    assert (report.exit_code, report.stale_expectations) == (BROKEN, SHRINKS)
    assert "take it off the list\n  core.shrinks\n" in to_text(report)


def test_an_expected_failure_that_is_not_asked_for_is_not_missed() -> None:
    report = checked(f"{ODD}:plain", select=SHRINKS, expected_failures={"core.emptied": "why"})
    assert report.exit_code == KEPT


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"select": ["shrunk"]}, "no check is named shrunk"),
        ({"select": ["core.shrink_"]}, "(did you mean core.shrinks?)"),
        (
            {"levels": ["durabel"]},
            "no such level: durabel (did you mean durable?); there are",
        ),
        ({"claims": ["quick"]}, "no such level: quick; there are core, concurrent"),
        ({"claims": ["durable"], "levels": ["core"]}, "durable is claimed, and left out"),
        ({"expected_failures": {"core.shrunk": "x"}}, "no such check: core.shrunk"),
        ({"expected_failures": {"durable.killed": "x"}}, "not of a level that is claimed"),
        ({"select": ["durable."], "levels": ["core"]}, "no check is named durable."),
    ],
)
def test_a_plan_that_makes_no_sense(options: dict[str, Any], words: str) -> None:
    with pytest.raises(BadPlan) as caught:
        checked(f"{ODD}:plain", **options)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("factory", "words"),
    [
        ("tests.contract.odd_stores", "a factory is named 'package.module:factory' or by URL"),
        ("nowhere:x", "'nowhere:x' cannot be imported: No module named 'nowhere'"),
        (f"{ODD}:nope", "cannot be imported: module 'tests.contract.odd_stores' has no attribute"),
        (f"{ODD}:__name__", "is not callable"),
        (f"{ODD}:called(it)", "are not literals such as 'text' or 7"),
        (f"{ODD}:called('it', **{{}})", "are not literals"),
        (f"{ODD}:called('it'", "are not literals"),
        (f"{ODD}:called('it').get", "are not literals"),
        (f"{ODD}:raises", "the factory raised RuntimeError: no table 'x' (odd_stores.py:"),
        (f"{ODD}:exits", "the factory raised SystemExit: bye"),
        (f"{ODD}:nothing", "the factory gave NoneType, which lacks get(id) or save"),
        (f"{ODD}:no_save", "the factory gave Reads, which lacks get(id) or save"),
        (f"{ODD}:IsAway", "does not work: get raised ConnectionError: refused; save raised Conn"),
        (f"{ODD}:CannotClose", "close raised RuntimeError: still in use"),
        (f"{ODD}:raises_the_url('db://ada:hunter2@host')", "db://ada:***@host refused"),
        ("redys://host", "unknown scheme 'redys'"),
        ("sqlite:////nowhere/x.db", "does not work: get raised Unavailable: "),
        (f"{ODD}:sleeps", "the factory did not end within 0.5 s"),
        (f"{ODD}:blocks", "did not end within 0.5 s, and blocks its event loop (odd_stores.py:"),
        (
            f"{ODD}:SleepsInEverySave",
            "a first save, or the close after it, did not end within 0.5 s",
        ),
        (odd_stores.raises, "the factory raised RuntimeError: no table 'x' (odd_stores.py:"),
        (odd_stores.blocks, "did not end within 0.5 s, and blocks its event loop (odd_stores.py:"),
        (7, "a factory is a name or a callable, not int"),
    ],
)
def test_nothing_to_be_tested(factory: Any, words: str) -> None:
    limit = 0.5 if "0.5" in words else None
    with pytest.raises(NotAStore) as caught:
        checked(factory, limit=limit)
    assert words in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_a_module_that_cannot_be_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text, words in (
        ("syntax", "def open(:\n", "cannot be imported: SyntaxError: "),
        ("syntax", "def open(:\n", "(syntax.py:1)"),
        ("leaves", "raise SystemExit(3)", "cannot be imported: SystemExit: 3"),
        ("fails", "1 / 0", "cannot be imported: ZeroDivisionError: division by zero (fails.py:1"),
    ):
        (tmp_path / f"{name}.py").write_text(text)
        with pytest.raises(NotAStore) as caught:
            checked(f"{name}:open")
        assert words in str(caught.value)


@pytest.mark.parametrize(
    ("name", "seen", "where"),
    [
        ("Blocks", "did not end within 0.5 s, and blocks its event loop", "in block"),
        ("HoldsTheInterpreter", "did not end within 0.5 s, and blocks its event loop", ""),
        ("Sleeps", "did not end within 0.5 s", ""),
        ("Exits", "the process that the store was opened in ended with status 7", ""),
    ],
)
def test_a_check_that_hangs_or_crashes_is_broken_and_the_next_is_made(
    name: str, seen: str, where: str
) -> None:
    chosen = ["core.shrinks", "core.replaced", "core.grows"]
    report = checked(f"{ODD}:{name}", select=chosen, limit=0.5)
    results = {outcome.check.id: outcome for outcome in report.outcomes}
    assert [results[id].result for id in chosen] == ["broken", "kept", "kept"]
    assert results["core.shrinks"].seen == seen
    assert where in results["core.shrinks"].where


def test_a_callable_that_blocks_is_left_alone() -> None:
    report = checked(odd_stores.Blocks, select=["core.shrinks", "core.grows"], limit=0.3)
    [shrinks] = report.violations
    assert shrinks.seen == "did not end within 0.3 s, and blocks its event loop"
    assert shrinks.where.endswith(", in block")
    assert "again     await check_store(factory, select=['core.shrinks'])" in to_text(report)


def test_after_three_hangs_it_is_enough() -> None:
    report = checked(f"{ODD}:Sleeps", levels=["core"], limit=0.2)
    assert len(report.violations) == 3
    assert report.exit_code == BROKEN
    assert "3 checks did not end; " in to_text(report)


def test_what_a_store_prints_is_not_in_the_way() -> None:
    assert checked(f"{ODD}:Prints", select=["core.shrinks"]).exit_code == KEPT


def test_what_a_store_leaves_behind_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "_LEAVING", 1.0)
    report = checked(f"{ODD}:LeavesAThread", select=["core.shrinks"])
    [note] = report.notes
    assert note == (
        "left behind by the store, and kept the process from ending: threads: "
        "left-behind, left-behind"
    )


def test_what_makes_a_check_stumble_is_a_violation() -> None:
    report = checked(f"{ODD}:GivesNumbers", select=["core.plain_types"])
    [outcome] = report.violations
    assert outcome.seen == "the check could not go on: TypeError: 'int' object is not iterable"


def test_passwords_are_not_shown() -> None:
    report = checked(f"{ODD}:Hidden('db://ada:hunter2@host/x')", select=["refus"])
    texts = [form(report) for form in (to_text, to_json, to_junit, to_markdown)]
    assert [text for text in texts if "hunter2" in text] == []
    assert "Hidden('\"'\"'db://ada:***@host/x" in texts[0]
    assert {each.check.id for each in report.violations} == {"core.refusals_keep_secrets"}


def test_progress_is_told() -> None:
    steps: list[Progress] = []
    checked(f"{ODD}:plain", select=["core.saved_empty", "core.emptied"], on_progress=steps.append)
    told = [(step.number, step.total, step.check.id, step.outcome is None) for step in steps]
    assert told == [
        (1, 2, "core.saved_empty", True),
        (1, 2, "core.saved_empty", False),
        (2, 2, "core.emptied", True),
        (2, 2, "core.emptied", False),
    ]


def test_a_driver(tmp_path: Path) -> None:
    url = url_below("sqlite", tmp_path)
    report = asyncio.run(check_driver(url, select=["driver.deleted", "driver.reopened"]))
    assert (report.exit_code, report.summary) == (KEPT, "driver 2/2")
    with pytest.raises(NotAStore, match="the factory gave TextStore, which lacks open, head, read"):
        asyncio.run(check_driver(f"{ODD}:plain"))


# The forms of a report.

SEEN = "get gave 'a|b' <x> \x00"


def report_of(**changes: Any) -> Report:
    outcomes = (
        Outcome(BY_ID["core.shrinks"], "broken", SEEN, 1.25, "mine.py:3, in get"),
        Outcome(BY_ID["core.grows"], "kept", "", 0.5),
        Outcome(BY_ID["core.emptied"], "broken", "nothing"),
        Outcome(BY_ID["core.process_ends"], "inapplicable", "no name"),
        Outcome(BY_ID["durable.reopened"], "broken", "gone"),
        Outcome(BY_ID["durable.killed"], "kept"),
    )
    values: dict[str, Any] = {"store": "mine:open it", "claims": ("core",), "outcomes": outcomes}
    values["expected_failures"] = {"core.emptied": "on purpose"}
    return Report(**{**values, **changes})


def test_as_text() -> None:
    assert to_text(report_of(notes=("a note",))) == (
        "BROKEN core.shrinks\n"
        f"  promised  {BY_ID['core.shrinks'].promise}\n"
        f"  seen      {SEEN}\n"
        "  where     mine.py:3, in get\n"
        "  again     toolnexus-stores check 'mine:open it' -k core.shrinks\n"
        "\n"
        "Fails as expected\n"
        "  core.emptied: on purpose\n"
        "\n"
        "Not tested\n"
        "  core.process_ends: no name\n"
        "\n"
        "Not claimed\n"
        "  durable.reopened: gone\n"
        "\n"
        "Notes\n"
        "  a note\n"
        "\n"
        "mine:open it: core 1/3 · not claimed: durable (1/2 kept)\n"
    )


def test_as_json() -> None:
    found = json.loads(to_json(report_of()))
    assert found["exit_code"] == BROKEN
    assert found["levels"]["core"] == {"claimed": True, "kept": 1, "made": 3, "not_offered": None}
    assert found["checks"][0] == {
        "id": "core.shrinks",
        "promise": BY_ID["core.shrinks"].promise,
        "result": "broken",
        "expected": None,
        "seen": SEEN,
        "where": "mine.py:3, in get",
        "again": "toolnexus-stores check 'mine:open it' -k core.shrinks",
        "seconds": 1.25,
        "counts": {},
    }


def test_as_junit() -> None:
    suite = ElementTree.fromstring(to_junit(report_of(stopped="it was enough")))
    counts = {name: suite.get(name) for name in ("tests", "failures", "errors", "skipped")}
    assert counts == {"tests": "7", "failures": "1", "errors": "1", "skipped": "3"}
    cases = {f"{case.get('classname')}.{case.get('name')}": list(case) for case in suite}
    assert [each.tag for each in cases["contract.core.shrinks"]] == ["failure"]
    assert cases["contract.core.grows"] == []
    assert cases["contract.core.emptied"][0].get("message") == "on purpose"
    assert cases["contract.durable.reopened"][0].tag == "skipped"
    assert cases["contract.complete"][0].get("message") == "it was enough"


def test_as_markdown() -> None:
    badge, *rest = to_markdown(report_of()).splitlines()
    assert badge == "![contract: 1 broken](https://img.shields.io/badge/contract-1%20broken-red)"
    assert "| `core` | yes | 1 of 3 |" in rest
    assert "| `durable` | no | 1 of 2 |" in rest
    assert "| `concurrent` | no | not tested |" in rest
    assert r"| `core.shrinks` | get gave 'a\|b' <x> " in "\n".join(rest)
    assert "| `core.emptied` | on purpose: on purpose |" in rest

    kept = report_of(outcomes=report_of().outcomes[1:2], expected_failures={})
    assert "contract-core-brightgreen" in to_markdown(kept)
    assert "contract-incomplete-lightgrey" in to_markdown(
        report_of(outcomes=(), expected_failures={})
    )


def test_a_report_of_nothing_is_no_success() -> None:
    assert Report("x", (), ()).exit_code == INCOMPLETE
    assert Report("x", ("core",), ()).exit_code == INCOMPLETE
