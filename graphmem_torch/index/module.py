"""MemoryIndex: a frozen snapshot of a memory on a device, and the retrieval that runs on it.

No I/O, no text models, no SQLite: tensors in, tensors out. This is what "import as a torch module"
means.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from graphmem_torch.atoms import EdgeType
from graphmem_torch.checks import check_count, check_matrix, check_unit_rows
from graphmem_torch.config import Config, load_config
from graphmem_torch.edges import EdgeBlock
from graphmem_torch.errors import ConfigError, InputError
from graphmem_torch.graph import Graph
from graphmem_torch.index.data import (
    OPTIONAL_PARTS,
    REQUIRED_PARTS,
    IndexInput,
    graph_of,
    graph_tensors,
    index_tensors,
    memory_tensors,
    modes_in,
)
from graphmem_torch.index.layout import check_layout
from graphmem_torch.index.retrieve import CandidateRule, Plan, Retrieval, candidates_of, retrieve
from graphmem_torch.modes.find import Modes
from graphmem_torch.ops.tiles import tile_elements
from graphmem_torch.rank import signals  # noqa: F401  (so that they are registered)
from graphmem_torch.rank.candidates import Candidates, MemoryTensors
from graphmem_torch.rank.query import QueryBatch
from graphmem_torch.rank.registry import (
    FORMS,
    Weight,
    check_signal_names,
    reading,
    signal_names,
    weight_table,
)
from graphmem_torch.rank.routing import ROUTING_PARTS, routing_tensors

__all__ = ["MemoryIndex"]

_TILE = 1 << 23  # floats of the largest temporary of a tile of questions on a CPU: 32 MB


class MemoryIndex(nn.Module):
    """A memory as buffers (embeddings, graph, lexical matrix, attributes) and its weights.

    Build one with `build`, from vectors and a graph alone with `from_tensors`, or from the
    `state_dict` of another with `from_state_dict`.
    `.to(device)` moves it, `.half()` halves its floating-point buffers (arithmetic stays float32).

    Attributes:
        config: The settings it was made with.
        weight_keys: Those keys of `rank.weights` that it ranks by.
        signal_names: F signals of the score.
        weights: [4, F], the weight of each for memories of each form (`rank.registry.FORMS`).
        plan: What a question takes.
    """

    embeddings: Tensor
    node: Tensor
    kind: Tensor
    named: Tensor
    time_bits: Tensor
    pagerank: Tensor | None
    is_question: Tensor
    duplicate: Tensor | None
    atom: Tensor
    graph_indptr: Tensor
    graph_out_indptr: Tensor
    graph_source: Tensor

    def __init__(self, tensors: Mapping[str, Tensor], config: Config) -> None:
        """Takes buffers by name as they are; `build` and `from_state_dict` are for callers.

        What routing signals read and is not among them is derived from the graph.
        """
        super().__init__()
        self.config = config
        self._read: tuple[dict[str, Tensor], MemoryTensors] | None = None
        for name in OPTIONAL_PARTS:
            self.register_buffer(name, None)
        for name, tensor in tensors.items():
            if name != "weights":
                self.register_buffer(name, tensor)
        named, spreads = config.rank.weights, self.spreads
        if not spreads and config.rank.cold_weights:
            named = config.rank.cold_weights
        check_signal_names(named)
        if "hop_document" not in tensors:
            of_documents = reading(signal_names(named), "hops", "documents")
            named = {
                key: named[key] for key in named if Weight.named(key).signal not in of_documents
            }
        self.weight_keys = tuple(named)
        names = self.signal_names = tuple(signal_names(named))
        lacking = [
            name for name in names if any(p not in tensors for p in ROUTING_PARTS.get(name, ()))
        ]
        for name, tensor in routing_tensors(self.graph, tensors["node"].long(), lacking).items():
            self.register_buffer(name, tensor)
        weights = tensors.get("weights")
        if weights is None:
            weights = weight_table(named)
        if weights.shape != (len(FORMS), len(names)):
            raise InputError(
                f"state['weights']: expected [{len(FORMS)}, {len(names)}], got "
                f"{list(weights.shape)}; give one for each form ({', '.join(FORMS)}) and each "
                f"signal: {', '.join(names)}"
            )
        self.weights = nn.Parameter(weights.clone(), requires_grad=False)
        rule = CandidateRule.of(config, self.num_atoms, modes="modes_label" in tensors)
        self.plan = Plan.of(config, self.signal_names, rule, graph=spreads)

    @classmethod
    def build(cls, data: IndexInput, config: Config) -> MemoryIndex:
        """The index of the columns of a memory.

        Raises:
            InputError: For columns of different lengths.
            ConfigError: For a weight of a signal that there is not.
        """
        return cls(index_tensors(data, config), config)

    @classmethod
    def from_tensors(
        cls,
        embeddings: Tensor,  # [A, d], unit rows
        graph: Graph | None = None,  # N >= A nodes
        config: Config | None = None,
        *,
        time: Tensor | None = None,  # [A]
    ) -> MemoryIndex:
        """The index of vectors and a graph alone; `QueryBatch(embedding)` is all that it is asked.

        Without texts, speakers and sessions the signals that read them are 0.

        Args:
            embeddings: One row for each atom.
            graph: Its first A nodes are the atoms; those behind them, such as concepts, only
                conduct. Its edges conduct as they are: the gains, the way back and the cap in
                `spread` are for edges of a store. None: no edges.
            config: Settings; those of the preset `default` by default.
            time: Seconds since the epoch UTC, NaN where unknown.

        Returns:
            The index, on the device of the embeddings.

        Raises:
            InputError: Rows that are not of length 1, a graph of fewer nodes or of types that are
                no `EdgeType`, or times that do not fit.
        """
        check_matrix("embeddings", embeddings, "[A, d]")
        check_unit_rows("embeddings", embeddings)
        config = load_config("default") if config is None else config
        device, atoms = embeddings.device, len(embeddings)
        own = Graph.from_edges(torch.zeros(2, 0, dtype=torch.int64), num_nodes=atoms)
        if graph is not None:
            own = graph.to("cpu")
        if own.num_nodes < atoms:
            raise InputError(
                f"graph: expected at least {atoms} nodes, one for each row of embeddings, got "
                f"{own.num_nodes}; give num_nodes where the last have no edges"
            )
        if own.num_edges and int(own.type.max()) > max(EdgeType):
            raise InputError(
                f"graph: expected types up to {max(EdgeType)}, got {int(own.type.max())}; use "
                "those of `EdgeType`"
            )
        when = torch.full((atoms,), torch.nan, dtype=torch.float64) if time is None else time.cpu()
        none = torch.zeros(atoms, dtype=torch.int64)
        data = IndexInput(
            embeddings=embeddings.detach().cpu(),
            terms=none[:0],
            term_offsets=torch.zeros(atoms + 1, dtype=torch.int64),
            vocab_size=0,
            kind=none,
            speaker=none - 1,
            num_speakers=0,
            session=none - 1,
            time=when,
            log_words=torch.zeros(atoms),
            is_question=none.bool(),
            tells_time=none.bool(),
            edges=EdgeBlock.empty(),
            num_nodes=own.num_nodes,
        )
        tensors = index_tensors(data, config) | graph_tensors(own)
        tensors.pop("pagerank", None)  # of no edges; that of the graph is derived
        return cls(tensors, config).to(device)

    @classmethod
    def from_state_dict(cls, state: Mapping[str, Tensor], config: Config) -> MemoryIndex:
        """The index whose `state_dict` this is; weights that are not there are the settings'.

        Raises:
            InputError: For tensors that are missing, that no index has, or that do not fit.
        """
        lacking = [name for name in REQUIRED_PARTS if name not in state]
        strange = sorted(state.keys() - {*REQUIRED_PARTS, *OPTIONAL_PARTS, "weights"})
        if lacking or strange:
            what = f"none of {lacking}" if lacking else f"also {strange}"
            raise InputError(
                f"state: expected the tensors of `MemoryIndex.state_dict()`, got {what:.200}; "
                "build the index anew"
            )
        check_layout(state)
        return cls(state, config)

    def extra_repr(self) -> str:
        """What there is, in a line."""
        atoms, dim = self.embeddings.shape
        size = sum(buffer.nbytes for buffer in self.buffers()) / 1e6
        modes = self.modes
        return (
            f"{self.config.name!r}, {atoms} atoms [{dim}], {self.num_nodes - atoms} concepts, "
            f"{len(self.graph_source)} edges, {0 if modes is None else len(modes)} modes, "
            f"{len(self.signal_names)} signals, candidates: {self.plan.rule.value}, "
            f"{size:.1f} MB {str(self.embeddings.dtype).removeprefix('torch.')} on "
            f"{self.embeddings.device}"
        )

    @property
    def num_atoms(self) -> int:
        """A, the atoms that can be hits."""
        return int(self.embeddings.shape[0])

    @property
    def num_nodes(self) -> int:
        """N, atoms and concepts."""
        return int(self.graph_indptr.shape[0]) - 1

    @property
    def time(self) -> Tensor:  # [A] float64
        """Seconds since the epoch, UTC; NaN where unknown."""
        return self.time_bits.view(torch.float64)

    @property
    def tensors(self) -> MemoryTensors:
        """What ranking reads; one object while the buffers are the same, as it keeps things."""
        parts = self._parts
        if self._read is None or not _same(self._read[0], parts):
            self._read = parts, memory_tensors(parts)
        return self._read[1]

    def _load_from_state_dict(self, *arguments: Any) -> None:
        super()._load_from_state_dict(*arguments)
        self._read = None  # other values in the same buffers

    @property
    def graph(self) -> Graph:
        """The conducting graph of all N nodes."""
        return graph_of(self._parts)

    @property
    def modes(self) -> Modes | None:
        """The modes of the atoms; None where the settings do not ask for them."""
        return modes_in(self._parts)

    @property
    def _parts(self) -> dict[str, Tensor]:
        return {name: part for name, part in self._buffers.items() if part is not None}

    @property
    def spreads(self) -> bool:
        """Whether there is a graph worth spreading over; else it is a cold start."""
        if not len(self.graph_source):
            return False
        nodes, enough = self.num_atoms, self.config.spread.min_nodes
        if nodes < enough:
            # Nodes that were deleted keep their numbers, but have no edges.
            tied = (self.graph_indptr.diff() > 0) | (self.graph_out_indptr.diff() > 0)
            nodes += int((tied & (self.atom < 0)).sum())
        return nodes >= enough

    def forward(
        self,
        query: QueryBatch,
        *,
        k: int | None = None,
        paths: bool = False,
        tile: int = _TILE,
    ) -> Retrieval:
        """Ranks the memories for B questions.

        Args:
            query: The questions; only the embeddings are needed, a signal whose input is missing
                is 0.
            k: Hits a question; by default `rank.k` of the settings.
            paths: Whether the edges that led to each hit are wanted.
            tile: Floats of the largest temporary on a CPU; questions are ranked in tiles of it.

        Raises:
            InputError: For shapes that do not fit the index.
            ConfigError: For settings without weights.
        """
        query, count = self._checked(query, k)
        if not self.config.rank.weights:
            raise ConfigError(
                "rank.weights: expected weights of signals, got none; start from "
                "`load_config(preset, overrides)`, or `extends: default` in a file"
            )
        memory, weights = self.tensors, self.weights.float()
        every = self.plan.rule == CandidateRule.EVERY
        width = max(1, query.tokens.shape[1]) if every and query.tokens is not None else 1
        size = max(1, self.num_atoms * width)
        step = max(1, tile_elements(self.embeddings.device, tile) // size)
        if step >= len(query):
            return retrieve(memory, self.plan, weights, query, count, paths=paths)
        parts = [
            retrieve(memory, self.plan, weights, query.rows(slice(i, i + step)), count, paths=paths)
            for i in range(0, len(query), step)
        ]
        return Retrieval(*(torch.cat(column) for column in zip(*parts, strict=True)))

    def candidates(self, query: QueryBatch, *, k: int | None = None) -> Candidates:
        """The candidates of B questions for k hits, whose signals `fit` learns from."""
        query, count = self._checked(query, k)
        return candidates_of(self.tensors, self.plan, self.weights.float(), query, count)

    def _checked(self, query: QueryBatch, k: int | None) -> tuple[QueryBatch, int]:
        atoms, dim = self.embeddings.shape
        query.check(dim=dim, atoms=atoms, speakers=len(self.named))
        count = self.config.rank.k if k is None else k
        check_count("k", count)
        return replace(query, embedding=query.embedding.float()), count


def _same(parts: Mapping[str, Tensor], others: Mapping[str, Tensor]) -> bool:
    """Whether both are the same tensors by the same names."""
    return parts.keys() == others.keys() and all(parts[name] is others[name] for name in parts)
