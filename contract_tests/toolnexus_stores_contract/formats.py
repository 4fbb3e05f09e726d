"""A report as text for people, JSON, JUnit's XML and Markdown."""

from __future__ import annotations

import json
import re
import shlex
from typing import TYPE_CHECKING
from urllib.parse import quote
from xml.etree import ElementTree

from .report import BROKEN, KEPT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from .check import Check
    from .report import Outcome, Report

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

__all__ = ["explained", "listed", "to_json", "to_junit", "to_markdown", "to_text"]


def to_text(report: Report) -> str:
    """What a person needs: the summary last, and before it whatever keeps it from being better."""
    sections = [
        *(_violation(report, outcome) for outcome in report.violations),
        _section(
            "Expected to fail, and does not: take it off the list",
            report.stale_expectations,
        ),
        _section("Fails as expected", _expected(report)),
        _section("Not tested", _untested(report)),
        _section("Not claimed", _unclaimed(report)),
        _section("Notes", report.notes),
        _section("Incomplete", report.problems),
        _section("Tried", _tried(report)),
        f"{report.store}: {report.summary}",
    ]
    return "\n\n".join(filter(None, sections)) + "\n"


def _section(title: str, lines: Iterable[str]) -> str:
    found = [f"  {line}" for line in lines]
    return "\n".join([title, *found]) if found else ""


def _violation(report: Report, outcome: Outcome) -> str:
    check = outcome.check
    lines = [
        f"BROKEN {check.id}",
        f"  promised  {check.promise}",
        f"  seen      {outcome.seen}",
        *([f"  where     {outcome.where}"] if outcome.where else []),
        f"  again     {_again(report, check)}",
    ]
    return "\n".join(lines)


def _again(report: Report, check: Check) -> str:
    """What makes *check* once more."""
    if not report.named:
        function = "check_driver" if report.driver else "check_store"
        return f"await {function}(factory, select=[{check.id!r}])"
    of_driver = " --driver" if report.driver else ""
    return f"toolnexus-stores check {shlex.quote(report.store)}{of_driver} -k {check.id}"


def _tried(report: Report) -> Iterator[str]:
    """How far the faults reached."""
    if report.counts:
        yield " · ".join(f"{what} {number:,}" for what, number in report.counts.items())


def _expected(report: Report) -> Iterator[str]:
    for outcome in report.expected:
        yield f"{outcome.check.id}: {report.expected_failures[outcome.check.id]}"


def _untested(report: Report) -> Iterator[str]:
    for outcome in report.outcomes:
        if outcome.result == "inapplicable" and outcome.check.level in report.claims:
            yield f"{outcome.check.id}: {outcome.seen}"


def _unclaimed(report: Report) -> Iterator[str]:
    for level, reason in report.not_offered.items():
        yield f"{level}: {reason}"
    for outcome in report.outcomes:
        level = outcome.check.level
        if outcome.result == "broken" and level not in {*report.claims, *report.not_offered}:
            yield f"{outcome.check.id}: {outcome.seen}"


def to_json(report: Report) -> str:
    """Everything, for programs."""
    return json.dumps(
        {
            "store": report.store,
            "exit_code": report.exit_code,
            "summary": report.summary,
            "claims": list(report.claims),
            "levels": {
                level: {
                    "claimed": level in report.claims,
                    "kept": len(report.of(level, "kept")),
                    "made": len(report.of(level, "kept", "broken")),
                    "not_offered": report.not_offered.get(level),
                }
                for level in report.levels
            },
            "checks": [_as_object(report, outcome) for outcome in report.outcomes],
            "stale_expectations": report.stale_expectations,
            "counts": report.counts,
            "notes": list(report.notes),
            "problems": report.problems,
        },
        indent=2,
    )


def _as_object(report: Report, outcome: Outcome) -> dict[str, object]:
    return {
        "id": outcome.check.id,
        "promise": outcome.check.promise,
        "result": outcome.result,
        "expected": report.expected_failures.get(outcome.check.id),
        "seen": outcome.seen,
        "where": outcome.where,
        "again": _again(report, outcome.check),
        "seconds": round(outcome.seconds, 3),
        "counts": dict(outcome.counts),
    }


