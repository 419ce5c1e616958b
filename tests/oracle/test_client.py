"""The client against a real server that fails in every way a server can."""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from graphmem_torch.errors import InputError, OracleError
from graphmem_torch.oracle import OpenAIClient, Usage
from graphmem_torch.oracle.prompts import Question, messages_of
from tests.oracle.server import Act, Exchange, ScriptedServer, reply
from tests.processes import Launch

Serve = Callable[..., tuple[ScriptedServer, OpenAIClient]]


def say(text: Any) -> Act:
    return lambda exchange: exchange.say(text)


def fail(status: int, **more: str) -> Act:
    return lambda exchange: exchange.fail(status, **more)


def echo(exchange: Exchange) -> None:
    exchange.say(f"<{exchange.prompt}>")


def raw(body: bytes, kind: str = "application/json") -> Act:
    return lambda exchange: exchange.send(body, kind=kind)


def cut(exchange: Exchange) -> None:
    """The connection ends in the middle of the answer."""
    exchange.handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 400\r\n\r\n{")
    exchange.handler.connection.shutdown(socket.SHUT_RDWR)


def closes(exchange: Exchange) -> None:
    exchange.handler.connection.shutdown(socket.SHUT_RDWR)


def test_client_answers_and_what_it_asked(serve: Serve) -> None:
    server, client = serve(say(" Paris. "), max_tokens=9, options={"seed": 3}, api_key="secret\n")
    assert client("Where?") == "Paris."
    assert client.complete([{"role": "user", "content": "Who?"}], system="Be short.") == "Paris."
    asked, other = server.requests
    assert asked["messages"] == [{"role": "user", "content": "Where?"}]
    given = {"model": "m", "max_tokens": 9, "temperature": 0.0, "seed": 3}
    assert {name: asked[name] for name in given} == given
    assert other["messages"][0] == {"role": "system", "content": "Be short."}
    assert server.keys == ["Bearer secret"] * 2
    assert client.usage == Usage(calls=2, prompt_tokens=14, completion_tokens=6)
    assert "secret" not in repr(client)


BAD: list[Act] = [
    fail(429),
    fail(500),
    fail(502),
    fail(408),
    cut,
    closes,
    raw(b"no json"),
    raw(b"<html>busy</html>", "text/html"),
    raw(b"[]"),
    raw(b"null"),
    raw(b"{}"),
    raw(b'{"choices": []}'),
    raw(b'{"choices": [{"message": null}]}'),
    raw(b'{"choices": [{"message": {"content": [1]}}]}'),
    raw(b""),
    say(None),
    say("  "),
]


def test_client_asks_again_whatever_goes_wrong_once(serve: Serve) -> None:
    server, client = serve(*(act for bad in BAD for act in (bad, say("good"))))
    assert [client(f"q{i}") for i in range(len(BAD))] == ["good"] * len(BAD)
    assert client.usage.calls == len(server.requests) == 2 * len(BAD)
    assert (client.usage.retries, client.usage.failures) == (len(BAD), 0)


def test_client_says_what_goes_wrong_for_good(serve: Serve) -> None:
    _, client = serve(*(act for bad in BAD for act in (bad, bad, say("good"))), retries=1)
    for i in range(len(BAD)):
        with pytest.raises(OracleError, match=r"m at http://127.0.0.1:\d+/v1/ gave no usable ans"):
            client(f"q{i}")
        assert client(f"between {i}") == "good"
    assert (client.usage.retries, client.usage.failures) == (len(BAD), len(BAD))


@pytest.mark.parametrize("act", [Exchange.hang, Exchange.drip])
def test_client_does_not_wait_for_a_server_that_hangs(serve: Serve, act: Act) -> None:
    server, client = serve(act, timeout=0.1, retries=1)
    with pytest.raises(OracleError, match=r"no answer within 0\.2 s"):
        client("?")
    assert server.asked(2)


def test_a_server_that_is_slow_gets_more_time(serve: Serve) -> None:
    """An answer that takes three times the timeout comes at the third attempt, and then at once."""

    def slow(exchange: Exchange) -> None:
        time.sleep(0.6)
        exchange.say("slow, but there")

    _, client = serve(slow, timeout=0.2, retries=4, cache=False)
    assert client("one") == "slow, but there"
    assert client.usage.retries == 2 and client.usage.failures == 0
    assert client("two") == "slow, but there"
    assert client.usage.calls == 4 and client.usage.retries == 2


def test_client_asks_again_a_server_that_hung(serve: Serve) -> None:
    _, client = serve(Exchange.hang, say("awake"), timeout=0.4)
    assert client("?") == "awake"


def test_retry_after_holds_for_every_question(serve: Serve) -> None:
    def limited(exchange: Exchange) -> None:
        exchange.fail(429, Retry_After="0.2")

    server, client = serve(limited, echo, concurrency=1)
    assert client.complete_all(["a", "b"]) == ["<a>", "<b>"]
    assert server.times[1] - server.times[0] >= 0.2
    assert client.usage.calls == 3


def test_retry_after_too_long_ends_the_batch(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    server, client = serve(fail(503, Retry_After="7200"), concurrency=1)
    assert client.complete_all(["a", "b", "c"]) == [None] * 3
    assert len(server.requests) == 1, "the others were not even asked"
    assert "wait 7200 s, more than the 60 s allowed" in caplog.text


@pytest.mark.parametrize(
    "act", [fail(401), fail(403), fail(404), fail(429, code="insufficient_quota")]
)
def test_client_stops_where_asking_again_is_no_use(
    serve: Serve, act: Act, caplog: pytest.LogCaptureFixture
) -> None:
    server, client = serve(act, concurrency=1)
    assert client.complete_all(["a", "b", "c"]) == [None] * 3
    assert len(server.requests) == 1
    assert client.usage == Usage(calls=1, failures=3)
    assert "No usable answer to 3 of 3 questions" in caplog.text
    assert len(caplog.records) == 1, "one warning, whatever was lost"


def test_refused_question_loses_only_itself(serve: Serve) -> None:
    def picky(exchange: Exchange) -> None:
        if exchange.prompt.startswith("long"):
            exchange.fail(400, code="context_length_exceeded")
        else:
            echo(exchange)

    server, client = serve(picky, concurrency=1)
    assert client.complete_all(["a", "long", "b"]) == ["<a>", None, "<b>"]
    assert len(server.requests) == 3, "a malformed question is not repeated"
    found = client.complete_all([*(f"long {i}" for i in range(9)), "c"])
    assert found == [None] * 9 + ["<c>"], "whoever refuses is there"


def test_client_asks_a_server_that_is_gone_less(serve: Serve) -> None:
    back = threading.Event()

    def gone(exchange: Exchange) -> None:
        echo(exchange) if back.is_set() else exchange.fail(500)

    server, client = serve(gone, concurrency=1, retries=2)
    questions = [str(i) for i in range(12)]
    assert client.complete_all(questions) == [None] * 12
    assert len(server.requests) == 5 * 3, "after five lost in a row no more"
    assert client.complete_all(questions) == [None] * 12
    assert len(server.requests) == 5 * 3 + 1, "one attempt, to see whether it is back"
    back.set()
    assert client.complete_all(questions) == [f"<{i}>" for i in range(12)]
    assert client.usage.failures == 24


def test_concurrency_is_used_and_kept(serve: Serve) -> None:
    together = threading.Barrier(4)  # nobody passes alone: four must be there at once

    def meet(exchange: Exchange) -> None:
        together.wait(10)
        echo(exchange)

    server, client = serve(meet, concurrency=4)
    prompts = [f"q{i}" for i in range(24)]
    assert client.complete_all(prompts) == [f"<{p}>" for p in prompts], "in their order"
    assert server.most == 4


def test_concurrency_is_shared_by_threads(serve: Serve) -> None:
    server, client = serve(echo, concurrency=2)
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(client, [f"t{i}" for i in range(30)]))
    assert found == [f"<t{i}>" for i in range(30)]
    assert server.most <= 2
    assert client.usage.calls == 30


def test_client_same_question_is_asked_once(serve: Serve, tmp_path: Path) -> None:
    file = tmp_path / "answers.sqlite"
    server, client = serve(echo, cache=file)
    assert client.complete_all(["a", "b", "a"]) == ["<a>", "<b>", "<a>"]
    assert client("a") == "<a>"
    assert (client.usage.calls, client.usage.cached) == (2, 2)
    assert client.complete("a", max_tokens=5) == "<a>", "another limit, another question"
    assert client.complete("a", system="s") == "<a>"
    assert len(server.requests) == 4
    client.close()
    with OpenAIClient("m", base_url=server.url, cache=file) as later:
        assert later("a") == "<a>"
        assert later.usage == Usage(cached=1)
    with OpenAIClient("other", base_url=server.url, cache=file) as other:
        assert other("a") == "<a>"
        assert other.usage.calls == 1
    assert client("b") == "<b>", "closed and opened again: counts and cache go on"
    assert (client.usage.calls, client.usage.cached) == (4, 3)


def test_client_same_question_is_lost_twice(serve: Serve) -> None:
    _, client = serve(fail(500), retries=0)
    assert client.complete_all(["a", "a", "b"]) == [None] * 3
    assert client.usage == Usage(calls=2, failures=3)


def test_cache_may_be_off_and_keeps_nothing_useless(serve: Serve) -> None:
    server, client = serve(echo, cache=False)
    assert [client("a"), client("a")] == ["<a>", "<a>"]
    assert len(server.requests) == 2
    server, client = serve(say(""), say("x"), retries=0)
    assert client.complete_all(["a"]) == [None]
    assert client("a") == "x", "a useless answer is not kept"


@pytest.fixture
def interruptible() -> Iterator[None]:
    """A background process of a shell ignores SIGINT."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_interrupted_batch_keeps_what_it_has(serve: Serve) -> None:
    def interrupt(exchange: Exchange) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        exchange.hang()

    server, client = serve(echo, interrupt, echo, concurrency=1)
    with pytest.raises(KeyboardInterrupt):
        client.complete_all(["a", "b", "c"])
    assert len(server.requests) == 2
    assert client.complete_all(["a", "b"]) == ["<a>", "<b>"]
    assert len(server.requests) == 3, "a was kept"


def test_client_closed_by_another_thread(serve: Serve) -> None:
    asked = threading.Event()

    def stuck(exchange: Exchange) -> None:
        asked.set()
        exchange.hang()

    _, client = serve(stuck, echo)
    with ThreadPoolExecutor(8) as threads:
        lost = threads.submit(client, "a")
        assert asked.wait(20)
        client.close()
        with pytest.raises(OracleError, match="was closed before"):
            lost.result(20)
        found = list(threads.map(client, map(str, range(16))))  # all of them want it open at once
    assert found == [f"<{i}>" for i in range(16)]
    assert client.usage.calls == 17


def test_client_closed_in_its_own_thread(serve: Serve) -> None:
    """The garbage collector may close it in any thread."""
    _, client = serve(echo)
    before = threading.active_count()

    def close(answer: str) -> str:
        client.close()
        return answer

    with pytest.raises(OracleError, match="was closed before"):
        client.ask_all([Question(messages_of("a"), close)])
    deadline = time.monotonic() + 20
    while threading.active_count() >= before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threading.active_count() < before, "its thread has ended"
    assert client("b") == "<b>"


FORKED = """
import os, sys
from graphmem_torch.oracle import OpenAIClient
client = OpenAIClient("m", base_url=sys.argv[1], cache=sys.argv[2])
assert client("a") == "<a>"
child = os.fork()
if not child:
    assert client("b") == "<b>" and client("a") == "<a>"
    assert (client.usage.calls, client.usage.cached) == (2, 1)
    sys.exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
assert client("b") == "<b>" and client.usage.calls == 1
"""


def test_fork_asks_through_connections_of_its_own(
    serve: Serve, tmp_path: Path, launch: Launch
) -> None:
    server, _ = serve(echo)
    program = tmp_path / "forked.py"
    program.write_text(FORKED)
    command = launch(program, server.url, tmp_path / "cache")
    assert command.wait() == 0, command.told()
    assert len(server.requests) == 2


def test_client_leaves_out_refused_fields(serve: Serve) -> None:
    def newer(exchange: Exchange) -> None:
        for name in ("temperature", "max_tokens"):
            if name in exchange.body:
                return exchange.fail(400, param=name, code="unsupported_parameter")
        return echo(exchange)

    server, client = serve(newer)
    assert client("a") == "<a>"
    assert server.requests[-1]["max_completion_tokens"] == 512
    assert client("b") == "<b>"
    assert len(server.requests) == 4, "learnt once"
    server, client = serve(newer, options={"temperature": 0.5})
    with pytest.raises(OracleError, match="HTTP 400"):
        client("a")


def test_client_cleans_texts_that_no_wire_can_carry(serve: Serve) -> None:
    server, client = serve(lambda e: e.send(reply("bad \ud800 answer")))
    assert client("half \ud83d of a pair") == "bad ? answer"
    assert server.requests[0]["messages"][0]["content"] == "half ? of a pair"


def test_client_without_a_server(caplog: pytest.LogCaptureFixture, serve: Serve) -> None:
    server, client = serve(echo, retries=1)
    server.close()
    with caplog.at_level(logging.WARNING):
        assert client.complete_all(["a", "b"]) == [None, None]
    assert "No usable answer to 2 of 2 questions" in caplog.text
    with pytest.raises(OracleError, match="Connection"):
        client("a")
    caplog.clear()
    (lost,) = client.attempt_all(["a"])
    assert isinstance(lost, OracleError) and not caplog.records


@pytest.mark.parametrize(
    ("prompt", "said"),
    [
        ("", "prompt: expected"),
        ("  \n", "prompt: expected"),
        ([], "prompt: expected"),
        (3, "prompt: expected"),
        ([{"role": "nobody", "content": "x"}], "prompt: expected"),
        ([{"content": "x"}], "prompt: expected"),
        (["x"], "prompt: expected"),
    ],
)
def test_client_refuses_bad_prompts(serve: Serve, prompt: Any, said: str) -> None:
    server, client = serve(echo)
    with pytest.raises(InputError, match=said):
        client.complete_all(["good", prompt])
    for single in ("several letters", None, {"role": "user", "content": "x"}):
        for ask in (client.complete_all, client.attempt_all):
            with pytest.raises(InputError, match="prompts: expected a list"):
                ask(single)  # type: ignore[operator]
    assert server.requests == []
    with pytest.raises(InputError, match="max_tokens: expected"):
        client.complete("a", max_tokens=0)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"model": ""}, "model: expected"),
        ({"concurrency": 0}, "concurrency: expected"),
        ({"concurrency": True}, "concurrency: expected"),
        ({"max_tokens": -1}, "max_tokens: expected"),
        ({"timeout": 0}, "timeout: expected"),
        ({"timeout": "1"}, "timeout: expected"),
        ({"retries": 1.5}, "retries: expected"),
        ({"backoff": -1}, "backoff: expected"),
        ({"max_delay": float("nan")}, "max_delay: expected"),
        ({"cache": True}, "cache: expected"),
        ({"cache": 3}, "cache: expected"),
        ({"base_url": "localhost:8080/v1"}, "base_url: expected"),
        ({"base_url": 8080}, "base_url: expected"),
        ({"api_key": "sk-\N{SNOWMAN}"}, "api_key: expected"),
        ({"api_key": "sk-1\nsk-2"}, "api_key: expected"),
        ({"options": 3}, "options: expected"),
        ({"options": {"stop": {"a"}}}, "options: expected"),
        ({"options": {"temperature": float("nan")}}, "options: expected"),
    ],
)
def test_client_refuses_bad_arguments(serve: Serve, given: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        OpenAIClient(**{"model": "m", "base_url": "http://127.0.0.1:9/v1", **given})


def test_client_without_key_or_package(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="api_key: expected a key for OpenAI"):
        OpenAIClient("gpt")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    with OpenAIClient("gpt") as client:
        assert client.base_url == "http://127.0.0.1:9/v1"
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(InputError, match=r"pip install 'graphmem-torch\[openai\]'"):
        OpenAIClient("gpt", base_url="http://127.0.0.1:9/v1")
