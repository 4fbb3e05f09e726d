"""Cases from the field: what people reported of stores like these, on every backend.

The oracle: if `save` returns, `get` through a fresh store equals
``json.loads(json.dumps(messages))``; if it raises, `get` equals the value before. None means that
nothing was ever saved. (What the contract suite checks of any store is not repeated here.)
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import os
import sqlite3
import stat
import subprocess
import sys
import textwrap
import threading
import traceback
import zlib
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from toolnexus_stores import CorruptRecord, Store, open_store

if TYPE_CHECKING:
    from collections.abc import Callable

HELLO = [{"role": "user", "content": "hello"}]


async def saved_and_read(
    opened: Callable[..., Store], url: str, messages: list[dict[str, Any]]
) -> list[dict[str, Any]] | None:
    """What a fresh store reads after *messages* were saved."""
    store = opened(url)
    await store.save("a", messages)
    fresh = store if url == "memory://" else opened(url)
    return await fresh.get("a")


@pytest.mark.parametrize(
    "message",
    [
        {"content": "what is the \u0000 weather"},
        {"content": "tail \ud83c"},
        {"zeta": 1, "a": 2, "content": "x"},
        {"id": 2512292042121000001, "big": 2**70, "digits": 10**4000},
        {"zero": -0.0, "one": 1, "float": 1.0, "true": True, "tiny": 5e-324},
        {"": "empty key", "nested": {"": [[], {}, [{}]]}},
        {"signature": "Ab+/9==\n\t\u2028", "line": "a\nb\r\nc"},
    ],
    ids=["nul", "surrogate", "key-order", "integers", "numbers", "empty", "lines"],
)
async def test_content_comes_back_exactly(
    opened: Callable[..., Store], url: str, message: dict[str, Any]
) -> None:
    got = await saved_and_read(opened, url, [message])
    assert json.dumps(got) == json.dumps([message])  # type-strict, and tells the order of keys


async def test_nan_and_infinities_come_back(opened: Callable[..., Store], url: str) -> None:
    await saved_and_read(opened, url, HELLO)
    got = await saved_and_read(opened, url, [{"score": math.nan, "best": [math.inf, -math.inf]}])
    assert got is not None
    assert math.isnan(got[0]["score"])
    assert got[0]["best"] == [math.inf, -math.inf]


async def test_what_is_no_json_yet_takes_its_json_form(
    opened: Callable[..., Store], url: str
) -> None:
    messages: list[dict[str, Any]] = [{"t": (1, (2,)), "k": {1: "a", 2.5: "b", None: "c"}}]
    got = await saved_and_read(opened, url, messages)
    assert got == json.loads(json.dumps(messages))
    store = opened(url)
    await store.save("again", messages)
    await store.save("again", messages)  # the same, though it differs from what is stored
    assert await store.get("again") == json.loads(json.dumps(messages))


async def test_the_caller_may_change_what_it_saved_and_what_it_got(store: Store) -> None:
    messages: list[dict[str, Any]] = [{"parts": [{"text": "a"}]}]
    await store.save("a", messages)
    messages[0]["parts"][0]["text"] = "changed"
    got = await store.get("a") or []
    assert got == [{"parts": [{"text": "a"}]}]
    got[0]["parts"].append("changed")
    assert await store.get("a") == [{"parts": [{"text": "a"}]}]


async def test_a_change_while_the_save_is_under_way_is_not_saved(store: Store) -> None:
    messages: list[dict[str, Any]] = [{"parts": [{"text": "a"}]} for _ in range(500)]
    saving = asyncio.create_task(store.save("a", messages))
    await asyncio.sleep(0)
    messages[-1]["parts"][0]["text"] = "changed"
    await saving
    assert (await store.get("a") or [])[-1] == {"parts": [{"text": "a"}]}


@pytest.mark.parametrize("cut", ["0", "1", "half", "all but one"])
async def test_a_cut_file_is_corrupt_and_stays(
    opened: Callable[..., Store], tmp_path: Path, cut: str
) -> None:
    url = f"file://{tmp_path}"
    messages = [{"role": "user", "content": f"message {i}"} for i in range(20)]
    warm = opened(url)
    await warm.save("a", messages)
    file = the_only_file(tmp_path)
    whole = file.read_bytes()
    size = {"0": 0, "1": 1, "half": len(whole) // 2, "all but one": len(whole) - 1}[cut]
    file.write_bytes(whole[:size])
    for store in (opened(url), warm):
        for use in (store.get("a"), store.save("a", HELLO)):
            with pytest.raises(CorruptRecord, match="'a'") as caught:
                await use
            assert caught.value.where == str(file)
            assert file.read_bytes() == whole[:size]
    assert await warm.delete("a")
    assert await warm.get("a") is None


def the_only_file(root: Path) -> Path:
    (file,) = (file for file in root.rglob("*.jsonl") if file.is_file())
    return file


async def test_damage_under_an_open_store_is_not_built_upon(
    opened: Callable[..., Store], tmp_path: Path
) -> None:
    url = f"file://{tmp_path}"
    messages = [{"role": "user", "content": f"message {i}"} for i in range(20)]
    warm = opened(url)
    await warm.save("a", messages)
    file = the_only_file(tmp_path)
    rotten = file.read_bytes().replace(b"message 7", b"massage 7")
    file.write_bytes(rotten)
    for changed in ([*messages, {"role": "user"}], messages[:3], [{"role": "other"}]):
        with pytest.raises(CorruptRecord, match="checksum"):
            await warm.save("a", changed)
    assert file.read_bytes() == rotten


async def test_the_place_of_damage_is_for_logs_and_not_for_peers(
    opened: Callable[..., Store], tmp_path: Path
) -> None:
    store = opened(f"file://{tmp_path}")
    await store.save("a", HELLO)
    file = the_only_file(tmp_path)
    file.write_bytes(b"")
    with pytest.raises(CorruptRecord) as caught:
        await store.get("a")
    assert str(tmp_path) not in str(caught.value)
    assert str(file) in "".join(traceback.format_exception(caught.value))


async def test_without_a_file_readers_do_not_see_open_transactions(
    opened: Callable[..., Store],
) -> None:
    store = opened("sqlite:///:memory:", cache="0")
    small, big = [{"n": "small"}], [{"n": i, "text": "x" * 100} for i in range(300)]
    await store.save("a", small)

    async def write() -> None:
        for _ in range(10):
            await store.save("a", big)
            await store.save("a", small)

    async def read(until: asyncio.Task[None]) -> None:
        while not until.done():
            assert await store.get("a") in (small, big)

    writing = asyncio.create_task(write())
    await asyncio.gather(writing, *(read(writing) for _ in range(4)))


@pytest.mark.parametrize("change", ["swap", "drop", "double", "alter", "other id"])
async def test_a_file_whose_lines_were_touched_is_corrupt(
    opened: Callable[..., Store], tmp_path: Path, change: str
) -> None:
    url = f"file://{tmp_path}"
    await opened(url).save("a", [{"n": i} for i in range(4)])
    file = the_only_file(tmp_path)
    head, *lines = file.read_bytes().splitlines(keepends=True)
    if change == "swap":
        lines[1], lines[2] = lines[2], lines[1]
    elif change == "drop":
        lines.pop()
    elif change == "double":
        lines.append(lines[-1])
    elif change == "alter":
        lines[0] = lines[0].replace(b"0", b"9")
    else:
        head = head.replace(b'"id":"a"', b'"id":"b"')
    values = json.loads(head)
    values["bytes"] = sum(map(len, lines))  # the length fits, and so does the checksum:
    values["crc32"] = zlib.crc32(b"".join(lines))  # the digest must tell
    file.write_bytes(json.dumps(values, separators=(",", ":")).encode() + b"\n" + b"".join(lines))
    with pytest.raises(CorruptRecord):
        await opened(url).get("a")


async def test_a_damaged_database_is_corrupt(opened: Callable[..., Store], tmp_path: Path) -> None:
    file = tmp_path / "x.db"
    url = f"sqlite:///{file}"
    async with open_store(url) as store:
        await store.save("a", [{"n": "x" * 1000} for _ in range(100)])
    whole = file.read_bytes()
    file.write_bytes(whole[:4096] + b"\xff" * (len(whole) - 4096))
    with pytest.raises(CorruptRecord):
        await opened(url).get("a")
    assert file.read_bytes()[4096:] == b"\xff" * (len(whole) - 4096)


async def test_a_message_that_was_changed_in_the_database_is_corrupt(
    opened: Callable[..., Store], tmp_path: Path
) -> None:
    file = tmp_path / "x.db"
    store = opened(f"sqlite:///{file}")
    await store.save("a", [{"n": 1}, {"n": 2}])
    with sqlite3.connect(file) as connection:
        connection.execute("UPDATE toolnexus_messages SET text = '{\"n\":3}' WHERE place & 1 = 1")
    connection.close()
    fresh = opened(f"sqlite:///{file}")
    for use in (fresh.get("a"), fresh.save("a", HELLO)):
        with pytest.raises(CorruptRecord):
            await use


async def test_a_reader_sees_one_of_two_whole_transcripts(durable_url: str, opened: Any) -> None:
    short = [{"of": 1, "n": 0}]
    long = [{"of": 10_000, "n": i} for i in range(10_000)]
    writer, reader = opened(durable_url), opened(durable_url)
    await writer.save("a", short)
    stop = asyncio.Event()

    async def read() -> set[int]:
        seen = set()
        while not stop.is_set():
            got = await reader.get("a")
            assert got in (short, long)
            seen.add(len(got))
        return seen

    reading = asyncio.create_task(read())
    for _ in range(8):
        await writer.save("a", long)
        await writer.save("a", short)
    stop.set()
    assert await reading <= {1, 10_000}


HOSTILE = ["../../victim", "/etc/victim", "..", ".", "a/../../b", ".locks/00", ".staged"]


@pytest.mark.parametrize("id", HOSTILE)
async def test_an_id_stays_inside_the_store(
    opened: Callable[..., Store], tmp_path: Path, id: str
) -> None:
    root = tmp_path / "deep" / "store"
    before = set(Path("/etc").iterdir())
    store = opened(f"file://{root}")
    await store.save(id, HELLO)
    assert await store.get(id) == HELLO
    assert [found async for found in store.ids()] == [id]
    assert [p.relative_to(root).parts[0] for p in tmp_path.rglob("*.jsonl")] == ["t"]
    assert await store.delete(id)
    assert set(Path("/etc").iterdir()) == before


DISTINCT = [
    *("a/b", "a_b", "a:b", "a%2Fb", "a\\b", "A/B", "a/b ", "a/b."),
    *(
        "мой-проект",
        "проект-мой",
        "ひらがな",
        "e\u0301",
        "\u00e9",
        "\ud83c",
        "\0",
        "CON",
        "nul.txt",
    ),
    "notes-0-" + "x" * 2_200,
    "root/helper.1",
    "y" * 9_000,
]


async def test_every_id_is_its_own_conversation_and_listed_verbatim(store: Store) -> None:
    for index, id in enumerate(DISTINCT):
        await store.save(id, [{"n": index}])
    for index, id in enumerate(DISTINCT):
        assert await store.get(id) == [{"n": index}]
    assert sorted([id async for id in store.ids()]) == sorted(DISTINCT)


def open_and_save(url: str, name: str, count: int) -> None:
    async def run() -> None:
        async with open_store(url) as store:
            for n in range(count):
                await store.save(name, [{"n": i} for i in range(n + 1)])
                await store.save("shared", [{"by": name, "n": n}])

    asyncio.run(run())


def in_processes(count: int, url: str, saves: int) -> list[int]:
    """Exit statuses of *count* fresh processes that each save under a name of their own."""
    context = get_context("spawn")
    processes = [
        context.Process(target=open_and_save, args=(url, f"p{i}", saves)) for i in range(count)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    return [process.exitcode or 0 for process in processes]


async def test_eight_stores_open_a_new_database_at_once(tmp_path: Path) -> None:
    for n in range(20):
        url = f"sqlite:///{tmp_path}/{n}.db"
        stores = [open_store(url) for _ in range(8)]
        await asyncio.gather(*(s.save(f"{i}", HELLO) for i, s in enumerate(stores)))
        assert len([id async for id in stores[0].ids()]) == 8
        await asyncio.gather(*(store.close() for store in stores))


async def test_eight_processes_write_into_the_same_storage(
    opened: Callable[..., Store], durable_url: str
) -> None:
    assert await asyncio.to_thread(in_processes, 8, durable_url, 50) == [0] * 8
    store = opened(durable_url)
    for i in range(8):
        assert await store.get(f"p{i}") == [{"n": n} for n in range(50)]
    shared = await store.get("shared")
    assert shared is not None
    assert shared[0]["n"] == 49  # whoever came last, it was its last save


@pytest.mark.parametrize("ending", ["", "raise SystemExit(3)", "import os; os._exit(0)"])
def test_a_process_that_closes_nothing_exits_at_once(durable_url: str, ending: str) -> None:
    script = f"""
        import asyncio
        from toolnexus_stores import open_store
        store = open_store({durable_url!r})
        asyncio.run(store.save("a", [{{"n": 1}}]))
        {ending}
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        timeout=5,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (3 if "3" in ending else 0, "")
    with asyncio.Runner() as runner:
        store = open_store(durable_url)
        assert runner.run(store.get("a")) == [{"n": 1}]
        runner.run(store.close())


