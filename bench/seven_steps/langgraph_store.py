"""The seven steps in LangGraph's `InMemoryStore`."""

# ruff: noqa: D103  (`bench/seven_steps/steps.py` says what each step does)

from __future__ import annotations

from pathlib import Path

from langgraph.store.memory import InMemoryStore
from sentence_transformers import SentenceTransformer

from bench.seven_steps.steps import FACTS, FORGOTTEN, MOVED, OTHER, count_tokens, model_folder

CANNOT = {
    "add": "nothing outlives the process; the Postgres store needs a server",
    "correct": "no question as of a day; a put replaces the value",
    "list_newest": "no order: the caller fetches all and sorts",
    "context": "no budget: the caller counts tokens",
}

MODEL = model_folder()


def opened(folder: Path) -> InMemoryStore:
    encoder = SentenceTransformer(MODEL)
    index = {"dims": 384, "embed": lambda texts: encoder.encode(texts).tolist(), "fields": ["text"]}
    return InMemoryStore(index=index)


def add(store: InMemoryStore) -> None:
    for id, day, text in FACTS:
        store.put(("ada",), id, {"text": text, "day": day})


def ask(store: InMemoryStore, question: str) -> str:
    return store.search(("ada",), query=question, limit=1)[0].value["text"]


def correct(store: InMemoryStore, question: str) -> tuple[str, None]:
    old, _, day, text = MOVED
    store.put(("ada",), old, {"text": text, "day": day})
    return ask(store, question), None


def list_newest(store: InMemoryStore) -> list[str]:
    found = [item.value for item in store.search(("ada",), limit=1000)]
    found.sort(key=lambda each: each["day"], reverse=True)
    return [each["text"] for each in found[:5]]


def forget(store: InMemoryStore) -> None:
    store.delete(("ada",), FORGOTTEN)


def two_users(store: InMemoryStore, question: str) -> list[list[str]]:
    for id, day, text in OTHER:
        store.put(("bob",), id, {"text": text, "day": day})
    asked = [store.search((user,), query=question) for user in ("ada", "bob")]
    return [[item.value["text"] for item in found] for found in asked]


def context(store: InMemoryStore, question: str, budget: int) -> str:
    lines, left = [], budget
    for item in store.search(("ada",), query=question):
        left -= count_tokens(item.value["text"])
        if left < 0:
            break
        lines.append(item.value["text"])
    return "\n".join(lines)
