"""One conversation with its memory, as the systems under comparison see it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor

from graphmem_torch.atoms import EdgeType
from graphmem_torch.config import Config
from graphmem_torch.edges import EdgeBlock
from graphmem_torch.evaluation.metrics import gold_tensor
from graphmem_torch.graph import Graph
from graphmem_torch.memory import Memory
from graphmem_torch.rank.scope import Scope
from graphmem_torch.text.concepts import ConceptExtractor, load_concepts
from graphmem_torch.text.tokens import count_tokens

from .baselines import lift_facts, undirected
from .questions import Conversation

__all__ = ["TURN", "Arena"]
TURN = "turn"


class Arena:
    """The memory of one conversation, its candidates (the turns, in order) and its questions.

    The nodes of `graph` are the atoms, in the order of the index, then the concepts.

    Attributes:
        memory: Filled with the conversation's atoms.
        ids: [T] atom ids of the turns.
        turns: [T] rows of the turns in the index.
        session: [T] session number of each turn.
        costs: [T] tokens of each turn as it is shown.
        gold: [B, G] positions among the turns of what answers each question, -1 = padding.
        evidence: Atom ids of the same, for each question.
        categories: [B] categories of the questions.
        questions: B questions.
        embeddings: [N, d] vectors of atoms and concepts.
        num_atoms: A.
        concepts: [N - A] names of the concepts.
        age_hours: [N] from each atom's time to the latest; 0 where unknown.
    """

    def __init__(self, conversation: Conversation, memory: Memory, *, kind: str = TURN) -> None:
        """Look up what the baselines need in the memory's store.

        Args:
            conversation: What is asked.
            memory: Filled with its atoms.
            kind: Of the atoms that are candidates, instead of the turns.
        """
        self.memory = memory
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

        rows = [i for i, atom in enumerate(atoms) if atom.kind == kind]
        self.turns = torch.tensor(rows, dtype=torch.int64)
        self.ids = [atoms[i].id for i in rows]
        self.session = columns.session.codes[order][self.turns]
        self.costs = torch.tensor(count_tokens([atoms[i].rendered for i in rows]))
        self._fact, self._source = self._derivations()

        self._place = place = {name: position for position, name in enumerate(self.ids)}
        self._parts: dict[tuple[EdgeType, ...], Graph] = {}
        self.questions = [question.text for question in conversation.questions]
        self.categories = torch.tensor([q.category for q in conversation.questions])
        self.evidence = [list(question.gold) for question in conversation.questions]
        self.gold = gold_tensor([[place[g] for g in gold] for gold in self.evidence])

    def scope(self, questions: Sequence[str]) -> Scope:
        """The signals of all atoms for some questions, each computed when it is first asked for."""
        return Scope(self.memory.index, self.memory.encode_questions(questions))

    def adopt(self, config: Config) -> None:
        """Go on with other weights and another gate; what the graph was built with stays."""
        self.memory.config = config
        self.memory.use_weights(config.rank.weights)

    def undirected(self, *types: EdgeType) -> Graph:
        """The edges of some types (of all when none is named), usable both ways; made once."""
        if types not in self._parts:
            kinds = torch.tensor([int(kind) for kind in types or EdgeType], dtype=torch.uint8)
            self._parts[types] = undirected(self.graph.select(torch.isin(self.graph.type, kinds)))
        return self._parts[types]

    @cached_property
    def extractor(self) -> ConceptExtractor:
        """What found the concepts of the conversation, for those of the questions."""
        return load_concepts(self.memory.config.link.concepts)

    def of_turns(self, scores: Tensor) -> Tensor:  # [B, A or N] -> [B, T]
        """Scores of the turns, each raised to the best of the facts derived from it."""
        return lift_facts(scores.cpu(), self.turns, self._fact, self._source)

    def positions(self, ranked: Sequence[Sequence[str]]) -> Tensor:  # [B, K] int64
        """Positions among the turns of ranked atom ids, -1 = padding; other atoms are left out."""
        rows = [
            torch.tensor([self._place[i] for i in ids if i in self._place], dtype=torch.int64)
            for ids in ranked
        ]
        return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=-1)

    def _derivations(self) -> tuple[Tensor, Tensor]:
        """Rows of facts, and the position among the turns of what they were derived from."""
        position = torch.full((self.graph.num_nodes,), -1, dtype=torch.int64)
        position[self.turns] = torch.arange(len(self.turns))
        derived = self.graph.type == int(EdgeType.DERIVED_FROM)
        source = self.graph.source[derived].long()
        target = position[self.graph.target[derived].long()]
        kept = (target >= 0) & (position[source] < 0)
        return source[kept], target[kept]


def _graph(edges: EdgeBlock, nodes: Tensor) -> Graph:
    """The stored edges between rows; `nodes` [N] gives the node number of each row."""
    row = torch.full((int(nodes.max()) + 1 if len(nodes) else 0,), -1, dtype=torch.int64)
    row[nodes] = torch.arange(len(nodes))
    index = torch.stack([row[edges.source], row[edges.target]])
    return Graph.from_edges(index, edges.weight, type=edges.type, num_nodes=len(nodes))


def _age_hours(time: Tensor) -> Tensor:  # [N] seconds, NaN = unknown -> [N] hours
    known = time[~torch.isnan(time)]
    if len(known) == 0:
        return torch.zeros_like(time)
    return ((known.max() - time) / 3600.0).nan_to_num(nan=0.0)
