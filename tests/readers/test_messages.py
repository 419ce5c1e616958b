"""Messages of chats, as servers and their clients write them."""

from __future__ import annotations

import dataclasses
import enum
import json
import uuid
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from graphmem_torch.atoms import Atom
from graphmem_torch.errors import EmptyMessageError
from graphmem_torch.memory import Memory
from graphmem_torch.readers import atom_from_record, read_atoms
from graphmem_torch.results import Added
from graphmem_torch.text.surrogates import HALVES
from graphmem_torch.text.tokens import WordTokenizer

NOON = datetime(2024, 5, 3, 12, tzinfo=UTC).timestamp()


def call(name: str, arguments: str) -> dict[str, Any]:
    return {"id": "c1", "type": "function", "function": {"name": name, "arguments": arguments}}


def small() -> Memory:
    return Memory.open(embedder="hashing")


def texts(given: Any) -> tuple[list[tuple[str | None, str]], Added]:
    with small() as memory:
        added = memory.add(given)
        ids = [name for name in memory.store.ids() if not name.startswith("concept:")]
        return [(atom.speaker, atom.text) for atom in memory.get(ids)], added


@pytest.mark.parametrize(
    ("message", "speaker", "text"),
    [
        (
            {"role": "assistant", "content": None, "tool_calls": [call("f", '{"to": "Porto"}')]},
            "assistant",
            "f(to: Porto)",
        ),
        (
            {"role": "assistant", "function_call": {"name": "pi", "arguments": '{"digits": 5}'}},
            "assistant",
            "pi(digits: 5)",
        ),
        ({"role": "tool", "tool_call_id": "c", "content": "sunny"}, "tool", "sunny"),
        ({"role": "user", "text": "hello", "created_at": "2024-05-03T12:00:00Z"}, "user", "hello"),
        ({"role": "user", "name": "Nora", "text": "hello"}, "Nora", "hello"),
        ({"role": "user", "speaker": "Nora", "text": "hello"}, "Nora", "hello"),
        (
            {"role": "assistant", "content": "", "tool_calls": [{"name": "f", "args": {"a": 1}}]},
            "assistant",
            "f(a: 1)",
        ),
        (
            {
                "role": "assistant",
                "tool_calls": [{"type": "custom", "custom": {"name": "sql", "input": "SELECT 1"}}],
            },
            "assistant",
            "sql(SELECT 1)",
        ),
        ({"role": "assistant", "content": None, "refusal": "I cannot."}, "assistant", "I cannot."),
        (
            {
                "type": "message",
                "role": "assistant",
                "content": [{"type": "output_text", "text": "a"}],
            },
            "assistant",
            "a",
        ),
        (
            {
                "type": "function_call",
                "id": "fc",
                "call_id": "c",
                "name": "f",
                "arguments": '{"a":[1,2]}',
            },
            "assistant",
            "f(a: 1, 2)",
        ),
        ({"type": "function_call_output", "call_id": "c", "output": "89"}, "tool", "89"),
        (
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Compare."}]},
            "assistant",
            "Compare.",
        ),
        (
            {"type": "web_search_call", "id": "w", "action": {"type": "search", "query": "Bergen"}},
            "assistant",
            "web_search(query: Bergen)",
        ),
        (
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "Kyoto?", "signature": "EqQ"},
                    {"type": "text", "text": "Kyoto."},
                    {"type": "tool_use", "id": "t", "name": "hotel", "input": {"nights": 3}},
                ],
            },
            "assistant",
            "Kyoto?\nKyoto.\nhotel(nights: 3)",
        ),
        (
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "content": [{"type": "text", "text": "it is 7"}]},
                    {"type": "tool_result", "content": "and 8"},
                    {"type": "text", "text": "see"},
                ],
            },
            "user",
            "it is 7\nand 8\nsee",
        ),
        (
            {
                "role": "assistant",
                "content": [
                    {
                        "type": "web_search_tool_result",
                        "content": [
                            {
                                "type": "web_search_result",
                                "title": "Millau",
                                "encrypted_content": "E",
                            }
                        ],
                    }
                ],
            },
            "assistant",
            "title: Millau",
        ),
        (
            {
                "type": "code_interpreter_call",
                "code": "1+1",
                "outputs": [{"type": "logs", "logs": "2"}],
            },
            "assistant",
            "code_interpreter(1+1)\nlogs: 2",
        ),
        (
            {"role": "model", "parts": [{"executableCode": {"language": "PYTHON", "code": "2+2"}}]},
            "model",
            "code(2+2)",
        ),
        (
            {"type": "mcp_call", "name": "roll", "arguments": '{"d": 6}', "output": "4"},
            "assistant",
            "roll(d: 6)\n4",
        ),
        ({"parts": [{"text": "hi"}]}, "user", "hi"),
        (
            {"role": "model", "parts": [{"functionCall": {"name": "find", "args": {"c": "red"}}}]},
            "model",
            "find(c: red)",
        ),
        (
            {
                "role": "user",
                "parts": [{"functionResponse": {"name": "f", "response": {"at": "sea"}}}],
            },
            "user",
            "at: sea",
        ),
        ({"type": "human", "content": "of LangChain"}, "user", "of LangChain"),
        (
            {"role": "user", "content": [{"type": "text", "text": {"value": "of a thread"}}]},
            "user",
            "of a thread",
        ),
    ],
)
def test_what_a_message_says(message: dict[str, Any], speaker: str, text: str) -> None:
    atom = atom_from_record(message)
    assert (atom.speaker, atom.text, atom.kind) == (speaker, text, "turn")
    assert not {"signature", "encrypted_content"} & atom.meta.keys()


