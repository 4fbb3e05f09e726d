"""The strict S3 refuses what it must, and does to others what it is told."""

import base64
import hashlib
import http.client
import socket
import ssl
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import boto3
import pytest
import trustme
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from . import Fault, StrictS3
from .net import wait_until
from .s3 import answer_of

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

AUTHORISATION = (
    "AWS4-HMAC-SHA256 Credential=strict-access-key/20260101/us-east-1/s3/aws4_request,"
    " SignedHeaders=host, Signature=0"
)
Mode = Literal["when_supported", "when_required"]


@contextmanager
def client_to(
    server: StrictS3, mode: Mode = "when_required", verify: str | None = None
) -> Iterator["S3Client"]:
    client = boto3.client(
        "s3",
        endpoint_url=server.endpoint,
        region_name="us-east-1",
        aws_access_key_id=server.environment["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=server.environment["AWS_SECRET_ACCESS_KEY"],
        verify=verify,
        config=Config(
            retries={"total_max_attempts": 1},
            s3={"addressing_style": "path"},
            request_checksum_calculation=mode,
            response_checksum_validation=mode,
            max_pool_connections=20,
        ),
    )
    try:
        yield client
    finally:
        client.close()


@pytest.fixture
def client(strict_s3: StrictS3) -> Iterator["S3Client"]:
    with client_to(strict_s3) as made:
        yield made


def raw(server: StrictS3, method: str, path: str, headers: Mapping[str, str], body: bytes) -> int:
    """Send exactly this and return the status."""
    connection = http.client.HTTPConnection("127.0.0.1", int(server.endpoint.rpartition(":")[2]))
    connection.putrequest(method, path, skip_accept_encoding=True)
    for name, text in {"authorization": AUTHORISATION, **headers}.items():
        connection.putheader(name, text)
    connection.endheaders(body)
    try:
        return connection.getresponse().status
    finally:
        connection.close()


def put_headers(body: bytes, **more: str) -> dict[str, str]:
    headers = {
        "content-length": str(len(body)),
        "x-amz-content-sha256": hashlib.sha256(body).hexdigest(),
    }
    return {**headers, **{name.replace("_", "-"): text for name, text in more.items()}}


# as boto3 speaks to it


@pytest.mark.parametrize("mode", ["when_supported", "when_required"])
def test_boto3_writes_and_reads(strict_s3: StrictS3, mode: Mode) -> None:
    with client_to(strict_s3, mode) as client:
        put = client.put_object(
            Bucket="strict",
            Key="a/b",
            Body=b"body",
            Metadata={"token": "7"},
            ContentEncoding="gzip",
        )
        got = client.get_object(Bucket="strict", Key="a/b")
        assert got["Body"].read() == b"body"
        head = client.head_object(Bucket="strict", Key="a/b")
        client.delete_object(Bucket="strict", Key="a/b")
    assert got["ETag"] == head["ETag"] == put["ETag"]
    assert head["Metadata"] == {"token": "7"}
    assert head["ContentEncoding"] == "gzip"
    assert head["ContentLength"] == 4
    assert strict_s3.bodies == {}
    [sent] = [request for request in strict_s3.requests if request.method == "PUT"]
    assert ("x-amz-checksum-crc32" in sent.headers) == (mode == "when_supported")
    assert (sent.key, sent.body) == ("a/b", b"body")


@pytest.mark.parametrize(("mode", "accepted"), [("when_supported", False), ("when_required", True)])
def test_boto3s_default_trailers_are_refused(mode: Mode, accepted: bool, tmp_path: Path) -> None:
    """Over TLS boto3's default is a chunked body with its checksum in a trailer."""
    authority, context = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    roots = tmp_path / "roots.pem"
    authority.cert_pem.write_to_path(str(roots))
    with StrictS3(tls=context) as server, client_to(server, mode, str(roots)) as client:
        if accepted:
            client.put_object(Bucket="strict", Key="k", Body=b"body")
        else:
            with pytest.raises(ClientError) as caught:
                client.put_object(Bucket="strict", Key="k", Body=b"body")
            assert answer_of(caught.value) == (501, "NotImplemented")
        assert server.bodies == ({"k": b"body"} if accepted else {})


def test_conditional_writes(strict_s3: StrictS3, client: "S3Client") -> None:
    first = client.put_object(Bucket="strict", Key="k", Body=b"1", IfNoneMatch="*")
    with pytest.raises(ClientError) as caught:
        client.put_object(Bucket="strict", Key="k", Body=b"2", IfNoneMatch="*")
    assert answer_of(caught.value) == (412, "PreconditionFailed")
    client.put_object(Bucket="strict", Key="k", Body=b"2", IfMatch=first["ETag"])
    with pytest.raises(ClientError) as caught:
        client.put_object(Bucket="strict", Key="k", Body=b"3", IfMatch=first["ETag"])
    assert answer_of(caught.value) == (412, "PreconditionFailed")
    with pytest.raises(ClientError) as caught:
        client.put_object(Bucket="strict", Key="absent", Body=b"3", IfMatch=first["ETag"])
    assert answer_of(caught.value) == (404, "NoSuchKey")
    with pytest.raises(ClientError) as caught:
        client.delete_object(Bucket="strict", Key="k", IfMatch=first["ETag"])
    assert answer_of(caught.value) == (412, "PreconditionFailed")
    assert strict_s3.bodies == {"k": b"2"}


def test_conditional_reads(client: "S3Client") -> None:
    etag = client.put_object(Bucket="strict", Key="k", Body=b"1")["ETag"]
    with pytest.raises(ClientError) as caught:
        client.get_object(Bucket="strict", Key="k", IfNoneMatch=etag)
    assert answer_of(caught.value)[0] == 304
    with pytest.raises(ClientError) as caught:
        client.get_object(Bucket="strict", Key="k", IfMatch='"other"')
    assert answer_of(caught.value) == (412, "PreconditionFailed")
    assert client.get_object(Bucket="strict", Key="k", IfMatch=etag)["Body"].read() == b"1"


@pytest.mark.parametrize(("conditional", "status"), [("ignore", 200), ("refuse", 501)])
def test_vendors_without_conditions(conditional: Literal["ignore", "refuse"], status: int) -> None:
    with StrictS3(conditional=conditional) as server, client_to(server) as client:
        client.put_object(Bucket="strict", Key="k", Body=b"1")
        if status == 200:
            client.put_object(Bucket="strict", Key="k", Body=b"2", IfNoneMatch="*")
            assert server.bodies == {"k": b"2"}
        else:
            with pytest.raises(ClientError, match="NotImplemented"):
                client.put_object(Bucket="strict", Key="k", Body=b"2", IfNoneMatch="*")


def test_one_winner_among_racing_writers(strict_s3: StrictS3, client: "S3Client") -> None:
    def write(writer: int) -> bool:
        body = str(writer).encode()
        try:
            client.put_object(Bucket="strict", Key="k", Body=body, IfNoneMatch="*")
        except ClientError:
            return False
        return True

    with ThreadPoolExecutor(16) as pool:
        won = [writer for writer, wins in enumerate(pool.map(write, range(16))) if wins]
    assert len(won) == 1
    assert strict_s3.bodies == {"k": str(won[0]).encode()}


def test_listing_pages(strict_s3: StrictS3, client: "S3Client") -> None:
    for n in range(2_345):
        strict_s3.plant(f"p/{n:05}", b"x")
    strict_s3.plant("q", b"x")
    first = client.list_objects_v2(Bucket="strict", Prefix="p/", MaxKeys=5_000)
    assert (first["KeyCount"], first["IsTruncated"]) == (1_000, True)
    pages = client.get_paginator("list_objects_v2").paginate(Bucket="strict", Prefix="p/")
    keys = [found.get("Key") for page in pages for found in page.get("Contents", [])]
    assert keys == [f"p/{n:05}" for n in range(2_345)]


def test_missing_things_and_missing_rights(client: "S3Client") -> None:
    for bucket, expected in (("none", (404, "NoSuchBucket")), ("denied", (403, "AccessDenied"))):
        with pytest.raises(ClientError) as caught:
            client.get_object(Bucket=bucket, Key="k")
        assert answer_of(caught.value) == expected
        with pytest.raises(ClientError) as caught:
            client.list_objects_v2(Bucket=bucket)
        assert answer_of(caught.value) == expected
    with pytest.raises(ClientError) as caught:
        client.get_object(Bucket="strict", Key="absent")
    assert answer_of(caught.value) == (404, "NoSuchKey")
    with pytest.raises(ClientError) as caught:
        client.head_object(Bucket="strict", Key="absent")
    assert answer_of(caught.value)[0] == 404
    client.delete_object(Bucket="strict", Key="absent")


@pytest.mark.parametrize(
    "key", ["a//b", "../a", "a/./b", "a b", "a\\b", "ü", "a%2Fb", "a\nb", "a/", "x" * 1_025]
)
def test_odd_keys_are_refused(strict_s3: StrictS3, client: "S3Client", key: str) -> None:
    with pytest.raises(ClientError):
        client.put_object(Bucket="strict", Key=key, Body=b"x")
    assert strict_s3.bodies == {}


# what is not what was announced


def test_truncated_body_is_never_stored(strict_s3: StrictS3) -> None:
    body = b"whole body"
    for headers in (
        put_headers(body),
        {**put_headers(body), "x-amz-content-sha256": "UNSIGNED-PAYLOAD"},
    ):
        connection = socket.create_connection(
            ("127.0.0.1", int(strict_s3.endpoint.rpartition(":")[2]))
        )
        lines = [f"{name}: {text}" for name, text in headers.items()]
        head = ["PUT /strict/k HTTP/1.1", "host: x", f"authorization: {AUTHORISATION}", *lines]
        connection.sendall("\r\n".join([*head, "", ""]).encode() + body[:5])
        connection.shutdown(socket.SHUT_WR)
        assert b" 400 " in connection.recv(100)
        connection.close()
    assert strict_s3.bodies == {}
    assert [request.body for request in strict_s3.requests] == [body[:5]] * 2


def sha256_of(body: bytes) -> str:
    return base64.b64encode(hashlib.sha256(body).digest()).decode()


WRONG = base64.b64encode(b"wrong").decode()


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"x_amz_content_sha256": hashlib.sha256(b"other").hexdigest()}, 400),
        ({"content_md5": WRONG}, 400),
        ({"x_amz_checksum_crc32": WRONG}, 400),
        ({"x_amz_checksum_sha256": WRONG}, 400),
        ({"x_amz_checksum_sha256": sha256_of(b"body"), "x_amz_checksum_crc32": WRONG}, 400),
        ({"x_amz_sdk_checksum_algorithm": "CRC32"}, 400),
        ({"x_amz_checksum_crc64nvme": WRONG}, 501),
        ({"x_amz_content_sha256": "STREAMING-UNSIGNED-PAYLOAD-TRAILER"}, 501),
        ({"x_amz_content_sha256": "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"}, 501),
        ({"content_encoding": "gzip,aws-chunked"}, 501),
        ({"x_amz_trailer": "x-amz-checksum-crc32"}, 501),
        ({"transfer_encoding": "chunked"}, 501),
        ({"authorization": "none"}, 403),
        ({"authorization": AUTHORISATION.replace("strict-access-key", "other")}, 403),
        ({"x_amz_copy_source": "/strict/other"}, 501),
        ({"if_none_match": '"some-tag"'}, 501),
        ({"x_amz_meta_big": "x" * 3_000}, 400),
        ({"x_amz_checksum_sha256": sha256_of(b"body")}, 200),
        ({"x_amz_content_sha256": "UNSIGNED-PAYLOAD"}, 200),
    ],
)
def test_wrong_announcements_are_refused(
    strict_s3: StrictS3, headers: dict[str, str], status: int
) -> None:
    assert raw(strict_s3, "PUT", "/strict/k", put_headers(b"body", **headers), b"body") == status
    assert strict_s3.bodies == ({"k": b"body"} if status == 200 else {})


