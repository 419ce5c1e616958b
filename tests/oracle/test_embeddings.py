"""Vectors of an embeddings server that answers in every form, and fails in every way."""

from __future__ import annotations

import gzip
import hashlib
import json
import socket
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from graphmem_torch.errors import InputError, OracleError
from graphmem_torch.oracle import OpenAIClient
from tests.oracle.server import Act, Exchange, ScriptedServer, base64_of

Serve = Callable[..., tuple[ScriptedServer, OpenAIClient]]


def vector(text: str, dim: int = 8) -> list[float]:
    """A vector of a text alone, in numbers that 32 bits hold exactly."""
    data = hashlib.shake_128(text.encode()).digest(dim)
    return [(byte - 128) / 64 for byte in data]


def expected(texts: list[str], dim: int = 8) -> np.ndarray:
    return np.array([vector(text, dim) for text in texts], dtype=np.float32)


def good(exchange: Exchange) -> None:
    exchange.embed([vector(text) for text in exchange.texts])


def items(make: Callable[[Exchange], Any]) -> Act:
    """A response whose `data` is made from the request."""
    return lambda exchange: exchange.send(json.dumps({"data": make(exchange)}).encode())


def reversed_items(exchange: Exchange) -> list[Any]:
    found = [{"index": i, "embedding": vector(text)} for i, text in enumerate(exchange.texts)]
    return found[::-1]


TEXTS = [f"text {i} of many" for i in range(11)]


def test_vectors_come_in_the_order_of_the_texts(serve: Serve) -> None:
    server, client = serve(good, api_key="secret", options={"dimensions": 8, "user": None})
    found = client.embed(TEXTS, batch=4)
    assert found.dtype == np.float32
    assert np.array_equal(found, expected(TEXTS))
    assert sorted(map(len, (r["input"] for r in server.requests))) == [3, 4, 4]
    assert server.requests[0]["dimensions"] == 8 and "user" not in server.requests[0]
    assert {r["encoding_format"] for r in server.requests} == {"base64"}
    assert set(server.keys) == {"Bearer secret"}
    assert client.usage.calls == 3 and client.usage.prompt_tokens == 11
    assert client.embed([]).shape == (0, 0)


@pytest.mark.parametrize(
    "act",
    [
        items(reversed_items),
        items(lambda e: [{"embedding": vector(text)} for text in e.texts]),
        items(lambda e: [{"embedding": base64_of(vector(text))} for text in e.texts]),
        items(
            lambda e: [
                {"index": float(i), "embedding": vector(text)} for i, text in enumerate(e.texts)
            ]
        ),
    ],
    ids=["out of order", "no index", "base64 without index", "index as 1.0"],
)
def test_forms_of_an_answer(serve: Serve, act: Act) -> None:
    _, client = serve(act)
    assert np.array_equal(client.embed(TEXTS), expected(TEXTS))


def test_a_server_that_refuses_base64_is_asked_for_numbers(serve: Serve) -> None:
    def refuses(exchange: Exchange) -> None:
        if exchange.body["encoding_format"] == "base64":
            exchange.fail(400, param="encoding_format")
        else:
            good(exchange)

    server, client = serve(refuses)
    assert np.array_equal(client.embed(TEXTS[:3]), expected(TEXTS[:3]))
    assert np.array_equal(client.embed(TEXTS), expected(TEXTS))
    assert len(server.requests) == 3, "refused once"


