"""The seven steps in txtai."""

# ruff: noqa: D103  (`bench/seven_steps/steps.py` says what each step does)

from __future__ import annotations

from pathlib import Path

from txtai import Embeddings

from bench.seven_steps.steps import FACTS, FORGOTTEN, MOVED, OTHER, count_tokens, model_folder

CANNOT = {
    "add": "nothing is on disk before `save`, which writes all of it",
    "correct": "no question as of a day; an upsert replaces the text",
    "two_users": "a condition in SQL: a query that leaves it out sees both",
    "context": "no budget: the caller counts tokens",
}

MODEL = model_folder()


def opened(folder: Path) -> Embeddings:
    store = Embeddings(path=MODEL, content=True)
    store.folder = str(folder)
    return store


def add(store: Embeddings) -> None:
    store.index((id, {"text": text, "user": "ada", "day": day}) for id, day, text in FACTS)
    store.save(store.folder)


def ask(store: Embeddings, question: str) -> str:
    return _found(store, "ada", question, 1)[0]


def _found(store: Embeddings, user: str, question: str, limit: int) -> list[str]:
    sql = "select text from txtai where similar(:question) and user = :user"
    found = store.search(sql, limit, parameters={"question": question, "user": user})
    return [each["text"] for each in found]


def correct(store: Embeddings, question: str) -> tuple[str, None]:
    old, _, day, text = MOVED
    store.upsert([(old, {"text": text, "user": "ada", "day": day})])
    store.save(store.folder)
    return ask(store, question), None


def list_newest(store: Embeddings) -> list[str]:
    sql = "select text from txtai where user = 'ada' order by day desc"
    return [each["text"] for each in store.search(sql, 5)]


def forget(store: Embeddings) -> None:
    store.delete([FORGOTTEN])
    store.save(store.folder)


def two_users(store: Embeddings, question: str) -> list[list[str]]:
    store.upsert((id, {"text": text, "user": "bob", "day": day}) for id, day, text in OTHER)
    store.save(store.folder)
    return [_found(store, user, question, 10) for user in ("ada", "bob")]


def context(store: Embeddings, question: str, budget: int) -> str:
    lines, left = [], budget
    for text in _found(store, "ada", question, 10):
        left -= count_tokens(text)
        if left < 0:
            break
        lines.append(text)
    return "\n".join(lines)
