"""PgBouncer in front of a Postgres. No wheel holds one: it comes from the machine or not at all."""

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar, final
from urllib.parse import urlsplit

import pytest

from .fixtures import served
from .net import free_port
from .postgres import PostgresServer, query
from .process import Child, on_path, private_directory, version_of
from .server import ImpostorError, NoServerError, NotOfferedError, Server, obtain, with_options

ADVICE = "apt-get install pgbouncer; or leave it out with --without pgbouncer"
SETTINGS = """[databases]
* = host={host} port={behind}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = scram-sha-256
auth_file = {users}
pool_mode = transaction
default_pool_size = 4
max_client_conn = 200
server_login_retry = 1
"""


@final
class PgBouncer(Server):
    """PgBouncer in transaction mode in front of a Postgres.

    What lives longer than a transaction on one connection (prepared statements, advisory locks
    of a connection, LISTEN, SET) does not work through it, as in production. `url` is that of
    the Postgres behind, with another port and `pgbouncer=1`.
    """

    transient: ClassVar = PostgresServer.transient

    def __init__(self, binary: Path, postgres: PostgresServer) -> None:
        home, port, behind = private_directory("bouncer", unprivileged=True), free_port(), postgres
        parts = urlsplit(behind.url)
        account = parts.netloc.rpartition("@")[0]
        self._plain_url = parts._replace(netloc=f"{account}@127.0.0.1:{port}").geturl()
        self._behind = behind
        users, settings = home / "users.txt", home / "pgbouncer.ini"
        users.write_text(f'"{parts.username}" "{parts.password}"\n')
        settings.write_text(
            SETTINGS.format(host=parts.hostname, behind=parts.port or 5432, port=port, users=users)
        )
        for path in (users, settings):
            path.chmod(0o644)  # the directory is private
        runner = Child(
            [binary, settings],
            directory=home,
            unprivileged=True,
            grace=2.0,  # later releases wait for the clients to leave
        )
        obtained = f"binary {binary}: {version_of(binary)} before"
        super().__init__(
            runner, url=with_options(self._plain_url, pgbouncer="1"), obtained=obtained
        )

    def query(self, statement: str, *arguments: object) -> list[tuple[object, ...]]:
        """Run one statement through it and return its rows."""
        return query(self._plain_url, statement, *arguments)

    def identify(self) -> str:
        """Return the kind of the Postgres behind it."""
        name = "select current_setting('cluster_name')"
        if self.query(name) != self._behind.query(name):
            raise ImpostorError("another pooler answers on our port")
        return self._behind.kind

    def _url_of(self, space: str) -> str:
        return with_options(self.url, schema=space)

    def _clear(self, space: str) -> None:
        """Nothing to do: it is always ours."""


def start_pgbouncer(postgres: PostgresServer) -> PgBouncer:
    """Return a running PgBouncer in front of *postgres*."""

    def installed() -> PgBouncer:
        for binary in on_path("pgbouncer"):
            return PgBouncer(binary, postgres)
        raise NotOfferedError("not on PATH nor in /usr/sbin")

    return obtain("PgBouncer", {"binary": installed}, sources=("binary",), advice=ADVICE)


@pytest.fixture(scope="session")
def pgbouncer(pytestconfig: pytest.Config, postgres: PostgresServer) -> Iterator[PgBouncer]:
    """PgBouncer in transaction mode before `postgres`. Not a backend: left out where it is not."""
    try:
        pooler = start_pgbouncer(postgres)
    except NoServerError as exc:
        pytest.skip(str(exc))
    yield from served(pytestconfig, "pgbouncer", lambda: pooler)
