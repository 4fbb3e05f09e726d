"""Where experiments are made: ``python -m …faults.laboratory``, a fresh interpreter.

It has one thread and has imported the factory once; victims are forked from it, never from the
process of the tests. Reads a request as JSON from standard input, writes a result to standard
output.
"""

from __future__ import annotations

import json
import os
import secrets
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from toolnexus_stores_contract.factory import resolve

from .fallback import disturb_blindly
from .powerloss import lose_power, lose_power_once
from .reach import reach_of
from .result import Result
from .scenarios import SCENARIOS, Case
from .seccomp import Unsupported
from .standstill import cancel_held, hold_once, overtake_held
from .sweep import KINDS, disturb, prepared, sweep
from .syscalls import Aim

if TYPE_CHECKING:
    from collections.abc import Callable

    Make = Callable[[], Any]


def perform(request: dict[str, Any]) -> Result:
    """Make the experiment that is asked for."""
    make, name = resolve(request["factory"]), request["experiment"]
    if "://" in request["factory"]:
        make()  # opens nothing yet, and a victim finds done what is done once in a process
    reach, tag = reach_of(exhaustive=request.get("exhaustive", False)), secrets.token_hex(4)
    if name == "replay":
        return _replay(make, request["token"], request["survives"], tag)
    if name == "power":
        acknowledged, survives = request["acknowledged"], request["survives"]
        return lose_power(make, reach, tag=tag, acknowledged=acknowledged, survives=survives)
    if name == "cancelled":
        return cancel_held(make, tag=tag)
    if name == "overtaken":
        return overtake_held(make, tag=tag)
    if name in KINDS:
        return sweep(make, name, reach, tag=tag)
    raise ValueError(f"no such experiment: {name}")


def _replay(make: Make, token: str, survives: str, tag: str) -> Result:
    layer, scenario, rest = token.split(":", 2)
    if scenario.startswith("#"):
        scenario, rest = "replace", f"{scenario}:{rest}"
    if layer == "crashstates":
        return lose_power_once(make, scenario, rest, tag=tag, survives=survives)
    if layer == "standstill":
        return hold_once(make, scenario, int(rest), tag=tag)
    if layer != "syscalls":
        raise ValueError(f"not a token of an experiment with processes: {token}")
    result, case = Result(), Case(make, SCENARIOS[scenario], f"{tag}-{scenario}")
    with prepared(case, result) as ready:
        if ready:
            disturb(case, Aim.parse(rest), result)
    return result


def _without(request: dict[str, Any], reason: str) -> Result:
    """What can be said where system calls cannot be watched."""
    if request["experiment"] not in {"torn", "short"}:
        return Result(inconclusive=[reason])
    return disturb_blindly(resolve(request["factory"]), tag=secrets.token_hex(4), reason=reason)


def main() -> None:
    """See the module."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a store prints is no result
    request = json.load(sys.stdin)
    try:
        result = perform(request)
    except Unsupported as error:
        result = _without(request, f"system calls cannot be watched here: {error}")
    json.dump(asdict(result), answers)
    answers.flush()


if __name__ == "__main__":
    main()
