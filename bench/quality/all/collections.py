"""Collections in BEIR form and chats of people below a data root, as sets of questions."""

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
"""Kind of data of the development collections, by folder; another collection is its own kind."""

_CHUNK = 254  # encoder pieces of a chunk, where a file of chats is one long text
_FILES = ("corpus.jsonl", "queries.jsonl", "qrels.tsv")


def read_collections(root: Path) -> list[QuestionSet]:
    """The collections in the folders of `root`: `corpus.jsonl`, `queries.jsonl`, `qrels.tsv`.

    Judged by nDCG@10, in order of their names; none where the folder has none.

    Raises:
        InputError: A file that cannot be used.
    """
    found = []
    for folder in sorted(path for path in root.glob("*") if _has(path, *_FILES)):
        collection, _ = read_collection(*(folder / name for name in _FILES))
        name = folder.name
        found.append(_whole(name, collection, DATA_KINDS.get(name, name), measure="ndcg"))
    return found


def read_chat_sets(root: Path, tokenizer: Tokenizer) -> list[QuestionSet]:
    """The chats in the folders of `root`: `atoms.jsonl` and `questions.jsonl`.

    Judged by recall@10, in order of their names; none where the folder has none.

    Raises:
        InputError: A file that cannot be used.
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
