"""What the S3 server checks, and what it does not: the words of `s3`, held to account."""

import base64
import hashlib
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from botocore.awsrequest import AWSPreparedRequest
from botocore.exceptions import ClientError

from . import S3Server
from .s3 import answer_of

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

MISSING = '"00000000000000000000000000000000"'


class Bucket:
    """The bucket of one test: keys below a prefix that nothing else uses."""

    def __init__(self, client: "S3Client", server: S3Server) -> None:
        self.client = client
        self.name = server.bucket
        self.prefix = server.fresh_url().partition("?")[0].partition(f"//{server.bucket}/")[2] + "/"

    def put(self, key: str, body: bytes, **options: str) -> str:
        options = {"Bucket": self.name, "Key": self.prefix + key, **options}
        return self.client.put_object(Body=body, **options)["ETag"]  # type: ignore[arg-type]  # by name

    def get(self, key: str, **options: str) -> bytes:
        found = self.client.get_object(Bucket=self.name, Key=self.prefix + key, **options)  # type: ignore[arg-type]  # by name
        return found["Body"].read()

    def delete(self, key: str, **options: str) -> None:
        self.client.delete_object(Bucket=self.name, Key=self.prefix + key, **options)  # type: ignore[arg-type]  # by name


@pytest.fixture
def bucket(s3: S3Server) -> Iterator[Bucket]:
    with s3.client() as client:
        yield Bucket(client, s3)


def encoded(digest: bytes) -> str:
    return base64.b64encode(digest).decode()


# conditions


def test_create_only_if_absent(bucket: Bucket) -> None:
    bucket.put("k", b"1", IfNoneMatch="*")
    with pytest.raises(ClientError) as caught:
        bucket.put("k", b"2", IfNoneMatch="*")
    assert answer_of(caught.value) == (412, "PreconditionFailed")
    assert bucket.get("k") == b"1"


def test_replace_only_if_unchanged(bucket: Bucket) -> None:
    first = bucket.put("k", b"1")
    second = bucket.put("k", b"2", IfMatch=first)
    with pytest.raises(ClientError) as caught:
        bucket.put("k", b"3", IfMatch=first)
    assert answer_of(caught.value) == (412, "PreconditionFailed")
    assert second != first
    assert bucket.get("k") == b"2"


def test_read_only_if_changed(bucket: Bucket) -> None:
    etag = bucket.put("k", b"1")
    with pytest.raises(ClientError) as caught:
        bucket.get("k", IfNoneMatch=etag)
    assert answer_of(caught.value)[0] == 304


def test_delete_only_if_unchanged(bucket: Bucket) -> None:
    etag = bucket.put("k", b"1")
    with pytest.raises(ClientError) as caught:
        bucket.delete("k", IfMatch=MISSING)
    assert answer_of(caught.value) == (412, "PreconditionFailed")
    bucket.delete("k", IfMatch=etag)
    with pytest.raises(ClientError) as caught:
        bucket.get("k")
    assert answer_of(caught.value) == (404, "NoSuchKey")


@pytest.mark.parametrize("existing", [False, True])
def test_of_many_writers_one_wins(bucket: Bucket, existing: bool) -> None:
    for turn in range(5):
        key = f"k{turn}"
        condition = {"IfMatch": bucket.put(key, b"old")} if existing else {"IfNoneMatch": "*"}

        def attempt(n: int, key: str = key, condition: dict[str, str] = condition) -> bytes | None:
            try:
                bucket.put(key, b"%d" % n, **condition)
            except ClientError as exc:
                if answer_of(exc)[0] not in {409, 412}:
                    raise
                return None
            return b"%d" % n

        with ThreadPoolExecutor(16) as pool:
            [winner] = filter(None, pool.map(attempt, range(16)))
        assert bucket.get(key) == winner


# bodies


DIGESTS = {
    "ContentMD5": lambda body: hashlib.md5(body).digest(),
    "ChecksumCRC32": lambda body: zlib.crc32(body).to_bytes(4, "big"),
    "ChecksumSHA1": lambda body: hashlib.sha1(body).digest(),
    "ChecksumSHA256": lambda body: hashlib.sha256(body).digest(),
}


