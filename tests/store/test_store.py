"""Round trips from any node on, and refusal of invalid input."""

from __future__ import annotations

import dataclasses
import math
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from graphmem_torch.atoms import Atom, EdgeType, Link, text_hash
from graphmem_torch.edges import EdgeBlock
from graphmem_torch.errors import EmbedderError, InputError, StoreError
from graphmem_torch.store import Batch, MemoryStore
from graphmem_torch.store.folder import DATABASE_NAME

SIZES = (3, 1, 7, 4)
MakeBatch = Callable[..., Batch]


@pytest.fixture(params=["disk", "memory"])
def filled(
    request: pytest.FixtureRequest, tmp_path: Path, make_batch: MakeBatch
) -> tuple[MemoryStore, list[Batch]]:
    path = tmp_path / "deep" / "store" if request.param == "disk" else None
    store = MemoryStore.open(path, fingerprint="f", dim=8)
    request.addfinalizer(store.close)
    batches, start = [], 0
    for i, n in enumerate(SIZES):
        # One batch without token vectors: its atoms own no rows.
        batches.append(make_batch(n, start, tokens=i != 1))
        store.append(batches[-1])
        start += n
    return store, batches


def token_lists(batches: list[Batch]) -> list[tuple[list[list[int]], list[int]]]:
    """Token vectors and pieces of each atom, without packing."""
    found = []
    for batch in batches:
        for i in range(len(batch.atoms)):
            if batch.tokens is None:
                found.append(([], []))
                continue
            tokens, pieces, offsets = batch.tokens
            rows = slice(int(offsets[i]), int(offsets[i + 1]))
            found.append((tokens[rows].tolist(), pieces[rows].tolist()))
    return found


def unpack(tokens: object) -> list[tuple[list[list[int]], list[int]]]:
    vectors, pieces, offsets = tokens
    spans = list(zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True))
    return [(vectors[a:b].tolist(), pieces[a:b].tolist()) for a, b in spans]


def test_everything_comes_back_from_any_node_on(
    filled: tuple[MemoryStore, list[Batch]],
) -> None:
    store, batches = filled
    atoms = [atom for batch in batches for atom in batch.atoms]
    embeddings = torch.cat([batch.embeddings for batch in batches])
    tokens = token_lists(batches)
    assert store.next_node == store.num_nodes == sum(SIZES)
    assert store.generation == len(SIZES)
    assert store.atoms(range(len(atoms))) == atoms
    for start in range(len(atoms) + 2):
        assert torch.equal(store.embeddings(start), embeddings[start:])
        assert unpack(store.tokens(start)) == tokens[start:]
        assert store.ids(start) == [atom.id for atom in atoms[start:]]
        assert list(store.texts(start)) == [atom.rendered for atom in atoms[start:]]
        columns = store.columns(start)
        assert columns.node.tolist() == list(range(start, len(atoms)))
        for name in ("kind", "speaker", "session", "type"):
            expected = [getattr(atom, name) for atom in atoms[start:]]
            assert getattr(columns, name).values() == expected
        times = [None if math.isnan(value) else value for value in columns.time.tolist()]
        assert times == [atom.time for atom in atoms[start:]]


def test_edges_come_back_from_the_batch_that_begins_at_a_node(
    filled: tuple[MemoryStore, list[Batch]],
) -> None:
    store, batches = filled
    first = 0
    for i, batch in enumerate(batches):
        edges = store.edges(first)
        for name in ("source", "target", "type", "weight"):
            expected = torch.cat([getattr(later.edges, name) for later in batches[i:]])
            assert torch.equal(getattr(edges, name), expected)
        first += len(batch.atoms)
    assert len(store.edges(first)) == 0


def test_vectors_of_single_nodes_in_any_order(filled: tuple[MemoryStore, list[Batch]]) -> None:
    store, batches = filled
    embeddings = torch.cat([batch.embeddings for batch in batches])
    tokens = token_lists(batches)
    wanted = [9, 0, 3, 9, 14, 4]
    rows = store.vectors(wanted)
    assert torch.equal(rows.embeddings, embeddings[wanted])
    assert rows.tokens is not None
    assert unpack(rows.tokens) == [tokens[node] for node in wanted]
    assert store.vectors([]).embeddings.shape == (0, 8)
    for node in (-1, 15):
        with pytest.raises(InputError, match=str(node)):
            store.vectors([node])


def test_vectors_far_apart(make_batch: MakeBatch) -> None:
    store = MemoryStore.open(None)
    batches = [make_batch(200, start, tokens=start > 0) for start in range(0, 1000, 200)]
    for batch in batches:
        store.append(batch)
    wanted = [999, 5, 450, 0]
    tokens = token_lists(batches)
    rows = store.vectors(wanted)
    expected = torch.cat([batch.embeddings for batch in batches])[wanted]
    assert torch.equal(rows.embeddings, expected)
    assert rows.tokens is not None
    assert unpack(rows.tokens) == [tokens[node] for node in wanted]


