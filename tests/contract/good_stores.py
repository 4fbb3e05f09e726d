"""Three small stores that keep every promise they claim: what the mutants are derived from.

Also what an author might write: thirty lines each, no library.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import json
import os
import secrets
from contextlib import suppress
from dataclasses import dataclass
from shutil import rmtree
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

Message: TypeAlias = dict[str, Any]


def encoded(messages: Any) -> str:
    """The JSON form of *messages*. Raises without showing what they say."""
    if not isinstance(messages, list) or not all(isinstance(each, dict) for each in messages):
        raise TypeError("messages is a list of objects")
    try:
        return json.dumps(messages)
    except (TypeError, ValueError):
        raise TypeError("messages hold something that is not JSON") from None


class TextStore:
    """In memory, as JSON text."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}

    async def get(self, id: str) -> list[Message] | None:
        text = self.texts.get(id)
        return None if text is None else json.loads(text)

    async def save(self, id: str, messages: list[Message]) -> None:
        self.texts[id] = encoded(messages)


class DirectoryStore:
    """One file a conversation, replaced whole; one writer at a time, over all processes."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir(parents=True, exist_ok=True)

    def file(self, id: str) -> Path:
        return self.root / hashlib.sha256(id.encode("utf-8", "surrogatepass")).hexdigest()

    async def get(self, id: str) -> list[Message] | None:
        with suppress(FileNotFoundError):
            stored: list[list[Message]] = json.loads(self.file(id).read_text("ascii"))
            return stored[1]
        return None

    async def save(self, id: str, messages: list[Message]) -> None:
        if not isinstance(id, str):
            raise TypeError("an id is a string")
        # Without an await: a cancelled save has not begun, or is done.
        self.write(self.file(id), f"[{encoded([{'id': id}])},{encoded(messages)}]")

    def write(self, file: Path, text: str) -> None:
        staged = file.with_name(f"{secrets.token_hex(8)}.staged")
        with (self.root / ".lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            with staged.open("x") as stream:
                stream.write(text)
                stream.flush()
                os.fsync(stream.fileno())
            staged.replace(file)
            self.sync_directory()

    def sync_directory(self) -> None:
        for place in (self.root, self.root.parent):  # the root may be new too
            directory = os.open(place, os.O_RDONLY)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)

    async def ids(self) -> AsyncIterator[str]:
        for file in [
            each for each in self.root.iterdir() if not each.suffix and each.stem[0] != "."
        ]:
            yield json.loads(file.read_text("ascii"))[0][0]["id"]

    async def delete(self, id: str) -> bool:
        with suppress(FileNotFoundError):
            self.file(id).unlink()
            return True
        return False

    async def close(self) -> None:
        self.get = self.save = self._closed  # type: ignore[method-assign, assignment] # from now on

    async def _closed(self, *_: object) -> None:
        raise RuntimeError("closed")


@dataclass(frozen=True)
class Kept:
    digest: str


class KeepingStore(DirectoryStore):
    """Keeps what a save replaces, unless the new transcript begins with it or is its beginning."""

    async def save(self, id: str, messages: list[Message]) -> None:
        text = encoded(messages)
        stored = await super().get(id) or []
        new: list[Message] = json.loads(text)
        shorter = min(len(stored), len(new))
        if encoded(stored[:shorter]) != encoded(new[:shorter]):
            self.keep(id, encoded(stored))
        await super().save(id, new)

    def drawer(self, id: str) -> Path:
        return self.file(id).with_suffix(".kept")

    def keep(self, id: str, text: str) -> None:
        drawer = self.drawer(id)
        drawer.mkdir(exist_ok=True)
        digest = hashlib.sha256(text.encode()).hexdigest()
        (drawer / digest).unlink(missing_ok=True)
        self.write(drawer / digest, text)

    async def snapshots(self, id: str) -> list[Kept]:
        with suppress(FileNotFoundError):
            kept = sorted(self.drawer(id).iterdir(), key=lambda file: file.stat().st_mtime_ns)
            return [Kept(file.name) for file in reversed(kept)]
        return []

    async def restore(self, id: str, digest: str) -> list[Message]:
        if Kept(digest) not in await self.snapshots(id):
            raise LookupError("there is no such snapshot")
        messages: list[Message] = json.loads((self.drawer(id) / digest).read_text("ascii"))
        await self.save(id, messages)
        return messages

    async def delete(self, id: str) -> bool:
        rmtree(self.drawer(id), ignore_errors=True)
        return await super().delete(id)


async def settle() -> None:
    """Let every other task have its turn: what a real store's I/O does."""
    await asyncio.sleep(0)
