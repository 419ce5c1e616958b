"""Drawing: the graph of the page, of bounded size, with notes on what is left out."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphmem_torch.atoms import CONCEPT, EdgeType
from graphmem_torch.coo import edge_keys
from graphmem_torch.graph import Graph
from graphmem_torch.ops.ragged import ranges
from graphmem_torch.report.contents import ReportFacts
from graphmem_torch.report.graph_layout import GraphLayout, layout
from graphmem_torch.report.markup import clipped

__all__ = ["Drawing", "draw"]

_BUNDLES = 400


def _edges(
    graph: Graph, label: Tensor, most: int
) -> tuple[dict[str, Any], list[list[int]], list[str]]:
    """Return the edges to send, links between communities in bundles, and notes on the rest.

    An edge in both directions is sent once. Edges come by rank: each node's strongest, then each
    node's second strongest, and so on. Any prefix of the list is thus a fair picture.
    """
    source, target = graph.source.long(), graph.target.long()
    low, high = torch.minimum(source, target), torch.maximum(source, target)
    size = graph.weight.abs()
    order = torch.argsort(size, descending=True, stable=True)
    key = edge_keys(low, high, graph.type, graph.num_nodes)[order]
    _, where = torch.unique(key, return_inverse=True)
    head = torch.full((int(where.max()) + 1 if len(where) else 0,), len(where), dtype=torch.int64)
    head.scatter_reduce_(0, where, torch.arange(len(where)), "amin")
    kept = order[head.sort().values]  # still the strongest first
    rank = _rank(torch.stack([source[kept], target[kept]], 1).flatten()).view(-1, 2).amin(1)
    # Contradictions are rare and must not be lost.
    rank = torch.where(graph.weight[kept] < 0, -1, rank)
    kept = kept[torch.argsort(rank, stable=True)]
    notes = []
    if len(kept) > most:
        notes.append(f"{most:,} of {len(kept):,} edges are on this page: each node's strongest.")
    sent = kept[:most]
    names = {int(code): i for i, code in enumerate(graph.type.unique().tolist())}
    types = torch.zeros(256, dtype=torch.int64)
    types[list(names)] = torch.tensor(list(names.values()), dtype=torch.int64)
    data = {
        "count": len(sent),
        "source": packed(source[sent], np.uint32),
        "target": packed(target[sent], np.uint32),
        "type": packed(types[graph.type[sent].long()], np.uint8),
        "weight": packed(graph.weight[sent], np.float32),
    }
    return data, _bundles(label[source[kept]], label[target[kept]]), notes


def _rank(node: Tensor) -> Tensor:  # [M] -> [M]
    """Return the number of edges of the same node before each edge."""
    order = torch.argsort(node, stable=True)
    counts = torch.bincount(node)
    rank = torch.empty_like(order)
    rank[order] = ranges(0, counts, total=len(node))[1]
    return rank


def _bundles(first: Tensor, second: Tensor) -> list[list[int]]:  # rows of community, community, n
    apart = first != second
    low, high = torch.minimum(first, second)[apart], torch.maximum(first, second)[apart]
    base = int(high.max()) + 1 if len(high) else 1
    key, count = torch.unique(low * base + high, return_counts=True)
    best = torch.argsort(count, descending=True, stable=True)[:_BUNDLES]
    key, count = key[best], count[best]
    return torch.stack([key // base, key % base, count], 1).tolist()


def _types(graph: Graph) -> list[dict[str, Any]]:
    """Return the types of edges that occur, as switches of the page."""
    found = []
    for code, count in zip(
        *(t.tolist() for t in graph.type.unique(return_counts=True)), strict=True
    ):
        negative = bool((graph.weight[graph.type == code] < 0).all())
        name = EdgeType(code).name.lower().replace("_", " ")
        found.append({"code": code, "name": name, "count": count, "negative": negative, "on": True})
    return found


def packed(values: Tensor, kind: type[np.generic]) -> str:
    """Encode values as little-endian bytes in base 64."""
    array = values.detach().cpu().numpy().astype(np.dtype(kind).newbyteorder("<"))
    return b64encode(array.tobytes()).decode("ascii")


_TEXT = 5_000_000  # characters of all texts
_SHORTEST, _LONGEST = 60, 1200  # characters of one text
_LABEL = 60
_IDS = 30_000  # nodes up to which ids are sent
_NONE = 65535


@dataclass(frozen=True, eq=False)
class Drawing:
    """Graph of a page."""

    data: dict[str, Any]  # as JSON
    place: Tensor  # [N] int64, number of each node in the drawing, -1 = not drawn
    notes: list[str]  # what is left out, in sentences


def draw(facts: ReportFacts, *, limit: int, most_edges: int, iterations: int) -> Drawing:
    """Choose nodes and edges, place them and pack them for the page.

    Args:
        facts: Contents of the report.
        limit: Maximum nodes to draw; the best linked ones are.
        most_edges: Maximum edges to draw.
        iterations: Steps of `layout`.
    """
    nodes, notes = _chosen(facts, limit)
    place = torch.full((facts.num_nodes,), -1, dtype=torch.int64)
    place[nodes] = torch.arange(len(nodes))
    if not len(nodes):
        return Drawing({"nodes": 0}, place, notes)
    source, target = place[facts.graph.source.long()], place[facts.graph.target.long()]
    kept = (source >= 0) & (target >= 0) & (source != target)
    graph = Graph.from_edges(
        torch.stack([source[kept], target[kept]]),
        facts.graph.weight[kept],
        type=facts.graph.type[kept],
        num_nodes=len(nodes),
    )
    label = facts.label[nodes]
    placed = layout(graph, label, iterations=iterations, generator=torch.Generator().manual_seed(0))
    edges, bundles, told = _edges(graph, label, most_edges)
    notes += told
    length = max(_SHORTEST, min(_LONGEST, _TEXT // len(nodes)))
    texts = [clipped(facts.texts[i], length) for i in nodes.tolist()]
    cut = sum(text.endswith("…") for text in texts)
    if cut:
        said = "1 text is" if cut == 1 else f"{cut:,} texts are"
        notes.append(f"{said} cut to {length:,} characters.")
    low, high = placed.position.amin(0) - 2, placed.position.amax(0) + 2
    side = float((high - low).max())
    corner = (low + high - side) / 2
    quantised = ((placed.position - corner) / side * 65535).round().clamp(0, 65535)
    data: dict[str, Any] = {
        "nodes": len(nodes),
        "box": [round(float(corner[0]), 3), round(float(corner[1]), 3), round(side, 3)],
        "position": packed(quantised, np.uint16),
        "community": packed(label.clamp(max=_NONE), np.uint16),
        "communities": _communities(facts, placed, label),
        "kinds": facts.kinds[:256],
        "kind": packed(facts.kind[nodes].clamp(max=255), np.uint8),
        "size": packed(_importance(graph), np.uint8),
        "edges": edges,
        "edge_types": _types(graph),
        "bundles": bundles,
        **_texts(texts),
        **_marked(facts, place),
    }
    if len(nodes) <= _IDS:
        data["ids"] = [facts.ids[i] for i in nodes.tolist()]
    if len(facts.sessions) < _NONE and facts.sessions:
        codes = facts.session[nodes]
        data["sessions"] = [*facts.sessions, ""]
        data["session"] = packed(torch.where(codes < 0, len(facts.sessions), codes), np.uint16)
    if not bool(facts.time[nodes].isnan().all()):
        data["time"] = packed(facts.time[nodes], np.float64)
    if facts.modes is not None:
        mode = torch.full((facts.num_nodes,), _NONE, dtype=torch.int64)
        mode[facts.atom] = facts.modes.label.long()
        data["mode"] = packed(mode[nodes], np.uint16)
    return Drawing(data, place, notes)


def _chosen(facts: ReportFacts, limit: int) -> tuple[Tensor, list[str]]:
    """Return the nodes to draw, ascending, and notes on the others."""
    notes = []
    concepts = facts.stats["kinds"].get(CONCEPT, 0)
    if concepts and CONCEPT not in {facts.kinds[k] for k in facts.kind.unique().tolist()}:
        notes.append(
            f"The {concepts:,} concepts that tie memories together are not drawn; "
            "`concepts=True`, or --concepts, makes them nodes."
        )
    if facts.num_nodes <= limit:
        return torch.arange(facts.num_nodes), notes
    notes.append(
        f"{limit:,} of {facts.num_nodes:,} nodes are drawn: a sample, the best linked ones. "
        "The tables and charts below are about all of them."
    )
    value = facts.graph.in_degree + facts.graph.out_degree
    value[facts.structure.bridges.pairs.flatten()] = torch.inf
    value[facts.structure.frontiers.node] = torch.inf
    nodes = torch.argsort(value, descending=True, stable=True)[:limit]
    return nodes.sort().values, notes


def _importance(graph: Graph) -> Tensor:  # [N] 0..255
    """Return the root of the degree over the largest degree."""
    degree = (graph.in_degree + graph.out_degree).sqrt()
    return (degree / degree.max().clamp(min=1) * 255).round()


def _communities(facts: ReportFacts, placed: GraphLayout, label: Tensor) -> list[dict[str, Any]]:
    sizes = torch.bincount(label, minlength=len(placed.radius)).tolist()
    return [
        {"name": name, "size": size, "x": round(x, 2), "y": round(y, 2), "r": round(r, 2)}
        for name, size, (x, y), r in zip(
            facts.names, sizes, placed.centre.tolist(), placed.radius.tolist(), strict=False
        )
    ]


def _texts(texts: list[str]) -> dict[str, Any]:
    """Return the texts, equal ones only once."""
    known = {text: i for i, text in enumerate(dict.fromkeys(texts))}
    if len(known) == len(texts):
        return {"texts": texts}
    numbers = torch.tensor([known[text] for text in texts])
    return {"texts": list(known), "text_of": packed(numbers, np.uint32)}


def _marked(facts: ReportFacts, place: Tensor) -> dict[str, Any]:
    """Return bridges and frontiers by their numbers in the drawing."""
    ends = place[facts.structure.bridges.pairs].T.tolist()
    nodes = place[facts.structure.frontiers.node].tolist()
    return {
        "bridges": [pair for pair in ends if min(pair) >= 0],
        "frontiers": [node for node in nodes if node >= 0],
    }
