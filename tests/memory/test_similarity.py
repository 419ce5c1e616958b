"""Similar earlier rows by lists, against the products with all rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from graphmem_torch.atoms import Atom
from graphmem_torch.config import LinkConfig
from graphmem_torch.memory.link import Linker
from graphmem_torch.memory.similarity import SimilarRows
from graphmem_torch.ops import knn_graph
from graphmem_torch.ops.growing_ivf import Training

LISTS = LinkConfig(exact=False, similarity_k=5, min_similarity=0.3)


def topics(count: int, seed: int, spread: float = 0.5, dim: int = 32) -> Tensor:
    """Rows about 40 topics, a seventh of them equal to an earlier one."""
    g = torch.Generator().manual_seed(seed)
    centre = torch.nn.functional.normalize(torch.randn(40, dim, generator=g), dim=1)
    own = centre[torch.randint(40, (count,), generator=g)]
    noise = torch.nn.functional.normalize(torch.randn(count, dim, generator=g), dim=1)
    x = torch.nn.functional.normalize(own + spread * noise, dim=1)
    x[7::7] = x[3 : len(x) - 4 : 7][: len(x[7::7])]
    return x


def found(x: Tensor, sizes: list[int], large: int = 160) -> tuple[Tensor, Tensor]:
    search, parts, start = SimilarRows(LISTS, "cpu", large=large), [], 0
    for size in sizes:
        parts.append(search.earlier(x[: start + size], start, 5))
        start += size
    assert start == len(x)
    values, rows = (torch.cat(column) for column in zip(*parts, strict=True))
    kept = values >= LISTS.min_similarity
    return values.masked_fill(~kept, 0.0), rows.masked_fill(~kept, -1)


@pytest.mark.parametrize("seed", range(3))
def test_lists_find_most_of_what_all_products_find(seed: int) -> None:
    x = topics(1500, seed)
    _, rows = found(x, [1500])
    value, exact = knn_graph(x, 5, earlier=True)
    counts = value >= LISTS.min_similarity
    assert torch.equal(rows[:160], exact.masked_fill(~counts, -1)[:160])  # exact up to there
    shared = (rows[:, :, None] == exact[:, None, :]).any(1) & counts
    assert int(shared.sum()) >= 0.95 * int(counts.sum())


@pytest.mark.parametrize("seed", range(2))
def test_batches_make_no_difference(seed: int) -> None:
    x = topics(900, seed)
    values, rows = found(x, [900])
    for sizes in ([3] * 300, [150, 20, 1, 149, 320, 0, 260], [630, *[1] * 20, 250]):
        again = found(x, sizes)
        assert torch.equal(again[1], rows)
        torch.testing.assert_close(again[0], values, atol=1e-6, rtol=0)


@pytest.mark.parametrize("begun", [100, 160, 319, 320, 601])
def test_a_search_that_begins_later_finds_the_same(begun: int) -> None:
    """Another process continues after a kill, or a second writer takes in what others added."""
    x = topics(800, 5)
    _, rows = found(x, [800])
    later = SimilarRows(LISTS, "cpu", large=160)
    value, row = later.earlier(x, begun, 5)
    assert torch.equal(row.masked_fill(value < LISTS.min_similarity, -1), rows[begun:])


def test_of_equal_rows_the_earlier_are_found() -> None:
    x = torch.eye(8)[torch.arange(700) % 8]
    _, rows = found(x, [200, 500])
    for i in range(700):
        earlier = list(range(i % 8, i, 8))[:5]
        assert rows[i].tolist() == earlier + [-1] * (5 - len(earlier))


def kind_of(kind: str, dim: int) -> Tensor:
    """2,600 rows: on the sphere, about many or three topics, or 2,000 of them equal."""
    g = torch.Generator().manual_seed(dim)
    noise = torch.nn.functional.normalize(torch.randn(2600, dim, generator=g), dim=1)
    if kind == "uniform":
        return noise
    if kind == "equal":
        noise[torch.randperm(2600, generator=g)[:2000]] = noise[0].clone()
        return noise
    topics = {"clustered": 60, "few": 3}[kind]
    centre = torch.nn.functional.normalize(torch.randn(topics, dim, generator=g), dim=1)
    own = centre[torch.randint(topics, (2600,), generator=g)]
    return torch.nn.functional.normalize(own + 0.8 * noise, dim=1)


@pytest.mark.parametrize("dim", [64, 384, 768])
@pytest.mark.parametrize("kind", ["uniform", "clustered", "few", "equal"])
def test_edges_of_every_kind_of_rows_are_found(kind: str, dim: int) -> None:
    """Where too few lists hold the neighbours, more are searched, or all rows."""
    x = kind_of(kind, dim)
    least = -1.0 if kind == "uniform" else LISTS.min_similarity
    search = SimilarRows(replace(LISTS, min_similarity=least), "cpu", large=800)
    value, rows = search.earlier(x, 0, 5)
    cosine, _ = knn_graph(x, 5, earlier=True)
    counts = cosine >= least
    # Of nearly equal rows any is right.
    near = (value >= cosine - 1e-5) & counts
    assert int(near.sum()) >= 0.96 * int(counts.sum())
    assert (rows < torch.arange(len(x))[:, None]).all()
    assert torch.equal(near[:800], counts[:800])  # exact up to there


@pytest.mark.parametrize("known", [200, 400, 850])
def test_a_kept_state_continues_without_training(
    known: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = topics(1000, 7)
    own = SimilarRows(LISTS, "cpu", large=160)
    assert not own.unsaved
    own.earlier(x[:known], 0, 5)
    assert own.unsaved
    state = {name: each.clone() for name, each in own.state(x).items()}
    assert not own.unsaved
    _, rows = own.earlier(x, known, 5)

    later = SimilarRows(LISTS, "cpu", large=160)
    kept = torch.ones(len(state["labels"]), dtype=torch.bool)
    later.load(state, kept, x)
    assert not later.unsaved
    found = later.earlier(x, known, 5)[1]
    assert torch.equal(found, rows)
    if known == 850:  # neither trained nor measured again up to 880 rows
        again = SimilarRows(LISTS, "cpu", large=160)
        again.load(state, kept, x)
        monkeypatch.setattr(Training, "of", None)
        monkeypatch.setattr(Training, "measured", None)
        assert torch.equal(again.earlier(x[:860], 850, 5)[1], rows[:10])


@pytest.mark.parametrize(
    "spoil",
    [
        lambda state: state.pop("labels"),
        lambda state: state.update(labels=state["labels"] + 10_000),
        lambda state: state.update(first=state["first"] + 1),
        lambda state: state.update(axes=state["axes"][:5]),
        lambda state: state.update(counts=state["counts"] + 10_000),
        lambda state: state.update(settings=state["settings"] + 1),
        lambda state: state.update(counts=state["counts"][:1]),
    ],
)
def test_a_state_that_does_not_fit_is_ignored(spoil: Callable[[dict[str, Tensor]], None]) -> None:
    x = topics(700, 8)
    own = SimilarRows(LISTS, "cpu", large=160)
    own.earlier(x[:600], 0, 5)
    state = own.state(x)
    spoil(state)
    later = SimilarRows(LISTS, "cpu", large=160)
    later.load(state, torch.ones(600, dtype=torch.bool), x)
    assert torch.equal(later.earlier(x, 600, 5)[1], own.earlier(x, 600, 5)[1])


def test_exact_compares_all() -> None:
    x = topics(600, 3)
    search = SimilarRows(LinkConfig(similarity_k=5, exact=True), "cpu", large=160)
    assert torch.equal(search.earlier(x, 300, 5)[1], knn_graph(x, 5, start=300, earlier=True)[1])


def test_rows_of_no_structure_are_compared_with_all() -> None:
    """Where most rows would be read, reading all is faster and exact."""
    x = torch.nn.functional.normalize(
        torch.randn(400, 24, generator=torch.Generator().manual_seed(1)), dim=1
    )
    _, rows = found(x, [400])
    value, exact = knn_graph(x, 5, earlier=True)
    assert torch.equal(rows, exact.masked_fill(value < LISTS.min_similarity, -1))


@pytest.mark.parametrize("gone", [30, 100])
def test_deleted_atoms_get_no_edges_from_lists(gone: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few deleted rows are skipped; many are removed, and the lists are made anew."""
    monkeypatch.setitem(SimilarRows.__init__.__kwdefaults__, "large", 160)
    x, before = topics(800, 9), 500
    atoms = [Atom(f"a{i}", f"text {i}") for i in range(len(x))]
    linker = Linker(x.shape[1], LISTS, None, lambda names: x[:0])
    linker.link(atoms[:before], x[:before], 0)
    left = torch.randperm(before, generator=torch.Generator().manual_seed(gone))[:gone].tolist()
    linker.forget([(node, atoms[node]) for node in left])
    edges = linker.link(atoms[before:], x[before:], before).edges
    assert not set(edges.target.tolist()) & set(left)
    assert (edges.target < edges.source).all()
    cosine = x @ x.T
    cosine[:, left] = -1.0
    expected = set[tuple[int, int]]()
    for i in range(before, len(x)):
        value, best = cosine[i, :i].sort(descending=True, stable=True)
        expected |= {(i, j) for j in best[:5][value[:5] >= LISTS.min_similarity].tolist()}
    got = set(zip(edges.source.tolist(), edges.target.tolist(), strict=True))
    assert len(got & expected) >= 0.95 * len(expected)


@pytest.mark.parametrize("dead", [set(), {3, 50, 51}])
def test_a_device_keeps_half_the_numbers_and_gives_the_same_edges(dead: set[int]) -> None:
    x = topics(500, 4)
    link = LinkConfig(similarity_k=5, exact=True)
    one, other = SimilarRows(link, "cpu"), SimilarRows(link, "cpu", half=True)
    for start, end in ((0, 200), (200, 203), (203, 500)):
        expected = one.edges(x[:end], start, dead)
        found = other.edges(x[:end], start, dead)
        assert torch.equal(found[1], expected[1]) and torch.equal(found[2], expected[2])
        torch.testing.assert_close(found[0], expected[0])
