"""Servers in containers, where an engine of this machine answers at once and has their image."""

import contextlib
import functools
import os
import secrets
import socket
from collections.abc import Mapping, Sequence
from typing import final

from . import _watch
from .net import free_port
from .server import NotOfferedError, ServerDiedError


@final
class Container:
    """A container, running, with one port on 127.0.0.1 that stays the same over restarts."""

    pid = directory = None

    def __init__(
        self, image: str, *, port: int, command: Sequence[str], env: Mapping[str, str]
    ) -> None:
        if not engine_answers():
            raise NotOfferedError("no engine of this machine answers")
        try:
            from testcontainers.core.config import testcontainers_config  # noqa: PLC0415 - optional
            from testcontainers.core.container import DockerContainer  # noqa: PLC0415 - optional
        except ImportError:
            raise NotOfferedError("pip install testcontainers") from None
        testcontainers_config.ryuk_disabled = True  # its own cleaner is one more image; see _watch
        self.port = free_port()
        self._name = f"tnx-{secrets.token_hex(6)}"
        self._outer = DockerContainer(image, env=dict(env), name=self._name)
        self._outer.with_command(list(command))
        # with_bind_ports() knows all interfaces only; the engine's client takes a pair
        self._outer.ports[f"{port}/tcp"] = ("127.0.0.1", self.port)  # type: ignore[assignment]  # see above
        if not self._outer.get_docker_client().client.images.list(image):
            self._outer.stop()
            raise NotOfferedError(f"docker pull {image}")  # which could take minutes
        _watch.note(f"container {self._name}")
        self._inner = self._outer.start().get_wrapped_container()

    @property
    def running(self) -> bool:
        self._inner.reload()
        return str(self._inner.status) == "running"

    def start(self) -> None:
        self._inner.start()

    def check(self) -> None:
        if not self.running:
            raise ServerDiedError(self._inner.logs(tail=20).decode(errors="replace"))

    def stop(self) -> None:
        self._inner.stop(timeout=10)

    def kill(self) -> None:
        if self.running:
            self._inner.kill()

    def close(self) -> None:
        self._outer.stop(force=True, delete_volume=True)
        _watch.forget(f"container {self._name}")


@functools.cache
def engine_answers() -> bool:
    """Ask the engine's own socket, since its client would take seconds to say no."""
    address = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    if not address.startswith("unix://"):
        return False
    with socket.socket(socket.AF_UNIX) as engine, contextlib.suppress(OSError):
        engine.settimeout(2)
        engine.connect(address.removeprefix("unix://"))
        engine.sendall(b"GET /_ping HTTP/1.0\r\n\r\n")
        return b" 200 " in engine.recv(64)
    return False
