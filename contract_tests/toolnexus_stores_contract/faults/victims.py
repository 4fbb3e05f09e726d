"""Processes that are forked to be looked at, and to be killed.

A victim is a fork of this process, which must be a fresh interpreter with one thread (`laboratory`
is one). It runs an async function under the eyes of a `Supervisor`, and talks with its parent over
a `Line`: each thing that it says is answered before it goes on, so that what it says and what it
does have one order.
"""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import socket
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn, TypeAlias, final

from toolnexus_stores_contract.factory import described

from . import seccomp
from .calls import NAMING, OPENING, SYNCING
from .seccomp import Unsupported
from .syscalls import Supervisor

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection

    from .calls import Call
    from .disk import Before
    from .syscalls import Aim

    Body = Callable[["Line"], Awaitable[object]]
    Listen = Callable[[str, Any], object]

__all__ = ["Ending", "Line", "Said", "Watch", "observe", "observe_two"]

Watch: TypeAlias = Literal["all", "names", "nothing"]

_SECONDS = 10.0
_TURN = 0.002  # seconds, when two are served in turn
_WATCHED: Final[dict[Watch, Collection[str] | None]] = {
    "all": seccomp.NUMBERS.keys(),
    "names": OPENING | NAMING | SYNCING,  # a file is noted when it is opened, before it is written
    "nothing": None,
}


@final
class Line:
    """A victim's connection with its parent."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._lines = end.makefile("rb")

    def say(self, word: str, value: object = None) -> Any:
        """Say it, and wait for the answer."""
        self._end.sendall(json.dumps([word, value]).encode() + b"\n")
        return json.loads(self._lines.readline())


@dataclass(frozen=True, slots=True)
class Said:
    """Something that a victim said."""

    word: str
    value: Any
    calls: int
    """How many calls it had made by then, since it was armed."""


@dataclass(slots=True)
class Ending:
    """What became of a victim."""

    status: int = 0
    """As `os.waitstatus_to_exitcode` says it: a signal is negative."""

    hung: bool = False
    """It was killed because its time was over."""

    said: list[Said] = field(default_factory=list[Said])
    trace: list[Call] = field(default_factory=list["Call"])
    fired: Call | None = None
    unseen: list[str] = field(default_factory=list[str])

    def heard(self, word: str) -> Any:
        """The last value that was said with *word*; None if it was not."""
        return next((each.value for each in reversed(self.said) if each.word == word), None)

    def has_said(self, word: str) -> bool:
        """Whether it was said at all."""
        return any(each.word == word for each in self.said)


def observe(  # noqa: PLR0913 - all but two by name
    body: Body,
    before: Before,
    *,
    aim: Aim | None = None,
    listen: Listen | None = None,
    seconds: float = _SECONDS,
    watch: Watch = "all",
) -> Ending:
    """Run *body* in a victim until it ends or *seconds* are over.

    The words "arm" and "disarm" switch *aim* on and off. What is said besides is noted, and
    answered by what *listen* returns. Raises `Unsupported`.

    A victim of which only "names" are watched cannot be armed and goes faster: it is looked at as
    far as it takes to put the disk back. Of one that is not watched, not even that is known.
    """
    observer = _Observer(body, before, watch, aim, listen)
    deadline = time.monotonic() + seconds
    try:
        while observer.serve(deadline - time.monotonic()):
            pass
    finally:
        ending = observer.end()
    return _supported(ending)


def observe_two(
    first: Body, second: Body, before: Before, *, aim: Aim, seconds: float = _SECONDS
) -> tuple[Ending, Ending]:
    """Run two victims at once; *aim* is at the first of them.

    The second asks "now?" until that is so: the fault has befallen the first, or it has ended.
    """
    one = _Observer(first, before, "all", aim, None)
    other = _Observer(second, before, "all", None, lambda *_: one.has_fired or not running)
    running = [one]
    deadline = time.monotonic() + seconds
    live = [one, other]
    try:
        while live:
            live = [each for each in live if each.serve(deadline - time.monotonic(), _TURN)]
            running = [each for each in running if each in live]
    finally:
        endings = one.end(), other.end()
    return _supported(endings[0]), _supported(endings[1])


def _supported(ending: Ending) -> Ending:
    complaint = ending.heard("unsupported")
    if complaint:
        raise Unsupported(complaint)
    return ending


def _live(end: socket.socket, body: Body, names: Collection[str] | None) -> NoReturn:
    """A victim's life."""
    status = 70
    try:
        os.setsid()
        line = Line(end)
        if names is not None:
            _be_watched(end, line, names)
        asyncio.run(_lived(body, line))
        status = 0
    finally:
        os._exit(status)


