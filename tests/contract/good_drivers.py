"""Two small drivers that keep every promise: what the driver mutants are derived from."""

from __future__ import annotations

import asyncio
import fcntl
import json
import secrets
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from toolnexus_stores.driver import Conflict, Edit, Fault, Head, Record, Version

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path


class DictDriver:
    """In this process, in a dictionary that its drivers share."""

    def __init__(self, records: dict[str, Record]) -> None:
        self.records = records

    async def open(self) -> None:
        await asyncio.sleep(0)

    async def head(self, key: str) -> Head | None:
        record = self.records.get(key)
        return None if record is None else record.head

    async def read(self, key: str) -> Record | None:
        record = self.records.get(key)
        return None if record is None else Record(record.head, list(record.texts))

    async def write(self, key: str, edit: Edit) -> Version:
        stored = self.records.get(key)
        if self.version_of(stored) != edit.expected:
            raise Conflict(key)
        record = self.edited(stored, edit)
        self.records[key] = record
        return record.head.version

    def version_of(self, record: Record | None) -> Version | None:
        return None if record is None else record.head.version

    def edited(self, stored: Record | None, edit: Edit) -> Record:
        kept = stored.texts[: edit.keep] if stored else []
        return Record(Head(self.new_version(stored, edit), edit.meta), [*kept, *edit.tail])

    def new_version(self, stored: Record | None, edit: Edit) -> Version:
        return secrets.token_hex(8)

    async def delete(self, key: str) -> bool:
        return self.records.pop(key, None) is not None

    async def keys(self, prefix: str) -> AsyncIterator[str]:
        for key in [key for key in self.records if key.startswith(prefix)]:
            yield key

    async def close(self) -> None:
        return

    def explain(self, error: Exception) -> Fault | None:
        return None

    def where(self, key: str) -> str:
        return f"memory, key {key}"


class FolderDriver(DictDriver):
    """One file a key, replaced whole; one writer at a time, over all processes."""

    def __init__(self, root: Path) -> None:
        super().__init__({})
        self.root = root

    async def open(self) -> None:
        self.root.mkdir(parents=True, exist_ok=True)

    async def head(self, key: str) -> Head | None:
        record = self.stored(key)
        return None if record is None else record.head

    async def read(self, key: str) -> Record | None:
        return self.stored(key)

    async def write(self, key: str, edit: Edit) -> Version:
        with self.locked():
            stored = self.stored(key)
            if self.version_of(stored) != edit.expected:
                raise Conflict(key)
            record = self.edited(stored, edit)
            self.publish(key, record)
        return record.head.version

    async def delete(self, key: str) -> bool:
        with self.locked(), suppress(FileNotFoundError):
            self.file(key).unlink()
            return True
        return False

    async def keys(self, prefix: str) -> AsyncIterator[str]:
        for file in list(self.root.iterdir()):
            key = file.name.replace("+", "/")
            if file.name[0] != "." and key.startswith(prefix):
                yield key

    def explain(self, error: Exception) -> Fault | None:
        return Fault("the file system failed") if isinstance(error, OSError) else None

    def where(self, key: str) -> str:
        return str(self.file(key))

    def file(self, key: str) -> Path:
        # Long keys would need directories; here they are short enough but for the longest.
        name = key.replace("/", "+")
        return self.root / (name if len(name) < 200 else f"{name[:80]}{name[-100:]}")

    def stored(self, key: str) -> Record | None:
        with suppress(FileNotFoundError):
            version, meta, texts = json.loads(self.file(key).read_text("ascii"))
            return Record(Head(version, meta.encode()), [text.encode() for text in texts])
        return None

    def publish(self, key: str, record: Record) -> None:
        staged = self.root / f".{secrets.token_hex(8)}"
        lines: list[Any] = [record.head.version, record.head.meta.decode()]
        staged.write_text(json.dumps([*lines, [text.decode() for text in record.texts]]))
        staged.replace(self.file(key))

    @contextmanager
    def locked(self) -> Iterator[None]:
        with (self.root / ".lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
