"""Names of concepts after something was forgotten, against a memory that never held it."""

from __future__ import annotations

import math
import random
import sqlite3
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmem_torch.atoms import CONCEPT, Atom, EdgeType, Link
from graphmem_torch.memory import Memory
from graphmem_torch.store.schema import NAMED_BY
from graphmem_torch.text.embedder import Encoded, HashingEmbedder
from tests.memories import config_of, file_size_limit, opened, stored

# Spellings of one name on a circle: neighbours are near, those two steps apart are not. Two have
# the words of others.
NAMES = ["Lea", "Léa", "Lèa", "Lêa", "Lëa", "Leá", "Leà", "The Léa", "The Leá"]
STEP = [0.0, 1.0, 2.03, 2.97, 3.88, 4.92, 5.99, 1.61, 4.37]
ANGLE = {name.lower(): 0.345 * step for name, step in zip(NAMES, STEP, strict=True)}
CONFIG = config_of(**{"link.min_similarity": 0.1, "spread.max_edges": 3})


class Circle(HashingEmbedder):
    """Gives those names places on a circle; counts what it encodes."""

    def __init__(self) -> None:
        super().__init__(32)
        self.asked = 0

    def encode(self, texts: Sequence[str], *, progress: bool = False) -> Encoded:
        self.asked += len(texts)
        encoded = super().encode(texts)
        for row, text in zip(encoded.pooled, texts, strict=True):
            if text in ANGLE:
                row.zero_()
                row[:2] = torch.tensor([math.cos(ANGLE[text]), math.sin(ANGLE[text])])
        return encoded


def circle(path: Path | None = None) -> Memory:
    """Return a memory that has its encoder's vectors of names, as older releases made it."""
    memory = opened(path, config=CONFIG, embedder=Circle())
    if not memory.store.num_nodes:
        memory.store.meta_set(NAMED_BY, "encoder")
    return memory


def saying(number: int, names: Sequence[str]) -> Atom:
    return Atom(f"a{number}", "it is " + " and ".join(names), session=f"s{number % 3}")


class _Weights(list[float]):
    """Cosines may differ in their last bits, wherever these would be rounded."""

    def __eq__(self, other: object) -> bool:
        return list(self) == pytest.approx(list(other), abs=1e-4)  # type: ignore[call-overload]


def graph(memory: Memory) -> tuple[list[str], dict[str, str], list[Any], Any]:
    """Ids, the concept of each other name, edges by ids, and their weights to rounding."""
    store = memory.store
    name = dict(zip(store.columns().node.tolist(), store.ids(), strict=True))
    aliases = {other: name[node] for _, other, node in store.aliases()}
    edges, weights = zip(*stored(store), strict=True) if store.num_edges else ((), ())
    return sorted(store.ids()), aliases, list(edges), _Weights(weights)


histories = st.lists(
    st.lists(st.sampled_from(NAMES), min_size=1, max_size=4), min_size=2, max_size=9
)


@pytest.mark.parametrize("seed", range(3))
def test_names_far_from_what_goes(seed: int) -> None:
    """In a long session, where only what is near is looked at: names said there, and elsewhere."""
    rng = random.Random(seed)
    texts = [NAMES[seed : seed + 2], *(rng.sample(NAMES, rng.randrange(3)) for _ in range(50))]
    atoms = [replace(saying(i, names), session="s", time=1e9 + i) for i, names in enumerate(texts)]
    with circle() as memory, circle() as fresh:
        memory.add(atoms)
        gone = {0, *rng.sample(range(51), 4)}
        memory.forget([f"a{i}" for i in gone])
        fresh.add([atom for i, atom in enumerate(atoms) if i not in gone])
        assert memory.check() == []
        (*names, edges, _), (*others, wanted, _) = graph(memory), graph(fresh)
        assert names == others
        # Texts are the same again and again, and any of them may be the most similar.
        equal = EdgeType.SIMILARITY
        assert [e for e in edges if e[2] != equal] == [e for e in wanted if e[2] != equal]


