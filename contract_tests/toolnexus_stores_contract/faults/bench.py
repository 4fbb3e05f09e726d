"""The suite's side of the laboratory: ask for an experiment, and judge what it found."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from toolnexus_stores_contract.check import NotApplicable, Violation
from toolnexus_stores_contract.subject import Subject

from .cuts import cut_once
from .wire import is_served

if TYPE_CHECKING:
    from toolnexus_stores_contract.check import Survives

__all__ = ["experiment", "replay"]

_TOKEN = re.compile(
    r"wire:(save|get|late):(out|back):\d+:(rst|fin|half|hang|late)"
    r"|(syscalls|crashstates|standstill):\S+"
)
_LABORATORY = f"{__package__}.laboratory"


async def experiment(subject: Subject, name: str, **request: object) -> None:
    """Make the experiment *name* on the storage of *subject*.

    Raises `Violation` with what was seen and the token that replays it, and `NotApplicable` if
    some of it could not be tried: that is no pass.
    """
    if is_served(subject.name):
        raise NotApplicable("a server keeps the storage: no call of this process writes it")
    result = await _asked(
        {
            "experiment": name,
            "factory": subject.name,
            "survives": subject.terms.survives,
            "exhaustive": subject.terms.exhaustive,
            **request,
        }
    )
    for what, number in result["counts"].items():
        subject.count(what, number)
    _judge(result)


async def replay(factory: str, token: str, *, survives: Survives = "power") -> None:
    """Repeat the one fault of *token*, which a violation names.

    Raises `Violation` if the store fails again, `NotApplicable` if the fault cannot be made, and
    `ValueError` if *token* is none.
    """
    if not _TOKEN.fullmatch(token):
        raise ValueError(f"not a token: {token}")
    if token.startswith("wire:"):
        async with Subject(factory) as subject:
            await cut_once(subject, token.removeprefix("wire:"))
        return
    request: dict[str, object] = {
        "experiment": "replay",
        "factory": factory,
        "survives": survives,
        "token": token,
    }
    _judge(await _asked(request))


def _judge(result: dict[str, Any]) -> None:
    if result["violations"]:
        (token, seen), *more = result["violations"]
        others = f"\n  and {len(more)} more of its kind" if more else ""
        raise Violation(f"{seen}\n  replay: {token}{others}")
    if result["inconclusive"]:
        first, *rest = result["inconclusive"]
        others = f" (and {len(rest)} more)" if rest else ""
        raise NotApplicable(f"inconclusive: {first}{others}")


async def _asked(request: dict[str, object]) -> Any:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", _LABORATORY),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            "PYTHONDONTWRITEBYTECODE": "1",  # else a victim's imports are writes like others
        },
        start_new_session=True,
    )
    try:
        answer, complaints = await process.communicate(json.dumps(request).encode())
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    if process.returncode:
        last = complaints.decode(errors="replace").strip()[-600:]
        raise RuntimeError(f"the laboratory failed: {last}")
    return json.loads(answer)
