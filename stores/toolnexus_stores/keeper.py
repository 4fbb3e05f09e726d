"""What happens before stored messages are dropped, and after: hook, snapshot, journal, event.

The order makes a crash harmless: the hook first, which may veto; then the snapshot, then the
journal's entry, then the transcript; snapshots that are too many go last. A crash in between leaves
a snapshot or an entry too many, never a message too few.
"""

from __future__ import annotations

import asyncio
import os
import time
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, final

from .change import drop_of
from .codec import frozen_text, thaw
from .compaction import Compaction, estimate_tokens
from .driver import Conflict
from .errors import HookFailed, Unavailable, shown_id
from .journal import Entry, Side, retained
from .meta import Notes, chain, digests, last_link
from .mirror import Foreseen
from .seen import Unknown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .archive import Archive
    from .change import Change, Drop
    from .compaction import CountTokens, Hook, OnMetric
    from .engine import Operation
    from .journal import EntryKind
    from .mirror import Foresight, Known
    from .portal import Caller
    from .seen import Base, Place
    from .transcript import Draft

__all__ = ["Keeper", "Policy", "Terms", "hooked", "journal_key"]

_KEY_VARIABLE = "TOOLNEXUS_STORE_KEY"


hooked: ContextVar[frozenset[Place]] = ContextVar("toolnexus_stores_hooked", default=frozenset())
"""The conversations whose ``before_compaction`` is being called, here."""


@dataclass(frozen=True, slots=True)
class Policy:
    """What a store does about drops."""

    snapshots: int = 0
    hook: Hook | None = None
    on_metric: OnMetric | None = None
    count_tokens: CountTokens = estimate_tokens

    @property
    def idle(self) -> bool:
        """Nobody listens and nothing is kept: nothing is computed, read or written for a drop."""
        return not (self.snapshots or self.hook or self.on_metric)


def journal_key() -> bytes | None:
    """The key of the journals' chains, from the environment variable ``TOOLNEXUS_STORE_KEY``."""
    text = os.environ.get(_KEY_VARIABLE)
    return text.encode("utf-8", "surrogateescape") if text else None


@dataclass(frozen=True, slots=True)
class _Loss:
    """One drop, as it is told and noted."""

    event: Compaction
    before: Side
    after: Side


@final
class Terms:
    """What is agreed before stored messages are dropped: see `transcript.Terms`.

    *base* is the version that the caller saw. With *refuse*, a save that drops what its caller has
    not seen raises `Conflict`.
    """

    def __init__(
        self, base: Base, keeper: Keeper | None, *, refuse: bool, kind: EntryKind = "rewrite"
    ) -> None:
        self._base = base
        self._keeper = keeper
        self._refuse = refuse
        self._kind: EntryKind = kind

    async def agreed(self, known: Known | None, draft: Draft, change: Change) -> Notes:
        """See `transcript.Terms`."""
        if self._keeper is not None:
            foreseen = self._keeper.foreseen(draft, change, known)
            if foreseen is not None:
                return foreseen
        if known is None or not change.dropped:
            return known.meta.notes if known else Notes()
        return await self._agreed_to_drop(known, draft, change)

    async def _agreed_to_drop(self, known: Known, draft: Draft, change: Change) -> Notes:
        stale = not isinstance(self._base, Unknown) and self._base != known.version
        if stale and self._refuse:
            raise Conflict(
                f"save of {shown_id(known.meta.id)}: another save came between, whose messages "
                "this one would drop; read it again"
            )
        if self._keeper is None:
            return known.meta.notes.cut(change.keep)
        kind = "conflict" if stale and self._kind == "rewrite" else self._kind
        digest = last_link(draft.links(change.keep, known))
        return await self._keeper.before_drop(known, draft.frozen, digest, change, kind)

    async def done(self) -> None:
        """See `transcript.Terms`."""
        if self._keeper is not None:
            await self._keeper.after_save()