@settings(max_examples=3, deadline=None)
@given(histories, st.data())
def test_names_are_those_of_what_stays(texts: list[list[str]], data: st.DataObject) -> None:
    atoms = [saying(i, names) for i, names in enumerate(texts)]
    numbers = st.integers(0, len(atoms) - 1)
    order = data.draw(st.lists(numbers, min_size=1, unique=True))
    cut = data.draw(st.integers(0, len(order)))
    with circle() as memory, circle() as fresh:
        memory.add(atoms)
        asked = memory.embedder.asked  # type: ignore[attr-defined]
        for gone in (order[:cut], order[cut:]):
            memory.forget([f"a{i}" for i in gone])
        assert memory.embedder.asked == asked, "no encoder is called"  # type: ignore[attr-defined]
        assert memory.check() == []
        fresh.add([atom for i, atom in enumerate(atoms) if i not in order])
        assert graph(memory) == graph(fresh)
        names = [name for _, name, _ in memory.store.aliases()]
        vectors = memory.store.alias_vectors(names)
        assert vectors.keys() == {*names}
        for name, vector in vectors.items():
            angle = torch.tensor(ANGLE[name])
            torch.testing.assert_close(vector[:2], torch.stack([angle.cos(), angle.sin()]))
        found, wanted = (each.retrieve("Lèa and Lëa").hits for each in (memory, fresh))
        assert [hit.id for hit in found] == [hit.id for hit in wanted]
        # Of ways that are equally strong either may be told.
        scores = pytest.approx([hit.score for hit in wanted], abs=1e-4)
        assert [hit.score for hit in found] == scores
        # And so are those of what comes later.
        for each in (memory, fresh):
            each.add(saying(99, NAMES[::-1]))
        assert graph(memory) == graph(fresh)


def chain(memory: Memory) -> None:
    """Léa is a concept, Lea and Lèa are other names of it, Lêa is one, Lëa is its other name."""
    memory.add([saying(i, [NAMES[k]]) for i, k in enumerate((1, 0, 2, 3, 4, 4))])


def test_an_update_names_concepts_anew() -> None:
    with circle() as memory, circle() as fresh:
        chain(memory)
        memory.update("a0", text="it is Leà")
        assert memory.check() == []
        fresh.add([saying(i, [NAMES[k]]) for i, k in enumerate((0, 2, 3, 4, 4), start=1)])
        fresh.add(saying(0, ["Leà"]))
        assert graph(memory)[:2] == graph(fresh)[:2]
        memory.forget("a0")
        names = {name for _, name, _ in memory.store.aliases()}
        assert names == {"lêa"} and "concept:léa" not in memory.store.ids()


def test_edges_that_others_made_lead_to_the_new_name() -> None:
    with circle() as memory:
        chain(memory)
        memory.graph.connect("a3", "concept:léa", "causes")
        memory.add(Atom("x", "it is said", edges=(Link("concept:lea", EdgeType.SUPPORTS),)))
        memory.forget("a0")
        edges = {edge for edge, _ in stored(memory.store)}
        assert ("a3", "concept:lea", EdgeType.CAUSES) in edges
        assert ("x", "concept:lea", EdgeType.SUPPORTS) in edges
        assert memory.check() == []


def test_receipts_name_what_is_said_no_more(tmp_path: Path) -> None:
    with circle(tmp_path) as memory:
        chain(memory)
        receipt = memory.forget("a0")
        assert memory.upkeep.check_receipt(receipt) == []
        assert receipt.hash_of("id", f"{CONCEPT}:léa") in receipt.erased
        assert receipt.hash_of("id", f"{CONCEPT}:lèa") not in receipt.erased
        # A name that is a concept no longer is said still, and may be one again.
        assert "concept:lêa" not in memory.store.ids()
        memory.forget("a2")
        assert "concept:lêa" in memory.store.ids() and memory.upkeep.check_receipt(receipt) == []
    assert "léa".encode() not in b"".join(file.read_bytes() for file in tmp_path.iterdir())


def test_names_change_whole_or_not_at_all(tmp_path: Path) -> None:
    with circle(tmp_path) as memory:
        chain(memory)
    with circle(tmp_path) as memory:
        before = graph(memory)
        with file_size_limit(100), pytest.raises(Exception, match="disk"):
            memory.forget("a0")
        assert graph(memory) == before and memory.check() == []
        memory.forget("a0")
        assert graph(memory) != before and memory.check() == []


def test_a_store_whose_names_have_no_vectors(tmp_path: Path) -> None:
    """As an older release leaves it: only those are encoded, once."""
    with circle(tmp_path) as memory:
        chain(memory)
    with sqlite3.connect(tmp_path / "memory.sqlite") as connection:
        connection.execute("DROP TRIGGER alias_gone")
        connection.execute("DROP TABLE alias_vector")
    with circle(tmp_path) as memory, circle() as fresh:
        assert memory.check() == [] and memory.store.alias_vectors(NAMES) == {}
        memory.forget("a0")
        assert memory.embedder.asked == 3  # type: ignore[attr-defined]
        fresh.add([saying(i, [NAMES[k]]) for i, k in enumerate((0, 2, 3, 4, 4), start=1)])
        assert graph(memory) == graph(fresh)
        memory.forget("a2")
        assert memory.embedder.asked == 3  # type: ignore[attr-defined]
        run = memory.store._database._connection.execute
        run("UPDATE alias_vector SET data = zeroblob(length(data))")
        assert any("vector of the name" in text for text in memory.check())