def test_length_is_required(strict_s3: StrictS3) -> None:
    headers = put_headers(b"")
    del headers["content-length"]
    assert raw(strict_s3, "PUT", "/strict/k", headers, b"") == 411


@pytest.mark.parametrize("query", ["uploads", "acl", "versionId=1"])
def test_unknown_operations_are_refused(strict_s3: StrictS3, query: str) -> None:
    assert raw(strict_s3, "PUT", f"/strict/k?{query}", put_headers(b"x"), b"x") == 501


# faults on demand


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (403, "AccessDenied"),
        (404, "NoSuchKey"),
        (409, "ConditionalRequestConflict"),
        (412, "PreconditionFailed"),
        (500, "InternalError"),
        (503, "SlowDown"),
    ],
)
@pytest.mark.parametrize("applied", [False, True])
def test_answers_on_demand(
    strict_s3: StrictS3, client: "S3Client", status: int, code: str, applied: bool
) -> None:
    strict_s3.fail(Fault(status=status, applied=applied, method="PUT", key="k*"))
    client.put_object(Bucket="strict", Key="other", Body=b"x")
    with pytest.raises(ClientError) as caught:
        client.put_object(Bucket="strict", Key="k1", Body=b"x")
    assert answer_of(caught.value) == (status, code)
    assert ("k1" in strict_s3.bodies) == applied
    client.put_object(Bucket="strict", Key="k1", Body=b"y")
    assert strict_s3.bodies["k1"] == b"y"


