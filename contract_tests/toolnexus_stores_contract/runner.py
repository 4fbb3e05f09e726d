"""Where checks are made so that nothing that a store does can hang or end what asks for them."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import sys
import tempfile
import threading
import time
import traceback
from concurrent.futures import Future
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Protocol, Self, final

from .factory import NotAStore, is_theirs, place_at, resolve
from .process import environment
from .report import Outcome
from .run import attempt
from .worker import LATE, probe

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from types import FrameType

    from .check import Check, Terms
    from .factory import Factory

__all__ = ["Runner", "runner_of"]

_PATIENCE = LATE + 3  # seconds after a limit at which the process itself is killed
_LEAVING = 5.0  # seconds for a process to end by itself
_FRAME = re.compile(r'File "(.+)", line (\d+) in (\S+)')


class Runner(Protocol):
    """Makes checks, one after the other, on one storage."""

    notes: list[str]

    async def __aenter__(self) -> Self:
        """Begin."""
        ...

    async def __aexit__(self, *raised: object) -> None:
        """Leave nothing behind."""
        ...

    async def methods(self, limit: float) -> set[str]:
        """The methods of the store. Raises `NotAStore`."""
        ...

    async def attempt(self, check: Check, limit: float) -> Outcome:
        """How *check* ended; never later than a few seconds after *limit*."""
        ...


def runner_of(kind: str, factory: Factory, terms: Terms) -> Runner:
    """A process for a factory that has a name; threads for one that is only in this process."""
    if isinstance(factory, str):
        return _InProcess(kind, factory, terms)
    return _InThread(kind, factory, terms)


class _Gone(Exception):
    """The process gave no answer. The text says what became of it."""


@final
class _InProcess:
    """Checks in a worker process, which is replaced if it is lost."""

    def __init__(self, kind: str, factory: str, terms: Terms) -> None:
        self._subject = {"kind": kind, "factory": factory, "terms": asdict(terms)}
        self._process: asyncio.subprocess.Process | None = None
        self.notes: list[str] = []

    async def __aenter__(self) -> Self:
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115 - closed in __aexit__
        return self

    async def __aexit__(self, *raised: object) -> None:
        if raised[0] is None:
            await self._let_end()
        await self._kill()
        self._complaints.close()

    async def methods(self, limit: float) -> set[str]:
        """See `Runner`."""
        try:
            answer = await self._asked({"limit": limit})
        except _Gone as gone:
            raise NotAStore(_no_answer(gone, self._place())) from None
        if "not_a_store" in answer:
            raise NotAStore(answer["not_a_store"])
        return set(answer["methods"])

    async def attempt(self, check: Check, limit: float) -> Outcome:
        """See `Runner`."""
        began = time.perf_counter()
        try:
            answer = await self._asked({"check": check.id, "limit": limit})
        except _Gone as gone:
            return Outcome(check, "broken", str(gone), time.perf_counter() - began, self._place())
        seconds = time.perf_counter() - began
        seen, where, counts = answer["seen"], answer["where"], answer["counts"]
        return Outcome(check, answer["result"], seen, seconds, where, counts)

    async def _asked(self, request: dict[str, Any]) -> dict[str, Any]:
        process = self._process or await self._started()
        limit = request["limit"]
        try:
            async with asyncio.timeout(limit + _PATIENCE):
                _write(process, request)
                line = await process.stdout.readline() if process.stdout else b""
                if line:
                    answer: dict[str, Any] = json.loads(line)
                    return answer
                code = await process.wait()
        except TimeoutError:
            await self._kill()
            raise _Gone(_blocked(limit)) from None
        except BaseException:
            await self._kill()
            raise
        self._process = None
        raise _Gone(_blocked(limit) if "Timeout (" in self._said() else _ending(code))

    async def _started(self) -> asyncio.subprocess.Process:
        self._complaints.truncate(0)
        self._complaints.seek(0)
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", f"{__package__}.worker"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=self._complaints,
            env=environment(),
        )
        _write(self._process, self._subject)
        return self._process

    async def _let_end(self) -> None:
        process = self._process
        if process is None or process.stdin is None or process.stdout is None:
            return
        process.stdin.close()
        last = b""
        try:
            async with asyncio.timeout(_LEAVING):
                last = await process.stdout.readline()
                await process.wait()
        except TimeoutError:
            names = ", ".join(json.loads(last or b"{}").get("threads", ())) or "nothing known"
            self.notes.append(
                f"left behind by the store, and kept the process from ending: threads: {names}"
            )

    async def _kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            if process.returncode is None:
                process.kill()
            await process.wait()

    def _said(self) -> str:
        self._complaints.seek(0)
        return self._complaints.read().decode(errors="replace")

    def _place(self) -> str:
        """Where the main thread was when Python's watchdog ended the process."""
        last = self._said().rpartition("Thread 0x")[2]
        theirs = [match for match in _FRAME.findall(last) if is_theirs(match[0])]
        return place_at(theirs[0][0], int(theirs[0][1]), theirs[0][2]) if theirs else ""


