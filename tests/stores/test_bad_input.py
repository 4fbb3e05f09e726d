"""Bad input and broken places: a typed error, the old value as it was, nothing left behind."""

from __future__ import annotations

import asyncio
import errno
import os
import sqlite3
from collections import UserDict
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pydantic
import pytest
from toolnexus_stores import (
    CorruptRecord,
    FormatTooNew,
    InvalidId,
    InvalidTranscript,
    Store,
    StoreClosed,
    StoreError,
    Unavailable,
    open_store,
)
from toolnexus_stores.drivers import file as file_driver

if TYPE_CHECKING:
    from collections.abc import Callable

OLD = [{"role": "user", "content": "old"}]
SECRET = "what the customer said"


@pytest.mark.parametrize("id", [None, "", 0, 7, b"a", ("a",), ["a"]])
async def test_an_id_is_a_non_empty_string(store: Store, id: Any) -> None:
    for use in (store.get(id), store.save(id, OLD), store.delete(id)):
        with pytest.raises(InvalidId):
            await use


def cyclic() -> dict[str, Any]:
    message: dict[str, Any] = {"content": SECRET}
    message["self"] = message
    return message


def nested(levels: int) -> dict[str, Any]:
    value: Any = SECRET
    for _ in range(levels):
        value = [value]
    return {"content": value}


@dataclass
class NotJson:
    text: str = SECRET


@pytest.mark.parametrize(
    ("messages", "path"),
    [
        ([{"content": SECRET, "data": SECRET.encode()}], "messages[0].data: bytes"),
        ([{"a": [{"b": bytearray(3)}]}], "messages[0].a[0].b: bytes"),
        ([{}, {"x": {SECRET}}], "messages[1].x: set"),
        ([{"x": frozenset()}], "messages[0].x: frozenset"),
        ([{"x": 1j}], "messages[0].x: complex"),
        ([{"x": NotJson()}], "messages[0].x: NotJson"),
        ([{"x": object()}], "messages[0].x: object"),
        ([{"x": ...}], "messages[0].x: ellipsis"),
        ([{(1, 2): SECRET}], "messages[0]: a key of type tuple"),
        ([{1: SECRET, "1": SECRET}], "messages[0]: two keys are the same"),
        ([{"x": {None: SECRET, "null": 1}}], "messages[0].x: two keys are the same"),
        ([{"x": {True: 1, "true": 1}}], "messages[0].x: two keys are the same"),
        ([{SECRET + "!": {1}}], "messages[0][…]: set"),
        ([cyclic()], "messages[0]: nested deeper"),
        ([nested(300)], "messages[0]: nested deeper"),
        ([nested(3_000)], "messages[0]: nested deeper"),
        ([nested(100_000)], "messages[0]: nested"),
        ([{"x": 10**5_000}], "messages[0]: an integer has more digits"),
        ([SECRET], "messages[0]: str is not a JSON object"),
        ([[SECRET]], "messages[0]: list is not a JSON object"),
        ([None], "messages[0]: NoneType is not a JSON object"),
        (SECRET, "not str"),
        ({"role": SECRET}, "not dict"),
        (None, "not NoneType"),
        (7, "not int"),
    ],
    ids=lambda value: value if isinstance(value, str) and value != SECRET else "",
)
async def test_what_has_no_json_form_is_refused(store: Store, messages: Any, path: str) -> None:
    await store.save("a", OLD)
    with pytest.raises(InvalidTranscript) as caught:
        await store.save("a", messages)
    assert path in str(caught.value)
    assert SECRET not in str(caught.value)
    with pytest.raises(InvalidTranscript):
        await store.save("new", messages)
    assert await store.get("a") == OLD
    assert await store.get("new") is None


async def test_a_refusal_comes_before_any_io(tmp_path: Path, opened: Callable[..., Store]) -> None:
    store = opened(f"file://{tmp_path}/dir/that/is/not/there")
    with pytest.raises(InvalidId):
        await store.save("", OLD)
    assert list(tmp_path.iterdir()) == []


