"""Templates of prompts."""

from __future__ import annotations

from typing import Any

import pytest

from graphmem_torch.context.formats import Template, chat_templates
from graphmem_torch.errors import InputError


def test_fields_are_filled_and_nothing_in_them_is_read() -> None:
    template = Template.parse("{{json}} {context}\nQ: {question} {question}!")
    filled = template.fill("{question} {0} }{", "why {context}?")
    assert filled == "{json} {question} {0} }{\nQ: why {context}? why {context}?!"
    assert template.count("question") == 2


def test_messages_are_merged_by_role() -> None:
    plain = {"system": "Be brief.", "user": "{context}"}
    assert list(chat_templates({}, plain)) == ["system", "user"]
    mine = chat_templates("{question}: {context}", plain)
    assert [mine[role].fill("c", "q") for role in mine] == ["Be brief.", "q: c"]
    assert list(chat_templates({"system": ""}, plain)) == ["user"]
    moved = chat_templates({"system": "{context}", "user": "{question}"}, plain)
    assert [moved[role].fill("c", "q") for role in moved] == ["c", "q"]


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("{contxt}", r"got '\{contxt\}'; did you mean '\{context\}'\?"),
        ("{context} {", "write {{ and }} for braces"),
        ("{context} }", "write {{ and }} for braces"),
        ("{context!r}", r"got '\{context!r\}"),
        ("{context:>9}", r"got '\{context:>9\}"),
        ("{context.text}", r"got '\{context.text\}"),
        ("{}", r"got '\{\}"),
        ("{context} {0}", r"got '\{0\}"),
        ("only {question}", "field {context} once.* got it 0 times"),
        ("{context} {context}", "got it 2 times"),
        ({"user": ""}, "got it 0 times"),
        ({"assistant": "{context}"}, "roles system and user"),
        ({"system": "{context}", "user": "{context}"}, "got it 2 times"),
        ({"user": 7}, "expected a text, got 7"),
        (7, "roles system and user"),
    ],
)
def test_bad_templates(template: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        chat_templates(template, {"user": "{context}"})
