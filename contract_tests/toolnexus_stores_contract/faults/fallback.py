"""What can be tried where system calls cannot be watched: fewer faults, and none chosen exactly.

- A limit on the size of files (RLIMIT_FSIZE, setrlimit(2)) tears whatever grows beyond it: the
  process gets SIGXFSZ and dies there, or the write is short and the next one fails with EFBIG.
- SIGKILL at some moment of a save.

That is no substitute: what overwrites in place is not torn, no error but EFBIG is seen, nothing is
learned of a power loss. So a store that stands it has passed nothing; the result says so.
"""

from __future__ import annotations

import os
import random
import resource
import signal
import threading
import time
from typing import TYPE_CHECKING, Final, Literal

from .disk import Before
from .result import ENOUGH, Result
from .scenarios import SCENARIOS, Case
from .sweep import wrong_after
from .victims import observe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .victims import Ending, Line

__all__ = ["disturb_blindly"]

_SCENARIO: Final = "replace"
_KILLS = 30
_UNDISTURBED = 4  # in a row: the files are no larger than the limit
_LARGEST = 1 << 26


def disturb_blindly(make: Callable[[], object], *, tag: str, reason: str) -> Result:
    """Disturb saves in the ways that every POSIX system has; *reason* says why only these."""
    result = Result(inconclusive=[f"{reason}; only file size limits and kills were tried"])
    calm = 0
    for number, limit in enumerate(_limits()):
        died = [_limited(make, result, f"{tag}-{number}", limit, way) for way in ("kill", "short")]
        calm = 0 if any(died) else calm + 1
        if len(result.violations) >= ENOUGH or calm == _UNDISTURBED:
            break
    for number in range(_KILLS):
        _killed_some_time(make, result, f"{tag}-k{number}")
    return result


def _limits() -> Iterator[int]:
    """Bytes, in steps that grow with them."""
    limit = 0
    while limit < _LARGEST:
        yield limit
        limit += max(7, limit // 12)


def _limited(
    make: Callable[[], object], result: Result, id: str, limit: int, way: Literal["kill", "short"]
) -> bool:
    """One save under a limit, and whether it was disturbed.

    On a fresh id: what it leaves is not put back.
    """
    case = Case(make, SCENARIOS[_SCENARIO], f"{id}-{way}")

    async def body(line: Line) -> None:
        await case.prepare(line)
        kept = resource.getrlimit(resource.RLIMIT_FSIZE)

        def strike(armed: bool) -> None:
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL if way == "kill" else signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit if armed else kept[0], kept[1]))

        await case.save(line, strike)

    ending = observe(body, Before(), watch="nothing")
    result.count("limits set")
    _judge(case, ending, f"files limited to {limit} bytes ({way})", result)
    return not ending.has_said("acknowledged")


def _killed_some_time(make: Callable[[], object], result: Result, id: str) -> None:
    case = Case(make, SCENARIOS[_SCENARIO], id)

    async def body(line: Line) -> None:
        began = time.perf_counter()
        await case.prepare(line)
        moment = random.uniform(0, time.perf_counter() - began)  # noqa: S311 - any moment will do

        def strike(armed: bool) -> None:
            if armed:
                killer = threading.Timer(moment, os.kill, (os.getpid(), signal.SIGKILL))
                killer.daemon = True
                killer.start()

        await case.save(line, strike)

    ending = observe(body, Before(), watch="nothing")
    if ending.status < 0:
        result.count("kills")
    _judge(case, ending, "killed at some moment", result)


def _judge(case: Case, ending: Ending, how: str, result: Result) -> None:
    found = observe(case.inspect, Before(), watch="nothing")
    wrong = wrong_after(ending, found)
    if wrong:
        result.violations.append((f"fallback:{how}", f"{how}: {wrong}"))
