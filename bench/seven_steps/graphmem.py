"""The seven steps in graphmem_torch."""

# ruff: noqa: D103  (`bench/seven_steps/steps.py` says what each step does)

from __future__ import annotations

from pathlib import Path

from bench.seven_steps.steps import BEFORE, FACTS, FORGOTTEN, MOVED, OTHER
from graphmem_torch import Memory


def opened(folder: Path) -> Memory:
    return Memory.open(folder)


def add(memory: Memory) -> None:
    ada = memory.namespaces.create("ada")
    ada.add({"id": id, "time": day, "text": text} for id, day, text in FACTS)


def ask(memory: Memory, question: str) -> str:
    return memory.namespaces["ada"].retrieve(question).hits[0].text


def correct(memory: Memory, question: str) -> tuple[str, str]:
    (old, new, day, text), ada = MOVED, memory.namespaces["ada"]
    ada.add({"id": new, "time": day, "text": text})
    ada.facts.supersede(old, new)
    return ask(memory, question), ada.at(valid_at=BEFORE).retrieve(question).hits[0].text


def list_newest(memory: Memory) -> list[str]:
    return [atom.text for atom in memory.namespaces["ada"].list(order="-time", limit=5)]


def forget(memory: Memory) -> None:
    memory.namespaces["ada"].forget(FORGOTTEN)


def two_users(memory: Memory, question: str) -> list[list[str]]:
    bob = memory.namespaces.create("bob")
    bob.add({"id": id, "time": day, "text": text} for id, day, text in OTHER)
    asked = [user.retrieve(question) for user in (memory.namespaces["ada"], bob)]
    return [[hit.text for hit in result.hits] for result in asked]


def context(memory: Memory, question: str, budget: int) -> str:
    return memory.namespaces["ada"].compile(question, budget=budget).text
