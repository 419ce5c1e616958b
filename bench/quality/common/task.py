"""Retrieval task: one conversation with its memory, as all compared systems see it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

import torch
from torch import Tensor

from graphmem_torch.atoms import Atom, EdgeType
from graphmem_torch.config import Config, load_config
from graphmem_torch.edges import EdgeBlock
from graphmem_torch.graph import Graph
from graphmem_torch.memory import Memory, Scope
from graphmem_torch.progress import Progress
from graphmem_torch.rank.candidates import Candidates
from graphmem_torch.rank.query import QueryBatch
from graphmem_torch.results import QueryPlan, Result
from graphmem_torch.text.concepts import ConceptExtractor, load_concepts
from graphmem_torch.text.embedder import Embedder
from graphmem_torch.text.tokens import count_tokens

from .encoder import CachingEmbedder
from .questions import Conversation, Question
from .rankings import gold_tensor

__all__ = [
    "TURN",
    "RetrievalTask",
    "baseline_config",
    "build_tasks",
    "lift_facts",
    "memory_of",
    "undirected",
]
TURN = "turn"


class RetrievalTask:
    """Memory of one conversation, its candidates (the turns, in order) and its questions.

    The nodes of `graph` are the atoms, in the order of the index, then the concepts.

    Attributes:
        memory: Memory with the conversation's atoms.
        kind: Kind of the candidate atoms; None for all.
        ids: [T] atom ids of the turns.
        turns: [T] rows of the turns in the index.
        session: [T] session number of each turn, -1 = none.
        session_gold: [B, G] numbers of the sessions that hold the answers, -1 = padding.
        costs: [T] tokens of each rendered turn.
        gold: [B, G] positions of the answering turns of each question, -1 = padding.
        grades: [B, G] relevance of each of these, 0 for padding.
        evidence: Atom ids of the answering turns of each question.
        categories: [B] categories of the questions.
        asked: B questions, with their names and grades.
        questions: Texts of the questions.
        embeddings: [N, d] vectors of atoms and concepts.
        num_atoms: Number of atoms, A.
        concepts: [N - A] names of the concepts.
        age_hours: [N] from each atom's time to the latest; 0 if unknown.
    """

    def __init__(
        self, conversation: Conversation, memory: Memory, *, kind: str | None = TURN
    ) -> None:
        """Look up what the baselines need in the memory's store.

        Args:
            conversation: Conversation with questions.
            memory: Memory with its atoms.
            kind: Kind of the candidate atoms, instead of the turns; None for all atoms.
        """
        self.memory = memory
        self.kind = kind
        columns = memory.store.columns()
        nodes = columns.node.tolist()
        is_concept = columns.is_concept
        order = torch.cat([(~is_concept).nonzero(), is_concept.nonzero()]).squeeze(1)
        self.num_atoms = int((~is_concept).sum())
        stored = memory.store.atoms(nodes)
        atoms = [stored[i] for i in order.tolist()]
        self.concepts = [atom.text for atom in atoms[self.num_atoms :]]
        self.embeddings = memory.store.embeddings()[order].float()
        self.graph = _graph(memory.store.edges(), columns.node[order])
        self.age_hours = _age_hours(columns.time[order])

        candidates = enumerate(atoms[: self.num_atoms])
        rows = [i for i, atom in candidates if kind is None or atom.kind == kind]
        self.turns = torch.tensor(rows, dtype=torch.int64)
        self.ids = [atoms[i].id for i in rows]
        self.session = columns.session.codes[order][self.turns]
        self.costs = torch.tensor(count_tokens([atoms[i].rendered for i in rows]))
        self._fact, self._source = self._derivations()

        self._place = place = {name: position for position, name in enumerate(self.ids)}
        self._parts: dict[tuple[EdgeType, ...], Graph] = {}
        self.asked = conversation.questions
        self.questions = [question.text for question in self.asked]
        self._time = {question.text: question.time for question in self.asked}
        self.categories = torch.tensor([question.category for question in self.asked])
        self.evidence = [list(question.gold) for question in self.asked]
        self.gold = gold_tensor([[place[g] for g in gold] for gold in self.evidence])
        self.grades = _grades(self.gold, self.ids, self.asked)
        number = {name: code for code, name in enumerate(columns.session.names)}
        self.session_gold = gold_tensor(
            [[number[name] for name in question.sessions] for question in self.asked]
        )

    def __contains__(self, id: object) -> bool:
        """Return whether an atom is a candidate."""
        return id in self._place

    def encode(self, questions: Sequence[str]) -> QueryBatch:
        """Encode questions as tensors; those of the conversation get their times."""
        return self.memory.tensors.encode(questions, asked=[self._time.get(q) for q in questions])

    def retrieve(
        self,
        questions: Sequence[str],
        k: int,
        *,
        plan: bool | Sequence[QueryPlan | None] | None = None,
    ) -> list[Result]:
        """Return the memory's hits for some of the questions, each asked at its time.

        Args:
            questions: B questions.
            k: Hits of each.
            plan: One for all or for each, as `Memory.retrieve` takes it.
        """
        each = [plan] * len(questions) if plan is None or isinstance(plan, bool) else plan
        plans = dict(zip(questions, each, strict=True))
        kinds, results = None if self.kind is None else [self.kind], {}
        for asked in dict.fromkeys(self._time.get(question) for question in questions):
            part = [question for question in questions if self._time.get(question) == asked]
            own = None if plan is None else [plans[question] for question in part]
            scope = Scope(kinds=kinds, asked=asked, plan=own)
            found = self.memory.retrieve(part, k=k, scope=scope)
            results |= dict(zip(part, found, strict=True))
        return [results[question] for question in questions]

    def candidates(self, questions: Sequence[str]) -> Candidates:
        """Return all atoms as candidates for some questions; signals are computed lazily."""
        index = self.memory.index
        return Candidates(index.tensors, self.encode(questions), index.config)

    def adopt(self, config: Config) -> None:
        """Replace weights and gate; settings that the graph was built with stay."""
        self.memory._state.config = config
        self.memory.learning.use_weights(config.rank.weights)

    def undirected(self, *types: EdgeType) -> Graph:
        """Return the edges of some types (all by default) as an undirected graph; cached."""
        if types not in self._parts:
            kinds = torch.tensor([int(kind) for kind in types or EdgeType], dtype=torch.uint8)
            self._parts[types] = undirected(self.graph.select(torch.isin(self.graph.type, kinds)))
        return self._parts[types]

    @cached_property
    def extractor(self) -> ConceptExtractor:
        """Return the extractor of the conversation's concepts, for those of the questions."""
        return load_concepts(self.memory.config.link.concepts)

    def of_turns(self, scores: Tensor) -> Tensor:  # [B, A or N] -> [B, T]
        """Return the scores of the turns, each raised to the best of the facts derived from it."""
        return lift_facts(scores.cpu(), self.turns, self._fact, self._source)

    def positions(self, ranked: Sequence[Sequence[str]]) -> Tensor:  # [B, K] int64
        """Return the positions of ranked ids among the turns, -1 = padding, without other atoms."""
        rows = [
            torch.tensor([self._place[i] for i in ids if i in self._place], dtype=torch.int64)
            for ids in ranked
        ]
        return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=-1)

    def by_session(self, ranking: Tensor) -> Tensor:  # [B, K] turns -> [B, S] sessions
        """Return the sessions in the order of their first turns in a ranking, -1 = padding."""
        found = self.session[ranking.clamp(min=0)].masked_fill(ranking < 0, -1)
        rows = [
            torch.tensor([number for number in dict.fromkeys(row) if number >= 0])
            for row in found.tolist()
        ]
        return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=-1).long()

    def _derivations(self) -> tuple[Tensor, Tensor]:
        """Return the rows of facts, and the position among the turns of each fact's source."""
        position = torch.full((self.graph.num_nodes,), -1, dtype=torch.int64)
        position[self.turns] = torch.arange(len(self.turns))
        derived = self.graph.type == int(EdgeType.DERIVED_FROM)
        source = self.graph.source[derived].long()
        target = position[self.graph.target[derived].long()]
        kept = (target >= 0) & (position[source] < 0)
        return source[kept], target[kept]


