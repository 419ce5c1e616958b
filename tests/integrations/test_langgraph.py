"""`GraphMemStore` beside LangGraph's `InMemoryStore`, and in a graph of LangGraph."""

from __future__ import annotations

import asyncio
import datetime as dt
import math
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("langgraph")

from langchain_core.embeddings import DeterministicFakeEmbedding
from langgraph.store.base import (
    GetOp,
    InvalidNamespaceError,
    ListNamespacesOp,
    MatchCondition,
    Op,
    PutOp,
    SearchOp,
)
from langgraph.store.memory import InMemoryStore

from graphmem_torch import Memory
from graphmem_torch.errors import EmbedderError, InputError, StoreError
from graphmem_torch.integrations.langgraph import FilterTypeError, GraphMemStore
from tests.memories import config_of

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
    return GraphMemStore(path, embedder="hashing", config=config_of(), **options)


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


# Queries.

FACTS = {
    ("users", "nora"): {
        "coat": {"text": "Nora packed a red coat for Lisbon", "page": 1},
        "cello": {"text": "Nora plays the cello on Sundays", "page": 2},
        "shoe": {"text": "", "page": 3},
    },
    ("users", "theo"): {
        "oven": {"text": "Theo restores old ovens", "page": 1},
        "tags": {"tags": ["a comet", "a river"], "inner": {"text": "Theo saw the comet"}},
    },
}


def filled(**options: Any) -> GraphMemStore:
    store = opened(**options)
    puts = [PutOp(name, key, own) for name, items in FACTS.items() for key, own in items.items()]
    store.batch([*puts, PutOp(("users", "theo"), "off", {"text": "red coat"}, index=False)])
    return store


def keys(items: Sequence[Any]) -> list[str]:
    return [item.key for item in items]


def test_a_query_ranks_and_what_has_no_text_follows() -> None:
    with filled(index={"fields": ["text", "tags[*]", "inner.text"]}) as store:
        found = store.search(("users",), query="Who packed the red coat?", limit=10)
        assert found[0].key == "coat"
        assert {*keys(found[:4])} == {"coat", "cello", "oven", "tags"}
        assert keys(found[4:]) == ["shoe", "off"]
        scores = [item.score for item in found]
        assert scores[4:] == [None, None]
        assert scores[:4] == sorted(scores[:4], reverse=True) and 0 <= min(scores[:4]) <= 1
        pages = [
            key
            for offset in range(0, 8, 2)
            for key in keys(
                store.search(("users",), query="Who packed the red coat?", limit=2, offset=offset)
            )
        ]
        assert pages == keys(found)
        own = store.search(("users", "theo"), query="red coat", limit=2)
        assert {*keys(own)} == {"oven", "tags"}
        comet = store.search((), query="a river and a comet", limit=1)
        assert keys(comet) == ["tags"]
        filtered = store.search(("users",), query="red coat", filter={"page": {"$eq": 1}})
        assert keys(filtered) == ["coat", "oven"]
        assert keys(store.search(("users",), query=" ", limit=2)) == ["coat", "cello"]
        assert store.search(("nobody",), query="coat") == []
        assert store.search(("users",), query="coat", limit=0) == []


def test_put_may_name_its_own_fields() -> None:
    with opened(index={"fields": ["text"]}) as store:
        store.put(("a",), "one", {"text": "a comet", "other": "an oven"}, index=["other"])
        store.put(("a",), "two", {"text": "a river", "list": [{"x": "cello"}, {"x": "violin"}]})
        store.put(("a",), "three", {"text": "a stone"}, index=["none.there", "list[*].x"])
        (first, second, third) = store.search(("a",), query="the oven")
        assert (first.key, second.key, third.key, third.score) == ("one", "two", "three", None)
        store.put(("a",), "two", {"list": [{"x": "cello"}, {"x": "violin"}]}, index=["list[1].x"])
        assert store.search(("a",), query="violin", limit=1)[0].key == "two"
        store.put(("a",), "one", {"text": "a comet"}, index=False)
        assert store.search(("a",), query="the oven")[-1].score is None


def test_whole_values_are_indexed_without_fields() -> None:
    with filled() as store:
        assert keys(store.search((), query="Who saw a river?", limit=1)) == ["tags"]
        assert "inner" not in store.memory.get([store.memory.list()[0].id])[0].text


