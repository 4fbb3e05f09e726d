"""Nothing is dropped unseen: hooks, snapshots, the journal, events, over every backend."""

from __future__ import annotations

import asyncio
import json
import zlib
from typing import TYPE_CHECKING, Any

import pytest
from toolnexus.agents.compaction import estimate_tokens as runtimes_estimate
from toolnexus_stores import (
    Compaction,
    Conflict,
    CorruptRecord,
    HookFailed,
    InvalidURL,
    Store,
    StoreError,
    StoreOptions,
    Unavailable,
    open_store,
)
from toolnexus_stores.compaction import estimate_tokens
from toolnexus_stores.drivers.memory import MemoryDriver
from toolnexus_stores.journal import Entry
from toolnexus_stores.keeper import Policy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from toolnexus_stores.driver import Edit, Fault, Head, Record, Version

    Opened = Callable[..., Store]

Message = dict[str, Any]
SYSTEM: Message = {"role": "system", "content": "Be brief."}


def talk(start: int, end: int) -> list[Message]:
    return [
        {"role": ("user", "assistant")[n % 2], "content": f"message {n}"} for n in range(start, end)
    ]


def summary(of: str) -> Message:
    return {"role": "system", "content": f"[Summary of earlier conversation]\n{of}"}


FULL = [SYSTEM, *talk(0, 20)]
COMPACTED = [SYSTEM, summary("0-15"), *talk(16, 20)]
GONE_ON = [*COMPACTED, *talk(20, 22)]
AGAIN = [SYSTEM, summary("0-19"), *talk(20, 24)]


class Heard:
    """What a host hears."""

    def __init__(self) -> None:
        self.compactions: list[Compaction] = []
        self.events: list[dict[str, Any]] = []

    def before(self, compaction: Compaction) -> None:
        self.compactions.append(compaction)


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
def store(url: str, opened: Opened, heard: Heard) -> Store:
    return opened(url, snapshots=10, before_compaction=heard.before, on_metric=heard.events.append)


async def compact(store: Store, *transcripts: list[Message]) -> None:
    for transcript in transcripts:
        await store.get("a")
        await store.save("a", transcript)


async def test_a_compaction_is_seen_kept_and_can_be_undone(store: Store, heard: Heard) -> None:
    await compact(store, FULL, GONE_ON)
    (seen,) = heard.compactions
    assert (seen.id, seen.kind, seen.stored, seen.new) == ("a", "rewrite", FULL, GONE_ON)
    assert seen.dropped == range(1, 17)
    assert seen.dropped_messages == talk(0, 16)
    assert seen.dropped_tokens == runtimes_estimate(talk(0, 16))
    assert seen.kept_tokens == runtimes_estimate(talk(16, 20))

    (event,) = heard.events
    assert event.pop("ms") > 0
    assert event == {
        "event": "compaction",
        "id": "a",
        "kind": "rewrite",
        "dropped_messages": 16,
        "dropped_tokens": seen.dropped_tokens,
        "kept_tokens": seen.kept_tokens,
        "snapshot": seen.digest,
    }
    (kept,) = await store.snapshots("a")
    assert (kept.digest, kept.kind, kept.messages) == (seen.digest, "rewrite", len(FULL))
    assert await store.restore("a", kept.digest) == FULL
    assert await store.get("a") == FULL
    assert [each.kind for each in await store.snapshots("a")] == ["restore", "rewrite"]
    assert (await store.verify("a")).ok


@pytest.mark.parametrize(
    ("before", "after", "heard_of"),
    [
        (None, FULL, 0),
        (FULL, FULL, 0),
        (talk(0, 4), talk(0, 6), 0),
        (talk(0, 6), talk(0, 4), 0),  # a rewind
        (talk(0, 6), [], 0),
        ([], talk(0, 4), 0),
        (talk(0, 4), [*talk(0, 3), {"role": "assistant", "content": "edited"}], 1),
        (talk(0, 4), [{"role": "user", "content": "edited"}, *talk(1, 4)], 1),
        (talk(0, 4), talk(2, 6), 1),
        (FULL, COMPACTED, 1),
        (FULL, GONE_ON, 1),
    ],
)
async def test_what_is_a_drop(
    store: Store, heard: Heard, before: list[Message] | None, after: list[Message], heard_of: int
) -> None:
    if before is not None:
        await store.save("a", before)
    await store.save("a", after)
    assert len(heard.compactions) == len(heard.events) == heard_of
    assert len(await store.snapshots("a")) == heard_of
    assert await store.get("a") == after
    assert (await store.verify("a")).ok


