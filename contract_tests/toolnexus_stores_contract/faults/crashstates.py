"""What a power loss can leave on the disk: every legal state, made from the trace of a save.

The calls of a save become `Op`: a name that is made, moved or removed, bytes that are written, a
length that is set. An op is *durable* from the call on that syncs it; until then a crash may lose
it. A crash state is: all ops that are durable by then, and any selection of the others that the
`MODELS` allow, with a write of them torn between two sectors.

What is assumed (after Pillai et al., "All File Systems Are Not Created Equal", OSDI 2014):

- fsync and fdatasync make a file's bytes and length durable, not its name: "an explicit fsync() on
  a file descriptor for the directory is also needed" (fsync(2));
- fsync of a directory makes the names in it durable; of a rename between two directories either;
- a rename is atomic; operations on the same name happen in order;
- a sector of 512 bytes is written whole or not at all.

Limits: bytes that are written without a call of their own (mmap, io_uring, sendfile) are not seen;
`Recording.doubts` names them. Symbolic links are not modelled.
"""

from __future__ import annotations

import itertools
import os
import random
from collections import deque
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, final, get_args

from .calls import DELETED, OPENING, WRITING, Call
from .disk import Entry

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = [
    "MODELS",
    "Model",
    "Op",
    "Recipe",
    "Recording",
    "is_transient",
    "recipes",
    "record",
    "state",
]

Model: TypeAlias = Literal["posix", "ordered", "prefix"]
"""``posix``: any op that is not durable may be lost. ``ordered``: names change in order, and fsync
of a new file makes its name durable (ext4, XFS and Btrfs do so). ``prefix``: everything happens in
order, as after the kill of a process."""

MODELS: Final[tuple[Model, ...]] = get_args(Model)
_SECTOR = 512
_KEEP_SIZE, _FALLOCATE_MODES_THAT_ONLY_GROW = 1, {0, 1}
_WHOLE_SETS = 256  # of pending ops: below that every subset is tried, above it a selection
_FILE, _DIRECTORY = 0o600, 0o700


@dataclass(eq=False, slots=True)
class Op:
    """One change to the disk that a crash may lose."""

    kind: Literal["create", "mkdir", "write", "length", "rename", "link", "remove"]
    call: int
    """The number of the call that made it, from 1."""

    path: str
    target: str = ""
    file: int = -1
    """Which file it is about, whatever its name is."""

    at: int = 0
    data: bytes = b""
    durable: int | None = None
    """The number of the call from whose end on it is durable."""

    def __str__(self) -> str:
        target = f" -> {self.target}" if self.target else ""
        where = f" at {self.at}, {len(self.data)} bytes" if self.data else ""
        return f"{self.kind} {self.path}{target}{where}"

    @property
    def names(self) -> set[str]:
        """The names that it changes."""
        if self.kind in {"write", "length"}:
            return set()
        return {self.path, self.target} - {""}


@dataclass(slots=True)
class Recording:
    """A trace as ops, over what was there before."""

    base: Mapping[str, Entry | None]
    calls: int = 0
    ops: list[Op] = field(default_factory=list[Op])
    doubts: list[str] = field(default_factory=list[str])
    """Calls whose effect is not known: with any of them, no statement is possible."""

    @property
    def paths(self) -> set[str]:
        """Every name that a state of it may hold, or lack."""
        return set(self.base).union(*(op.names for op in self.ops))


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a crash state is made."""

    calls: int
    """The power was lost after that many calls."""

    lost: tuple[int, ...]
    """Indices of ops that did not reach the disk."""

    torn: tuple[int, str, int] | None = None
    """An op's index; which part of it reached the disk, "head", "tail" or "zeros"; cut where."""

    def __str__(self) -> str:
        lost = ",".join(map(str, self.lost)) or "-"
        torn = "/".join(map(str, self.torn)) if self.torn else "-"
        return f"{self.calls}:{lost}:{torn}"

    @classmethod
    def parse(cls, text: str) -> Recipe:
        """The reverse of `str`. Raises `ValueError`."""
        calls, lost, torn = text.split(":")
        indices = () if lost == "-" else tuple(map(int, lost.split(",")))
        if torn == "-":
            return cls(int(calls), indices)
        index, part, cut = torn.split("/")
        return cls(int(calls), indices, (int(index), part, int(cut)))

    @property
    def size(self) -> tuple[int, bool]:
        """The smaller, the better it explains."""
        return len(self.lost), self.torn is not None


