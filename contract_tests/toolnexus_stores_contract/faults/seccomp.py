"""Seccomp user notification through `ctypes`: this process decides about another's system calls.

A process that called `install` stops at each system call of `NUMBERS` until whoever holds the
listener answers it. No root, no compiler, no ptrace; the filter covers every thread (TSYNC) and
survives fork and exec. Sources: seccomp(2), seccomp_unotify(2), pidfd_getfd(2),
Documentation/userspace-api/seccomp_filter.rst of the kernel.

Limits: Linux 5.7 or later (a listener together with TSYNC), x86-64 and aarch64, 64-bit callers.
What the calling thread passed is read from its memory while it waits; another thread of it may
change that meanwhile, so this is an instrument for tests and no sandbox.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import functools
import os
import platform
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection

__all__ = [
    "NUMBERS",
    "Notification",
    "Unsupported",
    "answer",
    "copy_descriptor",
    "die_with_parent",
    "install",
    "let_run",
    "receive",
]

# Numbers: arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h.
_NUMBERS: Final = {
    "x86_64": {
        "write": 1,
        "open": 2,
        "mmap": 9,
        "pwrite64": 18,
        "writev": 20,
        "msync": 26,
        "sendfile": 40,
        "fsync": 74,
        "fdatasync": 75,
        "truncate": 76,
        "ftruncate": 77,
        "rename": 82,
        "mkdir": 83,
        "rmdir": 84,
        "creat": 85,
        "link": 86,
        "unlink": 87,
        "symlink": 88,
        "sync": 162,
        "openat": 257,
        "mkdirat": 258,
        "unlinkat": 263,
        "renameat": 264,
        "linkat": 265,
        "symlinkat": 266,
        "splice": 275,
        "sync_file_range": 277,
        "fallocate": 285,
        "pwritev": 296,
        "syncfs": 306,
        "renameat2": 316,
        "copy_file_range": 326,
        "pwritev2": 328,
        "io_uring_setup": 425,
        "openat2": 437,
    },
    "aarch64": {
        "mkdirat": 34,
        "unlinkat": 35,
        "symlinkat": 36,
        "linkat": 37,
        "renameat": 38,
        "truncate": 45,
        "ftruncate": 46,
        "fallocate": 47,
        "openat": 56,
        "write": 64,
        "writev": 66,
        "pwrite64": 68,
        "pwritev": 70,
        "sendfile": 71,
        "splice": 76,
        "sync": 81,
        "fsync": 82,
        "fdatasync": 83,
        "sync_file_range": 84,
        "mmap": 222,
        "msync": 227,
        "syncfs": 267,
        "renameat2": 276,
        "copy_file_range": 285,
        "pwritev2": 287,
        "io_uring_setup": 425,
        "openat2": 437,
    },
}
_MACHINE: Final = platform.machine()
NUMBERS: Final[dict[str, int]] = _NUMBERS.get(_MACHINE, {})
"""The system calls that are looked at, on this machine; empty if it is of another kind."""

_AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}  # linux/audit.h
_SECCOMP = {"x86_64": 317, "aarch64": 277}
_PIDFD_GETFD = 438
_LISTENER_FOR_ALL_THREADS = 8 | 1 | 16  # NEW_LISTENER | TSYNC | TSYNC_ESRCH
_RECEIVE, _SEND = 0xC0502100, 0xC0182101  # SECCOMP_IOCTL_NOTIF_RECV, _SEND
_CONTINUE = 1
_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS = 1, 38
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_PROT_WRITE, _MAP_SHARED = 2, 1


class Unsupported(Exception):
    """The system does not let us hold and answer a process's system calls; the text says why."""


@dataclass(frozen=True, slots=True)
class Notification:
    """A thread that stands before a system call."""

    id: int
    pid: int
    """The thread's own id."""

    name: str
    arguments: tuple[int, ...]