@pytest.mark.parametrize(
    ("message", "lost"),
    [
        (
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]},
            "image_url",
        ),
        (
            {"role": "assistant", "content": None, "tool_calls": [call("f", "{}")]},
            "call without arguments",
        ),
        ({"type": "reasoning", "summary": [], "encrypted_content": "gA"}, "reasoning"),
        (
            {"role": "assistant", "content": [{"type": "redacted_thinking", "data": "x"}]},
            "redacted_thinking",
        ),
        ({"role": "user", "content": [{"type": "tool_result"}]}, "result without text"),
        ({"role": "user", "parts": [{"inline_data": {"data": "iVBO"}}]}, "inline_data"),
        ({"role": "user", "content": None}, ""),
    ],
)
def test_a_message_without_text_is_counted(message: dict[str, Any], lost: str) -> None:
    losses: Counter[str] = Counter()
    with pytest.raises(EmptyMessageError):
        atom_from_record(message, losses=losses)
    assert losses == ({lost: 1} if lost else {})


def test_images_are_kept_by_reference_without_their_bytes() -> None:
    parts = [
        {"type": "text", "text": "Look"},
        {"type": "image_url", "image_url": {"url": "https://a.org/cat.png"}},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBO"}},
        {"type": "input_image", "image_url": "data:image/png;base64,AAAA", "alt": "a red cat"},
    ]
    losses: Counter[str] = Counter()
    atom = atom_from_record({"role": "user", "content": parts}, losses=losses)
    assert atom.text == "Look\na red cat" and losses == {"image_url": 1, "image": 1}
    kept = json.dumps(atom.meta["content"])
    assert "cat.png" in kept and "iVBO" not in kept and "AAAA" not in kept


def test_add_stores_the_messages_around_one_that_says_nothing() -> None:
    talk = [
        {"role": "user", "content": "How is the weather?"},
        {"role": "assistant", "content": None, "tool_calls": [call("weather", "{}")]},
        {"role": "tool", "tool_call_id": "c1", "content": "sunny, 21 degrees"},
        {"role": 7, "content": "odd"},
        None,
        {"role": "user", "content": {"odd": 1}},
        {"role": "assistant", "content": "It is sunny."},
    ]
    found, added = texts(talk)
    assert [text for _, text in found] == [
        "How is the weather?",
        "sunny, 21 degrees",
        "It is sunny.",
    ]
    assert added.new == 3 and added.losses == {"call without arguments": 1, "content": 1}
    assert [each.split(":")[0] for each in added.skipped] == [f"message {n}" for n in (2, 4, 5, 6)]


def test_add_stores_the_messages_around_one_with_an_id_that_is_taken() -> None:
    talk = [{"role": "user", "content": f"note {n}", "id": f"m{n}"} for n in range(5)]
    with small() as memory:
        memory.add([Atom("m2", "another")])
        added = memory.add(talk)
        assert (added.new, len(added.skipped)) == (4, 1)
        assert "message 3: atom 'm2' is stored already" in added.skipped[0]
        assert memory.get("m4").text == "note 4" and memory.get("m2").text == "another"


def test_the_result_of_a_tool_is_found() -> None:
    result = {"type": "tool_result", "content": [{"type": "text", "text": "the result is 7"}]}
    with small() as memory:
        memory.add({"role": "user", "content": [result, {"type": "text", "text": "see above"}]})
        assert "7" in memory.retrieve("result").hits[0].text


@pytest.mark.parametrize(
    "given",
    [
        {"created_at": NOON},
        {"created_at": int(NOON)},
        {"timestamp": "2024-05-03T12:00:00Z"},
        {"timestamp": NOON * 1000},
        {"timestamp": int(NOON) * 10**9},
        {"timestamp": str(int(NOON))},
        {"createdAt": datetime(2024, 5, 3, 12)},
        {"created_at": "2024-05-03T14:00:00+02:00"},
        {"created_at": NOON, "timestamp": 5},
        {"created_at": "once", "timestamp": NOON},
        {"created_at": 5, "time": NOON},
    ],
)
def test_the_time_of_a_message(given: dict[str, Any]) -> None:
    assert atom_from_record({"role": "user", "content": "x", **given}).time == NOON