def cut(exchange: Exchange) -> None:
    exchange.handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 400\r\n\r\n{")
    exchange.handler.connection.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize(
    "bad",
    [
        lambda e: e.fail(429, retry_after="0"),
        lambda e: e.fail(503),
        lambda e: e.send(b"<html>busy</html>", 502, "text/html"),
        lambda e: e.send(b"<html>busy</html>", 200, "text/html"),
        lambda e: e.send(b'{"data": '),
        cut,
        items(lambda e: [{"index": 0, "embedding": vector(text)} for text in e.texts]),
        items(lambda e: reversed_items(e)[1:]),
        items(lambda e: [{"embedding": "not base64"} for _ in e.texts]),
        items(lambda e: [{"embedding": None} for _ in e.texts]),
        items(lambda e: [{"embedding": [[1.0], [2.0]]} for _ in e.texts]),
        items(lambda e: [{"embedding": []} for _ in e.texts]),
        items(lambda e: [{"embedding": [1.0] * (i + 1)} for i in range(len(e.texts))]),
        items(lambda e: [{"embedding": vector(t), "index": str(i)} for i, t in enumerate(e.texts)]),
    ],
    ids=str,
)
def test_a_bad_answer_is_asked_for_again_then_given_up(serve: Serve, bad: Act) -> None:
    _, client = serve(bad, bad, good)
    assert np.array_equal(client.embed(TEXTS), expected(TEXTS))
    assert (client.usage.calls, client.usage.retries) == (3, 2)
    _, lost = serve(bad, retries=1)
    with pytest.raises(OracleError, match="gave no usable answer") as error:
        lost.embed(TEXTS)
    assert "\n" not in str(error.value)
    assert lost.usage.failures == len(TEXTS)


def test_no_second_attempt_without_a_key(serve: Serve) -> None:
    server, client = serve(lambda e: e.fail(401), api_key="secret")
    with pytest.raises(OracleError, match="HTTP 401") as error:
        client.embed(TEXTS, batch=2)
    assert "secret" not in str(error.value)
    assert len(server.requests) <= client.concurrency


def test_a_request_that_is_too_large_is_halved(serve: Serve) -> None:
    for status in (400, 413, 422):

        def few(exchange: Exchange, status: int = status) -> None:
            good(exchange) if len(exchange.texts) <= 3 else exchange.fail(status)

        server, client = serve(few)
        assert np.array_equal(client.embed(TEXTS), expected(TEXTS))
        assert [len(r["input"]) for r in server.requests if len(r["input"]) <= 3] == [2, 3, 3, 3]


def test_a_text_that_is_too_long_is_read_in_parts(serve: Serve) -> None:
    seen: list[str] = []

    def short(exchange: Exchange) -> None:
        if any(len(text) > 200 for text in exchange.texts):
            error = {"error": {"message": "input is too large to process", "type": "server_error"}}
            exchange.send(json.dumps(error).encode(), 500)
        else:
            seen.extend(exchange.texts)
            good(exchange)

    _, client = serve(short)
    long = " ".join(f"word{i}" for i in range(100))
    found = client.embed(["short", long])
    assert "".join(seen[1:]) == long and len(seen) > 3
    assert np.array_equal(found[0], expected(["short"])[0])

    def mean(part: list[str]) -> np.ndarray:
        """The same by the tree of halves."""
        text = "".join(part)
        if len(part) == 1:
            return expected(part)[0]
        middle = text.rfind(" ", len(text) // 4, len(text) // 2) + 1
        at = next(i for i in range(1, len(part)) if len("".join(part[:i])) == middle)
        left, right = part[:at], part[at:]
        rows = [mean(left), mean(right)]
        shares = [len("".join(left)), len("".join(right))]
        return sum(s * r / np.linalg.norm(r) for s, r in zip(shares, rows, strict=True))

    one = mean(seen[1:])
    assert np.allclose(found[1] / np.linalg.norm(found[1]), one / np.linalg.norm(one), atol=1e-5)


def test_a_server_that_refuses_everything_is_asked_few_times(serve: Serve) -> None:
    server, client = serve(lambda e: e.fail(400), retries=5)
    with pytest.raises(OracleError, match="refused a text of"):
        client.embed(TEXTS)
    assert len(server.requests) <= 8


def test_a_server_that_changes_its_width(serve: Serve) -> None:
    _, client = serve(good, lambda e: e.embed([vector(t, 16) for t in e.texts]), concurrency=1)
    with pytest.raises(OracleError, match=r"vectors of \[8, 16\] values; the model of the server"):
        client.embed(TEXTS, batch=6)


def test_texts_without_characters_and_half_characters(serve: Serve) -> None:
    server, client = serve(good)
    found = client.embed(["", "a\ud800b", " \n", "c"])
    assert not found[0].any() and not found[2].any()
    assert np.array_equal(found[[1, 3]], expected(["a?b", "c"]))
    assert server.requests[0]["input"] == ["a?b", "c"]


def test_a_server_that_hangs(serve: Serve) -> None:
    _, client = serve(lambda e: e.hang(), timeout=0.05, retries=1)
    with pytest.raises(OracleError, match=r"no answer within 0\.1 s"):
        client.embed(["a"])


def test_texts_are_a_list(serve: Serve) -> None:
    _, client = serve(good)
    for wrong in ("one text", [1], None):
        with pytest.raises(InputError, match="texts: expected a list"):
            client.embed(wrong)
    with pytest.raises(InputError, match="batch"):
        client.embed(["a"], batch=0)


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda e: e.send(b'{"error": {"message": "no such model"}}'), "no embeddings"),
        (
            items(lambda e: [*reversed_items(e), {"index": 0, "embedding": [1.0]}]),
            "4 vectors for 3",
        ),
        (
            items(
                lambda e: [{"index": i + 1, "embedding": vector(t)} for i, t in enumerate(e.texts)]
            ),
            "`index` is not each of 0 to 2",
        ),
        (items(lambda e: {"0": vector("a")}), "no embeddings|vectors"),
        (items(lambda e: [vector(t) for t in e.texts]), "vectors"),
        (lambda e: e.send(b"[]"), "no embeddings"),
        (lambda e: e.send(b"null"), "no embeddings|Error"),
        (lambda e: e.fail(429, retry_after="3600"), "it asks to wait 3600 s"),
        (lambda e: e.fail(404), "HTTP 404"),
        (lambda e: e.drip(), "no answer within"),
        (lambda e: e.send(b"", 204), "gave no usable answer"),
    ],
    ids=str,
)
def test_answers_of_other_servers(serve: Serve, act: Act, message: str) -> None:
    _, client = serve(act, retries=1, timeout=1.0)
    with pytest.raises(OracleError, match=message) as error:
        client.embed(TEXTS[:3])
    assert "\n" not in str(error.value) and len(str(error.value)) < 500


def test_forms_of_transport(serve: Serve) -> None:
    def zipped(exchange: Exchange) -> None:
        body = json.dumps({"data": reversed_items(exchange)}).encode()
        exchange.send(gzip.compress(body), Content_Encoding="gzip")

    def elsewhere(exchange: Exchange) -> None:
        moved = exchange.handler.path.endswith("/embeddings")
        if moved:
            exchange.send(b"", 307, Location=f"{exchange.server.url}/there")
        else:
            good(exchange)

    for act in (zipped, elsewhere):
        _, client = serve(act)
        assert np.array_equal(client.embed(TEXTS), expected(TEXTS))


def test_client_after_a_close(serve: Serve) -> None:
    _, client = serve(good)
    client.embed(["a"])
    client.close()
    assert np.array_equal(client.embed(["b"]), expected(["b"]))
