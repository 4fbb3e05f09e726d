"""The demo: what it stores, that it can be run again, and that it fails over a broken store."""

from __future__ import annotations

import os
import pty
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from toolnexus_stores import open_store

DEMO = Path(__file__).parents[1] / "examples" / "demo.py"
COMMAND = [sys.executable, str(DEMO), "--fast"]
SECONDS = 50


def demo(place: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the demo in *place*, without a terminal; a warning anywhere in it is an error."""
    return subprocess.run(
        COMMAND,
        cwd=place,
        env=os.environ | {"PYTHONWARNINGS": "error", **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


async def conversations(place: Path) -> dict[str, list[dict[str, Any]]]:
    async with open_store(f"sqlite:///{place}/demo.db") as store:
        return {id: await store.get(id) or [] async for id in store.ids()}


async def test_both_processes_turns_are_stored_however_often_it_runs(tmp_path: Path) -> None:
    known: dict[str, list[dict[str, Any]]] = {}
    for runs in (1, 2):
        done = demo(tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
        stored = await conversations(tmp_path)
        assert len(stored) == runs
        assert stored.items() >= known.items()  # what earlier runs stored is as it was
        [id] = stored.keys() - known.keys()
        assert id in done.stdout

        messages = stored[id]
        assert [message["role"] for message in messages] == [
            *("user", "assistant"),
            *("user", "assistant", "tool", "assistant"),
            *("user", "assistant", "tool", "assistant"),
            *("user", "assistant"),
        ]
        signed = [message["pid"] for message in messages if message["role"] == "assistant"]
        first, second = signed[0], signed[-1]
        assert signed == [first] * 3 + [second] * 3
        assert first != second
        for pid in (first, second):
            assert f"process {pid} starts" in done.stdout
        assert f"process {first} is gone" in done.stdout
        prompts = [message["content"] for message in messages if message["role"] == "user"]
        assert prompts[0] == "Hello, I am Ada."
        assert "When will it be here?" not in prompts  # the turn that was killed
        for fact in ("Ada", "Lyon", "tomorrow"):
            assert fact in messages[-1]["content"]
        known = stored


def test_it_leaves_alone_what_it_did_not_make(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "demo.db")) as database:
        database.executescript("CREATE TABLE mine (x); INSERT INTO mine VALUES ('precious')")
    assert demo(tmp_path).returncode == 0
    with closing(sqlite3.connect(tmp_path / "demo.db")) as database:
        assert database.execute("SELECT x FROM mine").fetchall() == [("precious",)]

    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "demo.db").write_text("my notes\n" * 1000)
    done = demo(tmp_path / "notes")
    assert done.returncode == 1
    assert "damaged, or not a database" in done.stderr
    assert (tmp_path / "notes" / "demo.db").read_text() == "my notes\n" * 1000


def test_it_works_where_only_ascii_can_be_shown(tmp_path: Path) -> None:
    done = demo(tmp_path, TERM="dumb", PYTHONIOENCODING="ascii", COLUMNS="40", LC_ALL="C")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.isascii()
    assert "\033" not in done.stdout


def test_it_works_on_a_terminal(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    environment = os.environ | {"PYTHONWARNINGS": "error", "TERM": "xterm-256color"}
    with subprocess.Popen(
        COMMAND, cwd=tmp_path, env=environment, stdin=theirs, stdout=theirs, stderr=theirs
    ) as child:
        os.close(theirs)
        shown = b""
        try:
            while some := os.read(ours, 65536):
                shown += some
        except OSError:  # what Linux says when the other side of a terminal is closed
            pass
        finally:
            os.close(ours)
    assert child.returncode == 0, shown.decode()
    assert b"\033[" in shown


def test_it_ends_quietly_when_it_is_interrupted(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, str(DEMO)],  # with its pauses: it is in one of them
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
    ) as child:
        assert child.stdout is not None
        for line in child.stdout:
            if "Hello, I am Ada." in line:
                break
        os.killpg(child.pid, signal.SIGINT)  # as a terminal does: to all of its processes
        _, complaints = child.communicate(timeout=SECONDS)
    assert (child.returncode, complaints) == (130, "")


# Broken stores, one promise each. They are broken in every process of the demo.
SABOTAGE = {
    "a save that saves nothing": """
        async def save(self, id, messages):
            pass
        Store.save = save
    """,
    "an agent that starts from nothing after the kill": """
        get, first = Store.get, []
        async def get_later(self, id):
            found = await get(self, id)
            if found and "--agent" in sys.argv and not first:
                first.append(found)
            return None if first and found == first[0] else found
        Store.get = get_later
    """,
    "a save without the tools' results": """
        save = Store.save
        async def save_less(self, id, messages):
            await save(self, id, [m for m in messages if m["role"] != "tool"])
        Store.save = save_less
    """,
    "a save before the end of the turn": """
        get = Store.get
        async def get_and_save(self, id):
            found = await get(self, id)
            if "--agent" in sys.argv:
                await self.save(id, [*(found or []), {"role": "user", "content": "half a turn"}])
            return found
        Store.get = get_and_save
    """,
    "a save that changes what was said": """
        save = Store.save
        async def save_other(self, id, messages):
            await save(self, id, [*messages[:-1], {**messages[-1], "content": "Hello."}])
        Store.save = save_other
    """,
    "an agent that cannot start": """
        async def get(self, id):
            raise RuntimeError("broken on purpose")
        Store.get = get
    """,
}


@pytest.mark.parametrize("broken", SABOTAGE)
def test_it_fails_if_the_store_is_broken(tmp_path: Path, broken: str) -> None:
    lines = [line[8:] for line in SABOTAGE[broken].splitlines()]
    code = "\n".join(["import sys", "from toolnexus_stores import Store", *lines])
    (tmp_path / "sitecustomize.py").write_text(code)
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
    done = demo(tmp_path, PYTHONPATH=path)
    assert done.returncode == 1
    assert " NO " in done.stdout or "ended before its time" in done.stderr