def test_a_time_that_cannot_be_read_is_kept_as_it_is() -> None:
    losses: Counter[str] = Counter()
    atom = atom_from_record({"role": "user", "content": "x", "timestamp": "once"}, losses=losses)
    assert (atom.time, atom.meta["timestamp"]) == (None, "once")
    assert losses == {"unreadable time": 1}


class Model:
    """An object as clients give them: `model_dump`, and iterable."""

    def __init__(self, **fields: Any) -> None:
        self.fields = fields

    def __iter__(self) -> Any:
        return iter(self.fields.items())

    def model_dump(self) -> dict[str, Any]:
        return self.fields


@dataclasses.dataclass
class Turn:
    """A message as a dataclass."""

    role: str
    content: Any
    name: str | None = None


class Role(enum.StrEnum):
    """A role as an enum."""

    USER = "user"


@pytest.mark.parametrize(
    ("given", "speaker", "text"),
    [
        (Model(role="assistant", content="a", tool_calls=None), "assistant", "a"),
        (Turn("user", "a", "Nora"), "Nora", "a"),
        (Turn("user", [Model(type="text", text="a"), Turn("x", "y")]), "user", "a\ny"),
        (Model(role=Role.USER, content="a", id=uuid.UUID(int=5)), "user", "a"),
        (
            {"role": Role.USER, "content": [Model(type="tool_use", name="f", input={"q": 1})]},
            "user",
            "f(q: 1)",
        ),
        (Model(role="model", parts=[Model(text="a", function_call=None)]), "model", "a"),
        ([Model(type="function_call", name="f", arguments='{"q": 1}')], "assistant", "f(q: 1)"),
    ],
)
def test_objects_of_clients(given: Any, speaker: str, text: str) -> None:
    assert texts(given)[0] == [(speaker, text)]


def test_objects_of_pydantic() -> None:
    pydantic = pytest.importorskip("pydantic")
    message = pydantic.create_model(
        "Message", role=(str, ...), content=(str, ...), at=(datetime, ...)
    )
    one = message(role="user", content="a", at=datetime(2024, 5, 3))
    assert texts([one, one])[0] == [("user", "a"), ("user", "a")]
    assert texts(one)[0] == [("user", "a")]


@pytest.mark.parametrize(
    "given",
    [
        {"role": "user", "content": "cut \ud83d"},
        {"text": "a", "speaker": "Bob\ud83d"},
        {"text": "a", "meta": {"k": ["x\ud83d"]}},
        {"text": "a", "meta": {"k\ud83d": 1}},
        {"text": "a", "id": "id-\ud83d"},
        {"text": "a", "session": "s\ud83d"},
        "cut \ud800 here",
        Atom("i", "an atom \udfff"),
        {"role": "assistant", "tool_calls": [call("f", '{"t": "cut \\ud83d"}')]},
    ],
)
def test_half_a_surrogate_is_replaced_and_reported(given: Any) -> None:
    with small() as memory:
        added = memory.add([{"text": f"note {n}"} for n in range(5)] + [given])
        assert (added.new, added.losses) == (6, {HALVES: 1})
        ids = [name for name in memory.store.ids() if not name.startswith("concept:")]
        (atom,) = [atom for atom in memory.get(ids) if "\ufffd" in repr(atom)]
        repr(atom).encode()


def test_half_a_surrogate_in_other_ways_in(tmp_path: Path) -> None:
    with small() as memory:
        memory.add("one", session="s\ud83d")
        memory.add_document("A text \ud83d cut.", name="d\ud83d")
        assert memory.get("d\ufffd#0").text == "A text \ufffd cut."
        assert memory.update("d\ufffd#0", text="b\ud83d").text == "b\ufffd"
        path = tmp_path / "a.jsonl"
        path.write_text('{"text": "cut \\ud83d here", "id": "x"}\n{"text": "a \\ud83d\\ude00"}\n')
        assert memory.add_files(path).losses == {HALVES: 1}
        assert memory.get("x").text == "cut \ufffd here"


def test_lines_with_messages_that_say_nothing_are_counted(tmp_path: Path) -> None:
    path, losses = tmp_path / "a.jsonl", Counter[str]()
    lines = [
        {"role": "user", "content": "one"},
        {"role": "user"},
        {"role": "user", "content": " "},
        {"role": "user", "content": [{"type": "image_url"}, 3]},
        {"role": "user", "content": "two"},
    ]
    path.write_text("\n".join(map(json.dumps, lines)))
    atoms = list(read_atoms([path], tokenizer=WordTokenizer(), losses=losses))
    assert [atom.text for atom in atoms] == ["one", "two"]
    assert losses == {"message without text": 3, "image_url": 1, "part 3": 1}
