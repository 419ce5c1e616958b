"""Keys of questions, and JSON found in what models write around it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import pytest

from graphmem_torch.errors import InputError
from graphmem_torch.oracle.prompts import (
    Question,
    as_list,
    classify_question,
    insight_question,
    json_objects,
    judge_question,
    messages_of,
    verify_question,
)


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        ('{"a": 1}', {"a": 1}),
        ('```json\n{"a": {"b": [1, 2]}}\n```', {"a": {"b": [1, 2]}}),
        ('Sure! Here it is: {"a": "}{"} I hope {it} helps.', {"a": "}{"}),
        ('{not this} but {"a": null}', {"a": None}),
        ('{"a": 1} {"a": 2}', {"a": 1}),
        ('[{"a": 1}]', {"a": 1}),
        ("{", None),
        ('{"a": ', None),
        ("{'a': 1}", None),
        ("", None),
        ("[1, 2]", None),
        ('<think>{"a": 0} or {"a": 2}?</think>{"a": 1}', {"a": 1}),
        ("{" * 3000, None),
        ('{"a":' * 100_000, None),
    ],
)
def test_json_objects_first(answer: str, found: Any) -> None:
    assert next(json_objects(answer), None) == found


def test_json_objects_in_their_order() -> None:
    assert list(json_objects('{"a": {"b": 1}} {x} [{}, {"c": 2}]')) == [
        {"a": {"b": 1}},
        {},
        {"c": 2},
    ]


def test_as_list() -> None:
    assert as_list("texts", iter(["a", ""]), str) == ["a", ""]
    assert as_list("prompts", ["a", 3]) == ["a", 3]
    for wrong in ("ab", b"ab", {"role": "user"}, 3, None, [3], ["a", None]):
        with pytest.raises(InputError, match="texts: expected a list of texts, got"):
            as_list("texts", wrong, str)  # type: ignore[arg-type]


def test_key_is_of_everything_an_answer_depends_on() -> None:
    def question(prompt: str = "a", **more: Any) -> Question:
        return Question(messages_of(prompt), json.loads, **more)

    server = ("m", "http://x/v1/", {"temperature": 0.0})
    keys = [
        question().key(server),
        question("b").key(server),
        question(max_tokens=3).key(server),
        question(schema={"type": "object"}).key(server),
        question().key(("n", *server[1:])),
        question().key((*server[:2], {"temperature": 1.0})),
        Question(messages_of("a", "system"), json.loads).key(server),
    ]
    assert len(set(keys)) == len(keys)
    assert question().key(server) == Question(messages_of("a"), str).key(server)


def test_question_asked_again_with_what_was_wrong() -> None:
    question = Question(messages_of("a"), json.loads, wanted="JSON")
    again = question.again("x" * 5000)
    assert again[0] == question.messages[0]
    assert [message["role"] for message in again] == ["user", "assistant", "user"]
    assert len(again[1]["content"]) == 2000 and "JSON" in again[2]["content"]
    assert question.again("")[1]["content"].strip()


def longest(schema: Mapping[str, Any]) -> int:
    """The characters of the longest answer that a schema allows, as JSON without spaces."""
    if "enum" in schema:
        return max(len(json.dumps(each)) for each in schema["enum"])
    if schema["type"] == "boolean":
        return len("false")
    if schema["type"] == "string":
        most = re.fullmatch(r'\^\[\^"\\\\\]\{1,(\d+)\}\$', schema["pattern"])
        assert most, "neither a quote nor a backslash, which a grammar would have to escape"
        return int(most[1]) + 2
    if schema["type"] == "array":
        return (longest(schema["items"]) + 1) * schema["maxItems"] + 1
    own = schema["properties"].items()
    return sum(len(json.dumps(name)) + 1 + longest(inner) for name, inner in own) + len(own) + 1


@pytest.mark.parametrize(
    "asked",
    [
        judge_question("a", "b"),
        classify_question("Bertrand bakes bread. " * 5),
        classify_question("Bertrand bakes bread. " * 500),
        insight_question(["a", "b", "c"]),
        verify_question("who?", "a"),
    ],
)
def test_schema_ends_before_the_tokens_do(asked: Question) -> None:
    """A model that is held to a schema writes on as long as it allows: what is cut off is lost."""
    assert asked.schema is not None and asked.max_tokens is not None
    assert longest(asked.schema) <= 3 * asked.max_tokens, "of a token at least three characters"