async def test_a_summary_of_a_summary_costs_no_snapshot(store: Store, heard: Heard) -> None:
    only_the_summary = [SYSTEM, summary("0-15, shorter"), *talk(16, 22)]
    await compact(store, FULL, GONE_ON, only_the_summary)
    assert [event["snapshot"] is None for event in heard.events] == [False, True]
    assert len(await store.snapshots("a")) == 1
    await compact(store, AGAIN)
    assert len(await store.snapshots("a")) == 2


async def test_an_edited_message_is_no_summary(store: Store) -> None:
    for n in range(3):
        await store.save("a", [{"role": "user", "content": f"edit {n}"}, *talk(1, 4)])
    assert len(await store.snapshots("a")) == 2


async def test_the_same_transcript_is_kept_once(store: Store) -> None:
    await compact(store, FULL, GONE_ON)
    (kept,) = await store.snapshots("a")
    await store.restore("a", kept.digest)
    await compact(store, AGAIN)
    snapshots = await store.snapshots("a")
    assert [each.digest for each in snapshots].count(kept.digest) == 1
    assert len(snapshots) == 2


async def test_a_veto_leaves_everything_as_it_was(url: str, opened: Opened) -> None:
    def refuse(compaction: Compaction) -> None:
        raise PermissionError(f"not {compaction.stored[1]['content']}")

    store = opened(url, snapshots=3, before_compaction=refuse)
    await store.save("a", FULL)
    with pytest.raises(HookFailed, match="'a': before_compaction refused") as caught:
        await store.save("a", GONE_ON)
    assert "message" not in str(caught.value)
    assert isinstance(caught.value.__cause__, PermissionError)
    assert await store.get("a") == FULL
    assert await store.snapshots("a") == []
    await store.save("a", [*FULL, *talk(20, 22)])  # no drop: not asked


async def test_an_async_hook_runs_in_the_callers_loop_and_context(url: str, opened: Opened) -> None:
    seen: list[object] = []

    async def look(compaction: Compaction) -> None:
        seen.append(asyncio.get_running_loop())
        seen.append(await looked_at.get("a"))

    looked_at = opened(url, before_compaction=look)
    await looked_at.save("a", FULL)
    await looked_at.save("a", GONE_ON)
    assert seen == [asyncio.get_running_loop(), FULL]


async def test_a_hooks_time_does_not_count(opened: Opened) -> None:
    async def dawdle(compaction: Compaction) -> None:
        await asyncio.sleep(0.5)

    store = opened("memory://", timeout=0.3, before_compaction=dawdle)
    await store.save("a", FULL)
    await store.save("a", GONE_ON)
    assert await store.get("a") == GONE_ON


async def test_a_hook_that_saves_its_own_conversation_is_told_so(opened: Opened) -> None:
    async def save(compaction: Compaction) -> None:
        await hooked.save("b", compaction.dropped_messages)
        with pytest.raises(StoreError, match="may not save the conversation"):
            await hooked.save("a", [])

    hooked = opened("memory://", before_compaction=save)
    await hooked.save("a", FULL)
    await hooked.save("a", GONE_ON)
    assert await hooked.get("a") == GONE_ON
    assert await hooked.get("b") == talk(0, 16)