def record(
    trace: Sequence[Call], base: Mapping[str, Entry | None], model: Model = "posix"
) -> Recording:
    """The ops of *trace*, and when each became durable."""
    recorder = _Recorder(Recording(base), model)
    for number, call in enumerate(trace, 1):
        recorder.add(number, call)
    recorder.recording.calls = len(trace)
    return recorder.recording


@final
class _Recorder:
    """The disk as the process sees it, call by call."""

    def __init__(self, recording: Recording, model: Model) -> None:
        self.recording = recording
        self._model = model
        self._files = itertools.count()
        self._names: dict[str, int] = {}
        self._lengths: dict[int, int] = {}
        self._directories: set[str] = set()
        for path, entry in recording.base.items():
            if entry is None:
                continue
            if entry.data is None:
                self._directories.add(path)
            else:
                self._names[path] = next(self._files)
                self._lengths[self._names[path]] = len(entry.data)

    def add(self, number: int, call: Call) -> None:
        name = call.name
        if is_transient(call.path):
            return
        if name in OPENING:
            self._open(number, call)
        elif name in WRITING:
            self._write(number, call)
        elif name in {"truncate", "ftruncate", "fallocate"}:
            self._set_length(number, call)
        elif name.startswith("rename"):
            self._rename(number, call)
        elif name.startswith("link"):
            self._link(number, call)
        elif name.startswith(("mkdir", "rmdir", "unlink")):
            self._make_or_remove(number, call)
        elif name in {"fsync", "fdatasync", "sync", "syncfs"}:
            self._sync(number, call)
        elif name not in {"sync_file_range", "msync"}:
            self.recording.doubts.append(str(call))

    def _op(self, op: Op) -> None:
        self.recording.ops.append(op)

    def _open(self, number: int, call: Call) -> None:
        path, file = call.path, self._names.get(call.path)
        if file is None and call.flags & os.O_CREAT and path not in self._directories:
            file = self._names[path] = next(self._files)
            self._lengths[file] = 0
            self._op(Op("create", number, path, file=file))
        elif file is not None and call.flags & os.O_TRUNC and self._lengths[file]:
            self._lengths[file] = 0
            self._op(Op("length", number, path, file=file))

    def _write(self, number: int, call: Call) -> None:
        file = self._names.get(call.path)
        if file is None:
            if not call.path.endswith(DELETED):
                self.recording.doubts.append(str(call))
            return
        at = self._lengths[file] if call.at < 0 else call.at
        self._lengths[file] = max(self._lengths[file], at + len(call.data))
        durable = number if call.flags & os.O_DSYNC else None  # O_SYNC includes it: open(2)
        self._op(Op("write", number, call.path, file=file, at=at, data=call.data, durable=durable))

    def _set_length(self, number: int, call: Call) -> None:
        file = self._names.get(call.path)
        if file is None:
            return
        if call.name == "fallocate":
            if call.flags not in _FALLOCATE_MODES_THAT_ONLY_GROW:
                self.recording.doubts.append(str(call))
            if call.flags & _KEEP_SIZE or call.at <= self._lengths[file]:
                return
        self._lengths[file] = call.at
        self._op(Op("length", number, call.path, file=file, at=call.at))

    def _rename(self, number: int, call: Call) -> None:
        path, target = call.path, call.target
        if path in self._names:
            self._names[target] = self._names.pop(path)
        elif path in self._directories:
            inside = f"{path}/"
            self._directories.discard(path)
            self._directories.add(target)
            for each in [each for each in self._names if each.startswith(inside)]:
                self._names[target + each[len(path) :]] = self._names.pop(each)
        else:
            return
        self._op(Op("rename", number, path, target))

    def _link(self, number: int, call: Call) -> None:
        file = self._names.get(call.path)
        if file is None or call.target in self._names:
            if call.path.endswith(DELETED):
                self.recording.doubts.append(str(call))
            return
        self._names[call.target] = file
        self._op(Op("link", number, call.target, file=file))

    def _make_or_remove(self, number: int, call: Call) -> None:
        path = call.path
        if call.name.startswith("mkdir"):
            if path not in self._directories and path not in self._names:
                self._directories.add(path)
                self._op(Op("mkdir", number, path))
        elif path in self._names or path in self._directories:
            self._names.pop(path, None)
            self._directories.discard(path)
            self._op(Op("remove", number, path))

    def _sync(self, number: int, call: Call) -> None:
        file = self._names.get(call.path)
        for op in self.recording.ops:
            if op.durable is None and (
                not call.path
                or call.name == "syncfs"
                or (file is not None and self._is_synced_with(op, file))
                or any(_directory(name) == call.path for name in op.names)
            ):
                op.durable = number

    def _is_synced_with(self, op: Op, file: int) -> bool:
        if op.file != file:
            return False
        return op.kind in {"write", "length"} or (op.kind == "create" and self._model != "posix")


