"""The seven steps in mem0, without a language model: `infer=False` stores texts as they are."""

# ruff: noqa: D103  (`bench/seven_steps/steps.py` says what each step does)

from __future__ import annotations

from pathlib import Path

from mem0 import Memory

from bench.seven_steps.steps import FACTS, FORGOTTEN, MOVED, OTHER, count_tokens, model_folder

CANNOT = {
    "correct": "no question as of a day; `history(id)` gives earlier texts",
    "list_newest": "no order: the caller fetches all and sorts",
    "context": "no budget: the caller counts tokens",
    "add": "without a language model ids and days are the caller's metadata",
}

MODEL = model_folder()


def opened(folder: Path) -> Memory:
    return Memory.from_config(
        {
            "embedder": {"provider": "huggingface", "config": {"model": MODEL}},
            "vector_store": {
                "provider": "qdrant",
                "config": {
                    "path": str(folder / "qdrant"),
                    "embedding_model_dims": 384,
                    "on_disk": True,
                },
            },
            "llm": {"provider": "openai", "config": {"api_key": "none"}},
            "history_db_path": str(folder / "history.db"),
        }
    )


def add(memory: Memory) -> None:
    for id, day, text in FACTS:
        memory.add(text, user_id="ada", metadata={"id": id, "day": day}, infer=False)


def ask(memory: Memory, question: str) -> str:
    return memory.search(question, filters={"user_id": "ada"}, top_k=1)["results"][0]["memory"]


def _id(memory: Memory, id: str) -> str:
    return memory.get_all(filters={"user_id": "ada", "id": id})["results"][0]["id"]


def correct(memory: Memory, question: str) -> tuple[str, None]:
    old, new, day, text = MOVED
    memory.update(_id(memory, old), text, metadata={"id": new, "day": day})
    return ask(memory, question), None


def list_newest(memory: Memory) -> list[str]:
    found = memory.get_all(filters={"user_id": "ada"}, top_k=1000)["results"]
    found.sort(key=lambda each: each["metadata"]["day"], reverse=True)
    return [each["memory"] for each in found[:5]]


def forget(memory: Memory) -> None:
    memory.delete(_id(memory, FORGOTTEN))


def two_users(memory: Memory, question: str) -> list[list[str]]:
    for id, day, text in OTHER:
        memory.add(text, user_id="bob", metadata={"id": id, "day": day}, infer=False)
    asked = [memory.search(question, filters={"user_id": user}) for user in ("ada", "bob")]
    return [[each["memory"] for each in found["results"]] for found in asked]


def context(memory: Memory, question: str, budget: int) -> str:
    lines, left = [], budget
    for each in memory.search(question, filters={"user_id": "ada"})["results"]:
        left -= count_tokens(each["memory"])
        if left < 0:
            break
        lines.append(each["memory"])
    return "\n".join(lines)
