"""A small strict S3 of our own, for faults and for refusing what some vendors refuse.

It holds objects in memory. What it does not know it answers with 501, never with success, and
it never stores a body that is not exactly what the client announced.
"""

import base64
import contextlib
import hashlib
import re
import socket
import ssl
import struct
import threading
import zlib
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import format_datetime
from fnmatch import fnmatchcase
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal, Self, final
from urllib.parse import parse_qsl, quote, unquote, urlsplit
from xml.sax.saxutils import escape

CODES = {
    403: "AccessDenied",
    404: "NoSuchKey",
    409: "ConditionalRequestConflict",
    412: "PreconditionFailed",
    500: "InternalError",
    503: "SlowDown",
}
PAGE = 1000
LONGEST_KEY = 1024
MOST_METADATA = 2048
# AWS's own list of characters that are safe in every client
SAFE_KEY = re.compile(r"[0-9A-Za-z!_.*'()-]+(/[0-9A-Za-z!_.*'()-]+)*")
CHECKSUMS: Mapping[str, Callable[[bytes], bytes]] = {
    "x-amz-checksum-crc32": lambda body: zlib.crc32(body).to_bytes(4, "big"),
    "x-amz-checksum-sha1": lambda body: hashlib.sha1(body, usedforsecurity=False).digest(),
    "x-amz-checksum-sha256": lambda body: hashlib.sha256(body).digest(),
}
KEPT = ("content-type", "content-encoding", "cache-control", "x-amz-server-side-encryption")
ETAGS = ("if-match", "if-none-match")
LIST_OPTIONS = {
    "list-type",
    "prefix",
    "max-keys",
    "continuation-token",
    "start-after",
    "encoding-type",
    "fetch-owner",
}

Conditions = Literal["honour", "ignore", "refuse"]


