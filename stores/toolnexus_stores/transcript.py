"""One transcript during one call: read it, check it, replace it."""

from __future__ import annotations

import secrets
import time
from typing import TYPE_CHECKING, Protocol, final

from .change import change_of
from .codec import canonical, frozen_text, parse_text
from .driver import Conflict, Edit
from .errors import FormatTooNew
from .meta import FORMAT, Meta, Notes, UnreadableMeta, chain, last_link
from .mirror import Known

if TYPE_CHECKING:
    from .change import Change
    from .driver import Head, Version
    from .engine import Operation
    from .mirror import Mirror

__all__ = ["Draft", "Terms", "Transcript", "meta_of"]


@final
class Draft:
    """Messages to save, brought to JSON form as far as that is not known to be so."""

    def __init__(self, frozen: list[bytes]) -> None:
        self.frozen = frozen
        self._texts: dict[int, bytes] = {}

    def settle(self, start: int) -> None:
        """Bring everything from *start* on to JSON form; what is before it is so already.

        Raises `InvalidTranscript` for a message that has none.
        """
        for index in range(start, len(self.frozen)):
            self.frozen[index], self._texts[index] = canonical(self.frozen[index], index)

    def texts(self, start: int) -> list[bytes]:
        """The texts from *start* on."""
        return [
            self._texts[index] if index in self._texts else frozen_text(self.frozen[index])
            for index in range(start, len(self.frozen))
        ]

    def links(self, keep: int, known: Known | None) -> bytes:
        """The digest chain, of which *known* has the first *keep* links."""
        return chain(self.texts(keep), known.links_of(keep) if known else b"")


class Terms(Protocol):
    """What has to be agreed before a transcript is replaced."""

    async def agreed(self, known: Known | None, draft: Draft, change: Change) -> Notes:
        """What to note on *draft*, which is to replace *known*; or raise, and nothing happens."""
        ...

    async def done(self) -> None:
        """It has happened."""
        ...


@final
class Transcript:
    """The record of *id* at *key*, as the store sees it."""

    def __init__(self, mirror: Mirror, operation: Operation, key: str, id: str) -> None:
        self._mirror = mirror
        self._operation = operation
        self._key = key
        self._id = id

    async def current(self) -> Known | None:
        """What is stored now; from the mirror, if the backend says that it is still current."""
        known = self._mirror.get(self._key)
        if known is not None:
            head = await self._operation.head(self._key)
            if head is None:
                self._mirror.drop(self._key)
                return None
            if head.version == known.version:
                return known
        return await self.read()

    async def read(self) -> Known | None:
        """What is stored now, read and checked. Raises `CorruptRecord` or `FormatTooNew`."""
        operation, key = self._operation, self._key
        self._mirror.drop(key)
        record = await operation.read(key)
        if record is None:
            return None
        meta = meta_of(record.head, operation, key, self._id)
        links = chain(record.texts)
        if len(record.texts) != meta.count:
            operation.corrupt(f"{len(record.texts)} messages of {meta.count}", key)
        if last_link(links) != meta.digest:
            operation.corrupt("its messages do not match their digest", key)
        try:
            frozen = [parse_text(text) for text in record.texts]
        except (ValueError, RecursionError) as error:
            operation.corrupt("a message is not JSON", key, cause=error)
        known = Known(record.head.version, meta, frozen, links)
        self._mirror.put(key, known)
        return known

    async def replace(self, draft: Draft, terms: Terms) -> Version:
        """Make *draft* the transcript, whatever other writers do meanwhile: the last one wins.

        Raises what the *terms* say about stored messages that this drops.
        """
        known = self._mirror.get(self._key)
        # Before any I/O: what has no JSON form is refused while nothing has happened yet.
        draft.settle(change_of(known.frozen, draft.frozen).keep if known else 0)
        if known is None:
            known = await self.read()
        while True:
            version = await self._replaced(known, draft, terms)
            if version is not None:
                return version
            known = await self.read()

    async def _replaced(self, known: Known | None, draft: Draft, terms: Terms) -> Version | None:
        """Replace *known* by *draft*; None if another writer came between."""
        change = change_of(known.frozen if known else None, draft.frozen)
        if known is not None and change.kind == "same":
            head = await self._operation.head(self._key)
            same = head is not None and head.version == known.version
            return known.version if same else None
        notes = await terms.agreed(known, draft, change)
        try:
            version = await self.write(known, draft, change.keep, notes)
        except Conflict:
            return None
        await terms.done()
        return version

    async def write(
        self, known: Known | None, draft: Draft, keep: int, notes: Notes | None = None
    ) -> Version:
        """Write *draft*, of which *known* has the first *keep* messages, in the place of *known*.

        Raises `Conflict` if *known* is not what is stored.
        """
        tail = draft.texts(keep)
        links = draft.links(keep, known)
        now = time.time()
        meta = Meta(
            format=FORMAT,
            id=self._id,
            count=len(draft.frozen),
            digest=last_link(links),
            token=secrets.token_hex(8),
            created=known.meta.created if known else now,
            updated=now,
            notes=notes or Notes(),
        )
        expected = known.version if known else None
        edit = Edit(expected, meta.encode(), keep, tail, lambda: draft.texts(0))
        self._mirror.drop(self._key)  # until the outcome is known, nothing is
        version = await self._operation.write(self._key, edit, meta.token)
        # What was equal shares its bytes with what was known: a long transcript is held once.
        kept = known.frozen[:keep] if known else []
        self._mirror.put(self._key, Known(version, meta, [*kept, *draft.frozen[keep:]], links))
        return version


def meta_of(head: Head, operation: Operation, key: str, id: str | None = None) -> Meta:
    """The notes on a record, which belongs to *id*. Raises `CorruptRecord` or `FormatTooNew`."""
    try:
        meta = Meta.decode(head.meta)
    except UnreadableMeta as error:
        operation.corrupt(str(error), key, cause=error)
    if meta.format > FORMAT:
        raise FormatTooNew(
            f"the record {key} has format {meta.format}; this version of toolnexus-stores knows "
            f"{FORMAT}: upgrade it"
        )
    if id is not None and meta.id != id:
        operation.corrupt("it belongs to another conversation", key)
    return meta
