"""What the graph says: spread activation, PageRank, and what was derived from an atom."""

from __future__ import annotations

import torch
from torch import Tensor

from graphmem_torch.modes.search import mode_weights
from graphmem_torch.rank.registry import signal
from graphmem_torch.rank.scope import Scope
from graphmem_torch.rank.segment import discounted

__all__ = ["DOCUMENT_SIGNALS", "HOP_SIGNALS", "LIFE_SIGNALS"]


@signal("activation", graph=True)
def _activation(scope: Scope) -> Tensor:
    """Activation after the last round (`docs/mathematics.md` 4)."""
    if scope.activation is None:
        return scope.zeros()
    return (
        scope.activation.to_dense() if scope.rows is None else scope.activation.gather(scope.rows)
    )


@signal("pagerank", graph=True)
def _pagerank(scope: Scope) -> Tensor:
    """PageRank relative to the largest of any atom."""
    return scope.pick(scope.index.pagerank.float()).expand(scope.shape)


def _from_derived(scope: Scope, values: Tensor) -> Tensor:
    """The best value among the atoms derived from each candidate."""
    source, target = scope.index.derived_source.long(), scope.index.derived_target.long()
    if not len(source):
        return scope.zeros()
    everyone = values
    if scope.rows is not None:
        everyone = values.new_zeros(len(scope.query), scope.index.num_atoms)
        everyone = everyone.scatter_reduce(
            1, scope.rows.clamp(min=0), values.where(scope.rows >= 0, 0.0), "amax"
        )
    best = values.new_zeros(everyone.shape)
    best = best.scatter_reduce(1, target.expand(len(best), -1), everyone[:, source], "amax")
    return scope.pick_each(best)


@signal("derived_interaction", graph=True)
def _derived_interaction(scope: Scope) -> Tensor:
    """Late interaction with the facts derived from the atom."""
    return _from_derived(scope, scope.memo("interaction_focus"))


@signal("derived_sharp", graph=True)
def _derived_sharp(scope: Scope) -> Tensor:
    """Near-exact matches in the facts derived from the atom."""
    return _from_derived(scope, scope.memo("interaction_sharp"))


@signal("derived_semantic", graph=True)
def _derived_semantic(scope: Scope) -> Tensor:
    """Cosine of the question with the facts derived from the atom."""
    return _from_derived(scope, scope.memo("semantic").clamp(min=0.0))


@signal("derived_lexical", graph=True)
def _derived_lexical(scope: Scope) -> Tensor:
    """BM25 of the facts derived from the atom."""
    return _from_derived(scope, scope.memo("lexical"))


HOP_SIGNALS = frozenset({"title_hop", "entity_hop"})
"""Signals that read where hops from the anchors lead."""

DOCUMENT_SIGNALS = HOP_SIGNALS | {
    "document_semantic",
    "document_lexical",
    "document_interaction",
}
"""Signals that are 0 for what is no document."""


def _of_documents(scope: Scope, values: Tensor) -> Tensor:  # [B, C]
    document = scope.index.hop_document
    return scope.zeros() if document is None else values.where(scope.pick(document), 0.0)


def _hop(scope: Scope, which: int) -> Tensor:  # [B, C]
    if scope.hops is None:
        return scope.zeros()
    found = scope.hops[which]
    return found.to_dense() if scope.rows is None else found.gather(scope.rows)


@signal("document_semantic")
def _semantic(scope: Scope) -> Tensor:
    """Cosine of question and document."""
    return _of_documents(scope, scope.memo("semantic"))


@signal("document_lexical")
def _lexical(scope: Scope) -> Tensor:
    """BM25 of the document."""
    return _of_documents(scope, scope.memo("lexical"))


@signal("document_interaction")
def _interaction(scope: Scope) -> Tensor:
    """Late interaction with the document."""
    return _of_documents(scope, scope.memo("interaction"))


@signal("title_hop", graph=True)
def _title_hop(scope: Scope) -> Tensor:
    """A strong memory mentions the document's title and the question does not."""
    return _hop(scope, 0)


@signal("entity_hop", graph=True)
def _entity_hop(scope: Scope) -> Tensor:
    """A strong memory shares entities with the document that the question does not name."""
    return _hop(scope, 1)


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


@signal("mode")
def _mode(scope: Scope) -> Tensor:
    """w_k of the atom's mode (`docs/mathematics.md` 1.5); 0 where the index has no modes."""
    modes = scope.index.modes
    if modes is None:
        return scope.zeros()
    own = scope.index.config.modes
    weight = mode_weights(
        modes, scope.query.embedding, half_life=own.half_life, absolute=own.absolute
    )
    label = scope.pick(modes.label.long())
    return weight.gather(1, label.expand(scope.shape))


@signal("proximity", graph=True)
def _proximity(scope: Scope) -> Tensor:
    """Electrical nearness to the nearest anchor, weighed by the anchor's relevance; in [0, 1]."""
    direction, component = scope.index.direction, scope.index.component
    if scope.anchors is None or direction is None or component is None:
        return scope.zeros()
    anchors, relevance = scope.anchors
    if anchors.shape[1] == 0:
        return scope.zeros()
    known, rows = anchors >= 0, anchors.clamp(min=0)
    start = direction.float()[rows] * relevance.where(known, 0.0)[:, :, None]
    there = scope.pick(component)[:, None] == component[rows][:, :, None]
    if scope.rows is None:
        near = start @ direction.float().T
    else:
        near = torch.bmm(start, direction.float()[scope.rows.clamp(min=0)].mT)
    near = near.where(there, 0.0).amax(1).clamp(min=0.0, max=1.0)
    return near if scope.rows is None else near.where(scope.rows >= 0, 0.0)


@signal("bridge", graph=True)
def _bridge(scope: Scope) -> Tensor:
    """How much the atom's edges into other communities hold the graph together; in [0, 1]."""
    bonus = scope.index.bridge_bonus
    return scope.zeros() if bonus is None else scope.pick(bonus.float()).expand(scope.shape)


@signal("traversal", graph=True)
def _traversal(scope: Scope) -> Tensor:
    """Hop-discounted similarity around the seed; 0 beyond its reach (`docs/mathematics.md` 3)."""
    if scope.reach is None:
        return scope.zeros()
    reach = scope.reach.to_dense() if scope.rows is None else scope.reach.gather(scope.rows)
    return discounted(scope.memo("semantic"), reach).where(reach > 0, 0.0)
