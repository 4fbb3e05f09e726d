"""``toolnexus-stores check``: the contract suite on one store."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from pathlib import Path  # noqa: TC003 - typer reads it
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.text import Text
from toolnexus_stores_contract import (
    BadPlan,
    NotApplicable,
    NotAStore,
    Violation,
    check_driver,
    check_store,
)
from toolnexus_stores_contract.factory import without_passwords
from toolnexus_stores_contract.faults import replay as replay_fault
from toolnexus_stores_contract.formats import (
    explained,
    listed,
    to_json,
    to_junit,
    to_markdown,
    to_text,
)
from toolnexus_stores_contract.plan import named, planned
from toolnexus_stores_contract.report import BROKEN, INCOMPLETE, UNTESTABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from toolnexus_stores_contract import Progress as Step
    from toolnexus_stores_contract import Report

__all__ = ["check"]

_INTERRUPTED = 130  # as a shell says of what Ctrl-C ended
_STYLES = {"BROKEN": "bold red", "Incomplete": "bold yellow", "Expected to fail, and": "bold red"}


def check(  # noqa: PLR0913 - the options of the command
    store: Annotated[
        str,
        typer.Argument(
            help="A URL of ours, module:factory, or 'module:factory(arguments)': what opens the "
            "store, each time on the same storage. Give it fresh storage, as the suite leaves "
            "conversations behind.",
            show_default=False,
        ),
    ] = "",
    *,
    claim: Annotated[
        list[str] | None,
        typer.Option(
            help="A level that the store claims: concurrent, durable, atomic, snapshots, "
            "management; core always. Several times, or separated by commas. What is not claimed "
            "is tried out and noted.",
            show_default=False,
        ),
    ] = None,
    level: Annotated[
        list[str] | None,
        typer.Option(help="Test this level only. Several times too.", show_default=False),
    ] = None,
    select: Annotated[
        list[str] | None,
        typer.Option(
            "-k", help="Make the checks with this id, or part of it, only.", show_default=False
        ),
    ] = None,
    expect: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CHECK=REASON",
            help="A check that fails on purpose; one that does not is a failure.",
            show_default=False,
        ),
    ] = None,
    driver: Annotated[
        bool, typer.Option("--driver", help="It is a driver: test its nine methods.")
    ] = False,
    timeout: Annotated[
        float | None,
        typer.Option(
            min=0.1, help="Seconds for each check, instead of the check's own.", show_default=False
        ),
    ] = None,
    survives: Annotated[
        Literal["power", "process"],
        typer.Option(help="What an acknowledged save survives: a power loss, or a kill only."),
    ] = "power",
    exhaustive: Annotated[
        bool,
        typer.Option("--exhaustive", help="Every byte and every state of the faults: for hours."),
    ] = False,
    replay: Annotated[
        str | None,
        typer.Option(
            metavar="TOKEN",
            help="Repeat the one fault that a broken promise names, and nothing else.",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
    junit: Annotated[
        Path | None,
        typer.Option(help="Write the report as JUnit's XML too.", show_default=False),
    ] = None,
    markdown: Annotated[
        Path | None,
        typer.Option(help="Write a badge and a table in Markdown too.", show_default=False),
    ] = None,
    list_checks: Annotated[
        bool, typer.Option("--list", help="List the checks and what each promises.")
    ] = False,
    explain: Annotated[
        str | None,
        typer.Option(
            metavar="CHECK",
            help="Say what a check promises, why, and how it is made.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Test which promises a conversation store keeps, and which it breaks."""
    kind = "driver" if driver else "store"
    try:
        if explain is not None:
            typer.echo(explained(named(explain, _kind_of(explain))), nl=False)
            return
        if list_checks:
            chosen = planned(kind, levels=_split(level), select=select).checks
            typer.echo(listed(chosen), nl=False)
            return
        if not store:
            _fail("name a store: its URL, or module:factory")
        if replay is not None:
            _replay(store, replay, survives)
            return
        report = _report(
            store,
            driver=driver,
            claims=_split(claim),
            levels=_split(level),
            select=select,
            expected_failures=_reasons(expect),
            limit=timeout,
            survives=survives,
            exhaustive=exhaustive,
        )
    except (BadPlan, NotAStore) as error:
        _fail(str(error))
    except KeyboardInterrupt:
        raise typer.Exit(_INTERRUPTED) from None
    _write(junit, to_junit, report)
    _write(markdown, to_markdown, report)
    if as_json:
        typer.echo(to_json(report))
    else:
        _print(to_text(report))
    raise typer.Exit(report.exit_code)