@dataclass(frozen=True, slots=True)
class Request:
    """One request as it came in; `body` is what arrived, if cut short too."""

    method: str
    bucket: str
    key: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes
    received: int
    """Bytes on the wire: request line, headers and body."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One response before it is written."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


class RefusedError(Exception):
    """A request that is answered with an S3 error."""

    def __init__(self, status: int, code: str) -> None:
        super().__init__(code)
        self.status = status
        self.code = code


@dataclass(frozen=True, slots=True)
class Fault:
    """What goes wrong with the next requests that match.

    Without `method` and `key` (a pattern: `*` matches anything) every request matches. `applied`
    tells whether the request is carried out before it goes wrong.
    """

    status: int | None = None
    drop: bool = False
    cut: bool = False
    delay: float = 0.0
    applied: bool = False
    method: str | None = None
    key: str = "*"
    times: int = 1

    def matches(self, request: Request) -> bool:
        """Tell whether this goes wrong for *request*."""
        return self.method in {None, request.method} and fnmatchcase(request.key, self.key)


@dataclass(frozen=True, slots=True)
class Object:
    """One stored object."""

    body: bytes
    etag: str
    headers: Mapping[str, str]
    modified: datetime


@final
class StrictS3:
    """The server: `with StrictS3() as server: …`.

    Each request takes effect as a whole or not at all, one at a time. `conditional` says what
    becomes of `If-Match` and `If-None-Match`: honoured as AWS does, ignored as some vendors do,
    or refused. Buckets in `denied` exist and answer 403 to everything. With `tls` it speaks HTTPS.
    """

    def __init__(
        self,
        *,
        bucket: str = "strict",
        denied: tuple[str, ...] = ("denied",),
        conditional: Conditions = "honour",
        any_key: bool = False,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.bucket = bucket
        self.denied = denied
        self.conditional = conditional
        self.any_key = any_key
        self.environment = {
            "AWS_ACCESS_KEY_ID": "strict-access-key",
            "AWS_SECRET_ACCESS_KEY": "strict-secret-key",
            "AWS_DEFAULT_REGION": "us-east-1",
        }
        self.stopping = threading.Event()
        self._lock = threading.Lock()
        self._objects: dict[str, Object] = {}
        self._requests: list[Request] = []
        self._faults: list[Fault] = []
        self._spent: Counter[int] = Counter()
        self._http = _Listener(self, tls)
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopping.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    @property
    def endpoint(self) -> str:
        """`http://127.0.0.1:port`."""
        return f"{self._http.scheme}://127.0.0.1:{self._http.server_port}"

    @property
    def url(self) -> str:
        """What `open_store` takes; the keys are in `environment`."""
        return f"s3://{self.bucket}/tests?endpoint_url={self.endpoint}"

    # what tests say and ask

    def fail(self, *faults: Fault) -> None:
        """Add *faults*; for each request the first that matches and is not used up applies."""
        with self._lock:
            self._faults.extend(faults)

    def heal(self) -> None:
        """Forget all faults."""
        with self._lock:
            self._faults.clear()
            self._spent.clear()

    @property
    def requests(self) -> list[Request]:
        """Every request so far, in the order of arrival."""
        with self._lock:
            return list(self._requests)

    def forget_requests(self) -> None:
        """Begin the record anew."""
        with self._lock:
            self._requests.clear()

    @property
    def bodies(self) -> dict[str, bytes]:
        """What is stored, by key."""
        with self._lock:
            return {key: found.body for key, found in self._objects.items()}

    def plant(self, key: str, body: bytes) -> None:
        """Store *body* behind the clients' backs, keeping the object's headers if it exists."""
        with self._lock:
            old = self._objects.get(key)
            self._objects[key] = _object(body, old.headers if old else {})

    # what the listener asks

    def begin(self, request: Request) -> Fault | None:
        """Record *request* and return what is to go wrong with it."""
        with self._lock:
            self._requests.append(request)
            for position, fault in enumerate(self._faults):
                if fault.matches(request) and self._spent[position] < fault.times:
                    self._spent[position] += 1
                    return fault
        return None

    def answer(self, request: Request) -> Answer:
        """Carry out *request*, whole, and return the response."""
        try:
            self._check(request)
            with self._lock:
                return self._apply(request)
        except RefusedError as exc:
            return refusal(exc.status, exc.code, request)

    def _check(self, request: Request) -> None:
        _check_account(request, self.environment["AWS_ACCESS_KEY_ID"])
        _check_body(request)
        if request.bucket in self.denied:
            raise RefusedError(403, "AccessDenied")
        if request.bucket != self.bucket:
            raise RefusedError(404, "NoSuchBucket")
        if request.key and not self.any_key:
            _check_key(request.key)
        if self.conditional == "refuse" and any(name in request.headers for name in ETAGS):
            raise RefusedError(501, "NotImplemented")

    def _apply(self, request: Request) -> Answer:
        if not request.key:
            return self._on_bucket(request)
        known = {"x-id"}  # what clients add to name the operation
        if set(request.query) - known:
            raise RefusedError(501, "NotImplemented")
        match request.method:
            case "GET" | "HEAD":
                return self._get(request)
            case "PUT":
                return self._put(request)
            case "DELETE":
                return self._delete(request)
        raise RefusedError(501, "NotImplemented")

    def _on_bucket(self, request: Request) -> Answer:
        if request.method == "HEAD":
            return Answer(200)
        if request.method == "GET" and request.query.get("list-type") == "2":
            return self._list(request)
        raise RefusedError(501, "NotImplemented")

    def _get(self, request: Request) -> Answer:
        found = self._objects.get(request.key)
        if found is None:
            raise RefusedError(404, "NoSuchKey")
        headers = {
            **found.headers,
            "etag": found.etag,
            "last-modified": format_datetime(found.modified, usegmt=True),
        }
        if "x-amz-checksum-mode" not in request.headers:
            headers = {name: text for name, text in headers.items() if name not in CHECKSUMS}
        if not self._holds(request, found):
            unchanged = "if-none-match" in request.headers
            if unchanged:
                return Answer(304, {"etag": found.etag})
            raise RefusedError(412, "PreconditionFailed")
        return Answer(200, headers, found.body)

    def _put(self, request: Request) -> Answer:
        if "x-amz-copy-source" in request.headers:
            raise RefusedError(501, "NotImplemented")
        if request.headers.get("if-none-match", "*") != "*":
            raise RefusedError(501, "NotImplemented")
        found = self._objects.get(request.key)
        if found is None and "if-match" in request.headers and self.conditional == "honour":
            raise RefusedError(404, "NoSuchKey")
        if not self._holds(request, found):
            raise RefusedError(412, "PreconditionFailed")
        stored = _object(request.body, _kept(request.headers))
        self._objects[request.key] = stored
        echoed = {name: text for name, text in stored.headers.items() if name in CHECKSUMS}
        return Answer(200, {**echoed, "etag": stored.etag})

    def _delete(self, request: Request) -> Answer:
        if not self._holds(request, self._objects.get(request.key)):
            raise RefusedError(412, "PreconditionFailed")
        self._objects.pop(request.key, None)
        return Answer(204)

    def _holds(self, request: Request, found: Object | None) -> bool:
        """Tell whether the conditions of *request* hold of what is stored now."""
        if self.conditional == "ignore":
            return True
        wanted = request.headers.get("if-match")
        if wanted is not None and not _is_named(found, wanted):
            return False
        unwanted = request.headers.get("if-none-match")
        return unwanted is None or not _is_named(found, unwanted)

    def _list(self, request: Request) -> Answer:
        query = request.query
        if set(query) - LIST_OPTIONS:
            raise RefusedError(501, "NotImplemented")
        after = query.get("start-after", "")
        if "continuation-token" in query:
            after = base64.urlsafe_b64decode(query["continuation-token"]).decode()
        prefix = query.get("prefix", "")
        size = min(int(query.get("max-keys", PAGE)), PAGE)
        rest = sorted(key for key in self._objects if key.startswith(prefix) and key > after)
        return Answer(
            200,
            {"content-type": "application/xml"},
            self._page(prefix, rest[:size], more=len(rest) > size, size=size, query=query),
        )

    def _page(
        self, prefix: str, keys: list[str], *, more: bool, size: int, query: Mapping[str, str]
    ) -> bytes:
        encoded = query.get("encoding-type") == "url"
        show = quote if encoded else escape
        parts = [
            f"<Name>{self.bucket}</Name><Prefix>{show(prefix)}</Prefix>",
            f"<KeyCount>{len(keys)}</KeyCount><MaxKeys>{size}</MaxKeys>",
            f"<IsTruncated>{'true' if more else 'false'}</IsTruncated>",
        ]
        if encoded:
            parts.append("<EncodingType>url</EncodingType>")
        if more and keys:
            token = base64.urlsafe_b64encode(keys[-1].encode()).decode()
            parts.append(f"<NextContinuationToken>{token}</NextContinuationToken>")
        parts += [self._entry(key, show(key)) for key in keys]
        return _xml("ListBucketResult", "".join(parts))

    def _entry(self, key: str, shown: str) -> str:
        found = self._objects[key]
        return (
            f"<Contents><Key>{shown}</Key><ETag>{escape(found.etag)}</ETag>"
            f"<Size>{len(found.body)}</Size><StorageClass>STANDARD</StorageClass>"
            f"<LastModified>{found.modified:%Y-%m-%dT%H:%M:%S.000Z}</LastModified></Contents>"
        )


def refusal(status: int, code: str, request: Request) -> Answer:
    """Return the S3 error *code*."""
    body = _xml("Error", f"<Code>{code}</Code><Message>{code}</Message>")
    empty = request.method == "HEAD"
    return Answer(status, {"content-type": "application/xml"}, b"" if empty else body)


def _xml(tag: str, inner: str) -> bytes:
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<{tag}>{inner}</{tag}>'.encode()


def _object(body: bytes, headers: Mapping[str, str]) -> Object:
    digest = hashlib.md5(body, usedforsecurity=False).hexdigest()
    return Object(body, f'"{digest}"', headers, datetime.now(UTC))


def _is_named(found: Object | None, tags: str) -> bool:
    """Tell whether an If-Match value names what is stored."""
    if found is None:
        return False
    return any(tag.strip().strip('"') in {"*", found.etag.strip('"')} for tag in tags.split(","))


def _kept(headers: Mapping[str, str]) -> dict[str, str]:
    """Return what of a PUT's headers comes back with a GET."""
    own = {name: text for name, text in headers.items() if name.startswith("x-amz-meta-")}
    if sum(len(name) + len(text) for name, text in own.items()) > MOST_METADATA:
        raise RefusedError(400, "MetadataTooLarge")
    names = (*KEPT, *CHECKSUMS)
    return {**own, **{name: headers[name] for name in names if name in headers}}