async def test_a_listener_that_fails_does_not_fail_the_save(
    opened: Opened, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(event: dict[str, Any]) -> None:
        raise RuntimeError("no metrics today")

    store = opened("memory://", on_metric=fail)
    await store.save("a", FULL)
    await store.save("a", GONE_ON)
    assert await store.get("a") == GONE_ON
    assert "no metrics today" in caplog.text


@pytest.mark.parametrize("most", [1, 3])
async def test_only_so_many_snapshots_are_kept(url: str, opened: Opened, most: int) -> None:
    store = opened(url, snapshots=most)
    for n in range(8):
        await store.save("a", [*talk(0, 3), {"role": "user", "content": f"take {n}"}])
    kept = await store.snapshots("a")
    assert len(kept) == most
    found = await store.verify("a")
    assert found.ok
    assert [each.snapshot for each in found.entries] == ["pruned"] * (7 - most) + ["intact"] * most
    restored = await store.restore("a", kept[-1].digest)
    assert restored[-1]["content"] == f"take {7 - most}"


async def test_a_snapshot_by_hand(store: Store) -> None:
    assert await store.snapshot("a") is None
    await store.save("a", [])
    assert await store.snapshot("a") is None
    await store.save("a", FULL)
    digest = await store.snapshot("a")
    assert digest is not None
    await store.save("a", [])
    assert [each.kind for each in await store.snapshots("a")] == ["manual"]
    assert await store.restore("a", digest) == FULL


async def test_snapshots_in_another_store(durable_url: str, opened: Opened, tmp_path: Any) -> None:
    vault = f"file://{tmp_path}/vault"
    store = opened(durable_url, snapshots=3, snapshot_url=vault)
    await compact(store, FULL, GONE_ON)
    (kept,) = await store.snapshots("a")
    (file,) = (tmp_path / "vault").rglob("*.jsonl")
    assert file.stem == kept.digest
    assert await store.restore("a", kept.digest) == FULL
    assert (await store.verify("a")).ok


async def test_a_compaction_whose_snapshot_cannot_be_kept_does_not_happen(
    durable_url: str, opened: Opened, tmp_path: Any
) -> None:
    (tmp_path / "vault").write_text("a file where a directory should be")
    store = opened(durable_url, snapshots=3, snapshot_url=f"file://{tmp_path}/vault")
    await store.save("a", FULL)
    with pytest.raises(Unavailable, match="what it drops could not be kept") as caught:
        await store.save("a", GONE_ON)
    assert not caught.value.ambiguous
    assert str(tmp_path) not in str(caught.value)
    assert await store.get("a") == FULL
    await store.save("a", [*FULL, *talk(20, 22)])


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("memory://?snapshots=-1", "snapshots"),
        ("memory://?snapshot_url=memory://", "snapshot_url keeps nothing without"),
        ("memory://?snapshots=1&snapshot_url=nowhere://x", "unknown scheme"),
        ("memory://?snapshots=1&snapshot_url=memory://%3Fscope%3Dx", "options of its backend only"),
        ("memory://?on_conflict=merge", "on_conflict"),
    ],
)
def test_what_a_url_cannot_say(url: str, complaint: str) -> None:
    with pytest.raises(InvalidURL, match=complaint):
        open_store(url)


async def test_a_store_without_snapshots_says_so(opened: Opened) -> None:
    store = opened("memory://")
    await store.save("a", FULL)
    for use in (store.snapshot("a"), store.restore("a", "x")):
        with pytest.raises(ValueError, match="keeps no snapshots"):
            await use
    assert await store.snapshots("a") == []
    assert (await store.verify("a")).ok


async def test_a_snapshot_that_is_not_there(store: Store) -> None:
    await store.save("a", FULL)
    for digest in ("0" * 32, "../t/a", ""):
        with pytest.raises(LookupError, match="no such snapshot"):
            await store.restore("a", digest)


async def test_delete_leaves_nothing(durable_url: str, opened: Opened) -> None:
    store = opened(durable_url, snapshots=5)
    await compact(store, FULL, GONE_ON, AGAIN)
    assert await store.delete("a")
    assert await store.snapshots("a") == []
    assert await store.gc(older_than=0) == 0
    await store.save("a", FULL)
    assert (await store.verify("a")).entries == []


async def test_scopes_keep_apart(store: Store) -> None:
    for user in ("one", "other"):
        await compact(store.scoped(user), FULL, GONE_ON)
    await store.scoped("one").delete("a")
    assert len(await store.scoped("other").snapshots("a")) == 1
    assert await store.snapshots("a") == []


# The runtime's rollback.


async def test_a_rollback_of_a_turn_that_compacted_is_a_rewind(store: Store, heard: Heard) -> None:
    await compact(store, FULL, GONE_ON)
    assert await store.get("a") == GONE_ON
    await store.save("a", AGAIN)  # compacted, and suspended
    await store.save("a", GONE_ON)  # rolled back
    assert [event["kind"] for event in heard.events] == ["rewrite", "rewrite"]
    found = await store.verify("a")
    assert found.ok
    assert [(each.kind, each.effect) for each in found.entries] == [
        ("rewrite", True),
        ("rewrite", True),
        ("rewind", True),
    ]
    await store.save("a", AGAIN)  # resumed: the same snapshot serves again
    assert len(await store.snapshots("a")) == 2


# Two writers.


