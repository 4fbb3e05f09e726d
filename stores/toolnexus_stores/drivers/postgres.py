"""``postgresql://``: a head row and one row a message, TEXT; a save is one statement.

One statement is one round trip, and it is atomic also behind a pooler in transaction mode. It
compares and sets the version in the head row, which locks out every other writer of the same
conversation; only if that matched does it write the tail and remove what lies beyond the new end.
A reader takes head and messages in one statement, hence in one snapshot.

Messages are ASCII JSON in TEXT: ``jsonb`` refuses NUL and lone surrogates, drops the order of keys
and turns ``-0.0`` into ``0.0`` (https://www.postgresql.org/docs/current/datatype-json.html).

An acknowledged save is as durable as the server's ``synchronous_commit`` makes it.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Literal, final
from urllib.parse import unquote, urlencode

from pydantic import Field, SecretStr

from toolnexus_stores.driver import Conflict, Edit, Fault, Head, Record, Version
from toolnexus_stores.errors import FormatTooNew, InvalidURL
from toolnexus_stores.options import DriverOptions, Location

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping

__all__ = ["PostgresDriver", "PostgresOptions"]

_SCHEMA_VERSION = 1
_KEYS_AT_ONCE = 1_000
_GOODBYE = 1.0  # seconds that a closing connection is given
_IDENTIFIER = r"[A-Za-z_][A-Za-z0-9_]{0,39}"  # with our suffixes below PostgreSQL's 63 bytes

SslMode = Literal["disable", "allow", "prefer", "require", "verify-ca", "verify-full"]


class PostgresOptions(DriverOptions):
    """``postgresql://user:password@host:port/database``, with the parameters of libpq.

    libpq's meanings: https://www.postgresql.org/docs/current/libpq-connect.html#LIBPQ-PARAMKEYWORDS.
    A parameter that is not listed here is refused, never passed on.
    """

    aliases: ClassVar[frozenset[str]] = frozenset(
        {"postgresql+asyncpg", "postgresql+psycopg", "postgres+asyncpg", "postgres+psycopg"}
    )
    requires: ClassVar[Mapping[str, str]] = {"asyncpg": "toolnexus-stores[postgres]"}

    netloc: str
    database: str

    in_schema: str | None = Field(default=None, alias="schema", pattern=f"^{_IDENTIFIER}$")
    """The schema that holds the tables; the first of the search path if it is not given."""

    table: str = Field(default="toolnexus", pattern=f"^{_IDENTIFIER}$")
    """What the names of the tables begin with."""

    pool_size: int = Field(default=10, ge=1)
    """Connections at most; calls wait for a free one."""

    pgbouncer: bool = False
    """Behind a pooler in transaction mode: no prepared statements."""

    user: str | None = None
    password: SecretStr | None = None
    host: str | None = None
    """A host, several with commas, or the directory of a socket."""
    port: str | None = None
    dbname: str | None = None
    passfile: str | None = None
    sslmode: SslMode | None = None
    sslrootcert: str | None = None
    sslcert: str | None = None
    sslkey: str | None = None
    sslpassword: SecretStr | None = None
    channel_binding: Literal["disable", "prefer"] = "prefer"
    """The client does not know channel binding, so ``require`` is refused."""
    target_session_attrs: Literal["any", "read-write", "primary"] = "any"
    """Which of several hosts will do; a store writes."""
    connect_timeout: float = Field(default=10, ge=0)
    """Seconds; 0 waits for ever, that is for the store's ``timeout``."""
    application_name: str = "toolnexus-stores"
    options: str | None = None

    @classmethod
    def locate(cls, location: Location) -> Mapping[str, object]:
        """Hosts, credentials and database."""
        return {"netloc": location.netloc, "database": location.path[1:]}

    def model_post_init(self, _: object) -> None:
        """Refuse a location that makes no sense, while no connection was tried."""
        self.connection()

    def driver(self) -> PostgresDriver:
        """A driver over the database."""
        return PostgresDriver(
            self.connection(),
            schema=self.in_schema,
            table=self.table,
            pool_size=self.pool_size,
            prepared=not self.pgbouncer,
        )

    def connection(self) -> dict[str, Any]:
        """What `asyncpg.connect` is to be given."""
        credentials, at, hosts = self.netloc.rpartition("@")
        user, colon, password = credentials.partition(":")
        if hosts and self.host:
            raise InvalidURL("the host is given twice, before the path and as an option")
        names, ports = _hosts_of(hosts) if hosts else _listed(self.host, self.port)
        secret = self.password.get_secret_value() if self.password else unquote(password)
        found = {
            "dsn": self._dsn(),
            "host": names,
            "port": ports,
            "user": self.user or (unquote(user) if at else None),
            "password": secret if self.password or colon else None,
            "database": self.dbname or self.database,
            "target_session_attrs": self.target_session_attrs,
            "timeout": self.connect_timeout or None,
        }
        return {name: value for name, value in found.items() if value}

    def _dsn(self) -> str:
        """What asyncpg takes in a DSN only, in libpq's names."""
        secret = self.sslpassword.get_secret_value() if self.sslpassword else None
        values = {
            "sslmode": self.sslmode,
            "sslrootcert": self.sslrootcert,
            "sslcert": self.sslcert,
            "sslkey": self.sslkey,
            "sslpassword": secret,
            "passfile": self.passfile,
            "application_name": self.application_name,
            "options": self.options,
        }
        return "postgresql:///?" + urlencode({name: v for name, v in values.items() if v})


