"""The judge of proof graphs: measures by hand and by networkx, and a whole run on small sets."""

from __future__ import annotations

import json
import math
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
import torch

from graphmem_torch.errors import InputError
from graphmem_torch.graph import Graph
from graphmem_torch.quality.proofs.bridges import (
    PAIR_BASELINES,
    betweenness,
    chain_repair,
    measure_pairs,
    published_bridges,
    resistance_fall,
)
from graphmem_torch.quality.proofs.chains import (
    ATOMS,
    TOKENS,
    _baselines,
    _Task,
    _without,
    completeness,
    hops_from,
    reach,
)
from graphmem_torch.quality.proofs.judge import judge
from graphmem_torch.quality.request import Request


def _dag(nodes: int, edges: int, seed: int) -> Graph:
    chance = torch.Generator().manual_seed(seed)
    ends = torch.randint(nodes, (2, edges), generator=chance)
    ends = torch.stack([ends.amax(0), ends.amin(0)])
    return Graph.from_edges(ends[:, ends[0] != ends[1]], num_nodes=nodes)


def _undirected(graph: Graph) -> nx.Graph:
    other = nx.Graph()
    other.add_nodes_from(range(graph.num_nodes))
    other.add_edges_from(graph.edge_index.T.tolist())
    return other


def test_pair_baselines_are_networkxs() -> None:
    graph = _dag(25, 60, 0)
    other = _undirected(graph)
    view = torch.nn.functional.normalize(torch.randn(25, 4), dim=1)
    chance = torch.Generator().manual_seed(0)
    score = {name: f(graph, view, chance) for name, f in PAIR_BASELINES.items()}
    for i in range(25):
        for j in range(i):
            common = list(nx.common_neighbors(other, i, j))
            assert score["common_neighbours"][i, j] == len(common)
            expected = sum(1 / math.log(other.degree(k)) for k in common)
            assert float(score["adamic_adar"][i, j]) == pytest.approx(expected, rel=1e-4, abs=1e-6)
            assert score["degree"][i, j] == other.degree(i) * other.degree(j)
            three = sum(
                1 / math.sqrt(other.degree(a) * other.degree(b))
                for a in other[i]
                for b in other[a]
                if j in other[b]
            )
            assert float(score["paths3"][i, j]) == pytest.approx(three, rel=1e-4, abs=1e-6)


def test_betweenness_from_all_starts_is_exact() -> None:
    graph = _dag(30, 50, 1)
    exact = nx.betweenness_centrality(_undirected(graph), normalized=False)
    found = betweenness(graph, pivots=30) * 30 / 2  # every pair is met from both ends
    np.testing.assert_allclose(found.numpy(), [exact[i] for i in range(30)], rtol=1e-4, atol=1e-4)


def test_measure_pairs_in_order_of_the_file() -> None:
    # 3 uses 0 is left; removed: 2 uses 0, 3 uses 1.
    left = Graph.from_edges(torch.tensor([[3], [0]]), num_nodes=4)
    removed = torch.tensor([[2, 3], [0, 1]])
    score = torch.zeros(4, 4)
    score[2, 0], score[3, 1], score[1, 0], score[0, 2] = 0.9, 0.5, 0.7, 9.0
    found = measure_pairs(score, left, removed, torch.arange(4))
    # All: (2,0) first, (1,0) second; (0,2) is no candidate. Users: 2 -> {0, 1}, 3 -> {1, 2}.
    assert found["pairs"].T.tolist() == [[2, 0], [1, 0]]
    assert found["each"].tolist() == [[1, 1, 1, 1], [0, 1, 1, 1]]
    assert found["precision"] == [0.5, 0.5]  # two pairs are all that is returned


def test_measure_pairs_without_order_count_either_way_and_ties_share_a_rank() -> None:
    left = Graph.from_edges(torch.tensor([[0], [1]]), num_nodes=4)
    removed = torch.tensor([[0], [2]])
    score = torch.zeros(4, 4)
    score[2, 0] = 1.0
    found = measure_pairs(score, left, removed, None)
    assert found["pairs"].T.tolist() == [[2, 0]] and found["each"][0].tolist() == [1, 1, 1, 1]
    even = measure_pairs(torch.zeros(4, 4), left, removed, None)
    assert float(even["each"][0, 3]) == pytest.approx(1 / 1.5)  # 0 may use 2 and 3


