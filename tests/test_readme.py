"""The documents say what is so: programs run, commands exist, tables are complete."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import importlib.metadata
import itertools
import json
import os
import re
import shutil
import sqlite3
import stat
import subprocess
import sys
import tomllib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import toolnexus_stores
from toolnexus import create_toolkit
from toolnexus_stores import Store, StoreError, open_store, store_from_config
from toolnexus_stores.options import StoreOptions
from toolnexus_stores_contract import all_checks

from .runtime.dialects import Reply, said_by
from .runtime.model_server import ModelServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from toolnexus_stores.options import DriverOptions

    from .runtime.model_server import Asked

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text("utf-8")
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
BACKENDS = (ROOT / "docs/backends.md").read_text("utf-8")
DOCUMENTS = {"README.md": README, "CONTRIBUTING.md": CONTRIBUTING}
GROUP = "toolnexus_stores.drivers"
SECONDS = 200
PAGES = ("docs/custom-stores.md", "docs/contract-matrix.md")


@dataclass(frozen=True)
class Block:
    """A fenced block of the README."""

    language: str
    heading: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.language}, line {self.line}"


def blocks_of(document: str) -> Iterator[Block]:
    heading, language, start, lines = "", None, 0, list[str]()
    for number, line in enumerate(document.splitlines(), 1):
        if line.startswith("```"):
            if language is None:
                language, start, lines = line[3:], number, []
            else:
                yield Block(language, heading, start, "\n".join(lines) + "\n")
                language = None
        elif language is not None:
            lines.append(line)
        elif line.startswith("#"):
            heading = line.lstrip("# ")
    assert language is None, "a block is not closed"


def table_under(document: str, heading: str, nth: int = 0) -> list[list[str]]:
    """The rows of the *nth* table under *heading*, without its head."""
    section = re.split(rf"^#+ {re.escape(heading)}$", document, flags=re.MULTILINE)[1]
    section = re.split(r"^#", section, flags=re.MULTILINE)[0]
    tables = re.findall(r"(?:^\|.*\n)+", section, flags=re.MULTILINE)
    rows = [[cell.strip() for cell in line[1:-1].split(" | ")] for line in tables[nth].splitlines()]
    return rows[2:]


def code(cell: str) -> str:
    """The one code span of a cell."""
    [text] = re.findall(r"`([^`]+)`", cell)
    return str(text)


BLOCKS = list(blocks_of(README))
PYTHON = [block for block in BLOCKS if block.language == "python"]
SHELL = [block for block in BLOCKS if block.language == "sh"]
[JSON] = [block for block in BLOCKS if block.language == "json"]


def under(heading: str, blocks: list[Block]) -> Block:
    [block] = [block for block in blocks if block.heading == heading]
    return block


def tell(asked: Asked) -> Reply:
    return Reply(f"I was asked: {' / '.join(said_by('user', asked.messages))}")


@pytest.fixture
def model() -> Iterator[ModelServer]:
    with ModelServer(tell) as server:
        yield server
    assert server.failures == []


@pytest.fixture
def run(tmp_path: Path, model: ModelServer) -> Callable[[Block], list[str]]:
    """Runs a program of the README as a reader would, in a fresh directory; gives its output."""
    (tmp_path / "mcp.json").write_text(JSON.text)
    environment = {k: v for k, v in os.environ.items() if not k.endswith("_API_KEY")} | {
        "OPENAI_BASE_URL": model.url,
        "OPENAI_API_KEY": "none needed",
        "DATA_DIR": str(tmp_path),
        "PYTHONWARNINGS": "error",
    }

    def run_block(block: Block) -> list[str]:
        program = tmp_path / "README.py"
        program.write_text("\n" * block.line + block.text)  # so that a traceback names the line
        done = subprocess.run(
            [sys.executable, program.name],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout.splitlines()

    return run_block


@pytest.mark.parametrize("block", PYTHON, ids=str)
def test_a_program_runs_and_prints_what_it_says(
    run: Callable[[Block], list[str]], block: Block
) -> None:
    printed = run(block)
    promised = re.findall(r"# -> (.*)$", block.text, flags=re.MULTILINE)
    if promised:
        assert printed == promised
    elif "print(" in block.text:
        assert [line[:12] for line in printed] == ["I was asked:"]
    else:
        assert printed == []


async def test_the_second_run_of_the_first_program_is_shown_the_first(
    tmp_path: Path, run: Callable[[Block], list[str]], model: ModelServer
) -> None:
    run(PYTHON[0])
    [answer] = run(PYTHON[0])
    first, second = (said_by("user", asked.messages) for asked in model.asked)
    assert second == first * 2
    async with open_store(f"sqlite:///{tmp_path}/chats.db") as store:
        stored = await store.get("chat-1")
    assert stored is not None
    assert said_by("user", stored) == second
    assert said_by("assistant", stored)[1] == answer


async def test_two_runs_of_an_agent_continue_each_other_inside_their_scope_only(
    tmp_path: Path, run: Callable[[Block], list[str]], model: ModelServer
) -> None:
    block = under("Agents", PYTHON)
    run(block)
    run(block)
    other = block.text.replace("user-42", "user-43")
    assert other != block.text
    run(Block(block.language, block.heading, block.line, other))
    assert [len(said_by("user", asked.messages)) for asked in model.asked] == [1, 2, 1]
    async with open_store(f"sqlite:///{tmp_path}/chats.db") as store:
        for user in ("user-42", "user-43"):
            assert [id async for id in store.scoped(user).ids()] == ["root/desk.1"]
        assert [id async for id in store.ids()] == []


async def test_the_configuration_is_one_for_the_store_and_for_the_runtime(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATA_DIR", str(tmp_path))
    file = tmp_path / "mcp.json"
    file.write_text(JSON.text)
    async with store_from_config(file) as store, await create_toolkit(str(file), builtins=False):
        await store.save("a", [])
        assert (
            store._shared._options.timeout == json.loads(JSON.text)["conversationStore"]["timeout"]
        )
    assert (tmp_path / "chats.db").exists()


# The tables.


def schemes() -> dict[str, type[DriverOptions]]:
    """Every scheme that is registered, by each of its spellings."""
    found: dict[str, type[DriverOptions]] = {}
    for entry in importlib.metadata.entry_points(group=GROUP):
        if not entry.value.startswith("toolnexus_stores."):
            continue  # somebody else's driver, installed here
        options: type[DriverOptions] = entry.load()
        found |= dict.fromkeys({entry.name, *options.aliases}, options)
    return found


URLS = [code(row[0]) for row in table_under(README, "URLs")]


@pytest.mark.parametrize("url", URLS)
async def test_a_url_of_the_table_is_accepted(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if "host" in url or url.startswith(("unix", "s3")):
        assert "password" not in repr(open_store(url))  # tests/backends opens real ones
        return
    if not url.startswith(("file:///", "sqlite:////")):  # /var/lib is not ours to write to
        async with open_store(url) as store:
            await store.save("a", [])
            assert await store.get("a") == []
    else:
        here = open_store(url.replace("/var/lib", str(tmp_path)))
        async with here as store:
            await store.save("a", [])
        assert (tmp_path / "chats.db").is_file() or (tmp_path / "chats" / "t").is_dir()
        assert "/var/lib/chats" in repr(open_store(url))
    modes = {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.rglob("*")}
    assert modes <= {0o600, 0o700}


def test_the_table_has_every_scheme() -> None:
    with_a_client = {"postgres+asyncpg", "postgres+psycopg"}  # told in words
    with_a_client |= {"postgresql+asyncpg", "postgresql+psycopg"}
    assert {url.partition("://")[0] for url in URLS} == set(schemes()) - with_a_client


async def test_the_directory_of_a_database_must_exist(tmp_path: Path) -> None:
    async with open_store(f"sqlite:///{tmp_path}/no/x.db") as store:
        with pytest.raises(toolnexus_stores.Unavailable):
            await store.open()


# A URL of each kind of driver, and where its options are told.
SECTIONS = {"postgres": "Postgres", "redis": "Redis", "s3": "S3"}
BARE = {
    "memory": "memory://",
    "file": "file://./x",
    "sqlite": "sqlite:///x.db",
    "postgres": "postgresql:///",
    "redis": "rediss://",
    "s3": "s3://bucket",
}


def told_options() -> Iterator[tuple[str, str, str]]:
    """Scheme, option and default, from all tables."""
    for option, default, where, _ in table_under(README, "Options"):
        for scheme in BARE if where == "all" else where.split(", "):
            yield scheme, code(option), default
    for scheme, heading in SECTIONS.items():
        for option, default, _ in table_under(BACKENDS, heading):
            yield scheme, code(option), default


def test_the_tables_have_every_option() -> None:
    accepted = set()
    for scheme, url in BARE.items():
        location, _ = toolnexus_stores.url._taken_apart(url)
        model = schemes()[scheme]
        own = model.option_names() - model.locate(location).keys()
        accepted |= {(scheme, name) for name in own | StoreOptions.model_fields.keys()}
    told = [(scheme, option) for scheme, option, _ in told_options()]
    assert sorted(told) == sorted(accepted)
    assert set(schemes().values()) == {schemes()[scheme] for scheme in BARE}


# Another value than the default, where 1 makes no sense.
OTHER = {
    "power": "process",
    "prefer": "disable",
    "any": "primary",
    "auto": "path",
    "required": "off",
    "overwrite": "error",
    "false": "true",
    "toolnexus": "another",
    "toolnexus-stores": "another",
}


@pytest.mark.parametrize(
    ("scheme", "option", "default"), [each for each in told_options() if each[2] != "none"]
)
def test_an_option_has_the_default_that_its_table_tells(
    scheme: str, option: str, default: str
) -> None:
    url, value = BARE[scheme], code(default)
    standard = options_of(open_store(url))
    assert options_of(open_store(f"{url}?{option}={value}")) == standard
    assert options_of(open_store(f"{url}?{option}={OTHER.get(value, '1')}")) != standard


def options_of(store: Store) -> tuple[Any, ...]:
    """Everything that a URL's query decided."""
    driver = store._shared._driver
    model: Any = getattr(driver, "__self__")  # noqa: B009 - the options that the driver is made from
    return store._shared._options, model