def _hosts_of(text: str) -> tuple[list[str], list[int]]:
    """``host:port,[::1]:port`` -> hosts, ports."""
    names, ports = [], []
    for each in text.split(","):
        match = re.fullmatch(r"(?:\[([^\]]+)\]|([^:\[\]]*))(?::([0-9]{1,5}))?", each)
        if match is None:
            raise InvalidURL(
                "a host is host, host:port or [IPv6]:port; several are split by commas"
            )
        names.append(unquote(match[1] or match[2] or "localhost"))
        ports.append(int(match[3] or 5432))
    return names, ports


def _listed(host: str | None, port: str | None) -> tuple[list[str], list[int]]:
    """The options ``host=`` and ``port=``, each a list with commas."""
    names = host.split(",") if host else []
    texts = port.split(",") if port else ["5432"]
    if not all(re.fullmatch("[0-9]{1,5}", text) for text in texts):
        raise InvalidURL("option 'port': a number, or several split by commas")
    if len(texts) == 1:
        texts *= max(1, len(names))
    if names and len(names) != len(texts):
        raise InvalidURL("as many ports as hosts, or one for all of them")
    return names, [int(text) for text in texts] if names or port else []


@final
class PostgresDriver:
    """Records in two tables, made on first use if they are missing and the role may make them."""

    def __init__(
        self,
        connection: Mapping[str, Any],
        *,
        schema: str | None = None,
        table: str = "toolnexus",
        pool_size: int = 10,
        prepared: bool = True,
    ) -> None:
        self._connection = dict(connection)
        if not prepared:
            self._connection["statement_cache_size"] = 0
        self._schema = schema
        self._pool_size = pool_size
        self._sql = _Statements(f'"{schema}"."{table}' if schema else f'"{table}')
        self._pool: Any = None

    async def open(self) -> None:
        """See `Driver.open`."""
        import asyncpg  # noqa: PLC0415 - no client is imported before the first call

        class Connection(asyncpg.Connection):  # type: ignore[misc] # asyncpg has no types
            def get_reset_query(self) -> str:
                """Nothing: our statements leave nothing behind, and this costs a round trip."""
                return ""

        pool = asyncpg.create_pool(
            **self._connection,
            connection_class=Connection,
            min_size=0,
            max_size=self._pool_size,
        )
        self._pool = await pool
        try:
            await self._ensure_schema()
        except BaseException:
            pool.terminate()
            raise

    async def head(self, key: str) -> Head | None:
        """See `Driver.head`."""
        async with self._connected() as connection:
            row = await connection.fetchrow(self._sql.head, key)
        return None if row is None else _head(row)

    async def read(self, key: str) -> Record | None:
        """See `Driver.read`."""
        async with self._connected() as connection:
            row = await connection.fetchrow(self._sql.read, key)
        return None if row is None else Record(_head(row), [text.encode() for text in row[2]])

    async def write(self, key: str, edit: Edit) -> Version:
        """See `Driver.write`."""
        version = secrets.randbits(62)
        meta = edit.meta.decode("ascii")
        tail = [text.decode("ascii") for text in edit.tail]
        async with self._connected() as connection:
            if edit.expected is None:
                number = await connection.fetchval(self._sql.create, key, version, meta, tail)
            else:
                number = await connection.fetchval(
                    self._sql.change, key, int(edit.expected), version, meta, edit.keep, tail
                )
        if number is None:
            raise Conflict(f"the version of {key} is another one")
        return str(version)

    async def delete(self, key: str) -> bool:
        """See `Driver.delete`."""
        async with self._connected() as connection, connection.transaction():
            # The lock first, and the rows in a statement of their own: it sees what a writer that
            # held the lock has committed meanwhile.
            number = await connection.fetchval(self._sql.lock, key)
            if number is None:
                return False
            await connection.execute(self._sql.remove_messages, number)
            await connection.execute(self._sql.remove, number)
        return True

    async def keys(self, prefix: str) -> AsyncIterator[str]:
        """See `Driver.keys`."""
        last = ""
        while True:
            async with self._connected() as connection:
                # '~' sorts behind everything that a key is made of.
                bounds = (prefix, f"{prefix}~", last)
                rows = await connection.fetch(self._sql.keys, *bounds, _KEYS_AT_ONCE)
            for row in rows:
                yield row[0]
            if len(rows) < _KEYS_AT_ONCE:
                return
            last = rows[-1][0]

    async def close(self) -> None:
        """See `Driver.close`."""
        if self._pool is not None:
            try:
                async with asyncio.timeout(_GOODBYE):
                    await self._pool.close()
            except TimeoutError:
                self._pool.terminate()

    def explain(self, error: Exception) -> Fault | None:
        """See `Driver.explain`; https://www.postgresql.org/docs/current/errcodes-appendix.html."""
        unreached = isinstance(error, _Unreached)
        cause = error.__cause__ if unreached else error
        code = getattr(cause, "sqlstate", None)
        if isinstance(code, str):
            return _fault_of(code, unreached=unreached)
        if unreached:
            return _fault_of_connecting(cause)
        if isinstance(error, OSError) or type(error).__module__.startswith("asyncpg."):
            return Fault("the connection to the server broke", transient=True, ambiguous=True)
        return None

    def where(self, key: str) -> str:
        """The table and the key."""
        return f"{self._sql.conversations}, key {key}"

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[Any]:
        """A connection of the pool, which gets it back in a known state or not at all."""
        if self._pool is None:
            raise RuntimeError("the driver is not open")
        try:
            connection = await self._pool.acquire()
        except Exception as error:
            raise _Unreached from error
        try:
            yield connection
        except BaseException as error:
            # Whatever a cancelled or broken statement left behind, nobody else gets to see; a
            # server that has become read-only is to be looked for again.
            if _state_unknown(error):
                connection.terminate()
            if getattr(error, "sqlstate", None) == _READ_ONLY:
                await self._pool.expire_connections()
            raise
        finally:
            await self._pool.release(connection)

    async def _ensure_schema(self) -> None:
        import asyncpg  # noqa: PLC0415 - see open

        async with self._connected() as connection:
            try:
                version = await connection.fetchval(self._sql.schema_version)
            except asyncpg.UndefinedTableError:
                version = None
        if version is None:
            async with self._connected() as connection, connection.transaction():
                await connection.execute(self._sql.lock_schema)
                for statement in self._sql.creation(self._schema):
                    await connection.execute(statement)
                version = await connection.fetchval(self._sql.schema_version)
        if version > _SCHEMA_VERSION:
            raise FormatTooNew(
                f"the database has schema {version}; this version of toolnexus-stores knows "
                f"{_SCHEMA_VERSION}: upgrade it"
            )