def is_transient(path: str) -> bool:
    """SQLite's index of its log is made anew after a crash: sqlite.org/walformat.html, 2.2."""
    return path.endswith("-shm")


def _directory(path: str) -> str:
    return str(PurePosixPath(path).parent)


def recipes(
    recording: Recording, crashes: Sequence[int], model: Model = "posix", *, most: int = 1_000
) -> Iterator[Recipe]:
    """Ways to make a crash state, for power losses after each of *crashes* calls in turn.

    At most *most*; what is left out is what loses or keeps most. Some make the same state.
    """
    ways = deque(_recipes_at(recording, calls, model) for calls in crashes)
    while ways and most > 0:
        way = ways.popleft()
        recipe = next(way, None)
        if recipe is not None:
            most -= 1
            ways.append(way)
            yield recipe


def _recipes_at(recording: Recording, calls: int, model: Model) -> Iterator[Recipe]:
    done = [op for op in recording.ops if op.call <= calls]
    pending = [
        index
        for index, op in enumerate(recording.ops)
        if op.call <= calls and (op.durable is None or op.durable > calls)
    ]
    for lost in _subsets(pending):
        if not _is_legal(recording.ops, done, set(lost), model):
            continue
        yield Recipe(calls, tuple(lost))
        kept = [index for index in pending if index not in lost]
        for index in kept[-1:] if model == "prefix" else kept:
            for part, cut in _tears(recording.ops[index], model):
                yield Recipe(calls, tuple(lost), (index, part, cut))


def _subsets(pending: Sequence[int]) -> Iterator[Sequence[int]]:
    """Which ops are lost: all subsets of a few, a selection of many; small ones first."""
    if 2 ** len(pending) <= _WHOLE_SETS:
        for size in range(len(pending) + 1):
            yield from itertools.combinations(pending, size)
        return
    count = len(pending)
    yield from (pending[start:] for start in range(count, -1, -1))  # the end of it
    yield from ([each] for each in pending)
    yield from (pending[:end] for end in range(1, count))  # the beginning of it
    yield from itertools.combinations(pending, 2)
    chance = random.Random(count)  # noqa: S311 - the same selection each time
    for _ in range(_WHOLE_SETS):
        yield [each for each in pending if chance.random() < 0.5]


def _is_legal(ops: Sequence[Op], done: Sequence[Op], lost: set[int], model: Model) -> bool:
    """Whether a file system that keeps to *model* may lose these and keep the others."""
    gone: list[Op] = []
    for index, op in enumerate(ops[: len(done)]):
        if index in lost:
            gone.append(op)
            continue
        if model == "prefix" and gone:
            return False
        for earlier in gone:
            if op.names & earlier.names:
                return False
            if model == "ordered" and op.names and earlier.names:
                return False
    return True


