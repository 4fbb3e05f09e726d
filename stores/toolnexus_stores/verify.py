"""Does the journal tell the truth: transcript, snapshots and chain, held against each other."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from .errors import CorruptRecord
from .journal import Entry, EntryReport, applied, check_chain
from .meta import Notes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .archive import Archive
    from .mirror import Known

__all__ = ["Verification", "verified"]

TranscriptState = Literal["intact", "absent", "damaged"]


@dataclass(frozen=True, slots=True)
class Verification:
    """What was found of one conversation."""

    id: str
    transcript: TranscriptState
    entries: list[EntryReport]
    """Every entry of the journal, oldest first, the missing ones included."""
    truncated: bool
    """The transcript names an entry that the journal does not have, or has with another hash."""

    @property
    def ok(self) -> bool:
        """Nothing is damaged, missing or altered.

        What was pruned by ``snapshots=`` is none of these; neither is an entry without effect.
        """
        return (
            self.transcript != "damaged"
            and not self.truncated
            and all(
                each.state == "intact" and each.snapshot in {"none", "intact", "pruned"}
                for each in self.entries
            )
        )


async def verified(
    archive: Archive, id: str, known: Known | None, damaged: bool, key: bytes | None
) -> Verification:
    """Check the journal of *id*, whose transcript is *known*, absent or *damaged*."""
    notes = known.meta.notes if known else Notes()
    record = await archive.raw_journal()
    reports, entries = check_chain(record.texts if record else (), key)
    in_effect = applied(entries, notes.seq)
    newest = {f"{entry.seq}:{entry.hash}" for entry in entries}
    truncated = bool(notes.journal) and notes.journal not in newest
    keeps_from = max((e.keeps_from for e in entries if e.seq in in_effect), default=0)
    states = await _snapshot_states(archive, entries, keeps_from)
    whole: TranscriptState = "damaged" if damaged else "intact" if known else "absent"
    return Verification(
        id,
        whole,
        [
            replace(
                each,
                effect=each.seq in in_effect,
                snapshot=states.get(each.digest, "none") if each.digest else "none",
            )
            for each in reports
        ],
        truncated,
    )


async def _snapshot_states(
    archive: Archive, entries: Sequence[Entry], keeps_from: int
) -> dict[str, Literal["intact", "missing", "damaged", "pruned"]]:
    """Each snapshot that an entry names, by its digest."""
    promised = {entry.snapshot for entry in entries if entry.seq >= keeps_from}
    states: dict[str, Literal["intact", "missing", "damaged", "pruned"]] = {}
    for digest in {entry.snapshot for entry in entries} - {""}:
        try:
            known = await archive.snapshot(digest)
        except CorruptRecord:
            states[digest] = "damaged"
            continue
        if known is not None:
            states[digest] = "intact" if known.meta.digest == digest else "damaged"
        else:
            states[digest] = "missing" if digest in promised else "pruned"
    return states
