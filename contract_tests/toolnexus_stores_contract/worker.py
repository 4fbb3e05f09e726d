"""The process that the checks are made in: ``python -m …worker``.

The author's code runs here and nowhere else, so that whatever it does, its author gets an answer:
it may block the event loop, hold Python's lock, crash, or end the process. The first line of
standard input says what is tested; each further one asks for something, in JSON, and is answered by
one line. When the input ends, so does this process, unless the store keeps it from that.
"""

from __future__ import annotations

import asyncio
import faulthandler
import json
import sys
import threading
from typing import Any

from .check import Terms
from .elsewhere import answers_apart, subject_of
from .factory import NotAStore, described
from .plan import named
from .run import attempt
from .subject import methods_of
from .values import transcript

__all__ = ["LATE", "main", "probe"]

LATE = 2.0
"""Seconds after its time at which a check that blocks its event loop is given up."""


async def probe(kind: str, factory: Any, limit: float) -> list[str]:
    """The methods of what *factory* gives. Raises `NotAStore` if it gives nothing to be tested."""
    stage = "the factory"
    try:
        async with asyncio.timeout(limit), subject_of(kind, factory) as subject:
            opened = await subject.open()
            stage = "a first save, or the close after it,"
            if kind == "store":
                await _require_an_answer(opened, subject.new_id())
            return sorted(methods_of(opened.raw))
    except TimeoutError as error:
        raise NotAStore(f"{stage} did not end within {limit:g} s") from error
    except NotAStore:
        raise
    except Exception as error:
        raise NotAStore(f"the {kind} could not be opened and closed: {described(error)}") from error


async def _require_an_answer(opened: Any, id: str) -> None:
    """If neither method works, that is said once, and not by each check."""
    try:
        await opened.save(id, transcript("first", 1))
    except Exception as saving:
        try:
            await opened.get(id)
        except Exception as getting:
            raise NotAStore(f"the store does not work: {getting}; {saving}") from saving


async def _answer(subject: dict[str, Any], request: dict[str, Any]) -> dict[str, Any]:
    kind, factory, terms = subject["kind"], subject["factory"], Terms(**subject["terms"])
    limit = request["limit"]
    if "check" not in request:
        try:
            return {"methods": await probe(kind, factory, limit)}
        except NotAStore as error:
            return {"not_a_store": str(error)}
    outcome = await attempt(named(request["check"], kind), factory, limit=limit, terms=terms)
    return {
        "result": outcome.result,
        "seen": outcome.seen,
        "where": outcome.where,
        "counts": dict(outcome.counts),
    }


def main() -> None:
    """See the module."""
    answers = answers_apart()
    subject = json.loads(sys.stdin.readline())
    for line in sys.stdin:
        request = json.loads(line)
        # Python's own watchdog: it works whatever the main thread does, and says what that was.
        faulthandler.dump_traceback_later(request["limit"] + LATE, exit=True)
        answer = asyncio.run(_answer(subject, request))
        faulthandler.cancel_dump_traceback_later()
        print(json.dumps(answer), file=answers, flush=True)
    others = {*threading.enumerate()} - {threading.main_thread()}
    names = sorted(thread.name for thread in others if not thread.daemon)
    print(json.dumps({"threads": names}), file=answers, flush=True)


if __name__ == "__main__":
    main()
