"""A save, and then the power is lost; what the store finds of it.

A victim opens the storage and saves twice; from its calls every legal crash state is made
(`crashstates`), put on the disk, and looked at by a store that is opened for it. It must find what
was acknowledged by then, or what was being saved, and it must work.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

from .crashstates import Model, Recipe, Recording, is_transient, recipes, record, state
from .disk import Before, Entry, look, put
from .result import ENOUGH, Result
from .scenarios import AGAIN, SCENARIOS, Case, Seen
from .sweep import prepared
from .victims import Ending, observe

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from .reach import Reach

__all__ = ["lose_power", "lose_power_once"]

_AT_ONCE = 50  # states that one process looks at
_PATIENCE = 60.0


@dataclass(slots=True)
class _State:
    """A state of the disk, and what a store may find in it."""

    recipe: Recipe
    allowed: frozenset[str]
    seen: Seen | None = None
    again: Seen | None = None

    def wrong(self) -> str | None:
        if self.seen is None:
            return "opening the store then, or reading, ended the process or did not end"
        if self.seen.name not in self.allowed:
            wanted = " or ".join(f"the {each} transcript" for each in sorted(self.allowed))
            return f"in a store that is opened then {self.seen.text}; promised was {wanted}"
        if self.again is None or self.again.name != AGAIN:
            again = self.again.text if self.again else "the next save ended it"
            return f"in a store that is opened then {again}"
        return None


def lose_power(  # noqa: PLR0913 - all but two by name
    make: Callable[[], object],
    reach: Reach,
    *,
    tag: str,
    acknowledged: bool,
    survives: str = "power",
    model: Model = "posix",
) -> Result:
    """Look at the crash states up to the first acknowledgement, or at those from it on.

    A store that *survives* a power loss has what it acknowledged; one that does not has one whole
    transcript all the same. Raises `Unsupported`.
    """
    result = Result()
    for name in reach.power:
        experiment = _Experiment(Case(make, SCENARIOS[name], f"{tag}-{name}"), result, model)
        with prepared(experiment.case, result) as ready:
            if ready and experiment.recorded():
                experiment.look_at(experiment.states(reach.states, acknowledged, survives))
    if not result.counts.get("system calls"):
        result.inconclusive.append("a save made no system call that changes a file")
    return result


def lose_power_once(
    make: Callable[[], object], scenario: str, recipe: str, *, tag: str, survives: str
) -> Result:
    """The one crash state of *recipe*."""
    result = Result()
    experiment = _Experiment(Case(make, SCENARIOS[scenario], f"{tag}-{scenario}"), result, "posix")
    chosen = Recipe.parse(recipe)
    with prepared(experiment.case, result) as ready:
        if ready and experiment.recorded():
            experiment.look_at([_State(chosen, experiment.allowed(chosen.calls, survives))])
    return result


@final
class _Experiment:
    """One scenario: its trace, its states, its judges."""

    def __init__(self, case: Case, result: Result, model: Model) -> None:
        self.case = case
        self._result = result
        self._model: Model = model
        self._before = Before()
        self._ending = Ending()
        self._recording = Recording({})

    def recorded(self) -> bool:
        """Whether there is a trace of the saves to work with."""
        self._ending = observe(self.case.save_twice, self._before, seconds=_PATIENCE)
        after = {path: look(path) for path in self._before.entries}
        self._before.restore()
        trace = self._ending.trace
        self._result.count("system calls", len(trace))
        if len(self._acknowledgements()) != 2:
            raised = self._ending.heard("raised") or "it did not end"
            self._result.inconclusive.append(f"no save without any fault: {raised}")
            return False
        self._recording = record(trace, dict(self._before.entries), self._model)
        doubts = self._recording.doubts + self._ending.unseen + self._unexplained(after)
        self._result.inconclusive += (f"the save is not seen whole: {each}" for each in doubts)
        return bool(trace) and not doubts

    def _unexplained(self, after: Mapping[str, Entry | None]) -> list[str]:
        """What was on the disk in the end, and is not what the ops make of it."""
        made = state(self._recording, Recipe(self._recording.calls, ()))
        return [
            f"{path} is not what its calls make of it"
            for path, entry in made.items()
            if not is_transient(path) and _content(entry) != _content(after.get(path))
        ]

    def _acknowledgements(self) -> list[int]:
        return [each.calls for each in self._ending.said if each.word == "acknowledged"]

    def allowed(self, calls: int, survives: str) -> frozenset[str]:
        """What may be found after a power loss that comes after so many calls."""
        names, found = ["old", "new", "next"], {"old"}
        for said in self._ending.said:
            if said.calls > calls:
                break
            if said.word == "acknowledged" and survives == "power":
                found = {said.value}
            elif said.word == "began":
                found.add(said.value)
        return frozenset(found & set(names))

    def states(self, most: int, acknowledged: bool, survives: str) -> list[_State]:
        """The distinct ones, each with what must be found in it."""
        first, last = self._acknowledgements()[0], self._recording.calls
        # All calls may be made, and the power be lost before anybody is told.
        crashes = range(first, last + 1) if acknowledged else range(first + 1)
        survives = survives if acknowledged else "process"
        found: dict[tuple[bytes, frozenset[str]], _State] = {}
        for recipe in recipes(self._recording, crashes, self._model, most=8 * most):
            self._result.count("crash states replayed")
            allowed = self.allowed(recipe.calls, survives)
            key = (_digest(self._recording, recipe), allowed)
            known = found.get(key)
            if known is None or recipe.size < known.recipe.size:
                found[key] = _State(recipe, allowed)
            if len(found) >= most:
                break
        self._result.count("distinct crash states", len(found))
        return list(found.values())

    def look_at(self, states: list[_State]) -> None:
        """Have a store opened in each of *states*, and note what is wrong."""
        for start in range(0, len(states), _AT_ONCE):
            self._look_at_some(states[start : start + _AT_ONCE])
            wrong = [each for each in states[: start + _AT_ONCE] if each.wrong()]
            if len(wrong) >= ENOUGH:
                break
        else:
            wrong = [each for each in states if each.wrong()]
        for each in sorted(wrong, key=lambda one: one.recipe.size)[:ENOUGH]:
            self._look_at_some([each])  # alone, in a process of its own: what it is told by
            text = each.wrong()
            if text:
                token = f"crashstates:{self.case.scenario.name}:{each.recipe}"
                self._result.violations.append((token, f"{self._told(each)}: {text}"))
        self._before.restore()

    def _look_at_some(self, states: Sequence[_State]) -> None:
        for each in states:
            each.seen = each.again = None
        queue = iter(states)
        current: list[_State] = []

        def listen(word: str, value: Any) -> bool:
            if word == "next":
                self._before.restore()
                current[:] = [each] if (each := next(queue, None)) else []
                for one in current:
                    self._materialise(one.recipe)
            elif word == "seen":
                current[0].seen = Seen.parse(value)
            elif word == "again":
                current[0].again = Seen.parse(value)
            return bool(current)

        observe(self.case.judge, self._before, listen=listen, seconds=_PATIENCE, watch="names")
        self._before.restore()

    def _materialise(self, recipe: Recipe) -> None:
        for path, entry in sorted(state(self._recording, recipe).items()):
            put(path, entry)

    def _told(self, of: _State) -> str:
        """A crash state in words."""
        recipe = of.recipe
        ops, trace = self._recording.ops, self._ending.trace
        after = trace[recipe.calls - 1] if recipe.calls else "the opening"
        acknowledged = sum(calls <= recipe.calls for calls in self._acknowledgements())
        parts = [f"power lost after call {recipe.calls} of {len(trace)} ({after})"]
        if acknowledged and "old" not in of.allowed:
            parts.append(f"{acknowledged} save{'s' * (acknowledged > 1)} acknowledged")
        if recipe.lost:
            some = "; ".join(str(ops[index]) for index in recipe.lost[:4])
            more = f" and {len(recipe.lost) - 4} more" if len(recipe.lost) > 4 else ""
            parts.append(f"not on the disk: {some}{more}")
        if recipe.torn:
            index, part, cut = recipe.torn
            only = {"head": f"only its first {cut} bytes", "tail": f"all but its first {cut} bytes"}
            parts.append(f"of {ops[index]} {only.get(part, 'only the length')}")
        return ", ".join(parts)


def _content(entry: Entry | None) -> bytes | str | None:
    """Without the mode, which is not modelled."""
    return None if entry is None else "a directory" if entry.data is None else entry.data


def _digest(recording: Recording, recipe: Recipe) -> bytes:
    """What tells one state of the disk from another."""
    digest = hashlib.blake2b(digest_size=16)
    for path, entry in sorted(state(recording, recipe).items()):
        data = None if entry is None else entry.data
        kind = 0 if entry is None else 1 if data is None else 2
        digest.update(b"%d %d %d " % (kind, len(path), len(data or b"")))
        digest.update(os.fsencode(path))
        digest.update(data or b"")
    return digest.digest()
