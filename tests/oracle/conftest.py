"""Scripted servers and clients of them, closed when their test ends."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from graphmem_torch.oracle import OpenAIClient
from tests.oracle.server import Act, ScriptedServer


@pytest.fixture
def ends() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def serve(
    ends: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[ScriptedServer, OpenAIClient]]:
    """`serve(act, ..., retries=2)`: a server that acts so, and an impatient client of it."""
    pytest.importorskip("openai", reason="pip install 'graphmem-torch[openai]'")
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "SSL_CERT_FILE"):
        monkeypatch.delenv(name, raising=False)
    # A proxy of the machine's has nothing to do with the loopback.
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    # Nothing is encrypted; reading the certificates of the world takes longer than most tests.
    monkeypatch.setenv("SSL_CERT_DIR", os.devnull)

    def start(*acts: Act, **options: Any) -> tuple[ScriptedServer, OpenAIClient]:
        server = ScriptedServer(*acts)
        ends.callback(server.close)
        given = {"timeout": 20.0, "backoff": 0.001, "retries": 3, **options}
        client = OpenAIClient("m", base_url=server.url, **given)
        ends.callback(client.close)
        return server, client

    return start
