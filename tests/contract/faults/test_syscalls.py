"""The supervisor sees what happens, and makes what it was told to."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from toolnexus_stores_contract.faults import seccomp
from toolnexus_stores_contract.faults.syscalls import Aim

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Watch = Callable[..., dict[str, Any]]


@pytest.fixture
def watch(tmp_path: Path) -> Watch:
    """Runs a victim of `watched` in a fresh interpreter; what became of it."""

    def run(name: str, *aim: str) -> dict[str, Any]:
        command = (sys.executable, "-m", "tests.contract.faults.watched", name, str(tmp_path), *aim)
        done = subprocess.run(command, check=True, capture_output=True, timeout=50)
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    return run


def test_every_call_is_read_with_its_data_and_its_place(watch: Watch) -> None:
    ending = watch("every_call")
    assert ending["status"] == 0
    assert ending["said"] == []
    opening, unlinking = ending["trace"][0].split()[0], ending["trace"][14].split()[0]
    assert ending["trace"] == [
        f"{opening} a",
        "write a 3 bytes",
        "pwrite64 a 3 bytes",
        "writev a 5 bytes",
        "pwritev2 a 4 bytes",
        "ftruncate a",
        "truncate a",
        "fallocate a",
        "fsync a",
        "fdatasync a",
        "mkdir d",
        "renameat a -> d/b",
        "link d/b -> c",
        "symlink s",
        f"{unlinking} s",
        "unlinkat d/b",
        "fsync d",
        "rmdir d",
        f"{opening} c",
        "write c 3 bytes",
        "sendfile d/b (deleted)",  # as the kernel says, though it has another name
        "sync ",
    ]
    assert [ending["at"][n] for n in (1, 2, 3, 4, 5, 6, 7, 19)] == [0, 10, 3, 20, 30, 25, 40, -1]
    assert ending["unseen"] == ["sendfile d/b (deleted)"]


def test_what_is_no_file_is_not_counted(watch: Watch) -> None:
    assert watch("not_files")["trace"] == []


@pytest.mark.parametrize(
    ("aim", "wrote", "left"),
    [
        ("#3:err:ENOSPC", [10, "No space left on device", 10, 1], b"a" * 10 + b"c" * 10 + b"d"),
        ("#3:tear:4:short", [10, 4, 10, 1], b"a" * 10 + b"bbbb" + b"c" * 10 + b"d"),
        ("#2:tear:1:EIO", [1, *["Input/output error"] * 2, 1], b"ad"),
        ("#4:tear:9:ENOSPC", [10, 10, 9, 1], b"a" * 10 + b"b" * 10 + b"c" * 9 + b"d"),
    ],
)
def test_a_write_that_fails_or_falls_short(
    watch: Watch, tmp_path: Path, aim: str, wrote: list[object], left: bytes
) -> None:
    ending = watch("three_writes", aim)
    assert [value for _, value, _ in ending["said"]] == wrote
    assert (tmp_path / "f").read_bytes() == left
    assert ending["fired"] == "write f 10 bytes"


@pytest.mark.parametrize(
    ("aim", "wrote", "left"),
    [
        ("#1:kill", [], b"as it was"),
        ("#2:kill", [], b""),
        ("#3:kill", [10], b"a" * 10),
        ("#3:tear:4:kill", [10], b"a" * 10 + b"bbbb"),
    ],
)
def test_a_kill_comes_before_the_call_or_within_it(
    watch: Watch, tmp_path: Path, aim: str, wrote: list[int], left: bytes
) -> None:
    ending = watch("three_writes", aim)
    assert ending["status"] == -signal.SIGKILL
    assert [value for _, value, _ in ending["said"]] == wrote
    assert (tmp_path / "f").read_bytes() == left


@pytest.mark.parametrize("aim", ["#9:kill", "#1:tear:4:kill", "#2:tear:10:kill", "#2:tear:0:kill"])
def test_a_fault_that_cannot_be_made_has_not_fired(watch: Watch, aim: str) -> None:
    ending = watch("three_writes", aim)
    assert ending["fired"] is None
    assert ending["status"] == 0


def test_what_is_said_and_what_is_done_have_one_order(watch: Watch) -> None:
    assert [calls for _, _, calls in watch("three_writes")["said"]] == [2, 3, 4, 4]


def test_a_held_thread_waits_while_others_go_on(watch: Watch) -> None:
    ending = watch("two_threads", "#1:hold:0.5")
    ((_, (free, held), _),) = ending["said"]
    assert free < 0.4
    assert held >= 0.5


def test_a_victim_that_hangs_is_killed(watch: Watch) -> None:
    ending = watch("hangs")
    assert ending["hung"]
    assert ending["status"] == -signal.SIGKILL


def test_how_a_victim_ends_is_told(watch: Watch) -> None:
    assert watch("dies")["status"] == -signal.SIGABRT
    assert watch("raises")["said"] == [["raised", "ValueError: what it says", 0]]


def test_the_processes_of_a_victim_are_watched_too(watch: Watch, tmp_path: Path) -> None:
    ending = watch("child_process", "#2:kill")
    assert ending["trace"][-1] == "write child 6 bytes"
    assert (tmp_path / "child").read_bytes() == b""
    assert ending["status"] == -signal.SIGKILL


def test_the_disk_is_put_back(watch: Watch, tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir(mode=0o700)
    for name in ("kept", "gone", "moved", "tree/leaf"):
        (tmp_path / name).write_bytes(name.encode())
    (tmp_path / "kept").chmod(0o640)
    was = {path: path.stat().st_mode for path in tmp_path.rglob("*")}
    watch("changes_everything")
    assert {path: path.stat().st_mode for path in tmp_path.rglob("*")} == was
    assert (tmp_path / "kept").read_bytes() == b"kept"
    assert (tmp_path / "tree" / "leaf").read_bytes() == b"tree/leaf"


@pytest.mark.parametrize(
    "text", ["#2:kill", "#1:err:EIO", "#3:tear:333:kill", "#3:tear:1:ENOSPC", "#4:hold:0.25"]
)
def test_a_token_is_read_as_it_was_written(text: str) -> None:
    assert str(Aim.parse(text)) == text


@pytest.mark.parametrize("text", ["", "#x:kill", "#1:err:ENOTHING", "#1:tear:1", "#1:explode"])
def test_a_token_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        Aim.parse(text)


def test_a_machine_of_another_kind_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seccomp, "NUMBERS", {})
    with pytest.raises(seccomp.Unsupported, match="are not known"):
        seccomp.install()


def test_both_machines_know_the_same_calls() -> None:
    tables = seccomp._NUMBERS
    older = {"open", "creat", "rename", "mkdir", "rmdir", "link", "unlink", "symlink"}
    assert tables["x86_64"].keys() - tables["aarch64"].keys() == older
    for table in tables.values():
        assert len(set(table.values())) == len(table)