async def two_writers(store: Store) -> None:
    """Both read the same; the second to save drops what the first has said."""

    async def turn(text: str, read: asyncio.Barrier, order: asyncio.Event, *, first: bool) -> None:
        messages = await store.get("a") or []
        await read.wait()
        if not first:
            await order.wait()
        try:
            await store.save("a", [*messages, {"role": "user", "content": text}])
        finally:
            order.set()

    await store.save("a", talk(0, 4))
    read, order = asyncio.Barrier(2), asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(turn("first", read, order, first=True))
        tasks.create_task(turn("second", read, order, first=False))


async def test_a_lost_turn_is_kept_and_called_a_conflict(store: Store, heard: Heard) -> None:
    await two_writers(store)
    (event,) = heard.events
    assert (event["kind"], event["dropped_messages"]) == ("conflict", 1)
    (kept,) = await store.snapshots("a")
    assert kept.kind == "conflict"
    assert (await store.restore("a", kept.digest))[-1]["content"] == "first"


async def test_a_parent_that_has_read_does_not_make_its_children_one(
    store: Store, heard: Heard
) -> None:
    await store.save("a", talk(0, 4))
    await store.get("a")
    await two_writers(store)
    assert [event["kind"] for event in heard.events] == ["conflict"]


async def test_a_stale_save_can_be_refused(url: str, opened: Opened) -> None:
    store = opened(url, on_conflict="error")
    with pytest.raises(ExceptionGroup) as caught:
        await two_writers(store)
    assert caught.group_contains(Conflict, match="another save came between")
    found = await store.get("a")
    assert found is not None
    assert found[-1]["content"] == "first"


async def test_another_stores_turn_is_a_conflict_too(durable_url: str, opened: Opened) -> None:
    one, other = (opened(durable_url, on_conflict="error") for _ in range(2))
    await one.save("a", talk(0, 2))
    seen = await one.get("a")
    assert seen is not None
    await other.save("a", [*talk(0, 2), {"role": "user", "content": "other"}])
    with pytest.raises(Conflict):
        await one.save("a", [*seen, {"role": "user", "content": "one"}])
    with pytest.raises(Conflict):
        # The failed one made nobody wiser: it has to be read again ...
        await asyncio.create_task(stale_turn(one, other))
    await one.save("a", [*(await one.get("a") or []), {"role": "user", "content": "one"}])


async def stale_turn(one: Store, other: Store) -> None:
    seen = await one.get("a") or []
    await other.save("a", [*seen, {"role": "user", "content": "other again"}])
    await one.save("a", [*seen, {"role": "user", "content": "one again"}])


async def test_parent_and_child_are_no_conflict(url: str, opened: Opened) -> None:
    store = opened(url, on_conflict="error")
    await store.save("a", talk(0, 4))

    async def child() -> None:
        messages = await store.get("a") or []
        await store.save("a", [*messages, *talk(4, 6)])

    async def parent() -> None:
        snapshot = await store.get("a") or []
        await asyncio.create_task(child())
        await store.save("a", snapshot)  # the rollback
        await asyncio.create_task(child())

    for _ in range(2):
        await asyncio.create_task(parent())
        await store.save("a", talk(0, 4))
    assert await store.get("a") == talk(0, 4)


async def test_a_cancelled_save_is_no_ground_for_a_conflict(opened: Opened) -> None:
    store = opened("memory://", on_conflict="error")
    await store.save("a", talk(0, 4))
    await store.get("a")
    for steps in range(8):
        saving = asyncio.create_task(store.save("a", [*talk(0, 4), *talk(steps, steps + 1)]))
        for _ in range(steps):
            await asyncio.sleep(0)
        saving.cancel()
        await asyncio.gather(saving, return_exceptions=True)
        await store.save("a", talk(0, 4))


# Damage, and crashes.