class Colour(StrEnum):
    RED = "red"


class Level(IntEnum):
    LOW = 1


class Model(pydantic.BaseModel):
    name: str
    tags: tuple[str, ...] = ()


async def test_what_json_takes_is_taken(store: Store) -> None:
    await store.save("a", [{"colour": Colour.RED, "level": Level.LOW, Colour.RED: True}])
    assert await store.get("a") == [{"colour": "red", "level": 1, "red": True}]
    await store.save("a", [{"model": Model(name="x", tags=("y",)), "more": UserDict(a=1)}])
    assert await store.get("a") == [{"model": {"name": "x", "tags": ["y"]}, "more": {"a": 1}}]
    await store.save("a", (nested(190),))
    assert await store.get("a") == [nested(190)]


async def test_a_deep_value_is_read_back_from_a_deep_stack(store: Store) -> None:
    await store.save("a", [nested(190)])

    async def deep(levels: int) -> object:
        return await (deep(levels - 1) if levels else store.get("a"))

    assert await deep(400) == [nested(190)]


async def test_use_after_close(url: str, opened: Callable[..., Store]) -> None:
    store = opened(url)
    await store.save("a", OLD)
    await store.close()
    await store.close()
    for use in (store.get("a"), store.save("a", OLD), store.delete("a"), store.open()):
        with pytest.raises(StoreClosed):
            await use
    with pytest.raises(StoreClosed):
        _ = [id async for id in store.scoped("x").ids()]


@pytest.mark.parametrize("scheme", ["file://{}/store", "sqlite:///{}/x.db"])
async def test_a_place_that_cannot_be_used(
    tmp_path: Path, opened: Callable[..., Store], scheme: str
) -> None:
    (tmp_path / "blocker").write_text("a file where a directory should be")
    store = opened(scheme.format(tmp_path / "blocker"), timeout=2)
    for use in (store.open(), store.get("a"), store.save("a", OLD)):
        with pytest.raises(Unavailable, match="not a directory") as caught:
            await use
        assert not caught.value.ambiguous
        assert str(tmp_path) not in str(caught.value)


async def test_a_directory_where_the_database_should_be(
    tmp_path: Path, opened: Callable[..., Store]
) -> None:
    store = opened(f"sqlite:///{tmp_path}", timeout=2)
    with pytest.raises(Unavailable, match="cannot be opened"):
        await store.save("a", OLD)


async def test_a_text_file_where_the_database_should_be(
    tmp_path: Path, opened: Callable[..., Store]
) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("my notes\n" * 1000)
    with pytest.raises(CorruptRecord):
        await opened(f"sqlite:///{file}").save("a", OLD)
    assert file.read_text() == "my notes\n" * 1000


