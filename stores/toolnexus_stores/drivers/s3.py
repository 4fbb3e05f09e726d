"""``s3://``: one gzip object per conversation, replaced whole under a condition.

A save is one PUT with ``If-Match``, or ``If-None-Match: *`` for a new conversation; the version is
the ETag. The object's first line is the head, each other line a message, so that ``zcat`` and
``jq`` work on it. The head is also in the object's metadata where it fits, for a get that finds its
conversation unchanged to cost one HEAD.

Conditional writes: https://docs.aws.amazon.com/AmazonS3/latest/userguide/conditional-writes.html.
The endpoint is asked on first use whether it honours them, as some do not.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import gzip
import hashlib
import secrets
import zlib
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar, final

from pydantic import Field

from toolnexus_stores.driver import Conflict, Damaged, Edit, Fault, Head, Record, Version
from toolnexus_stores.errors import InvalidURL
from toolnexus_stores.options import DriverOptions, Location

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

__all__ = ["S3Driver", "S3Options"]

T = TypeVar("T")

_SUFFIX = ".jsonl.gz"
_PROBE = ".conditional-writes"
_NOBODYS_ETAG = '"00000000000000000000000000000000"'
_META = "toolnexus-head"
_META_BYTES = 1_900  # S3 takes 2 KB of metadata in all
_HEAD_BYTES = 16_384  # the first read for a head that is not in the metadata
_QUICK = 1  # gzip level: within a few percent of the default's size in a third of its time


class S3Options(DriverOptions):
    """``s3://bucket/prefix``. Credentials come from the usual AWS chain, never from the URL."""

    requires: ClassVar[Mapping[str, str]] = {"boto3": "toolnexus-stores[s3]"}

    bucket: str
    prefix: str

    endpoint_url: str | None = Field(default=None, pattern=r"^https?://[^@\s]+$")
    """Another vendor's endpoint."""
    region: str | None = None
    profile: str | None = None
    addressing_style: Literal["auto", "path", "virtual"] = "auto"
    sse: Literal["AES256", "aws:kms", "aws:kms:dsse"] | None = None
    """Server-side encryption; the bucket's default if it is not given."""
    sse_kms_key_id: str | None = None
    conditional: Literal["required", "off"] = "required"
    """``off``: for an endpoint without conditional writes. Of two writers one may then lose a save
    in silence; a reader still sees a whole transcript."""
    pool_size: int = Field(default=10, ge=1)
    """Requests at once, at most; others wait."""
    connect_timeout: float = Field(default=5, gt=0)
    read_timeout: float = Field(default=20, gt=0)

    @classmethod
    def locate(cls, location: Location) -> Mapping[str, object]:
        """The bucket and the prefix."""
        if "@" in location.netloc or ":" in location.netloc:
            raise InvalidURL(
                "s3://bucket/prefix takes no credentials: set them as boto3 expects, such as in "
                "AWS_ACCESS_KEY_ID or a profile"
            )
        if not location.netloc:
            raise InvalidURL("s3://bucket/prefix: the bucket is missing")
        return {"bucket": location.netloc, "prefix": location.path.strip("/")}

    def driver(self) -> S3Driver:
        """A driver over the bucket."""
        encryption = {"ServerSideEncryption": self.sse, "SSEKMSKeyId": self.sse_kms_key_id}
        return S3Driver(
            partial(_client, self),
            self.bucket,
            self.prefix,
            put={name: value for name, value in encryption.items() if value},
            conditional=self.conditional == "required",
            pool_size=self.pool_size,
        )


def _client(options: S3Options) -> Any:
    import boto3  # noqa: PLC0415 - no client is imported before the first call
    from botocore.config import Config  # noqa: PLC0415

    config = Config(
        connect_timeout=options.connect_timeout,
        read_timeout=options.read_timeout,
        max_pool_connections=options.pool_size,
        # Not tried again by the client: the store does that, and resolves what is ambiguous.
        retries={"total_max_attempts": 1},
        # No trailing checksums, which other vendors' endpoints refuse; Content-MD5 serves.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        s3={"addressing_style": options.addressing_style},
    )
    account = boto3.Session(profile_name=options.profile, region_name=options.region)
    client = account.client("s3", endpoint_url=options.endpoint_url, config=config)
    client.meta.events.register("before-send.s3.PutObject", _expect_nothing)
    return client


def _expect_nothing(request: Any, **_: object) -> None:
    """Send the body at once, without waiting for ``100 Continue``.

    A connection that ends inside that answer sends botocore into a loop that never ends, on a
    thread that nothing stops (1.44: `AWSConnection._consume_headers` reads on at the end of the
    stream). A refused body costs less than a round trip on each save.
    """
    request.headers.pop("Expect", None)  # no part of what is signed


