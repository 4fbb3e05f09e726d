"""The journal of a conversation: what was dropped, when and why, as a chain of hashes.

One entry for each drop, written before the transcript that it is about. The transcript's head names
the newest entry that took effect; an entry without effect, as a crash leaves it, is one that no
later one and no transcript builds upon. Each entry's hash covers the entry and the hash before it.
With a key (``TOOLNEXUS_STORE_KEY``) the hash is an HMAC, so that whoever can write to the storage
but lacks the key cannot rewrite the past unseen.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["Entry", "EntryKind", "EntryReport", "Side", "applied", "check_chain", "retained"]

EntryKind: TypeAlias = Literal["compaction", "rewrite", "conflict", "restore", "rewind", "manual"]
"""``compaction``: seen by `snapshotting` as it happened. ``rewrite``: a save replaced messages.
``conflict``: a save replaced messages that its caller had not seen. ``restore``: a snapshot was put
back. ``rewind``: a save undid the entry before it. ``manual``: a snapshot by hand, no drop."""


@dataclass(frozen=True, slots=True)
class Side:
    """A transcript before or after a drop."""

    messages: int
    tokens: int
    digest: str


@dataclass(frozen=True, slots=True)
class Entry:
    """One drop."""

    seq: int
    """1, 2, 3 …"""
    at: float
    """Seconds since the epoch."""
    kind: EntryKind
    base: int
    """The `seq` of the entry that was in effect when this one was written; 0: none."""
    before: Side
    after: Side
    dropped: tuple[int, int]
    """The first message of *before* that was dropped, and the one after the last."""
    snapshot: str
    """The digest of the snapshot that keeps what was dropped; empty: none was needed."""
    keeps_from: int
    """Snapshots of entries before this `seq` may be gone, by ``snapshots=``, once this is in
    effect."""
    keyed: bool
    prev: str
    """The hash of the entry before; empty for the first."""
    hash: str = ""

    def sealed(self, key: bytes | None) -> Entry:
        """The same entry, with its hash."""
        values = {**_values(self), "hash": self.hash_under(key)}
        return Entry.parse(values)

    def hash_under(self, key: bytes | None) -> str:
        """The hash that this entry should have."""
        values = _values(self)
        del values["hash"]
        text = json.dumps(values, separators=(",", ":"), sort_keys=True).encode("ascii")
        if key is not None:
            return hmac.new(key, text, hashlib.sha256).hexdigest()
        return hashlib.sha256(text).hexdigest()

    def encoded(self) -> dict[str, object]:
        """The entry as a JSON object."""
        return _values(self)

    @classmethod
    def parse(cls, values: object) -> Entry:
        """Read what `encoded` gave. Raises `ValueError`."""
        if not isinstance(values, dict):
            raise ValueError("not a journal entry")  # noqa: TRY004 - as for any other content
        try:
            known = {field.name: values[field.name] for field in fields(cls)}
            known["before"] = Side(**known["before"])
            known["after"] = Side(**known["after"])
            start, end = known["dropped"]
            entry = cls(**{**known, "dropped": (start, end)})
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError("not a journal entry") from error
        if type(entry.seq) is not int or type(entry.keeps_from) is not int:
            raise ValueError("not a journal entry")
        return entry


def _values(entry: Entry) -> dict[str, object]:
    return {**asdict(entry), "dropped": list(entry.dropped)}


def applied(entries: Sequence[Entry], newest: int) -> set[int]:
    """Which entries took effect, if the one with the `seq` *newest* is the last that did."""
    by_seq = {entry.seq: entry for entry in entries}
    found: set[int] = set()
    while newest in by_seq and newest not in found:
        found.add(newest)
        newest = by_seq[newest].base
    return found


def retained(entries: Sequence[Entry], most: int) -> int:
    """The `seq` from which on entries keep *most* different snapshots."""
    kept: set[str] = set()
    first = entries[-1].seq if entries else 1
    for entry in reversed(entries):
        if entry.snapshot and len(kept | {entry.snapshot}) > most:
            break
        kept |= {entry.snapshot} - {""}
        first = entry.seq
    return first


EntryState: TypeAlias = Literal["intact", "altered", "reordered", "missing", "unverifiable"]


@dataclass(frozen=True, slots=True)
class EntryReport:
    """What `verify` found of one entry."""

    seq: int
    state: EntryState
    """``unverifiable``: made under a key that is not given here."""
    kind: EntryKind | None = None
    at: float | None = None
    effect: bool = False
    """Whether it took effect: False for what a crash or a failed save left behind."""
    snapshot: Literal["none", "intact", "missing", "damaged", "pruned"] = "none"
    digest: str = ""
    """Of the snapshot."""


def check_chain(texts: Iterable[bytes], key: bytes | None) -> tuple[list[EntryReport], list[Entry]]:
    """Every entry's state, as far as the journal alone tells, and the entries that can be read."""
    reports: list[EntryReport] = []
    entries: list[Entry] = []
    expected, before = 1, ""
    for text in texts:
        try:
            entry = Entry.parse(json.loads(text))
        except ValueError:
            reports.append(EntryReport(expected, "altered"))
            expected, before = expected + 1, "?"
            continue
        for seq in range(expected, entry.seq):
            reports.append(EntryReport(seq, "missing"))
            before = "?"
        state = _state_of(entry, before, key, in_order=entry.seq >= expected)
        reports.append(EntryReport(entry.seq, state, entry.kind, entry.at, digest=entry.snapshot))
        entries.append(entry)
        expected, before = max(expected, entry.seq + 1), entry.hash
    seen = {entry.seq for entry in entries}
    # One that comes later is out of its place rather than missing from it.
    return [each for each in reports if each.state != "missing" or each.seq not in seen], entries


def _state_of(entry: Entry, before: str, key: bytes | None, *, in_order: bool) -> EntryState:
    if not in_order:
        return "reordered"
    if entry.keyed and key is None:
        return "unverifiable"
    if entry.keyed != (key is not None) and key is not None and entry.seq > 1 and before == "":
        return "altered"
    genuine = hmac.compare_digest(entry.hash, entry.hash_under(key if entry.keyed else None))
    if not genuine or before not in {entry.prev, "?"}:
        return "altered"
    return "intact"
