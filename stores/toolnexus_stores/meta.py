"""What the store notes on each record, in the head that drivers keep and never read.

`digest` is a chain over the texts, so that a damaged, missing, added or swapped message is seen,
whichever it is. `token` is drawn anew for every write attempt of a save: a writer that lost its
acknowledgement finds its own token in the head and knows that the write succeeded.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["FORMAT", "LINK", "Meta", "Notes", "UnreadableMeta", "chain", "digests", "last_link"]

FORMAT = 1
"""The format that this version writes. A record of a higher one is refused, never overwritten."""

LINK = 16
"""Bytes of one link of the digest chain."""


class UnreadableMeta(ValueError):
    """The head is not one that this package wrote."""


def chain(texts: Iterable[bytes], start: bytes = b"") -> bytes:
    """The chain's links for *texts* that follow *start*, the links so far; all of them, joined.

    A link is the first 16 bytes of SHA-256 over the link before it and the text.
    """
    link = start[-LINK:]
    links = [start]
    for text in texts:
        link = hashlib.sha256(link + text).digest()[:LINK]
        links.append(link)
    return b"".join(links)


def digests(links: bytes) -> Iterator[str]:
    """The digests of the transcripts that a transcript with these *links* begins with, [] too."""
    yield ""
    for end in range(LINK, len(links) + 1, LINK):
        yield links[end - LINK : end].hex()


def last_link(links: bytes) -> str:
    """The digest of a whole transcript, in hexadecimal; empty for an empty transcript."""
    return links[-LINK:].hex()


@dataclass(frozen=True, slots=True)
class Notes:
    """What the head of a transcript says of its journal and its compactions."""

    journal: str = ""
    """``seq:hash`` of the newest journal entry that took effect."""
    kept: str = ""
    """The digest of the snapshot that this entry made."""
    inserted: tuple[int, int] | None = None
    """Where the messages stand that a rewrite put in the place of dropped ones: a summary."""

    @property
    def seq(self) -> int:
        """The number of the newest journal entry that took effect; 0: none."""
        number = self.journal.partition(":")[0]
        return int(number) if number.isdecimal() else 0

    def cut(self, keep: int) -> Notes:
        """The notes of a transcript that is cut to *keep* messages."""
        beyond = self.inserted is not None and self.inserted[1] > keep
        return replace(self, inserted=None) if beyond else self


@dataclass(frozen=True, slots=True)
class Meta:
    """The notes on one version of one transcript."""

    format: int
    id: str
    count: int
    digest: str
    token: str
    created: float
    """Seconds since the epoch: the first save of this conversation."""
    updated: float
    """Seconds since the epoch: the save that wrote this version."""
    notes: Notes = Notes()

    def encode(self) -> bytes:
        """One line of ASCII JSON."""
        values = asdict(self)
        # Beside the others, and only if there is something to say.
        values |= {name: value for name, value in values.pop("notes").items() if value}
        return json.dumps(values, separators=(",", ":")).encode("ascii")

    @classmethod
    def decode(cls, data: bytes) -> Meta:
        """Read what `encode` wrote; keys that a later writer of this format added are left out.

        Raises `UnreadableMeta` for anything else. Of a higher format only `format` is to be relied
        on, whatever became of the other keys.
        """
        try:
            values = json.loads(data)
            later = type(values["format"]) is int and values["format"] > FORMAT
            blank = {"count": 0, "id": "", "digest": "", "token": "", "created": 0, "updated": 0}
            values = {**blank, **values} if later else values
            known = {name: values[name] for name in _NAMES}
            known["notes"] = _notes(values)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise UnreadableMeta("the head is not one of this package") from error
        meta = cls(**known)
        if not (type(meta.format) is int and isinstance(meta.id, str) and type(meta.count) is int):
            raise UnreadableMeta("the head is not one of this package")
        return meta


_NAMES = [field.name for field in fields(Meta) if field.name != "notes"]


def _notes(values: dict[str, Any]) -> Notes:
    """Raises `ValueError` or `TypeError` for what is none."""
    journal, kept, inserted = (values.get(field.name) for field in fields(Notes))
    if inserted is None:
        return Notes(str(journal or ""), str(kept or ""))
    start, end = map(int, inserted)
    return Notes(str(journal or ""), str(kept or ""), (start, end))