class _Unreached(Exception):
    """No connection could be had; the cause says why. Nothing was sent."""


_READ_ONLY = "25006"
_DAMAGED = {"XX001", "XX002"}
# Trying again may help, and nothing was committed.
_TRANSIENT = {
    "40001": "the server asked to try again",
    "40P01": "the server found a deadlock",
    "53200": "the server is out of memory",
    "53300": "the server has no connection left",
    "55P03": "a lock could not be had",
    "57014": "the server cancelled the statement",
    "57P03": "the server is starting or stopping",
    _READ_ONLY: "the server is read-only",
}
_PERMANENT = {
    "28000": "the server refused the credentials",
    "28P01": "the server refused the credentials",
    "3D000": "the database does not exist",
    "3F000": "the schema does not exist and may not be made",
    "42501": "the role lacks a right on the store's schema or tables",
    "53100": "the server's disk is full",
    "54000": "the record is larger than the server stores",
}


def _fault_of(code: str, *, unreached: bool) -> Fault:
    if code in _DAMAGED:
        return Fault("the server found its data damaged", damaged=True)
    if code in _TRANSIENT:
        return Fault(_TRANSIENT[code], transient=True)
    if code.startswith(("08", "57P")):  # the connection broke, or the server is going down
        reason = "the connection to the server broke"
        return Fault(reason, transient=True, ambiguous=not unreached)
    return Fault(_PERMANENT.get(code, f"the server refused the statement (SQLSTATE {code})"))


