"""``memory://``: records in this process, for tests. The rules of every backend, no durability."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, final

from pydantic import PrivateAttr

from toolnexus_stores.driver import Conflict, Edit, Fault, Head, Record, Version
from toolnexus_stores.errors import InvalidURL
from toolnexus_stores.options import DriverOptions, Location

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

__all__ = ["MemoryDriver", "MemoryOptions"]


class MemoryOptions(DriverOptions):
    """``memory://``. Every call of `open_store` makes storage of its own."""

    _records: dict[str, Record] = PrivateAttr(default_factory=dict)

    @classmethod
    def locate(cls, location: Location) -> Mapping[str, object]:
        """Nothing: there is only one place."""
        if location.netloc or location.path:
            raise InvalidURL("memory:// takes no host and no path")
        return {}

    def driver(self) -> MemoryDriver:
        """A driver over this URL's records."""
        return MemoryDriver(self._records)


@final
class MemoryDriver:
    """Records in a dictionary. Atomic because no method awaits anything."""

    def __init__(self, records: dict[str, Record] | None = None) -> None:
        self._records = {} if records is None else records

    async def open(self) -> None:
        """Nothing to do."""

    async def head(self, key: str) -> Head | None:
        """See `Driver.head`."""
        record = self._records.get(key)
        return None if record is None else record.head

    async def read(self, key: str) -> Record | None:
        """See `Driver.read`."""
        return self._records.get(key)

    async def write(self, key: str, edit: Edit) -> Version:
        """See `Driver.write`."""
        stored = self._records.get(key)
        if (None if stored is None else stored.head.version) != edit.expected:
            raise Conflict(f"the version of {key} is another one")
        kept = stored.texts[: edit.keep] if stored else []
        head = Head(secrets.token_hex(8), edit.meta)
        self._records[key] = Record(head, [*kept, *edit.tail])
        return head.version

    async def delete(self, key: str) -> bool:
        """See `Driver.delete`."""
        return self._records.pop(key, None) is not None

    async def keys(self, prefix: str) -> AsyncIterator[str]:
        """See `Driver.keys`."""
        for key in list(self._records):
            if key.startswith(prefix):
                yield key

    async def close(self) -> None:
        """Nothing to do."""

    def explain(self, error: Exception) -> Fault | None:  # noqa: ARG002 - the protocol's
        """A dictionary does not fail."""
        return None

    def where(self, key: str) -> str:
        """Here, for as long as this process lives."""
        return f"memory, key {key}"
