"""Groups of memories that say the same, as reconciling found them, and their place in an index.

A memory that says again what an earlier one says supports it (`docs/mathematics.md` 5.8), so the
groups are in the graph: nothing else is kept of them, and what is deleted leaves them.

`ComparedContent.repeats` is the definition of saying the same; reconciling, groups, `rank.unique`
and contexts use it. Groups and contexts also ask for a cosine. Search by modes asks for less, equal
text whoever says it (`TensorReader.first_nodes`), as the design that it follows prints it.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from graphmem_torch.atoms import AGGREGATE, Atom, EdgeType
from graphmem_torch.memory.index_builder import Snapshot
from graphmem_torch.store.tensor_reader import TensorReader
from graphmem_torch.text.terms import STOP_WORDS
from graphmem_torch.text.times import told_days
from graphmem_torch.text.unicode_forms import composed
from graphmem_torch.text.wording import wording

__all__ = ["DUPLICATE_COSINE", "ComparedContent", "DuplicateGroups"]

DUPLICATE_COSINE = 0.75
"""Cosine from which memories that say the same word for word are duplicates."""

_SAYING = 2  # content words of a text that says something: every "thanks" would support another


@dataclass(frozen=True)
class ComparedContent:
    """Content of a memory, to be compared with that of another one.

    Attributes:
        atom: The memory.
        words: `text.wording` of it.
        days: Days that it tells of, as `text.times.told_days` reads them from when it was said.
    """

    atom: Atom
    words: tuple[str, ...]
    days: tuple[int, int]

    @classmethod
    def of(cls, atom: Atom) -> ComparedContent:
        """Read the content of a memory."""
        return cls(atom, wording(atom.whole), told_days(atom.whole, atom.time))

    @property
    def content(self) -> Hashable:
        """Equal for memories that say the same: of one speaker, in the same words, of one day.

        Every word and sign counts, in its order (`text.wording`): another word is another fact more
        often than another word for the same, and so are the same words in another order.
        "Yesterday" is another day each time.
        """
        return composed(self.atom.speaker or ""), self.words, self.days

    def repeats(self, other: ComparedContent) -> bool:
        """Whether both say the same, and say something."""
        if self.content != other.content:
            return False
        content = {word for word in self.words if any(map(str.isalnum, word))} - STOP_WORDS
        return len(content) >= _SAYING


class DuplicateGroups:
    """The groups of a store; safe between threads. Pairs are looked at once."""

    def __init__(self, store: TensorReader, least: float) -> None:
        """Read nothing yet.

        Args:
            store: Store of the memories.
            least: Minimum cosine of duplicates whose texts differ.
        """
        self._store, self._least = store, least
        self._lock = threading.Lock()
        self._known: dict[tuple[int, int], bool] = {}  # by pair of nodes; their texts never change
        self._found: tuple[str, list[list[int]]] | None = None

    def groups(self) -> list[list[int]]:
        """Nodes that say the same, ascending in each group; the groups by their first one."""
        store = self._store
        with self._lock:
            if self._found is not None and self._found[0] == store.state:
                return self._found[1]
        with store.reading():
            state, edges = store.state, store.connected_edges()
            own = edges.take(edges.type == int(EdgeType.SUPPORTS))
            pairs = torch.stack([own.source, own.target]).sort(0).values.unique(dim=1)
            fresh = [pair for pair in zip(*pairs.tolist(), strict=True) if pair not in self._known]
            nodes = store.present(sorted({node for pair in fresh for node in pair}))
            atoms = dict(zip(nodes, store.atoms(nodes), strict=True))
            vectors = store.vectors(nodes, tokens=False).embeddings
        told = self._told(fresh, atoms, vectors)
        with self._lock:
            self._known |= told
            kept = [self._known.get(pair, False) for pair in zip(*pairs.tolist(), strict=True)]
            found = _components(pairs[:, torch.tensor(kept, dtype=torch.bool)])
            self._found = state, found
        return found

    def _told(
        self,
        pairs: Sequence[tuple[int, int]],
        atoms: Mapping[int, Atom],
        vectors: Tensor,  # [n, d]
    ) -> dict[tuple[int, int], bool]:
        """Return whether the memories of a pair say the same, for pairs that are both there.

        `vectors` are those of `atoms`, in their order.
        """
        there = [pair for pair in pairs if pair[0] in atoms and pair[1] in atoms]
        if not there:
            return {}
        said = {
            node: ComparedContent.of(atoms[node])
            for node in {node for pair in there for node in pair}
            if atoms[node].kind != AGGREGATE
        }
        row = {node: number for number, node in enumerate(atoms)}
        one, other = vectors[torch.tensor([[row[a], row[b]] for a, b in there]).T]
        cosine = (one * other).sum(1)
        return {
            (one, other): one in said
            and other in said
            and said[one].repeats(said[other])
            and (near >= self._least or atoms[one].rendered == atoms[other].rendered)
            for (one, other), near in zip(there, cosine.tolist(), strict=True)
        }

    def column(self, snapshot: Snapshot) -> Tensor | None:  # [A] int64
        """The number of each atom's group, from 1, 0 where it is in none; None: there are none."""
        groups = self.groups()
        if not groups:
            return None
        size = torch.tensor([len(group) for group in groups])
        number = torch.arange(1, len(groups) + 1).repeat_interleave(size)
        node = torch.tensor([node for group in groups for node in group])
        found = torch.zeros(len(snapshot.node), dtype=torch.int64)
        place = torch.searchsorted(snapshot.node, node).clamp(max=max(0, len(found) - 1))
        there = snapshot.node[place] == node
        found[place[there]] = number[there]
        return found


def _components(pairs: Tensor) -> list[list[int]]:  # [2, P]
    """What pairs join, directly or by others."""
    if not pairs.shape[1]:
        return []
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    node, place = pairs.unique(return_inverse=True)
    one, other = place.numpy()
    joined = coo_array((np.ones(len(one)), (one, other)), shape=(len(node), len(node)))
    label = connected_components(joined, directed=False)[1]
    order = np.argsort(label, kind="stable")
    cuts = np.flatnonzero(np.diff(label[order])) + 1
    parts = [part.tolist() for part in np.split(node.numpy()[order], cuts)]
    return sorted(parts)