def to_junit(report: Report) -> str:
    """A test suite in the XML that CI servers read: one case for each check that was made."""
    failing = {outcome.check.id for outcome in report.violations} | {*report.stale_expectations}
    suite = ElementTree.Element(
        "testsuite",
        name=f"contract of {report.store}",
        tests=str(len(report.outcomes) + len(report.problems)),
        failures=str(len(failing)),
        errors=str(len(report.problems)),
        skipped=str(sum(_is_skipped(report, outcome) for outcome in report.outcomes)),
        time=f"{sum(outcome.seconds for outcome in report.outcomes):.3f}",
    )
    for outcome in report.outcomes:
        _add_case(suite, report, outcome)
    for problem in report.problems:
        case = ElementTree.SubElement(suite, "testcase", classname="contract", name="complete")
        ElementTree.SubElement(case, "error", message=problem)
    for element in suite.iter():
        element.attrib = {name: _NOT_XML.sub("?", text) for name, text in element.attrib.items()}
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def _add_case(suite: ElementTree.Element, report: Report, outcome: Outcome) -> None:
    check = outcome.check
    case = ElementTree.SubElement(
        suite,
        "testcase",
        classname=f"contract.{check.level}",
        name=check.id.partition(".")[2],
        time=f"{outcome.seconds:.3f}",
    )
    if check.id in report.stale_expectations:
        ElementTree.SubElement(case, "failure", message="expected to fail, and does not")
    elif _is_skipped(report, outcome):
        reason = report.expected_failures.get(check.id) or outcome.seen
        ElementTree.SubElement(case, "skipped", message=reason)
    elif outcome.result == "broken":
        failure = ElementTree.SubElement(case, "failure", message=outcome.seen)
        failure.text = _NOT_XML.sub("?", _violation(report, outcome))


def _is_skipped(report: Report, outcome: Outcome) -> bool:
    """Whether it counts neither for the store nor against it."""
    unclaimed = outcome.check.level not in report.claims
    expected = outcome.check.id in report.expected_failures
    return outcome.result == "inapplicable" or (
        outcome.result == "broken" and (unclaimed or expected)
    )


def to_markdown(report: Report) -> str:
    """A badge and a table of the levels, for a README; then what is broken."""
    lines = [
        _badge(report),
        "",
        "| level | claimed | kept |",
        "| --- | --- | --- |",
        *(_row(report, level) for level in report.levels),
    ]
    broken = [*report.violations, *report.expected]
    if broken:
        lines += ["", "| broken promise | seen |", "| --- | --- |"]
        lines += [f"| `{each.check.id}` | {_cell(_reason(report, each))} |" for each in broken]
    return "\n".join(lines) + "\n"


def _row(report: Report, level: str) -> str:
    claimed = "yes" if level in report.claims else "no"
    made = [o for o in report.outcomes if o.check.level == level and o.result != "inapplicable"]
    kept = sum(outcome.result == "kept" for outcome in made)
    return f"| `{level}` | {claimed} | {f'{kept} of {len(made)}' if made else 'not tested'} |"


def _reason(report: Report, outcome: Outcome) -> str:
    expected = report.expected_failures.get(outcome.check.id)
    return outcome.seen if expected is None else f"on purpose: {expected}"


def _badge(report: Report) -> str:
    if report.exit_code == KEPT:
        message, colour = " + ".join(report.claims), "brightgreen"
    elif report.exit_code == BROKEN:
        count = len(report.violations) + len(report.stale_expectations)
        message, colour = f"{count} broken", "red"
    else:
        message, colour = "incomplete", "lightgrey"
    label = quote(message.replace("-", "--"))
    return f"![contract: {message}](https://img.shields.io/badge/contract-{label}-{colour})"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def listed(checks: Iterable[Check]) -> str:
    """The ids and the promises, one check a line."""
    return "".join(f"{check.id}\n    {check.promise}\n" for check in checks)


def explained(check: Check) -> str:
    """All there is to know about *check*: what, why, how."""
    needs = f"\nNeeds: {', '.join(check.needs)}." if check.needs else ""
    return (
        f"{check.id}\n\nPromise: {check.promise}\n\nWhy: {check.why}\n\n"
        f"Time: {check.timeout:g} seconds.{needs}\n\n{check.source}"
    )