@final
class S3Driver:
    """Records as objects below *prefix*. The client is blocking, and runs in threads of its own."""

    def __init__(  # noqa: PLR0913 - each is one choice
        self,
        connect: Callable[[], Any],
        bucket: str,
        prefix: str = "",
        *,
        put: Mapping[str, Any] | None = None,
        conditional: bool = True,
        pool_size: int = 10,
    ) -> None:
        self._connect = connect
        self._bucket = bucket
        self._prefix = f"{prefix}/" if prefix else ""
        self._put_options = dict(put or {})
        self._conditional = conditional
        self._threads = ThreadPoolExecutor(pool_size, thread_name_prefix="toolnexus-stores-s3")
        self._client: Any = None

    async def open(self) -> None:
        """See `Driver.open`."""
        self._client = await self._in_thread(self._connect)
        if self._conditional:
            await self._in_thread(self._probe)

    async def head(self, key: str) -> Head | None:
        """See `Driver.head`."""
        return await self._in_thread(self._head, key)

    async def read(self, key: str) -> Record | None:
        """See `Driver.read`."""
        return await self._in_thread(self._read, key)

    async def write(self, key: str, edit: Edit) -> Version:
        """See `Driver.write`. A cancelled write goes on in its thread; its condition fences it."""
        return await self._in_thread(self._write, key, edit)

    async def delete(self, key: str) -> bool:
        """See `Driver.delete`."""
        return await self._in_thread(self._delete, key)

    async def keys(self, prefix: str) -> AsyncIterator[str]:
        """See `Driver.keys`."""
        token: dict[str, str] = {}
        while True:
            request = {"Bucket": self._bucket, "Prefix": self._prefix + prefix, **token}
            page = await self._in_thread(partial(self._client.list_objects_v2, **request))
            for each in page.get("Contents", ()):
                name: str = each["Key"]
                if name.endswith(_SUFFIX):
                    yield name[len(self._prefix) : -len(_SUFFIX)]
            if not page.get("IsTruncated"):
                return
            token = {"ContinuationToken": page["NextContinuationToken"]}

    async def close(self) -> None:
        """See `Driver.close`."""
        if self._client is not None:
            self._client.close()
        self._threads.shutdown(wait=False)

    def explain(self, error: Exception) -> Fault | None:
        """See `Driver.explain`."""
        if isinstance(error, _Unconditional):
            return Fault(
                "the endpoint ignores conditional writes, so that two writers would lose a save "
                "in silence; if there is one writer only, set conditional=off"
            )
        if not type(error).__module__.startswith(("botocore.", "boto3.", "urllib3.")):
            return None
        response = getattr(error, "response", None)
        if isinstance(response, dict):
            return _fault_of(_code(error), _status(error))
        return _CLIENT_FAULTS.get(
            type(error).__name__,
            Fault("the request did not end well", transient=True, ambiguous=True),
        )

    def where(self, key: str) -> str:
        """The object."""
        return f"bucket {self._bucket}, object {self._name(key)}"

    async def _in_thread(self, work: Callable[..., T], *arguments: object) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, partial(work, *arguments))

    def _name(self, key: str) -> str:
        return self._prefix + key + _SUFFIX

    def _probe(self) -> None:
        """Raise `_Unconditional` unless both conditions are honoured. Leaves one small object."""
        put = partial(
            self._client.put_object, Bucket=self._bucket, Key=self._prefix + _PROBE, Body=b""
        )
        for attempt in ({"IfNoneMatch": "*"}, {"IfNoneMatch": "*"}, {"IfMatch": _NOBODYS_ETAG}):
            try:
                put(**attempt)
            except Exception as error:
                if _status(error) == 501:
                    raise _Unconditional from error
                if _status(error) != 412:
                    raise
                refused = True
            else:
                refused = False
        if not refused:
            raise _Unconditional

    def _head(self, key: str) -> Head | None:
        try:
            found = self._client.head_object(Bucket=self._bucket, Key=self._name(key))
        except Exception as error:
            if _status(error) == 404:
                return None
            raise
        meta = found["Metadata"].get(_META)
        if meta is None:
            return self._head_inside(key, _HEAD_BYTES)
        try:
            return Head(found["ETag"], base64.b64decode(meta, validate=True))
        except binascii.Error as error:
            raise Damaged("its metadata is not ours", where=self.where(key)) from error

    def _head_inside(self, key: str, length: int) -> Head | None:
        """The head from the first *length* bytes of the object, or from more if it is longer."""
        found = self._get(key, Range=f"bytes=0-{length - 1}")
        if found is None:
            return None
        data = found["Body"].read()
        try:
            line = zlib.decompressobj(wbits=31).decompress(data)
        except zlib.error as error:
            raise Damaged("it is not gzip", where=self.where(key)) from error
        if b"\n" not in line:
            if len(data) < length:
                raise Damaged("it ends inside its head", where=self.where(key))
            return self._head_inside(key, 8 * length)
        return Head(found["ETag"], self._meta_of(line[: line.index(b"\n")], key))

    def _read(self, key: str) -> Record | None:
        found = self._get(key)
        if found is None:
            return None
        try:
            first, *texts = gzip.decompress(found["Body"].read()).split(b"\n")
        except (OSError, EOFError, zlib.error) as error:
            if type(error).__module__.startswith(("botocore.", "urllib3.")):
                raise
            raise Damaged("it is not whole", where=self.where(key)) from error
        if not texts or texts.pop():
            raise Damaged("its last line is cut", where=self.where(key))
        return Record(Head(found["ETag"], self._meta_of(first, key)), texts)

    def _get(self, key: str, **options: str) -> Any:
        try:
            return self._client.get_object(Bucket=self._bucket, Key=self._name(key), **options)
        except Exception as error:
            if _code(error) == "NoSuchKey":
                return None
            raise

    def _meta_of(self, line: bytes, key: str) -> bytes:
        start, end = b'{"meta":', b"}"
        if not (line.startswith(start) and line.endswith(end)):
            raise Damaged("its first line is not a head", where=self.where(key))
        return line[len(start) : -len(end)]

    def _write(self, key: str, edit: Edit) -> Version:
        lines = [b'{"meta":%s}' % edit.meta, *edit.whole()]
        # An ETag is a digest of the body. The nonce keeps a version from coming back with it.
        nonce = secrets.randbits(32)
        body = gzip.compress(b"\n".join((*lines, b"")), _QUICK, mtime=nonce)
        meta = base64.b64encode(edit.meta).decode("ascii")
        condition = {"IfNoneMatch": "*"} if edit.expected is None else {"IfMatch": edit.expected}
        try:
            done = self._client.put_object(
                Bucket=self._bucket,
                Key=self._name(key),
                Body=body,
                ContentMD5=base64.b64encode(
                    hashlib.md5(body, usedforsecurity=False).digest()
                ).decode("ascii"),
                ContentType="application/x-ndjson",
                ContentEncoding="gzip",
                Metadata={_META: meta} if len(meta) <= _META_BYTES else {},
                **(condition if self._conditional else {}),
                **self._put_options,
            )
        except Exception as error:
            # 404: there is nothing to match.
            if _status(error) == 412 or (edit.expected and _code(error) == "NoSuchKey"):
                raise Conflict(f"the version of {key} is another one") from error
            raise
        version: str = done["ETag"]
        return version

    def _delete(self, key: str) -> bool:
        there = self._head_exists(key)
        self._client.delete_object(Bucket=self._bucket, Key=self._name(key))
        return there

    def _head_exists(self, key: str) -> bool:
        try:
            self._client.head_object(Bucket=self._bucket, Key=self._name(key))
        except Exception as error:
            if _status(error) == 404:
                return False
            raise
        return True


