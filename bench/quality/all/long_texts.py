"""Chunks of long texts on one subject: essays of one author, and two novels.

Which chunk holds what a question asks for? All chunks of a memory are about much the same, so a
cosine tells them apart less well than in a collection. The questions, written for this judge, are
in `long_texts.jsonl`, each with a few words of the place that answers it; the texts are not.
"""

from __future__ import annotations

import json
import lzma
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from graphmem_torch.errors import InputError
from graphmem_torch.readers.read import document_atoms
from graphmem_torch.readers.source import decode, read_bytes
from graphmem_torch.text.tokens import Tokenizer

from ..common.questions import Conversation, Question
from ..common.sets import QuestionSet

__all__ = ["Asked", "long_text_sets", "read_asked", "read_long_texts"]

_QUESTIONS = Path(__file__).with_name("long_texts.jsonl")
_CHUNK = 254  # encoder pieces, as `graphmem index` cuts a file


@dataclass(frozen=True, slots=True)
class Asked:
    """A question to a text.

    Attributes:
        text: `essays/NAME` for a file, else the `book` of lines of `*.jsonl.xz`.
        quote: Words that stand in the text once, where it answers the question.
        question: The question.
    """

    text: str
    quote: str
    question: str


def read_asked(path: Path = _QUESTIONS) -> list[Asked]:
    """The questions of a file of JSON lines."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [Asked(**json.loads(line)) for line in lines]


def read_long_texts(folder: Path, names: Sequence[str]) -> dict[str, str]:
    """The texts of these names that a folder holds: files, and paragraphs of books."""
    found = {}
    for name in names:
        file = folder / f"{name}.txt"
        if file.is_file():
            found[name] = decode(read_bytes(file), str(file))
    books: dict[str, list[str]] = {name: [] for name in names if name not in found}
    for path in sorted(folder.glob("*.jsonl.xz")) if books else ():
        with lzma.open(path, "rt", encoding="utf-8") as lines:
            for line in lines:
                if any(name in line for name in books):
                    row = json.loads(line)
                    books.get(row.get("book"), []).append(row["text"])
    return found | {name: "\n\n".join(parts) for name, parts in books.items() if parts}


def long_text_sets(
    texts: Mapping[str, str], asked: Sequence[Asked], tokenizer: Tokenizer
) -> list[QuestionSet]:
    """The sets whose texts are there: the files of a folder as one memory, each book as its own.

    Judged by nDCG@10.

    Args:
        texts: By name.
        asked: The questions.
        tokenizer: Tokenizer that the length of chunks is counted in.

    Raises:
        InputError: A text does not hold a quote exactly once.
    """
    folders: dict[str, dict[str, list[str]]] = {}
    for name in dict.fromkeys(one.text for one in asked):
        folder, _, _ = name.rpartition("/")
        memory = folder or name
        folders.setdefault(folder or "novels", {}).setdefault(memory, []).append(name)
    found = []
    for name, memories in folders.items():
        if all(text in texts for each in memories.values() for text in each):
            parts = tuple(
                _conversation(memory, {text: texts[text] for text in each}, asked, tokenizer)
                for memory, each in memories.items()
            )
            found.append(_set(name, parts))
    return found


def _set(name: str, conversations: tuple[Conversation, ...]) -> QuestionSet:
    return QuestionSet(
        name,
        conversations,
        kind="chunk",
        groups={"all": (1,)},
        cutoffs=(1, 5, 10, 25),
        sources=frozenset({name}),
        measure="ndcg",
        data_kind="long texts",
    )


def _conversation(
    name: str, texts: Mapping[str, str], asked: Sequence[Asked], tokenizer: Tokenizer
) -> Conversation:
    atoms = {
        text: tuple(document_atoms(whole, name=text, tokenizer=tokenizer, max_tokens=_CHUNK))
        for text, whole in texts.items()
    }
    questions = []
    for one in asked:
        if one.text in texts:
            start, end = _place(texts[one.text], one)
            gold = tuple(
                chunk.id
                for chunk in atoms[one.text]
                if chunk.meta["start"] < end and start < chunk.meta["end"]
            )
            questions.append(Question(one.question, 1, gold))
    chunks = tuple(chunk for each in atoms.values() for chunk in each)
    return Conversation(name, chunks, tuple(questions))


def _place(text: str, one: Asked) -> tuple[int, int]:
    words = r"\s+".join(map(re.escape, one.quote.split()))
    places = [match.span() for match in re.finditer(words, text)]
    if len(places) != 1:
        raise InputError(
            f"quote: expected words that stand there once, got {one.quote!r}, {len(places)} times; "
            "use the texts that the questions were written for",
            where=one.text,
        )
    return places[0]