def _check_account(request: Request, access_key: str) -> None:
    """Refuse what is not signed by our access key; the signature itself is not computed."""
    found = request.headers.get("authorization", "")
    if not found.startswith("AWS4-HMAC-SHA256 "):
        raise RefusedError(403, "AccessDenied")
    if f"Credential={access_key}/" not in found:
        raise RefusedError(403, "InvalidAccessKeyId")


def _check_key(key: str) -> None:
    if len(key.encode()) > LONGEST_KEY:
        raise RefusedError(400, "KeyTooLongError")
    dots = {".", ".."}.intersection(key.split("/"))
    if dots or not SAFE_KEY.fullmatch(key):
        raise RefusedError(400, "InvalidArgument")


def _check_body(request: Request) -> None:
    """Refuse a body that is not, for certain, what the client meant to send."""
    headers = request.headers
    chunked = "aws-chunked" in headers.get("content-encoding", "")
    digest = headers.get("x-amz-content-sha256")
    if digest is None:
        raise RefusedError(400, "MissingContentSHA256")
    if chunked or "x-amz-trailer" in headers or digest.startswith("STREAMING-"):
        raise RefusedError(501, "NotImplemented")
    if digest not in {"UNSIGNED-PAYLOAD", hashlib.sha256(request.body).hexdigest()}:
        raise RefusedError(400, "XAmzContentSHA256Mismatch")
    _check_md5(headers.get("content-md5"), request.body)
    _check_checksums(headers, request.body)


