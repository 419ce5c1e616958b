"""Late interaction of question tokens with the tokens of atoms, their windows and their sessions.

All are sum_w weight_w f(m_w), where m_w is the best cosine of question token w
(`docs/mathematics.md` 8.1). A window takes the best over neighbouring turns: what one turn asks,
the next one answers. `sharp` raises m to the fourth power, so that a few near-exact matches count
for more than many vague ones.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from graphmem_torch.ops.topk_cosine import FEW, tile_scores
from graphmem_torch.rank.registry import signal
from graphmem_torch.rank.scope import Scope

__all__ = []


@signal("semantic")
def _semantic(scope: Scope) -> Tensor:
    """Cosine of question and atom."""
    embeddings, query = scope.index.embeddings, scope.query.embedding
    if scope.rows is None:
        if len(query) <= FEW and not query.is_cuda:
            return tile_scores(query, embeddings, query.new_empty(len(query) * len(embeddings)))
        return query @ embeddings.float().T
    rows = embeddings[scope.rows.clamp(min=0)].float()
    return torch.bmm(rows, query[:, :, None]).squeeze(2)


@signal("semantic_positive")
def _semantic_positive(scope: Scope) -> Tensor:
    """max(cosine, 0), SYNAPSE's semantic term."""
    return torch.clamp(scope.memo("semantic"), min=0.0)


@signal("semantic_previous")
def _previous(scope: Scope) -> Tensor:
    """Cosine of question and the turn before."""
    return scope.step(scope.memo("semantic"), -1)


@signal("lexical")
def _lexical(scope: Scope) -> Tensor:
    """BM25 of the atom."""
    if scope.query.terms is None:
        return scope.zeros()
    return scope.pick_each(scope.index.bm25.score(scope.query.terms))


@signal("lexical_session")
def _session(scope: Scope) -> Tensor:
    """BM25 of the session as one document (`docs/mathematics.md` 8.2)."""
    if scope.query.terms is None:
        return scope.zeros()
    scores = scope.index.session_bm25.score(scope.query.terms)
    sessions = scope.pick(scope.index.session.long()).expand(scope.shape)
    return scores.gather(1, sessions)


_SHARP = 4
_WINDOW, _PASSAGE = 1, 3  # turns on both sides


def _combined(scope: Scope, change: Callable[[Tensor], Tensor], *, strict: bool = True) -> Tensor:
    if scope.matches is None:
        return scope.zeros()
    weights = scope.weights[1 if strict else 0]
    return (weights[:, :, None] * change(scope.matches)).sum(1)


def _sharp(values: Tensor) -> Tensor:
    return values.clamp(min=0.0) ** _SHARP


@signal("interaction")
def _interaction(scope: Scope) -> Tensor:
    """Late interaction with the atom."""
    return _combined(scope, lambda m: m, strict=False)


@signal("interaction_focus")
def _focus(scope: Scope) -> Tensor:
    """The same without question tokens that half of the atoms have."""
    return _combined(scope, lambda m: m)


@signal("interaction_sharp")
def _atom_sharp(scope: Scope) -> Tensor:
    """Near-exact matches in the atom."""
    return _combined(scope, _sharp)


@signal("interaction_window")
def _window(scope: Scope) -> Tensor:
    """Late interaction with the atom and the turns beside it."""
    return _combined(scope, lambda m: scope.widest(m, _WINDOW))


@signal("interaction_passage")
def _passage(scope: Scope) -> Tensor:
    """Late interaction with the seven turns around."""
    return _combined(scope, lambda m: scope.widest(m, _PASSAGE))


@signal("interaction_passage_sharp")
def _passage_sharp(scope: Scope) -> Tensor:
    """Near-exact matches in the seven turns around."""
    return _combined(scope, lambda m: _sharp(scope.widest(m, _PASSAGE)))


@signal("interaction_session")
def _interaction_session(scope: Scope) -> Tensor:
    """Late interaction with the whole session."""
    return _combined(scope, scope.session_max)


@signal("interaction_session_best")
def _session_best(scope: Scope) -> Tensor:
    """The best single atom of the session."""
    return scope.session_max(scope.memo("interaction_focus"))


@signal("interaction_previous")
def _interaction_previous(scope: Scope) -> Tensor:
    """Late interaction with the turn before."""
    return scope.step(scope.memo("interaction_focus"), -1)


@signal("interaction_next")
def _next(scope: Scope) -> Tensor:
    """Late interaction with the turn after."""
    return scope.step(scope.memo("interaction_focus"), 1)


@signal("interaction_sharp_previous")
def _sharp_previous(scope: Scope) -> Tensor:
    """Near-exact matches in the turn before."""
    return scope.step(scope.memo("interaction_sharp"), -1)


@signal("interaction_answer", conversational=True)
def _answer(scope: Scope) -> Tensor:
    """Late interaction with the turn before where that asks: this turn may be the answer."""
    return scope.step(scope.memo("interaction_focus") * scope.pick(scope.index.is_question), -1)
