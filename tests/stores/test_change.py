"""What kind of change a save is, and that splicing by it gives the new transcript."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from toolnexus_stores.change import change_of, drop_of

A, B, C = b"a", b"b", b"c"
transcripts = st.lists(st.sampled_from([A, B, C]), max_size=8)


@pytest.mark.parametrize(
    ("stored", "new", "kind", "keep", "dropped"),
    [
        (None, [], "create", 0, 0),
        (None, [A], "create", 0, 0),
        ([], [], "same", 0, 0),
        ([A, B], [A, B], "same", 2, 0),
        ([], [A], "append", 0, 0),
        ([A], [A, B, C], "append", 1, 0),
        ([A, B, C], [A], "rewind", 1, 2),
        ([A, B], [], "rewind", 0, 2),
        ([A, B, C], [A, C], "rewrite", 1, 2),
        ([A, B, C], [B, C], "rewrite", 0, 3),
        ([A, B], [A, C, C], "rewrite", 1, 1),
    ],
)
def test_kinds(
    stored: list[bytes] | None, new: list[bytes], kind: str, keep: int, dropped: int
) -> None:
    change = change_of(stored, new)
    assert (change.kind, change.keep, change.dropped) == (kind, keep, dropped)


@given(st.none() | transcripts, transcripts)
def test_what_is_kept_and_the_rest_make_the_new_transcript(
    stored: list[bytes] | None, new: list[bytes]
) -> None:
    change = change_of(stored, new)
    assert (stored or [])[: change.keep] + new[change.keep :] == new
    assert change.dropped == len(stored or []) - change.keep
    assert (change.kind == "same") == (stored == new)
    assert (change.kind in {"rewind", "rewrite"}) == (change.dropped > 0)


@given(transcripts, transcripts)
def test_a_drop_is_between_what_is_kept_at_both_ends(stored: list[bytes], new: list[bytes]) -> None:
    keep = change_of(stored, new).keep
    drop = drop_of(stored, new, keep)
    assert keep == drop.start <= drop.end <= len(stored)
    if drop.tail is None:
        assert drop.end == len(stored)
    else:
        tail = stored[drop.end :]
        assert tail
        assert keep <= drop.tail
        assert new[drop.tail : drop.tail + len(tail)] == tail


@given(
    prompt=st.booleans(),
    dropped=st.integers(2, 9),
    tail=st.integers(1, 6),
    turn=st.integers(0, 4),
    again=st.booleans(),
)
def test_a_compaction_is_found_wherever_it_is(
    *, prompt: bool, dropped: int, tail: int, turn: int, again: bool
) -> None:
    """System prompt or not, first or second compaction, saved before or after the turn's end."""
    head = [b"system"] * prompt + [b"an older summary"] * again
    middle = [b"old %d" % number for number in range(dropped)]
    end = [b"recent %d" % number for number in range(tail)]
    stored = [*head, *middle, *end]
    new = [*[b"system"] * prompt, b"summary", *end, *[b"new %d" % number for number in range(turn)]]
    change = change_of(stored, new)
    drop = drop_of(stored, new, change.keep)
    assert change.kind == "rewrite"
    assert stored[drop.start : drop.end] == [*head[prompt:], *middle]
    assert drop.inserted == (prompt, prompt + 1)


@given(st.integers(0, 6), st.integers(0, 6))
def test_a_rollback_is_no_rewrite(before: int, halted: int) -> None:
    transcript = [b"message %d" % number for number in range(before + halted)]
    kind = change_of(transcript, transcript[:before]).kind
    assert kind == ("rewind" if halted else "same")


@given(st.integers(1, 6), st.integers(1, 6), st.integers(1, 6))
def test_a_lost_turn_is_a_rewrite(common: int, one: int, other: int) -> None:
    start = [b"common %d" % number for number in range(common)]
    stored = [*start, *(b"one %d" % number for number in range(one))]
    new = [*start, *(b"other %d" % number for number in range(other))]
    change = change_of(stored, new)
    assert (change.kind, change.dropped) == ("rewrite", one)
    assert drop_of(stored, new, change.keep).inserted is None


@given(st.integers(1, 8), st.data())
def test_an_edit_is_a_rewrite_and_no_summary(count: int, data: st.DataObject) -> None:
    stored = [b"message %d" % number for number in range(count)]
    edited = data.draw(st.integers(0, count - 1))
    new = [*stored[:edited], b"edited", *stored[edited + 1 :]]
    change = change_of(stored, new)
    assert change.kind == "rewrite"
    drop = drop_of(stored, new, change.keep)
    assert (drop.start, drop.end, drop.inserted) == (edited, edited + 1, None)
