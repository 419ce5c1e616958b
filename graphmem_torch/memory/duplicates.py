"""Groups of memories that say the same, as reconciling found them, and their place in an index.

A memory that repeats an earlier one supports it (`docs/mathematics.md` 5.8). The graph has these
edges, so nothing else is stored and deleted memories leave their groups.

`ComparedContent.repeats` defines saying the same for reconciling, groups, `rank.unique` and
contexts. Groups and contexts also need a minimum cosine. Search by modes needs only equal text, of
any speaker (`TensorReader.first_nodes`), as in the published design.
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
"""Minimum cosine of duplicates whose words are equal."""

_SAYING = 2  # minimum content words: else every "thanks" would support another


@dataclass(frozen=True)
class ComparedContent:
    """Content of a memory, for comparison with another.

    Attributes:
        atom: The memory.
        words: `text.wording` of it.
        days: Days it mentions, as `text.times.told_days` resolves them at its time.
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
        """Key that is equal for memories that say the same: speaker, words and days agree.

        Every word and sign counts, in order (`text.wording`). Other words, or another order, are
        more often a new fact than the same one. "Yesterday" is another day each time.
        """
        return composed(self.atom.speaker or ""), self.words, self.days

    def repeats(self, other: ComparedContent) -> bool:
        """Return whether both say the same and have enough content words."""
        if self.content != other.content:
            return False
        content = {word for word in self.words if any(map(str.isalnum, word))} - STOP_WORDS
        return len(content) >= _SAYING


class DuplicateGroups:
    """Groups of a store; safe between threads. Each pair is compared once."""

    def __init__(self, store: TensorReader, min_cosine: float) -> None:
        """Start empty; reads on demand.

        Args:
            store: Store of the memories.
            min_cosine: Minimum cosine of duplicates whose texts differ.
        """
        self._store, self._least = store, min_cosine
        self._lock = threading.Lock()
        self._known: dict[tuple[int, int], bool] = {}  # by pair of nodes, whose texts never change
        self._found: tuple[str, list[list[int]]] | None = None

    def groups(self) -> list[list[int]]:
        """Return the groups of nodes that say the same, ascending; groups ordered by first node."""
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
        """Return whether the memories of a pair say the same, for pairs with both ends stored.

        `vectors` has a row for each of `atoms`.
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
        """Return each atom's group number, from 1, or 0 without a group; None without groups."""
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
    """Return the connected components of pairs."""
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