def _check_md5(announced: str | None, body: bytes) -> None:
    if announced is None:
        return
    digest = hashlib.md5(body, usedforsecurity=False).digest()
    if announced != base64.b64encode(digest).decode():
        raise RefusedError(400, "BadDigest")


def _check_checksums(headers: Mapping[str, str], body: bytes) -> None:
    given = [name for name in headers if re.fullmatch(r"x-amz-checksum-(?!mode$).+", name)]
    if len(given) > 1:
        raise RefusedError(400, "InvalidRequest")
    named = headers.get("x-amz-sdk-checksum-algorithm")
    if named is not None and given != [f"x-amz-checksum-{named.lower()}"]:
        raise RefusedError(400, "InvalidRequest")
    for name in given:
        if name not in CHECKSUMS:
            raise RefusedError(501, "NotImplemented")
        if headers[name] != base64.b64encode(CHECKSUMS[name](body)).decode():
            raise RefusedError(400, "BadDigest")


@final
class _Listener(ThreadingHTTPServer):
    """Takes connections, each in a thread of its own."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, owner: StrictS3, tls: ssl.SSLContext | None) -> None:
        super().__init__(("127.0.0.1", 0), _Conversation)
        self.owner = owner
        self.scheme = "http" if tls is None else "https"
        self._tls = tls
        self._open: set[socket.socket] = set()
        self._guard = threading.Lock()

    def get_request(self) -> tuple[socket.socket, object]:
        """Take one connection; TLS is shaken in its own thread, so that nobody holds us up."""
        connection, address = super().get_request()
        if self._tls is not None:
            connection = self._tls.wrap_socket(
                connection, server_side=True, do_handshake_on_connect=False
            )
        with self._guard:
            self._open.add(connection)
        return connection, address

    def shutdown_request(self, request: socket.socket | tuple[bytes, socket.socket]) -> None:
        """Close one connection."""
        if isinstance(request, socket.socket):
            with self._guard:
                self._open.discard(request)
        super().shutdown_request(request)

    def server_close(self) -> None:
        """Stop listening and cut every connection that is still open."""
        super().server_close()
        with self._guard:
            for connection in self._open:
                reset(connection)
            self._open.clear()

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: clients hang up in these tests, and so do we."""