def install(names: Collection[str] = NUMBERS) -> int:
    """From here on every thread of this process stops at the calls with these *names*.

    Returns the listener. Raises `Unsupported`.
    """
    if not NUMBERS:
        raise Unsupported(f"system calls of {platform.system()} on {_MACHINE} are not known")
    libc = _libc()
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        raise Unsupported(f"prctl: {os.strerror(ctypes.get_errno())}")
    code = _program(names)
    kept = ctypes.create_string_buffer(code, len(code))
    program = struct.pack("HxxxxxxQ", len(code) // 8, ctypes.addressof(kept))
    listener: int = libc.syscall(
        ctypes.c_long(_SECCOMP[_MACHINE]), 1, _LISTENER_FOR_ALL_THREADS, program
    )
    if listener < 0:
        raise Unsupported(f"seccomp: {os.strerror(ctypes.get_errno())}")
    return listener


def die_with_parent(signal: int) -> None:
    """Have this process sent *signal* when its parent ends."""
    _libc().prctl(_PR_SET_PDEATHSIG, signal, 0, 0, 0)


def receive(listener: int) -> Notification | None:
    """The next thread that waits; None if it died meanwhile."""
    buffer = bytearray(80)
    try:
        fcntl.ioctl(listener, _RECEIVE, buffer)
    except OSError as error:
        if error.errno in {errno.ENOENT, errno.EINTR}:
            return None
        raise
    id, pid, _, number, _, _, *arguments = struct.unpack("QIIiIQ6Q", buffer)
    return Notification(id, pid, _names()[number], tuple(arguments))


def let_run(listener: int, id: int) -> None:
    """Let the call run."""
    _send(listener, id, 0, 0, _CONTINUE)


def answer(listener: int, id: int, value: int = 0, error: int = 0) -> None:
    """Have the call return *value*, or fail with *error*, without running it."""
    _send(listener, id, value, -error, 0)


def _send(listener: int, id: int, value: int, error: int, flags: int) -> None:
    try:
        fcntl.ioctl(listener, _SEND, bytearray(struct.pack("QqiI", id, value, error, flags)))
    except OSError as failure:
        if failure.errno != errno.ENOENT:  # else it died meanwhile
            raise


def copy_descriptor(pid: int, descriptor: int) -> int:
    """A descriptor of ours for the same open file as *descriptor* of process *pid*."""
    process = os.pidfd_open(pid)
    try:
        copied: int = _libc().syscall(ctypes.c_long(_PIDFD_GETFD), process, descriptor, 0)
        if copied < 0:
            raise OSError(ctypes.get_errno(), "pidfd_getfd")
        return copied
    finally:
        os.close(process)


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


@functools.cache
def _names() -> dict[int, str]:
    return {number: name for name, number in NUMBERS.items()}


# Classic BPF (linux/filter.h): (operation, jump if true, jump if false, operand).
_Instruction = tuple[int, int, int, int]
_LOAD, _EQUAL, _ANY_BIT, _RETURN = 0x20, 0x15, 0x45, 0x06
_ALLOW: _Instruction = (_RETURN, 0, 0, 0x7FFF0000)
_NOTIFY: _Instruction = (_RETURN, 0, 0, 0x7FC00000)
_LOAD_NUMBER: _Instruction = (_LOAD, 0, 0, 0)
_LOAD_MACHINE: _Instruction = (_LOAD, 0, 0, 4)
# Of these only the calls that may write: (argument, bits of which one must be set).
_ONLY_IF: dict[str, tuple[tuple[int, int], ...]] = {
    "open": ((1, _WRITING),),
    "openat": ((2, _WRITING),),
    "mmap": ((2, _PROT_WRITE), (3, _MAP_SHARED)),
}


def _program(names: Collection[str]) -> bytes:
    """The filter: stop at each call of *names* that may change a file, let others run."""
    code = [_LOAD_MACHINE, (_EQUAL, 1, 0, _AUDIT[_MACHINE]), _ALLOW, _LOAD_NUMBER]
    for name in NUMBERS.keys() & names:
        rules = _ONLY_IF.get(name, ())
        tests: list[_Instruction] = []
        for place, (argument, bits) in enumerate(rules):
            rest = 2 * (len(rules) - place) - 1  # to the allowing end
            tests += [(_LOAD, 0, 0, 16 + 8 * argument), (_ANY_BIT, 0, rest, bits)]
        ends = [_NOTIFY, _ALLOW] if rules else [_NOTIFY]
        code += [(_EQUAL, 0, len(tests) + len(ends), NUMBERS[name]), *tests, *ends]
    return b"".join(struct.pack("HBBI", *each) for each in (*code, _ALLOW))
