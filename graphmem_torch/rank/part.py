"""Part: values that a shard takes from the memory of all shards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from graphmem_torch.rank.peers import Peers
from graphmem_torch.rank.shared_hops import SharedHops

__all__ = ["Concepts", "Part"]


class Concepts(NamedTuple):
    """Concepts of a shard among those of all shards.

    Attributes:
        number: [N] int64, number of each node among the concepts of all, -1 = an atom.
        known, node: [K] int64, numbers of its concepts, ascending, and their nodes.
    """

    number: Tensor
    known: Tensor
    node: Tensor


@dataclass(frozen=True, eq=False)
class Part:
    """Values that a shard takes from the memory of all shards: A atoms of the shard, V terms.

    Attributes:
        atoms: Number of atoms of the whole memory.
        speakers: Number of speakers of the whole memory; the first are those of the shard.
        norm, idf: [A], [V], weights of the lexical index (`ops.bm25.BM25`).
        session_norm, session_idf: The same weights of the lexical index of its sessions.
        piece_df: [W] int32, number of atoms with each word piece; None without token vectors.
        length_trend: [2], as `MemoryTensors.length_trend`; None without token vectors.
        title_bearers: [A] int64, as `MemoryTensors.title_bearers`; None without documents.
        fan: [N] float32, number of edges that leave each node, with those of a concept to atoms of
            other shards; None: that of the graph.
        entity: Concepts that lend their activation to those of other shards; None: they do not.
        hops: Names that lead to documents of this shard; None if no shard has documents.
        peers: The shards that answer together; None: this one alone.
    """

    atoms: int
    speakers: int
    norm: Tensor
    idf: Tensor
    session_norm: Tensor
    session_idf: Tensor
    piece_df: Tensor | None = None
    length_trend: Tensor | None = None
    title_bearers: Tensor | None = None
    fan: Tensor | None = None
    entity: Concepts | None = None
    hops: SharedHops | None = None
    peers: Peers | None = None
