"""Durable conversation stores for the agent runtime `toolnexus`, chosen by URL."""

from __future__ import annotations

from .errors import (
    CorruptRecord,
    FormatTooNew,
    InvalidId,
    InvalidTranscript,
    InvalidURL,
    MissingExtra,
    StoreClosed,
    StoreError,
    Unavailable,
)
from .options import StoreOptions
from .store import Store
from .url import open_store, store_from_config

__all__ = [
    "CorruptRecord",
    "FormatTooNew",
    "InvalidId",
    "InvalidTranscript",
    "InvalidURL",
    "MissingExtra",
    "Store",
    "StoreClosed",
    "StoreError",
    "StoreOptions",
    "Unavailable",
    "open_store",
    "store_from_config",
]
