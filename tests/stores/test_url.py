"""URLs and configuration: what is accepted, what is refused, and what no text may show."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from toolnexus_stores import InvalidId, InvalidURL, MissingExtra, open_store, store_from_config
from toolnexus_stores import url as url_module
from toolnexus_stores.drivers.file import FileOptions
from toolnexus_stores.drivers.sqlite import SqliteOptions
from toolnexus_stores.options import DriverOptions, Location, StoreOptions

SECRET = "hunter2"


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("", "scheme://"),
        ("x.db", "scheme://"),
        ("nosuch://x", "unknown scheme 'nosuch'"),
        ("sqlit:///x.db", "did you mean sqlite"),
        ("sqlite+psycopg:///x.db", "unknown scheme"),
        ("sqlite://x.db", "sqlite:///relative.db"),
        ("sqlite://", "sqlite:///relative.db"),
        ("file://relative/dir", "file:///absolute/dir"),
        ("file://", "file:///absolute/dir"),
        ("memory://host", "no host"),
        ("sqlite:///x.db?cahce=1MiB", "did you mean cache"),
        ("file:///x?durabilty=power", "did you mean durability"),
        ("file:///x?path=/elsewhere", "unknown option 'path'"),
        ("file:///x?durability=maybe", "'power' or 'process'"),
        ("file:///x?timeout=soon", "option 'timeout'"),
        ("file:///x?timeout=0", "option 'timeout'"),
        ("file:///x?timeout=nan", "option 'timeout'"),
        ("file:///x?cache=-1", "option 'cache'"),
        ("file:///x?scope=", "option 'scope'"),
        ("file:///x?timeout=1&timeout=2", "given twice"),
        ("file:///x?timeout", "malformed"),
        ("file:///x#y", "%23"),
        ("file:///x%00y", "NUL"),
        ("file://[::1/x", "malformed"),
    ],
)
def test_a_wrong_url_is_refused_with_what_to_do(url: str, says: str) -> None:
    with pytest.raises(InvalidURL, match=says.replace("?", r"\?")):
        open_store(url)


@pytest.mark.parametrize(
    "url",
    [
        f"nosuch://user:{SECRET}@host/db",
        f"file://user:{SECRET}@host/dir",
        f"sqlite://user:{SECRET}@host/x.db",
        f"memory://user:{SECRET}@host",
        f"file:///x?timeout={SECRET}",
        f"sqlite://:{SECRET}#@host/x",
        SECRET,
    ],
)
def test_no_text_shows_a_secret(url: str) -> None:
    with pytest.raises(InvalidURL) as caught:
        open_store(url)
    error: BaseException | None = caught.value
    while error is not None:
        assert SECRET not in str(error)
        error = error.__cause__


def test_an_option_of_the_wrong_type_is_refused() -> None:
    with pytest.raises(InvalidURL, match="option 'timeout'"):
        open_store("memory://", timeout="soon")
    with pytest.raises(InvalidURL, match="unknown option 'tiemout'"):
        open_store("memory://", tiemout=3)
    with pytest.raises(InvalidURL, match="string, not int"):
        open_store(3)  # type: ignore[arg-type] # what a caller without types may pass


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("file:///abs/dir", "/abs/dir"),
        ("file://localhost/abs/dir", "/abs/dir"),
        ("file://./rel/dir", "rel/dir"),
        ("file:///with%20space/%23", "/with space/#"),
    ],
)
def test_where_a_file_url_points(url: str, path: str) -> None:
    location = url_module._taken_apart(url)[0]
    assert FileOptions.locate(location) == {"path": Path(path).absolute()}


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:////abs/x.db", "/abs/x.db"),
        ("sqlite+aiosqlite:////abs/x.db", "/abs/x.db"),
        ("sqlite:///rel/x.db", str(Path("rel/x.db").absolute())),
        ("sqlite:///:memory:", ":memory:"),
    ],
)
def test_where_a_sqlite_url_points(url: str, path: str) -> None:
    location = url_module._taken_apart(url)[0]
    assert SqliteOptions.locate(location) == {"path": path}


async def test_a_relative_path_is_that_of_the_opening(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with open_store("sqlite:///x.db") as store:
        monkeypatch.chdir("/")
        await store.save("a", [])
    assert (tmp_path / "x.db").exists()


async def test_memory_and_sqlite_in_memory_work() -> None:
    async with open_store("sqlite:///:memory:") as store:
        await store.save("a", [{"n": 1}])
        assert await store.get("a") == [{"n": 1}]


def test_opening_touches_nothing(tmp_path: Path) -> None:
    open_store(f"file://{tmp_path}/dir")
    open_store(f"sqlite:///{tmp_path}/x.db")
    assert list(tmp_path.iterdir()) == []


def test_the_environment_names_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TOOLNEXUS_STORE_URL", raising=False)
    with pytest.raises(InvalidURL, match="TOOLNEXUS_STORE_URL"):
        open_store()
    monkeypatch.setenv("TOOLNEXUS_STORE_URL", f"file://{tmp_path}")
    assert str(tmp_path) in repr(open_store())


def test_the_options_of_a_call_override_those_of_the_url() -> None:
    store = open_store("memory://?timeout=5&cache=1KiB", timeout=7)
    assert store._shared._options == StoreOptions.model_validate({"timeout": 7, "cache": "1KiB"})


def test_the_representation_shows_no_option_and_no_user(tmp_path: Path) -> None:
    store = open_store(f"file://{tmp_path}?timeout=5")
    assert repr(store) == f"<Store file://{tmp_path}>"
    assert SECRET not in url_module._redacted(Location("x", f"u:{SECRET}@h", "/db"))


CONFIG = {"mcpServers": {}, "conversationStore": "file://${STORE_DIR}/x"}


@pytest.mark.parametrize("shape", ["file", "mapping", "table"])
async def test_the_runtimes_configuration_names_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shape: str
) -> None:
    monkeypatch.setenv("STORE_DIR", str(tmp_path))
    config: dict[str, object] = dict(CONFIG)
    if shape == "table":
        config["conversationStore"] = {"url": CONFIG["conversationStore"], "timeout": 5}
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps(config))
    async with store_from_config(file if shape == "file" else config) as store:
        await store.save("a", [])
    assert (tmp_path / "x").is_dir()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "cannot be read as JSON"),
        ("[]", "not a JSON object"),
        ("{}", "'conversationStore'"),
        ('{"conversationStore": 3}', "'conversationStore'"),
        ('{"conversationStore": {"timeout": 3}}', "no 'url'"),
        ('{"conversationStore": "file://${NO_SUCH_VARIABLE}"}', "NO_SUCH_VARIABLE"),
        ('{"conversationStore": {"url": "memory://", "scop": "x"}}', "did you mean scope"),
    ],
)
def test_a_wrong_configuration_is_refused(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "mcp.json"
    file.write_text(text)
    with pytest.raises(InvalidURL, match=says):
        store_from_config(file)
    with pytest.raises(InvalidURL, match="cannot be read"):
        store_from_config(tmp_path / "missing.json")


class _Needy(DriverOptions):
    requires = {"a_client_that_nobody_has": "toolnexus-stores[needy]"}  # noqa: RUF012 - a test


def test_a_missing_client_is_named_with_what_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(url_module, "_options_of", lambda _: _Needy)
    with pytest.raises(MissingExtra, match=r"pip install 'toolnexus-stores\[needy\]'"):
        open_store("needy://x")


async def test_scopes_do_not_see_each_other(tmp_path: Path) -> None:
    async with open_store(f"sqlite:///{tmp_path}/x.db") as store:
        one, two = store.scoped("user-1"), store.scoped("user-2")
        for scope, text in ((store, "none"), (one, "one"), (two, "two"), (one.scoped("x"), "in")):
            await scope.save("root/helper.1", [{"text": text}])
        assert await one.get("root/helper.1") == [{"text": "one"}]
        assert await two.get("root/helper.1") == [{"text": "two"}]
        for scope in (store, one, two):
            assert [id async for id in scope.ids()] == ["root/helper.1"]
        await one.close()  # a view: the store goes on
        assert await store.get("root/helper.1") == [{"text": "none"}]
        async with open_store(f"sqlite:///{tmp_path}/x.db?scope=user-1") as by_url:
            assert await by_url.get("root/helper.1") == [{"text": "one"}]


@pytest.mark.parametrize("scope", ["", None, 3])
async def test_a_scope_is_a_non_empty_string(scope: str) -> None:
    async with open_store("memory://") as store:
        with pytest.raises(InvalidId):
            store.scoped(scope)


def test_scopes_nest_only_so_deep() -> None:
    store = open_store("memory://").scoped("a").scoped("b").scoped("c").scoped("d")
    with pytest.raises(InvalidId, match="4 deep"):
        store.scoped("e")


def test_importing_the_package_imports_no_client() -> None:
    script = (
        "import sys, toolnexus_stores; toolnexus_stores.open_store('sqlite:///x.db');"
        "clients = {'aiosqlite', 'sqlite3', 'asyncpg', 'redis', 'boto3', 'toolnexus', 'pytest'};"
        "print(sorted(clients & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() in {"[]", "['sqlite3']"}
