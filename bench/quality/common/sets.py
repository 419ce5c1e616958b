"""Sets of questions: memories, their questions, and the figure that represents the set."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from graphmem_torch.atoms import Atom
from graphmem_torch.config import Config
from graphmem_torch.evaluation.metrics import CUTOFFS
from graphmem_torch.text.embedder import Embedder

from .questions import Conversation, Question, read_conversations
from .scores import GROUPS
from .task import TURN, RetrievalTask, memory_of
from .texts import PassageSet

__all__ = ["QuestionSet", "locomo_set", "merged_passages", "passage_set"]
_PASSAGE = "passage"
_GOLD = 0.6  # maximum share of gold in the candidates of a cut set
_HOPS, _ONE = 1, 4  # LoCoMo's category numbers for questions that take several memories, and one


@dataclass(frozen=True, slots=True)
class QuestionSet:
    """Data set.

    Attributes:
        name: Name of the set.
        conversations: Memories with their questions; each is asked separately.
        kind: Kind of the candidate atoms; None for all.
        groups: Categories of the questions by name of a group; the first represents the set.
        cutoffs: Numbers of hits of the measures.
        at: Number of hits of the measure that represents the set.
        sources: Names of the sources; fitting treats sets that share one as one.
        measure: Name of the measure that represents the set.
        data_kind: Kind of data, such as "tables"; cross-validation leaves out whole kinds.
    """

    name: str
    conversations: tuple[Conversation, ...]
    kind: str | None = TURN
    groups: Mapping[str, tuple[int, ...]] = field(default_factory=lambda: GROUPS)
    cutoffs: tuple[int, ...] = CUTOFFS
    at: int = 10
    sources: frozenset[str] = frozenset()
    measure: str = "recall"
    data_kind: str = ""

    @property
    def conversational(self) -> bool:
        """Return whether the candidates are turns."""
        return self.kind == TURN

    def answerable(self) -> QuestionSet:
        """Return the set without questions that have no gold, and without empty conversations."""
        kept = (
            replace(one, questions=tuple(q for q in one.questions if q.gold))
            for one in self.conversations
        )
        return replace(self, conversations=tuple(one for one in kept if one.questions))

    def cut(self, atoms: int, questions: int, seed: int = 0) -> QuestionSet:
        """Return the set with at most so many candidates and questions with gold, drawn by a seed.

        Conversations stay whole, because turns are read beside each other. If the gold is more than
        60 % of the candidates, it is thinned with them, and questions without gold are dropped.
        """
        chance = random.Random(seed)
        if any(atom.session or atom.speaker for one in self.conversations for atom in one.atoms):
            return self
        (one,) = self.conversations
        asked = [question for question in one.questions if question.gold]
        asked = chance.sample(asked, min(questions, len(asked)))
        gold = list(dict.fromkeys(name for question in asked for name in question.gold))
        if len(gold) > _GOLD * atoms:
            gold = chance.sample(gold, int(_GOLD * atoms))
        others = [atom.id for atom in one.atoms if atom.id not in set(gold)]
        kept = {*gold, *chance.sample(others, min(len(others), max(0, atoms - len(gold))))}
        thinned = []
        for question in asked:
            grades = {name: grade for name, grade in question.grades.items() if name in kept}
            if grades:
                own = {"gold": tuple(grades), "relevance": tuple(grades.values())}
                thinned.append(replace(question, **own))
        left = tuple(atom for atom in one.atoms if atom.id in kept)
        return replace(self, conversations=(replace(one, atoms=left, questions=tuple(thinned)),))

    def tasks(self, config: Config, embedder: Embedder, device: str) -> Iterator[RetrievalTask]:
        """Yield the conversations with their memories, one at a time."""
        for conversation in self.conversations:
            with memory_of(conversation.atoms, config, embedder, device) as memory:
                yield RetrievalTask(conversation, memory, kind=self.kind)


def locomo_set(data: Path, *, evidence: Path | None = None, input: str = "raw") -> QuestionSet:
    """Return the conversations of a LoCoMo file; see `read_conversations`."""
    found = read_conversations(data, evidence=evidence, input=input)
    name = "locomo" if input == "raw" else f"locomo {input}"
    return QuestionSet(name, tuple(found), sources=frozenset({"locomo"}), data_kind="conversations")


def passage_set(passages: PassageSet) -> QuestionSet:
    """Return passages as atoms of one memory, each a document, with their questions."""
    atoms = tuple(
        Atom(id=f"{passages.name}:{i}", text=one.whole, kind=_PASSAGE)
        for i, one in enumerate(passages.passages)
    )
    questions = tuple(
        Question(
            one.text, _HOPS if len(one.gold) > 1 else _ONE, tuple(atoms[i].id for i in one.gold)
        )
        for one in passages.questions
    )
    return _passages(passages.name, atoms, questions, {passages.name})


def merged_passages(sets: Sequence[QuestionSet]) -> QuestionSet:
    """Return all passages of some sets as one memory without duplicates across sets."""
    first: dict[str, Atom] = {}
    stands: dict[str, str] = {}
    for one in sets:
        own: dict[str, int] = {}
        for atom in one.conversations[0].atoms:
            # A set may hold a text twice, one of which is gold: both stay.
            own[atom.text] = own.get(atom.text, 0) + 1
            text = f"{own[atom.text]} {atom.text}"
            stands[atom.id] = first.setdefault(text, atom).id
    questions = tuple(
        replace(question, gold=tuple(dict.fromkeys(stands[name] for name in question.gold)))
        for one in sets
        for question in one.conversations[0].questions
    )
    sources = frozenset[str]().union(*(one.sources for one in sets))
    return _passages("merged", tuple(first.values()), questions, sources)


def _passages(
    name: str,
    atoms: tuple[Atom, ...],
    questions: tuple[Question, ...],
    sources: set[str] | frozenset[str],
) -> QuestionSet:
    return QuestionSet(
        name,
        (Conversation(name, atoms, questions),),
        kind=_PASSAGE,
        groups={"all": (_HOPS, _ONE)},
        cutoffs=(2, 5, 10, 25),
        at=5,
        sources=frozenset(sources),
        data_kind="multi-hop",
    )