def _fault_of_connecting(cause: BaseException | None) -> Fault | None:
    import ssl  # noqa: PLC0415 - loaded already, if such an error exists

    if isinstance(cause, ssl.SSLError):
        return Fault("the TLS connection could not be made")
    if isinstance(cause, OSError):  # refused, unreachable, timed out, no such host
        return Fault("the server could not be reached", transient=True)
    if type(cause).__name__ == "TargetServerAttributeNotMatched":
        return Fault("no server of the list is writable", transient=True)
    if type(cause).__module__.startswith("asyncpg."):
        return Fault("the connection could not be set up")
    return None


def _state_unknown(error: BaseException) -> bool:
    """Whether *error* is anything but the server's own, complete answer."""
    return not isinstance(error, Conflict) and not isinstance(getattr(error, "sqlstate", None), str)


def _head(row: Any) -> Head:
    return Head(str(row[0]), row[1].encode("ascii"))


@final
class _Statements:
    """The SQL for tables whose names begin with *start*, an opened quoted identifier."""

    def __init__(self, start: str) -> None:
        self.conversations = f'{start}_conversations"'
        self._messages = f'{start}_messages"'
        self._schema_table = f'{start}_schema"'
        heads, messages = self.conversations, self._messages
        # ruff: noqa: S608 - the names are made of letters, digits and underscores
        self.schema_version = f"SELECT max(version) FROM {self._schema_table}"
        self.lock_schema = "SELECT pg_advisory_xact_lock(7305808869229538160)"  # "toolnexu"
        self.head = f"SELECT version, meta FROM {heads} WHERE key = $1"
        self.read = f"""
            SELECT version, meta, ARRAY(
                SELECT text FROM {messages} WHERE conversation = number ORDER BY position
            ) FROM {heads} WHERE key = $1
        """
        self.create = f"""
            WITH head AS (
                INSERT INTO {heads} (key, version, meta) VALUES ($1, $2, $3)
                ON CONFLICT (key) DO NOTHING RETURNING number
            ), added AS (
                INSERT INTO {messages} (conversation, position, text)
                SELECT number, place - 1, text
                FROM head, unnest($4::text[]) WITH ORDINALITY AS tail (text, place)
            ) SELECT number FROM head
        """
        # Rows are changed in place rather than removed and added: parts of one statement do not
        # see each other's work, so that the same row must not be touched by two of them.
        self.change = f"""
            WITH head AS (
                UPDATE {heads} SET version = $3, meta = $4 WHERE key = $1 AND version = $2
                RETURNING number
            ), cut AS (
                DELETE FROM {messages} USING head
                WHERE conversation = head.number AND position >= $5 + cardinality($6::text[])
            ), added AS (
                INSERT INTO {messages} (conversation, position, text)
                SELECT number, $5 + place - 1, text
                FROM head, unnest($6::text[]) WITH ORDINALITY AS tail (text, place)
                ON CONFLICT (conversation, position) DO UPDATE SET text = excluded.text
            ) SELECT number FROM head
        """
        self.lock = f"SELECT number FROM {heads} WHERE key = $1 FOR UPDATE"
        self.remove_messages = f"DELETE FROM {messages} WHERE conversation = $1"
        self.remove = f"DELETE FROM {heads} WHERE number = $1"
        self.keys = f"""
            SELECT key FROM {heads} WHERE key >= $1 AND key < $2 AND key > $3 ORDER BY key LIMIT $4
        """

    def creation(self, schema: str | None) -> Iterable[str]:
        """What makes the tables, and does nothing if they are there."""
        if schema is not None:
            yield f'CREATE SCHEMA IF NOT EXISTS "{schema}"'
        yield f"CREATE TABLE IF NOT EXISTS {self._schema_table} (version integer PRIMARY KEY)"
        yield f"""
            INSERT INTO {self._schema_table} VALUES ({_SCHEMA_VERSION}) ON CONFLICT DO NOTHING
        """
        yield f"""
            CREATE TABLE IF NOT EXISTS {self.conversations} (
                number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
                key text COLLATE "C" NOT NULL UNIQUE,
                version bigint NOT NULL,
                meta text NOT NULL
            ) WITH (fillfactor = 70)
        """
        yield f"""
            CREATE TABLE IF NOT EXISTS {self._messages} (
                conversation bigint NOT NULL,
                position integer NOT NULL,
                text text NOT NULL,
                PRIMARY KEY (conversation, position)
            )
        """