def test_embeddings_of_langchain_are_an_encoder(tmp_path: Path) -> None:
    embed = DeterministicFakeEmbedding(size=12)
    with GraphMemStore(tmp_path / "s", index={"embed": embed, "dims": 12}) as store:
        store.put(("a",), "one", {"text": "a comet"})
        assert store.memory.embedder.dim == 12
        assert keys(store.search(("a",), query="a comet")) == ["one"]
    with pytest.raises(InputError, match="index: dims: expected 12"):
        GraphMemStore(tmp_path / "s", index={"embed": embed, "dims": 13})
    with pytest.raises(EmbedderError):
        GraphMemStore(tmp_path / "s", index={"embed": DeterministicFakeEmbedding(size=5)})

    def letters(texts: list[str]) -> list[list[float]]:
        return [[1.0, *(float(text.count(each)) for each in "abc")] for text in texts]

    with GraphMemStore(index={"embed": letters, "dims": 4, "fields": ["t"]}) as store:
        store.put(("a",), "one", {"t": "aaa"})
        assert store.memory.embedder.dim == 4


# Items.


def test_values_are_exact_and_copies(tmp_path: Path) -> None:
    value = {
        "int": [0, -1, 2**63, 10**400],
        "float": [0.1, -0.0, 1e300, 5e-324, 1.0],
        "text": ["", " ", "\u0000", "Ü🎻", "e\u0301", "\u00e9", "\u2028"],
        "e\u0301": {"": None, "a.b": {"$gt": 1}, "\u00e9": True},
        "deep": [[[[]]], {}],
    }
    names = [("e\u0301",), ("\u00e9",), ("a b/c", "*"), ("*",)]
    with opened(tmp_path / "s") as store:
        for name in names:
            for key in ("e\u0301", "\u00e9", "", "k" * 1000):
                store.put(name, key, value | {"own": [*name, key]})
        given: dict[str, Any] = {"list": [1]}
        store.put(("copy",), "k", given)
        given["list"].append(2)
        got = store.get(("copy",), "k")
        assert got is not None and got.value == {"list": [1]}
        got.value["list"].append(3)
        assert store.search(("copy",))[0].value == {"list": [1]}
    with opened(tmp_path / "s") as store:
        assert {*store.list_namespaces()} == {*names, ("copy",)}
        for name in names:
            for key in ("e\u0301", "\u00e9", "", "k" * 1000):
                item = store.get(name, key)
                assert item is not None
                assert repr(item.value) == repr(value | {"own": [*name, key]})


def test_times_of_an_item() -> None:
    now = [1e9]
    with opened(clock=lambda: now[0]) as store:
        store.put(("a",), "k", {"n": 1})
        now[0] += 60
        store.put(("a",), "k", {"n": 2})
        item = store.get(("a",), "k")
        assert item is not None
        assert item.created_at == dt.datetime.fromtimestamp(1e9, dt.UTC)
        assert item.updated_at - item.created_at == dt.timedelta(seconds=60)
        store.delete(("a",), "k")
        store.put(("a",), "k", {"n": 3})
        item = store.get(("a",), "k")
        assert item is not None and item.created_at == item.updated_at
        atom = store.memory.list()[0]
        assert atom.time == 1e9 + 60


# Expiry.


class Expiring:
    """Items with a time to live, as LangGraph describes it, in a dictionary."""

    def __init__(self, clock: Callable[[], float], *, refresh: bool, default: float | None) -> None:
        self.clock, self.refresh, self.default = clock, refresh, default
        self.items: dict[tuple[tuple[str, ...], str], tuple[int, float | None, float]] = {}

    def put(self, name: tuple[str, ...], key: str, n: int, ttl: Any = ...) -> None:
        own = self.default if ttl is ... else ttl
        self.items[name, key] = n, own, self.clock() + 60 * (own or 0)

    def sweep(self) -> int:
        gone = [k for k, (_, ttl, end) in self.items.items() if ttl and end <= self.clock()]
        for each in gone:
            del self.items[each]
        return len(gone)

    def read(self, name: tuple[str, ...], key: str | None, refresh: bool | None) -> list[int]:
        found = []
        for (space, own), (n, ttl, end) in [*self.items.items()]:
            seen = space == name and key in (None, own)
            if seen and not (ttl and end <= self.clock()):
                found.append(n)
                if self.refresh if refresh is None else refresh:
                    later = max(end, self.clock() + 60 * (ttl or 0))
                    self.items[space, own] = n, ttl, later
        return found

    def spaces(self) -> list[tuple[str, ...]]:
        live = [k for k, (_, ttl, end) in self.items.items() if not ttl or end > self.clock()]
        return sorted({name for name, _ in live})


