"""What the graph says: what spreads, walks and hops from the anchors, and what was derived."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from graphmem_torch.modes.search import mode_weights
from graphmem_torch.rank.candidates import Candidates
from graphmem_torch.rank.paths import discounted
from graphmem_torch.rank.registry import signal

__all__ = []


@signal("activation", graph=True, reads=("activation",))
def _activation(c: Candidates) -> Tensor:
    """Activation after the last round (`docs/mathematics.md` 4)."""
    return c.pick_reached(c.reached.activation)


@signal("traversal", graph=True, reads=("traversal",))
def _traversal(c: Candidates) -> Tensor:
    """Hop-discounted similarity around the seeds; 0 beyond reach (`docs/mathematics.md` 3)."""
    if c.reached.traversal is None:
        return c.zeros()
    reach = c.pick_reached(c.reached.traversal)
    return discounted(c.signal("semantic"), reach).where(reach > 0, 0.0)


@signal("title_hop", graph=True, reads=("hops",))
def _title_hop(c: Candidates) -> Tensor:
    """An anchor mentions the document's title and the question does not."""
    return c.pick_reached(c.reached.title_hop)


@signal("entity_hop", graph=True, reads=("hops",))
def _entity_hop(c: Candidates) -> Tensor:
    """An anchor shares entities with the document that the question does not name."""
    return c.pick_reached(c.reached.entity_hop)


@signal("pagerank", graph=True)
def _pagerank(c: Candidates) -> Tensor:
    """PageRank relative to the largest of any atom."""
    return c.pick(c.memory.pagerank.float()).expand(c.shape)


@signal("personalized_pagerank", graph=True, reads=("walk",))
def _personalized_pagerank(c: Candidates) -> Tensor:
    """Probability to be at the atom of a walk that starts again at the question's anchors."""
    return c.pick_reached(c.reached.walk)


@signal("decayed_pagerank", graph=True, reads=("walk", "retention"))
def _decayed_pagerank(c: Candidates) -> Tensor:
    """Personalised PageRank times decay."""
    return c.signal("personalized_pagerank") * c.signal("decay")


@signal("strength", graph=True, reads=("retention",))
def _strength(c: Candidates) -> Tensor:
    """S(t) = S_0 e^{-lambda t} + beta C(n), C(n) the PageRank relative to the largest."""
    own = c.config.decay
    return own.initial * c.signal("decay") + own.centrality * c.signal("pagerank")


@signal("proximity", graph=True)
def _proximity(c: Candidates) -> Tensor:
    """Electrical nearness to the nearest anchor, weighed by the anchor's relevance; in [0, 1]."""
    direction, component = c.memory.direction, c.memory.component
    anchors, relevance = c.reached.anchors, c.reached.relevance
    if direction is None or component is None or anchors is None or relevance is None:
        return c.zeros()
    if anchors.shape[1] == 0:
        return c.zeros()
    known, rows = anchors >= 0, anchors.clamp(min=0)
    start = direction.float()[rows] * relevance.where(known, 0.0)[:, :, None]
    there = c.pick(component)[:, None] == component[rows][:, :, None]
    if c.rows is None:
        near = start @ direction.float().T
    else:
        near = torch.bmm(start, direction.float()[c.rows.clamp(min=0)].mT)
    near = near.where(there, 0.0).amax(1).clamp(min=0.0, max=1.0)
    return near if c.rows is None else near.where(c.rows >= 0, 0.0)


@signal("bridge", graph=True)
def _bridge(c: Candidates) -> Tensor:
    """How much the atom's edges into other communities hold the graph together; in [0, 1]."""
    bonus = c.memory.bridge_bonus
    return c.zeros() if bonus is None else c.pick(bonus.float()).expand(c.shape)


@signal("mode")
def _mode(c: Candidates) -> Tensor:
    """w_k of the atom's mode (`docs/mathematics.md` 1.5); 0 where the index has no modes."""
    modes, own = c.memory.modes, c.config.modes
    if modes is None:
        return c.zeros()
    weight = mode_weights(modes, c.query.embedding, half_life=own.half_life, absolute=own.absolute)
    return weight.gather(1, c.pick(modes.label.long()).expand(c.shape))


def _from_derived(c: Candidates, *, own: str) -> Tensor:
    """The best value of a signal among the atoms derived from each candidate; at least 0."""
    values, rows = c.signal(own), c.rows
    source, target = c.memory.derived_source.long(), c.memory.derived_target.long()
    if not len(source):
        return c.zeros()
    everyone = values
    if rows is not None:
        everyone = values.new_zeros(len(c.query), c.memory.num_atoms)
        everyone = everyone.scatter_reduce(
            1, rows.clamp(min=0), values.where(rows >= 0, 0.0), "amax"
        )
    best = values.new_zeros(everyone.shape)
    best = best.scatter_reduce(1, target.expand(len(best), -1), everyone[:, source], "amax")
    return c.pick_each(best)


for _name, _own in (
    ("derived_interaction", "interaction_focus"),
    ("derived_sharp", "interaction_sharp"),
    ("derived_semantic", "semantic_positive"),
    ("derived_lexical", "lexical"),
):
    signal(_name, graph=True)(partial(_from_derived, own=_own))
