"""MemoryIndex: a frozen snapshot of a memory on a device, and the retrieval that runs on it.

No I/O, no text models, no SQLite: tensors in, tensors out.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from graphmem_torch.atoms import EdgeType
from graphmem_torch.checks import check_count, check_matrix, check_unit_rows, needs_gradient
from graphmem_torch.config import Config, checked_config, load_config
from graphmem_torch.errors import ConfigError, InputError
from graphmem_torch.graph import Graph
from graphmem_torch.index.activation import worth_spreading
from graphmem_torch.index.buffer_schema import check_buffers
from graphmem_torch.index.buffers import (
    OPTIONAL_PARTS,
    REQUIRED_PARTS,
    Listed,
    graph_of,
    graph_tensors,
    memory_tensors,
    modes_in,
    same_buffers,
    same_state,
)
from graphmem_torch.index.data import index_tensors
from graphmem_torch.index.execution_plan import CONSTANTS, CandidateRule, ExecutionPlan
from graphmem_torch.index.explain import Explained, explain
from graphmem_torch.index.index_input import IndexInput, graph_over
from graphmem_torch.index.no_graphs import NoGraphs
from graphmem_torch.index.retrieve import Features, Retrieval, Stages, candidates_of
from graphmem_torch.index.tiled import retrieve_checked, waiting_once
from graphmem_torch.modes.find import Modes
from graphmem_torch.ops.growing import RowsOnDevice
from graphmem_torch.ops.tiles import tile_elements
from graphmem_torch.rank import signals  # noqa: F401  (so that they are registered)
from graphmem_torch.rank.candidates import Candidates
from graphmem_torch.rank.echo import without_echoes
from graphmem_torch.rank.memory_tensors import MemoryTensors
from graphmem_torch.rank.part import Part
from graphmem_torch.rank.plan import Events, PlanBatch, Pruned, prune
from graphmem_torch.rank.query import QueryBatch
from graphmem_torch.rank.registry import (
    FORMS,
    SIGNALS,
    Weight,
    check_signal_names,
    reading,
    signal_names,
    weight_table,
    weights_of,
)
from graphmem_torch.rank.relevance import relevance
from graphmem_torch.rank.routing import ROUTING_PARTS, routing_tensors
from graphmem_torch.rank.succession import SuccessionBatch, follow

if TYPE_CHECKING:
    from graphmem_torch.index.captured import CapturedGraphs

__all__ = ["MemoryIndex"]

_LARGEST = "embeddings", "tokens"  # 90 % of an index; rows are never rewritten
_TILE = 1 << 23  # floats of the largest temporary of a tile of questions on a CPU: 32 MB


class MemoryIndex(nn.Module):
    """A memory as buffers (embeddings, graph, lexical matrix, attributes) and its weights.

    Build one with `build`, from vectors and a graph alone with `from_tensors`, or from the
    `state_dict` of another with `from_state_dict`.
    `.to(device)` moves it, `.half()` halves its floating-point buffers (arithmetic stays float32).

    Attributes:
        config: The settings it was made with.
        weight_keys: Keys of `rank.weights` that it ranks by.
        signal_names: F signals of the score.
        reads: Inputs of these that are computed only on demand (`rank.registry.Signal`).
        weights: Parameter [3, F], the weight of each for memories of each form
            (`rank.registry.FORMS`).
        edge_gains: Parameter [14], factors of edge weights by `EdgeType`; ones unless learned.
        constants: Parameters [], the constants of the propagation by name: `retention`, `spread`,
            `inhibition`, `gain` and `threshold`, as far as the settings under `spread` use them.
        plan: Steps that answer a question.
        graphs: Graphs that answer questions (`capture`); on CUDA only, else `NoGraphs`.

    Parameters require no gradient until `requires_grad_()`. `score` is differentiable in all of
    them, and in the embeddings of questions. Learned values apply from the next call.
    """

    embeddings: Tensor
    node: Tensor
    kind: Tensor
    named: Tensor
    time_bits: Tensor
    pagerank: Tensor | None
    is_question: Tensor
    duplicate: Tensor | None
    time_order: Tensor | None
    atom: Tensor

    def __init__(
        self, tensors: Mapping[str, Tensor], config: Config, listed: Listed | None = None
    ) -> None:
        """Take buffers by name without a copy; callers use `build` and `from_state_dict`.

        Missing buffers of routing signals are derived from the graph. `listed` replaces buffers
        until they are requested.
        """
        super().__init__()
        self.config = config
        self._read: tuple[dict[str, Tensor], MemoryTensors] | None = None
        self._taken_up: tuple[tuple[Any, ...], MemoryTensors, ExecutionPlan] | None = None
        self._listed = listed
        self._part: Part | None = None
        self.graphs: CapturedGraphs | NoGraphs = NoGraphs()
        learned = self._learned_names()
        # Updated in one call, because an index is made for each state of a memory.
        self._buffers.update((n, part) for n, part in tensors.items() if n not in learned)
        named, spreads = config.rank.weights, self.spreads
        if not spreads and config.rank.cold_weights:
            named = config.rank.cold_weights
        check_signal_names(named)
        idle = [] if "hop_document" in tensors else ["hops", "lifts", "documents"]
        idle += ["words"] if "tokens" in tensors else []
        asked = signal_names(named)
        left = reading(asked, *idle)
        named = {key: named[key] for key in named if Weight.named(key).signal not in left}
        self.weight_keys = tuple(named)
        names = self.signal_names = tuple(name for name in asked if name not in left)
        self.reads = frozenset(what for name in names for what in SIGNALS[name].reads)
        lacking = [
            name for name in names if any(p not in tensors for p in ROUTING_PARTS.get(name, ()))
        ]
        if lacking:
            node = tensors["node"].long()
            self._buffers.update(routing_tensors(self.graph, node, lacking))
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
        self.plan = ExecutionPlan.of(config, self.signal_names, rule, graph=spreads)
        gains = tensors.get("edge_gains", torch.ones(max(EdgeType) + 1))
        self.edge_gains = nn.Parameter(gains.clone(), requires_grad=False)
        self.constants = nn.ParameterDict()
        for name in self.plan.constants:
            value = torch.tensor(float(getattr(config.spread, name)))
            value = tensors.get(f"constants.{name}", value)
            self.constants[name] = nn.Parameter(value.clone(), requires_grad=False)
        # `torch.export` numbers None buffers like the others, so they come last.
        lacking = [n for n in (*REQUIRED_PARTS, *OPTIONAL_PARTS) if n not in self._buffers]
        self._buffers.update(dict.fromkeys(lacking))

    @classmethod
    def build(cls, data: IndexInput, config: Config) -> MemoryIndex:
        """Build the index of the columns of a memory.

        Raises:
            InputError: Columns have different lengths.
            ConfigError: A weight names an unknown signal.
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
        """Build an index of vectors and a graph alone, for questions `QueryBatch(embedding)`.

        Signals of texts, speakers and sessions are 0.

        Args:
            embeddings: One row for each atom.
            graph: Graph whose first A nodes are the atoms; later nodes, such as concepts, only
                conduct. Its edges conduct unchanged: the gains, the reverse direction and the cap
                in `spread` apply to edges of a store. None: no edges.
            config: Settings; those of the preset `default` by default.
            time: Seconds since the epoch UTC, NaN = unknown.

        Returns:
            The index, on the device of the embeddings.

        Raises:
            InputError: Rows are not of length 1, the graph has too few nodes or types outside
                `EdgeType`, or times do not fit.
        """
        check_matrix("embeddings", embeddings, "[A, d]")
        check_unit_rows("embeddings", embeddings)
        config = load_config("default") if config is None else checked_config(config)
        device, own = embeddings.device, graph_over(len(embeddings), graph)
        data = IndexInput.of_vectors(embeddings.detach().cpu(), own.num_nodes, time)
        tensors = index_tensors(data, config) | graph_tensors(own)
        tensors.pop("pagerank", None)  # computed without edges; the graph's own is derived
        return cls(tensors, config).to(device)

    @classmethod
    def from_state_dict(cls, state: Mapping[str, Tensor], config: Config) -> MemoryIndex:
        """Load the index of a `state_dict`; missing weights are those of the settings.

        Raises:
            InputError: Tensors are missing, unknown, or do not fit.
        """
        if not isinstance(state, Mapping):
            raise InputError(
                "state: expected the tensors of `MemoryIndex.state_dict()` by name, got "
                f"{type(state).__name__}; give these"
            )
        lacking = [name for name in REQUIRED_PARTS if name not in state]
        known = {*REQUIRED_PARTS, *OPTIONAL_PARTS, *cls._learned_names()}
        strange = sorted(state.keys() - known)
        if lacking or strange:
            what = f"none of {lacking}" if lacking else f"also {strange}"
            raise InputError(
                f"state: expected the tensors of `MemoryIndex.state_dict()`, got {what:.200}; "
                "build the index anew"
            )
        check_buffers(state)
        return cls(state, config)

    def extra_repr(self) -> str:
        """Return a one-line summary."""
        atoms, dim = self.embeddings.shape
        size = sum(buffer.nbytes for buffer in self.buffers()) / 1e6
        modes = self.modes
        return (
            f"{self.config.name!r}, {atoms} atoms [{dim}], {self.num_nodes - atoms} concepts, "
            f"{self.graph.num_edges} edges, {0 if modes is None else len(modes)} modes, "
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
        return int(self.atom.shape[0])

    @property
    def time(self) -> Tensor:  # [A] float64
        """Seconds since the epoch, UTC; NaN if unknown."""
        return self.time_bits.view(torch.float64)

    @property
    def tensors(self) -> MemoryTensors:
        """Tensors that ranking reads; the same object while the buffers are, for its caches."""
        listed = self._listed  # read first: another thread may fill the buffers from it
        parts = self._parts
        if torch.compiler.is_exporting():  # the placeholders for buffers must not be cached
            return memory_tensors(parts, listed)
        if self._read is None or not same_buffers(self._read[0], parts):
            with torch.inference_mode(False):  # a later call may need gradients
                memory = memory_tensors(parts, listed)
            self._read = parts, memory if self._part is None else memory.within(self._part)
        return self._read[1]

    def as_part(self, part: Part) -> MemoryIndex:
        """Return this index as a shard; with peers all call `forward` at once, for own hits."""
        other = copy.copy(self)
        other._part = part
        return other

    def _settle(self) -> None:
        """Turn listed parts into buffers."""
        if (listed := self._listed) is not None:
            for name, part in listed.to_tensors().items():
                setattr(self, name, part)
            self._listed = None

    def all_tensors(self) -> dict[str, Tensor]:
        """Return the tensors that `named_buffers` returns, and leave listed parts listed.

        Paths that another thread reads number the edges of the listed graph.
        """
        listed = self._listed  # read first: another thread may fill the buffers from it
        found = dict(super().named_buffers())
        return found if listed is None else found | listed.to_tensors()

    def named_buffers(self, *arguments: Any, **options: Any) -> Iterator[tuple[str, Tensor]]:
        """Return the named buffers of `nn.Module`, including listed parts."""
        self._settle()
        return super().named_buffers(*arguments, **options)

    def _save_to_state_dict(self, *arguments: Any) -> None:
        self._settle()
        super()._save_to_state_dict(*arguments)

    def _load_from_state_dict(self, *arguments: Any) -> None:
        self._settle()
        super()._load_from_state_dict(*arguments)
        self._read = None  # the buffers have other values now

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> MemoryIndex:
        if fn(torch.empty(0)).dtype != torch.float32:
            self._settle()  # only buffers can be rounded
        elif self._listed is not None:
            self._listed, self._read = self._listed.mapped(fn), None
        return super()._apply(fn, recurse)

    def follow_to(self, device: torch.device | str, kept: dict[str, RowsOnDevice]) -> None:
        """Move to `device`, reusing rows that an earlier index has moved there.

        Args:
            device: Target device.
            kept: Append-only rows already on the device, shared by all calls; only new rows are
                moved.
        """
        with torch.inference_mode(False):  # a later call may need gradients
            for name in _LARGEST:
                rows = self._buffers.get(name)
                if rows is not None and rows.device.type == "cpu":
                    setattr(self, name, kept.setdefault(name, RowsOnDevice(device)).of(rows))
            self.to(device)

    @property
    def graph(self) -> Graph:
        """The conducting graph of all N nodes."""
        return ((listed := self._listed) and listed.graph) or graph_of(self._parts)

    @property
    def modes(self) -> Modes | None:
        """The modes of the atoms; None unless the settings ask for them."""
        return modes_in(self._parts)

    @property
    def _parts(self) -> dict[str, Tensor]:
        return {name: part for name, part in self._buffers.items() if part is not None}

    @property
    def spreads(self) -> bool:
        """True if the graph is worth spreading over; otherwise it is a cold start."""
        return worth_spreading(self.graph, self.atom, self.num_atoms, self.config.spread)

    def forward(
        self,
        query: QueryBatch,
        *,
        k: int | None = None,
        paths: bool = False,
        tile: int = _TILE,
        stages: Stages | None = None,
    ) -> Retrieval:
        """Rank the memories for B questions.

        Args:
            query: The questions; only the embeddings are required. A signal with missing input
                is 0.
            k: Hits per question; by default `rank.k` of the settings.
            paths: Whether to find the edges that led to each hit.
            tile: Floats of the largest temporary on a CPU; questions are ranked in tiles of it.
            stages: Records the duration of each stage and the atoms that it read.

        Raises:
            InputError: Shapes do not fit the index.
            ConfigError: The settings have no weights.
        """
        size, (own, count) = tile_elements(self.embeddings.device, tile), self._sized(query, k)
        if self.graphs.records and not (paths or stages or torch.compiler.is_compiling()):
            found = self.graphs.answer(*self._learned(), own, count, size)
            if found is not None:
                return found

        def answer(stages: Stages | None) -> Retrieval:
            return retrieve_checked(*self._learned(), own, count, size, paths, stages)

        if self.plan.fixed and not paths and not torch.compiler.is_compiling():
            return waiting_once(answer, stages)
        return answer(stages)

    def fix_shapes(self, fixed: bool = True) -> MemoryIndex:
        """Choose whether shapes and branches of `forward` depend on values; returns the index.

        With fixed shapes the host waits for a device once a batch, otherwise 13 times and more.
        Activation and hops are then computed for all nodes. Paths have shapes of their own.
        """
        self.plan, self._taken_up = replace(self.plan, fixed=fixed), None
        return self

    def capture(self, graphs: CapturedGraphs | None) -> MemoryIndex:
        """Answer questions by `graphs`, unless they ask for paths or gradients; returns itself."""
        self.graphs = NoGraphs() if graphs is None else graphs
        return self

    def prune(
        self,
        query: QueryBatch,
        plan: PlanBatch,
        events: Events | None = None,
        *,
        tile: int = _TILE,
    ) -> Pruned:
        """Return the atoms that a plan leaves for each of B questions (`rank.plan.prune`).

        Args:
            query: Questions, as for `forward`.
            plan: Plans of the questions.
            events: Events of the atoms that state one.
            tile: Floats of the largest temporary on a CPU.

        Raises:
            InputError: Shapes do not fit the index or each other.
        """
        plan.check(len(query))
        tiles = self._tiles(query, tile)
        parts = [prune(everyone, plan.rows(part), events) for part, everyone in tiles]
        return Pruned.joined(parts)

    def follow(
        self,
        asked: SuccessionBatch,
        best: Tensor,  # [B, n] int64, -1 = none
    ) -> Tensor:  # [B, P] int64, -1 = none
        """Return the atoms that recorded successions lead to (`rank.succession.follow`).

        Args:
            asked: Direction and terms of each question.
            best: The atoms that fit it, best first.

        Raises:
            InputError: Shapes do not fit each other.
        """
        asked.check(len(best))
        return follow(self.tensors, asked, best)

    def relevance(
        self,
        query: QueryBatch,
        rows: Tensor,  # [B, k] int64, -1 = none
    ) -> Tensor:  # [B, k]
        """Return the relevance of atoms to each question (`rank.relevance.relevance`).

        Args:
            query: Questions, as for `forward`.
            rows: Atoms of each question.

        Raises:
            InputError: Shapes do not fit the index.
        """
        own = self._sized(query, None)[0].checked(self.tensors.vocabulary)
        return relevance(self.tensors, own, rows)

    def _tiles(self, query: QueryBatch, tile: int) -> Iterator[tuple[slice, Candidates]]:
        """Yield parts of B questions, at least one, against every atom, within `tile` floats."""
        query = self._checked(query, None)[0]
        step = max(1, tile_elements(self.embeddings.device, tile) // max(1, self.num_atoms))
        for start in range(0, max(len(query), 1), step):
            part = slice(start, start + step)
            yield part, Candidates(self.tensors, query.rows(part), self.config)

    def score(self, query: QueryBatch, *, k: int | None = None) -> Tensor:  # [B, A]
        """Return the score of every atom for B questions, before the top k; differentiable.

        Scores equal those of `forward`. The gradient flows to every parameter that requires one and
        to `query.embedding`; activation and walks are then computed for all nodes. The choices of
        candidates, anchors and numbers of hops have no gradient: the score jumps where they
        change. Token vectors of a question must not require a gradient.

        Args:
            query: Questions, as for `forward`; they are not tiled, so they must fit in memory.
            k: Hits per question; in a large memory more hits have more candidates.

        Returns:
            Scores; minus infinity for atoms that are no candidates or may be no hits.

        Raises:
            InputError: Input does not fit, or a gradient would pass a signal without one.
        """
        found, values = self._signals(query, k)
        scores = found.scores(values, self._work(self.weights)).masked_fill(
            ~found.listed, -torch.inf
        )
        if found.rows is None:
            return scores
        # Padding goes to an extra last column.
        out = scores.new_full((len(scores), self.num_atoms + 1), -torch.inf)
        return out.scatter(1, found.rows % out.shape[1], scores)[:, :-1]

    def features(self, query: QueryBatch, *, k: int | None = None) -> Features:
        """Return the signal values of the candidates of B questions; differentiable as `score`.

        Raises:
            InputError: Input is not valid for `score`.
        """
        found, values = self._signals(query, k)
        rows, shape = found.rows, found.shape
        if rows is None:
            rows = torch.arange(shape[1], device=values.device).expand(shape)
        return Features(rows, values, found.form.expand(shape), found.listed.expand(shape))

    def _signals(self, query: QueryBatch, k: int | None) -> tuple[Candidates, Tensor]:
        found = self.candidates(query, k=k)
        return found, found.signals(self.signal_names)

    def candidates(self, query: QueryBatch, *, k: int | None = None) -> Candidates:
        """Return the candidates of B questions for k hits, whose signals `fit` learns from."""
        query, count = self._checked(query, k)
        memory, plan, weights = self._learned()
        return candidates_of(memory, plan, weights, query, count)

    def explain(self, query: QueryBatch, row: int, *, k: int | None = None) -> Explained:
        """Explain an atom's score for one question, as defined in `index.explain`.

        Args:
            query: One question.
            row: Row of the atom.
            k: Hits per question, as for `score`.

        Raises:
            InputError: The query is not one question, or there is no such atom.
        """
        if len(query) != 1 or not 0 <= row < self.num_atoms:
            raise InputError(
                f"query, row: expected one question and a row below {self.num_atoms}, got "
                f"{len(query)} and {row}; give one of each"
            )
        query, count = self._checked(query, k)
        with torch.inference_mode(False):  # inference mode has no gradients
            with torch.no_grad():
                memory, plan, weights = self._learned()
            return explain(memory, plan, weights, query, row, count)

    @classmethod
    def _learned_names(cls) -> set[str]:
        return {"weights", "edge_gains", *(f"constants.{name}" for name in CONSTANTS)}

    def _work(self, values: Tensor) -> Tensor:
        """Convert to the type of the arithmetic: float32, or float64 if the embeddings are."""
        return values.to(torch.promote_types(self.embeddings.dtype, torch.float32))

    @property
    def settings(self) -> Config:
        """Settings with the current weights, gains and constants.

        A gain counts for both directions of its type. An index built from them may keep other edges
        of a node where `spread.max_edges` cuts, because gains then take part in the choice.
        """
        config = self.config
        learned = weights_of(self.signal_names, self.weights.detach().cpu())
        gains = self.edge_gains.detach().tolist()
        edges, reverse = (
            {kind: gain * gains[EdgeType[kind.upper()]] for kind, gain in named.items()}
            for named in (config.spread.edges, config.spread.reverse)
        )
        constants: dict[str, Any] = {name: value.item() for name, value in self.constants.items()}
        cold = bool(config.rank.cold_weights) and not self.spreads
        rank = replace(config.rank, cold_weights=learned) if cold else None
        rank = rank or replace(config.rank, weights=learned)
        return replace(
            config,
            rank=rank,
            spread=replace(config.spread, edges=edges, reverse=reverse, **constants),
        )

    def _learned(self) -> tuple[MemoryTensors, ExecutionPlan, Tensor]:
        """Return memory, plan and weights with the current gains, constants and weights.

        Gains and constants are read once as numbers after a change, unless they require a gradient.

        Raises:
            ConfigError: The settings have no weights.
        """
        if not self.config.rank.weights:
            raise ConfigError(
                "rank.weights: expected weights of signals, got none; start from "
                "`load_config(preset, overrides)`, or `extends: default` in a file"
            )
        memory, weights = self.tensors, self._work(self.weights)
        own = (self.edge_gains, *self.constants.values())
        if torch.compiler.is_compiling() or needs_gradient(*own):
            constants = {name: self._work(value) for name, value in self.constants.items()}
            plan = replace(self.plan, constants=constants)
            return self._gained(memory, self.edge_gains), plan, weights
        # An inference tensor has no version counter, and no optimizer changes it.
        state = memory, *((each, 0 if each.is_inference() else each._version) for each in own)
        if self._taken_up is None or not same_state(self._taken_up[0], state):
            if not bool((self.edge_gains == 1).all()):
                memory = self._gained(memory, self.edge_gains.detach())
            self._taken_up = state, memory, self.plan.with_numbers(dict(self.constants))
        return *self._taken_up[1:], weights

    def _gained(self, memory: MemoryTensors, gains: Tensor) -> MemoryTensors:  # [14]
        """Return the memory with edges multiplied by their gains."""
        graph = memory.graph
        own = self._work(gains)[graph.type.long()]
        return memory.conducting(graph.with_weight(graph.weight * own))

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without lists and caches, which share tensors with the original."""
        self._settle()
        return {**self.__dict__, "_read": None, "_taken_up": None, "graphs": NoGraphs()}

    def _checked(self, query: QueryBatch, k: int | None) -> tuple[QueryBatch, int]:
        query, count = self._sized(query, k)
        return without_echoes(self.tensors, query.checked(self.tensors.vocabulary)), count

    def _sized(self, query: QueryBatch, k: int | None) -> tuple[QueryBatch, int]:
        """Return questions in the precision of the index, checking shapes, and hits of each."""
        count = self.config.rank.k if k is None else k
        check_count("k", count)
        if not isinstance(query, QueryBatch):
            raise InputError(
                f"query: expected a QueryBatch, got {type(query).__name__}; "
                "`Tensors.encode` makes one, or QueryBatch(embedding)"
            )
        atoms, dim = self.embeddings.shape
        speakers = len(self.named) if self._part is None else self._part.speakers
        query.check(dim=dim, atoms=atoms, speakers=speakers)
        return replace(query, embedding=self._work(query.embedding)), count