def _write(process: asyncio.subprocess.Process, value: object) -> None:
    if process.stdin is not None:
        process.stdin.write(json.dumps(value).encode() + b"\n")


def _blocked(limit: float) -> str:
    return f"did not end within {limit:g} s, and blocks its event loop"


def _no_answer(gone: _Gone, where: str) -> str:
    return f"no answer: {gone}" + (f" ({where})" if where else "")


def _ending(code: int) -> str:
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"
    return f"the process that the store was opened in {how}"


@final
class _InThread:
    """Each check in an event loop and a thread of its own, which is abandoned if it is blocked."""

    def __init__(self, kind: str, factory: Callable[[], Any], terms: Terms) -> None:
        self._kind = kind
        self._terms = terms
        self._factory = factory
        self.notes: list[str] = []

    async def __aenter__(self) -> Self:
        resolve(self._factory)
        self._before = set(threading.enumerate())
        return self

    async def __aexit__(self, *raised: object) -> None:
        names = [t.name for t in set(threading.enumerate()) - self._before if not t.daemon]
        if raised[0] is None and names:
            self.notes.append(f"left behind: threads that still run: {', '.join(sorted(names))}")

    async def methods(self, limit: float) -> set[str]:
        """See `Runner`."""
        try:
            return set(await self._done(probe(self._kind, self._factory, limit), limit))
        except _Gone as gone:
            raise NotAStore(_no_answer(gone, self._place)) from None

    async def attempt(self, check: Check, limit: float) -> Outcome:
        """See `Runner`."""
        began = time.perf_counter()
        try:
            work = attempt(check, self._factory, limit=limit, terms=self._terms)
            outcome: Outcome = await self._done(work, limit)
        except _Gone as gone:
            return Outcome(check, "broken", str(gone), time.perf_counter() - began, self._place)
        return outcome

    async def _done(self, work: Coroutine[Any, Any, Any], limit: float) -> Any:
        done: Future[Any] = Future()
        thread = threading.Thread(target=_run, args=(work, done), name="check", daemon=True)
        thread.start()
        try:
            async with asyncio.timeout(limit + LATE):
                return await asyncio.wrap_future(done)
        except TimeoutError:
            if done.done() and not done.cancelled():
                raise
            self._place = _place_of_frame(sys._current_frames().get(thread.ident or 0))
            raise _Gone(_blocked(limit)) from None


def _run(work: Coroutine[Any, Any, Any], done: Future[Any]) -> None:
    if not done.set_running_or_notify_cancel():
        work.close()
        return
    try:
        done.set_result(asyncio.run(work))
    except BaseException as error:  # it is the other thread's to handle
        done.set_exception(error)


def _place_of_frame(frame: FrameType | None) -> str:
    """The innermost place in the author's code."""
    stack = traceback.extract_stack(frame) if frame else []
    theirs = [each for each in stack if is_theirs(each.filename)]
    return place_at(theirs[-1].filename, theirs[-1].lineno, theirs[-1].name) if theirs else ""