@pytest.mark.parametrize("applied", [False, True])
def test_connection_is_dropped_before_or_after(
    strict_s3: StrictS3, client: "S3Client", applied: bool
) -> None:
    strict_s3.fail(Fault(drop=True, applied=applied, times=2))
    for _ in range(2):
        with pytest.raises(BotoCoreError):
            client.put_object(Bucket="strict", Key="k", Body=b"x")
    assert ("k" in strict_s3.bodies) == applied
    client.put_object(Bucket="strict", Key="k", Body=b"y")
    assert strict_s3.bodies == {"k": b"y"}


def test_download_is_cut(strict_s3: StrictS3, client: "S3Client") -> None:
    strict_s3.plant("k", b"x" * 1_000)
    strict_s3.fail(Fault(cut=True, method="GET"))
    with pytest.raises(BotoCoreError):
        client.get_object(Bucket="strict", Key="k")["Body"].read()
    assert client.get_object(Bucket="strict", Key="k")["Body"].read() == b"x" * 1_000


@pytest.mark.parametrize("applied", [False, True])
def test_answer_is_delayed(strict_s3: StrictS3, client: "S3Client", applied: bool) -> None:
    """The effect comes before the delay or after it, as the fault says."""
    strict_s3.fail(Fault(delay=0.3, applied=applied))
    seen: list[bool] = []
    looking = threading.Timer(0.15, lambda: seen.append("k" in strict_s3.bodies))
    looking.start()
    client.put_object(Bucket="strict", Key="k", Body=b"x")
    looking.join()
    assert seen == [applied]
    assert "k" in strict_s3.bodies