async def test_verify_names_what_is_missing_or_altered(tmp_path: Any, opened: Opened) -> None:
    url = f"file://{tmp_path}"
    store = opened(url, snapshots=10)
    for n in range(4):
        await store.save("a", [*talk(0, 2), {"role": "user", "content": f"take {n}"}])
    (journal,) = (tmp_path / "j").glob("*.jsonl")
    (transcript,) = (tmp_path / "t").glob("*.jsonl")
    snapshots = {file.stem: file for file in (tmp_path / "s").rglob("*.jsonl")}
    whole = journal.read_bytes()
    head, *lines = whole.splitlines(keepends=True)

    async def states(*changed: bytes) -> list[tuple[int, str]]:
        values = json.loads(head)
        body = b"".join(changed)
        values |= {"bytes": len(body), "crc32": zlib.crc32(body)}
        journal.write_bytes(json.dumps(values, separators=(",", ":")).encode() + b"\n" + body)
        found = await store.verify("a")
        assert not found.ok
        return [(each.seq, each.state) for each in found.entries]

    forged = lines[1].replace(b'"rewrite"', b'"restore"')
    assert await states(lines[0], forged, lines[2]) == [
        (1, "intact"), (2, "altered"), (3, "intact"),
    ]  # fmt: skip
    assert await states(lines[0], b"{}\n", lines[2]) == [
        (1, "intact"), (2, "altered"), (3, "intact"),
    ]  # fmt: skip
    resealed = Entry.parse({**json.loads(lines[1]), "kind": "restore"}).sealed(None)
    fits_itself = json.dumps(resealed.encoded()).encode() + b"\n"
    assert await states(lines[0], fits_itself, lines[2]) == [
        (1, "intact"), (2, "intact"), (3, "altered"),
    ]  # fmt: skip
    assert await states(lines[0], lines[2]) == [(1, "intact"), (2, "missing"), (3, "intact")]
    assert (1, "reordered") in await states(lines[1], lines[0], lines[2])
    assert await states(lines[0], lines[1]) == [(1, "intact"), (2, "intact")]
    assert (await store.verify("a")).truncated
    journal.write_bytes(whole)
    assert (await store.verify("a")).ok

    first, second, _ = [each.digest for each in reversed(await store.snapshots("a"))]
    snapshots[first].unlink()
    snapshots[second].write_bytes(b"")
    found = await store.verify("a")
    assert [each.snapshot for each in found.entries] == ["missing", "damaged", "intact"]
    assert not found.ok
    with pytest.raises(CorruptRecord):
        await store.restore("a", second)
    transcript.write_bytes(b"")
    assert (await store.verify("a")).transcript == "damaged"