def _grades(gold: Tensor, ids: Sequence[str], asked: Sequence[Question]) -> Tensor:  # [B, G]
    """Return the grades of gold candidates [B, G], in its order."""
    rows = [
        [question.grades[ids[place]] if place >= 0 else 0.0 for place in places]
        for places, question in zip(gold.tolist(), asked, strict=True)
    ]
    return torch.tensor(rows, dtype=torch.float64).view(gold.shape)


def memory_of(
    atoms: Sequence[Atom],
    config: Config,
    embedder: Embedder,
    device: str,
    *,
    concepts: str | ConceptExtractor | None = None,
) -> Memory:
    """Return an in-memory `Memory` filled with some atoms."""
    memory = Memory.open(None, config=config, embedder=embedder, concepts=concepts, device=device)
    memory.add(atoms)
    return memory


def build_tasks(
    conversations: Sequence[Conversation],
    config: Config,
    encoder: CachingEmbedder,
    device: str,
    progress: bool,
    *,
    kind: str | None = TURN,
) -> tuple[list[RetrievalTask], float]:
    """Build a memory for each conversation; also return the seconds without encoding.

    Cached concepts cost next to nothing, too.

    Args:
        conversations: Conversations with their questions.
        config: Settings of the memories.
        encoder: Caching encoder.
        device: Device of the indices.
        progress: Whether to show a bar.
        kind: Kind of the candidate atoms, None for all.
    """
    tasks, seconds = [], 0.0
    concepts = encoder.extractor(config.link.concepts)
    for conversation in Progress(conversations, "memories", shown=progress):
        start, encoding = time.perf_counter(), encoder.seconds
        with encoder.caching():
            memory = memory_of(conversation.atoms, config, encoder, device, concepts=concepts)
            memory.index  # noqa: B018 - built lazily
        seconds += time.perf_counter() - start - (encoder.seconds - encoding)
        tasks.append(RetrievalTask(conversation, memory, kind=kind))
    return tasks, seconds


