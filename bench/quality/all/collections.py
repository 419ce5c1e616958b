"""Read BEIR collections and chats of people below a data root as sets of questions."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from graphmem_torch.readers.read import read_atoms
from graphmem_torch.text.tokens import Tokenizer

from ..common.questions import Conversation
from ..common.sets import QuestionSet
from ..custom.judge import read_questions
from ..retrieval.judge import read_collection

__all__ = ["DATA_KINDS", "read_chat_sets", "read_collections"]
DATA_KINDS: Mapping[str, str] = {
    "cacm": "abstracts",
    "csfcube": "abstracts",
    "med": "abstracts",
    "time": "abstracts",
    "scifact_train": "claims",
    "fetaqa_train": "tables",
    "faq_dev": "FAQ",
    "stackfaq": "FAQ",
    "tools_dev": "tools",
    "code_dev": "code",
    "de_en": "languages",
    "xquad_de": "languages",
    "xquad_ru": "languages",
}
"""Kind of data of the development collections, by folder; other collections are their own kind."""

_CHUNK = 254  # encoder pieces of a chunk, for a file of chats that is one long text
_FILES = ("corpus.jsonl", "queries.jsonl", "qrels.tsv")


def read_collections(root: Path) -> list[QuestionSet]:
    """Read the collections in the folders of `root`: `corpus.jsonl`, `queries.jsonl`, `qrels.tsv`.

    Measured by nDCG@10, ordered by name; empty if the folder has none.

    Raises:
        InputError: Invalid file.
    """
    found = []
    for folder in sorted(path for path in root.glob("*") if _has(path, *_FILES)):
        collection, _ = read_collection(*(folder / name for name in _FILES))
        name = folder.name
        found.append(_whole(name, collection, DATA_KINDS.get(name, name), measure="ndcg"))
    return found


def read_chat_sets(root: Path, tokenizer: Tokenizer) -> list[QuestionSet]:
    """Return the chats in the folders of `root`: `atoms.jsonl` and `questions.jsonl`.

    Measured by recall@10, ordered by name; empty if the folder has none.

    Raises:
        InputError: Invalid file.
    """
    found = []
    for folder in sorted(
        path for path in root.glob("*") if _has(path, "atoms.jsonl", "questions.jsonl")
    ):
        atoms = tuple(read_atoms([folder / "atoms.jsonl"], tokenizer=tokenizer, max_tokens=_CHUNK))
        questions = read_questions(folder / "questions.jsonl", {atom.id for atom in atoms})
        one = Conversation(folder.name, atoms, tuple(questions))
        found.append(_whole(folder.name, one, "chats", measure="recall"))
    return found


def _has(folder: Path, *names: str) -> bool:
    return all((folder / name).is_file() for name in names)


def _whole(name: str, one: Conversation, data_kind: str, *, measure: str) -> QuestionSet:
    return QuestionSet(
        name,
        (Conversation(name, one.atoms, one.questions),),
        kind=None,
        groups={"all": (1,)},
        cutoffs=(5, 10, 25),
        sources=frozenset({name}),
        measure=measure,
        data_kind=data_kind,
    )