@pytest.mark.parametrize(("refresh", "default"), [(True, None), (False, 2.0)])
def test_items_expire_as_in_a_dictionary(
    refresh: bool, default: float | None, tmp_path: Path
) -> None:
    rng, now = random.Random(7), [1e9]
    config: Any = {"refresh_on_read": refresh, "omit_expired": True}
    config |= {} if default is None else {"default_ttl": default}
    model = Expiring(lambda: now[0], refresh=refresh, default=default)

    def made() -> GraphMemStore:
        return opened(tmp_path / "s", ttl=config, clock=lambda: now[0])

    store = made()
    for step in range(150):
        name, key = (rng.choice("ab"),), rng.choice("xyz")
        kind = rng.random()
        if kind < 0.35:
            ttl = rng.choice([..., None, 0.5, 1, 3])
            model.put(name, key, step, ttl)
            given = {} if ttl is ... else {"ttl": ttl}
            store.put(name, key, {"n": step}, **given)
        elif kind < 0.55:
            item = store.get(name, key, refresh_ttl=(own := rng.choice([None, True, False])))
            assert ([] if item is None else [item.value["n"]]) == model.read(name, key, own)
        elif kind < 0.75:
            found = store.search(name, refresh_ttl=(own := rng.choice([None, True, False])))
            assert sorted(item.value["n"] for item in found) == sorted(model.read(name, None, own))
        elif kind < 0.8:
            assert store.list_namespaces() == model.spaces()
        elif kind < 0.83:
            assert store.sweep_ttl() == model.sweep()
        elif kind < 0.86:
            store.close()
            store = made()
        else:
            now[0] += rng.choice([1, 20, 45, 100])
    assert store.memory.check() == []
    store.close()


def test_puts_sweep_when_the_interval_is_over() -> None:
    now = [1e9]
    ttl: Any = {"sweep_interval_minutes": 2, "default_ttl": 1}
    with opened(ttl=ttl, clock=lambda: now[0]) as store:
        store.put(("a",), "k", {"n": 1})
        now[0] += 90
        store.put(("a",), "l", {"n": 2})
        assert [item.key for item in store.search(("a",))] == ["l"]
        assert len(store.memory.list(expired=True)) == 1
        now[0] += 40
        store.put(("a",), "m", {"n": 3})
        assert len(store.memory.list(expired=True)) == 0
        assert store.search(("a",), query="3") != []


# Beside others.


def test_other_memories_are_left_alone(tmp_path: Path) -> None:
    with Memory.open(tmp_path / "s", embedder="hashing", concepts="pattern") as memory:
        memory.add(
            [
                {"id": "turn", "speaker": "Nora", "text": "The comet is near."},
                {"id": "item:false", "text": "x", "meta": {"within": [""], "namespace": ["a"]}},
            ]
        )
        store = GraphMemStore(memory)
        store.put(("a",), "k", {"text": "a comet"})
        assert keys(store.search((), query="comet")) == ["k"]
        assert store.list_namespaces() == [("a",)]
        (item,) = (atom for atom in memory if atom.meta.get("key") == "k")
        memory.update(item.id, text="another text")  # the value stays
        assert store.get(("a",), "k").value == {"text": "a comet"}  # type: ignore[union-attr]
        other = GraphMemStore(memory)
        other.put(("b",), "k", {"n": 1})
        assert store.list_namespaces() == [("a",), ("b",)]
        memory.delete(item.id)
        assert store.get(("a",), "k") is None
        assert other.list_namespaces() == [("b",)]
        store.close()
        assert {atom.id for atom in memory} >= {"turn", "item:false"}


