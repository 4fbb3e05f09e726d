"""Faults at system calls: kill the process, fail the call, tear the write, hold the thread.

A `Supervisor` sees every call of a victim that changes a file, with its data, before it happens,
and at one of them (`Aim`) does what it was told:

- `Kill`: SIGKILL before the call runs;
- `Fail`: the call does not run and reports an errno;
- `Tear`: only the first bytes are really written, and then the process is killed, or is told the
  short count. A kernel never writes a part *and* fails (write(2)): with an errno it is the next
  write to that file, and each one after it, that fails. So does a disk that is full;
- `Hold`: the calling thread waits while everything else goes on.

Calls that sync are answered with success without running: what they are for is a matter of power
loss (`crashstates`), and no kill of a process can show it.
"""

from __future__ import annotations

import errno
import os
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias, final

from . import seccomp
from .calls import DELETED, OPENING, SYNCING, WRITING, Call, read_call

if TYPE_CHECKING:
    from .disk import Before

__all__ = ["Aim", "Fail", "Fault", "Hold", "Kill", "Supervisor", "Tear"]


@dataclass(frozen=True, slots=True)
class Kill:
    """SIGKILL before the call runs."""

    def __str__(self) -> str:
        return "kill"


@dataclass(frozen=True, slots=True)
class Fail:
    """The call does not run and fails with *error*."""

    error: int

    def __str__(self) -> str:
        return f"err:{errno.errorcode[self.error]}"


@dataclass(frozen=True, slots=True)
class Tear:
    """*count* bytes are written, then the process is killed, or told so, or told and failed."""

    count: int
    then: Literal["kill", "short"] | int = "kill"
    """An errno: the next write to the file fails with it, and so do all after it."""

    def __str__(self) -> str:
        then = errno.errorcode[self.then] if isinstance(self.then, int) else self.then
        return f"tear:{self.count}:{then}"


@dataclass(frozen=True, slots=True)
class Hold:
    """The call runs, *seconds* later."""

    seconds: float

    def __str__(self) -> str:
        return f"hold:{self.seconds:g}"


Fault: TypeAlias = Kill | Fail | Tear | Hold


@dataclass(frozen=True, slots=True)
class Aim:
    """A fault at the call with this number, from 1, since the victim was armed."""

    number: int
    fault: Fault

    def __str__(self) -> str:
        return f"#{self.number}:{self.fault}"

    @classmethod
    def parse(cls, text: str) -> Aim:
        """The reverse of `str`. Raises `ValueError`."""
        number, kind, *rest = text.removeprefix("#").split(":")
        return cls(int(number), _parsed_fault(kind, rest))


def _parsed_fault(kind: str, rest: list[str]) -> Fault:
    match kind, rest:
        case "kill", []:
            return Kill()
        case "err", [name]:
            return Fail(_number_of(name))
        case "tear", [count, ("kill" | "short") as then]:
            return Tear(int(count), "kill" if then == "kill" else "short")
        case "tear", [count, name]:
            return Tear(int(count), _number_of(name))
        case "hold", [seconds]:
            return Hold(float(seconds))
        case _:
            raise ValueError(f"not a fault: {':'.join((kind, *rest))}")


def _number_of(name: str) -> int:
    value: object = getattr(errno, name, None)
    if not isinstance(value, int):
        raise ValueError(f"not an errno: {name}")  # noqa: TRY004 - the text is wrong, not its type
    return value


