"""Pairs of memories that may contradict or repeat each other: similar ones, and those with a key.

No pass over all pairs: linking has found the most similar memories of each one when it was added,
and a key (whose home, whose employer, a rare word) is shared by few. `docs/mathematics.md` 5.8.
"""

from __future__ import annotations

import threading

import torch
from torch import Tensor

from graphmem_torch.atoms import AGGREGATE, CONCEPT, Atom, EdgeType
from graphmem_torch.edges import EdgeBlock
from graphmem_torch.store.reader import StoreReader
from graphmem_torch.text.slots import Reading
from graphmem_torch.text.terms import STOP_WORDS, terms
from graphmem_torch.text.words import foreign

__all__ = ["SharedKeys", "similar_nodes"]

_TILE = 2048  # texts read at a time


class SharedKeys:
    """The keys of all memories of a store by node number; safe between threads.

    Texts are read once by whoever holds it, and then only those that were added.
    """

    def __init__(self) -> None:
        """Nothing is read before it is asked for."""
        self._lock = threading.Lock()
        self._number: dict[str, int] = {}
        self._key = torch.empty(0, dtype=torch.int64)
        self._node = torch.empty(0, dtype=torch.int64)
        self._of_slot: list[bool] = []  # by key: of a slot, else a word
        self._read_to = 0

    def pairs(
        self,
        store: StoreReader,
        start: int,
        *,
        shared: int,
        rare: int,
    ) -> Tensor:  # [2, P] int64, later node and earlier node, each pair once
        """Memories with a node from `start` on, with earlier ones of their keys.

        Two share a slot of one subject, or two words that at most `rare` memories have.

        Args:
            store: Of the memories.
            start: First node that is looked at.
            shared: Earlier memories of a key that are taken, the latest first.
            rare: As above.
        """
        with self._lock:
            self._read(store)
            key, node = self._key, self._node
            of_slot = torch.tensor(self._of_slot, dtype=torch.bool)
        if shared == 0 or not len(key):
            return torch.empty(2, 0, dtype=torch.int64)
        alive = torch.zeros(int(node.max()) + 1, dtype=torch.bool)
        present = store.nodes(concepts=False)
        alive[present[present < len(alive)]] = True
        key, node = key[alive[node]], node[alive[node]]
        asked = torch.zeros(len(of_slot), dtype=torch.bool)
        asked[key[node >= start]] = True
        count = torch.bincount(key, minlength=len(of_slot))
        asked &= of_slot | (count <= rare)
        key, node = key[asked[key]], node[asked[key]]
        order = (key * (int(node.max()) + 1) + node).argsort() if len(key) else key
        key, node = key[order], node[order]
        later, earlier, weight = [], [], []
        for step in range(1, min(shared, len(key) - 1) + 1):
            same = (key[step:] == key[:-step]) & (node[step:] >= start)
            later.append(node[step:][same])
            earlier.append(node[:-step][same])
            weight.append(1 + of_slot[key[step:][same]].long())
        if not later:
            return torch.empty(2, 0, dtype=torch.int64)
        pairs = torch.stack([torch.cat(later), torch.cat(earlier)])
        found, place = pairs.unique(dim=1, return_inverse=True)
        total = torch.zeros(found.shape[1], dtype=torch.int64)
        total.index_add_(0, place, torch.cat(weight))
        return found[:, total >= 2]

    def _read(self, store: StoreReader) -> None:
        """Takes in what was added."""
        with store.reading():
            stop = store.next_node
            fresh = store.nodes(self._read_to, concepts=False)
            keys, nodes = [self._key], [self._node]
            for part in fresh.split(_TILE):
                for node, atom in zip(part.tolist(), store.atoms(part.tolist()), strict=True):
                    own = self._keys_of(atom)
                    keys.append(torch.tensor(own, dtype=torch.int64))
                    nodes.append(torch.full((len(own),), node, dtype=torch.int64))
        self._key, self._node, self._read_to = torch.cat(keys), torch.cat(nodes), stop

    def _keys_of(self, atom: Atom) -> list[int]:
        if atom.kind in (AGGREGATE, CONCEPT):
            return []
        text = atom.rendered
        words = {self._numbered(f"w {term}", of_slot=False) for term in terms(text)}
        if foreign(text, STOP_WORDS):
            return sorted(words)
        slots = set()
        for state in Reading.of(text).states:
            for whose in state.subject:
                names = [f"= {value}" for value in state.value]
                if state.slot:
                    names.append(f"{state.slot} {' '.join(sorted(state.key))}".strip())
                slots |= {self._numbered(f"s {whose} {name}", of_slot=True) for name in names}
        return sorted(words | slots)

    def _numbered(self, name: str, *, of_slot: bool) -> int:
        found = self._number.get(name)
        if found is None:
            found = self._number[name] = len(self._number)
            self._of_slot.append(of_slot)
        return found


def similar_nodes(
    edges: EdgeBlock, start: int, *, least: float
) -> tuple[Tensor, Tensor]:  # [2, P] int64 later and earlier node, [P] cosine
    """Pairs that linking found to be similar, with a node from `start` on; each once."""
    known = (edges.type == int(EdgeType.SIMILARITY)) & (edges.weight >= least)
    ends = torch.stack([edges.source[known], edges.target[known]])
    later, earlier = ends.amax(0), ends.amin(0)
    fresh = (later >= start) & (later != earlier)
    pairs = torch.stack([later[fresh], earlier[fresh]])
    found, place = pairs.unique(dim=1, return_inverse=True)
    cosine = torch.full((found.shape[1],), -1.0)
    cosine.scatter_reduce_(0, place, edges.weight[known][fresh], "amax")
    return found, cosine