def _tears(op: Op, model: Model) -> Iterator[tuple[str, int]]:
    """How a write may reach the disk in part: (which part of it, cut where)."""
    if op.kind != "write":
        return
    first = _SECTOR - op.at % _SECTOR
    cuts = list(range(first, len(op.data), _SECTOR))
    for cut in sorted({cuts[0], cuts[len(cuts) // 2], cuts[-1]}) if cuts else ():
        yield "head", cut
        if model == "posix":
            yield "tail", cut
    if model == "posix":
        yield "zeros", 0


def state(recording: Recording, recipe: Recipe) -> dict[str, Entry | None]:
    """What is at each path of the recording after the power is back."""
    disk = _Disk(recording.base)
    for index, op in enumerate(recording.ops):
        if op.call > recipe.calls or index in recipe.lost:
            continue
        if recipe.torn is not None and recipe.torn[0] == index:
            op = _part(op, recipe.torn[1], recipe.torn[2])  # noqa: PLW2901 - what reached the disk
        disk.apply(op)
    return disk.entries(recording.paths)


def _part(op: Op, part: str, cut: int) -> Op:
    """The part of a write that reached the disk."""
    if part == "head":
        return Op("write", op.call, op.path, file=op.file, at=op.at, data=op.data[:cut])
    if part == "tail":
        return Op("write", op.call, op.path, file=op.file, at=op.at + cut, data=op.data[cut:])
    # The new length reached the disk, the blocks did not; an old part of the file stays.
    return Op("length", op.call, op.path, file=op.file, at=-op.at - len(op.data))


@final
class _Disk:
    """Names and files while ops are applied."""

    def __init__(self, base: Mapping[str, Entry | None]) -> None:
        self._names: dict[str, int] = {}
        self._files: dict[int, bytearray] = {}
        self._directories: dict[str, int] = {}
        self._modes: dict[int, int] = {}
        files = itertools.count()
        for path, entry in base.items():
            if entry is not None and entry.data is None:
                self._directories[path] = entry.mode
            elif entry is not None and entry.data is not None:
                file = self._names[path] = next(files)
                self._files[file] = bytearray(entry.data)
                self._modes[file] = entry.mode

    def apply(self, op: Op) -> None:
        match op.kind:
            case "create" | "link":
                self._names[op.path] = op.file
                self._files.setdefault(op.file, bytearray())
            case "mkdir":
                self._directories[op.path] = _DIRECTORY
            case "remove":
                self._names.pop(op.path, None)
                self._directories.pop(op.path, None)
            case "rename":
                self._rename(op.path, op.target)
            case "write":
                file = self._files.setdefault(op.file, bytearray())
                file.extend(bytes(max(0, op.at - len(file))))
                file[op.at : op.at + len(op.data)] = op.data
            case "length":
                file = self._files.setdefault(op.file, bytearray())
                if op.at >= 0:  # else: at least that long
                    del file[op.at :]
                file.extend(bytes(max(0, abs(op.at) - len(file))))

    def _rename(self, path: str, target: str) -> None:
        if path in self._names:
            self._names[target] = self._names.pop(path)
        elif path in self._directories:
            self._directories[target] = self._directories.pop(path)
            inside = f"{path}/"
            for each in [each for each in self._names if each.startswith(inside)]:
                self._names[target + each[len(path) :]] = self._names.pop(each)

    def entries(self, paths: set[str]) -> dict[str, Entry | None]:
        found: dict[str, Entry | None] = dict.fromkeys(paths)
        found.update((path, Entry(mode, None)) for path, mode in self._directories.items())
        for path, file in self._names.items():
            if not is_transient(path):
                found[path] = Entry(self._modes.get(file, _FILE), bytes(self._files[file]))
        # A name in a directory that is lost itself is not to be found.
        for path in sorted(found):
            above = _directory(path)
            if above in found and found[above] is None:
                found[path] = None
        return found
