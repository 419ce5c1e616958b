"""Finding memory types: by an oracle where there is one, else by the local rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from graphmem_torch.atoms import CONCEPT
from graphmem_torch.oracle import Classifier, ask_classifier
from graphmem_torch.store import MemoryStore
from graphmem_torch.text.memory_type import RULES, memory_types

__all__ = ["ASKED", "ORACLE", "Classified", "classify_nodes", "open_nodes"]

ORACLE = "oracle"
"""Names an oracle where its answers are kept."""

ASKED = 64
"""Atoms a call: what a failing oracle can lose, and a transaction."""


@dataclass(frozen=True)
class Classified:
    """What a `classify` did.

    Attributes:
        types: How many atoms were found to be of each type.
        failed: How many of them the oracle gave no usable answer for: the local rules found their
            type, and the next call asks again. What an oracle has said of them before stays.
    """

    types: Mapping[str, int] = field(default_factory=dict)
    failed: int = 0

    def __add__(self, other: Classified) -> Classified:
        """Both together."""
        types = Counter(self.types) + Counter(other.types)
        return Classified(dict(sorted(types.items())), self.failed + other.failed)


def open_nodes(store: MemoryStore) -> list[int]:
    """Nodes of the atoms whose type neither they themselves nor an oracle has said."""
    columns = store.columns()
    said = {node for node, _, _, source in store.life.found_types() if source == ORACLE}
    concept = columns.kind.names.index(CONCEPT) if CONCEPT in columns.kind.names else -1
    untyped = (columns.type.codes < 0) & (columns.kind.codes != concept)
    return [node for node in columns.node[untyped].tolist() if node not in said]


def classify_nodes(
    store: MemoryStore, classify: Classifier | None, nodes: Sequence[int]
) -> Iterator[Classified]:
    """Finds the types of nodes; yields what each call gave once it is stored.

    The oracle's answers are nodes of the published contract (`oracle.memory_node`): type and decay
    factor per hour are kept, the content stays as it was stored.

    Raises:
        StoreError: Read-only store or full disk; what earlier calls gave is kept.
    """
    for start in range(0, len(nodes), ASKED):
        store.expect_writable()
        part = list(nodes[start : start + ASKED])
        atoms = store.atoms(part)
        answers = (
            [None] * len(part)
            if classify is None
            else ask_classifier(classify, [atom.rendered for atom in atoms])
        )
        answered = {
            node: (str(answer["type"]), float(answer["decay_factor"]))
            for node, answer in zip(part, answers, strict=True)
            if answer is not None
        }
        left = [i for i, node in enumerate(part) if node not in answered]
        names = memory_types([atoms[i] for i in left])
        guessed = {part[i]: (name, None) for i, name in zip(left, names, strict=True)}
        store.life.set_found_types(answered, ORACLE)
        store.life.set_found_types(guessed, RULES, keep=ORACLE if classify else None)
        counts = Counter(name for name, _ in (*answered.values(), *guessed.values()))
        yield Classified(dict(sorted(counts.items())), len(left) if classify else 0)