_PUTS = """
import sys
from graphmem_torch.integrations.langgraph import GraphMemStore
with GraphMemStore(sys.argv[1], embedder="hashing", concepts="pattern") as store:
    for i in range(12):
        store.put(("users", sys.argv[2]), f"k{i % 8}", {"n": i})
"""


def test_processes_and_threads_share_a_store(tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    with opened(tmp_path / "s") as store:
        store.put(("users", "first"), "k", {"n": 0})
        command = [sys.executable, "-c", _PUTS, path]
        running = subprocess.Popen([*command, "one"])
        failed: list[BaseException] = []

        def work(name: str) -> None:
            try:
                for i in range(12):
                    store.put(("threads", "same"), f"k{i}", {"n": i})
                    store.put(("threads", name), f"k{i % 8}", {"n": i})
                    assert store.get(("threads", name), f"k{i % 8}").value == {"n": i}  # type: ignore[union-attr]
                    store.search(("threads",), query="n", limit=3)
            except BaseException as error:
                failed.append(error)

        threads = [threading.Thread(target=work, args=(name,)) for name in ("x", "y")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failed
        assert running.wait(timeout=120) == 0
        for name in (("users", "one"), ("threads", "x"), ("threads", "y")):
            found = {item.key: item.value["n"] for item in store.search(name, limit=99)}
            assert found == {f"k{i % 8}": i for i in range(12)}
        assert len(store.search(("threads", "same"), limit=99)) == 12
        assert store.memory.check() == []


def test_imported_items_are_in_the_same_order_before_and_after_opening(tmp_path: Path) -> None:
    with opened(tmp_path / "from") as other:
        for key in ("c", "a"):
            other.put(("users", "ada"), key, {"text": f"given {key}"})
        other.put(("notes",), "n", {"text": "a note"})
        other.memory.export(tmp_path / "export")
    with opened(tmp_path / "s") as store:
        store.put(("first",), "x", {"text": "own"})
        for key in ("own1", "own2"):
            store.put(("users", "ada"), key, {"text": f"own {key}"})
        store.memory.import_(tmp_path / "export")
        store.put(("users", "ada"), "last", {"text": "the last"})
        before = store.search(())
    with opened(tmp_path / "s") as store:
        assert store.search(()) == before and len(before) == 7
        assert store.memory.check() == []


# Bad input.


def test_bad_input_is_one_clear_line(tmp_path: Path) -> None:
    loop: dict[str, Any] = {}
    loop["own"] = loop
    with opened() as store:
        store.put(("a",), "k", {"n": "five", "t": 1})
        before = [*store.memory]
        bad: list[tuple[Callable[[], Any], type[Exception], str]] = [
            (lambda: store.put((), "k", {}), InvalidNamespaceError, "empty"),
            (lambda: store.put(("a.b",), "k", {}), InvalidNamespaceError, "periods"),
            (lambda: store.put(("langgraph",), "k", {}), InvalidNamespaceError, "Root label"),
            (lambda: store.get(("",), "k"), InvalidNamespaceError, "empty"),
            (lambda: store.batch([GetOp(("a.b",), "k")]), InvalidNamespaceError, "periods"),
            (lambda: store.batch([PutOp((1,), "k", {})]), InvalidNamespaceError, "strings"),  # type: ignore[arg-type]
            (lambda: store.batch([PutOp(("a",), 1, {})]), InputError, "key: expected a string"),  # type: ignore[arg-type]
            (lambda: store.batch(["get"]), InputError, "ops: expected GetOp"),  # type: ignore[list-item]
            (lambda: store.put(("a",), "k", {"s": {1}}), InputError, r"value of 'k'.s: .*\(set\)"),
            (lambda: store.put(("a",), "k", {"d": dt.date(2024, 1, 1)}), InputError, "date"),
            (lambda: store.put(("a",), "k", {"n": [float("inf")]}), InputError, r"n\[0\]: .* inf "),
            (lambda: store.put(("a",), "k", {"n": {2: 1}}), InputError, "names: .* got 2"),
            (lambda: store.put(("a",), "k", {"n": 10**5000}), InputError, "digits"),
            (lambda: store.put(("a",), "k", loop), InputError, "too many; flatten it"),
            (lambda: store.put(("a",), "k", [1]), InputError, "expected a mapping"),  # type: ignore[arg-type]
            (lambda: store.put(("a",), "k", {"t": "\ud800"}), InputError, "surrogate"),
            (lambda: store.put(("\ud800",), "k", {}), InputError, "surrogate"),
            (lambda: store.put(("a",), "k", {}, index=True), InputError, "index: expected False"),  # type: ignore[arg-type]
            (lambda: store.put(("a",), "k", {}, index="t"), InputError, "index: expected False"),  # type: ignore[arg-type]
            (lambda: store.put(("a",), "k", {}, ttl=-1), InputError, "ttl: expected minutes"),
            (lambda: store.put(("a",), "k", {}, ttl="soon"), InputError, "ttl: expected minutes"),  # type: ignore[arg-type]
            (lambda: GraphMemStore(ttl={"default_ttl": "1"}), InputError, "ttl: default_ttl:"),  # type: ignore[typeddict-item]
            (lambda: store.search((), filter={"n": {"$gt": 3}}), FilterTypeError, "'five'"),
            (lambda: store.search((), filter={"m": {"$lt": 3}}), TypeError, "None in the item"),
            (lambda: store.search((), filter={"t": {"$in": [3]}}), InputError, "did you mean"),
            (lambda: GraphMemStore(index={"field": ["t"]}), InputError, "did you mean 'fields'"),  # type: ignore[typeddict-unknown-key]
            (lambda: GraphMemStore(index={"fields": "t"}), InputError, "index: expected False"),  # type: ignore[typeddict-item]
            (lambda: GraphMemStore(ttl={"default": 1}), InputError, "ttl: expected one of"),  # type: ignore[typeddict-unknown-key]
            (lambda: GraphMemStore(ttl={"default_ttl": math.inf}), InputError, "got inf"),
            (lambda: GraphMemStore(ttl={"refresh_on_read": "no"}), InputError, "True or False"),  # type: ignore[typeddict-item]
            (lambda: store.put("ab", "k", {}), InputError, r"namespace: .* write \('ab',\)"),  # type: ignore[arg-type]
            (lambda: store.get("ab", "k"), InputError, r"namespace: .* write \('ab',\)"),  # type: ignore[arg-type]
            (lambda: store.search("ab"), InputError, "namespace_prefix: expected a tuple"),  # type: ignore[arg-type]
            (lambda: store.list_namespaces(prefix="ab"), InputError, "prefix: expected a tuple"),  # type: ignore[arg-type]
            (lambda: store.search(("a",), limit="3"), InputError, "limit: expected an integer"),  # type: ignore[arg-type]
            (lambda: store.search(("a",), limit=2.0), InputError, "limit: expected an integer"),  # type: ignore[arg-type]
            (lambda: store.search(("a",), offset=None), InputError, "offset: expected an integer"),  # type: ignore[arg-type]
            (lambda: store.search(("a",), query=5), InputError, "query: expected a text"),  # type: ignore[arg-type]
            (lambda: store.search(("a",), filter=[1]), InputError, "filter: expected conditions"),  # type: ignore[arg-type]
            (lambda: store.list_namespaces(max_depth="1"), InputError, "max_depth: expected"),  # type: ignore[arg-type]
            (lambda: GraphMemStore(store.memory, preset="default"), InputError, "no options"),
            (lambda: GraphMemStore(5), InputError, "memory: expected a path"),  # type: ignore[arg-type]
        ]
        for call, kind, said in bad:
            with pytest.raises(kind, match=said) as caught:
                call()
            assert "\n" not in str(caught.value)
        assert [*store.memory] == before
    with opened(tmp_path / "s") as store:
        store.put(("a",), "k", {"n": 1}, ttl=5)
    with GraphMemStore(tmp_path / "s", mode="r") as store:
        assert store.get(("a",), "k").value == {"n": 1}  # type: ignore[union-attr]
        assert keys(store.search(("a",), query="n")) == ["k"]
        for write in (lambda: store.put(("a",), "k", {}), lambda: store.delete(("a",), "k")):
            with pytest.raises(StoreError, match="read"):
                write()
    with pytest.raises(StoreError, match="closed"):
        store.get(("a",), "k")
