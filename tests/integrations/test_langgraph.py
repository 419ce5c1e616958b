"""`GraphMemStore` beside LangGraph's `InMemoryStore`, and in a graph of LangGraph."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("langgraph")

from langgraph.store.base import (
    GetOp,
    ListNamespacesOp,
    MatchCondition,
    Op,
    PutOp,
    SearchOp,
)
from langgraph.store.memory import InMemoryStore

from graphmem_torch.integrations.langgraph import GraphMemStore

LABELS = ["users", "alice", "bob", "notes", "Ä", "v1"]
KEYS = ["a", "b", "c", "", "ключ", "a/b"]
FIELDS = ["n", "t", "d", "l", "gone"]


class Spaces(dict[tuple[str, ...], Any]):
    def __missing__(self, name: tuple[str, ...]) -> dict[str, Any]:
        return {}


class Oracle(InMemoryStore):
    """`InMemoryStore` without namespaces that were only looked up, or are empty again."""

    def __init__(self) -> None:
        super().__init__()
        self._data = Spaces()

    def _apply_put_ops(self, put_ops: Any) -> None:
        for (name, _), op in put_ops.items():
            if op.value is not None:
                self._data.setdefault(name, {})
        super()._apply_put_ops(put_ops)
        for name in [name for name, items in self._data.items() if not items]:
            del self._data[name]


def opened(path: Path | None = None, **options: Any) -> GraphMemStore:
    return GraphMemStore(path, embedder="hashing", **options)


def values(rng: random.Random) -> dict[str, Any]:
    """A value with fields that are missing or of mixed types."""
    scalar = [None, True, False, 0, 1, 2, 1.0, 2.5, -3, 10**40, "x", "2", "Ünï 🎻 \u0000", ""]
    choices = [
        lambda: rng.choice(scalar),
        lambda: [rng.choice(scalar) for _ in range(rng.randrange(3))],
        lambda: {"n": rng.choice(scalar), "m": {"k": rng.choice(scalar)}},
    ]
    return {name: rng.choice(choices)() for name in FIELDS[:4] if rng.random() < 0.7}


def filters(rng: random.Random) -> dict[str, Any] | None:
    if rng.random() < 0.3:
        return rng.choice([None, {}])
    scalar = [None, True, 0, 1, 2, 2.5, "x", "2", 10**40]
    operator = ["$eq", "$ne", "$gt", "$gte", "$lt", "$lte", "$bad"]
    weights = [6, 6, 2, 2, 2, 2, 0.3]

    def one() -> Any:
        kind = rng.random()
        if kind < 0.4:
            return rng.choice(scalar)
        if kind < 0.7:
            names = rng.choices(operator, weights, k=rng.choice([1, 1, 2]))
            return {name: rng.choice(scalar) for name in names}
        if kind < 0.85:
            return {"n": rng.choice(scalar), "m": {"k": {"$ne": rng.choice(scalar)}}}
        return [rng.choice(scalar) for _ in range(rng.randrange(3))]

    return {rng.choice(FIELDS): one() for _ in range(rng.choice([1, 1, 2]))}


def space(rng: random.Random, least: int = 1) -> tuple[str, ...]:
    return tuple(rng.choices(LABELS, k=rng.randint(least, 3)))


def operation(rng: random.Random) -> Op:
    kind = rng.random()
    if kind < 0.45:
        value = None if rng.random() < 0.25 else values(rng)
        return PutOp(space(rng), rng.choice(KEYS), value, rng.choice([None, False, ["t"]]))
    if kind < 0.6:
        return GetOp(space(rng), rng.choice(KEYS))
    if kind < 0.85:
        limit, offset = rng.choice([0, 1, 3, 10, 100]), rng.choice([0, 0, 1, 5])
        return SearchOp(space(rng, 0), filters(rng), limit, offset)
    path = tuple(rng.choices([*LABELS, "*"], k=rng.randint(1, 3)))
    conditions = [MatchCondition(rng.choice(["prefix", "suffix"]), path)]
    conditions += [MatchCondition("suffix", (rng.choice(LABELS),))] if rng.random() < 0.3 else []
    depth, limit = rng.choice([None, 1, 2, 5]), rng.choice([1, 3, 100])
    some = tuple(conditions) if rng.random() < 0.7 else None
    return ListNamespacesOp(some, depth, limit, rng.choice([0, 0, 1, 4]))


def plain(result: Any) -> Any:
    """A result without its times."""
    if isinstance(result, list):
        return [plain(each) for each in result]
    if result is None or isinstance(result, tuple):
        return result
    own = result.dict()
    assert own.pop("created_at") <= own.pop("updated_at")
    return repr(own)  # 1, 1.0 and True are equal, but not the same


def outcome(store: Any, ops: Sequence[Op], within: asyncio.Runner | None = None) -> Any:
    try:
        results = store.batch(ops) if within is None else within.run(store.abatch(ops))
    except (TypeError, ValueError, OverflowError):
        return "refused"
    return plain(results)


@pytest.mark.parametrize("seed", range(2))
def test_random_operations_give_the_answers_of_in_memory_store(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    oracle, own, count, refused = Oracle(), opened(tmp_path / "store"), 0, 0
    with asyncio.Runner() as runner:
        while count < 320:
            ops = [operation(rng) for _ in range(rng.choice([0, 1, 1, 1, 2, 5, 12]))]
            if len(ops) > 3 and rng.random() < 0.5:  # one key twice
                twice = rng.choice(ops)
                if isinstance(twice, PutOp):
                    ops.append(twice._replace(value=rng.choice([None, values(rng)])))
            count += len(ops)
            within = runner if rng.random() < 0.3 else None
            expected = outcome(oracle, ops, within)
            assert outcome(own, ops, within) == expected, ops
            refused += expected == "refused"
            if rng.random() < 0.03:
                own.close()
                own = opened(tmp_path / "store")
    assert refused > 2
    everything = [SearchOp((), None, 10_000), ListNamespacesOp(limit=1000)]
    assert plain(own.batch(everything)) == plain(oracle.batch(everything))
    assert own.memory.check() == []
    own.close()
    with opened(tmp_path / "store") as own:
        assert plain(own.batch(everything)) == plain(oracle.batch(everything))
