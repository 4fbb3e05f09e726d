"""The checker of concurrent histories agrees with a search through every order."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toolnexus_stores_contract.history import Operation, contradiction

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# Programs run step by step: each yields between its steps and notes what it did.
Client: TypeAlias = Iterator[None]


def some_order_explains(operations: Sequence[Operation]) -> bool:
    """Whether there is a right order, found by trying all of them (Wing and Gong)."""

    def from_here(left: frozenset[int], value: str | None) -> bool:
        # A save without an answer may never have happened: nothing has to come after it.
        if all(operations[i].ended is None for i in left):
            return True
        first_end = min(operations[i].end for i in left)
        for i in left:
            operation = operations[i]
            if operation.began > first_end:
                continue  # another one had ended before it began
            if operation.kind == "save" and from_here(left - {i}, operation.value):
                return True
            if (
                operation.kind == "get"
                and operation.value == value
                and from_here(left - {i}, value)
            ):
                return True
        return False

    return from_here(frozenset(range(len(operations))), None)


def save(value: str, began: float, ended: float | None) -> Operation:
    return Operation("one", "save", value, began, ended)


def get(value: str | None, began: float, ended: float) -> Operation:
    return Operation("another", "get", value, began, ended)


@st.composite
def histories(draw: st.DrawFn) -> list[Operation]:
    moments = st.integers(0, 9)
    saves = draw(st.integers(0, 3))
    values = [f"v{n}" for n in range(saves)]
    found = []
    for value in values:
        began = draw(moments)
        ended = draw(st.one_of(st.none(), st.integers(began, 10)))
        found.append(save(value, began, ended))
    for _ in range(draw(st.integers(0, 4))):
        began = draw(moments)
        seen = draw(st.sampled_from([None, *values]))
        found.append(get(seen, began, draw(st.integers(began, 10))))
    return found


@settings(max_examples=500, deadline=None)
@given(histories())
def test_it_agrees_with_a_search(operations: list[Operation]) -> None:
    assert (contradiction(operations) is None) == some_order_explains(operations)


RIGHT: list[list[Operation]] = [
    [],
    [get(None, 0, 1)],
    [save("a", 0, 5), get(None, 1, 2), get("a", 3, 4)],
    [save("a", 0, 5), save("b", 0, 5), get("b", 6, 7), get("b", 8, 9)],
    [save("a", 0, None), get(None, 1, 2), get("a", 8, 9)],
    [save("a", 0, None), save("b", 1, 2), get("b", 3, 4), get("a", 5, 6)],
]
WRONG: list[tuple[list[Operation], str]] = [
    ([get("a", 0, 1)], "the get by another that gave a is of a save that nobody made"),
    ([get("a", 0, 1), save("a", 2, 3)], "ended before that save began"),
    ([save("a", 0, 1), get(None, 2, 3)], "the get by another that gave None began: no order"),
    (
        [save("a", 0, 1), save("b", 2, 3), get("a", 4, 5)],
        "the save b ended before the get by another that gave a began: no order",
    ),
    ([save("a", 0, 9), get("a", 1, 2), get(None, 3, 4)], "no order"),
    (
        [save("a", 0, 9), save("b", 0, 9), get("a", 1, 2), get("b", 3, 4), get("a", 5, 6)],
        "no order",
    ),
]


@pytest.mark.parametrize("operations", RIGHT)
def test_right(operations: list[Operation]) -> None:
    assert some_order_explains(operations)
    assert contradiction(operations) is None


@pytest.mark.parametrize(("operations", "words"), WRONG)
def test_wrong(operations: list[Operation], words: str) -> None:
    assert not some_order_explains(operations)
    assert words in (contradiction(operations) or "")


def test_two_saves_of_one_value_cannot_be_told_apart() -> None:
    with pytest.raises(ValueError, match="two saves of a"):
        contradiction([save("a", 0, 1), save("a", 2, 3)])


def test_it_is_quick_about_long_histories() -> None:
    turns = range(20_000)
    saves = [save(f"{turn}", 4 * turn, 4 * turn + 1) for turn in turns]
    gets = [get(f"{turn}", 4 * turn + 2, 4 * turn + 3) for turn in turns]
    assert contradiction([*saves, *gets]) is None
    assert contradiction([*saves, *gets, get("7", 10**6, 10**6 + 1)]) is not None


# Every interleaving of three clients with a register, right or broken.


class Register:
    """A value that is saved and got in two steps each: there is another's turn between them."""

    def __init__(self) -> None:
        self.value: str | None = None
        self.clock = itertools.count()
        self.done: list[Operation] = []

    def save(self, client: str, value: str) -> Client:
        began = next(self.clock)
        yield
        self.set(value)
        self.done.append(Operation(client, "save", value, began, next(self.clock)))

    def get(self, client: str) -> Client:
        began = next(self.clock)
        found = self.value
        yield
        self.done.append(Operation(client, "get", found, began, next(self.clock)))

    def set(self, value: str) -> None:
        self.value = value


class WritesBehind(Register):
    """A save is answered before it can be seen."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting = ""

    def set(self, value: str) -> None:
        self.value, self.waiting = self.waiting or self.value, value


def interleavings(counts: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Every order of so many steps of each client."""
    if not any(counts):
        yield ()
    for client, left in enumerate(counts):
        if left:
            fewer = (*counts[:client], left - 1, *counts[client + 1 :])
            yield from ((client, *rest) for rest in interleavings(fewer))


def histories_of(make: Callable[[], Register]) -> Iterator[list[Operation]]:
    for order in interleavings((2, 4, 4)):
        register = make()
        clients = [
            register.save("1", "a"),
            itertools.chain(register.save("2", "b"), register.get("2")),
            itertools.chain(register.get("3"), register.get("3")),
        ]
        for client in order:
            next(clients[client], None)
        for rest in clients:
            next(rest, None)
        yield register.done


def test_no_interleaving_of_a_right_register_is_accused() -> None:
    found = list(histories_of(Register))
    assert len(found) == 3_150
    assert [each for each in found if contradiction(each) is not None] == []


def test_the_interleavings_of_a_broken_register_are_judged_as_a_search_judges_them() -> None:
    found = list(histories_of(WritesBehind))
    accused = [each for each in found if contradiction(each) is not None]
    assert accused == [each for each in found if not some_order_explains(each)]
    assert len(accused) > 100