def test_one_store_in_two_runs_and_two_threads(url: str) -> None:
    store = open_store(url)
    asyncio.run(store.save("a", HELLO))
    assert asyncio.run(store.get("a")) == HELLO
    seen: list[object] = []

    def work(name: str) -> None:
        async def turn() -> object:
            for n in range(20):
                await store.save(name, [{"n": n}])
            return await store.get(name)

        seen.append(asyncio.run(turn()))

    threads = [threading.Thread(target=work, args=(f"t{i}",)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [[{"n": 19}]] * 2
    asyncio.run(store.close())


def test_a_loop_inside_a_tool_while_the_outer_one_waits(url: str) -> None:
    store = open_store(url)

    async def outer() -> object:
        await store.save("outer", HELLO)
        # As a synchronous tool does: a loop of its own, in a worker thread.
        await asyncio.to_thread(lambda: asyncio.run(store.save("inner", HELLO)))
        return await store.get("inner")

    assert asyncio.run(outer()) == HELLO
    asyncio.run(store.close())


@pytest.mark.usefixtures("open_umask")
async def test_files_are_the_owners_alone(durable_url: str, tmp_path: Path) -> None:
    async with open_store(durable_url) as store:
        await store.save("a", HELLO)
        await store.save("a", [*HELLO, *HELLO])
        await store.scoped("user").save("a", HELLO)
        for path in tmp_path.rglob("*"):
            mode = stat.S_IMODE(path.stat().st_mode)
            assert mode == (0o700 if path.is_dir() else 0o600), path


async def test_a_listing_goes_on_after_a_damaged_record_and_names_it(
    opened: Callable[..., Store], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = opened(f"file://{tmp_path}")
    for id in ("one", "two", "three", "bad"):
        await store.save(id, HELLO)
    (damaged,) = tmp_path.rglob("bad-*.jsonl")
    damaged.write_bytes(b"")
    with caplog.at_level(logging.ERROR, "toolnexus_stores"):
        assert sorted([id async for id in store.ids()]) == ["one", "three", "two"]
    assert str(damaged) in caplog.text


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_child_uses_the_store_of_its_parent(durable_url: str) -> None:
    store = open_store(durable_url)
    asyncio.run(store.save("a", HELLO))
    child = os.fork()
    if not child:  # pragma: no cover - runs in the child
        status = 1
        try:
            asyncio.run(store.save("a", [*HELLO, {"by": "child"}]))
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert asyncio.run(store.get("a")) == [*HELLO, {"by": "child"}]
    asyncio.run(store.save("a", HELLO))
    assert asyncio.run(store.get("a")) == HELLO
    asyncio.run(store.close())