def test_the_keyword_wins_and_the_scope_is_that_of_scoped() -> None:
    example = re.search(r"`(sqlite:///chats\.db\?[^`]+)`", README)
    assert example is not None
    options = open_store(example[1])._shared._options
    assert options == StoreOptions.model_validate({"timeout": "10", "cache": "16MiB"})
    assert open_store(example[1], timeout=20)._shared._options.timeout == 20
    assert open_store("memory://?scope=x")._keys == open_store("memory://").scoped("x")._keys


def test_the_table_has_every_error() -> None:
    exported = {
        name
        for name in toolnexus_stores.__all__
        if isinstance(getattr(toolnexus_stores, name), type)
        and issubclass(getattr(toolnexus_stores, name), StoreError)
    }
    rows = table_under(README, "Errors")
    assert [code(row[0]) for row in rows] == list(dict.fromkeys(code(row[0]) for row in rows))
    assert {code(row[0]) for row in rows} == exported
    for row in rows:
        assert len(row) == 3
        assert row[2] or code(row[0]) == "StoreError"


async def test_the_text_of_the_errors_table_is_the_real_one() -> None:
    [row] = [row for row in table_under(README, "Errors") if "InvalidTranscript" in row[0]]
    example = re.search(r"`(messages[^`]+)`", row[1])
    assert example is not None
    async with open_store("memory://") as store:
        with pytest.raises(toolnexus_stores.InvalidTranscript) as caught:
            await store.save("a", [{}, {}, {}, {"content": b""}])
    assert str(caught.value) == example[1]


