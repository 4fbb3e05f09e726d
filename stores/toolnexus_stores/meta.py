"""What the store notes on each record, in the head that drivers keep and never read.

`digest` is a chain over the texts, so that a damaged, missing, added or swapped message is seen,
whichever it is. `token` is drawn anew for every write attempt of a save: a writer that lost its
acknowledgement finds its own token in the head and knows that the write succeeded.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["FORMAT", "LINK", "Meta", "UnreadableMeta", "chain", "last_link"]

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


def last_link(links: bytes) -> str:
    """The digest of a whole transcript, in hexadecimal; empty for an empty transcript."""
    return links[-LINK:].hex()


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

    def encode(self) -> bytes:
        """One line of ASCII JSON."""
        return json.dumps(asdict(self), separators=(",", ":")).encode("ascii")

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
            known = {field.name: values[field.name] for field in fields(cls)}
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise UnreadableMeta("the head is not one of this package") from error
        meta = cls(**known)
        if not (type(meta.format) is int and isinstance(meta.id, str) and type(meta.count) is int):
            raise UnreadableMeta("the head is not one of this package")
        return meta
