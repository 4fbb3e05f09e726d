"""One save, disturbed at each of its system calls in turn.

For each fault: the storage is put back as it was, a victim opens it and saves, the fault befalls
it, and a process that knows nothing opens the storage and looks. It must find the old transcript or
the new one, the new one if the save was acknowledged, and a store that works.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

from .calls import OPENING, WRITING
from .disk import Before
from .scenarios import AGAIN, SCENARIOS, Case, Seen
from .syscalls import Aim, Fail, Kill, Tear
from .victims import Ending, observe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from .calls import Call

__all__ = ["ENOUGH", "KINDS", "Kind", "Result", "disturb", "plan", "ready", "sweep"]

Kind: TypeAlias = Literal["killed", "torn", "failing", "short"]
KINDS: tuple[Kind, ...] = get_args(Kind)
ENOUGH = 3  # violations of one kind tell no more than that
_TRIES = 3  # for a fault that does not fire, since the calls came in another order
_SECTOR = 512
_ERRORS: Final = (errno.EIO, errno.ENOSPC)


@dataclass(slots=True)
class Result:
    """What an experiment found."""

    counts: dict[str, int] = field(default_factory=dict[str, int])
    violations: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """(token that replays it, what was seen)."""

    inconclusive: list[str] = field(default_factory=list[str])

    def count(self, what: str, number: int = 1) -> None:
        """Add to a count."""
        self.counts[what] = self.counts.get(what, 0) + number


def plan(trace: Sequence[Call], kind: Kind, *, every_byte: bool = False) -> Iterator[Aim]:
    """Every fault of *kind* for a save that makes these calls."""
    for number, call in enumerate(trace, 1):
        size = len(call.data)
        if kind == "killed":
            yield Aim(number, Kill())
        elif kind == "failing":
            errors = (*_ERRORS, errno.EMFILE) if call.name in OPENING else _ERRORS
            yield from (Aim(number, Fail(error)) for error in errors)
        elif call.name in WRITING and kind == "torn":
            yield from (Aim(number, Tear(at)) for at in _offsets(size, every_byte=every_byte))
        elif call.name in WRITING:
            for at in sorted({1, size // 2, size - 1} & set(range(1, size))):
                yield Aim(number, Tear(at, "short"))
                yield Aim(number, Tear(at, errno.ENOSPC))


def _offsets(size: int, *, every_byte: bool) -> list[int]:
    """Where a write of *size* bytes is torn."""
    if every_byte:
        return list(range(1, size))
    some = {1, size // 3, size // 2, size - 1}
    # Of a large one not every sector: it would be the same cut hundreds of times.
    sectors = range(_SECTOR, size, _SECTOR if size <= 16 * _SECTOR else _SECTOR * (size // 4096))
    return sorted(some.union(sectors) & set(range(1, size)))


def sweep(
    make: Callable[[], object],
    kind: Kind,
    scenarios: Sequence[str],
    *,
    tag: str,
    every_byte: bool = False,
) -> Result:
    """Disturb the saves of *scenarios* in every way of *kind*. Raises `Unsupported`."""
    result = Result()
    for name in scenarios:
        case = Case(make, SCENARIOS[name], f"{tag}-{name}")
        trace = _undisturbed(case, result)
        result.count("system calls", len(trace))
        for aim in plan(trace, kind, every_byte=every_byte):
            disturb(case, aim, result)
            if len(result.violations) >= ENOUGH:
                return result
    if not result.counts.get("system calls"):
        result.inconclusive.append("a save made no system call that changes a file")
    return result


def _undisturbed(case: Case, result: Result) -> list[Call]:
    """The calls that a save makes if nothing befalls it."""
    if not ready(case, result):
        return []
    before = Before()
    ending = observe(case.save, before)
    found = observe(case.inspect, before)
    before.restore()
    wrong = _wrong(ending, found)
    if wrong or ending.heard("refused"):
        told = f"without any fault: {wrong or ending.heard('refused')}"
        result.violations.append((f"syscalls:{case.scenario.name}:none", told))
    result.inconclusive += (f"the save is not seen whole: {each}" for each in ending.unseen)
    return ending.trace


def ready(case: Case, result: Result) -> bool:
    """Have the old transcript stored, and imported what a victim imports; False if that failed."""
    before = Before()
    prepared = observe(case.prepare, before, seconds=30)
    if case.scenario.from_the_start:
        before.restore()
    if prepared.heard("prepared") is None:
        reason = prepared.heard("raised") or "it did not end"
        result.inconclusive.append(f"no save without any fault: {reason}")
        return False
    _import_all(prepared.heard("prepared"))
    return True


def _import_all(names: Sequence[str]) -> None:
    """Import what a victim needed to import, once and for all."""
    import importlib  # noqa: PLC0415 - of no use to anything else here
    import sys  # noqa: PLC0415

    for name in names:
        if name not in sys.modules and name != "__main__":
            try:
                importlib.import_module(name)
            except Exception:  # noqa: BLE001, PERF203 - then each victim imports it itself
                continue


def disturb(case: Case, aim: Aim, result: Result) -> None:
    """One fault, and what is found after it."""
    before = Before()
    for _ in range(_TRIES):
        ending = observe(case.save, before, aim=aim)
        found = observe(case.inspect, before) if ending.fired else None
        before.restore()
        if found is not None:
            break
    else:
        result.inconclusive.append(f"{case.scenario.name}:{aim} did not fire")
        return
    result.count("faults")
    if isinstance(aim.fault, Tear):
        result.count("writes torn")
    wrong = _wrong(ending, found)
    if wrong:
        told = f"{ending.fired} ({aim.fault}), {case.scenario.name}: {wrong}"
        result.violations.append((f"syscalls:{case.scenario.name}:{aim}", told))


def _wrong(ending: Ending, found: Ending) -> str | None:
    """What the store did that it must not do."""
    if ending.hung:
        return "the save did not end within 10 s"
    acknowledged = any(each.word == "acknowledged" for each in ending.said)
    refused, seen = ending.heard("refused"), Seen.parse(ending.heard("seen"))
    allowed = {"new"} if acknowledged else {"old", "new"}
    told = "after the kill" if ending.status < 0 else "after the error"
    if acknowledged:
        told = "after the acknowledged save"
    elif refused is None and not isinstance(ending.status, int):
        return "the process died of it"
    if seen is not None:
        wrong = _unlike(seen, allowed, f"{told}, in the same process: get") or _unlike(
            Seen.parse(ending.heard("again")), {AGAIN}, f"{told}, in the same process"
        )
        if wrong:
            return wrong
        allowed = {AGAIN}
    return _unlike(
        Seen.parse(found.heard("seen")), allowed, f"{told}, in another process: get"
    ) or _unlike(Seen.parse(found.heard("again")), {AGAIN}, f"{told}, in another process")


def _unlike(seen: Seen | None, allowed: set[str], who: str) -> str | None:
    if seen is None:
        return f"{who} died or hung"
    if seen.name in allowed:
        return None
    wanted = " or ".join(f"the {each} transcript" for each in sorted(allowed))
    return f"{who} saw {seen.text}; promised was {wanted}"