def _be_watched(end: socket.socket, line: Line, names: Collection[str]) -> None:
    seccomp.die_with_parent(signal.SIGKILL)
    try:
        listener = seccomp.install(names)
    except Unsupported as error:
        line.say("unsupported", str(error))
        os._exit(0)
    socket.send_fds(end, [b"listener\n"], [listener])
    os.close(listener)


async def _lived(body: Body, line: Line) -> None:
    try:
        await body(line)
    except BaseException as error:
        line.say("raised", described(error))
    os._exit(0)  # nothing is closed: a process that dies closes nothing


@final
class _Observer:
    """The parent's side of one victim."""

    def __init__(
        self,
        body: Body,
        before: Before,
        watch: Watch,
        aim: Aim | None,
        listen: Listen | None,
    ) -> None:
        self._end, theirs = socket.socketpair()
        self._pid = os.fork()
        if self._pid == 0:
            self._end.close()
            _live(theirs, body, _WATCHED[watch])
        theirs.close()
        self._before, self._aim, self._listen = before, aim, listen
        self._supervisor: Supervisor | None = None
        self._listener = -1
        self._heard = b""
        self._ending = Ending()
        self._process = os.pidfd_open(self._pid) if hasattr(os, "pidfd_open") else -1
        self._poll = select.poll()
        self._poll.register(self._end, select.POLLIN)
        if self._process >= 0:  # else the end of the connection is the end of the process
            self._poll.register(self._process, select.POLLIN)

    @property
    def has_fired(self) -> bool:
        """Whether the fault has befallen it."""
        return self._supervisor is not None and self._supervisor.fired is not None

    def serve(self, rest: float, longest: float = 1.0) -> bool:
        """Serve what comes next, for *longest* at most; False at its end, or that of its time."""
        if rest <= 0:
            self._ending.hung = True
            return False
        pause = min(rest, longest, self._supervisor.release() if self._supervisor else 1.0)
        ready = dict(self._poll.poll(1000 * pause))
        if self._supervisor is not None and self._listener in ready:
            if ready[self._listener] & select.POLLIN:
                self._supervisor.serve()
            else:  # every thread that the filter was for is gone
                self._poll.unregister(self._listener)
        if self._end.fileno() in ready:
            return self._hear() or self._process >= 0
        return self._process not in ready

    def end(self) -> Ending:
        """Kill what is left of it."""
        with suppress(ProcessLookupError):  # it has no group yet
            os.killpg(self._pid, signal.SIGKILL)
        with suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)
        _, status = os.waitpid(self._pid, 0)
        for descriptor in {self._listener, self._process} - {-1}:
            os.close(descriptor)
        self._end.close()
        ending, supervisor = self._ending, self._supervisor
        ending.status = os.waitstatus_to_exitcode(status)
        if supervisor is not None:
            ending.trace, ending.unseen = supervisor.trace, supervisor.unseen
            ending.fired = supervisor.fired
        return ending

    def _hear(self) -> bool:
        received, descriptors, _, _ = socket.recv_fds(self._end, 65536, 1)
        if descriptors:
            self._listener = descriptors[0]
            self._supervisor = Supervisor(self._pid, self._listener, self._before, self._aim)
            self._poll.register(self._listener, select.POLLIN)
        if not received:
            self._poll.unregister(self._end)
        *lines, self._heard = (self._heard + received).split(b"\n")
        for line in lines:
            if line != b"listener":
                word, value = json.loads(line)
                self._reply(self._understood(word, value))
        return bool(received)

    def _understood(self, word: str, value: Any) -> object:
        supervisor = self._supervisor
        calls = len(supervisor.trace) if supervisor else 0
        if word == "arm" and supervisor:
            supervisor.armed = True
        elif word == "disarm" and supervisor:
            supervisor.disarm()
        else:
            self._ending.said.append(Said(word, value, calls))
            return self._listen(word, value) if self._listen else None
        return None

    def _reply(self, answer: object) -> None:
        with suppress(OSError):  # it died meanwhile
            self._end.sendall(json.dumps(answer).encode() + b"\n")
