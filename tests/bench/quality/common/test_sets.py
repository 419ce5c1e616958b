"""Sets of questions as their files have them, and what is asked of the same passages merged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from graphmem_torch.errors import InputError
from graphmem_torch.quality.common.chats import read_chats
from graphmem_torch.quality.common.scores import ADVERSARIAL
from graphmem_torch.quality.common.sets import locomo_set, merged_passages, passage_set
from graphmem_torch.quality.common.texts import read_passage_sets
from graphmem_torch.text.times import parse_time
from tests.bench.quality.made import REMARKS, TITLES, chat_files, passage_files


def test_merged_passages_hold_a_text_once_and_ask_for_the_same(tmp_path: Path) -> None:
    passage_files(tmp_path)
    passage_files(tmp_path, "more", (*TITLES[:6], "Oboe", "Lemon"))
    one, two = (passage_set(found) for found in read_passage_sets(tmp_path))
    merged = merged_passages([one, two])
    (memory,) = merged.conversations
    texts = {atom.id: atom.text for atom in memory.atoms}
    assert len(texts) == len(set(texts.values())) < 16
    asked = [
        (question.text, [atoms[name] for name in question.gold])
        for part in (one, two)
        for atoms in [{atom.id: atom.text for atom in part.conversations[0].atoms}]
        for question in part.conversations[0].questions
    ]
    assert [(q.text, [texts[name] for name in q.gold]) for q in memory.questions] == asked
    assert merged.sources == {"small", "more"} and one.sources | two.sources == merged.sources


def test_merged_passages_keep_a_text_twice_where_a_set_has_it_twice(tmp_path: Path) -> None:
    rows = [{"id": i, "title": "Iseo", "text": "A lake."} for i in range(2)]
    asked = [{"question": "Which lake?", "gold_ids": [1]}]
    for kind, content in (("corpus", rows), ("queries", asked)):
        for name in ("a", "b"):
            path = tmp_path / f"{name}_{kind}.jsonl"
            path.write_text("".join(json.dumps(row) + "\n" for row in content))
    merged = merged_passages([passage_set(one) for one in read_passage_sets(tmp_path)])
    (memory,) = merged.conversations
    assert [atom.id for atom in memory.atoms] == ["a:0", "a:1"]
    assert [question.gold for question in memory.questions] == [("a:1",), ("a:1",)]


def test_answerable_leaves_out_what_has_no_gold(locomo: Path) -> None:
    whole, kept = locomo_set(locomo), locomo_set(locomo).answerable()
    gold = [[q.gold for q in one.questions] for one in whole.conversations]
    assert [[q.gold for q in one.questions] for one in kept.conversations] == [
        [names for names in own if names] for own in gold
    ]


def test_read_chats_is_one_memory_of_dated_turns(tmp_path: Path) -> None:
    chat_files(tmp_path / "chats")
    chats = read_chats(tmp_path / "chats")
    (memory,) = chats.conversations
    assert [atom.text for atom in memory.atoms] == [text for _, text in REMARKS]
    assert [atom.speaker for atom in memory.atoms[:3]] == ["user", "assistant", "user"]
    assert [atom.session for atom in memory.atoms] == [f"s{i // 4}" for i in range(12)]
    assert memory.atoms[5].time == parse_time("2023-05-21T21:04")
    one, two, absent = memory.questions
    assert two.gold == ("s0:3", "s2:3") and two.sessions == ("s0", "s2")
    assert chats.groups == {
        "all": (one.category, two.category),
        "sessions": (two.category,),
        "user": (one.category,),
        "abstention": (ADVERSARIAL,),
    }
    assert absent.category == ADVERSARIAL not in chats.groups["all"]


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        ("questions", {"gold_sessions": ["s9"]}, "gold_sessions: .*'s9'"),
        ("questions", {"gold_turns": [["s0", 4]]}, "gold_turns: .*'s0', 4"),
        ("questions", {"gold_turns": ["s0"]}, "gold_turns: expected pairs"),
        ("sessions", {"turns": [{"role": "user"}]}, "turns: expected objects with role"),
        ("sessions", {"session_id": "s1"}, "session_id: .*'s1' again"),
        ("sessions", {"date": "some day"}, "expected a time, got 'some day'"),
    ],
)
def test_read_chats_names_the_line(
    tmp_path: Path, file: str, change: dict[str, object], message: str
) -> None:
    chat_files(tmp_path / "chats")
    path = tmp_path / "chats" / f"{file}.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    rows[-1] |= change
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(InputError, match=rf"{file}.jsonl:{len(rows)}.*{message}"):
        read_chats(tmp_path / "chats")


def test_read_chats_wants_one_pair_of_files(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="got neither"):
        read_chats(tmp_path)
    chat_files(tmp_path / "chats")
    (tmp_path / "chats" / "more_questions.jsonl").write_text("{}")
    with pytest.raises(InputError, match=r"got sessions\.jsonl, more_questions\.jsonl, questions"):
        read_chats(tmp_path / "chats")
