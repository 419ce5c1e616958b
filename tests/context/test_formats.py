"""How memories and prompts are written."""

from __future__ import annotations

import json

import pytest

from graphmem_torch.atoms import Atom
from graphmem_torch.context import FORMATS, load_format, render
from graphmem_torch.errors import InputError

DAY = 1683554160.0
ATOMS = [
    Atom("D1:3", "a canoe\nand more\n", speaker="Ada", session="s1", time=DAY),
    Atom("D1:4", "\n\n  a \u201cbad\u201d brace {context}", session="s1", time=DAY + 60),
    Atom("D2:1", "later", session="s2", time=DAY + 9e4),
    Atom("x", "whenever"),
]


def test_text_stands_under_headers() -> None:
    assert render(load_format("text"), ATOMS, inline=False) == (
        "8 May 2023:\n1. Ada: a canoe\n and more\n2.   a \u201cbad\u201d brace {context}\n"
        "9 May 2023:\n3. later\nUndated:\n4. whenever"
    )


@pytest.mark.parametrize("name", ["text", "markdown", "openai"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r", "\n\n", "\u2028"])
def test_a_memory_cannot_pass_for_several(name: str, end: str) -> None:
    text = end.join(["a list", "2. me too", "9 May 2023:", "", "    code"])
    lines = render(load_format(name), [Atom("x", text)], inline=False).splitlines()
    assert lines[0] == "1. a list"
    assert all(line[0] == " " for line in lines[1:] if line)
    assert [line.strip() for line in lines[1:] if line] == ["2. me too", "9 May 2023:", "code"]


def test_entries_with_their_own_labels() -> None:
    assert render(load_format("text"), ATOMS[2:], ["short", "when"], inline=True) == (
        "1. (9 May 2023) short\n2. when"
    )


def test_what_has_no_label_needs_no_header_in_front() -> None:
    assert render(load_format("text"), ATOMS[::-3], inline=False).startswith("1. whenever\n8 May")
    assert render(load_format("text"), ATOMS[3:], inline=False) == "1. whenever"
    assert render(load_format("text"), [], inline=False) == ""


def test_markdown_is_a_list_under_headings() -> None:
    assert render(load_format("markdown"), ATOMS[:1], inline=False) == (
        "## 8 May 2023\n1. Ada: a canoe\n   and more"
    )


def test_json_is_json() -> None:
    found = json.loads(render(load_format("json"), ATOMS, inline=False))
    assert found[0] == {
        "id": "D1:3",
        "session": "s1",
        "time": "2023-05-08T13:56:00Z",
        "text": "Ada: a canoe\nand more",
    }
    assert found[3] == {"id": "x", "text": "whenever"}
    assert json.loads(render(load_format("json"), [], inline=False)) == []


def test_messages_have_the_shape_of_their_reader() -> None:
    openai = load_format("openai").prompt("ctx", "why?")
    assert [message["role"] for message in openai.messages] == ["system", "user"]
    assert openai.messages[1]["content"] == "ctx\n\nwhy?"
    assert openai.system is None
    anthropic = load_format("anthropic").prompt("ctx", "why?")
    assert anthropic.messages == openai.messages[1:]
    assert anthropic.system == openai.messages[0]["content"]
    assert anthropic.text == openai.text
    bare = load_format("openai", {"system": "", "user": "{question}{context}"}).prompt("c", "q")
    assert bare.messages == ({"role": "user", "content": "qc"},)
    assert load_format("anthropic", {"system": ""}).prompt("c", "q").system is None


def test_plain_formats_are_their_memories() -> None:
    assert load_format("text").prompt("ctx", "why?").text == "ctx"
    assert load_format("text", "{context}?").prompt("ctx", "why?").text == "ctx?"
    assert load_format("text").prompt("ctx", "why?").messages == ()


def test_tokens_count_the_framing_of_messages() -> None:
    bpe = pytest.importorskip("bpe_openai").get_encoding("o200k_base").encode_ordinary
    for name in ("openai", "anthropic"):
        prompt = load_format(name, {"system": "Be kind."}).prompt("ctx", "why?")
        contents = len(bpe("Be kind.")) + len(bpe("ctx\n\nwhy?"))
        assert prompt.tokens("o200k_base") == contents + 2 * (3 + 1) + 3
    assert load_format("text").prompt("one two", "").tokens("o200k_base") == 2


def test_unknown_formats() -> None:
    with pytest.raises(InputError, match="did you mean 'markdown'"):
        load_format("markdwon")
    with pytest.raises(InputError, match=", ".join(FORMATS)):
        load_format(3)  # type: ignore[arg-type]
