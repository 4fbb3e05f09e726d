"""The comparison lets nothing pass, and says where the first difference is."""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import Any

import pytest
from toolnexus_stores_contract.check import Violation
from toolnexus_stores_contract.values import difference, require_one_of, transcript

SAME: list[Any] = [
    *(None, True, 0, 1.5, -0.0, math.nan, math.inf, "", "\ud800", [], {}),
    {"a": [1, {"b": math.nan}]},
]
DIFFERENT: list[tuple[Any, Any, str]] = [
    (None, [], "the value is None, not [] (list)"),
    (1, True, "is 1 (int), not True"),
    (1, 1.0, "is 1 (int), not 1.0 (float)"),
    (-0.0, 0.0, "is -0.0 (float), not 0.0"),
    ((1,), [1], "is (1,) (tuple), not [1] (list)"),
    (OrderedDict(a=1), {"a": 1}, "(OrderedDict), not"),
    ([1], [1, 2], "has 1 items, not 2"),
    ({"a": 1}, {}, "has a key that was not saved, 'a'"),
    ({}, {"a": 1}, "has lost its key 'a'"),
    ({"a": 1, "b": 2}, {"b": 2, "a": 1}, "has its keys in another order"),
    ([{"a": [0, "xyz"]}], [{"a": [0, "xYz"]}], "the value[0].a[1], from character 1, is 'yz'"),
    ("ab", "abc", "from character 2, is '' (str), not 'c' (str)"),
    (2**70, 2**70 + 1, "is 1180591620717411303424"),
]


@pytest.mark.parametrize("value", SAME, ids=repr)
def test_the_same(value: Any) -> None:
    assert difference(value, value) is None


@pytest.mark.parametrize(("seen", "promised", "words"), DIFFERENT)
def test_a_difference_is_found_and_named(seen: Any, promised: Any, words: str) -> None:
    assert words in (difference(seen, promised) or "")
    assert difference(promised, seen) is not None
    ignored = words.endswith("in another order")
    assert (difference(seen, promised, key_order=False) is None) == ignored


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (transcript("a", 3)[:2], "2 of the 3 messages of the save a"),
        (transcript("a", 3)[1:], "2 of the 3 messages of the save a"),
        ([*transcript("a", 2), *transcript("b", 2)], "a mixture of the saves a, b"),
        (transcript("c", 2), "get gave the save c; promised was the save a or the save b"),
        ([], "an empty transcript"),
        (None, "get gave None"),
        ([{"role": "user"}], "1 messages"),
    ],
)
def test_a_transcript_says_what_became_of_it(seen: Any, words: str) -> None:
    with pytest.raises(Violation) as caught:
        require_one_of(seen, transcript("a", 3), transcript("b", 2))
    assert words in str(caught.value)