async def test_a_directory_where_a_conversation_should_be(
    tmp_path: Path, opened: Callable[..., Store]
) -> None:
    store = opened(f"file://{tmp_path}")
    await store.save("a", OLD)
    (file,) = tmp_path.rglob("*.jsonl")
    file.unlink()
    file.mkdir()
    for use in (store.get("a"), store.save("a", OLD)):
        with pytest.raises(StoreError):
            await use
    assert file.is_dir()
    assert list((tmp_path / ".staged").iterdir()) == []


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
@pytest.mark.parametrize("url", ["file:///no-such-store", "sqlite:////no-such-store.db"])
def test_a_directory_that_may_not_be_written(url: str) -> None:
    import aiosqlite  # noqa: F401, PLC0415 - the child may not be able to read it any more

    read, write = os.pipe()
    child = os.fork()
    if not child:  # pragma: no cover - runs in the child
        try:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
            os.write(write, refusal_of(open_store(url, timeout=2)).encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as answer:
        assert answer.read() == "save of 'a' failed: permission denied, ambiguous: False"
    os.waitpid(child, 0)


def refusal_of(store: Store) -> str:
    try:
        asyncio.run(store.save("a", OLD))
    except Unavailable as error:
        return f"{error}, ambiguous: {error.ambiguous}"
    return "saved"


STEPS = ["open", "write", "fsync", "replace"]


@pytest.mark.parametrize("step", STEPS)
async def test_a_full_disk_leaves_the_old_value_and_no_file(
    tmp_path: Path, opened: Callable[..., Store], monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    store = opened(f"file://{tmp_path}")
    await store.save("a", OLD)

    def full(*args: object, **kwargs: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as broken:
        if step == "replace":
            broken.setattr(Path, "replace", full)
        elif step == "open":
            real_open = os.open

            def open_unless_staged(path: Any, *args: Any, **kwargs: Any) -> int:
                if ".staged" in str(path):
                    full()
                return real_open(path, *args, **kwargs)

            broken.setattr(os, "open", open_unless_staged)
        else:
            broken.setattr(os, step, full)
        with pytest.raises(Unavailable, match="no space left on device") as caught:
            await store.save("a", [*OLD, *OLD])
        assert not caught.value.ambiguous
    assert await store.get("a") == OLD
    assert list((tmp_path / ".staged").iterdir()) == []
    await store.save("a", [*OLD, *OLD])
    assert await store.get("a") == [*OLD, *OLD]


async def test_an_unsynced_directory_is_reported_as_ambiguous(
    tmp_path: Path, opened: Callable[..., Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened(f"file://{tmp_path}")
    await store.save("a", OLD)

    def failing(directory: Path) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as broken:
        broken.setattr(file_driver, "_sync_directory", failing)
        with pytest.raises(Unavailable) as caught:
            await store.save("a", [*OLD, *OLD])
    assert caught.value.ambiguous
    assert await store.get("a") == [*OLD, *OLD]


async def test_a_short_write_is_continued(
    tmp_path: Path, opened: Callable[..., Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    real_write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: real_write(fd, data[:7]))
    store = opened(f"file://{tmp_path}")
    await store.save("a", OLD * 10)
    assert await opened(f"file://{tmp_path}").get("a") == OLD * 10


async def test_a_record_of_a_later_version_is_left_alone(
    tmp_path: Path, opened: Callable[..., Store], caplog: pytest.LogCaptureFixture
) -> None:
    url = f"file://{tmp_path}"
    await opened(url).save("a", OLD)
    (file,) = tmp_path.rglob("*.jsonl")
    # Whatever a later version makes of the other keys.
    later = file.read_bytes().replace(b'"format":1', b'"format":2').replace(b'"digest"', b'"hash"')
    file.write_bytes(later)
    store = opened(url)
    for use in (store.get("a"), store.save("a", OLD)):
        with pytest.raises(FormatTooNew, match="upgrade"):
            await use
    assert [id async for id in store.ids()] == []
    assert "upgrade" in caplog.text
    assert file.read_bytes() == later


async def test_a_database_of_a_later_version_is_left_alone(
    tmp_path: Path, opened: Callable[..., Store]
) -> None:
    url = f"sqlite:///{tmp_path}/x.db"
    first = opened(url)
    await first.save("a", OLD)
    await first.close()
    connection = sqlite3.connect(tmp_path / "x.db")
    connection.execute("UPDATE toolnexus_schema SET version = 2")
    connection.commit()
    connection.close()
    with pytest.raises(FormatTooNew, match="upgrade"):
        await opened(url).save("a", [])


async def test_a_locked_database_is_unavailable_in_time(
    tmp_path: Path, opened: Callable[..., Store]
) -> None:
    url = f"sqlite:///{tmp_path}/x.db"
    store = opened(url, timeout=0.5)
    await store.save("a", OLD)
    other = sqlite3.connect(tmp_path / "x.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(Unavailable, match=r"within 0\.5 s"):
        await store.save("a", [*OLD, *OLD])
    assert await store.get("a") == OLD  # readers do not wait for writers
    other.execute("ROLLBACK")
    other.close()
    await store.save("a", OLD * 3)
    await asyncio.sleep(0)
    assert await store.get("a") == OLD * 3
