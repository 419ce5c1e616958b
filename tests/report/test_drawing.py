from __future__ import annotations

from pathlib import Path

import numpy as np

from graphmem_torch.atoms import Atom, EdgeType
from tests.memories import opened, turns
from tests.report.pages import page_of, unpacked


def _ends(data: dict) -> list[tuple[int, int, int]]:
    edges = data["edges"]
    columns = [unpacked(edges[name], "<u4").tolist() for name in ("source", "target")]
    kinds = [data["edge_types"][k]["code"] for k in unpacked(edges["type"], "u1").tolist()]
    return list(zip(*columns, kinds, strict=True))


def test_draw_sends_every_edge_once(tmp_path: Path) -> None:
    with opened() as memory:
        memory.add(turns(30))
        memory.graph.connect(
            [("a1", "a9", "causes"), ("a9", "a1", "causes"), ("a1", "a9", "supports")]
        )
        data = page_of(memory, tmp_path).data
        stored = memory.store.edges()
        concepts = {n for n, i in enumerate(memory.store.ids()) if i.startswith("concept:")}
    row = {n: i for i, n in enumerate(sorted(set(range(memory_size(stored))) - concepts))}
    expected = {
        (*sorted((row[a], row[b])), kind)
        for a, b, kind in zip(
            stored.source.tolist(), stored.target.tolist(), stored.type.tolist(), strict=True
        )
        if a in row and b in row and a != b
    }
    found = [(*sorted((a, b)), kind) for a, b, kind in _ends(data)]
    assert len(found) == len(set(found)) == data["edges"]["count"]
    assert set(found) == expected


def memory_size(stored) -> int:
    return int(max(stored.source.max(), stored.target.max())) + 1


def test_draw_sends_edges_by_rank_and_contradictions_first(tmp_path: Path) -> None:
    with opened() as memory:
        memory.add(turns(30))
        memory.graph.connect("a2", "a20", "contradicts")
        data = page_of(memory, tmp_path).data
    ends = _ends(data)
    assert ends[0][2] == int(EdgeType.CONTRADICTS)
    # After as many edges as there are nodes each node that has one has been met.
    linked = {node for a, b, _ in ends for node in (a, b)}
    early = {node for a, b, _ in ends[: data["nodes"] + 1] for node in (a, b)}
    assert early == linked


def test_draw_puts_places_in_the_box_and_in_their_discs(tmp_path: Path) -> None:
    with opened() as memory:
        memory.add(turns(60))
        data = page_of(memory, tmp_path).data
    left, top, side = data["box"]
    place = unpacked(data["position"], "<u2").reshape(-1, 2) / 65535 * side + [left, top]
    label = unpacked(data["community"], "<u2")
    discs = data["communities"]
    assert [d["size"] for d in discs] == np.bincount(label, minlength=len(discs)).tolist()
    assert [d["size"] for d in discs] == sorted((d["size"] for d in discs), reverse=True)
    for spot, own in zip(place, label, strict=True):
        disc = discs[own]
        assert np.hypot(spot[0] - disc["x"], spot[1] - disc["y"]) <= disc["r"] + 0.05


def test_draw_tells_of_a_sample_and_keeps_what_is_marked(tmp_path: Path) -> None:
    with opened() as memory:
        memory.add(turns(80))
        marked = memory.graph.structure()
        page = page_of(memory, tmp_path, limit=40)
    assert page.data["nodes"] == 40
    assert "40 of 80 nodes are drawn: a sample, the best linked ones." in page.text
    assert len(page.data["bridges"]) == len(marked.bridges)
    assert len(page.data["frontiers"]) == len(marked.frontiers)
    ids = page.data["ids"]
    names = marked.names
    assert names is not None
    assert [ids[i] for i in page.data["frontiers"]] == [
        names[i] for i in marked.frontiers.node.tolist()
    ]


def test_draw_tells_of_edges_beyond_the_limit(tmp_path: Path) -> None:
    with opened() as memory:
        memory.add(turns(60))
        page = page_of(memory, tmp_path, most_edges=50)
    assert page.data["edges"]["count"] == 50
    assert "50 of " in page.text and "edges are on this page: each node's strongest" in page.text


def test_draw_cuts_long_texts_and_tells(tmp_path: Path) -> None:
    with opened() as memory:
        memory.add([Atom("long", "canoe " * 5000), Atom("short", "garden")])
        page = page_of(memory, tmp_path)
    assert len(page.data["texts"][0]) == 1200
    assert "1 text is cut to 1,200 characters." in page.text


def test_draw_shows_concepts_where_they_are_nodes(tmp_path: Path) -> None:
    with opened() as memory:
        memory.add(turns(24))
        page = page_of(memory, tmp_path, concepts=True)
        assert page.data["nodes"] == memory.store.num_nodes
    kinds = {page.data["kinds"][k] for k in unpacked(page.data["kind"], "u1").tolist()}
    assert "concept" in kinds
    # Modes are of memories only.
    mode = unpacked(page.data["mode"], "<u2")
    assert (mode == 65535).sum() == page.data["nodes"] - 24
