"""One save, disturbed at each of its system calls in turn.

For each fault: the storage is put back as it was, a victim opens it and saves, the fault befalls
it, and a process that knows nothing opens the storage and looks. It must find the old transcript or
the new one, the new one if the save was acknowledged, and a store that works.
"""

from __future__ import annotations

import errno
import gc
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

from .calls import OPENING, WRITING
from .disk import Before
from .result import ENOUGH, Result
from .scenarios import AGAIN, SCENARIOS, Case, Seen
from .syscalls import Aim, Fail, Kill, Tear
from .victims import observe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from .calls import Call
    from .reach import Offsets, Reach
    from .victims import Ending

__all__ = ["KINDS", "Kind", "disturb", "plan", "prepared", "sweep", "wrong_after"]

Kind: TypeAlias = Literal["killed", "torn", "failing", "short"]
KINDS: tuple[Kind, ...] = get_args(Kind)
_TRIES = 3  # for a fault that does not fire, since the calls came in another order
_SECTOR = 512
_SOME = 12
_ERRORS: Final = (errno.EIO, errno.ENOSPC)


def plan(trace: Sequence[Call], kind: Kind, offsets: Offsets = "sectors") -> Iterator[Aim]:
    """Every fault of *kind* for a save that makes these calls."""
    for number, call in enumerate(trace, 1):
        size = len(call.data)
        if kind == "killed":
            yield Aim(number, Kill())
        elif kind == "failing":
            errors = (*_ERRORS, errno.EMFILE) if call.name in OPENING else _ERRORS
            yield from (Aim(number, Fail(error)) for error in errors)
        elif call.name in WRITING and kind == "torn":
            yield from (Aim(number, Tear(at)) for at in _offsets(size, offsets))
        elif call.name in WRITING:
            few = _offsets(size, "half" if offsets == "half" else "few")
            yield from (Aim(number, Tear(at, "short")) for at in few)
            yield from (Aim(number, Tear(at, errno.ENOSPC)) for at in _offsets(size, "half"))


def _offsets(size: int, offsets: Offsets) -> list[int]:
    """Where a write of *size* bytes is torn."""
    chosen = {size // 2}
    if offsets == "every":
        chosen.update(range(1, size))
    elif offsets != "half":
        chosen |= {1, size // 3, size - 1}
    if offsets == "sectors":
        chosen.update(range(_SECTOR, size, _SECTOR))
    return sorted(chosen & set(range(1, size)))


def sweep(make: Callable[[], object], kind: Kind, reach: Reach, *, tag: str) -> Result:
    """Disturb saves in every way of *kind*. Raises `Unsupported`."""
    result = Result()

    def offsets(name: str) -> Offsets:
        return reach.tears.get(name, "half")

    whole = reach.calls if kind in {"killed", "failing"} else reach.tears
    for name in (*whole, *reach.some_calls):
        case = Case(make, SCENARIOS[name], f"{tag}-{name}")
        with prepared(case, result) as ready:
            aims = list(plan(_undisturbed(case, result) if ready else (), kind, offsets(name)))
            for aim in aims if name in whole else _some(aims):
                disturb(case, aim, result)
                if len(result.violations) >= ENOUGH:
                    return result
    if not result.counts.get("system calls"):
        result.inconclusive.append("a save made no system call that changes a file")
    return result


def _some(aims: Sequence[Aim]) -> list[Aim]:
    """The first, the last, and some between."""
    step = max(1, len(aims) // _SOME)
    return [*aims[:2], *aims[2:-2:step], *aims[-2:]] if len(aims) > _SOME else list(aims)


def _undisturbed(case: Case, result: Result) -> list[Call]:
    """The calls that a save makes if nothing befalls it."""
    before = Before()
    ending = observe(case.save, before)
    found = observe(case.inspect, before, watch="names")
    before.restore()
    result.count("system calls", len(ending.trace))
    wrong = ending.heard("refused") or (wrong_after(ending, found) if ending.trace else None)
    if wrong:
        told = f"without any fault: {wrong}"
        result.violations.append((f"syscalls:{case.scenario.name}:none", told))
    result.inconclusive += (f"the save is not seen whole: {each}" for each in ending.unseen)
    return ending.trace


@contextmanager
def prepared(case: Case, result: Result) -> Iterator[bool]:
    """Have the old transcript stored, and imported what a victim imports; False if that failed.

    In the end the disk is as it was before.
    """
    before = Before()
    ending = observe(case.prepare, before, seconds=30, watch="names")
    if case.scenario.from_the_start:
        before.restore()
    imported = ending.heard("prepared")
    if imported is None:
        reason = ending.heard("raised") or "it did not end"
        result.inconclusive.append(f"no save without any fault: {reason}")
    else:
        _import_all(imported)
    try:
        yield imported is not None
    finally:
        before.restore()


def _import_all(names: Sequence[str]) -> None:
    """Import what a victim needed to import, once and for all."""
    import importlib  # noqa: PLC0415 - of no use to anything else here
    import sys  # noqa: PLC0415

    for name in names:
        if name not in sys.modules and name != "__main__":
            try:
                importlib.import_module(name)
            except Exception:  # noqa: S112 - then each victim imports it by itself
                continue
    gc.collect()
    gc.freeze()  # else a victim's first collection copies every page it shares with us


def disturb(case: Case, aim: Aim, result: Result) -> None:
    """One fault, and what is found after it."""
    before = Before()
    for _ in range(_TRIES):
        ending = observe(case.save, before, aim=aim)
        found = observe(case.inspect, before, watch="names") if ending.fired else None
        before.restore()
        if found is not None:
            break
    else:
        result.inconclusive.append(f"{case.scenario.name}:{aim} did not fire")
        return
    result.count("writes torn" if isinstance(aim.fault, Tear) else "calls hit")
    wrong = wrong_after(ending, found)
    if wrong:
        told = f"{ending.fired} ({aim.fault}), {wrong}"
        result.violations.append((f"syscalls:{case.scenario.name}:{aim}", told))


def wrong_after(ending: Ending, found: Ending) -> str | None:
    """What the store did that it must not do."""
    if ending.hung:
        return "then the save did not end within 10 s"
    acknowledged = ending.has_said("acknowledged")
    killed = ending.status < 0 and not ending.has_said("refused") and not acknowledged
    when = "killed then" if killed else "then the save was refused"
    allowed = {"old", "new"}
    if acknowledged:
        when, allowed = "then the save was acknowledged", {"new"}
    if ending.has_said("disarmed"):
        wrong = _unlike(ending, allowed, f"{when}; in the same process")
        if wrong:
            return wrong
        allowed = {AGAIN} if ending.has_said("again") else allowed
    return _unlike(found, allowed, f"{when}; in another process")


def _unlike(ending: Ending, allowed: set[str], where: str) -> str | None:
    """What a process saw that it must not see."""
    if ending.hung:
        return f"{where} get, or the next save, did not end within 10 s"
    seen, again = (Seen.parse(ending.heard(word)) for word in ("seen", "again"))
    if seen is None:
        return None if ending.has_said("refused") else f"{where} get ended it"
    if seen.name not in allowed:
        wanted = " or ".join(f"the {each} transcript" for each in sorted(allowed))
        return f"{where} {seen.text}; promised was {wanted}"
    if again is None or again.name != AGAIN:
        return f"{where} {again.text if again else 'the next save ended it'}"
    return None
