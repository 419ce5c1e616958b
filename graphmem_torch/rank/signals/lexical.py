"""BM25 of the atom and of its whole session."""

from __future__ import annotations

from torch import Tensor

from graphmem_torch.rank.scope import Scope
from graphmem_torch.rank.signals.registry import signal

__all__: list[str] = []


@signal("lexical")
def _lexical(scope: Scope) -> Tensor:
    """BM25 of the atom."""
    if scope.query.terms is None:
        return scope.zeros()
    return scope.pick_each(scope.index.bm25.score(scope.query.terms))


@signal("lexical_session")
def _session(scope: Scope) -> Tensor:
    """BM25 of the session as one document (`mathematics.md` 8.2)."""
    if scope.query.terms is None:
        return scope.zeros()
    scores = scope.index.session_bm25.score(scope.query.terms)
    sessions = scope.pick(scope.index.session.long()).expand(scope.shape)
    return scores.gather(1, sessions)
