"""Our own stores and drivers, and the runtime's store, under the suite."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import pytest
from toolnexus_stores_contract import LEVELS, DriverContract, StoreContract

from tests.conftest import url_of

if TYPE_CHECKING:
    from collections.abc import Mapping


# An experiment with every system call of a save takes long where others want the processor too.
pytestmark = pytest.mark.timeout(240)


class TestMemory(StoreContract):
    factory = "memory://"
    claims = ("core", "concurrent", "management")


class TestMemoryWithSnapshots(StoreContract):
    factory = "memory://?snapshots=20"
    claims = ("core", "concurrent", "snapshots", "management")


class _Durable(StoreContract):
    backend: str
    claims = tuple(level for level in LEVELS if level != "snapshots")

    @pytest.fixture(autouse=True)
    def fresh(self, request: pytest.FixtureRequest) -> None:
        self.factory = url_of(self.backend, request)


class _Keeping(StoreContract):
    """With snapshots switched on, every other promise must be kept all the same.

    Where a backend makes no difference, on SQLite and in files alone.
    """

    backend: str
    claims = tuple(level for level in LEVELS if level != "atomic")

    @pytest.fixture(autouse=True)
    def fresh(self, request: pytest.FixtureRequest) -> None:
        url = url_of(self.backend, request)
        self.factory = f"{url}{'&' if '?' in url else '?'}snapshots=20"


class TestFile(_Durable):
    backend = "file"
    storage = "files"


class TestFileWithSnapshots(_Keeping):
    backend = "file"
    storage = "files"


class TestSqlite(_Durable):
    backend = "sqlite"
    storage = "files"


class TestSqliteWithSnapshots(_Keeping):
    backend = "sqlite"
    storage = "files"


class TestPostgres(_Durable):
    backend = "postgres"
    storage = "server"


class TestPostgresWithSnapshots(_Keeping):
    backend = "postgres"
    claims = ("core", "snapshots")


class TestRedis(_Durable):
    backend = "redis"
    storage = "server"


class TestRedisWithSnapshots(_Keeping):
    backend = "redis"
    claims = ("core", "snapshots")


# An answer that is cut in its head has a body that botocore never reads: the garbage collector
# closes that connection, and says so.
@pytest.mark.filterwarnings(
    "ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning"
)
class TestS3(_Durable):
    backend = "s3"
    storage = "server"


class TestS3WithSnapshots(_Keeping):
    backend = "s3"
    claims = ("core", "snapshots")


class TestScopedSqlite(StoreContract):
    claims = ("core", "concurrent")

    @pytest.fixture(autouse=True)
    def fresh(self, request: pytest.FixtureRequest) -> None:
        self.factory = f"{url_of('sqlite', request)}?scope=user-42"


_SHALLOW = "toolnexus 0.21 copies the list, not the messages in it"
_AS_IT_IS = "toolnexus 0.21 keeps whatever object it is given, JSON or not"


_REFUSES_NOTHING = "it refuses nothing, see core.content_that_is_not_json"


class TestTheRuntimesOwnStore(StoreContract):
    factory = "toolnexus:InMemoryConversationStore"
    claims = ("core", "concurrent")
    expected_failures: ClassVar[Mapping[str, str]] = {
        "core.saved_messages": _SHALLOW,
        "core.returned_messages": _SHALLOW,
        "core.json_form": _AS_IT_IS,
        "core.content_that_is_not_json": _AS_IT_IS,
        "core.cycles": _AS_IT_IS,
        "core.messages_that_are_not_objects": _AS_IT_IS,
        "concurrent.copied_at_entry": _SHALLOW,
    }
    left_out: ClassVar[Mapping[str, str]] = {
        "core.refused_first_save": _REFUSES_NOTHING,
        "core.refusals_are_typed": _REFUSES_NOTHING,
        "core.retried": _REFUSES_NOTHING,
        "core.refusals_keep_secrets": _REFUSES_NOTHING,
    }


class _Driver(DriverContract):
    backend: str

    @pytest.fixture(autouse=True)
    def fresh(self, request: pytest.FixtureRequest) -> None:
        self.factory = url_of(self.backend, request)


_ONE_PROCESS = "memory is this process's alone"


class TestMemoryDriver(_Driver):
    backend = "memory"
    expected_failures: ClassVar[Mapping[str, str]] = {
        "driver.another_process": _ONE_PROCESS,
        "driver.processes_at_once": _ONE_PROCESS,
    }


class TestFileDriver(_Driver):
    backend = "file"


class TestSqliteDriver(_Driver):
    backend = "sqlite"


class TestPostgresDriver(_Driver):
    backend = "postgres"


class TestRedisDriver(_Driver):
    backend = "redis"


class TestS3Driver(_Driver):
    backend = "s3"