def test_closing_interrupts_a_delay() -> None:
    with ThreadPoolExecutor(1) as pool:
        with StrictS3() as server, client_to(server) as client:
            server.fail(Fault(delay=60))
            waiting = pool.submit(client.put_object, Bucket="strict", Key="k", Body=b"x")
            wait_until(lambda: bool(server.requests), timeout=10, what="the request")
        with pytest.raises(BotoCoreError):
            waiting.result(timeout=10)
    assert server.bodies == {}


def test_faults_heal(strict_s3: StrictS3, client: "S3Client") -> None:
    strict_s3.fail(Fault(status=503, times=1_000))
    with pytest.raises(ClientError):
        client.put_object(Bucket="strict", Key="k", Body=b"x")
    strict_s3.heal()
    client.put_object(Bucket="strict", Key="k", Body=b"x")


def test_requests_are_recorded(strict_s3: StrictS3, client: "S3Client") -> None:
    client.put_object(Bucket="strict", Key="k", Body=b"x" * 10_000)
    [request] = strict_s3.requests
    assert (request.method, request.bucket, request.key) == ("PUT", "strict", "k")
    assert request.headers["content-length"] == "10000"
    assert 10_000 < request.received < 11_500
    strict_s3.forget_requests()
    assert strict_s3.requests == []


def test_planted_damage_is_served(strict_s3: StrictS3, client: "S3Client") -> None:
    client.put_object(Bucket="strict", Key="k", Body=b"whole", Metadata={"token": "7"})
    strict_s3.plant("k", b"who")
    got = client.get_object(Bucket="strict", Key="k")
    assert (got["Body"].read(), got["Metadata"]) == (b"who", {"token": "7"})
