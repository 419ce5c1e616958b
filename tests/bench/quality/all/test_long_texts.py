"""Questions to chunks of long texts: which chunks are gold, and which sets are there."""

from __future__ import annotations

import json
import lzma
from pathlib import Path

import pytest

from graphmem_torch.errors import InputError
from graphmem_torch.quality.all.judge import read_sets
from graphmem_torch.quality.all.long_texts import (
    Asked,
    long_text_sets,
    read_asked,
    read_long_texts,
)
from graphmem_torch.text.tokens import WordTokenizer

_WORDS = " ".join(f"w{number}" for number in range(400))
_ASKED = [
    Asked("essays/oven", "the oven is\nwarm", "What is warm?"),
    Asked("essays/boat", "w7 w8", "Which comes after the seventh?"),
    Asked("Novel_A", "w300 w301", "Which comes after w300?"),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with two essays and, compressed, two novels of two paragraphs."""
    (tmp_path / "essays").mkdir()
    (tmp_path / "essays" / "oven.txt").write_text(
        f"{_WORDS}\nNow the  oven is warm. {_WORDS}", encoding="utf-8"
    )
    (tmp_path / "essays" / "boat.txt").write_text(_WORDS, encoding="utf-8")
    rows = [
        {"book": book, "chapter": 1, "par": number, "text": text}
        for book in ("Novel_A", "Novel_B")
        for number, text in enumerate((f"Of Novel_B and {book}.", _WORDS))
    ]
    with lzma.open(tmp_path / "novels.jsonl.xz", "wt", encoding="utf-8") as lines:
        lines.writelines(f"{json.dumps(row)}\n" for row in rows)
    return tmp_path


def test_long_texts_gold_is_every_chunk_of_the_quote(folder: Path) -> None:
    names = [one.text for one in _ASKED]
    texts = read_long_texts(folder, names)
    assert texts["Novel_A"] == f"Of Novel_B and Novel_A.\n\n{_WORDS}"
    essays, novels = long_text_sets(texts, _ASKED, WordTokenizer())
    assert (essays.name, novels.name) == ("essays", "novels")
    assert essays.data_kind == novels.data_kind == "long texts"
    for found in (essays, novels):
        for memory in found.conversations:
            said = {atom.id: atom.text for atom in memory.atoms}
            for question in memory.questions:
                (asked,) = (one for one in _ASKED if one.question == question.text)
                gold = " ".join("".join(said[name] for name in question.gold).split())
                assert " ".join(asked.quote.split()) in gold
                assert all(name.startswith(f"{asked.text}#") for name in question.gold)
    # Both essays are one memory, each novel is its own.
    assert [len(memory.questions) for memory in essays.conversations] == [2]
    assert [memory.name for memory in novels.conversations] == ["Novel_A"]
    assert "".join(atom.text for atom in novels.conversations[0].atoms) == texts["Novel_A"]


def test_long_texts_that_are_not_there_have_no_set(folder: Path) -> None:
    texts = read_long_texts(folder, ["essays/oven", "essays/boat", "Novel_C"])
    assert texts.keys() == {"essays/oven", "essays/boat"}
    asked = [*_ASKED[:2], Asked("Novel_C", "w1 w2", "Which?")]
    assert [one.name for one in long_text_sets(texts, asked, WordTokenizer())] == ["essays"]
    assert long_text_sets({}, asked, WordTokenizer()) == []


@pytest.mark.parametrize("quote", ["not there", "w1 w2"])
def test_long_texts_need_a_quote_that_stands_once(folder: Path, quote: str) -> None:
    texts = read_long_texts(folder, ["essays/oven"])
    with pytest.raises(InputError, match="words that stand there once"):
        long_text_sets(texts, [Asked("essays/oven", quote, "Which?")], WordTokenizer())


def test_long_texts_shipped_questions_are_many_and_differ() -> None:
    asked = read_asked()
    assert len(asked) == len({one.question for one in asked}) == 192
    assert len({one.text.partition("/")[0] for one in asked}) == 3
    assert all(one.question.endswith("?") for one in asked)
    # A quote is a few words: the texts themselves are not shipped.
    assert max(len(one.quote.split()) for one in asked) <= 20


def test_long_texts_are_sets_of_a_data_root(tmp_path: Path) -> None:
    said: dict[str, list[str]] = {}
    for one in read_asked():
        said.setdefault(one.text, []).append(one.quote)
    folder = tmp_path / "text"
    (folder / "essays").mkdir(parents=True)
    with lzma.open(folder / "books.jsonl.xz", "wt", encoding="utf-8") as lines:
        for name, quotes in said.items():
            if name.startswith("essays/"):
                (folder / f"{name}.txt").write_text(". ".join(quotes), encoding="utf-8")
            else:
                rows = [{"book": name, "text": quote} for quote in quotes]
                lines.writelines(f"{json.dumps(row)}\n" for row in rows)
    sets = {one.name: one for one in read_sets(tmp_path, WordTokenizer())}
    assert [*sets] == ["needles", "essays", "novels"]
    counts = [[len(one.questions) for one in sets[name].conversations] for name in sets]
    assert counts[1:] == [[112], [38, 42]]
