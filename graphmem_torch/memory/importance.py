"""Importance: value of a memory, whatever the question (`docs/mathematics.md` 5.4).

It starts with the novelty of a memory, increases with use and decays in between. All memories are
weighed at once; only the effects of uses are stored.
"""

from __future__ import annotations

import torch
from torch import Tensor

from graphmem_torch.atoms import AGGREGATE
from graphmem_torch.config import RefineConfig
from graphmem_torch.index.module import MemoryIndex
from graphmem_torch.memory.decay import DecayState
from graphmem_torch.memory.index_builder import Snapshot
from graphmem_torch.ops.fading import DAY, fading
from graphmem_torch.store import MemoryStore
from graphmem_torch.store.insights import StoredImportance

__all__ = ["Importance", "initial_importance"]

# Rounded by hand on LoCoMo and LongMemEval: half of the turns hold 86 and 97 % of the evidence.
_QUESTION, _ASSISTANT, _TELLS_TIME, _BIAS = -0.5, -4.0, 1.0, -2.0

# The paper leaves its constants open (arXiv 2506.08098). Use increases importance and removes none
# (alpha = 1): the first use adds 0.15, many add at most 0.3.
_RETAINED, _ACCESS = 1.0, 0.3  # alpha, beta
_AGGREGATES = 0.1  # gamma: weight of the mean importance of a memory's aggregates
_ENDED = 0.5  # factor for a superseded memory: archived first, but still answers about the past


def initial_importance(index: MemoryIndex) -> Tensor:  # [A] float64
    """Return I_0 of memories that were never used: sigma(ln(1 + n) + cues - 2).

    n is the number of words that no earlier memory has, with the speaker's name. Cues are -0.5 for
    a question, -4 for words of an assistant and +1 for a mention of time.
    """
    memory = index.tensors
    first = memory.bm25.first_documents()
    fresh = torch.bincount(first[first >= 0].long(), minlength=index.num_atoms)
    score = (
        torch.log1p(fresh.double())
        + _QUESTION * (memory.is_question > 0.5)
        + _ASSISTANT * (memory.role < 0)
        + _TELLS_TIME * (memory.tells_time > 0.5)
    )
    return torch.sigmoid(score + _BIAS).cpu()


class Importance:
    """Importance of the memories of a store; safe between threads."""

    def __init__(self, store: MemoryStore, config: RefineConfig, decay: DecayState) -> None:
        """Keep the store and settings; reads on demand."""
        self._store, self._config, self._decay = store, config, decay

    def at(
        self,
        snapshot: Snapshot,
        now: float,
        ended: Tensor | None = None,  # [A] bool
    ) -> Tensor:  # [A] float64
        """Return the importance at a moment, seconds since the epoch UTC; halved if `ended`."""
        value = self._faded(snapshot, now)[0]
        made = _aggregates(snapshot)
        if made is not None:
            memory = snapshot.index.tensors
            source, target = memory.derived_source.cpu().long(), memory.derived_target.cpu().long()
            own = made[source]
            share, count = torch.zeros_like(value), torch.zeros_like(value)
            share.index_add_(0, target[own], value[source[own]])
            count.index_add_(0, target[own], torch.ones_like(value[source[own]]))
            value = value + _AGGREGATES * share / count.clamp(min=1.0)
        if ended is not None:
            value = torch.where(ended.cpu(), _ENDED * value, value)
        return value.clamp(max=1.0)

    def reinforce(self, snapshot: Snapshot, now: float) -> int:
        """Add the uses since the last call; returns the number of memories used.

        Raises:
            StoreError: Read-only store or full disk; nothing has changed then.
        """
        value, uses, since = self._faded(snapshot, now)
        nodes, counts = self._store.uses.counts()
        known = torch.isin(nodes, snapshot.node)
        row = torch.searchsorted(snapshot.node, nodes[known])
        fresh = (counts[known] - uses[row]).clamp(min=0)
        row, fresh, count = (each[fresh > 0] for each in (row, fresh, counts[known]))
        raised = _RETAINED * value[row] + _ACCESS * fresh / (fresh + 1)
        columns = (
            snapshot.node[row].tolist(),
            raised.clamp(max=1.0).tolist(),
            since[row].clamp(min=now).tolist(),  # the clock may go backwards
            count.tolist(),
        )
        self._store.insights.set_importance(
            [StoredImportance(*row) for row in zip(*columns, strict=True)]
        )
        return len(row)

    def _faded(self, snapshot: Snapshot, now: float) -> tuple[Tensor, Tensor, Tensor]:
        """Return each atom's decayed importance, its counted uses and their time, each [A]."""
        config, node = self._config, snapshot.node
        value = initial_importance(snapshot.index)
        if said := self._store.insights.said_importance():
            number, told = torch.tensor(said, dtype=torch.float64).unbind(1)
            there = torch.isin(number.long(), node)
            value[torch.searchsorted(node, number[there].long())] = told[there]
        since = self._decay.born(node)
        since = torch.where(since.isnan(), now, since)
        uses = torch.zeros(len(node), dtype=torch.int64)
        if kept := self._store.insights.importance():
            # Node numbers and seconds fit into float64, but not into float32.
            number, own, time, count = torch.tensor(kept, dtype=torch.float64).unbind(1)
            there = torch.isin(number.long(), node)
            row = torch.searchsorted(node, number[there].long())
            value[row], since[row], uses[row] = own[there], time[there], count[there].long()
        left = fading((now - since) / DAY, config.half_life_days)
        return config.base + (value - config.base) * left, uses, since

    def least(
        self,
        snapshot: Snapshot,
        now: float,
        ended: Tensor | None = None,  # [A] bool
        *,
        stop: int,
    ) -> list[int]:
        """Return nodes before `stop` to archive by the settings, the least important first.

        Pinned memories and aggregates stay. Of equal ones the one stored first goes first.
        """
        config, value = self._config, self.at(snapshot, now, ended)
        free, made = snapshot.node < stop, _aggregates(snapshot)
        if made is not None:
            free &= ~made
        memories = int(free.sum())
        free &= ~torch.isin(snapshot.node, torch.tensor(self._store.life.pinned_nodes()))
        rows = free.nonzero().flatten()
        rows = rows[value[rows].argsort(stable=True)]
        gone = int((value[rows] < config.prune_below).sum())
        if config.max_memories:
            gone = max(gone, memories - config.max_memories)
        return snapshot.node[rows[:gone]].tolist()


def _aggregates(snapshot: Snapshot) -> Tensor | None:  # [A] bool
    """Return which atoms are aggregates; None without any."""
    if AGGREGATE not in snapshot.kinds:
        return None
    kind: Tensor = snapshot.index.get_buffer("kind")
    return (kind == snapshot.kinds.index(AGGREGATE)).cpu()
