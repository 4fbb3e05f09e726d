"""The contract between a `Store` and a backend.

A driver moves bytes atomically. It knows nothing of messages, retries, hooks or conversation ids:
those are the store's. These docstrings are the specification.

Register a driver of your own under the entry-point group ``toolnexus_stores.drivers``: the name is
the URL scheme, the value a `DriverOptions` model (see `toolnexus_stores.options`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from .errors import Conflict

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

__all__ = ["Conflict", "Damaged", "Driver", "Edit", "Fault", "Head", "Record", "Version"]

Version = str
"""Names one state of one record. Opaque to the store, compared for equality only. A driver never
gives the same version to two different states of a key, not even after a delete."""


@dataclass(frozen=True, slots=True)
class Head:
    """The small part of a record: which version it is, and the store's own notes on it."""

    version: Version
    meta: bytes


@dataclass(frozen=True, slots=True)
class Record:
    """A whole record, as one version of it was written."""

    head: Head
    texts: list[bytes]


@dataclass(frozen=True, slots=True)
class Edit:
    """A change from one version of a record to the next.

    The new record is the first *keep* texts of the stored one, followed by *tail*.
    """

    expected: Version | None
    """The version this edit was made from; None: the key must not exist yet."""

    meta: bytes
    """JSON on one line, ASCII, without a newline. Stored as it is."""

    keep: int
    """How many leading texts stay as they are stored."""

    tail: Sequence[bytes]
    """The texts that follow them: JSON on one line each, ASCII, without a newline."""

    whole: Callable[[], Sequence[bytes]]
    """All texts of the new record, for drivers that can only replace a whole value."""


@dataclass(frozen=True, slots=True)
class Fault:
    """What a client library's error means to the store."""

    reason: str
    """What went wrong, in a few words, safe to show anyone: no host, path, query or value."""

    transient: bool = False
    """Trying again may succeed."""

    ambiguous: bool = False
    """If it was a write: it may have happened all the same."""

    damaged: bool = False
    """The backend found its own data damaged."""


class Damaged(Exception):
    """Raised by a driver that finds a record it cannot read whole. *where* says where it lies."""

    def __init__(self, what: str, *, where: str) -> None:
        super().__init__(what)
        self.where = where


class Driver(Protocol):
    """A backend. One instance lives on one event loop; its methods run concurrently there.

    Keys are made by the store: ``/``-separated parts of ``[a-z0-9._-]``, none of them empty or
    starting with a dot, 80 characters at most a part and 512 in all.

    Methods raise `Conflict`, `Damaged`, or whatever the client library raises; the store asks
    `explain` what such an error means. A method that is cancelled leaves the record as it was or
    as the edit made it, and the driver usable.
    """

    async def open(self) -> None:
        """Connect, and create what must exist. Called once, before anything else."""
        ...

    async def head(self, key: str) -> Head | None:
        """The head of *key*, or None if there is no such record. One cheap round trip."""
        ...

    async def read(self, key: str) -> Record | None:
        """The whole record of *key*, all of one version, or None if there is none."""
        ...

    async def write(self, key: str, edit: Edit) -> Version:
        """Apply *edit* and return the new version: one atomic compare-and-set.

        Raises `Conflict`, and changes nothing, if the stored version is not ``edit.expected``.
        Once it has returned, any later `read` by any process sees the new record, also after a
        crash, to the degree that the backend's ``durability`` option promises. A reader sees the
        old record or the new one, never a mixture.
        """
        ...

    async def delete(self, key: str) -> bool:
        """Remove the record of *key*, readable or not; say whether there was one."""
        ...

    def keys(self, prefix: str) -> AsyncIterator[str]:
        """Every key that starts with *prefix*, once each, in any order, however many there are."""
        ...

    async def close(self) -> None:
        """Release what `open` took. Called once, with no other call under way."""
        ...

    def explain(self, error: Exception) -> Fault | None:
        """What *error* means, or None if it is not an error of this backend (a bug, then)."""
        ...

    def where(self, key: str) -> str:
        """Where the bytes of *key* are kept, for a person to find them; no secrets."""
        ...