async def test_a_journal_under_a_key_cannot_be_forged(
    url: str, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOOLNEXUS_STORE_KEY", "open sesame")
    store = opened(url, snapshots=10)
    await compact(store, FULL, GONE_ON)
    assert (await store.verify("a")).ok
    monkeypatch.setenv("TOOLNEXUS_STORE_KEY", "another")
    assert [each.state for each in (await store.verify("a")).entries] == ["altered"]
    monkeypatch.delenv("TOOLNEXUS_STORE_KEY")
    assert [each.state for each in (await store.verify("a")).entries] == ["unverifiable"]


async def test_two_stores_write_one_journal(durable_url: str, opened: Opened) -> None:
    stores = [opened(durable_url, snapshots=50) for _ in range(2)]

    async def rewrite(store: Store, who: str) -> None:
        for n in range(6):
            await store.save("a", [{"role": "user", "content": f"{who} {n}"}, *talk(1, 3)])

    await asyncio.gather(*(rewrite(store, f"{n}") for n, store in enumerate(stores)))
    found = await stores[0].verify("a")
    assert found.ok
    assert [each.seq for each in found.entries] == list(range(1, len(found.entries) + 1))
    assert sum(each.effect for each in found.entries) == 11


class Crash(Exception):
    """The process is gone."""


class CrashingDriver:
    """Memory that fails for good at the nth call, before it or after it."""

    def __init__(self, inner: MemoryDriver, left: int, *, after: bool) -> None:
        self.inner = inner
        self.left = left
        self.after = after
        self.calls: list[str] = []

    async def _counted(self, name: str, call: Any) -> Any:
        self.calls.append(name)
        self.left -= 1
        if self.left < 0 or (self.left == 0 and not self.after):
            raise Crash
        result = await call
        if self.left == 0:
            raise Crash
        return result

    async def open(self) -> None:
        return

    async def head(self, key: str) -> Head | None:
        return await self._counted("head", self.inner.head(key))  # type: ignore[no-any-return]

    async def read(self, key: str) -> Record | None:
        return await self._counted("read", self.inner.read(key))  # type: ignore[no-any-return]

    async def write(self, key: str, edit: Edit) -> Version:
        return await self._counted("write", self.inner.write(key, edit))  # type: ignore[no-any-return]

    async def delete(self, key: str) -> bool:
        return await self._counted("delete", self.inner.delete(key))  # type: ignore[no-any-return]

    def keys(self, prefix: str) -> AsyncIterator[str]:
        return self.inner.keys(prefix)

    async def close(self) -> None:
        return

    def explain(self, error: Exception) -> Fault | None:
        return None

    def where(self, key: str) -> str:
        return key


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
@pytest.mark.parametrize("after", [False, True])
async def test_a_crash_at_any_call_loses_nothing(after: bool) -> None:
    crashes = 0
    while await crashed_at(crashes + 1, after=after):
        crashes += 1
    assert crashes >= 5


async def crashed_at(call: int, *, after: bool) -> bool:
    """A compacting save that dies at its nth call: what is found then, and if it came so far."""
    records: dict[str, Record] = {}
    options = StoreOptions(snapshots=1)
    driver = CrashingDriver(MemoryDriver(records), call, after=after)
    sound = Store(lambda: MemoryDriver(records), options)
    dying = Store(lambda: driver, options)
    later = Store(lambda: MemoryDriver(records), options)
    await compact(sound, [*talk(0, 2), {"role": "user", "content": "first take"}], FULL)
    try:
        await dying.save("a", GONE_ON)
        crashed = False
    except Crash:
        crashed = True

    report = await later.verify("a")
    assert report.transcript == "intact"
    assert not report.truncated
    assert {each.state for each in report.entries} == {"intact"}
    if await later.get("a") != GONE_ON:
        assert crashed
        assert await later.get("a") == FULL
        await later.save("a", GONE_ON)
    (kept,) = await later.snapshots("a")
    assert await later.restore("a", kept.digest) == FULL
    assert (await later.verify("a")).ok
    for store in (sound, dying, later):
        await store.close()
    return crashed


async def test_spare_snapshots_are_found_and_removed(durable_url: str, opened: Opened) -> None:
    store = opened(durable_url, snapshots=5)
    await compact(store, FULL, GONE_ON)
    archive = store._archive(store._shared.engine()[1], "a")

    async def spare(engine: Any) -> None:
        known = await archive.snapshot((await store.snapshots("a"))[0].digest)
        assert known is not None
        await archive.keep(known.frozen[:5], known.links_of(5))

    await store._run(spare)
    assert await store.gc() == 0  # too young: a save may be under way
    assert await store.gc(older_than=0) == 1
    assert await store.gc(older_than=0) == 0
    assert (await store.verify("a")).ok


# What it costs.


class CountingDriver(MemoryDriver):  # type: ignore[misc] # final, but for this
    """Memory that notes its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []

    async def head(self, key: str) -> Head | None:
        self.calls.append(f"head {key[0]}")
        return await super().head(key)

    async def read(self, key: str) -> Record | None:
        self.calls.append(f"read {key[0]}")
        return await super().read(key)

    async def write(self, key: str, edit: Edit) -> Version:
        self.calls.append(f"write {key[0]}")
        return await super().write(key, edit)


@pytest.mark.parametrize(
    ("policy", "calls"),
    [
        (Policy(), ["write t"]),
        (Policy(on_metric=lambda event: None), ["write t"]),
        (Policy(snapshots=3), ["write s", "read j", "write j", "write t"]),
    ],
)
async def test_what_a_drop_costs(policy: Policy, calls: list[str]) -> None:
    driver = CountingDriver()
    store = Store(lambda: driver, policy=policy)
    await store.save("a", FULL[:-2])
    driver.calls.clear()
    await store.save("a", FULL)
    assert driver.calls == ["write t"]  # an append: as ever
    driver.calls.clear()
    await store.save("a", GONE_ON)
    assert driver.calls == calls
    await store.close()


async def test_nothing_is_counted_when_nobody_listens() -> None:
    def count(messages: list[Message]) -> int:
        raise AssertionError("nobody asked")

    records: dict[str, Record] = {}
    store = Store(lambda: MemoryDriver(records), policy=Policy(count_tokens=count))
    await store.save("a", FULL)
    await store.save("a", GONE_ON)
    (record,) = records.values()
    assert b"journal" not in record.head.meta
    assert b"inserted" not in record.head.meta
    await store.close()


@pytest.mark.parametrize("messages", [FULL, [{"role": "user", "content": "Zürich \U0001f436"}], []])
def test_tokens_are_estimated_as_the_runtime_does(messages: list[Message]) -> None:
    assert estimate_tokens(messages) == runtimes_estimate(messages)


async def test_other_tokens_can_be_counted(opened: Opened, heard: Heard) -> None:
    store = opened("memory://", on_metric=heard.events.append, count_tokens=len)
    await store.save("a", FULL)
    await store.save("a", GONE_ON)
    assert (heard.events[0]["dropped_tokens"], heard.events[0]["kept_tokens"]) == (16, 4)
