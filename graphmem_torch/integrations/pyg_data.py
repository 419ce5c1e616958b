"""Graphs to and from `Data` and `HeteroData` of PyG."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from graphmem_torch.atoms import EdgeType
from graphmem_torch.checks import all_finite, check_entries, check_tensor
from graphmem_torch.coo import MAX_TYPE, edge_keys, offsets_of
from graphmem_torch.errors import InputError, optional_import
from graphmem_torch.graph import Graph
from graphmem_torch.memory import Memory

if TYPE_CHECKING:
    from torch_geometric.data import Data, HeteroData

__all__ = ["TypedGraph", "from_memory", "from_pyg", "import_pyg", "to_pyg"]

Relation = tuple[str, str, str]

_PLAIN, _PLAIN_RELATION = "", ("", "", "")  # the only kind and relation of a `Data`


class EdgeLayout(NamedTuple):
    """Order and attributes of edges in PyG, to write them in the same way again.

    Attributes:
        place: `[E]` int64, edge of the graph at each place, relation by relation.
        sizes: Number of edges of each relation.
        held: For each relation the attributes that the graph holds: name, dtype and shape.
    """

    place: Tensor
    sizes: tuple[int, ...]
    held: tuple[Mapping[str, tuple[torch.dtype, torch.Size]], ...]


@dataclass(frozen=True, eq=False)
class TypedGraph:
    """Graph with what PyG stores beside its edges: node kinds, relations and attributes.

    With `kind` it stands for a `HeteroData`, without for a `Data`.

    Attributes:
        graph: N nodes and E edges.
        kinds: Names of the node types.
        kind: `[N]` integers, place of each node's type in `kinds`; None without kinds.
        relations: Edge types; by default the combinations of kinds and edge types that occur.
        nodes: Attributes of the nodes by kind ("" without kinds), in the order of the nodes.
        edges: Attributes of the edges by relation, in the order of `layout`.
        layout: Order and attributes of the edges in PyG; None for a graph from elsewhere.
    """

    graph: Graph
    kinds: tuple[str, ...] = ()
    kind: Tensor | None = None
    relations: tuple[Relation, ...] = ()
    nodes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    edges: Mapping[Relation, Mapping[str, Any]] = field(default_factory=dict)
    layout: EdgeLayout | None = None


def from_pyg(data: Data | HeteroData, *, drop: Collection[str] = ()) -> TypedGraph:
    """Convert a `Data` or `HeteroData`; `to_pyg` converts it back exactly.

    Weights are `edge_weight`, else an `edge_attr` with one column, else ones. Types are
    `edge_type`, else the number of the relation in `edge_types`. Times are `edge_time`, NaN where a
    relation has none. Nodes are numbered type by type. Other attributes of nodes and edges, such as
    features, are kept beside the graph.

    Args:
        data: Graph of PyG, each edge once.
        drop: Names of attributes to leave out, or one name.

    Raises:
        InputError: An attribute is neither of nodes nor of edges, an edge occurs twice, or values
            do not fit a `Graph`; the message names the attribute.
        MissingPackageError: torch-geometric is not installed.
    """
    classes = import_pyg("torch_geometric.data")
    drop = [drop] if isinstance(drop, str) else drop
    typed = isinstance(data, classes.HeteroData)
    if not typed and not isinstance(data, classes.Data):
        raise InputError(
            f"data: expected a Data or HeteroData, got {type(data).__name__}; convert it to one"
        )
    kinds = tuple(data.node_types) if typed else (_PLAIN,)
    relations = tuple(data.edge_types) if typed else (_PLAIN_RELATION,)
    if len(relations) > MAX_TYPE + 1:
        raise InputError(
            f"data: expected at most {MAX_TYPE + 1} edge types, got {len(relations)}; leave out "
            "some of them"
        )
    stores = {key: data[key] if typed else data.stores[0] for key in (*kinds, *relations)}
    counts = {kind: _num_nodes(kind, stores[kind]) for kind in kinds}
    nodes = {kind: _of_nodes(stores[kind], counts[kind], drop) for kind in kinds}
    read = {
        relation: _read_edges(number, relation, stores[relation], counts, drop)
        for number, relation in enumerate(relations)
    }
    taken: dict[Any, set[str]] = {kind: {*nodes[kind]} for kind in kinds}
    taken |= {relation: {*part.held, *part.rest} for relation, part in read.items()}
    if typed:
        stores, taken = {_PLAIN: data.stores[0], **stores}, {_PLAIN: set(), **taken}
    else:
        taken = dict.fromkeys(taken, set().union(*taken.values()))
    _refuse_others(stores, taken, drop)

    sizes = torch.tensor([*counts.values()], dtype=torch.int64)
    first = dict(zip(kinds, offsets_of(sizes).tolist(), strict=False))
    number_of, nodes = _numbering(first, counts, nodes) if typed else (None, nodes)
    graph, place = _joined(read, first, sum(counts.values()), number_of)
    layout = EdgeLayout(
        place,
        tuple(part.ends.shape[1] for part in read.values()),
        tuple(part.held for part in read.values()),
    )
    edges = {relation: part.rest for relation, part in read.items()}
    if not typed:
        return TypedGraph(graph, nodes=nodes, edges=edges, layout=layout)
    kind_of = torch.arange(len(kinds)).repeat_interleave(sizes)
    if number_of is not None:
        kind_of = torch.empty_like(kind_of).index_copy_(0, number_of.cpu(), kind_of)
    return TypedGraph(graph, kinds, kind_of, relations, nodes, edges, layout)


def _of_nodes(store: Any, count: int, drop: Collection[str]) -> dict[str, Any]:
    """Return the attributes of nodes; without some of them `num_nodes` may be lost."""
    found = {
        name: value
        for name, value in store.items()
        if name not in drop and (name == "num_nodes" or store.is_node_attr(name))
    }
    return {**found, "num_nodes": count} if drop else found


def _refuse_others(
    stores: Mapping[Any, Any], taken: Mapping[Any, set[str]], drop: Collection[str]
) -> None:
    """Raise `InputError` for attributes that are neither of nodes nor of edges."""
    strange = {
        f"{name} of {key}" if any(key) else str(name)
        for key, store in stores.items()
        for name in {*store.keys()} - taken[key] - {*drop}
    }
    if strange:
        raise InputError(
            "data: expected attributes of nodes or edges, which a graph is stored with, got "
            f"{', '.join(sorted(strange)):.200}; delete them, or name them in `drop`"
        )


class _EdgePart(NamedTuple):
    """Edges of one relation as PyG has them: [n] each, beside `ends` [2, n]."""

    ends: Tensor
    weight: Tensor | None
    type: Tensor
    time: Tensor | None
    held: dict[str, tuple[torch.dtype, torch.Size]]
    rest: dict[str, Any]


def _num_nodes(kind: str, store: Any) -> int:
    count = store.num_nodes
    if count is None:
        raise InputError(
            f"num_nodes of {kind!r}: expected the number of nodes, got none; set it, or x"
        )
    return int(count)


def _read_edges(
    number: int,
    relation: Relation,
    store: Any,
    counts: Mapping[str, int],
    drop: Collection[str],
) -> _EdgePart:
    """Return the edges of one relation, checked."""
    where = f" of {relation}" if relation != _PLAIN_RELATION else ""
    index = store.get("edge_index")
    if index is None:
        raise InputError(
            f"edge_index{where}: expected the edges, got none; set it, [2, 0] for no edges"
        )
    index = index.as_tensor() if hasattr(index, "as_tensor") else index  # of PyG's `EdgeIndex`
    check_tensor(f"edge_index{where}", index, "integers", (2, "E"), "stack sources over targets")
    for row, end in zip(index, relation[::2], strict=True):
        if end not in counts:
            raise InputError(
                f"edge_index{where}: expected nodes of {end!r}, got no such node type; set its "
                "num_nodes"
            )
        check_entries(
            f"edge_index{where}", row, 0, counts[end] - 1, "set num_nodes or drop that edge"
        )
    count = index.shape[1]
    given = {n: v for n, v in store.items() if n not in drop}
    held = {"edge_index": (index.dtype, index.shape)}

    def column(name: str) -> Tensor | None:
        value = given.get(name)
        if value is None:
            return None
        if not isinstance(value, Tensor) or value.numel() != count or value.dim() not in (1, 2):
            got = list(value.shape) if isinstance(value, Tensor) else f"{value!r:.60}"
            raise InputError(
                f"{name}{where}: expected [{count}], one for each edge, got {got}; repair it"
            )
        held[name] = value.dtype, value.shape
        return value.flatten()

    wide = given.get("edge_attr")
    single = isinstance(wide, Tensor) and (wide.dim() == 1 or list(wide.shape[1:]) == [1])
    named = "edge_attr" if "edge_weight" not in given and single else "edge_weight"
    weight, kind, time = column(named), column("edge_type"), column("edge_time")
    if weight is not None:
        weight = _exact(f"{named}{where}", weight, torch.float32, torch.float64)
        if not all_finite(weight):
            bad = int((~weight.isfinite()).nonzero()[0])
            raise InputError(
                f"{named}{where}: expected finite numbers, got {float(weight[bad])} at edge {bad}; "
                "drop or repair that edge"
            )
    if time is not None:
        time = _exact(f"edge_time{where}", time, torch.float64)
    if kind is None:
        kind = torch.full((count,), number, device=index.device)
    else:
        check_tensor(f"edge_type{where}", kind, "integers", (count,), "convert with .long()")
        check_entries(f"edge_type{where}", kind, 0, MAX_TYPE, "number the types from 0")
    rest = {n: v for n, v in given.items() if n not in held and store.is_edge_attr(n)}
    return _EdgePart(index.long(), weight, kind.long(), time, held, rest)


def _exact(name: str, values: Tensor, *wider: torch.dtype) -> Tensor:
    """Return numbers of a floating-point type that holds them exactly; they may have another."""
    if values.is_floating_point() and wider[0] == torch.float32:
        return values
    if not values.is_complex():
        for dtype in wider:
            found = values.to(dtype)
            if values.is_floating_point() or torch.equal(found.to(values.dtype), values):
                return found
    raise InputError(
        f"{name}: expected numbers that {wider[-1]} holds exactly, got {values.dtype} beyond it; "
        "scale them"
    )


def _numbering(
    first: Mapping[str, int], counts: Mapping[str, int], nodes: dict[str, dict[str, Any]]
) -> tuple[Tensor | None, dict[str, dict[str, Any]]]:
    """Return the node of a graph that each node of PyG is, as `to_pyg` writes it in `n_id`.

    None if they are numbered type by type. An `n_id` of other numbers is an attribute like others.
    """
    total = sum(counts.values())
    parts = [nodes[kind].get("n_id") for kind in first]
    known = [part for part in parts if isinstance(part, Tensor) and part.dtype == torch.int64]
    if not known or len(known) < len(parts):
        return None, nodes
    number, own = torch.cat(known), torch.arange(total, device=known[0].device)
    ascending = all(bool((part.diff() > 0).all()) for part in known)
    if not ascending or torch.equal(number, own) or not torch.equal(number.sort().values, own):
        return None, nodes
    return number, {k: {n: v for n, v in each.items() if n != "n_id"} for k, each in nodes.items()}


def _joined(
    read: Mapping[Relation, _EdgePart],
    first: Mapping[str, int],
    total: int,
    number_of: Tensor | None,
) -> tuple[Graph, Tensor]:
    """Return the graph of all relations, and its edge at each of their places."""
    if not read:
        none = torch.empty(2, 0, dtype=torch.int64)
        return Graph.from_edges(none, num_nodes=total), none[0]
    parts = [
        part.ends + torch.tensor([[first[source]], [first[target]]], device=part.ends.device)
        for (source, _, target), part in read.items()
    ]
    index = torch.cat(parts, 1)
    index = index if number_of is None else number_of[index]
    kind = torch.cat([part.type for part in read.values()])
    weight = _filled([part.weight for part in read.values()], parts, 1.0)
    time = _filled([part.time for part in read.values()], parts, torch.nan)
    key, order = torch.sort(edge_keys(index[1], index[0], kind, total), stable=True)
    twice = (key[1:] == key[:-1]).nonzero()
    if len(twice):
        at = int(order[int(twice[0]) + 1])
        sizes = torch.tensor([part.shape[1] for part in parts])
        relation = [*read][int((offsets_of(sizes)[1:] <= at).sum())]
        where = f" of {relation}" if relation != _PLAIN_RELATION else ""
        raise InputError(
            f"edge_index{where}: expected each edge once in a type, got {index[:, at].tolist()} "
            "again; call coalesce(), or give parallel edges different types"
        )
    graph = Graph.from_edges(index, type=kind, time=time, num_nodes=total)
    if weight is not None:
        graph = graph.with_weight(weight[order])
    place = torch.empty_like(order)
    return graph, place.index_copy_(0, order, torch.arange(len(order), device=order.device))


def _filled(values: list[Tensor | None], parts: list[Tensor], fill: float) -> Tensor | None:
    """Return the columns of all relations in one, filled where a relation has none."""
    if all(value is None for value in values):
        return None
    return torch.cat(
        [
            torch.full((part.shape[1],), fill, device=part.device) if value is None else value
            for value, part in zip(values, parts, strict=True)
        ]
    )


def to_pyg(graph: Graph | TypedGraph) -> Data | HeteroData:
    """Convert a graph to a `Data`, or one with node kinds to a `HeteroData`.

    Edges have `edge_weight`, `edge_type` and, if the graph has times, `edge_time`. Where the kinds
    of a graph are mixed, `n_id` is the number of each node, by which `from_pyg` restores them. What
    `from_pyg` read is written as it was.

    Raises:
        InputError: No graph, `kind` or `kinds` do not fit it, or it has other edges than `from_pyg`
            read.
        MissingPackageError: torch-geometric is not installed.
    """
    classes = import_pyg("torch_geometric.data")
    given = TypedGraph(graph) if isinstance(graph, Graph) else graph
    if not isinstance(given, TypedGraph):
        raise InputError(
            f"graph: expected a Graph or TypedGraph, got {type(graph).__name__}; from_memory and "
            "from_pyg make one"
        )
    if len({*given.kinds}) < len(given.kinds):
        raise InputError(
            f"kinds: expected each name once, got {', '.join(given.kinds):.200}; name them apart"
        )
    own, typed = given.graph, given.kind is not None or bool(given.kinds)
    kind, local, counts = _kinds_of(given)
    relations, layout = given.relations if typed else (_PLAIN_RELATION,), given.layout
    if layout is None:
        relations, layout = _default_layout(given, kind)
    elif len(layout.place) != own.num_edges:
        raise InputError(
            f"graph: expected the {len(layout.place)} edges that from_pyg read, got "
            f"{own.num_edges}; give TypedGraph(graph, kinds, kind)"
        )
    made = classes.HeteroData() if typed else classes.Data()
    mixed = typed and bool((kind.diff() < 0).any())
    for number, name in enumerate(given.kinds if typed else (_PLAIN,)):
        store = made[name] if typed else made
        known = given.nodes.get(name)
        for attribute, value in (known or {}).items():
            store[attribute] = value
        if known is None:
            store["num_nodes"] = counts[number]
        if mixed:
            store["n_id"] = (kind == number).nonzero().squeeze(1)
    end = 0
    for relation, size, held in zip(relations, layout.sizes, layout.held, strict=True):
        begin, end = end, end + size
        at = layout.place[begin:end].to(own.device)
        store = made[relation] if typed else made
        ends = torch.stack([own.source[at], own.target[at]]).long()
        columns = {
            "edge_index": ends if local is None else local[ends],
            "edge_weight": own.weight[at],
            "edge_attr": own.weight[at],
            "edge_type": own.type[at].long(),
            "edge_time": None if own.time is None else own.time[at],
        }
        for name, (dtype, shape) in held.items():
            column = columns[name]
            assert column is not None
            store[name] = _as_before(column, dtype).reshape(shape)
        for name, value in given.edges.get(relation, {}).items():
            store[name] = value
    return made


def _kinds_of(given: TypedGraph) -> tuple[Tensor, Tensor | None, list[int]]:
    """Return kind [N], number of each node among its kind [N] (None: one kind), and counts."""
    nodes, device = given.graph.num_nodes, given.graph.device
    if given.kind is None and not given.kinds:
        return torch.zeros(nodes, dtype=torch.int64, device=device), None, [nodes]
    do = "give the place in `kinds` of every node's type"
    check_tensor("kind", given.kind, "integers", (nodes,), do)  # type: ignore[arg-type]
    assert given.kind is not None
    kind = given.kind.to(device).long()
    check_entries("kind", kind, 0, len(given.kinds) - 1, do)
    counts = torch.bincount(kind, minlength=len(given.kinds))
    order = kind.argsort(stable=True)
    rank = torch.arange(nodes, device=device) - offsets_of(counts)[kind[order]]
    return kind, torch.empty_like(rank).index_copy_(0, order, rank), counts.tolist()


def _default_layout(given: TypedGraph, kind: Tensor) -> tuple[tuple[Relation, ...], EdgeLayout]:
    """Return the relations of a graph that does not come from PyG, and the order of its edges."""
    graph = given.graph
    index = graph.edge_index
    relations: tuple[Relation, ...] = (_PLAIN_RELATION,)
    if given.kind is None:
        sizes = [graph.num_edges]
        place = torch.arange(graph.num_edges, device=graph.device)
    else:
        width = len(given.kinds)
        code = (graph.type.long() * width + kind[index[0]]) * width + kind[index[1]]
        found, relation, size = code.unique(return_inverse=True, return_counts=True)
        place, sizes = relation.argsort(stable=True), size.tolist()
        ends = [(each // width % width, each // width**2, each % width) for each in found.tolist()]
        names = {int(each): each.name.lower() for each in EdgeType}
        relations = tuple(
            (given.kinds[source], names.get(type, str(type)), given.kinds[target])
            for source, type, target in ends
        )
    timed = graph.time is not None
    held = tuple(
        {
            "edge_index": (torch.int64, torch.Size((2, size))),
            "edge_weight": (graph.weight.dtype, torch.Size((size,))),
            "edge_type": (torch.int64, torch.Size((size,))),
            **({"edge_time": (torch.float64, torch.Size((size,)))} if timed else {}),
        }
        for size in sizes
    )
    return relations, EdgeLayout(place, tuple(sizes), held)


def _as_before(column: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a column in the dtype that PyG had, unless values have changed beyond it."""
    found = column.detach().to(dtype)
    back = found.to(column.dtype)
    same = torch.equal(back.nan_to_num(), column.detach().nan_to_num())
    return column.to(dtype) if same else column


