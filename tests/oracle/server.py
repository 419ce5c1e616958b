"""A real HTTP server on the loopback that answers chat completions and embeddings by a script."""

from __future__ import annotations

import base64
import json
import struct
import threading
import time
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


def reply(text: Any, **fields: Any) -> bytes:
    """A chat completion with this text, as OpenAI writes it."""
    body = {
        "id": "c",
        "object": "chat.completion",
        "created": 0,
        "model": "m",
        "choices": [
            {
                "index": 0,
                "finish_reason": "stop",
                "message": {"role": "assistant", "content": text},
            }
        ],
        "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10},
    }
    return json.dumps({**body, **fields}).encode()


def base64_of(vector: Sequence[float]) -> str:
    """A vector of 32-bit numbers, as OpenAI writes it."""
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()


Act = Callable[["Exchange"], None]


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64  # whom a full queue turns away knocks again after a second


class Exchange:
    """One request, and the ways to answer it."""

    def __init__(self, handler: BaseHTTPRequestHandler, body: Any, server: ScriptedServer) -> None:
        self.handler, self.body, self.server = handler, body, server
        self.prompt: str = body["messages"][-1]["content"] if "messages" in body else ""
        self.texts: list[str] = body.get("input", [])

    def send(
        self,
        body: bytes,
        status: int = 200,
        kind: str = "application/json",
        **headers: str,
    ) -> None:
        """A whole response."""
        self.handler.send_response(status)
        self.handler.send_header("Content-Type", kind)
        self.handler.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.handler.send_header(name.replace("_", "-"), value)
        self.handler.end_headers()
        self.handler.wfile.write(body)

    def say(self, text: Any) -> None:
        """A chat completion with this text."""
        self.send(reply(text))

    def embed(self, vectors: Sequence[Any], **fields: Any) -> None:
        """An embeddings response with these vectors, as OpenAI writes it; `fields` of each item."""
        plain = self.body.get("encoding_format") != "base64"
        data = [
            {"object": "embedding", "index": i, "embedding": v if plain else base64_of(v), **fields}
            for i, v in enumerate(vectors)
        ]
        usage = {"prompt_tokens": len(self.texts), "total_tokens": len(self.texts)}
        self.send(
            json.dumps({"object": "list", "data": data, "model": "m", "usage": usage}).encode()
        )

    def fail(self, status: int, *, code: str | None = None, param: str | None = None, **h: str):
        """An error as OpenAI writes it."""
        error = {"message": "it went wrong", "type": "t", "param": param, "code": code}
        self.send(json.dumps({"error": error}).encode(), status, **h)

    def hang(self) -> None:
        """No answer until the server closes."""
        self.server.over.wait()

    def drip(self) -> None:
        """A byte now and then, without end: no single read is ever late."""
        self.handler.send_response(200)
        self.handler.send_header("Content-Type", "application/json")
        self.handler.end_headers()
        while not self.server.over.wait(0.02):
            self.handler.wfile.write(b" ")
            self.handler.wfile.flush()


class ScriptedServer:
    """Answers the n-th request with the n-th act, the last one for all further ones."""

    def __init__(self, *acts: Act) -> None:
        self.acts = acts
        self.requests: list[Any] = []
        self.times: list[float] = []
        self.keys: list[str | None] = []
        self.over = threading.Event()
        self.most = 0
        self._now = 0
        self._lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            # Else the body waits until the client has acknowledged the header: 40 ms.
            disable_nagle_algorithm = True

            def do_POST(self) -> None:
                outer._serve(self)

            def log_message(self, *_: Any) -> None:
                pass

        self._http = _Server(("127.0.0.1", 0), Handler)
        self._http.handle_error = lambda *_: None  # type: ignore[method-assign]
        self.url = f"http://127.0.0.1:{self._http.server_port}/v1"
        threading.Thread(target=self._http.serve_forever, args=(0.002,), daemon=True).start()

    def _serve(self, handler: BaseHTTPRequestHandler) -> None:
        body = json.loads(handler.rfile.read(int(handler.headers["Content-Length"])))
        with self._lock:
            act = self.acts[min(len(self.requests), len(self.acts) - 1)]
            self.requests.append(body)
            self.times.append(time.monotonic())
            self.keys.append(handler.headers.get("Authorization"))
            self._now += 1
            self.most = max(self.most, self._now)
        try:
            act(Exchange(handler, body, self))
        except OSError:
            pass  # the client has hung up
        finally:
            with self._lock:
                self._now -= 1

    def asked(self, count: int) -> bool:
        """Whether so many requests come; one may be read after its client has given up."""
        end = time.monotonic() + 20
        while len(self.requests) < count and time.monotonic() < end:
            time.sleep(0.001)
        return len(self.requests) == count

    def close(self) -> None:
        """Stops; whoever hangs gets no answer."""
        self.over.set()
        self._http.shutdown()
        self._http.server_close()
