"""What the SQLite driver promises beyond the contract: splicing, and a tidy file."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from toolnexus_stores import Store


def rows_of(file: Path) -> list[tuple[int, str]]:
    """Position and text of every message row, in order."""
    with closing(sqlite3.connect(file)) as connection:
        return connection.execute(
            "SELECT position, text FROM toolnexus_transcripts ORDER BY key, position"
        ).fetchall()


@pytest.mark.parametrize("cache", ["64MiB", "0"])
async def test_a_save_touches_the_changed_tail_only(
    tmp_path: Path, opened: Callable[..., Store], cache: str
) -> None:
    file = tmp_path / "x.db"
    store = opened(f"sqlite:///{file}", cache=cache)
    messages: list[dict[str, Any]] = [{"n": n} for n in range(100)]
    await store.save("a", messages)
    with closing(sqlite3.connect(file)) as connection:
        connection.executescript(
            """
            CREATE TABLE touched (verb TEXT, position INTEGER);
            CREATE TRIGGER ins AFTER INSERT ON toolnexus_messages BEGIN
                INSERT INTO touched VALUES ('insert', new.place & 16777215); END;
            CREATE TRIGGER del AFTER DELETE ON toolnexus_messages BEGIN
                INSERT INTO touched VALUES ('delete', old.place & 16777215); END;
            CREATE TRIGGER upd AFTER UPDATE ON toolnexus_messages BEGIN
                INSERT INTO touched VALUES ('update', new.place & 16777215); END;
            """
        )

    def touched() -> list[tuple[str, int]]:
        with closing(sqlite3.connect(file, isolation_level=None)) as connection:
            rows = connection.execute("SELECT verb, position FROM touched").fetchall()
            connection.execute("DELETE FROM touched")
            return rows

    await store.save("a", messages)
    assert touched() == []
    messages += [{"n": 100}, {"n": 101}]
    await store.save("a", messages)
    assert touched() == [("insert", 100), ("insert", 101)]
    messages[100] = {"n": "edited"}
    await store.save("a", messages)
    assert sorted(touched()) == [
        *[("delete", 100), ("delete", 101)],
        *[("insert", 100), ("insert", 101)],
    ]
    await store.save("a", messages[:50])
    assert sorted(touched()) == [("delete", n) for n in range(50, 102)]
    assert [position for position, _ in rows_of(file)] == list(range(50))
    assert await store.get("a") == messages[:50]


async def test_deleting_leaves_no_row(tmp_path: Path, opened: Callable[..., Store]) -> None:
    store = opened(f"sqlite:///{tmp_path}/x.db")
    for id in ("a", "b", "c"):
        await store.save(id, [{"id": id}] * 3)
    assert await store.delete("b")
    assert not await store.delete("b")
    assert [text for _, text in rows_of(tmp_path / "x.db")] == ['{"id":"a"}'] * 3 + [
        '{"id":"c"}'
    ] * 3
    await store.save("b", [{"id": "new"}])
    assert await store.get("b") == [{"id": "new"}]


async def test_a_text_that_is_too_large_fails_alone(
    tmp_path: Path, opened: Callable[..., Store]
) -> None:
    """Saves that share a commit do not share a fault: here, one that a trigger refuses."""
    file = tmp_path / "x.db"
    store = opened(f"sqlite:///{file}")
    await store.save("x", [])
    with closing(sqlite3.connect(file)) as connection:
        connection.executescript(
            "CREATE TRIGGER refuse BEFORE INSERT ON toolnexus_messages "
            "WHEN new.text LIKE '%refused%' BEGIN SELECT RAISE(ABORT, 'refused'); END"
        )
    results = await asyncio.gather(
        *(store.save(f"c{n}", [{"n": "refused" if n == 7 else n}]) for n in range(20)),
        return_exceptions=True,
    )
    failed = [n for n, result in enumerate(results) if result is not None]
    assert failed == [7]
    assert "refused" not in str(results[7])
    assert [await store.get(f"c{n}") for n in (6, 7, 8)] == [[{"n": 6}], None, [{"n": 8}]]


async def test_it_lives_beside_the_tables_of_its_host(
    tmp_path: Path, opened: Callable[..., Store]
) -> None:
    file = tmp_path / "app.db"
    with closing(sqlite3.connect(file)) as connection:
        connection.executescript(
            "CREATE TABLE messages (mine TEXT); CREATE TABLE conversations (x)"
        )
    store = opened(f"sqlite:///{file}")
    await store.save("a", [{"n": 1}])
    assert await store.get("a") == [{"n": 1}]


async def test_closing_folds_the_log_into_the_database(
    tmp_path: Path, opened: Callable[..., Store]
) -> None:
    store = opened(f"sqlite:///{tmp_path}/x.db")
    await store.save("a", [{"n": 1}])
    await store.close()
    assert [path.name for path in tmp_path.iterdir()] == ["x.db"]
