"""PyG: a memory behind `RAGQueryLoader`, and graphs to and from `Data` and `HeteroData`."""

from __future__ import annotations

import inspect
import os
import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from graphmem_torch.atoms import EdgeType
from graphmem_torch.checks import check_count, check_entries
from graphmem_torch.errors import InputError, MissingPackageError, unknown
from graphmem_torch.graph import Graph
from graphmem_torch.integrations.framework import MemoryOwner, given_memory
from graphmem_torch.integrations.pyg_data import (
    TypedGraph,
    from_memory,
    from_pyg,
    import_pyg,
    to_pyg,
)
from graphmem_torch.memory import Memory
from graphmem_torch.ops.ragged import ranges, segment_topk

if TYPE_CHECKING:
    from torch_geometric.data import Data
    from torch_geometric.sampler import SamplerOutput

__all__ = [
    "MemoryFeatureStore",
    "MemoryGraphStore",
    "TypedGraph",
    "from_memory",
    "from_pyg",
    "to_pyg",
]

_TYPES = max(EdgeType) + 1
_CONFIG = {"k_nodes": 4, "num_neighbors": (8, 4)}


def _checked_config(config: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the configuration of both stores of a loader, with defaults.

    Raises:
        InputError: An unknown key, or an unusable value.
    """
    given = {**_CONFIG, **(config or {})}
    for name in given.keys() - _CONFIG:
        raise InputError(unknown("config", name, _CONFIG, what="keys among"))
    check_count("k_nodes", given["k_nodes"])
    widths = given["num_neighbors"]
    if isinstance(widths, str) or not isinstance(widths, Sequence):
        raise InputError(
            f"num_neighbors: expected a number for each hop, got {widths!r:.60}; give [8, 4]"
        )
    for width in widths:
        check_count("num_neighbors", width, -1)
    return given


class MemoryFeatureStore(MemoryOwner):
    """Feature store of a `RAGQueryLoader` over a memory: seeds by retrieval, nodes with texts.

    Attributes:
        memory: The memory.
    """

    def __init__(self, memory: Memory | str | os.PathLike[str], **options: Any) -> None:
        """Take an open memory, or open one to read.

        Args:
            memory: Memory, or the folder of its store; `close` closes what this opens.
            options: Arguments of `Memory.open`.

        Raises:
            InputError: Options with an open memory or unknown ones, or neither a path nor a memory.
            ConfigError, EmbedderError, StoreError: See `Memory.open`.
        """
        if memory is None:
            raise InputError("memory: expected a path or a `Memory`, got none; give one")
        reading = {} if isinstance(memory, Memory) else {"mode": "r"}
        self.memory, self._owned = given_memory(memory, {**reading, **options})
        self._config = _checked_config(None)

    @property
    def config(self) -> dict[str, Any]:
        """Configuration: `k_nodes`, the number of seeds of a question (4)."""
        return self._config

    @config.setter
    def config(self, config: Mapping[str, Any] | None) -> None:
        self._config = _checked_config(config)

    def retrieve_seed_nodes(
        self, query: str | Sequence[str], *, k_nodes: int | None = None, **filters: Any
    ) -> tuple[Tensor, Tensor]:  # [n] int64, [B, d]
        """Return the nodes of the best memories for questions, best first, and their vectors.

        Args:
            query: One question, or several, whose hits are joined.
            k_nodes: Hits of a question; by default that of `config`.
            filters: Conditions on the memories, as in `Memory.retrieve`.

        Raises:
            InputError: See `Memory.retrieve`.
        """
        if not isinstance(query, str | Sequence) or isinstance(query, bytes | bytearray):
            raise InputError(
                f"query: expected a question, or several, got {type(query).__name__}; ask one"
            )
        asked = [query] if isinstance(query, str) else list(query)
        count = self._config["k_nodes"] if k_nodes is None else k_nodes
        results = self.memory.retrieve(asked, k=count, **filters)
        ranked = sorted(
            (place, hit.id) for result in results for place, hit in enumerate(result.hits)
        )
        known = self.memory.store.known([name for _, name in ranked])
        nodes = dict.fromkeys(known[name][0] for _, name in ranked if name in known)
        vectors = self.memory.tensors.encode(asked).embedding
        return torch.tensor([*nodes], dtype=torch.int64), vectors

    def retrieve_seed_edges(
        self, query: str | Sequence[str], *, k_nodes: int | None = None, **filters: Any
    ) -> Tensor:  # [2, n] int64
        """Return the edges between the nodes of `retrieve_seed_nodes`: sources and targets."""
        nodes, _ = self.retrieve_seed_nodes(query, k_nodes=k_nodes, **filters)
        graph = self.memory.index.graph
        row, column, _ = _edges_among(graph, nodes.to(graph.device))
        return nodes[torch.stack([row, column]).cpu()]

    def load_subgraph(self, sample: SamplerOutput) -> Data:
        """Return a sample with what its nodes and edges hold; leaves out what was deleted since.

        Args:
            sample: Result of `MemoryGraphStore.sample_subgraph`.

        Returns:
            `Data` with `x` `[n, d]` vectors, `edge_index`, `edge_weight`, `edge_type` (`EdgeType`),
            `edge_attr` `[E, 14]` (the weight in the column of its type), `node_idx` and `edge_idx`
            (numbers in the memory), `seed` `[n]` bool, `time` `[n]` seconds since the epoch UTC
            (NaN if unknown), and the lists `id`, `kind` and `text`.
        """
        classes, store = import_pyg("torch_geometric.data"), self.memory.store
        known = isinstance(sample.metadata, Graph)
        graph = sample.metadata if known else self.memory.index.graph
        node = sample.node.cpu()
        with store.reading():
            there = torch.isin(node, torch.tensor(store.present(node.tolist()), dtype=torch.int64))
            kept = node[there].tolist()
            atoms = store.atoms(kept)
            vectors = store.vectors(kept, tokens=False).embeddings
        place = there.cumsum(0) - 1
        ends = torch.stack([sample.row, sample.col]).cpu()
        live = there[ends].all(0)
        edge = sample.edge.cpu()[live]
        weight, type = (
            column.cpu()[edge].detach() for column in (graph.stored.weight, graph.stored.type)
        )
        seeds = (sample.num_sampled_nodes or [0])[0]
        hot = torch.nn.functional.one_hot(type.long(), _TYPES) * weight[:, None]
        times = [torch.nan if atom.time is None else atom.time for atom in atoms]
        return classes.Data(
            x=vectors,
            edge_index=place[ends[:, live]],
            edge_weight=weight,
            edge_type=type.long(),
            edge_attr=hot,
            node_idx=node[there],
            edge_idx=edge,
            seed=(torch.arange(len(node)) < seeds)[there],
            time=torch.tensor(times, dtype=torch.float64),
            id=[atom.id for atom in atoms],
            kind=[atom.kind for atom in atoms],
            text=[atom.text for atom in atoms],
            num_nodes=len(kept),
        )


class MemoryGraphStore:
    """Graph store of a `RAGQueryLoader` over the memory of its feature store.

    A sample takes the strongest edges of the seeds, then of what they lead to, hop by hop, and
    keeps all edges between the nodes that it reached. Nodes are numbered as in the memory.
    """

    def __init__(self, features: MemoryFeatureStore | None = None) -> None:
        """Take the feature store; a `RAGQueryLoader` registers its own.

        Raises:
            MissingPackageError: torch-geometric is not installed, or has no `RAGQueryLoader`.
        """
        sampler = import_pyg("torch_geometric.sampler").SamplerOutput
        fields = {"node", "row", "col", "edge", "num_sampled_nodes", "metadata"}
        lacking = fields - inspect.signature(sampler).parameters.keys()
        if lacking or not hasattr(import_pyg("torch_geometric.llm"), "RAGQueryLoader"):
            raise MissingPackageError(
                "torch_geometric: expected RAGQueryLoader and SamplerOutput of 2.8, got others; "
                "pip install 'torch-geometric>=2.8,<2.9'"
            )
        self._features = features
        self._config = _checked_config(None)
        self._handed: weakref.ref[Tensor] | None = None

    def register_feature_store(self, feature_store: MemoryFeatureStore) -> None:
        """Take the feature store whose memory is sampled."""
        if not isinstance(feature_store, MemoryFeatureStore):
            raise InputError(
                "feature_store: expected a MemoryFeatureStore, got "
                f"{type(feature_store).__name__}; give one of the same memory"
            )
        self._features = feature_store

    @property
    def config(self) -> dict[str, Any]:
        """Configuration: `num_neighbors`, the edges of a node at each hop (8, 4); -1 is all."""
        return self._config

    @config.setter
    def config(self, config: Mapping[str, Any] | None) -> None:
        self._config = _checked_config(config)

    @property
    def edge_index(self) -> Tensor:  # [2, E] int64
        """Sources and targets of the memory's conducting edges; none before it has a memory.

        A loader reads and sets it; other edges are refused.
        """
        known = self._features is not None
        edges = self._graph().edge_index if known else torch.empty(2, 0, dtype=torch.int64)
        self._handed = weakref.ref(edges)
        return edges

    @edge_index.setter
    def edge_index(self, edges: Tensor) -> None:
        if self._handed is None or self._handed() is not edges:
            raise InputError(
                "edge_index: expected the edges of the memory, got others; add edges with "
                "memory.graph.connect"
            )

    def _graph(self) -> Graph:
        if self._features is None:
            raise InputError(
                "features: expected a MemoryFeatureStore, got none; give MemoryGraphStore(features)"
            )
        return self._features.memory.index.graph

    def sample_subgraph(
        self,
        seed_nodes: Tensor | Iterable[int],  # [n]
        seed_edges: Tensor | None = None,  # [2, m]
        *,
        num_neighbors: Sequence[int] | None = None,
    ) -> SamplerOutput:
        """Return the nodes that the strongest edges reach from seeds, and the edges among them.

        Args:
            seed_nodes: Node numbers, as `retrieve_seed_nodes` returns them.
            seed_edges: Edges whose ends are seeds, too.
            num_neighbors: Maximum edges of a node at each hop, -1 for all; by default that of
                `config`.

        Raises:
            InputError: A number of no node, or no number of neighbours.
        """
        graph = self._graph()
        own = self._config if num_neighbors is None else {"num_neighbors": num_neighbors}
        widths = _checked_config(own)["num_neighbors"]
        given = [torch.as_tensor(seed_nodes, dtype=torch.int64).flatten().cpu()]
        given += [] if seed_edges is None else [seed_edges.flatten().cpu().long()]
        seeds = [*dict.fromkeys(torch.cat(given).tolist())]
        frontier = torch.tensor(seeds, dtype=torch.int64, device=graph.device)
        check_entries("seed_nodes", frontier, 0, graph.num_nodes - 1, "give nodes of this memory")
        node, sizes = frontier, [len(frontier)]
        for width in widths:
            frontier = _reached(graph, frontier, width)
            frontier = frontier[~torch.isin(frontier, node)]
            node = torch.cat([node, frontier])
            sizes.append(len(frontier))
        row, column, edge = _edges_among(graph, node)
        return import_pyg("torch_geometric.sampler").SamplerOutput(
            node=node.cpu(),
            row=row.cpu(),
            col=column.cpu(),
            edge=edge.cpu(),
            num_sampled_nodes=sizes,
            metadata=graph,
        )


def _reached(graph: Graph, frontier: Tensor, width: int) -> Tensor:  # [F] -> [n], ascending
    """Return the targets of the strongest edges of each node; -1 takes all edges."""
    first, count = graph.spans(frontier)
    row, place = ranges(first, count)
    edge = graph.leaving(place).long()
    if width >= 0 and len(edge):
        strength = graph.stored.weight[edge].detach().abs()
        best = segment_topk(strength, row.long(), count.long(), width)
        edge = edge[best[best >= 0]]
    return graph.stored.target[edge].long().unique()


def _edges_among(graph: Graph, node: Tensor) -> tuple[Tensor, Tensor, Tensor]:  # [E] each
    """Return the edges between some nodes: places of source and target, and numbers in `stored`."""
    first, count = graph.spans(node)
    row, place = ranges(first, count)
    edge = graph.leaving(place).long()
    target = graph.stored.target[edge].long()
    ordered, order = node.sort()
    at = torch.searchsorted(ordered, target).clamp(max=max(len(node) - 1, 0))
    inside = (ordered[at] == target).nonzero().squeeze(1) if len(node) else at
    return row.long()[inside], order[at[inside]], edge[inside]
