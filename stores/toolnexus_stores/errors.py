"""What a store raises.

The runtime sends exception text verbatim to remote peers and into a parent model's prompt. So no
message here carries a password, a URL, a host, a query or transcript text; it names the
conversation id and says what to do. The client library's own error is chained as ``__cause__``,
for the host's log.
"""

from __future__ import annotations

from typing import final

__all__ = [
    "Conflict",
    "CorruptRecord",
    "FormatTooNew",
    "HookFailed",
    "InvalidId",
    "InvalidTranscript",
    "InvalidURL",
    "MissingExtra",
    "StoreClosed",
    "StoreError",
    "Unavailable",
    "shown_id",
]

_SHOWN_ID_CHARACTERS = 80


def shown_id(id: str) -> str:
    """*id* as error texts show it: quoted, printable, cut after 80 characters."""
    shown = ascii(id)
    return shown if len(shown) <= _SHOWN_ID_CHARACTERS else f"{shown[:_SHOWN_ID_CHARACTERS]}…'"


class StoreError(Exception):
    """Anything that a store raises of its own accord."""


@final
class InvalidId(StoreError, ValueError):
    """The conversation id is not a non-empty string. Raised before any I/O."""


@final
class InvalidTranscript(StoreError, ValueError):
    """A message has no JSON form. Raised before any I/O; names the path, never the value."""


@final
class InvalidURL(StoreError, ValueError):
    """The store's URL or one of its options makes no sense. Raised before any I/O."""


@final
class MissingExtra(StoreError, ImportError):
    """The backend's client library is not installed; the text is the ``pip install`` that helps."""


@final
class StoreClosed(StoreError, RuntimeError):
    """The store was used after ``close()``. Nothing was read or written."""


@final
class Unavailable(StoreError):
    """The backend could not be reached in time, or refused.

    ``ambiguous`` is True when a write was under way whose outcome is unknown: the stored
    transcript is then the old one or the new one. Saving again is always safe.
    """

    def __init__(self, text: str, *, ambiguous: bool = False) -> None:
        super().__init__(text)
        self.ambiguous = ambiguous


@final
class Conflict(StoreError):
    """Somebody else's save came between. Nothing was written; raised by ``on_conflict=error``.

    Read the conversation again, and save what is to be made of both.
    """


@final
class HookFailed(StoreError):
    """The host's ``before_compaction`` raised: the save did not happen, what is stored stays."""


@final
class CorruptRecord(StoreError):
    """What is stored is damaged. It is never served, and never overwritten by a ``save``.

    ``where`` says where the bytes are kept, for repair; tracebacks show it too, the text does not,
    as it may be a path. ``delete(id)`` gives them up.
    """

    def __init__(self, text: str, *, where: str) -> None:
        super().__init__(text)
        self.where = where


@final
class FormatTooNew(StoreError):
    """Written by a later version of this package: neither read nor overwritten. Upgrade."""
