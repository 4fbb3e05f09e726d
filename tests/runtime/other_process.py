"""What a new process finds in a store, and what it should find."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from toolnexus.content import ContentPart, to_dict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .dialects import Message

__all__ = ["as_json", "read_elsewhere"]

_READER = """
import asyncio, json, sys
from toolnexus_stores import open_store

async def main(url, scope=None):
    async with open_store(url) as store:
        store = store.scoped(scope) if scope else store
        found = {id: await store.get(id) async for id in store.ids()}
        print(json.dumps(found))

asyncio.run(main(*sys.argv[1:]))
"""


def read_elsewhere(url: str, *, scope: str | None = None) -> dict[str, list[Message]]:
    """Every conversation that a new process finds at *url*.

    The process that saved them is still alive and its store still open: nothing that is read
    here owes anything to an orderly end.
    """
    arguments = [url] if scope is None else [url, scope]
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", _READER, *arguments],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    if done.returncode != 0:
        raise AssertionError(f"the new process could not read the store:\n{done.stderr}")
    found: dict[str, list[Message]] = json.loads(done.stdout)
    return found


def as_json(conversations: Mapping[str, Sequence[Message]]) -> str:
    """*conversations* as JSON text, the JSON form of what the runtime handed to ``save``.

    As text, because equality of Python values takes 1 for True and any order of keys for another.
    """
    in_order = {id: conversations[id] for id in sorted(conversations)}
    return json.dumps(in_order, indent=1, default=_canonical)


def _canonical(value: object) -> dict[str, Any]:
    # The runtime puts its own dataclass into a transcript; `to_dict` is its canonical form.
    if isinstance(value, ContentPart):
        part: dict[str, Any] = to_dict(value)
        return part
    raise TypeError(f"{type(value).__name__} has no JSON form")
