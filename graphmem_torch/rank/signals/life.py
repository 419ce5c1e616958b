"""What the life of a memory says: how long ago it was used, and what the graph leads to.

`mathematics.md` 6. The value of ContextOS is 50 `semantic_positive` + 10 `decayed_pagerank`.
"""

from __future__ import annotations

from torch import Tensor

from graphmem_torch.rank.scope import Scope
from graphmem_torch.rank.signals.registry import signal

__all__ = ["LIFE_SIGNALS"]

LIFE_SIGNALS = frozenset({"decay", "decayed_pagerank", "strength"})
"""Signals that read `QueryBatch.retention`."""


@signal("decay")
def _decay(scope: Scope) -> Tensor:
    """e^{-lambda t}: 1 for what was just used, does not fade, or has no known age."""
    retention = scope.query.retention
    if retention is None:
        return scope.zeros() + 1.0
    everyone = scope.rows is None or len(retention) == len(scope.query)
    values = scope.pick_each(retention) if everyone else scope.pick(retention[0])
    return values.expand(scope.shape)


@signal("personalized_pagerank", graph=True)
def _personalized_pagerank(scope: Scope) -> Tensor:
    """Probability to be at the atom of a walk that starts again at the question's anchors."""
    if scope.walk is None:
        return scope.zeros()
    return scope.walk.to_dense() if scope.rows is None else scope.walk.gather(scope.rows)


@signal("decayed_pagerank", graph=True)
def _decayed_pagerank(scope: Scope) -> Tensor:
    """Personalised PageRank times decay."""
    return scope.memo("personalized_pagerank") * scope.memo("decay")


@signal("strength", graph=True)
def _strength(scope: Scope) -> Tensor:
    """S(t) = S_0 e^{-lambda t} + beta C(n), C(n) the PageRank relative to the largest."""
    own = scope.index.config.decay
    return own.initial * scope.memo("decay") + own.centrality * scope.memo("pagerank")