def from_memory(memory: Memory) -> TypedGraph:
    """Return the conducting graph of a memory, with its vectors, ids, texts and times.

    Kinds are the kinds of memories, and `concept`. Every kind has `x` `[n, d]`, `id`, `text` and
    `time` `[n]`, seconds since the epoch UTC, NaN if unknown.

    Raises:
        InputError: No open memory.
        EmbedderError, StoreError: See `Memory.index`.
    """
    if not isinstance(memory, Memory):
        raise InputError(
            f"memory: expected an open `Memory`, got {type(memory).__name__}; open it with "
            "`Memory.open`"
        )
    store, graph = memory.store, memory.index.graph.cpu()
    with store.reading():
        columns, ids, texts = store.columns(), store.ids(), list(store.texts())
        vectors = store.embeddings()
    node, kinds = columns.node, tuple(columns.kind.names)
    kind = columns.kind.codes.long()
    row = torch.full((max([graph.num_nodes, *(node + 1).tolist()]),), -1)
    row[node] = torch.arange(len(node))
    ends = row[graph.edge_index]
    there = (ends >= 0).all(0)
    own = Graph.from_edges(
        ends[:, there], graph.weight[there], type=graph.type[there], num_nodes=len(node)
    )
    nodes = {}
    for number, name in enumerate(kinds):
        at = (kind == number).nonzero().squeeze(1)
        nodes[name] = {
            "x": vectors[at],
            "id": [ids[i] for i in at.tolist()],
            "text": [texts[i] for i in at.tolist()],
            "time": columns.time[at],
        }
    return TypedGraph(own, kinds, kind, nodes=nodes)


def import_pyg(module: str) -> Any:
    """Import a module of torch-geometric.

    Raises:
        MissingPackageError: It is not installed.
    """
    return optional_import(module, "graphs of PyG", "torch-geometric>=2.8,<2.9")
