"""A process of its own that opens the same storage: this side of it.

The other side is `toolnexus_stores_contract.elsewhere`. They speak in lines of JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from typing import TYPE_CHECKING, Any, Literal, Self, final

from .check import Violation

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["End", "Process", "environment"]

End = Literal["close", "leave", "die"]
"""How the process ends: it closes what it opened; or it closes nothing; or it is killed by SIGKILL
as soon as the program has returned."""

_LONGEST_LINE = 64 * 2**20
_ENDING_SECONDS = 10.0


def environment() -> dict[str, str]:
    """The environment of a process that can import what this one can."""
    paths = [os.getcwd(), *filter(None, sys.path)]  # noqa: PTH109 - a string is what is wanted
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


@final
class Process:
    """One process, one program, one result. Killed, if need be, when the block is left."""

    def __init__(
        self,
        kind: str,
        factory: str,
        program: Callable[..., object],
        arguments: Sequence[object],
        end: End,
    ) -> None:
        self._what = program.__name__
        self._request = {
            "kind": kind,
            "factory": factory,
            "program": f"{program.__module__}:{program.__name__}",
            "arguments": arguments,
            "end": end,
        }

    async def __aenter__(self) -> Self:
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115 - closed in __aexit__
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", f"{__package__}.elsewhere"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=self._complaints,
            env=environment(),
            limit=_LONGEST_LINE,
        )
        self._say(self._request)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._process.returncode is None:
            self._process.kill()
            await self._process.wait()
        self._complaints.close()

    async def ready(self) -> None:
        """Wait until the storage is open there."""
        await self._heard()

    def go(self) -> None:
        """Let the program begin, as soon as the storage is open there."""
        self._say("go")

    async def result(self) -> Any:
        """What the program returned. What it raised is a violation."""
        while True:
            heard = await self._heard()
            if "violation" in heard:
                raise Violation(f"{self._what} in another process: {heard['violation']}")
            if "result" in heard:
                return heard["result"]

    async def ended(self) -> bool:
        """Whether the process ends by itself, within ten seconds."""
        try:
            async with asyncio.timeout(_ENDING_SECONDS):
                await self._process.wait()
        except TimeoutError:
            return False
        return True

    def _say(self, value: object) -> None:
        assert self._process.stdin is not None  # noqa: S101 - it is a pipe
        self._process.stdin.write(json.dumps(value).encode() + b"\n")

    async def _heard(self) -> Any:
        assert self._process.stdout is not None  # noqa: S101 - it is a pipe
        line = await self._process.stdout.readline()
        if not line:
            await self._process.wait()
            self._complaints.seek(0)
            last = self._complaints.read().decode(errors="replace").strip().splitlines()[-1:]
            code = self._process.returncode
            seen = " ".join(last)[:300] or f"it ended with status {code}"
            raise Violation(f"{self._what} in another process failed: {seen}")
        return json.loads(line)
