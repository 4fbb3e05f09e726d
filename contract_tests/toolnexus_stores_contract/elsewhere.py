"""One program on a storage, in a process of its own: ``python -m …elsewhere``.

Reads the request (see `toolnexus_stores_contract.process`) from standard input, opens the storage,
says so, waits for a line, runs the program and writes what it returned. What the store prints goes
to standard error.
"""

from __future__ import annotations

import asyncio
import faulthandler
import importlib
import json
import os
import signal
import sys
from typing import Any, TextIO

from .check import Violation
from .factory import described

_LONGEST = 90  # seconds; nobody waits for longer


def subject_of(kind: str, factory: str) -> Any:
    """The subject of that kind."""
    if kind == "driver":
        from .driver_subject import DriverSubject  # noqa: PLC0415 - needs our stores

        return DriverSubject(factory)
    from .subject import Subject  # noqa: PLC0415 - one or the other

    return Subject(factory)


async def _run(request: dict[str, Any], answers: TextIO) -> None:
    module, _, name = request["program"].partition(":")
    program = getattr(importlib.import_module(module), name)
    subject = subject_of(request["kind"], request["factory"])
    opened = await subject.open()
    _say(answers, {"ready": True})
    if not await asyncio.to_thread(sys.stdin.readline):
        return  # whoever asked has gone
    try:
        _say(answers, {"result": await program(opened, *request["arguments"])})
    except Violation as violation:
        _say(answers, {"violation": violation.seen})
    if request["end"] == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if request["end"] == "close":
        await subject.close()


def _say(answers: TextIO, value: object) -> None:
    print(json.dumps(value), file=answers, flush=True)


def answers_apart() -> TextIO:
    """Standard output, for answers only: from here on, what is printed goes to standard error."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return answers


def main() -> None:
    """See the module."""
    answers = answers_apart()
    faulthandler.dump_traceback_later(_LONGEST, exit=True)
    try:
        asyncio.run(_run(json.loads(sys.stdin.readline()), answers))
    except Exception as error:
        _say(answers, {"violation": described(error)})


if __name__ == "__main__":
    main()
