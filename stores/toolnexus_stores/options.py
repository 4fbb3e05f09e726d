"""What the URL of a store can say, as pydantic models: one for every store, one a scheme."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import BaseModel, ByteSize, ConfigDict, Field, SecretStr

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .driver import Driver

__all__ = ["DriverOptions", "Location", "StoreOptions"]


@dataclass(frozen=True, slots=True)
class Location:
    """A URL without its query, taken apart; *netloc* as it stands, *path* percent-decoded."""

    scheme: str
    netloc: str
    path: str


class _Options(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class StoreOptions(_Options):
    """The options of every URL."""

    timeout: float = Field(default=30, gt=0, allow_inf_nan=False)
    """Seconds that one call may take, retries included."""

    cache: ByteSize = Field(default=ByteSize(64 * 2**20), ge=0)
    """Bytes for exact copies of recently used transcripts (``64MiB``); 0 turns them off."""

    snapshots: int = Field(default=0, ge=0)
    """How many transcripts to keep of each conversation when a save is about to drop messages of
    them; 0 keeps none."""

    snapshot_url: SecretStr | None = None
    """Another store that keeps the snapshots; this one keeps the journal."""

    on_conflict: Literal["overwrite", "error"] = "overwrite"
    """What a save does whose caller has not seen the messages that it would drop."""

    scope: str | None = Field(default=None, min_length=1)
    """Keep these conversations apart from those of every other scope; see `Store.scoped`."""


class DriverOptions(_Options):
    """The options of one scheme. Subclass it to register a driver of your own."""

    aliases: ClassVar[frozenset[str]] = frozenset()
    """Other spellings of the scheme: ``sqlite+aiosqlite``."""

    requires: ClassVar[Mapping[str, str]] = {}
    """Import name of each client library -> what to ``pip install`` for it."""

    @classmethod
    def locate(cls, location: Location) -> Mapping[str, object]:
        """The fields that the URL's location fills. Raises `InvalidURL` if it makes no sense."""
        raise NotImplementedError

    @classmethod
    def option_names(cls) -> set[str]:
        """What the fields are called in a URL."""
        return {field.alias or name for name, field in cls.model_fields.items()}

    def driver(self) -> Driver:
        """A driver that is not open yet. No I/O, no import of a client library."""
        raise NotImplementedError