# The commands.


def targets() -> set[str]:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    return set(re.findall(r"^([a-z]+):", makefile, flags=re.MULTILINE))


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_make_target_exists(name: str) -> None:
    spans = "\n".join(spans_of(DOCUMENTS[name]))
    used = set(re.findall(r"^make ([a-z]+)\b", spans, flags=re.MULTILINE))
    assert used >= {"demo", "test"}
    assert used <= targets()


def spans_of(document: str) -> list[str]:
    """All that is set as code, each with a blank after it."""
    fenced = [block.text for block in blocks_of(document)]
    outside = re.sub(r"^```.*?^```$", "", document, flags=re.MULTILINE | re.DOTALL)
    return [*fenced, *(f"{span} " for span in re.findall(r"`([^`\n]+)`", outside))]


@pytest.mark.parametrize("name", [*DOCUMENTS, "CHANGELOG.md", *PAGES])
def test_every_path_exists(name: str) -> None:
    spans = spans_of((ROOT / name).read_text("utf-8"))
    paths = {
        span.strip()
        for span in spans
        if re.fullmatch(r"[\w./]+(\.py|\.md|/) ", span) and span.strip() != "README.py"
    }
    assert paths or name == "CHANGELOG.md"
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_the_runtime_that_is_to_be_installed_is_the_one_that_is_tested() -> None:
    [command] = [span for span in spans_of(README) if span.startswith("python3 -m pip install .")]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    [wanted] = [r for r in project["optional-dependencies"]["dev"] if r.startswith("toolnexus")]
    assert f"'{wanted}'" in command
    assert project["requires-python"] == ">=3.11"


