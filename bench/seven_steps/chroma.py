"""The seven steps in Chroma."""

# ruff: noqa: D103  (`bench/seven_steps/steps.py` says what each step does)

from __future__ import annotations

from pathlib import Path
from typing import Any

import chromadb
from chromadb.utils.embedding_functions import SentenceTransformerEmbeddingFunction

from bench.seven_steps.steps import FACTS, FORGOTTEN, MOVED, OTHER, count_tokens, model_folder

CANNOT = {
    "correct": "no question as of a day; an update replaces the text",
    "list_newest": "no order: the caller fetches all and sorts",
    "context": "no budget: the caller counts tokens",
}

MODEL = model_folder()


def opened(folder: Path) -> Any:
    encoder = SentenceTransformerEmbeddingFunction(MODEL)
    return chromadb.PersistentClient(folder).create_collection("facts", embedding_function=encoder)


def add(facts: Any) -> None:
    ids, days, texts = zip(*FACTS, strict=True)
    about = [{"user": "ada", "day": day} for day in days]
    facts.add(ids=list(ids), documents=list(texts), metadatas=about)


def ask(facts: Any, question: str) -> str:
    found = facts.query(query_texts=question, n_results=1, where={"user": "ada"})
    return found["documents"][0][0]


def correct(facts: Any, question: str) -> tuple[str, None]:
    old, _, day, text = MOVED
    facts.update(ids=old, documents=text, metadatas={"user": "ada", "day": day})
    return ask(facts, question), None


def list_newest(facts: Any) -> list[str]:
    found = facts.get(where={"user": "ada"})
    pairs = zip(found["metadatas"], found["documents"], strict=True)
    days = sorted(((about["day"], text) for about, text in pairs), reverse=True)
    return [text for _, text in days[:5]]


def forget(facts: Any) -> None:
    facts.delete(ids=[FORGOTTEN])


def two_users(facts: Any, question: str) -> list[list[str]]:
    ids, days, texts = zip(*OTHER, strict=True)
    about = [{"user": "bob", "day": day} for day in days]
    facts.add(ids=list(ids), documents=list(texts), metadatas=about)
    asked = [facts.query(query_texts=question, where={"user": user}) for user in ("ada", "bob")]
    return [found["documents"][0] for found in asked]


def context(facts: Any, question: str, budget: int) -> str:
    lines, left = [], budget
    for text in facts.query(query_texts=question, where={"user": "ada"})["documents"][0]:
        left -= count_tokens(text)
        if left < 0:
            break
        lines.append(text)
    return "\n".join(lines)