def _replay(store: str, token: str, survives: Literal["power", "process"]) -> None:
    """Repeat one fault; the exit status is that of a report."""
    try:
        asyncio.run(replay_fault(store, token, survives=survives))
    except Violation as violation:
        _print(without_passwords(f"BROKEN {violation.seen}", store))
        raise typer.Exit(BROKEN) from None
    except NotApplicable as reason:
        _print(without_passwords(f"Not tested: {reason}", store))
        raise typer.Exit(INCOMPLETE) from None
    except ValueError:
        _fail(f"not the token of a fault: {token}")
    _print("The promise is kept under this fault.")


def _report(store: str, *, driver: bool, claims: list[str] | None, **options: Any) -> Report:
    """Run the suite, and show how far it is."""
    with _shown_progress() as on_progress:
        run: Coroutine[Any, Any, Report]
        if driver:
            for of_stores in ("levels", "survives", "exhaustive"):
                options.pop(of_stores)
            run = check_driver(store, on_progress=on_progress, **options)
        else:
            run = check_store(store, claims=claims, on_progress=on_progress, **options)
        return asyncio.run(run)


@contextmanager
def _shown_progress() -> Iterator[Callable[[Step], None]]:
    """Tells how far the suite is: a bar on a terminal, else a line for each level."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _Lines()
        return
    bar = Progress(
        TextColumn("{task.description:34}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("[red]{task.fields[broken]}"),
        console=console,
        transient=True,
    )
    with bar:
        yield _Bar(bar)


class _Bar:
    def __init__(self, bar: Progress) -> None:
        self._bar = bar
        self._task = bar.add_task("opening", total=None, broken="")
        self._broken = 0

    def __call__(self, step: Step) -> None:
        self._broken += step.outcome is not None and step.outcome.result == "broken"
        self._bar.update(
            self._task,
            description=step.check.id,
            total=step.total,
            completed=step.number - (step.outcome is None),
            broken=f"{self._broken} broken" if self._broken else "",
        )


class _Lines:
    def __init__(self) -> None:
        self._level = ""

    def __call__(self, step: Step) -> None:
        if step.check.level != self._level:
            self._level = step.check.level
            typer.echo(f"{step.number:4} of {step.total}: {self._level}", err=True)


def _print(text: str) -> None:
    """*text* as it stands; on a terminal, with what is wrong in colour."""
    console = Console(highlight=False, soft_wrap=True)
    for line in text.splitlines():
        style = next((style for start, style in _STYLES.items() if line.startswith(start)), "")
        console.print(Text(line, style=style))


def _write(file: Path | None, form: Callable[[Report], str], report: Report) -> None:
    if file is not None:
        try:
            file.write_text(form(report), encoding="utf-8")
        except OSError as error:
            _fail(f"{file}: {error.strerror}")


def _split(values: list[str] | None) -> list[str] | None:
    """``["a,b", "c"]`` as ``["a", "b", "c"]``."""
    if not values:
        return None
    return [part.strip() for value in values for part in value.split(",") if part.strip()]


def _reasons(values: list[str] | None) -> dict[str, str]:
    pairs = [value.partition("=") for value in values or ()]
    for id, _, reason in pairs:
        if not reason:
            raise BadPlan(f"say why {id} is to fail: --expect {id}=REASON")
    return {id: reason for id, _, reason in pairs}


def _kind_of(id: str) -> str:
    return "driver" if id.startswith("driver.") else "store"


def _fail(text: str) -> NoReturn:
    typer.echo(f"toolnexus-stores: {text}", err=True)
    raise typer.Exit(UNTESTABLE)
