"""Durable conversation stores for the agent runtime `toolnexus`, chosen by URL."""

from __future__ import annotations

from .archive import Snapshot
from .compaction import Compaction
from .errors import (
    Conflict,
    CorruptRecord,
    FormatTooNew,
    HookFailed,
    InvalidId,
    InvalidTranscript,
    InvalidURL,
    MissingExtra,
    StoreClosed,
    StoreError,
    Unavailable,
)
from .options import StoreOptions
from .snapshotting import snapshotting
from .store import Store
from .url import open_store, store_from_config
from .verify import Verification

__all__ = [
    "Compaction",
    "Conflict",
    "CorruptRecord",
    "FormatTooNew",
    "HookFailed",
    "InvalidId",
    "InvalidTranscript",
    "InvalidURL",
    "MissingExtra",
    "Snapshot",
    "Store",
    "StoreClosed",
    "StoreError",
    "StoreOptions",
    "Unavailable",
    "Verification",
    "open_store",
    "snapshotting",
    "store_from_config",
]
