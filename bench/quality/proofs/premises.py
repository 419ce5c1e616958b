"""Premise chains: predict the nodes that a new statement will depend on.

A new statement has no edges yet. Its most similar statements do, and their dependencies probably
are its own (k nearest neighbours over sets). The weight of each similarity is learned from other
statements of the same graph, each removed in turn as if it were new.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from graphmem_torch.checks import check_count
from graphmem_torch.errors import InputError
from graphmem_torch.linalg.logistic import Logistic, fit_logistic
from graphmem_torch.spectral.link_prediction import sparse_product

__all__ = ["ChainModel", "chain_signals", "fit_chains"]
_FLOOR = 3e-3  # minimum share of votes before its logarithm
_STEEP = 8  # exponent of a vote in similarity over the best similarity
_TILE = 64  # questions whose signals are in memory at once


@dataclass(frozen=True, eq=False)
class ChainModel:
    """Probabilities that nodes belong to the chain of a new statement.

    Attributes:
        logistic: Weights of the signals.
        chains: `[N, N]`; row i is 1 on the chain of i.
        neighbours: Number of statements that vote.
    """

    logistic: Logistic
    chains: Tensor
    neighbours: int

    def probability(
        self,
        relevance: Tensor,  # [K, B, N]
        allowed: Tensor,  # [B, N] bool
    ) -> Tensor:  # [B, N], 0 where not allowed
        """Return the probability of each node to be in the chain of each question.

        Args:
            relevance: K kinds of similarity of question and node, as in the fit.
            allowed: Nodes that may be in the chain, and whose chains may vote.
        """
        parts = [
            self.logistic.probability(
                chain_signals(
                    self.chains, relevance[:, run], allowed[run], neighbours=self.neighbours
                )
            )
            for run in _runs(allowed)
        ]
        found = torch.cat(parts) if parts else torch.zeros_like(allowed, dtype=torch.float32)
        return found.masked_fill(~allowed, 0.0)


def chain_signals(
    chains: Tensor,  # [N, N], 1 on the chain of each node
    relevance: Tensor,  # [K, B, N]
    allowed: Tensor,  # [B, N] bool
    *,
    neighbours: int = 20,
) -> Tensor:  # [B, N, F]
    """Return signals for each node to be in the chain of each question.

    These are the log odds of being in an allowed statement's chain, and for each kind of
    similarity: the similarity itself, and the share of votes of the nearest statements, each for
    itself and for its chain, plain and as log odds.
    """
    voters = allowed.float()
    share = (voters @ chains + 0.3) / (voters.sum(1, keepdim=True) + 1)
    found = [share.clamp(max=1 - 1e-4).logit()]
    for likeness in relevance:
        best = likeness.masked_fill(~allowed, -torch.inf).topk(min(neighbours, chains.shape[0]), 1)
        top = best.values.clamp(min=0)
        vote = (top / top[:, :1].clamp(min=1e-9)).pow(_STEEP)
        vote = vote / vote.sum(1, keepdim=True).clamp(min=1e-9)
        spread = torch.zeros_like(likeness).scatter_(1, best.indices, vote)
        votes = (spread + sparse_product(spread, chains)).clamp(max=1.0)
        found += [likeness, votes, (votes + _FLOOR).log(), (1 - votes + _FLOOR).log()]
    return torch.stack(found, dim=2)


def fit_chains(
    chains: Tensor,  # [N, N]
    nodes: Tensor,  # [T] int64
    relevance: Tensor,  # [K, T, N]
    allowed: Tensor,  # [T, N] bool
    *,
    neighbours: int = 20,
    penalty: float = 1e-3,
) -> ChainModel:
    """Fit the signal weights to statements whose chain is known.

    Args:
        chains: Row i is 1 on the chain of i, 0 elsewhere.
        nodes: Statements to learn from, each as if it were new.
        relevance: K kinds of similarity of their texts to all nodes.
        allowed: Remaining nodes without each of them and everything that depends on it.
        neighbours: Number of statements that vote.
        penalty: Penalty of the logistic fit.

    Raises:
        InputError: Inconsistent shapes, or chains that are all empty.
    """
    check_count("neighbours", neighbours)
    if relevance.shape[1:] != allowed.shape or allowed.shape != (len(nodes), chains.shape[0]):
        raise InputError(
            f"relevance and allowed: expected [K, {len(nodes)}, {chains.shape[0]}] and "
            f"[{len(nodes)}, {chains.shape[0]}], got {list(relevance.shape)} and "
            f"{list(allowed.shape)}; give a row for each of `nodes`"
        )
    signals, positive = [], []
    for run in _runs(allowed):
        found = chain_signals(chains, relevance[:, run], allowed[run], neighbours=neighbours)
        signals.append(found[allowed[run]])
        positive.append(chains[nodes[run]][allowed[run]] > 0)
    logistic = fit_logistic(torch.cat(signals), torch.cat(positive), penalty=penalty)
    return ChainModel(logistic, chains, neighbours)


def _runs(allowed: Tensor) -> list[slice]:
    return [slice(first, first + _TILE) for first in range(0, allowed.shape[0], _TILE)]
