"""The pytest front end, as an author of a store meets it."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from toolnexus_stores_contract import all_checks

if TYPE_CHECKING:
    from collections.abc import Callable

    from _pytest.pytester import RunResult

    Run = Callable[..., RunResult]

STORE = """
import json
from contextlib import asynccontextmanager

class Store:
    def __init__(self):
        self.texts = {}
    async def get(self, id):
        return json.loads(self.texts[id]) if id in self.texts else None
    async def save(self, id, messages):
        if not isinstance(messages, list) or not all(isinstance(each, dict) for each in messages):
            raise TypeError("messages is a list of objects")
        try:
            self.texts[id] = json.dumps(messages)
        except (TypeError, ValueError):
            raise TypeError("not JSON") from None

class Loads(Store):
    load = Store.get
    get = None

class Forgets(Store):
    async def get(self, id):
        return await super().get(id) or None

the_one = Store()
def plain(): return the_one
async def coroutine(): return the_one
async def generator(): yield the_one
@asynccontextmanager
async def context(): yield the_one
def loads(): return Loads()
def fresh(): return Store()
def broken(): return object()
def forgets(): return Forgets()
"""
HEAD = """
from toolnexus_stores_contract import StoreContract
import mystore
class TestMine(StoreContract):
    claims = ("core", "concurrent")
"""
CORE = sum(check.level == "core" for check in all_checks())
CLAIMED = CORE + sum(check.level == "concurrent" for check in all_checks())


@pytest.fixture
def run(pytester: pytest.Pytester) -> Run:
    """Runs pytest in a process of its own on a test file with these lines in `TestMine`."""
    pytester.makepyfile(mystore=STORE)

    def run_it(*lines: str, options: tuple[str, ...] = (), head: str = HEAD) -> RunResult:
        body = "\n".join(f"    {line}" for line in lines)
        pytester.makepyfile(test_mine=f"{head}\n{body}\n")
        return pytester.runpytest_subprocess("-p", "no:cacheprovider", "-q", *options)

    return run_it


@pytest.mark.parametrize("name", ["plain", "coroutine", "generator", "context", "loads"])
def test_every_way_to_write_a_factory(run: Run, name: str) -> None:
    run(f"factory = 'mystore:{name}'").assert_outcomes(passed=CLAIMED + 1)


@pytest.mark.parametrize(
    "line", ["factory = mystore.plain", "def factory(self): return mystore.the_one"]
)
def test_a_factory_in_the_class(run: Run, line: str) -> None:
    run(line, "claims = ()").assert_outcomes(passed=CORE + 1)


def test_one_item_for_each_check_named_by_its_id(run: Run) -> None:
    result = run("factory = 'mystore:plain'", options=("--collect-only",))
    for check in all_checks():
        found = f"test_mine.py::TestMine::test_contract[{check.id}]" in result.outlines
        assert found == (check.level in {"core", "concurrent"})


def test_a_violation_says_what_was_promised_and_what_was_seen(run: Run) -> None:
    result = run("factory = 'mystore:forgets'", options=("-k", "saved_empty"))
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "*A transcript that was saved empty is an empty list, not None.",
            "*get gave None, not an empty transcript",
        ]
    )


def test_the_authors_own_asserts_are_rewritten(run: Run) -> None:
    result = run(
        "factory = 'mystore:plain'",
        "claims = ()",
        "def test_more(self): assert len(self.claims) == 7, 'mine'",
        options=("-k", "more"),
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*assert 0 == 7", "*where 0 = len(())"])


def test_expected_failures_are_reported_with_their_reason(run: Run) -> None:
    reasons = {"core.saved_empty": "by design", "core.emptied": "too", "core.rollback": "also"}
    result = run("factory = 'mystore:forgets'", f"expected_failures = {reasons}", options=("-rx",))
    result.assert_outcomes(passed=CLAIMED - 3 + 1, xfailed=3)
    result.stdout.fnmatch_lines(["XFAIL*core.saved_empty*by design"])


def test_an_expected_failure_that_passes_is_a_failure(run: Run) -> None:
    result = run("factory = 'mystore:plain'", "expected_failures = {'core.shrinks': 'once'}")
    result.assert_outcomes(passed=CLAIMED, failed=1)
    result.stdout.fnmatch_lines(["*XPASS(strict)*once"])


def test_an_expected_failure_that_is_not_run_is_a_failure(run: Run) -> None:
    result = run(
        "factory = 'mystore:plain'",
        "expected_failures = {'core.shrunk': 'misspelt', 'durable.reopened': 'unclaimed'}",
    )
    result.assert_outcomes(passed=CLAIMED, failed=1)
    result.stdout.fnmatch_lines(["*not run here: core.shrunk, durable.reopened"])


def test_only_a_violation_is_an_expected_failure(run: Run) -> None:
    result = run(
        "factory = 'mystore:broken'",
        "expected_failures = {'core.shrinks': 'whatever'}",
        options=("-k", "shrinks"),
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*the factory gave object, which lacks get*"])


def test_an_unknown_claim_is_a_failure(run: Run) -> None:
    result = run("factory = 'mystore:plain'", "claims = ('core', 'durabel')")
    result.assert_outcomes(passed=CORE, failed=1)
    result.stdout.fnmatch_lines(["*no such level: durabel"])


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("pass", "TestMine names no factory"),
        ("factory = 'mystore.plain'", "*a factory is named 'package.module:factory'*"),
        ("factory = 'mystore:plan'", "*cannot be imported*plan*"),
        ("factory = 'nowhere:plain'", "*cannot be imported*nowhere*"),
        ("factory = 'mystore:HEAD'", "*cannot be imported*"),
        ("factory = 'mystore:__name__'", "*is not callable"),
        ("factory = 'redys://host'", "*unknown scheme 'redys'*"),
    ],
)
def test_a_factory_that_is_none(run: Run, line: str, complaint: str) -> None:
    result = run(line, options=("-k", "shrinks"))
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([f"*{complaint}"])


def test_another_process_needs_storage_that_is_shared(run: Run) -> None:
    # Every opening is the same object in this process; only another process can tell.
    claims = "claims = ('durable',)"
    only = ("-k", "another_process", "-rs")
    result = run("factory = 'mystore:plain'", claims, options=only)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*get in another process gave None*"])

    result = run("factory = mystore.plain", claims, options=only)
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["SKIPPED*only if the factory is named as a string"])


def test_a_durable_level_that_is_not_durable(run: Run) -> None:
    result = run("factory = 'mystore:fresh'", "claims = ('durable',)", options=("-k", "reopened"))
    result.assert_outcomes(failed=3)


def test_the_suite_needs_neither_pytest_nor_our_stores() -> None:
    program = (
        "import sys; sys.modules['pytest'] = sys.modules['toolnexus_stores'] = None;"
        "import toolnexus_stores_contract as suite; assert len(suite.all_checks()) > 40"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=30)