def test_chain_repair_by_hand() -> None:
    whole = Graph.from_edges(torch.tensor([[3, 2, 1], [2, 1, 0]]), num_nodes=4)
    left = whole.select(whole.source != 2)
    chance = torch.Generator().manual_seed(0)
    suggested = {"none": torch.empty(2, 0, dtype=torch.int64), "right": torch.tensor([[2], [1]])}
    found = chain_repair(whole, left, suggested, chance)
    none, right = found["none"], found["right"]
    # Chains 3, 2 and 1 long; left 1, 0 and 1.
    assert none["completeness"] == pytest.approx((1 / 3 + 0 + 1) / 3) == none["before"]
    assert right["before"] == none["before"]
    assert right["completeness"] == right["precision"] == right["f1"] == 1.0


def test_published_bridges_lower_the_total_resistance() -> None:
    graph = _dag(16, 20, 5)
    other = _undirected(graph)
    label = torch.arange(16) % 3
    parts = list(nx.connected_components(other))
    assert len(parts) > 1 and max(map(len, parts)) > 5

    def total(g: nx.Graph) -> float:
        return len(g) * float(np.trace(np.linalg.pinv(nx.laplacian_matrix(g).toarray())))

    score = published_bridges(graph, label)
    most = float(score.max())
    for i in range(16):
        for j in range(i):
            own = next(part for part in parts if i in part)
            if label[i] == label[j]:
                assert score[i, j] == 0
            elif j in own and not other.has_edge(i, j):
                after = other.subgraph(own).copy()
                after.add_edge(i, j)
                expected = total(other.subgraph(own)) - total(after)
                assert float(score[i, j]) == pytest.approx(expected, rel=1e-4, abs=1e-4)
                assert score[i, j] == score[j, i] < most
            elif j not in own:
                inside = [score[a, b] for part in parts for a in part for b in part if a != b]
                assert score[i, j] > max(inside)


def test_resistance_fall_is_that_of_the_pseudo_inverse() -> None:
    graph = _dag(20, 40, 3)
    other = _undirected(graph)
    main = sorted(max(nx.connected_components(other), key=len))
    inside = list(nx.non_edges(other.subgraph(main)))[:3]
    pairs = torch.tensor(inside).T

    def total(g: nx.Graph) -> float:
        return float(np.trace(np.linalg.pinv(nx.laplacian_matrix(g, nodelist=main).toarray())))

    after = other.copy()
    after.add_edges_from(inside)
    expected = 1 - total(after.subgraph(main)) / total(other.subgraph(main))
    found = resistance_fall(graph, {"x": pairs})["x"]
    assert found["fall"] == pytest.approx(expected) and found["joined"] == 0


def test_completeness_by_hand() -> None:
    score = torch.tensor([[4.0, 3.0, 2.0, -torch.inf]])
    gold = torch.tensor([[True, False, True, True]])
    costs = torch.tensor([500, 100, 100, 1])
    found = completeness(score, gold, costs)[0].tolist()
    assert found[: len(ATOMS) + 1] == pytest.approx([2 / 3] * (len(ATOMS) + 1))
    assert found[len(ATOMS) + 1 :] == pytest.approx([1 / 3, 2 / 3, 2 / 3])
    # Of 512 tokens the last three hold more than the first alone, and the first and the last too.
    worth = completeness(score, gold, costs, torch.tensor([[0.5, 0.4, 0.2, 0.0]]))
    assert worth[0, -len(TOKENS)] == pytest.approx(1 / 3)
    assert completeness(score, gold, costs, torch.tensor([[0.5, 0.1, 0.1, 0.1]]))[0, -3] == (
        pytest.approx(2 / 3)
    )
    assert completeness(score, torch.zeros_like(gold), costs).isnan().all()


