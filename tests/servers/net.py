"""Ports of our own, and waiting with a deadline."""

import random
import socket
import time
from collections.abc import Callable

# Below every system's range for outgoing connections: a client that dials a stopped server in
# that range can be connected to itself, and then holds the port the server needs to come back.
FIRST_PORT, LAST_PORT = 15_000, 31_999
POLL = 0.02


def is_free(port: int) -> bool:
    """Tell whether a server could listen on *port* of 127.0.0.1 now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def free_ports(count: int, *, last: int = LAST_PORT) -> list[int]:
    """Return *count* distinct ports of 127.0.0.1 that nobody listens on.

    Nothing reserves them: whoever uses one must check that its own server answers there.
    """
    found: set[int] = set()
    for _ in range(10_000):
        if len(found) == count:
            return sorted(found)
        port = random.randint(FIRST_PORT, last)
        if is_free(port):
            found.add(port)
    raise OSError(f"no {count} free ports between {FIRST_PORT} and {last}")


def free_port() -> int:
    """Return one port of 127.0.0.1 that nobody listens on."""
    return free_ports(1)[0]


def wait_until(
    probe: Callable[[], bool],
    *,
    timeout: float,
    what: str,
    transient: tuple[type[Exception], ...] = (),
) -> None:
    """Return as soon as *probe* is true; raise `TimeoutError` naming *what* at the deadline.

    An exception of the *transient* kinds means "not yet"; the last one is the error's cause.
    """
    deadline = time.monotonic() + timeout
    while True:
        cause: Exception | None = None
        try:
            if probe():
                return
        except transient as exc:
            cause = exc
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {timeout:g} s") from cause
        time.sleep(POLL)
