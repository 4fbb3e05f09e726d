"""A model provider on 127.0.0.1 that answers from a script, in both dialects, streamed or not."""

from __future__ import annotations

import contextlib
import json
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Self, cast, final

from .dialects import (
    Reply,
    anthropic_body,
    anthropic_events,
    openai_body,
    openai_events,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import TracebackType

    from .dialects import Message, Style

    Script = Callable[["Asked"], Reply]

__all__ = ["Asked", "ModelServer", "in_turn"]

_STYLES: dict[str, Style] = {"/v1/chat/completions": "openai", "/v1/messages": "anthropic"}


@dataclass(frozen=True, slots=True)
class Asked:
    """One request to the model, as it came over the wire."""

    style: Style
    body: dict[str, Any]

    @property
    def messages(self) -> list[Message]:
        """The transcript as the model was shown it."""
        return cast("list[Message]", self.body["messages"])

    @property
    def system(self) -> str:
        """The system prompt, wherever the dialect puts it."""
        if self.style == "anthropic":
            return str(self.body.get("system", ""))
        return "".join(m["content"] for m in self.messages if m["role"] == "system")


def in_turn(*replies: Reply) -> Script:
    """A script that gives each of *replies* once, in order; a further request is a failure."""
    lock = threading.Lock()
    left = iter(replies)

    def script(asked: Asked) -> Reply:
        with lock:
            reply = next(left, None)
        if reply is None:
            raise AssertionError("the model was asked more often than its script has replies")
        return reply

    return script


@final
class ModelServer:
    """A server that answers every request by *script*, in threads; closed on exit.

    The script may block, to hold a model call open. `asked` holds every request so far;
    `failures` whatever the script raised, and must be empty in the end.
    """

    def __init__(self, script: Script) -> None:
        self.asked: list[Asked] = []
        self.failures: list[Exception] = []
        self._script = script
        self._http = _HTTPServer(self)
        # A short poll interval, as it is how long closing takes.
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,))

    @property
    def url(self) -> str:
        """What the runtime takes as ``base_url``."""
        return f"http://127.0.0.1:{self._http.server_address[1]}/v1"

    def reply(self, asked: Asked) -> Reply:
        """The script's reply; a script that fails is an HTTP 400, which no client retries."""
        self.asked.append(asked)
        try:
            return self._script(asked)
        except Exception as error:
            self.failures.append(error)
            return Reply(text=repr(error), status=400)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()


@final
class _HTTPServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, model: ModelServer) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.model = model


@final
class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        model = cast("_HTTPServer", self.server).model
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        asked = Asked(_STYLES[self.path], body)
        reply = model.reply(asked)
        with contextlib.suppress(ConnectionError):  # a client that gave up need not be answered
            if reply.status != 200:
                self._send_json({"error": {"message": reply.text}}, reply.status)
            elif body.get("stream"):
                self._send_events(asked.style, reply)
            elif asked.style == "openai":
                self._send_json(openai_body(reply))
            else:
                self._send_json(anthropic_body(reply))

    def _send_json(self, body: dict[str, Any], status: int = 200) -> None:
        self._start("application/json", status)
        self.wfile.write(json.dumps(body).encode())

    def _send_events(self, style: Style, reply: Reply) -> None:
        self._start("text/event-stream")
        if style == "openai":
            self._send_lines(f"data: {json.dumps(event)}" for event in openai_events(reply))
            self._send_lines(["data: [DONE]"])
        else:
            self._send_lines(
                f"event: {event['type']}\ndata: {json.dumps(event)}"
                for event in anthropic_events(reply)
            )

    def _start(self, kind: str, status: int = 200) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.end_headers()

    def _send_lines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.wfile.write(f"{line}\n\n".encode())
            self.wfile.flush()

    def log_message(self, format: str, *args: object) -> None:
        """Keep quiet: what was asked is in `ModelServer.asked`."""