@final
class Keeper:
    """The policy at work, in one call on the conversation *id* at *place*."""

    def __init__(  # noqa: PLR0913 - what one call has at hand
        self,
        policy: Policy,
        archive: Archive,
        foresight: Foresight,
        operation: Operation,
        caller: Caller,
        *,
        id: str,
        place: Place,
    ) -> None:
        self._policy = policy
        self._archive = archive
        self._foresight = foresight
        self._operation = operation
        self._caller = caller
        self._id = id
        self._place = place
        self._key = place[1]
        self._began = time.perf_counter()
        self._too_many: frozenset[str] = frozenset()

    async def before_drop(
        self, known: Known, new: Sequence[bytes], digest: str, change: Change, kind: EntryKind
    ) -> Notes:
        """Keep and tell what *known* loses to *new*; what to note on the new transcript.

        Raises `HookFailed` for a veto, or `Unavailable` if it cannot be kept.
        """
        notes = known.meta.notes
        if kind == "rewrite" and self._undoes(notes, digest):
            return await self._rewound(known, new, digest)
        if kind == "rewrite" and change.kind == "rewind":
            return notes.cut(change.keep)  # a turn is rolled back, as the runtime does
        drop = drop_of(known.frozen, new, change.keep)
        after = replace(notes, inserted=drop.inserted)
        loss = await self._loss(kind, known.frozen, known.meta.digest, new, digest, drop)
        await self._ask(loss.event)
        only_a_summary = kind == "rewrite" and drop.inside(notes.inserted)
        if not self._policy.snapshots or only_a_summary:
            self._emit(loss.event, "")
            return after
        after = await self._kept(known.frozen, known.links, loss, after)
        self._emit(loss.event, after.kept)
        return after

    async def keep_unsaved(
        self, frozen: Sequence[bytes], new: Sequence[bytes], notes: Notes
    ) -> None:
        """Keep *frozen*, which a run compacts to *new*, whether it was saved or not."""
        links = chain(frozen_text(each) for each in frozen)
        digest = last_link(chain(frozen_text(each) for each in new))
        keep = next(
            (i for i, (a, b) in enumerate(zip(frozen, new, strict=False)) if a != b),
            min(len(frozen), len(new)),
        )
        drop = drop_of(frozen, new, keep)
        loss = await self._loss("compaction", frozen, last_link(links), new, digest, drop)
        await self._ask(loss.event)
        after = await self._kept(frozen, links, loss, replace(notes, inserted=drop.inserted))
        foreseen = Foreseen(frozenset(digests(links)), digest, after, self._too_many)
        self._foresight.put(self._key, foreseen)
        self._emit(loss.event, after.kept)

    async def keep_by_hand(self, known: Known) -> Notes:
        """Keep *known* as a snapshot."""
        drop = drop_of(known.frozen, known.frozen, len(known.frozen))
        digest = known.meta.digest
        loss = await self._loss("manual", known.frozen, digest, known.frozen, digest, drop)
        return await self._kept(known.frozen, known.links, loss, known.meta.notes)

    def foreseen(self, draft: Draft, change: Change, known: Known | None) -> Notes | None:
        """What to note on *draft*, if `keep_unsaved` saw how it was compacted.

        What it drops is kept then, and was told.
        """
        foreseen = self._foresight.get(self._key)
        if foreseen is None or (known and known.meta.notes.journal == foreseen.notes.journal):
            return None  # nothing is foreseen, or it has come true
        if foreseen.after not in set(digests(draft.links(change.keep, known))):
            return None
        self._too_many = foreseen.too_many
        return foreseen.notes

    async def after_save(self) -> None:
        """The transcript is written: the snapshots that are too many may go."""
        await self._archive.remove(sorted(self._too_many))

    def _undoes(self, notes: Notes, digest: str) -> bool:
        """Whether a transcript with *digest* is what the newest snapshot has kept."""
        foreseen = self._foresight.get(self._key)
        begins = foreseen.begins if foreseen and foreseen.notes.kept == notes.kept else frozenset()
        return bool(notes.kept) and (digest == notes.kept or digest in begins)

    async def _rewound(self, known: Known, new: Sequence[bytes], digest: str) -> Notes:
        """The runtime rolled a turn back that had compacted: nothing is lost by that."""
        drop = drop_of(known.frozen, new, 0)
        loss = await self._loss("rewind", known.frozen, known.meta.digest, new, digest, drop)
        after = await self._noted(loss, "", known.meta.notes)
        return replace(after, kept="", inserted=None)

    async def _loss(  # noqa: PLR0913, PLR0917 - both sides of a drop
        self,
        kind: EntryKind,
        stored: Sequence[bytes],
        stored_digest: str,
        new: Sequence[bytes],
        new_digest: str,
        drop: Drop,
    ) -> _Loss:
        count = self._policy.count_tokens

        def made() -> _Loss:
            before, after = thaw(stored), thaw(new)
            event = Compaction(
                id=self._id,
                kind=kind,
                stored=before,
                new=after,
                dropped=range(drop.start, drop.end),
                dropped_tokens=count(before[drop.start : drop.end]),
                kept_tokens=count(before[drop.end :]),
                digest=stored_digest,
            )
            return _Loss(
                event,
                Side(len(before), count(before), stored_digest),
                Side(len(after), count(after), new_digest),
            )

        return await asyncio.to_thread(made)  # it may take long: not on the I/O loop

    async def _ask(self, event: Compaction) -> None:
        """Call the host's hook. The time that it takes is not the backend's."""
        hook = self._policy.hook
        if hook is None:
            return

        def called(event: Compaction) -> object:
            hooked.set(hooked.get() | {self._place})  # in the context of this call alone
            return hook(event)

        try:
            with self._operation.unlimited():
                await self._caller.call(called, event)
        except Exception as error:
            raise HookFailed(
                f"save of {shown_id(self._id)}: before_compaction refused; what is stored stays"
            ) from error

    async def _kept(
        self, frozen: Sequence[bytes], links: bytes, loss: _Loss, notes: Notes
    ) -> Notes:
        """The snapshot, then the entry."""
        try:
            await self._archive.keep(frozen, links)
            return await self._noted(loss, last_link(links), notes)
        except Unavailable as error:
            raise Unavailable(
                f"save of {shown_id(self._id)} failed: what it drops could not be kept, so that "
                f"what is stored stays: {error}"
            ) from error

    async def _noted(self, loss: _Loss, snapshot: str, notes: Notes) -> Notes:
        """Append the entry; what to note on the transcript that is about to be written."""
        key = journal_key()
        event = loss.event

        def next_after(entries: Sequence[Entry]) -> Entry:
            entry = Entry(
                seq=entries[-1].seq + 1 if entries else 1,
                at=time.time(),
                kind=event.kind,
                base=notes.seq,
                before=loss.before,
                after=loss.after,
                dropped=(event.dropped.start, event.dropped.stop),
                snapshot=snapshot,
                keeps_from=0,
                keyed=key is not None,
                prev=entries[-1].hash if entries else "",
            )
            first = retained([*entries, entry], max(1, self._policy.snapshots))
            return replace(entry, keeps_from=first).sealed(key)

        entries = await self._archive.append(next_after)
        newest = entries[-1]
        kept = {each.snapshot for each in entries if each.seq >= newest.keeps_from}
        self._too_many = frozenset(each.snapshot for each in entries) - kept - {""}
        return replace(notes, journal=f"{newest.seq}:{newest.hash}", kept=snapshot)

    def _emit(self, event: Compaction, snapshot: str) -> None:
        if self._policy.on_metric is None:
            return
        self._caller.post(
            self._policy.on_metric,
            {
                "event": "compaction",
                "id": event.id,
                "kind": event.kind,
                "dropped_messages": len(event.dropped),
                "dropped_tokens": event.dropped_tokens,
                "kept_tokens": event.kept_tokens,
                "ms": (time.perf_counter() - self._began) * 1000,
                "snapshot": snapshot or None,
            },
        )