@pytest.mark.parametrize("name", DIGESTS)
def test_a_wrong_checksum_is_refused(bucket: Bucket, name: str) -> None:
    bucket.put("right", b"body", **{name: encoded(DIGESTS[name](b"body"))})
    with pytest.raises(ClientError) as caught:
        bucket.put("wrong", b"body", **{name: encoded(DIGESTS[name](b"bodu"))})
    assert answer_of(caught.value) == (400, "BadDigest")
    with pytest.raises(ClientError) as caught:
        bucket.get("wrong")
    assert answer_of(caught.value) == (404, "NoSuchKey")


def test_large_bodies_come_back(bucket: Bucket) -> None:
    body = bytes(range(256)) * 20_000
    bucket.put("large", body)
    assert bucket.get("large") == body


# who asks


def test_a_wrong_signature_is_refused(s3: S3Server, bucket: Bucket) -> None:
    if not s3.environment:
        pytest.skip("the keys of this server are not ours")
    forged = S3Server(
        s3._runner,
        url=s3.url,
        obtained="test",
        environment={**s3.environment, "AWS_SECRET_ACCESS_KEY": "guessed"},
    )
    with forged.client() as client, pytest.raises(ClientError) as caught:
        Bucket(client, s3).put("k", b"forged")
    assert answer_of(caught.value) == (403, "SignatureDoesNotMatch")


@pytest.mark.parametrize("header", ["Authorization", "X-Amz-Date"])
def test_a_request_without_its_signature_is_refused(bucket: Bucket, header: str) -> None:
    def strip(request: AWSPreparedRequest, **_: object) -> None:
        del request.headers[header]

    bucket.client.meta.events.register("before-send.s3.PutObject", strip)
    with pytest.raises(ClientError) as caught:
        bucket.put("k", b"unsigned")
    assert answer_of(caught.value)[0] in {400, 403}


# keys and pages


def test_lists_beyond_a_thousand(bucket: Bucket) -> None:
    names = [f"{n:04}" for n in range(1203)]
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda name: bucket.put(name, b""), names))
    first = bucket.client.list_objects_v2(Bucket=bucket.name, Prefix=bucket.prefix)
    assert first["KeyCount"] == 1000
    assert first["IsTruncated"]
    pages = bucket.client.get_paginator("list_objects_v2").paginate(
        Bucket=bucket.name, Prefix=bucket.prefix
    )
    listed = [found.get("Key", "") for page in pages for found in page.get("Contents", [])]
    assert listed == [bucket.prefix + name for name in names]


def test_a_key_too_long_is_refused(bucket: Bucket) -> None:
    with pytest.raises(ClientError) as caught:
        bucket.put("k" * 1025, b"")
    assert answer_of(caught.value) == (400, "KeyTooLongError")


# what it does not check; when one of these fails, SeaweedFS has learned it: say so in `s3`


@pytest.fixture
def seaweed(s3: S3Server, bucket: Bucket) -> Bucket:
    if not s3.environment:
        pytest.skip("nobody knows what this server checks")
    return bucket


def test_a_body_other_than_the_signed_one_is_taken(seaweed: Bucket) -> None:
    def change(request: AWSPreparedRequest, **_: object) -> None:
        request.body = b"forged"

    seaweed.client.meta.events.register("before-send.s3.PutObject", change)
    seaweed.put("k", b"signed")
    assert seaweed.get("k") == b"forged"


def test_metadata_beyond_2_kb_is_taken(seaweed: Bucket) -> None:
    key = seaweed.prefix + "k"
    seaweed.client.put_object(Bucket=seaweed.name, Key=key, Metadata={"long": "x" * 3000})


def test_if_match_on_nothing_is_a_412(seaweed: Bucket) -> None:
    with pytest.raises(ClientError) as caught:
        seaweed.put("k", b"", IfMatch=MISSING)
    assert answer_of(caught.value) == (412, "PreconditionFailed")
