"""Where experiments are made: ``python -m …faults.laboratory``, a fresh interpreter.

It has one thread and has imported the factory once; victims are forked from it, never from the
process of the tests. Reads a request as JSON from standard input, writes a result to standard
output.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from typing import Any

from toolnexus_stores_contract.factory import resolve

from .powerloss import lose_power
from .seccomp import Unsupported
from .sweep import KINDS, Result, sweep


def perform(request: dict[str, Any]) -> Result:
    """Make the experiment that is asked for."""
    make = resolve(request["factory"])
    kind = request["experiment"]
    if kind in KINDS:
        return sweep(
            make,
            kind,
            request["scenarios"],
            tag=request["tag"],
            every_byte=request.get("every_byte", False),
        )
    if kind == "power":
        return lose_power(
            make,
            request["scenarios"],
            tag=request["tag"],
            acknowledged=request["acknowledged"],
            survives=request.get("survives", "power"),
            most=request.get("most", 1_000),
        )
    raise ValueError(f"no such experiment: {kind}")


def main() -> None:
    """See the module."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a store prints is no result
    try:
        result = perform(json.load(sys.stdin))
    except Unsupported as error:
        result = Result(inconclusive=[f"this system does not let its calls be watched: {error}"])
    json.dump(asdict(result), answers)
    answers.flush()


if __name__ == "__main__":
    main()