def reset(connection: socket.socket) -> None:
    """Close *connection* the hard way, so that the peer sees a reset, not an end."""
    try:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # the peer was first


class _DroppedError(Exception):
    """The connection is closed without a response."""


@final
class _Conversation(BaseHTTPRequestHandler):
    """One connection: reads requests, writes responses."""

    protocol_version = "HTTP/1.1"
    server_version = "StrictS3"
    timeout = 30

    @property
    def _owner(self) -> StrictS3:
        assert isinstance(self.server, _Listener)
        return self.server.owner

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""

    def do_GET(self) -> None:
        """Answer one request, as well as the faults allow."""
        try:
            self._serve()
        except (_DroppedError, OSError):
            self.close_connection = True
            reset(self.connection)

    do_HEAD = do_PUT = do_DELETE = do_POST = do_PATCH = do_OPTIONS = do_GET  # noqa: N815 - http.server's

    def _serve(self) -> None:
        body, fault_of_body = self._read_body()
        request = self._request(body)
        fault = self._owner.begin(request)
        if fault_of_body is not None:
            self.close_connection = True  # where the next request begins is unknown
            self._drain()
            self._write(refusal(fault_of_body.status, fault_of_body.code, request))
            return
        if fault is None:
            self._write(self._owner.answer(request))
            return
        self._go_wrong(fault, request)

    def _go_wrong(self, fault: Fault, request: Request) -> None:
        owner = self._owner
        harmless = fault.status is None and not fault.drop
        answer = owner.answer(request) if fault.applied else None
        if fault.delay and owner.stopping.wait(fault.delay):
            raise _DroppedError
        if fault.drop:
            raise _DroppedError
        if harmless:
            answer = answer or owner.answer(request)
        elif fault.status is not None:
            answer = refusal(fault.status, CODES.get(fault.status, "InternalError"), request)
        if answer is not None:
            self._write(answer, cut=fault.cut)

    def _read_body(self) -> tuple[bytes, RefusedError | None]:
        """Return what arrived, and why it can't be the whole body, if it can't."""
        if "transfer-encoding" in self.headers:
            return b"", RefusedError(501, "NotImplemented")
        announced = self.headers.get_all("content-length", [])
        if not announced:
            missing = self.command in {"PUT", "POST"}
            return b"", RefusedError(411, "MissingContentLength") if missing else None
        if len(announced) > 1 or not announced[0].isascii() or not announced[0].isdigit():
            return b"", RefusedError(400, "InvalidArgument")
        body = self.rfile.read(int(announced[0]))
        short = len(body) < int(announced[0])
        return body, RefusedError(400, "IncompleteBody") if short else None

    def _drain(self) -> None:
        """Read what is still coming: TLS clients take an answer before the end for a failure."""
        self.connection.settimeout(0.2)
        with contextlib.suppress(OSError):
            while self.connection.recv(65536):
                pass

    def _request(self, body: bytes) -> Request:
        parts = urlsplit(self.path)
        bucket, _, key = parts.path.removeprefix("/").partition("/")
        head = len(self.requestline) + 2 + len(self.headers.as_bytes())
        return Request(
            method=self.command,
            bucket=unquote(bucket),
            key=unquote(key, errors="surrogateescape"),
            query=dict(parse_qsl(parts.query, keep_blank_values=True)),
            headers={name.lower(): text for name, text in self.headers.items()},
            body=body,
            received=head + len(body),
        )

    def _write(self, answer: Answer, *, cut: bool = False) -> None:
        self.send_response(answer.status)
        for name, text in answer.headers.items():
            self.send_header(name, text)
        self.send_header("x-amz-request-id", "strict")
        if answer.status not in {204, 304}:
            self.send_header("content-length", str(len(answer.body)))
        if self.close_connection:
            self.send_header("connection", "close")
        self.end_headers()
        if self.command == "HEAD":
            return
        if cut:
            self.wfile.write(answer.body[: len(answer.body) // 2])
            self.wfile.flush()
            raise _DroppedError
        self.wfile.write(answer.body)
