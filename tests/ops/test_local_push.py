"""Local push: fast path and kernel against the reference, and all against the exact walk."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from graphmem_torch.graph import Graph
from graphmem_torch.ops import SparseRows, personalized_pagerank
from graphmem_torch.ops import local_push as module
from graphmem_torch.ops.local_push import DONE, FULL, STOPPED, local_push, local_push_reference
from tests.kernels import kernels

kernel = kernels("local_push")

SLOTS = 1024


def _questions(count: int, nodes: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Three seeds for the first two and the last question, -1 and zeros among them; no other."""
    generator = torch.Generator().manual_seed(1)
    place = torch.randint(-1, nodes, (count, 3), generator=generator)
    place[:, 0] = place[:, 0].clamp(min=0)
    weights = torch.rand(count, 3, generator=generator)
    weights[:, 1] *= torch.rand(count, generator=generator) < 0.5
    weights[2:-1] = 0.0
    return place, weights


def _tensors(graph: Graph) -> tuple[torch.Tensor, ...]:
    return graph.out_indptr, graph.out_edge, graph.target, graph.weight


def _dense(found: tuple[torch.Tensor, ...], nodes: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the settled and the remaining mass, as `[B, N]`; every node has at most one slot."""
    node, settled, left = (t.cpu() for t in found[:3])
    for row in node:
        held = row[row >= 0]
        assert len(held.unique()) == len(held)
    place = node.clamp(min=0).to(torch.int64)
    empty = settled.new_zeros(len(node), nodes)
    return empty.scatter_add(1, place, settled), empty.scatter_add(1, place, left)


def _walks(graph: Graph, damping: float) -> torch.Tensor:  # [N, N]
    """Row u is where a walk without returns from u ends."""
    walk = np.zeros((graph.num_nodes, graph.num_nodes))
    source, target = graph.source.cpu().numpy(), graph.target.cpu().numpy()
    np.add.at(walk, (source, target), graph.weight.abs().double().cpu().numpy())
    walk /= np.maximum(walk.sum(1, keepdims=True), 1e-300)
    return torch.from_numpy((1 - damping) * np.linalg.inv(np.eye(len(walk)) - damping * walk))


@pytest.mark.parametrize("hub", [False, True])
@pytest.mark.parametrize("epsilon", [0.1, 1e-3])
def test_matches_the_reference(random_graph, shape, epsilon, hub):
    graph = random_graph(*shape[1:], signed=True, hub=hub)
    args = (*_tensors(graph), *_questions(*shape[:2]), 0.85, epsilon, 300)
    found = local_push(*args, SLOTS)
    assert (found[4] == DONE).all()
    for got, expected in zip(_dense(found, shape[1]), local_push_reference(*args), strict=True):
        torch.testing.assert_close(got, expected, atol=1e-6, rtol=1e-4)


def test_nothing_is_lost_at_any_moment(random_graph):
    """settled + the walks of what is left = the walks of the seeds, whenever it stops."""
    graph = random_graph(40, 160, hub=True)
    place, weights = _questions(3, 40)
    walks = _walks(graph, 0.85)
    share = torch.where(place >= 0, weights, 0.0).double()
    start = torch.zeros(3, 40).double().scatter_add_(1, place.clamp(min=0), share)
    expected = (start / start.sum(1, keepdim=True)) @ walks
    for rounds in range(6):
        args = (*_tensors(graph), place, weights, 0.85, 1e-6, rounds, SLOTS)
        found = local_push(*args)
        settled, left = _dense(found, 40)
        torch.testing.assert_close(
            settled.double() + left.double() @ walks, expected, atol=1e-6, rtol=0
        )
        assert (found[4] == STOPPED).all()


def test_kernel_keeps_the_same_balance(random_graph, shape, monkeypatch):
    """The kernel pushes in another order, so its balance is compared, not its split.

    A program takes one question: many of them show nothing.
    """
    device = "cuda" if torch.cuda.is_available() else "cpu"
    graph = random_graph(*shape[1:], signed=True, hub=True).to(device)
    place, weights = _questions(min(4, shape[0]), shape[1])
    empty_like, empty = torch.empty_like, torch.empty
    monkeypatch.setattr(torch, "empty_like", lambda *a, **k: empty_like(*a, **k).fill_(-(2**30)))
    monkeypatch.setattr(torch, "empty", lambda *a, **k: empty(*a, **k).fill_(torch.nan))
    args = (*_tensors(graph), place.to(device), weights.to(device).double(), 0.6, 0.05, 50)
    found = kernel.launch_local_push(*args, SLOTS)
    assert (found[4] == DONE).all()
    settled, left = _dense(found, shape[1])
    fan = graph.out_indptr.diff().clamp(min=1).cpu()
    assert (left <= 0.05 * fan * (1 + 1e-5)).all()
    done, remaining = (t.cpu() for t in local_push_reference(*args))
    walks = _walks(graph, 0.6)
    torch.testing.assert_close(settled + left @ walks, done + remaining @ walks, atol=1e-12, rtol=0)


def test_kernel_says_when_it_stops_and_when_its_table_is_full():
    device = "cuda" if torch.cuda.is_available() else "cpu"
    star = torch.stack([torch.zeros(1400, dtype=torch.int64), torch.arange(1, 1401)])
    graph = Graph.from_edges(star, num_nodes=1401).to(device)
    seeds = torch.tensor([[0], [3], [9999]], device=device), torch.ones(3, 1, device=device)
    for rounds, expected in ((1, [FULL, DONE, DONE]), (0, [STOPPED, STOPPED, DONE])):
        args = (*_tensors(graph), *seeds, 0.85, 1e-5, rounds, SLOTS)
        found = kernel.launch_local_push(*args, nodes_at_once=1, edges_at_once=128)
        assert found[4].tolist() == expected
        assert (found[0][2] == -1).all()


def test_local_push_table_grows_until_everything_fits(random_graph):
    graph = random_graph(3000, 20_000)
    args = (*_tensors(graph), torch.tensor([[5]]), torch.ones(1, 1), 0.85, 1e-7, 500)
    assert local_push(*args, SLOTS)[4].tolist() == [FULL]
    seeds = SparseRows.of(torch.tensor([[5]]), torch.ones(1, 1), 3000)
    found = personalized_pagerank(graph, seeds, method="push", tol=1e-4)
    assert found.converged
    exact = personalized_pagerank(graph, seeds, method="power")
    torch.testing.assert_close(found.values, exact.values, atol=1e-4, rtol=0)


def test_keys_that_share_a_slot_are_all_kept():
    tables = module._Tables(2, SLOTS, 10**6, torch.zeros(1))
    home = (torch.arange(10**5, dtype=torch.int32) * module._MIX) >> 22 & (SLOTS - 1)
    node = (home == SLOTS - 1).nonzero().squeeze(1).to(torch.int32)[:60]
    begin = torch.tensor([0, SLOTS]).repeat(60)
    wanted = node.repeat_interleave(2)
    for _ in range(2):
        place = tables.insert(begin, wanted)
        assert tables.key[place].tolist() == wanted.tolist()
        assert (place >> tables.bits).tolist() == [0, 1] * 60
    assert int((tables.key >= 0).sum()) == 120


def test_local_push_larger_world_changes_nothing(random_graph):
    small = random_graph(50, 200)
    large = Graph.from_edges(small.edge_index, small.weight, type=small.type, num_nodes=10**6)
    place, weights = torch.tensor([[3, 8]]), torch.tensor([[1.0, 2.0]])
    found = [
        personalized_pagerank(g, SparseRows.of(place, weights, g.num_nodes), k=5, method="push")
        for g in (small, large)
    ]
    torch.testing.assert_close(found[0].values, found[1].values)
    assert found[0].indices.tolist() == found[1].indices.tolist()
    assert found[0].iterations == found[1].iterations


def test_opcheck(random_graph):
    graph = random_graph(9, 30)
    args = (*_tensors(graph), *_questions(3, 9), 0.85, 1e-2, 50, SLOTS)
    torch.library.opcheck(torch.ops.graphmem.local_push.default, args)


@pytest.mark.cuda
def test_runs_inside_a_cuda_graph(random_graph):
    graph = random_graph(1000, 8000).to("cuda")
    place, weights = torch.arange(64, device="cuda")[:, None], torch.ones(64, 1, device="cuda")
    args = (*_tensors(graph), place, weights.double(), 0.85, 1e-5, 200, 4096)
    expected = local_push(*args)
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        found = local_push(*args)
    captured.replay()
    # Two runs push in other orders, so it is their balance that is the same.
    walks = _walks(graph, 0.85)
    balances = [
        settled + left @ walks for settled, left in (_dense(f, 1000) for f in (found, expected))
    ]
    torch.testing.assert_close(*balances, atol=1e-12, rtol=0)