def test_known_and_cached(filled: tuple[MemoryStore, list[Batch]]) -> None:
    store, batches = filled
    atoms = [atom for batch in batches for atom in batch.atoms]
    asked = ["nobody", *(atom.id for atom in atoms)] + [f"x{i}" for i in range(2000)]
    expected = {atom.id: (node, atom.digest) for node, atom in enumerate(atoms)}
    assert store.known(asked) == expected
    assert store.known([]) == {}
    again = Atom("again", atoms[3].text, speaker=atoms[3].speaker)
    store.append(Batch([again], torch.zeros(1, 8)))
    key = text_hash(atoms[3].rendered)
    assert store.cached([key, text_hash("unseen")]) == {key: 3}
    with pytest.raises(InputError, match="hex"):
        store.cached(["not a hash"])


def test_atoms_by_number(filled: tuple[MemoryStore, list[Batch]]) -> None:
    store, _ = filled
    assert [atom.id for atom in store.atoms([7, 2, 7])] == ["a7", "a2", "a7"]
    assert store.atoms([]) == []
    with pytest.raises(InputError, match="15"):
        store.atoms([2, 15])


def test_a_store_without_tokens_has_none() -> None:
    store = MemoryStore.open(None)
    assert store.tokens() is None
    assert store.embeddings().shape == (0, 0)
    assert store.columns().node.shape == (0,)
    store.append(Batch([Atom("a", "x")], torch.ones(1, 3)))
    assert store.tokens() is None
    assert store.vectors([0]).tokens is None
    assert store.dim == 3


def test_a_batch_of_nothing_changes_nothing_and_one_of_edges_only_counts(
    filled: tuple[MemoryStore, list[Batch]],
) -> None:
    store, batches = filled
    before = store.state
    store.append(Batch([], torch.empty(0, 8)))
    assert store.state == before
    edge = EdgeBlock(*(column[:1] for column in vars(batches[0].edges).values()))
    store.append(Batch([], torch.empty(0, 8), edges=edge))
    assert store.state != before
    assert store.next_node == sum(SIZES)
    assert torch.equal(store.edges(sum(SIZES)).source, edge.source)


def test_numbers_are_not_given_twice_and_rows_follow_deletions(
    tmp_path: Path, make_batch: MakeBatch
) -> None:
    batches = [make_batch(4, 0), make_batch(4, 4)]
    with MemoryStore.open(tmp_path) as store:
        for batch in batches:
            store.append(batch)
    connection = sqlite3.connect(tmp_path / DATABASE_NAME)
    with connection:
        connection.execute("DELETE FROM atom WHERE node IN (1, 6, 7)")
    connection.close()
    live = [0, 2, 3, 4, 5]
    with MemoryStore.open(tmp_path) as store:
        assert store.next_node == 8
        assert store.num_nodes == 5
        assert store.columns().node.tolist() == live
        embeddings = torch.cat([batch.embeddings for batch in batches])
        assert torch.equal(store.embeddings(), embeddings[live])
        assert torch.equal(store.embeddings(3), embeddings[live[2:]])
        tokens = token_lists(batches)
        assert unpack(store.tokens()) == [tokens[node] for node in live]
        store.append(make_batch(2, 8))
        assert store.known(["a8"])["a8"][0] == 8


def test_ids_given_twice(filled: tuple[MemoryStore, list[Batch]]) -> None:
    store, _ = filled
    before = store.state
    with pytest.raises(InputError, match=r"'a3', which the store already has"):
        store.append(Batch([Atom("new", "x"), Atom("a3", "y")], torch.zeros(2, 8)))
    with pytest.raises(InputError, match=r"'new', which the batch already has"):
        store.append(Batch([Atom("new", "x"), Atom("new", "y")], torch.zeros(2, 8)))
    assert store.state == before
    assert store.known(["new"]) == {}
    assert store.next_node == sum(SIZES)


@pytest.mark.parametrize(
    ("atom", "message"),
    [
        (Atom("", "x"), "non-empty"),
        (Atom("b", None), "text: expected a string"),
        (Atom("b", "x", speaker=3), "speaker: expected a string"),
        (Atom("b", "\ud800"), "surrogate at position 0"),
        (Atom("b\0c", "x"), "id: expected a name without NUL"),
        (Atom("b", "x", session="s\0"), "session: expected a name without NUL"),
        (Atom("b", "x", edges=(Link("a\0", EdgeType.CAUSES),)), "edges: expected a name without"),
        (Atom("b", "x", time=math.nan), "time: expected finite"),
        (Atom("b", "x", event_time=math.inf), "event_time: expected finite"),
        (Atom("b", "x", time=True), "time: expected finite"),
        (Atom("b", "x", meta={"a": math.nan}), "meta: expected what JSON can hold"),
        (Atom("b", "x", meta={"a": object()}), "meta: expected what JSON can hold"),
        (Atom("b", "x", meta={"a": ["cut \ud83d"]}), "got text with a lone surrogate; decode"),
        (Atom("b", "x", meta={"\ud83d": 1}), "got text with a lone surrogate; decode"),
        (Atom("b", "x", meta={"a": "\ud8001.5"}), "got text with a lone surrogate; decode"),
        (Atom("b", "x", meta={"a": 10**5000}), "4,300 digits, got an integer with more; give"),
        (Atom("b", "x", meta={2: 1, 10: 1}), "meta: expected keys that are strings"),
    ],
)
def test_atoms_that_would_not_come_back_unchanged(atom: Atom, message: str) -> None:
    store = MemoryStore.open(None)
    with pytest.raises(InputError, match=message):
        store.append(Batch([Atom("a", "x"), atom], torch.zeros(2, 2)))
    assert store.next_node == 0
    assert store.check() == []


