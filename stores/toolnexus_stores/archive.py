"""What is kept of a conversation beside its transcript: snapshots, and the journal that names them.

A snapshot is a transcript under the name of its digest, so that keeping the same one twice costs
nothing. The journal is a record of entries, one text each, to which one is added at a time.
"""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from .codec import freeze, frozen_text, thaw
from .driver import Conflict, Edit
from .errors import shown_id
from .journal import Entry
from .meta import FORMAT, Meta, last_link
from .mirror import Mirror
from .transcript import Draft, Transcript

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from .driver import Record
    from .engine import Engine
    from .journal import EntryKind
    from .keys import Keys
    from .mirror import Known

__all__ = ["Archive", "Snapshot", "kept"]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A transcript that is kept."""

    digest: str
    """Its name: what `Store.restore` takes."""
    at: float
    """Seconds since the epoch: when it was kept, last if more than once."""
    kind: EntryKind
    """Why."""
    messages: int
    tokens: int


def kept(entries: Sequence[Entry]) -> list[Snapshot]:
    """The snapshots that the journal promises, newest first."""
    first = entries[-1].keeps_from if entries else 0
    found: dict[str, Snapshot] = {}
    for entry in reversed(entries):
        if entry.snapshot and entry.seq >= first:
            found.setdefault(
                entry.snapshot,
                Snapshot(
                    entry.snapshot, entry.at, entry.kind, entry.before.messages, entry.before.tokens
                ),
            )
    return list(found.values())


@final
class Archive:
    """The snapshots of *id*, in *vault*, and its journal, in *engine*."""

    def __init__(self, engine: Engine, vault: Engine, keys: Keys, id: str) -> None:
        self._engine = engine
        self._vault = vault
        self._keys = keys
        self._id = id
        self._shown = shown_id(id)

    async def entries(self) -> list[Entry]:
        """The journal, oldest first. Raises `CorruptRecord` if it is damaged."""
        async with self._engine.operation(f"journal of {self._shown}") as operation:
            key = self._keys.journal(self._id)
            known = await Transcript(self._engine.mirror, operation, key, self._id).current()
        return _parsed(known)

    async def append(self, make: Callable[[Sequence[Entry]], Entry]) -> list[Entry]:
        """Add the entry that *make* makes of those before it; all of them."""
        key = self._keys.journal(self._id)
        while True:
            async with self._engine.operation(f"journal of {self._shown}") as operation:
                journal = Transcript(self._engine.mirror, operation, key, self._id)
                known = await journal.current()
                entries = _parsed(known)
                entry = make(entries)
                (frozen,) = freeze([entry.encoded()])
                draft = Draft([*(known.frozen if known else ()), frozen])
                draft.settle(len(entries))
                try:
                    await journal.write(known, draft, len(entries))
                except Conflict:  # another process added one: make it again, after that
                    continue
            return [*entries, entry]

    async def keep(self, frozen: Sequence[bytes], links: bytes) -> None:
        """Keep the transcript *frozen*, whose digest chain is *links*."""
        texts = [frozen_text(each) for each in frozen]
        now, token = time.time(), secrets.token_hex(8)
        meta = Meta(FORMAT, self._id, len(texts), last_link(links), token, now, now)
        edit = Edit(None, meta.encode(), 0, texts, lambda: texts)
        key = self._keys.snapshot(self._id, meta.digest)
        async with self._vault.operation(f"snapshot of {self._shown}") as operation:
            try:
                await operation.write(key, edit, token)
            except Conflict:
                return  # named by its content: it is kept already

    async def snapshot(self, digest: str) -> Known | None:
        """The snapshot of this *digest*, read and checked; None if it is not there."""
        key = self._keys.snapshot(self._id, digest)
        async with self._vault.operation(f"snapshot of {self._shown}") as operation:
            # Not remembered: it would push transcripts out of the mirror.
            return await Transcript(Mirror(0), operation, key, self._id).read()

    async def raw_journal(self) -> Record | None:
        """The journal as it is stored, damaged or not."""
        async with self._engine.operation(f"journal of {self._shown}") as operation:
            return await operation.read(self._keys.journal(self._id))

    async def remove(self, digests: Iterable[str]) -> None:
        """Remove the snapshots of these *digests*."""
        for digest in digests:
            async with self._vault.operation(f"snapshots of {self._shown}") as operation:
                await operation.delete(self._keys.snapshot(self._id, digest))

    async def remove_journal(self) -> None:
        """Remove the journal."""
        key = self._keys.journal(self._id)
        async with self._engine.operation(f"journal of {self._shown}") as operation:
            self._engine.mirror.drop(key)
            await operation.delete(key)


def _parsed(known: Known | None) -> list[Entry]:
    return [] if known is None else [Entry.parse(each) for each in thaw(known.frozen)]
