"""The states that a power loss may leave, for traces small enough to list them all."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toolnexus_stores_contract.faults.calls import Call
from toolnexus_stores_contract.faults.crashstates import (
    MODELS,
    Model,
    Recipe,
    recipes,
    record,
    state,
)
from toolnexus_stores_contract.faults.disk import Entry

if TYPE_CHECKING:
    from collections.abc import Sequence

OLD, NEW = b"old", b"new!"
BASE = {"/d/f": Entry(0o600, OLD), "/d/t": None}


def opened(path: str, flags: int = os.O_CREAT) -> Call:
    return Call("openat", path, flags=flags | os.O_WRONLY)


def wrote(path: str, data: bytes = NEW, at: int = 0, flags: int = 0) -> Call:
    return Call("write", path, data=data, at=at, flags=flags)


def synced(path: str) -> Call:
    return Call("fsync", path)


STAGE = [opened("/d/t"), wrote("/d/t")]
RENAME = Call("rename", "/d/t", "/d/f")


def states(
    trace: Sequence[Call], model: Model = "posix", base: Any = BASE, path: str = "/d/f"
) -> set[bytes | None]:
    """What may be at *path* when the power is lost after the whole trace."""
    recording = record(trace, base, model)
    found = [state(recording, each)[path] for each in recipes(recording, [recording.calls], model)]
    return {None if each is None else each.data for each in found}


def test_a_file_that_is_not_synced_may_be_anything() -> None:
    torn = {b"", b"\0" * 4}
    assert states([*STAGE, RENAME]) == {OLD, NEW} | torn
    assert states([*STAGE, RENAME, synced("/d")]) == {NEW} | torn
    assert states([*STAGE, RENAME, synced("/d"), synced("/d/f")]) == {NEW}


def test_a_synced_file_is_old_or_new_until_the_directory_is_synced() -> None:
    assert states([*STAGE, synced("/d/t"), RENAME]) == {OLD, NEW}
    assert states([*STAGE, synced("/d/t"), RENAME, synced("/d")]) == {NEW}


def test_a_file_that_is_rewritten_in_place() -> None:
    trace = [opened("/d/f", os.O_TRUNC), wrote("/d/f")]
    # The new bytes may also be there, and the old length not cut: it is shorter here.
    assert states(trace) == {OLD, NEW, b"", b"\0" * 4, b"old\0"}
    assert states([*trace, synced("/d/f")]) == {NEW}


def test_a_long_write_is_torn_between_sectors() -> None:
    long = bytes(range(1, 251)) * 5  # 1250 bytes: cut at 512 and 1024
    base = {"/d/f": Entry(0o600, b"-" * 1250)}
    found = states([wrote("/d/f", long)], base=base)
    assert found == {
        b"-" * 1250,
        long,
        long[:512] + b"-" * 738,
        long[:1024] + b"-" * 226,
        b"-" * 512 + long[512:],
        b"-" * 1024 + long[1024:],
    }


def test_a_synchronous_write_is_durable_at_once() -> None:
    base = {"/d/f": Entry(0o600, OLD)}
    assert states([wrote("/d/f", flags=os.O_DSYNC)], base=base) == {NEW}


def test_a_name_that_is_not_synced_may_be_lost() -> None:
    base = {"/d/n": None}
    trace = [opened("/d/n"), wrote("/d/n"), synced("/d/n")]
    assert states(trace, base=base, path="/d/n") == {None, NEW}
    assert states(trace, "ordered", base=base, path="/d/n") == {NEW}
    assert states([*trace, synced("/d")], base=base, path="/d/n") == {NEW}


def test_a_directory_that_is_not_synced_takes_its_files_with_it() -> None:
    base = {"/r/d": None, "/r/d/n": None}
    trace = [Call("mkdir", "/r/d"), opened("/r/d/n"), wrote("/r/d/n"), synced("/r/d/n")]
    trace += [synced("/r/d")]
    assert states(trace, base=base, path="/r/d/n") == {None, NEW}
    assert states([*trace, synced("/r")], base=base, path="/r/d/n") == {NEW}


def test_removal_may_be_lost_until_the_directory_is_synced() -> None:
    assert states([Call("unlink", "/d/f")]) == {OLD, None}
    assert states([Call("unlink", "/d/f"), synced("/d")]) == {None}


def test_one_name_is_changed_in_order() -> None:
    recording = record([*STAGE, RENAME], BASE)
    for recipe in recipes(recording, [3]):
        # A rename that is on the disk has a file to rename.
        assert not (0 in recipe.lost and 2 not in recipe.lost)


def test_sync_makes_everything_durable() -> None:
    assert states([*STAGE, RENAME, Call("sync")]) == {NEW}


@pytest.mark.parametrize(
    "call",
    [
        Call("sendfile", "/d/f"),
        Call("symlink", "/d/f"),
        Call("io_uring_setup"),
        Call("fallocate", "/d/f", flags=2),
        Call("linkat", "/d/#12 (deleted)", "/d/n"),
        wrote("/d/unknown"),
    ],
)
def test_what_is_not_modelled_is_a_doubt(call: Call) -> None:
    assert record([call], BASE).doubts == [str(call)]


def test_the_index_of_a_log_is_left_out() -> None:
    recording = record([opened("/d/x.db-shm"), Call("mmap", "/d/x.db-shm")], {"/d/x.db-shm": None})
    assert recording.ops == []
    assert recording.doubts == []


NAMES = st.sampled_from(["/d/f", "/d/t", "/d/u"])
TRACES = st.lists(
    st.one_of(
        st.builds(opened, NAMES, st.sampled_from([os.O_CREAT, os.O_CREAT | os.O_TRUNC])),
        st.builds(wrote, NAMES, st.binary(min_size=1, max_size=1200), st.integers(0, 900)),
        st.builds(synced, st.sampled_from(["/d", "/d/f", "/d/t", "/d/u"])),
        st.builds(lambda a, b: Call("rename", a, b), NAMES, NAMES),
        st.builds(lambda a: Call("unlink", a), NAMES),
        st.builds(lambda a, n: Call("truncate", a, at=n), NAMES, st.integers(0, 900)),
    ),
    max_size=9,
)


@given(TRACES)
@settings(max_examples=150, deadline=None)
def test_a_weaker_model_allows_every_state_of_a_stronger_one(trace: list[Call]) -> None:
    trace = [call for call in trace if call.path != call.target]
    base = {**BASE, "/d/u": None}
    recording = {model: record(trace, base, model) for model in MODELS}
    found = {
        model: {
            repr(sorted(state(recording[model], recipe).items()))
            for recipe in recipes(recording[model], [len(trace)], model, most=10**6)
        }
        for model in MODELS
    }
    last = repr(sorted(state(recording["posix"], Recipe(len(trace), ())).items()))
    assert last in found["prefix"]
    if len(recording["posix"].ops) <= 8:  # else only a selection is tried
        assert found["prefix"] <= found["ordered"] <= found["posix"]


@given(TRACES)
@settings(max_examples=100, deadline=None)
def test_a_recipe_is_read_as_it_was_written(trace: list[Call]) -> None:
    for recipe in recipes(record(trace, BASE), range(len(trace) + 1), most=200):
        assert Recipe.parse(str(recipe)) == recipe
