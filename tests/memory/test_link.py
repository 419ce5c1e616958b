"""The edges that linking makes, against loops over all pairs; batches make no difference."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import pytest
import torch
from torch import Tensor

from graphmem_torch.atoms import LINKED, RESEMBLING, Atom, EdgeType, Link
from graphmem_torch.config import LinkConfig
from graphmem_torch.memory.link import Linker
from graphmem_torch.memory.mentions import concept_id
from graphmem_torch.store import Batch, MemoryStore

DIM = 12
Edge = tuple[str, str, EdgeType]

# Spellings of two names, and a third. Angles in a plane: cos(0.3) = .955 and cos(0.45) = .900 lie
# on both sides of the threshold.
NAMES = {
    "sea": 0.0,
    "séa": 0.3,
    "sëa": 0.6,
    "sêa": 0.9,
    "sèa": 0.45,
    "moon": 2.0,
    "dog": 4.0,
    "dög": 4.45,
}


def name_vectors(names: Sequence[str]) -> Tensor:
    plane = torch.tensor([[math.cos(NAMES[n]), math.sin(NAMES[n])] for n in names])
    return torch.nn.functional.pad(plane.reshape(-1, 2), (0, DIM - 2))


def extract(texts: Sequence[str]) -> list[list[str]]:
    return [list(dict.fromkeys(w for w in text.split() if w in NAMES)) for text in texts]


def memory_of(count: int, seed: int) -> tuple[list[Atom], Tensor]:
    """Atoms with every way of being linked: sessions, mentions, stated edges both ways."""
    g = torch.Generator().manual_seed(seed)

    def draw(high: int) -> int:
        return int(torch.randint(high, (1,), generator=g))

    atoms = []
    for i in range(count):
        words = [list(NAMES)[draw(len(NAMES))] for _ in range(draw(3))]
        links = []
        if draw(3) == 0:
            kind = (EdgeType.CAUSES, EdgeType.DERIVED_FROM, EdgeType.CONTRADICTS)[draw(3)]
            links.append(Link(f"a{draw(count)}", kind, (None, 0.25)[draw(2)]))
        if draw(6) == 0:
            links.append(Link(concept_id(list(NAMES)[draw(len(NAMES))])))
        if draw(8) == 0:
            links.append(Link("nowhere"))
        session, time = (None, "s", "t")[draw(3)], (None, float(draw(9)), i)[draw(3)]
        text = " ".join(["x", *words])
        atoms.append(Atom(f"a{i}", text, session=session, time=time, edges=tuple(links)))
    vectors = torch.nn.functional.normalize(torch.randn(count, DIM, generator=g), dim=1)
    return atoms, vectors


def linked(
    atoms: Sequence[Atom],
    vectors: Tensor,
    sizes: Sequence[int],
    config: LinkConfig,
    *,
    restore: bool = False,
) -> tuple[dict[Edge, float], tuple[int, str | None]]:
    """Edges by the ids of their ends, and what is unresolved, when atoms come in such batches.

    With `restore` every batch meets a new linker, of a store that holds those before.
    """
    linker, store = Linker(DIM, config, extract, name_vectors), MemoryStore.open(None, dim=DIM)
    stored: list[Atom] = []
    found: dict[Edge, float] = {}
    place = 0
    for size in sizes:
        if restore:
            linker = Linker(DIM, config, extract, name_vectors)
            linker.take_up(store)
        part = slice(place, place + size)
        result = linker.link(atoms[part], vectors[part], len(stored))
        rows, fresh = (
            torch.cat([vectors[part], result.embeddings]),
            [*atoms[part], *result.concepts],
        )
        stored += fresh
        store.append(Batch(fresh, rows, edges=result.edges, aliases=result.aliases))
        block = result.edges
        block.validate(len(stored))
        columns = (block.source, block.target, block.type, block.weight)
        for s, t, kind, weight in zip(*(c.tolist() for c in columns), strict=True):
            key = (stored[s].id, stored[t].id, EdgeType(kind))
            found[key] = max(weight, found.get(key, -math.inf))
        for s, t in zip(result.cut.source.tolist(), result.cut.target.tolist(), strict=True):
            assert found.pop((stored[s].id, stored[t].id, EdgeType.TEMPORAL)) == 1.0
        place += size
    assert place == len(atoms)
    return found, linker.unresolved


def of_type(edges: dict[Edge, float], kind: EdgeType) -> dict[tuple[str, str], float]:
    return {(s, t): weight for (s, t, k), weight in edges.items() if k == kind}


@pytest.mark.parametrize(("seed", "restore"), [(0, False), (1, True), (2, False), (3, True)])
def test_link_of_batches_is_that_of_all(seed: int, restore: bool) -> None:
    atoms, vectors = memory_of(30, seed)
    config = LinkConfig(similarity_k=3, min_similarity=0.1)
    whole, unresolved = linked(atoms, vectors, [30], config)
    assert {kind for _, _, kind in whole} >= {
        EdgeType.TEMPORAL, EdgeType.SIMILARITY, EdgeType.ABSTRACTION, EdgeType.ASSOCIATION,
    }  # fmt: skip
    for sizes in ([1] * 30, [7, 1, 0, 15, 7]):
        parts, left = linked(atoms, vectors, sizes, config, restore=restore)
        assert parts.keys() == whole.keys()
        assert all(parts[key] == pytest.approx(whole[key], abs=1e-6) for key in whole)
        assert left == unresolved


@pytest.mark.parametrize("seed", range(2))
def test_temporal_edges_join_turns_in_the_order_of_time(seed: int) -> None:
    atoms, vectors = memory_of(40, seed)
    config = LinkConfig(similarity_k=0)
    expected: set[tuple[str, str]] = set()
    for session in ("s", "t"):
        turns: list[tuple[float, int, str]] = []
        for i, atom in enumerate(atoms):
            derived = any(link.type == EdgeType.DERIVED_FROM for link in atom.edges)
            if atom.session == session and not derived:
                before = turns[-1][0] if turns else -math.inf
                turns.append((before if atom.time is None else atom.time, i, atom.id))
        assert turns != sorted(turns)
        expected |= set(pairwise(name for *_, name in sorted(turns)))
    for sizes, restore in (([40], False), ([1] * 40, False), ([13, 27], True), ([1] * 40, True)):
        edges, _ = linked(atoms, vectors, sizes, config, restore=restore)
        assert of_type(edges, EdgeType.TEMPORAL).keys() == expected
        assert set(of_type(edges, EdgeType.TEMPORAL).values()) == {1.0}


def test_a_late_turn_is_put_in_its_place() -> None:
    """Equal times and turns without a time keep the order of insertion."""
    times = {"a": 3.0, "b": None, "c": 5.0, "d": 3.0, "e": 1.0, "f": None, "g": 9.0, "h": 5.0}
    atoms = [Atom(name, "x", session="s", time=time) for name, time in times.items()]
    edges, _ = linked(atoms, torch.eye(DIM)[:8], [1] * 8, LinkConfig(similarity_k=0))
    assert of_type(edges, EdgeType.TEMPORAL).keys() == set(pairwise("efabdchg"))


@pytest.mark.parametrize(("k", "least"), [(1, -1.0), (3, 0.2), (50, 0.0), (0, -1.0)])
def test_similarity_edges_are_the_best_earlier_atoms(k: int, least: float) -> None:
    atoms, vectors = memory_of(25, 6)
    edges, _ = linked(atoms, vectors, [10, 15], LinkConfig(similarity_k=k, min_similarity=least))
    expected = {}
    rows = vectors.double().numpy()
    for i in range(len(atoms)):
        ranked = sorted(range(i), key=lambda j, i=i: -float(rows[i] @ rows[j]))[:k]
        for j in ranked:
            if rows[i] @ rows[j] >= least:
                expected[atoms[i].id, atoms[j].id] = float(rows[i] @ rows[j])
    got = of_type(edges, EdgeType.SIMILARITY)
    assert got.keys() == expected.keys()
    assert all(got[key] == pytest.approx(expected[key], abs=1e-6) for key in expected)


@pytest.mark.parametrize("sizes", [[90], [1] * 90, [40, 50]])
def test_of_equally_similar_atoms_the_earlier_get_the_edges(sizes: list[int]) -> None:
    atoms = [Atom(f"a{i}", "x") for i in range(90)]
    vectors = torch.eye(DIM)[torch.arange(90) % 2]
    edges, _ = linked(atoms, vectors, sizes, LinkConfig(similarity_k=3, min_similarity=0.1))
    expected = {(f"a{i}", f"a{j}") for i in range(90) for j in range(i % 2, min(i, 6), 2)}
    assert of_type(edges, EdgeType.SIMILARITY).keys() == expected


def test_concepts_of_near_names_are_one_and_chains_do_not_creep() -> None:
    # sea - séa - sëa - sêa are each near the next one, but sea is not near sëa.
    order = ["sea", "séa", "sëa", "sêa", "dog", "dög", "moon"]
    atoms = [Atom(f"a{i}", name) for i, name in enumerate(order)]
    vectors = torch.eye(DIM)[: len(order)]
    config = LinkConfig(similarity_k=0)
    concept_of: dict[str, str] = {}
    leaders: list[str] = []
    for name in order:
        near = [o for o in leaders if math.cos(NAMES[o] - NAMES[name]) >= 0.92]
        best = max(near, key=lambda o, name=name: math.cos(NAMES[o] - NAMES[name]), default=name)
        if not near:
            leaders.append(name)
        concept_of[name] = concept_id(best)
    assert leaders == ["sea", "sëa", "dog", "dög", "moon"]
    for sizes in ([7], [1] * 7, [2, 5]):
        edges, _ = linked(atoms, vectors, sizes, config)
        ties = of_type(edges, EdgeType.ABSTRACTION)
        assert ties.keys() == {(a.id, concept_of[a.text]) for a in atoms}


def test_an_alias_keeps_its_concept() -> None:
    """The séa is the sea before there is a sèa, which is nearer to it."""
    atoms = [Atom(f"a{i}", text) for i, text in enumerate(["sea", "séa", "sèa", "séa"])]
    for restore in (False, True):
        config = LinkConfig(similarity_k=0)
        edges, _ = linked(atoms, torch.eye(DIM)[:4], [1] * 4, config, restore=restore)
        ties = of_type(edges, EdgeType.ABSTRACTION).keys()
        assert ties == {
            (f"a{i}", concept_id(n)) for i, n in enumerate(["sea", "sea", "sèa", "sea"])
        }


def test_abstraction_edges_lead_from_the_turns_of_a_window() -> None:
    texts = ["x", "x", "moon", "x", "dog", "x moon", "x"]
    atoms = [Atom(f"a{i}", text, session="s") for i, text in enumerate(texts)]
    atoms.insert(3, Atom("other", "x", session="t"))
    vectors = torch.eye(DIM)[: len(atoms)]
    for sizes in ([3, 5], [8]):
        edges, _ = linked(atoms, vectors, sizes, LinkConfig(similarity_k=0))
        expected: dict[tuple[str, str], float] = {}
        for place, name in ((2, "moon"), (4, "dog"), (5, "moon")):
            for back in range(5):
                if place - back >= 0:
                    key = (f"a{place - back}", concept_id(name))
                    expected[key] = max(expected.get(key, 0.0), 0.8 * 0.9**back)
        got = of_type(edges, EdgeType.ABSTRACTION)
        assert got.keys() == expected.keys()
        assert all(got[key] == pytest.approx(expected[key], rel=1e-6) for key in expected)


def test_concepts_of_one_atom_are_associated_by_their_cosine() -> None:
    atoms = [Atom("a", "moon sea séa"), Atom("b", "sea sëa"), Atom("c", "dog moon")]
    config = LinkConfig(similarity_k=0, min_similarity=0.3)
    edges, _ = linked(atoms, torch.eye(DIM)[:3], [3], config)
    # séa is sea; moon is far from both (cos 2.0 < 0), dog too.
    assert of_type(edges, EdgeType.ASSOCIATION) == {
        (concept_id("sea"), concept_id("sëa")): pytest.approx(math.cos(0.6), abs=1e-6)
    }


def test_stated_edges_forward_backward_and_unresolved() -> None:
    atoms = [
        Atom("a", "x", edges=(Link("c", EdgeType.CAUSES), Link("gone"), Link("gone"))),
        Atom("b", "x", edges=(Link("a", EdgeType.CONTRADICTS), Link("b", EdgeType.SUPPORTS, 0.1))),
        Atom("c", "moon", edges=(Link("a", EdgeType.DERIVED_FROM, 0.5), Link("concept:dog"))),
        Atom("d", "dog", edges=(Link("concept:moon", EdgeType.CAUSES),)),
    ]
    for sizes in ([4], [1, 1, 1, 1]):
        for restore in (False, True):
            edges, left = linked(
                atoms, torch.eye(DIM)[:4], sizes, LinkConfig(similarity_k=0), restore=restore
            )
            stated = {k: w for k, w in edges.items() if k[2] != EdgeType.ABSTRACTION}
            assert stated == {
                ("a", "c", EdgeType.CAUSES): 1.0,
                ("b", "a", EdgeType.CONTRADICTS): -0.5,
                ("b", "b", EdgeType.SUPPORTS): pytest.approx(0.1),
                ("c", "a", EdgeType.DERIVED_FROM): 0.5,
                ("c", "concept:dog", EdgeType.RELATED_TO): 0.5,
                ("d", "concept:moon", EdgeType.CAUSES): 1.0,
            }
            assert left == (2, "gone")


def test_every_type_that_linking_makes_is_listed() -> None:
    words = ("sea séa", "sea sëa", "moon", "sea")
    atoms = [Atom(str(i), text, session="s", time=float(i)) for i, text in enumerate(words)]
    vectors = torch.nn.functional.normalize(torch.ones(4, DIM) + 0.1 * torch.eye(4, DIM), dim=1)
    edges, _ = linked(atoms, vectors, [4], LinkConfig(min_similarity=0.3, cooccurrence=2))
    assert {kind for *_, kind in edges} == {*LINKED}
    between = {kind for *ends, kind in edges if concept_id("") not in "".join(ends)}
    assert between - {EdgeType.TEMPORAL} == {*RESEMBLING}


def test_link_of_nothing() -> None:
    linker = Linker(DIM, LinkConfig(), None, name_vectors)
    result = linker.link([], torch.empty(0, DIM), 0)
    assert (result.concepts, len(result.edges), result.embeddings.shape) == ([], 0, (0, DIM))
    result = linker.link([Atom("a", "moon")], torch.eye(DIM)[:1], 0)
    assert (result.concepts, len(result.edges)) == ([], 0)


def test_concepts_are_made_once() -> None:
    linker = Linker(DIM, LinkConfig(similarity_k=0), extract, name_vectors)
    made: Counter[str] = Counter()
    node = 0
    for text in ("moon séa", "sea moon", "moon séa sea"):
        result = linker.link([Atom(f"a{node}", text)], torch.eye(DIM)[:1], node)
        made.update(c.text for c in result.concepts)
        assert len(result.embeddings) == len(result.concepts)
        assert torch.equal(result.embeddings, name_vectors([c.text for c in result.concepts]))
        node += 1 + len(result.concepts)
    assert made == {"moon": 1, "séa": 1}
