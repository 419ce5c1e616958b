"""A language model as an oracle, against a server that answers well, badly, and not at all."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from graphmem_torch.errors import InputError
from graphmem_torch.oracle import OpenAIClient, OpenAIOracle, Verdict
from tests.memories import config_of, opened
from tests.oracle.server import Exchange, ScriptedServer

Serve = Callable[..., tuple[ScriptedServer, OpenAIClient]]


def judges(exchange: Exchange) -> None:
    """Judges by the hypothesis: "not" contradicts, an equal text entails."""
    premise, hypothesis = exchange.body["messages"][1]["content"].split("\n\nHypothesis:\n")
    label = "entail" if premise.endswith(hypothesis) else "neutral"
    label = "contradict" if " not " in hypothesis else label
    exchange.say(f'Here: ```json\n{{"label": "{label.upper()}", "confidence": 0.8}}\n```')


def test_oracle_judges(serve: Serve) -> None:
    server, client = serve(judges)
    oracle = OpenAIOracle(client)
    premises = ["the oven is hot", "the oven is hot", "the oven is hot"]
    hypotheses = ["the oven is hot", "the oven is not hot", "boats are red"]
    assert oracle.judge(premises, hypotheses) == [
        Verdict("entail", 0.8),
        Verdict("contradict", 0.8),
        Verdict("neutral", 0.8),
    ]
    asked = server.requests[0]
    assert asked["response_format"]["json_schema"]["schema"]["required"] == ["label", "confidence"]
    assert asked["messages"][0]["role"] == "system"
    assert oracle.judge([], []) == []
    with pytest.raises(InputError, match="2 premises and 1 hypotheses"):
        oracle.judge(["a", "b"], ["a"])
    with pytest.raises(InputError, match="client: expected an OpenAIClient"):
        OpenAIOracle("http://127.0.0.1")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "said",
    [
        "entail",
        '{"label": "perhaps", "confidence": 0.5}',
        '{"label": "entail", "confidence": 3}',
        '{"label": 1}',
        '{"label": "entail", "confidence": "0.8"}',
        '{"verdict": "entail"}',
        "[]",
        '{"label": "entail", "confidence": ',
    ],
)
def test_useless_verdict_is_asked_again_with_what_was_wrong(serve: Serve, said: str) -> None:
    server, client = serve(lambda e: e.say(said), judges, retries=1)
    assert OpenAIOracle(client).judge(["a b"], ["a b"]) == [Verdict("entail", 0.8)]
    first, second = (request["messages"] for request in server.requests)
    assert second[: len(first)] == first and second[2] == {"role": "assistant", "content": said}
    assert "JSON" in second[3]["content"]
    _, client = serve(lambda e: e.say(said), retries=1)
    assert OpenAIOracle(client).judge(["a"], ["a"]) == [None]


def test_verdict_is_found_in_what_a_model_says_around_it(serve: Serve) -> None:
    thought = '<think>{"label": "entail"}? No.</think>For {"a": 1}: {"label": "neutral"}'
    _, client = serve(lambda e: e.say(thought), retries=0)
    assert OpenAIOracle(client).judge(["a"], ["b"]) == [Verdict("neutral", 1.0)]


@pytest.mark.parametrize("texts", ["ab", [3], None, {"a": "b"}])
def test_oracle_refuses_what_is_no_list_of_texts(serve: Serve, texts: Any) -> None:
    server, client = serve(judges)
    oracle = OpenAIOracle(client)
    for ask in (oracle.classify, oracle.summarise, lambda t: oracle.judge(["a"], t)):
        with pytest.raises(InputError, match="expected a list of texts"):
            ask(texts)
    assert server.requests == []


def test_oracle_of_a_server_without_schemas(serve: Serve) -> None:
    def old(exchange: Exchange) -> None:
        if "response_format" in exchange.body:
            exchange.fail(400)
        else:
            judges(exchange)

    server, client = serve(old, concurrency=1)
    oracle = OpenAIOracle(client)
    assert oracle.judge(["a", "b"], ["a", "b"]) == [Verdict("entail", 0.8)] * 2
    assert len(server.requests) == 3, "learnt once"


def test_refused_text_does_not_cost_the_schemas(serve: Serve) -> None:
    def picky(exchange: Exchange) -> None:
        exchange.fail(400) if "huge" in exchange.prompt else judges(exchange)

    server, client = serve(picky, concurrency=1)
    found = OpenAIOracle(client).judge(["huge", "b"], ["huge", "b"])
    assert found == [None, Verdict("entail", 0.8)]
    assert "response_format" in server.requests[-1]


def test_oracle_classifies(serve: Serve) -> None:
    def node(exchange: Exchange) -> None:
        content = exchange.prompt.removeprefix("Input:\n")
        type = "episodic" if "went" in content else "semantic"
        exchange.say(json.dumps({"content": content, "type": type, "decay_factor": 0.9}))

    _, client = serve(node)
    texts = ["Nora went home.", "Ovens are hot.", 'a "quoted"\ntext ☃']
    found = OpenAIOracle(client).classify(texts)
    assert [node and node["content"] for node in found] == texts
    assert [node and node["type"] for node in found] == ["episodic", "semantic", "semantic"]
    assert OpenAIOracle(client).classify([]) == []
    _, client = serve(lambda e: e.say('{"content": "x", "type": "eternal"}'), retries=0)
    assert OpenAIOracle(client).classify(["a"]) == [None]


def test_oracle_verifies(serve: Serve) -> None:
    _, client = serve(
        lambda e: e.say(json.dumps({"mentioned": "Text:\nNora baked." in e.prompt})), retries=0
    )
    oracle = OpenAIOracle(client)
    assert oracle.verify(["Who baked?"] * 2, ["Nora baked.", "It rained."]) == [True, False]
    with pytest.raises(InputError, match="one for each of 1"):
        oracle.verify(["Who baked?"], [])
    _, client = serve(lambda e: e.say('{"mentioned": "maybe"}'), retries=0)
    assert OpenAIOracle(client).verify(["Who?"], ["Nora."]) == [None]


def test_oracle_summarises(serve: Serve) -> None:
    server, client = serve(lambda e: e.say(" short "))
    oracle = OpenAIOracle(client)
    assert oracle.summarise(["long text", "longer"], "who?", 20) == ["short", "short"]
    assert server.requests[0]["max_tokens"] == 20
    assert all("who?" in request["messages"][1]["content"] for request in server.requests)
    assert oracle.summarise([]) == []
    for texts, most, said in (("text", 9, "texts: expected"), (["a"], 0, "max_tokens: expected")):
        with pytest.raises(InputError, match=said):
            oracle.summarise(texts, None, most)


def half(exchange: Exchange) -> None:
    """Fails in one way or another on every claim with an odd number in its hypothesis."""
    number = int(exchange.body["messages"][1]["content"].split()[-1])
    ways: list[Callable[[], Any]] = [
        lambda: exchange.fail(500),
        lambda: exchange.say("I cannot say"),
        lambda: exchange.send(b"{", 200),
        lambda: exchange.fail(400),
    ]
    if number % 2:
        ways[number // 2 % 4]()
    else:
        exchange.say('{"label": "entail", "confidence": 1.0}')


def test_judged_edges_of_a_failing_server(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    _, client = serve(half, retries=1, concurrency=1)
    with opened(config=config_of()) as memory:
        memory.add([f"Claim number {i}" for i in range(10)])
        ids = [atom.id for atom in memory.store.atoms(range(10))]
        pairs = [(ids[(i + 1) % 10], ids[i]) for i in range(10)]
        done = memory.graph.judge(OpenAIOracle(client), pairs)
        assert (done.entailed, done.failed, done.new) == (5, 5, 5)
        assert "No usable answer to 5 of 10 questions" in caplog.text
        assert len(memory.store.ids()) == 10 and memory.check() == []


def test_answers_of_a_memory_say_why_they_are_missing(serve: Serve) -> None:
    def sick(exchange: Exchange) -> None:
        exchange.fail(500) if "violin" in exchange.prompt else exchange.say("In the harbour.")

    _, client = serve(sick, retries=1)
    with opened(config=config_of()) as memory:
        memory.add(["The canoe lies in the harbour."])
        found, lost = memory.answer(["Where is the canoe?", "Whose violin?"], llm=client)
        assert (found.text, found.error) == ("In the harbour.", None)
        assert lost.text is None and "OracleError: m at" in lost.error and "500" in lost.error
        assert "canoe lies" in lost.context.text
