"""One call of a store in a process of its own: ``python -m …elsewhere FACTORY``.

Reads ``[method, argument, …]`` as JSON from standard input and writes what the call returned.
"""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import AsyncExitStack
from typing import Any

from .factory import enter, resolve
from .subject import reader_of


async def _call(factory: str, method: str, arguments: list[Any]) -> Any:
    async with AsyncExitStack() as stack:
        store = await enter(resolve(factory), stack)
        call = reader_of(store) if method == "get" else getattr(store, method)
        return await call(*arguments)


def main() -> None:
    """See the module."""
    method, *arguments = json.load(sys.stdin)
    result = asyncio.run(_call(sys.argv[1], method, arguments))
    json.dump(result, sys.stdout)


if __name__ == "__main__":
    main()