def test_hops_from_are_networkxs() -> None:
    graph = _dag(20, 40, 5)
    other = nx.DiGraph(graph.edge_index.T.tolist())
    other.add_nodes_from(range(20))
    found = hops_from(graph, torch.arange(20))
    for i in range(20):
        expected = nx.single_source_shortest_path_length(other, i)
        assert {j: d for j, d in enumerate(found[i].tolist()) if d < math.inf} == expected


def test_walks_rank_what_they_do_not_reach_by_cosine() -> None:
    # 0 is the best hit and uses 1; nothing leads to 2, 3 and 4, which are ever nearer.
    graph = Graph.from_edges(torch.tensor([[0], [1]]), num_nodes=5)
    likeness = torch.tensor([[0.9, 0.0, 0.11, 0.12, 0.13]])
    task = _Task(likeness.expand(2, 1, 5), torch.ones(1, 5, dtype=torch.bool), torch.zeros(1, 5))
    whole, costs = reach(graph), torch.ones(5, dtype=torch.int64)
    found = _baselines(graph, task, whole, costs)
    assert found["bfs"].argsort(descending=True).tolist() == [[0, 1, 4, 3, 2]]
    walk = found["ppr"].argsort(descending=True)[0].tolist()
    assert walk[0] == 0 and walk.index(4) < walk.index(3) < walk.index(2)


