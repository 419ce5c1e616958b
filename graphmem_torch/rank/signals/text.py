"""Late interaction of question tokens with the tokens of atoms, their windows and their sessions.

All are sum_w weight_w f(m_w), where m_w is the best cosine of question token w
(`docs/mathematics.md` 8.1). A window takes the best over neighbouring turns: what one turn asks,
the next one answers. `sharp` raises m to the fourth power, so that a few near-exact matches count
for more than many vague ones.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from graphmem_torch.ops.topk_cosine import inner_products
from graphmem_torch.rank.candidates import Candidates
from graphmem_torch.rank.registry import signal

__all__ = []


@signal("semantic")
def _semantic(c: Candidates) -> Tensor:
    """Cosine of question and atom."""
    embeddings, query = c.memory.embeddings, c.query.embedding
    if c.rows is None:
        return inner_products(query, embeddings)
    rows = embeddings[c.rows.clamp(min=0)].float()
    return torch.bmm(rows, query[:, :, None]).squeeze(2)


@signal("semantic_positive")
def _semantic_positive(c: Candidates) -> Tensor:
    """max(cosine, 0), SYNAPSE's semantic term."""
    return torch.clamp(c.signal("semantic"), min=0.0)


@signal("lexical")
def _lexical(c: Candidates) -> Tensor:
    """BM25 of the atom."""
    if c.query.terms is None:
        return c.zeros()
    return c.pick_each(c.memory.bm25.score(c.query.terms))


@signal("lexical_session")
def _session(c: Candidates) -> Tensor:
    """BM25 of the session as one document (`docs/mathematics.md` 8.2)."""
    if c.query.terms is None:
        return c.zeros()
    scores = c.memory.session_bm25.score(c.query.terms)
    sessions = c.pick(c.memory.session.long()).expand(c.shape)
    return scores.gather(1, sessions)


_SHARP = 4
_WINDOW, _PASSAGE = 1, 3  # turns on both sides


def _combined(c: Candidates, change: Callable[[Tensor], Tensor], *, strict: bool = True) -> Tensor:
    if c.matches is None:
        return c.zeros()
    weights = c.token_weights[1 if strict else 0]
    return (weights[:, :, None] * change(c.matches)).sum(1)


def _sharp(values: Tensor) -> Tensor:
    return values.clamp(min=0.0) ** _SHARP


@signal("interaction")
def _interaction(c: Candidates) -> Tensor:
    """Late interaction with the atom."""
    return _combined(c, lambda m: m, strict=False)


@signal("interaction_focus")
def _focus(c: Candidates) -> Tensor:
    """The same without question tokens that half of the atoms have."""
    return _combined(c, lambda m: m)


@signal("interaction_sharp")
def _atom_sharp(c: Candidates) -> Tensor:
    """Near-exact matches in the atom."""
    return _combined(c, _sharp)


@signal("interaction_window")
def _window(c: Candidates) -> Tensor:
    """Late interaction with the atom and the turns beside it."""
    return _combined(c, lambda m: c.widest(m, _WINDOW))


@signal("interaction_passage")
def _passage(c: Candidates) -> Tensor:
    """Late interaction with the seven turns around."""
    return _combined(c, lambda m: c.widest(m, _PASSAGE))


@signal("interaction_passage_sharp")
def _passage_sharp(c: Candidates) -> Tensor:
    """Near-exact matches in the seven turns around."""
    return _combined(c, lambda m: _sharp(c.widest(m, _PASSAGE)))


@signal("interaction_session")
def _interaction_session(c: Candidates) -> Tensor:
    """Late interaction with the whole session."""
    return _combined(c, c.session_max)


@signal("interaction_session_best")
def _session_best(c: Candidates) -> Tensor:
    """The best single atom of the session."""
    return c.session_max(c.signal("interaction_focus"))


def _beside(c: Candidates, *, own: str, distance: int) -> Tensor:
    """A signal of the turn so far away."""
    return c.step(c.signal(own), distance)


for _name, _own, _distance in (
    ("semantic_previous", "semantic", -1),
    ("interaction_previous", "interaction_focus", -1),
    ("interaction_next", "interaction_focus", 1),
    ("interaction_sharp_previous", "interaction_sharp", -1),
):
    signal(_name)(partial(_beside, own=_own, distance=_distance))


@signal("interaction_answer", conversational=True)
def _answer(c: Candidates) -> Tensor:
    """Late interaction with the turn before where that asks: this turn may be the answer."""
    return c.step(c.signal("interaction_focus") * c.pick(c.memory.is_question), -1)


def _of_documents(c: Candidates, *, own: str) -> Tensor:
    """A signal of documents; 0 for what is no document."""
    hops = c.memory.hops
    return c.zeros() if hops is None else c.signal(own).where(c.pick(hops.document), 0.0)


for _own in ("semantic", "lexical", "interaction"):
    signal(f"document_{_own}", reads=("documents",))(partial(_of_documents, own=_own))