class _Unconditional(Exception):
    """The endpoint took a write whose condition did not hold."""


def _code(error: Exception) -> str:
    response = getattr(error, "response", None) or {}
    return str(response.get("Error", {}).get("Code", ""))


def _status(error: Exception) -> int:
    response = getattr(error, "response", None) or {}
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return int(status)


_SLOW = {"SlowDown", "Throttling", "ThrottlingException", "RequestTimeout", "TooManyRequests"}
_REASONS = {
    "NoSuchBucket": "the bucket does not exist",
    "AccessDenied": "access is denied; absence is told from denial by the right s3:ListBucket",
    "403": "access is denied; absence is told from denial by the right s3:ListBucket",
    "InvalidAccessKeyId": "the credentials are refused",
    "SignatureDoesNotMatch": "the credentials are refused",
    "ExpiredToken": "the credentials have expired",
    "RequestTimeTooSkewed": "this machine's clock is wrong",
    "PermanentRedirect": "the bucket is in another region",
    "EntityTooLarge": "the transcript is larger than one PUT takes",
    "BadDigest": "what arrived is not what was sent",
}


def _fault_of(code: str, status: int) -> Fault:
    if status == 409:  # ConditionalRequestConflict: another write is under way
        return Fault("another write is under way", transient=True)
    if code in _SLOW or status in {408, 429, 503}:
        return Fault("the service asks to slow down", transient=True, ambiguous=status == 503)
    if status >= 500:
        return Fault("the service failed", transient=True, ambiguous=True)
    transient = code == "BadDigest"
    return Fault(_REASONS.get(code, f"the service answered {status}"), transient=transient)


_NO_CREDENTIALS = Fault("no AWS credentials were found")
_CLIENT_FAULTS = {
    "NoCredentialsError": _NO_CREDENTIALS,
    "PartialCredentialsError": _NO_CREDENTIALS,
    "CredentialRetrievalError": _NO_CREDENTIALS,
    "TokenRetrievalError": _NO_CREDENTIALS,
    "ProfileNotFound": Fault("the AWS profile does not exist"),
    "NoRegionError": Fault("no region is set; give region="),
    "ParamValidationError": Fault("the bucket's name or a parameter is not valid"),
    "EndpointConnectionError": Fault("the endpoint could not be reached", transient=True),
    "ConnectTimeoutError": Fault("the endpoint could not be reached", transient=True),
    "SSLError": Fault("the TLS connection could not be made"),
}