def test_vectors_and_edges_that_do_not_fit(
    filled: tuple[MemoryStore, list[Batch]], make_batch: MakeBatch
) -> None:
    store, _ = filled
    good = make_batch(3, sum(SIZES))
    edges = good.edges

    def with_edges(**changes: torch.Tensor) -> Batch:
        return dataclasses.replace(good, edges=dataclasses.replace(edges, **changes))

    def with_tokens(**changes: torch.Tensor) -> Batch:
        return dataclasses.replace(good, tokens=good.tokens._replace(**changes))

    nan = good.embeddings.clone()
    nan[1, 2] = math.nan
    wrong = {
        "got torch.float32 [2, 8]": dataclasses.replace(good, embeddings=good.embeddings[:2]),
        "[3, 8]": dataclasses.replace(good, embeddings=torch.zeros(3, 9)),
        "float32": dataclasses.replace(good, embeddings=good.embeddings.double()),
        "int8": with_tokens(tokens=good.tokens.tokens.int()),
        "pieces": with_tokens(pieces=good.tokens.pieces.long()),
        "offsets": with_tokens(offsets=good.tokens.offsets[:-1]),
        "ascending": with_tokens(offsets=good.tokens.offsets.flip(0)),
        "17, got 18": with_edges(target=edges.target + 18 - edges.target.max()),
        "got -1": with_edges(source=edges.source - edges.source.min() - 1),
        "finite weights": with_edges(weight=edges.weight / 0),
        "EdgeType": with_edges(type=edges.type + 200),
        "edges.weight": with_edges(weight=edges.weight[:-1]),
    }
    before = store.state
    for message, batch in wrong.items():
        with pytest.raises(InputError) as caught:
            store.append(batch)
        assert message in str(caught.value)
    with pytest.raises(EmbedderError, match="a16"):
        store.append(dataclasses.replace(good, embeddings=nan))
    assert store.state == before
    store.append(good)
    assert store.check() == []


def test_embedder_is_bound(tmp_path: Path, make_batch: MakeBatch) -> None:
    with MemoryStore.open(tmp_path, fingerprint="one", dim=4) as store:
        assert (store.fingerprint, store.dim) == ("one", 4)
    # Nothing is in it yet: it may still change its mind.
    with MemoryStore.open(tmp_path, fingerprint="two", dim=8) as store:
        store.append(make_batch(2, 0))
    for mode in ("w", "r"):
        with pytest.raises(EmbedderError, match=r"two.*one.*own embedder"):
            MemoryStore.open(tmp_path, mode=mode, fingerprint="one", dim=8)
        with pytest.raises(EmbedderError, match="dim 8"):
            MemoryStore.open(tmp_path, mode=mode, fingerprint="two", dim=16)
        with MemoryStore.open(tmp_path, mode=mode, fingerprint="two", dim=8) as store:
            assert store.fingerprint == "two"


def test_strings(tmp_path: Path, make_batch: MakeBatch) -> None:
    with MemoryStore.open(tmp_path) as store:
        store.append(make_batch(4, 0))
        before = store.state
        store.meta_set("weights", "[1]")
        store.meta_set("weights", "[2]")
        assert store.state == before
        with pytest.raises(InputError, match="prefix"):
            store.meta_set("store.dim", "3")
    with MemoryStore.open(tmp_path, mode="r") as store:
        assert store.meta_get("weights") == "[2]"
        assert store.meta_get("none") is None


def test_stats(filled: tuple[MemoryStore, list[Batch]]) -> None:
    store, batches = filled
    stats = store.stats()
    assert stats["nodes"] == 15
    assert stats["kinds"] == {"chunk": 5, "concept": 5, "turn": 5}
    assert stats["edges"] == 20
    assert stats["tokens"] == sum(len(b.tokens.tokens) for b in batches if b.tokens is not None)
    assert stats["fingerprint"] == "f"
    assert (stats["bytes"] > 0) == (store.path is not None)


def test_modes() -> None:
    with pytest.raises(InputError, match="mode"):
        MemoryStore.open(None, mode="r")
    with pytest.raises(InputError, match="mode"):
        MemoryStore.open(None, mode="a")


def test_closed_store_says_so(tmp_path: Path) -> None:
    store = MemoryStore.open(tmp_path)
    store.close()
    store.close()
    with pytest.raises(StoreError, match="closed"):
        store.columns()