def baseline_config(config: Config) -> Config:
    """Return the settings of all baselines: `default`, with the preset's encoder and concepts."""
    shared = load_config("default")
    link = replace(shared.link, concepts=config.link.concepts)
    return replace(shared, embedder=config.embedder, link=link)


def _graph(edges: EdgeBlock, nodes: Tensor) -> Graph:
    """Return the stored edges between rows; `nodes` [N] gives the node number of each row."""
    row = torch.full((int(nodes.max()) + 1 if len(nodes) else 0,), -1, dtype=torch.int64)
    row[nodes] = torch.arange(len(nodes))
    index = torch.stack([row[edges.source], row[edges.target]])
    return Graph.from_edges(index, edges.weight, type=edges.type, num_nodes=len(nodes))


def _age_hours(time: Tensor) -> Tensor:  # [N] seconds, NaN = unknown -> [N] hours
    known = time[~torch.isnan(time)]
    if len(known) == 0:
        return torch.zeros_like(time)
    return ((known.max() - time) / 3600.0).nan_to_num(nan=0.0)


def lift_facts(
    scores: Tensor,  # [B, M] scores of all atoms, facts included
    turns: Tensor,  # [N] which of the M atoms are turns
    fact: Tensor,  # [L] atom number of a fact, one entry per link
    source: Tensor,  # [L] position in `turns` of the turn it was derived from
) -> Tensor:  # [B, N]
    """Return the scores of the turns, each raised to the best of the facts derived from it."""
    own = scores[:, turns]
    if len(fact) == 0:
        return own
    where = source.expand(len(scores), -1)
    return own.scatter_reduce(1, where, scores[:, fact], reduce="amax", include_self=True)


def undirected(graph: Graph) -> Graph:
    """Return the graph with every edge in both directions, by |weight|; parallel edges merge."""
    index = graph.edge_index
    both = torch.cat([index, index.flip(0)], dim=1)
    weight = graph.weight.abs().repeat(2)
    return Graph.from_edges(both, weight, num_nodes=graph.num_nodes)
