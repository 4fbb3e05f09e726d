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
CLAIMED = sum(check.level in {"core", "concurrent"} for check in all_checks())
SOME = tuple(check.id for check in all_checks() if check.id.startswith("core.saved"))


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs pytest, without plugins, in a process of its own on a file with these lines."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makepyfile(mystore=STORE)

    def run_it(*lines: str, options: tuple[str, ...] = (), head: str = HEAD) -> RunResult:
        body = "\n".join(f"    {line}" for line in lines)
        pytester.makepyfile(test_mine=f"{head}\n{body}\n")
        return pytester.runpytest_subprocess("-p", "no:cacheprovider", "-q", *options)

    return run_it


def test_all_that_is_claimed_is_run(run: Run) -> None:
    run("factory = 'mystore:plain'").assert_outcomes(passed=CLAIMED + 1)


def test_every_way_to_write_a_factory(run: Run) -> None:
    names = ("plain", "coroutine", "generator", "context", "loads")
    more = (f"class Test{name}(StoreContract): factory = 'mystore:{name}'" for name in names)
    head = "\n".join([*HEAD.splitlines()[:3], *more, HEAD.splitlines()[3]])
    result = run("factory = mystore.plain", head=head, options=("-k", "core.saved"))
    result.assert_outcomes(passed=len(SOME) * (len(names) + 1))


def test_a_factory_that_is_a_method(run: Run) -> None:
    result = run("def factory(self): return mystore.the_one", options=("-k", "core.saved"))
    result.assert_outcomes(passed=len(SOME))


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
    reasons = {"core.saved_empty": "by design"}
    only = ("-rx", "-k", "core.saved or are_known")
    result = run("factory = 'mystore:forgets'", f"expected_failures = {reasons}", options=only)
    result.assert_outcomes(passed=len(SOME) - 1 + 1, xfailed=1)
    result.stdout.fnmatch_lines(["XFAIL*core.saved_empty*by design"])


def test_an_expected_failure_that_passes_is_a_failure(run: Run) -> None:
    result = run(
        "factory = 'mystore:plain'",
        "expected_failures = {'core.shrinks': 'once'}",
        options=("-k", "core.saved or shrinks or are_known"),
    )
    result.assert_outcomes(passed=len(SOME) + 1, failed=1)
    result.stdout.fnmatch_lines(["*XPASS(strict)*once"])


def test_an_expected_failure_that_is_not_run_is_a_failure(run: Run) -> None:
    result = run(
        "factory = 'mystore:plain'",
        "expected_failures = {'core.shrunk': 'misspelt', 'durable.reopened': 'unclaimed'}",
        options=("-k", "core.saved or are_known"),
    )
    result.assert_outcomes(passed=len(SOME), failed=1)
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
    claims = "claims = ('core', 'durabel')"
    result = run("factory = 'mystore:plain'", claims, options=("-k", "core.saved or are_known"))
    result.assert_outcomes(passed=len(SOME), failed=1)
    result.stdout.fnmatch_lines(["*no such level: durabel"])


def test_what_is_left_out_is_a_check(run: Run) -> None:
    left_out = dict.fromkeys((*SOME, "core.shrunk"), "of no use here")
    only = ("-k", "core.saved or are_known")
    result = run("factory = 'mystore:plain'", f"left_out = {left_out}", options=only)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*left_out: no such check: core.shrunk"])


@pytest.mark.parametrize("storage", ["files", "server"])
def test_no_item_for_a_storage_that_is_another(run: Run, storage: str) -> None:
    claims = "claims = ('core', 'atomic')"
    result = run(
        "factory = 'mystore:plain'", claims, f"storage = {storage!r}", options=("--collect-only",)
    )
    for check in all_checks():
        found = f"test_mine.py::TestMine::test_contract[{check.id}]" in result.outlines
        assert found == (check.level in {"core", "atomic"} and check.storage in {None, storage})


NO_FACTORIES = {
    "pass": "Test0 names no factory",
    "factory = 'mystore.plain'": "*a factory is named 'package.module:factory'*",
    "factory = 'mystore:plan'": "*cannot be imported*plan*",
    "factory = 'nowhere:plain'": "*cannot be imported*nowhere*",
    "factory = 'mystore:HEAD'": "*cannot be imported*",
    "factory = 'mystore:__name__'": "*is not callable",
    "factory = 'redys://host'": "*unknown scheme 'redys'*",
    "factory = 'mystore:broken'": "*the factory gave object, which lacks get*",
    "factory = 7": "*a factory is a name or a callable, not int*",
}


def test_a_factory_that_is_none(run: Run) -> None:
    more = (f"class Test{n}(StoreContract): {line}" for n, line in enumerate(NO_FACTORIES))
    head = "\n".join([*HEAD.splitlines()[:3], *more, HEAD.splitlines()[3]])
    result = run("factory = mystore.plain", head=head, options=("-k", "shrinks"))
    result.assert_outcomes(failed=len(NO_FACTORIES), passed=1)
    for complaint in NO_FACTORIES.values():
        result.stdout.fnmatch_lines_random([f"*{complaint}"])


def test_another_process_needs_storage_that_is_shared(run: Run) -> None:
    # Every opening is the same object in this process; only another process can tell.
    claims = "claims = ('durable',)"
    only = ("-k", "another_process", "-rs")
    result = run("factory = 'mystore:plain'", claims, options=only)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*get in another process gave None*"])

    result = run("factory = mystore.plain", claims, options=only)
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["SKIPPED*needs a factory that is named as a string"])


def test_a_durable_level_that_is_not_durable(run: Run) -> None:
    result = run("factory = 'mystore:fresh'", "claims = ('durable',)", options=("-k", "reopened"))
    ids = [check.id for check in all_checks()]
    result.assert_outcomes(failed=sum("durable.reopened" in id for id in ids))


def test_the_suite_needs_neither_pytest_nor_our_stores() -> None:
    program = (
        "import sys; sys.modules['pytest'] = sys.modules['toolnexus_stores'] = None;"
        "import toolnexus_stores_contract as suite; assert len(suite.all_checks()) > 40"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=30)
