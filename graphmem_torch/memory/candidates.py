"""Pairs of memories that may contradict or repeat each other: similar ones, and those with a key.

No pass over all pairs: linking has found the most similar memories of each one when it was added,
and a key (whose home, whose employer, a rare word) is shared by few. `docs/mathematics.md` 5.8.
"""

from __future__ import annotations

import threading

import torch
from torch import Tensor

from graphmem_torch.atoms import AGGREGATE, EdgeType
from graphmem_torch.coo import unique_pairs
from graphmem_torch.edges import EdgeBlock
from graphmem_torch.store.reader import StoreReader
from graphmem_torch.text.entailment import read_text
from graphmem_torch.text.screen import ConflictScreen
from graphmem_torch.text.terms import terms

__all__ = ["SharedKeys", "similar_nodes"]

_TILE = 2048  # texts read at a time


class SharedKeys:
    """The keys of all memories of a store by node number; safe between threads.

    Also what of each may be in conflict with another (`ConflictScreen`). Texts are read once by
    whoever holds it, and then only those that were added.
    """

    def __init__(self) -> None:
        """Nothing is read before it is asked for."""
        self._lock = threading.Lock()
        self._number: dict[str, int] = {}
        self._key = torch.empty(0, dtype=torch.int64)
        self._node = torch.empty(0, dtype=torch.int64)
        self._of_slot: list[bool] = []  # by key: of a slot, else a word
        self._screen = ConflictScreen()
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
        found, place = unique_pairs(pairs)
        total = torch.zeros(found.shape[1], dtype=torch.int64)
        total.index_add_(0, place, torch.cat(weight))
        return found[:, total >= 2]

    def suspects(self, pairs: Tensor) -> tuple[Tensor, Tensor, Tensor]:  # [2, P] -> [P] bool each
        """Of pairs of nodes that were read: which may be compared, and which may be conflicts.

        Returns:
            there: Both are memories, and no aggregates.
            by_state: Their states may be at odds.
            by_words: Their words may be, if they are about the same.
        """
        with self._lock:
            there = self._screen.known(pairs).all(0)
            by_state = self._screen.by_state(pairs)
            return there, by_state, self._screen.by_words(pairs)

    def _read(self, store: StoreReader) -> None:
        """Takes in what was added."""
        with store.reading():
            stop = store.next_node
            fresh = store.nodes(self._read_to, concepts=False)
            keys, nodes = [self._key], [self._node]
            for part in fresh.split(_TILE):
                atoms = zip(part.tolist(), store.atoms(part.tolist()), strict=True)
                texts = {node: atom.rendered for node, atom in atoms if atom.kind != AGGREGATE}
                self._screen.add([*texts], [*texts.values()], stop=stop)
                own = [self._keys_of(text) for text in texts.values()]
                count = torch.tensor([len(each) for each in own], dtype=torch.int64)
                keys.append(torch.tensor([key for each in own for key in each]).long())
                nodes.append(torch.tensor([*texts]).long().repeat_interleave(count))
        self._key, self._node, self._read_to = torch.cat(keys), torch.cat(nodes), stop

    def _keys_of(self, text: str) -> list[int]:
        words = {self._numbered(f"w {term}", of_slot=False) for term in terms(text)}
        read = read_text(text)
        slots = set()
        for state in read[1].states if read else ():
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
    found, place = unique_pairs(pairs)
    cosine = torch.full((found.shape[1],), -1.0)
    cosine.scatter_reduce_(0, place, edges.weight[known][fresh], "amax")
    return found, cosine