@final
class Supervisor:
    """Looks at the calls of one victim, notes them, and does what `Aim` says."""

    def __init__(self, victim: int, listener: int, before: Before, aim: Aim | None) -> None:
        self._victim = victim
        self._listener = listener
        self._before = before
        self._aim = aim
        self._full: dict[str, int] = {}
        self._held: list[tuple[float, int]] = []
        self.armed = False
        self.fired: Call | None = None
        """The call that the fault befell."""

        self.trace: list[Call] = []
        """The calls while it was armed."""

        self.unseen: list[str] = []
        """Ways in which files may have changed that cannot be looked at."""

    def serve(self) -> None:
        """Look at the next call that waits, and answer it."""
        notification = seccomp.receive(self._listener)
        if notification is None:
            return
        try:
            call = read_call(notification)
        except (OSError, KeyError):  # it died, or is about to fail with EBADF or EFAULT
            seccomp.let_run(self._listener, notification.id)
            return
        if not _is_about_files(call):
            seccomp.let_run(self._listener, notification.id)
            return
        for path in (call.path, call.target):
            if path and not path.endswith(DELETED) and call.name not in SYNCING:
                self._before.note(path)
        self._decide(notification.id, call)

    def release(self) -> float:
        """Let go of the threads that were held long enough; seconds until the next."""
        now = time.monotonic()
        for until, id in [each for each in self._held if each[0] <= now]:
            self._held.remove((until, id))
            seccomp.let_run(self._listener, id)
        return max(0.001, min((until for until, _ in self._held), default=now + 1) - now)

    def disarm(self) -> None:
        """No more faults, and the disk has room again."""
        self.armed = False
        self._full.clear()

    def _decide(self, id: int, call: Call) -> None:
        if not self.armed:
            self._pass(id, call)
            return
        if call.name in {"mmap", "io_uring_setup", "sendfile", "copy_file_range", "splice"}:
            self._note_unseen(call)
        self.trace.append(call)
        if call.path in self._full and call.data:
            seccomp.answer(self._listener, id, error=self._full[call.path])
        elif self._aim is not None and len(self.trace) == self._aim.number:
            self._fire(id, call, self._aim.fault)
        else:
            self._pass(id, call)

    def _pass(self, id: int, call: Call) -> None:
        if call.name in SYNCING:
            seccomp.answer(self._listener, id)
        else:
            seccomp.let_run(self._listener, id)

    def _note_unseen(self, call: Call) -> None:
        if not call.path.endswith("-shm"):  # rebuilt after a crash: sqlite.org/walformat.html, 2.2
            self.unseen.append(str(call))

    def _fire(self, id: int, call: Call, fault: Fault) -> None:
        match fault:
            case Kill():
                self._kill()
            case Fail(error):
                seccomp.answer(self._listener, id, error=error)
            case Hold(seconds):
                self._held.append((time.monotonic() + seconds, id))
            case Tear(count, then):
                if call.name not in WRITING or not 0 < count < len(call.data):
                    self._pass(id, call)
                    return  # not fired: the trace is another one than the plan was made from
                self._write_part(call, count)
                if then == "kill":
                    self._kill()
                else:
                    if isinstance(then, int):
                        self._full[call.path] = then
                    seccomp.answer(self._listener, id, value=count)
        self.fired = call

    def _write_part(self, call: Call, count: int) -> None:
        """Write through the victim's own open file, so that its position moves as well."""
        descriptor = seccomp.copy_descriptor(self._victim, call.descriptor)
        try:
            if call.name in {"write", "writev"}:
                os.write(descriptor, call.data[:count])
            else:
                os.pwrite(descriptor, call.data[:count], call.at)
        finally:
            os.close(descriptor)

    def _kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._victim, signal.SIGKILL)


def _is_about_files(call: Call) -> bool:
    """Whether it may change a file that outlives the process, or its name."""
    if call.name in {"sync", "io_uring_setup"}:
        return True
    path = call.path
    if not path.startswith("/") or path.startswith(("/proc/", "/sys/")):
        return False
    if path.startswith("/dev/") and not path.startswith("/dev/shm/"):  # noqa: S108 - a file system like others
        return False
    return call.name in OPENING or not _is_device(path)


def _is_device(path: str) -> bool:
    return path.startswith(("/memfd:", "/anon_hugepage", "/SYSV"))