def needs(*tools: str) -> pytest.MarkDecorator:
    missing = [tool for tool in tools if shutil.which(tool) is None]
    return pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}")


async def shell(block: Block, place: Path) -> str:
    def run() -> str:
        done = subprocess.run(
            ["/bin/sh", "-e", "-c", block.text],
            cwd=place,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    return await asyncio.to_thread(run)


TALK: list[dict[str, Any]] = [
    {"role": "user", "content": "Hello"},
    {"role": "assistant", "content": None, "tool_calls": []},
    {"role": "assistant", "content": "Hello, \u00e9\u00e8."},
]


@needs("jq", "sqlite3")
async def test_what_is_stored_can_be_looked_at(
    tmp_path: Path, opened: Callable[..., Store]
) -> None:
    for url in (f"file://{tmp_path}/chats", f"sqlite:///{tmp_path}/chats.db"):
        store = opened(url)
        await store.save("chat-1", TALK)
        await store.save("chat-2", [{"role": "user", "content": "not to be shown"}])
    shown = (await shell(under("What is stored", SHELL), tmp_path)).splitlines()
    assert shown[0] == "chat-1"
    assert [json.loads(line) for line in shown[1:4]] == [[m["role"], m["content"]] for m in TALK]
    rows = [line.split("|", 1) for line in shown[4:]]
    assert [(int(number), json.loads(text)) for number, text in rows] == list(enumerate(TALK))


async def test_the_files_lie_where_the_table_says(
    tmp_path: Path, opened: Callable[..., Store]
) -> None:
    store = opened(f"file://{tmp_path}/chats")
    await store.save("chat-1", TALK)
    await store.scoped("user-42").save("root/desk.1", TALK)
    globs = [code(row[0]) for row in table_under(README, "What is stored")]
    found = {glob: set(tmp_path.glob(glob)) for glob in globs}
    assert all(found.values())
    told = set[Path]().union(*found.values())
    assert {path for path in tmp_path.rglob("*") if path.is_file()} <= told
    locks = found["chats/.locks/*"]
    assert {path.stat().st_size for path in locks} == {0}
    (conversation,) = found["chats/t/chat-1-*.jsonl"]
    assert len(conversation.read_text().splitlines()) == 1 + len(TALK)


def stamped(stamp: int) -> list[dict[str, Any]]:
    return [{"stamp": stamp, "n": n} for n in range(20)]


@needs("sqlite3")
async def test_a_backup_taken_while_saves_go_on_is_whole(
    tmp_path: Path, opened: Callable[..., Store]
) -> None:
    stores = [opened(f"file://{tmp_path}/chats"), opened(f"sqlite:///{tmp_path}/chats.db")]
    for store in stores:
        await store.save("early", stamped(-1))

    begun = [asyncio.Event() for _ in stores]

    async def save_on(store: Store, saved: asyncio.Event) -> None:
        for stamp in itertools.count():
            await store.save("busy", stamped(stamp))
            saved.set()

    saving = [asyncio.create_task(save_on(*each)) for each in zip(stores, begun, strict=True)]
    try:
        await asyncio.gather(*(saved.wait() for saved in begun))
        await shell(under("Backing up", SHELL), tmp_path)
    finally:
        for task in saving:
            task.cancel()
        await asyncio.gather(*saving, return_exceptions=True)

    for url in (f"file://{tmp_path}/backup", f"sqlite:///{tmp_path}/backup.db"):
        copy = opened(url)
        assert await copy.get("early") == stamped(-1)
        busy = await copy.get("busy")
        assert busy is not None
        assert busy == stamped(busy[0]["stamp"])
    for path in (tmp_path / "backup", tmp_path / "backup.db"):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0


async def test_a_copy_of_the_database_file_alone_lacks_what_is_committed(
    tmp_path: Path, opened: Callable[..., Store]
) -> None:
    store = opened(f"sqlite:///{tmp_path}/chats.db")
    await store.save("a", TALK)
    shutil.copy(tmp_path / "chats.db", tmp_path / "copy.db")
    assert (tmp_path / "chats.db-wal").stat().st_size > 0
    assert await opened(f"sqlite:///{tmp_path}/copy.db").get("a") is None
    assert await store.get("a") == TALK


async def test_a_message_that_was_edited_by_hand_is_damage(
    tmp_path: Path, opened: Callable[..., Store]
) -> None:
    await opened(f"sqlite:///{tmp_path}/chats.db").save("a", TALK)
    with contextlib.closing(sqlite3.connect(tmp_path / "chats.db")) as database:
        database.execute("UPDATE toolnexus_messages SET text = replace(text, 'Hello', 'Bye')")
        database.commit()
    with pytest.raises(toolnexus_stores.CorruptRecord):
        await opened(f"sqlite:///{tmp_path}/chats.db").get("a")


# The layout of the code.


def test_each_module_imports_only_modules_below_it() -> None:
    package = ROOT / "stores" / "toolnexus_stores"
    order = [code(row[0]) for row in table_under(CONTRIBUTING, "The tree", 1)]
    folders = {"cli", "drivers"}
    modules = {path.stem for path in package.glob("[!_]*.py")} | folders
    assert set(order) == modules, "the table in CONTRIBUTING.md does not list the modules"
    for rank, module in enumerate(order):
        inside = package.glob(f"{module}/*.py")
        files = inside if module in folders else [package / f"{module}.py"]
        for file in files:
            above = imported_by(file) & set(order[: rank + (module not in folders)])
            assert not above, f"{file.name} imports {above}"


def imported_by(file: Path) -> set[str]:
    """The modules of the package that *file* imports, for its types too."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom):
            name = node.module or ""
            if node.level == 1:
                found |= {name.partition(".")[0]} if name else {alias.name for alias in node.names}
            elif name.startswith("toolnexus_stores."):
                found.add(name.split(".")[1])
    return found


MY_STORE = """
from toolnexus_stores import open_store as open_one

class Picky:
    def __init__(self, store):
        self.get, self.store = store.get, store
    async def save(self, id, messages):
        if any(isinstance(value, tuple) for each in messages for value in each.values()):
            raise TypeError("no tuples")
        await self.store.save(id, messages)
    async def close(self):
        await self.store.close()

def open_store():
    return Picky(open_one("file://./chats"))
"""


def test_the_contract_test_runs_as_it_is_written(tmp_path: Path) -> None:
    block = under("The contract suite", PYTHON)
    (tmp_path / "test_my_store.py").write_text(block.text)
    (tmp_path / "my_store.py").write_text(MY_STORE)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_my_store.py"]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    run = sum(check.level in {"core", "concurrent", "durable"} for check in all_checks())
    # One is expected to fail, and one item looks after the list of those.
    assert f"{run} passed, 1 xfailed" in done.stdout, done.stdout + done.stderr


@pytest.mark.timeout(240)
async def test_the_contract_command_runs_as_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_store.py").write_text(MY_STORE)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    monkeypatch.setenv("PATH", path)
    block = under("The contract suite", SHELL)
    printed = await shell(Block("sh", "", 0, f"{block.text.rstrip()} 2>/dev/null"), tmp_path)
    count = sum(check.level == "core" for check in all_checks())
    assert f"my_store:open_store: core {count - 1}/{count} · concurrent " in printed
    assert "core.json_form: we store messages as they are" in printed


def test_the_table_of_levels_counts_the_checks() -> None:
    counted = Counter(check.level for check in all_checks())
    rows = table_under(README, "The contract suite")
    assert {code(level): int(count) for level, count, _ in rows} == counted
