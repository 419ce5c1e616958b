"""Reading LoCoMo questions and repairing their evidence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from graphmem_torch.errors import InputError
from graphmem_torch.quality.common.questions import read_conversations, resolve_evidence

TURNS = {"D8:6": "a", "D9:17": "b", "D11:26": "c", "D30:5": "d"}


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (["D8:6"], ("a",)),
        (["D8:6; D9:17"], ("a", "b")),
        ("D9:17 D8:6", ("b", "a")),
        (["D8:6", "D8:6"], ("a",)),
        (["D:11:26"], ("c",)),
        (["D30:05"], ("d",)),
        (["D"], ()),
        (["D99:1", "D8:6"], ("a",)),
        ([], ()),
    ],
)
def test_resolve_evidence_repairs_what_is_malformed(raw: Any, expected: tuple[str, ...]) -> None:
    assert resolve_evidence(raw, TURNS) == expected


def test_read_conversations_gives_turns_questions_and_gold(locomo: Path) -> None:
    first, second = read_conversations(locomo)
    assert [first.name, second.name] == ["conv-a", "conv-b"]
    assert {atom.kind for atom in first.atoms} == {"turn"}
    texts = {atom.id: atom.text for atom in first.atoms}
    gold = {question.text: question.gold for question in first.questions}
    (answer,) = gold["What did Ada plant?"]
    assert "tulips" in texts[answer]
    assert gold["Why is the sky green?"] == ()
    assert [question.category for question in first.questions] == [4, 1, 2, 3, 5]


def test_read_conversations_adds_facts_of_observations(locomo: Path) -> None:
    first = read_conversations(locomo, input="observations")[0]
    facts = [atom for atom in first.atoms if atom.kind == "observation"]
    assert facts
    assert all(fact.edges for fact in facts)


def test_read_conversations_takes_an_evidence_file(locomo: Path, tmp_path: Path) -> None:
    rows = [
        {"sample_id": name, "qa_index": i, "evidence_resolved": ["D1:1"]}
        for name in ("conv-a", "conv-b")
        for i in range(5)
    ]
    file = tmp_path / "evidence.jsonl"
    file.write_text("\n".join(json.dumps(row) for row in rows))
    conversations = read_conversations(locomo, evidence=file)
    assert all(len(q.gold) == 1 for c in conversations for q in c.questions)

    file.write_text("\n".join(json.dumps(row) for row in rows[:-1]))
    with pytest.raises(InputError, match="conv-b question 4"):
        read_conversations(locomo, evidence=file)
    file.write_text('{"sample_id": "conv-a"}\n')
    with pytest.raises(InputError, match=r"evidence\.jsonl:1"):
        read_conversations(locomo, evidence=file)
    with pytest.raises(InputError, match=r"missing\.jsonl"):
        read_conversations(locomo, evidence=tmp_path / "missing.jsonl")


def test_read_conversations_of_a_folder_with_one_file(locomo: Path) -> None:
    (locomo.parent / "other.json").write_text("{}")
    assert len(read_conversations(locomo.parent)) == 2
    (locomo.parent / "copy.json").write_text(locomo.read_text())
    with pytest.raises(InputError, match="name the file"):
        read_conversations(locomo.parent)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"question": " "}, "question"),
        ({"category": 7}, "category"),
    ],
)
def test_read_conversations_names_a_broken_question(
    locomo: Path, change: dict[str, Any], message: str
) -> None:
    data = json.loads(locomo.read_text())
    data[1]["qa"][2] |= change
    locomo.write_text(json.dumps(data))
    with pytest.raises(InputError, match=f"conv-b question 2.*{message}"):
        read_conversations(locomo)


def test_read_conversations_wants_questions(locomo: Path) -> None:
    data = json.loads(locomo.read_text())
    for sample in data:
        sample["qa"] = []
    locomo.write_text(json.dumps(data))
    with pytest.raises(InputError, match="questions"):
        read_conversations(locomo)
