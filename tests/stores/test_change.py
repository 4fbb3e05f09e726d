"""What kind of change a save is, and that splicing by it gives the new transcript."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from toolnexus_stores.change import change_of

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
