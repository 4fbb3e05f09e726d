"""Conversation id -> key.

Ids are hostile: a peer chooses them, and they hold separators, NUL, lone surrogates, thousands of
characters, or another id in another case. A key is a readable slug of the id followed by 128 bits
of its SHA-256. It is total, injective up to a collision of that hash, below every backend's length
limit, and safe on file systems that ignore case or normalise Unicode. The id itself, verbatim, is
kept in the record's meta, where a collision would be seen.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from .errors import InvalidId

__all__ = ["Keys", "check_id", "name_of"]

_SLUG_CHARACTERS = 40
_UNSAFE = re.compile(r"[^a-z0-9]+")
_TRANSCRIPTS = "t/"
_JOURNALS = "j/"
_SNAPSHOTS = "s/"
_EMPTY = "empty"  # the digest of no messages has no characters
_DEEPEST_SCOPE = 4


def check_id(id: object) -> str:
    """*id*, if it is a non-empty string; `InvalidId` otherwise."""
    if not isinstance(id, str):
        raise InvalidId(f"a conversation id is a string, not {type(id).__name__}")
    if not id:
        raise InvalidId("a conversation id is a non-empty string")
    return id


def name_of(id: str) -> str:
    """The name of *id* inside keys: ``slug-hash``, 73 characters at most."""
    digest = hashlib.sha256(id.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    slug = _UNSAFE.sub("-", id[: 4 * _SLUG_CHARACTERS].lower())[:_SLUG_CHARACTERS].strip("-")
    return f"{slug}-{digest}" if slug else digest


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of one scope. Scopes nest, and never see each other's conversations."""

    prefix: str = ""

    def scoped(self, scope: str) -> Keys:
        """The keys of *scope*, any non-empty string, inside this one; at most four deep."""
        if self.prefix.count("/") == _DEEPEST_SCOPE:
            raise InvalidId(f"scopes nest at most {_DEEPEST_SCOPE} deep")
        return Keys(f"{self.prefix}{name_of(check_id(scope))}/")

    def transcript(self, id: str) -> str:
        """The key of the transcript of *id*."""
        return f"{self.prefix}{_TRANSCRIPTS}{name_of(id)}"

    def journal(self, id: str) -> str:
        """The key of the journal of *id*."""
        return f"{self.prefix}{_JOURNALS}{name_of(id)}"

    def snapshot(self, id: str, digest: str) -> str:
        """The key of the snapshot of *id* that has this *digest*."""
        return f"{self.prefix}{_SNAPSHOTS}{name_of(id)}/{digest or _EMPTY}"

    def snapshots(self) -> str:
        """The prefix of all snapshots of this scope."""
        return f"{self.prefix}{_SNAPSHOTS}"

    @staticmethod
    def around(key: str) -> Keys:
        """The scope that the transcript at *key* is in."""
        return Keys(key[: key.rindex(_TRANSCRIPTS)])

    def transcripts(self) -> str:
        """The prefix of all transcripts of this scope, of none inside or outside it."""
        return f"{self.prefix}{_TRANSCRIPTS}"
