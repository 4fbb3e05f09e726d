"""A record comes back as it was written, byte for byte."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolnexus_stores_contract.check import Violation
from toolnexus_stores_contract.driver_subject import check, edit, texts_of
from toolnexus_stores_contract.values import require_same, shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from toolnexus_stores_contract.driver_subject import DriverSubject

_ODD_TEXTS = [
    *(b'{"b":1,"a":2}', b'{ "a" : 1.0 , "a2": 1 }', b"{}", b'{"":""}', b"[]", b"null", b'""'),
    *(rb'"\u0000 \ud83c \n \" \\ / \/"', b"1e400", b"NaN", b"-0.0", b"-Infinity"),
    *(b"100000000000000000000001", b'"' + b"x" * 70_000 + b'"', b'"%s $1 ? :a {} \'"'),
]


@check("A key that was never written has no head and no record.")
async def absent(subject: DriverSubject) -> None:
    """The store takes None for a conversation that begins. Anything else is damage."""
    driver = await subject.open()
    key = subject.new_key()
    require_same(await driver.head(key), None, "head")
    require_same(await driver.read(key), None, "read")


@check("A write without an expected version creates a record; head and read give it at once.")
async def created(subject: DriverSubject) -> None:
    """The store reads what it wrote, and knows by the version that nobody else wrote meanwhile."""
    driver = await subject.open()
    key = subject.new_key()
    version = await driver.write(key, edit(None, texts_of("one", 3), meta=b'{"count":3}'))
    record = await driver.read(key)
    if record is None:
        raise Violation("read gave None")
    require_same(record.texts, texts_of("one", 3), "read")
    require_same(record.head.meta, b'{"count":3}', "the meta of read")
    require_same(record.head.version, version, "the version of read")
    require_same(await driver.head(key), record.head, "head")


@check("A record without texts is a record.")
async def empty(subject: DriverSubject) -> None:
    """A conversation that was saved empty is not one that never was."""
    driver = await subject.open()
    key = subject.new_key()
    await driver.put(key, [])
    await driver.require(key, [])
    await driver.put(key, texts_of("one", 2))
    await driver.put(key, [])
    await driver.require(key, [], "read after the record was emptied")


@check("Texts come back byte for byte: nothing parses them and writes them anew.")
async def texts_exact(subject: DriverSubject) -> None:
    """The store keeps a digest over the texts. A blank more or less is damage."""
    driver = await subject.open()
    key = subject.new_key()
    await driver.put(key, _ODD_TEXTS)
    await driver.require(key, _ODD_TEXTS)
    longer = [*_ODD_TEXTS, *reversed(_ODD_TEXTS)]
    await driver.put(key, longer, keep=len(_ODD_TEXTS))
    await driver.require(key, longer, "read of the extended record")


@check("Meta comes back byte for byte, and changes with each write.")
async def meta_exact(subject: DriverSubject) -> None:
    """The digest, the id and the save's token are in there. Without them nothing
    can be verified.
    """
    driver = await subject.open()
    key = subject.new_key()
    for meta in (b"{}", b'{"id": "\\ud83c\\u0000", "b":1,"a":2 }', b'"' + b"m" * 40_000 + b'"'):
        await driver.put(key, texts_of("one", 2), keep=0, meta=meta)
        head, record = await driver.head(key), await driver.read(key)
        require_same(None if head is None else head.meta, meta, "the meta of head")
        require_same(None if record is None else record.head.meta, meta, "the meta of read")
    await driver.put(key, texts_of("one", 2), keep=2, meta=b'{"only":"meta"}')
    head = await driver.head(key)
    require_same(None if head is None else head.meta, b'{"only":"meta"}', "meta that alone changed")
    await driver.require(key, texts_of("one", 2), "read after meta alone changed")


async def _edited(subject: DriverSubject, *versions: tuple[int, Sequence[bytes]]) -> None:
    """Write each of *versions* over the one before, keeping that many of its texts."""
    driver = await subject.open()
    key = subject.new_key()
    for number, (keep, texts) in enumerate(versions):
        await driver.put(key, texts, keep=keep)
        await driver.require(key, texts, f"read after edit {number}")


@check("An edit keeps the texts that it says and adds its own behind them.")
async def extended(subject: DriverSubject) -> None:
    """Each turn is such an edit. That its cost is the tail's is why there are edits at all."""
    texts = texts_of("one", 12)
    await _edited(subject, (0, texts[:2]), (2, texts[:3]), (3, texts[:9]), (9, texts))


@check("An edit that keeps fewer texts than are stored removes the others.")
async def cut(subject: DriverSubject) -> None:
    """Compactions and rollbacks are such edits. Rows that stay come back into the prompt."""
    texts, others = texts_of("one", 12), texts_of("other", 30)
    await _edited(
        subject, (0, texts), (5, texts[:5]), (2, [*texts[:2], *others]), (1, texts[:1]), (0, [])
    )


@check("An edit that keeps nothing replaces every text.")
async def replaced(subject: DriverSubject) -> None:
    """Whatever its length: also one that is as long as what it replaces, or shorter."""
    versions = [texts_of(f"{n}", total) for n, total in enumerate((4, 4, 9, 2, 2))]
    await _edited(subject, *((0, texts) for texts in versions))


@check("Five thousand texts come back, each in its place; one of two megabytes too.", timeout=60)
async def large(subject: DriverSubject) -> None:
    """A limit of the backend must be met by the driver, in pieces, and not by the store's users."""
    driver = await subject.open()
    key = subject.new_key()
    texts = texts_of("many", 5_000)
    await driver.put(key, texts)
    await driver.require(key, texts, "read of many texts")
    texts = [*texts[:4_990], *texts_of("big", 2, characters=2_000_000)]
    await driver.put(key, texts, keep=4_990)
    await driver.require(key, texts, "read of many texts and two large ones")


@check("A write changes the record of its own key only.")
async def keys_apart(subject: DriverSubject) -> None:
    """Keys differ in one character, at their end, and are as long as 512 characters."""
    driver = await subject.open()
    base = subject.new_key()
    parts = "/".join(["p" * 80] * 5)
    shapes = [
        "{}",
        "{}-",
        "{}.a",
        "{}_a",
        "{}-a",
        "{}/a",
        "{}/a/b",
        f"{parts}/{{}}0",
        f"{parts}/{{}}1",
    ]
    keys = [shape.replace("{}", base) for shape in shapes]
    for number, key in enumerate(keys):
        require_same(await driver.read(key), None, f"read of {shown(key)}, never written,")
        await driver.put(key, texts_of(f"{number}", 1 + number))
    for number, key in enumerate(keys):
        await driver.require(key, texts_of(f"{number}", 1 + number), f"read of {shown(key)}")


@check("delete removes a record whole, and says whether there was one.")
async def deleted(subject: DriverSubject) -> None:
    """To delete is a legal duty, and a record that begins anew must not find the
    old one's texts.
    """
    driver = await subject.open()
    key, other = subject.new_key(), subject.new_key()
    require_same(await driver.delete(key), False, "delete of a key that was never written")
    await driver.put(key, texts_of("one", 9))
    await driver.put(other, texts_of("other", 2))
    require_same(await driver.delete(key), True, "delete")
    require_same(await driver.head(key), None, "head after delete")
    await driver.require(key, None, "read after delete")
    require_same(await driver.delete(key), False, "a second delete")
    await driver.put(key, texts_of("again", 2))
    await driver.require(key, texts_of("again", 2), "read of a record that began again")
    await driver.require(other, texts_of("other", 2), "read of another key")