def _folder(path: Path) -> Path:
    """A Metamath-like set of two topics in order, and a blueprint that is not."""
    chance = torch.Generator().manual_seed(0)
    lines, edges = [], ["src_uses\tdst_used\n"]
    for i in range(60):
        topic = ("ring", "graph")[i % 2]
        words = " ".join(f"{topic}{int(torch.randint(9, (1,), generator=chance))}" for _ in "abcd")
        kind = "axiom_or_syntax" if i < 8 else "theorem"
        head = "wff" if i < 4 else "|-"
        record = {"id": i, "label": f"t{i}", "kind": kind, "statement": f"{head} {words}"}
        lines.append(json.dumps(record | {"comment": f"About a {topic}."}) + "\n")
        if i >= 8:
            used = torch.randperm(i // 2, generator=chance)[:4] * 2 + i % 2
            edges += [f"{i}\t{j}\n" for j in used.tolist() if j < i]
    (path / "one_nodes.jsonl").write_text("".join(lines), encoding="utf-8")
    (path / "one_edges.tsv").write_text("".join(edges), encoding="utf-8")
    nodes = [{"label": f"n{i}", "title": f"Node {i}", "statement": f"${i}$"} for i in range(12)]
    links = [[f"n{i}", f"n{(5 * i + k) % 12}", "proof"] for i in range(12) for k in (1, 2)]
    graph = nx.DiGraph((a, b) for a, b, _ in links if int(a[1:]) < int(b[1:]))
    plan = {"nodes": nodes, "edges": [[a, b, "proof"] for a, b in graph.edges]}
    (path / "plan.json").write_text(json.dumps(plan), encoding="utf-8")
    (path / "notes.txt").write_text("No proof.", encoding="utf-8")
    return path


def test_judge_runs_on_every_set_of_a_folder(tmp_path: Path) -> None:
    request = Request(data=_folder(tmp_path), preset="spectral", embedder="hashing", seed=1)
    judged = judge(request, draws=3)
    report = json.loads(json.dumps(judged.report))
    assert report["dataset"] == "proofs" and report["preset"] == "spectral"
    assert set(report["sets"]) == {"one", "plan"} == set(report["n"])
    one = report["sets"]["one"]
    assert one["size"]["proved_in_order"] and not report["sets"]["plan"]["size"]["proved_in_order"]
    bridges = one["bridges"]
    assert {"random", "betweenness", "autoencoder", "spectral"} <= bridges["systems"].keys()
    assert bridges["candidates"] == 60 * 59 // 2 - one["size"]["dependencies"]
    for figures in bridges["systems"].values():
        assert 0 <= figures["found"] <= 1 and 0 <= figures["resistance"]["fall"] <= 1
    nothing = bridges["nothing_added"]
    assert nothing["completeness"] == nothing["before"] and nothing["precision"] == 1.0
    mean, low, high = bridges["ci"]["difference"]["random"]["recall@10"]
    assert low <= mean <= high
    settings = one["chains"]["settings"]
    assert {"new_direct", "new_two", "new_all", "known_all", "dependents_all"} == settings.keys()
    # What is known is reached: its chain is complete at its own size.
    known = settings["known_all"]
    if known["found_by_text"] == 1.0:
        assert known["systems"]["spectral"]["own_size"] == pytest.approx(1.0)
    assert "one, chains new_all" in judged.table and "plan:" in judged.table
    assert list(report["left_out"]) == ["notes.txt"]
    assert "left out: notes.txt: neither statements" in judged.table


def test_a_set_that_cannot_be_judged_does_not_stop_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = _folder(tmp_path)
    small = {"nodes": [{"label": "a", "kind": "lemma", "text": "A."}], "edges": []}
    (folder / "tiny.json").write_text(json.dumps(small), encoding="utf-8")
    (folder / "alone_nodes.jsonl").write_text('{"id": 1, "label": "a", "statement": "A."}\n')
    request = Request(data=folder, preset="spectral", embedder="hashing", seed=1)
    report = judge(request, draws=1).report
    assert set(report["sets"]) == {"one", "plan"}
    assert report["left_out"].keys() == {"notes.txt", "tiny", "alone"}
    assert "at least 3 statements" in report["left_out"]["tiny"]
    assert "expected the edges" in report["left_out"]["alone"]
    assert "tiny: left out" in caplog.text and "alone: left out" in caplog.text
    for name in ("one_nodes.jsonl", "plan.json"):
        (folder / name).unlink()
    with pytest.raises(InputError, match=r"can be judged, got .*: .*tiny"):
        judge(request, draws=1)


def test_new_theorem_is_judged_without_itself(tmp_path: Path) -> None:
    """Dependents of a theorem are neither candidates nor voters when it is asked for as new."""
    graph = _dag(15, 30, 7)
    other = nx.DiGraph(graph.edge_index.T.tolist())
    other.add_nodes_from(range(15))
    allowed = _without(reach(graph), torch.arange(15))
    for i in range(15):
        gone = {i, *nx.ancestors(other, i)}
        assert set((~allowed[i]).nonzero().squeeze(1).tolist()) == gone


def test_judge_wants_proofs(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("No proof.", encoding="utf-8")
    request = Request(data=tmp_path, preset="spectral", embedder="hashing")
    with pytest.raises(InputError, match="expected proof sets"):
        judge(request)
    with pytest.raises(InputError, match="expected proof sets"):
        judge(Request(data=tmp_path / "missing", preset="spectral", embedder="hashing"))


def _reached(graph: Graph, hops: int | None) -> torch.Tensor:
    nodes = graph.num_nodes
    other = nx.DiGraph(graph.edge_index.T.tolist())
    other.add_nodes_from(range(nodes))
    found = torch.zeros(nodes, nodes)
    for start in range(nodes):
        # A path of at least one edge: from the successors on.
        for first in other.successors(start):
            depth = None if hops is None else hops - 1
            for node in nx.single_source_shortest_path_length(other, first, cutoff=depth):
                found[start, node] = 1.0
    return found


@pytest.mark.parametrize("acyclic", [True, False])
@pytest.mark.parametrize("hops", [None, 1, 2, 3])
def test_reach_is_what_networkx_reaches(hops: int | None, acyclic: bool) -> None:
    ends = torch.randint(40, (2, 90), generator=torch.Generator().manual_seed(3))
    graph = _dag(40, 90, 3) if acyclic else Graph.from_edges(ends, num_nodes=40)
    assert torch.equal(reach(graph, hops), _reached(graph, hops))


def test_reach_without_edges_or_hops() -> None:
    graph = Graph.from_edges(torch.empty(2, 0, dtype=torch.int64), num_nodes=3)
    assert not reach(graph).any() and not reach(graph, 2).any()
    with pytest.raises(InputError, match="hops"):
        reach(graph, 0)
