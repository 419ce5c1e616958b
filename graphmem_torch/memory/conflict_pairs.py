"""Pairs of memories that may contradict or repeat each other: similar ones or with a shared key.

Avoids a pass over all pairs. Linking has already found the most similar memories of each new one. A
key is a statement's subject or a rare word, which few memories share. `docs/mathematics.md` 5.8.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from graphmem_torch.atoms import AGGREGATE, EdgeType
from graphmem_torch.coo import unique_pairs
from graphmem_torch.edges import EdgeBlock
from graphmem_torch.store.tensor_reader import TensorReader
from graphmem_torch.text.terms import terms

# The rules are loaded by what looks for contradictions: every memory has an object of this.
if TYPE_CHECKING:
    from graphmem_torch.judge.statements import Statements

__all__ = ["SharedKeys", "similar_nodes"]

_TILE = 2048  # texts read per batch


class SharedKeys:
    """Keys of all memories of a store by node number; safe between threads.

    Each text is read once in the lifetime of the object.
    """

    def __init__(self) -> None:
        """Start empty; `pairs` reads the store."""
        self._lock = threading.Lock()
        self._number: dict[str, int] = {}
        self._key = torch.empty(0, dtype=torch.int64)
        self._node = torch.empty(0, dtype=torch.int64)
        self._asks = torch.empty(0, dtype=torch.bool)  # whether it looks for earlier memories
        self._stated: list[bool] = []  # by key: True for a statement, False for a word
        self._read_to = 0

    def pairs(
        self,
        store: TensorReader,
        start: int,
        *,
        shared: int,
        rare: int,
    ) -> Tensor:  # [2, P] int64, later node and earlier node, each pair once
        """Return memories with a node from `start` on, paired with earlier ones that share keys.

        One of these must hold for a pair:

        - Both state something about one subject (`judge.contradiction.keys_of`).
        - The later one gives something up (`judge.suspicion.asked_words`) that the earlier one
          mentions.
        - They share two words that at most `rare` memories have.

        Args:
            store: Store of the memories.
            start: First node to pair.
            shared: Maximum earlier memories of a key; the latest come first.
            rare: Maximum memories with a rare word; 0: only statements count.
        """
        with self._lock:
            self._read(store)
            key, node, asks = self._key, self._node, self._asks
            stated = torch.tensor(self._stated, dtype=torch.bool)
        if shared == 0 or not len(key):
            return torch.empty(2, 0, dtype=torch.int64)
        alive = torch.zeros(int(node.max()) + 1, dtype=torch.bool)
        present = store.nodes(concepts=False)
        alive[present[present < len(alive)]] = True
        there = alive[node]
        key, node, asks = key[there], node[there], asks[there]
        shares = stated | (torch.bincount(key, minlength=len(stated)) <= rare)
        asked = torch.zeros(len(stated), dtype=torch.bool)
        asked[key[(node >= start) & (shares[key] | asks)]] = True
        kept = asked[key]
        key, node, asks = key[kept], node[kept], asks[kept]
        order = (key * (int(node.max()) + 1) + node).argsort() if len(key) else key
        key, node, asks = key[order], node[order], asks[order]
        later, earlier, weight = [], [], []
        for step in range(1, min(shared, len(key) - 1) + 1):
            same = (key[step:] == key[:-step]) & (node[step:] >= start)
            same &= shares[key[step:]] | asks[step:]
            later.append(node[step:][same])
            earlier.append(node[:-step][same])
            weight.append(1 + (stated[key[step:]] | asks[step:])[same].long())
        if not later:
            return torch.empty(2, 0, dtype=torch.int64)
        pairs = torch.stack([torch.cat(later), torch.cat(earlier)])
        found, place = unique_pairs(pairs)
        total = torch.zeros(found.shape[1], dtype=torch.int64)
        total.index_add_(0, place, torch.cat(weight))
        return found[:, total >= 2]

    def _read(self, store: TensorReader) -> None:
        """Read the keys of new memories."""
        from graphmem_torch.judge.statements import read_statements

        with store.reading():
            stop, fresh = store.next_node, store.nodes(self._read_to, concepts=False)
        keys, nodes, asks = [self._key], [self._node], [self._asks]
        for part in fresh.split(_TILE):
            with store.reading():
                there = store.present(part.tolist())
                atoms = zip(there, store.atoms(there), strict=True)
                texts = {node: atom.said for node, atom in atoms if atom.kind != AGGREGATE}
            # Parsing takes seconds: outside of the transaction.
            stated = read_statements([*texts.values()])
            own = [
                self._keys_of(text, each) for text, each in zip(texts.values(), stated, strict=True)
            ]
            count = torch.tensor([len(each) for each in own], dtype=torch.int64)
            keys.append(torch.tensor([key for each in own for key in each]).long())
            asks.append(torch.tensor([how for each in own for how in each.values()]).bool())
            nodes.append(torch.tensor([*texts]).long().repeat_interleave(count))
        self._key, self._node, self._read_to = torch.cat(keys), torch.cat(nodes), stop
        self._asks = torch.cat(asks)

    def _keys_of(self, text: str, stated: Statements) -> dict[int, bool]:
        """Return the keys of a text, each with whether it also searches earlier memories."""
        from graphmem_torch.judge.contradiction import keys_of
        from graphmem_torch.judge.suspicion import asked_words, owned_keys

        found = {self._numbered(f"w {term}", stated=False): False for term in terms(text)}
        told = {key for said in stated.propositions for key in keys_of(said)}
        told |= {key for said in stated.sketches for key in owned_keys(said)}
        found |= {self._numbered(f"s {key}", stated=True): True for key in told}
        gone = {word for said in stated.sketches for word in asked_words(said)}
        return found | {self._numbered(f"w {word}", stated=False): True for word in gone}

    def _numbered(self, name: str, *, stated: bool) -> int:
        found = self._number.get(name)
        if found is None:
            found = self._number[name] = len(self._number)
            self._stated.append(stated)
        return found


def similar_nodes(
    edges: EdgeBlock, start: int, *, min_cosine: float
) -> tuple[Tensor, Tensor]:  # [2, P] int64 later and earlier node, [P] cosine
    """Return pairs that linking found to be similar, with a node from `start` on; each once."""
    known = (edges.type == int(EdgeType.SIMILARITY)) & (edges.weight >= min_cosine)
    ends = torch.stack([edges.source[known], edges.target[known]])
    later, earlier = ends.amax(0), ends.amin(0)
    fresh = (later >= start) & (later != earlier)
    pairs = torch.stack([later[fresh], earlier[fresh]])
    found, place = unique_pairs(pairs)
    cosine = torch.full((found.shape[1],), -1.0)
    cosine.scatter_reduce_(0, place, edges.weight[known][fresh], "amax")
    return found, cosine
