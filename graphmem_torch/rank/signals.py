"""Signals: evidence for a memory; the hybrid score is their weighted sum.

A signal maps B questions and their C candidates to values [B, C]. To add one, decorate a function
with `@signal("name")`. The signals of words come first, then those of speakers and times, then
those that the graph brings from the anchors, then those of derived atoms.

Late interaction is sum_w weight_w f(m_w), where m_w is the best cosine of question token w
(`docs/mathematics.md` 8.1). A window takes the best over neighbouring turns, because one turn often
answers the one before. `sharp` raises m to the fourth power, so that a few near-exact matches
outweigh many vague ones. Signals without words: `docs/mathematics.md` 8.2.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from graphmem_torch.modes.search import mode_weights
from graphmem_torch.ops.ragged import ranges
from graphmem_torch.ops.topk_cosine import inner_products
from graphmem_torch.rank.candidates import Candidates
from graphmem_torch.rank.hops import is_named, named_share
from graphmem_torch.rank.lifts import raised_by_hops
from graphmem_torch.rank.memory_tensors import MemoryTensors
from graphmem_torch.rank.moments import SMALLEST, sharpened
from graphmem_torch.rank.paths import discounted
from graphmem_torch.rank.population import Sums, cosine_sums
from graphmem_torch.rank.registry import signal
from graphmem_torch.rank.routing import relative_pagerank

__all__ = ["CENTRALITY", "published_resistances"]

CENTRALITY = 0.1
"""Weight beta of the PageRank in the strength of a memory; the paper names no value."""

_WINDOW, _PASSAGE = 1, 3  # turns on both sides
_NAMED = 0.15  # minimum share of a question's idf that names a document in full
_BEARERS = 2  # maximum documents of one title; more make it a heading ("Introduction")


def _semantic_sums(c: Candidates) -> Sums | None:
    """Sums of the cosines over all atoms, from those of the rows, if the index keeps these."""
    rows = c.memory.row_sums
    return None if rows is None else cosine_sums(rows, c.memory.atom_count, c.query.embedding)


@signal("semantic", sums=_semantic_sums)
def _semantic(c: Candidates) -> Tensor:
    """Cosine of question and atom."""
    embeddings, query = c.memory.embeddings, c.query.embedding
    if c.rows is None:
        return inner_products(query, embeddings)
    rows = embeddings[c.rows.clamp(min=0)].to(query.dtype)
    return torch.bmm(rows, query[:, :, None]).squeeze(2)


@signal("semantic_positive")
def _semantic_positive(c: Candidates) -> Tensor:
    """max(cosine, 0), SYNAPSE's semantic term."""
    return torch.clamp(c.signal("semantic"), min=0.0)


@signal("semantic_alone", reads=("words",), learned=False)
def _semantic_alone(c: Candidates) -> Tensor:
    """Cosine, only without token vectors, where late interaction of words lacks meaning."""
    return c.signal("semantic") if c.by_words else c.zeros


def _lexical_sums(c: Candidates) -> Sums | None:
    """Sums of BM25 over all atoms, from the postings of the question's terms."""
    found = None if c.memory.row_sums is None else c.lexical_sums
    if found is None:
        return None
    _, first, second = found
    return Sums(c.memory.atom_count.double(), first, second)


@signal("lexical", sums=_lexical_sums)
def _lexical(c: Candidates) -> Tensor:
    """BM25 of the atom."""
    scores = c.lexical_scores
    return c.zeros if scores is None else c.pick_each(scores)


@signal("lexical_unread", indicator=True, learned=False)
def _lexical_unread(c: Candidates) -> Tensor:
    """BM25 relative to the best, times the squared share of the question that is unread.

    Words decide a wholly unread question; an unread name alone does not outweigh the rest.
    """
    scores, query = c.lexical_scores, c.query
    if query.unread is None or scores is None or not c.memory.num_atoms:
        return c.zeros
    own = c.pick_each(scores)
    # The best of all is a candidate by BM25, unless it is excluded.
    listed = c.background is not None and query.allowed is None and query.planned is None
    best = (own if listed else scores).amax(dim=1, keepdim=True).clamp(min=1e-9)
    if c.peers is not None:
        best = c.peers.largest("lexical_unread", best)
    return query.unread[:, None].square() * own / best


@signal("lexical_session", context=True)
def _session(c: Candidates) -> Tensor:
    """BM25 of the session as one document (`docs/mathematics.md` 8.2)."""
    scores = c.session_scores
    if scores is None:
        return c.zeros
    sessions = c.pick(c.memory.session).long().expand(c.shape)
    return scores.gather(1, sessions)


def _combined(
    c: Candidates,
    change: Callable[[Tensor], Tensor] | None = None,
    *,
    reach: int = 0,
    strict: bool = True,
) -> Tensor:
    if c.matches is None:
        return c.zeros
    best = c.widest(reach)
    weights = c.token_weights[1 if strict else 0]
    return (weights * (change(best) if change else best)).sum(1)


@signal("interaction")
def _interaction(c: Candidates) -> Tensor:
    """Late interaction with the atom."""
    return _combined(c, strict=False)


@signal("interaction_focus")
def _focus(c: Candidates) -> Tensor:
    """Late interaction without question tokens that half of the atoms have."""
    return _combined(c)


@signal("interaction_sharp")
def _atom_sharp(c: Candidates) -> Tensor:
    """Near-exact matches in the atom."""
    return _combined(c, sharpened)


@signal("late")
def _late(c: Candidates) -> Tensor:
    """Late interaction, plain and sharp, without their trend with the length of the atom."""
    if c.matches is None:
        return c.zeros
    return c.beyond_length("interaction", "interaction_sharp")


@signal("interaction_window", context=True)
def _window(c: Candidates) -> Tensor:
    """Late interaction with the atom and the turns beside it."""
    return _combined(c, reach=_WINDOW)


@signal("interaction_passage", context=True)
def _passage(c: Candidates) -> Tensor:
    """Late interaction with the seven turns around."""
    return _combined(c, reach=_PASSAGE)


@signal("interaction_passage_sharp", context=True)
def _passage_sharp(c: Candidates) -> Tensor:
    """Near-exact matches in the seven turns around."""
    return _combined(c, sharpened, reach=_PASSAGE)


@signal("interaction_session", context=True)
def _interaction_session(c: Candidates) -> Tensor:
    """Late interaction with the whole session."""
    return _combined(c, c.session_max)


@signal("interaction_session_best", context=True)
def _session_best(c: Candidates) -> Tensor:
    """The best single atom of the session."""
    return c.session_max(c.signal("interaction_focus"))


def _beside(c: Candidates, *, own: str, distance: int) -> Tensor:
    """Value of a signal at the turn `distance` away."""
    return c.step(c.signal(own), distance)


for _name, _own, _distance in (
    ("semantic_previous", "semantic", -1),
    ("interaction_previous", "interaction_focus", -1),
    ("interaction_next", "interaction_focus", 1),
    ("interaction_sharp_previous", "interaction_sharp", -1),
):
    signal(_name, context=True)(partial(_beside, own=_own, distance=_distance))


@signal("interaction_answer", context=True)
def _answer(c: Candidates) -> Tensor:
    """Late interaction with the previous turn if that asks: this turn may be the answer."""
    return c.step(c.signal("interaction_focus") * c.pick(c.memory.is_question), -1)


@signal("titled", reads=("documents",), indicator=True)
def _titled(c: Candidates) -> Tensor:
    """1 if the question names the document's title."""
    hops = c.memory.hops
    if hops is None:
        return c.zeros
    keys = c.pick(hops.title_key).expand(c.shape)
    row = torch.arange(c.shape[0], device=keys.device)[:, None].expand(c.shape)
    return is_named(row, keys, c.named_keys).float()


@signal("named", reads=("documents",), indicator=True)
def _named(c: Candidates) -> Tensor:
    """Share of the question's idf that names the document's title; 1 from 15 %.

    0 if more than two documents have the title, which is then a heading.
    """
    hops = c.memory.hops
    if hops is None:
        return c.zeros
    keys = c.pick(hops.title_key).expand(c.shape)
    row = torch.arange(c.shape[0], device=keys.device)[:, None].expand(c.shape)
    share = (named_share(row, keys, c.named) / _NAMED).clamp(max=1.0)
    return share.where(c.pick(c.memory.title_bearers) <= _BEARERS, 0.0)


@signal("speaker", indicator=True)
def _speaker(c: Candidates) -> Tensor:
    """1 for the words of a person whom the question names, -1 for those of others."""
    named = c.query.speakers
    if named is None or named.shape[1] == 0:
        return c.zeros
    codes = c.pick(c.memory.speaker).long().expand(c.shape)
    own = named.float().gather(1, codes.clamp(min=0))
    anyone = named.any(1, keepdim=True).float()
    return torch.where(codes >= 0, 2.0 * own - anyone, 0.0).where(anyone > 0, 0.0)


@signal("role", indicator=True)
def _role(c: Candidates) -> Tensor:
    """1 for a user's words, -1 for an assistant's; reversed if the assistant's are asked for."""
    role, recalls = c.pick(c.memory.role).float().expand(c.shape), c.query.recalls
    return role if recalls is None else torch.where(recalls[:, None], -role, role)


@signal("date", reads=("span",), indicator=True)
def _date(c: Candidates) -> Tensor:
    """1 if the question names the atom's month, 2 if also a day next to it.

    Also 1 if it was said within the stated days ("last month"), 2 if they span at most a week.
    """
    months, days, span = c.query.months, c.query.days, c.query.span
    within = c.zeros
    if span is not None:
        said, (first, behind) = c.pick(c.memory.said), span[:, :, None].unbind(1)
        short = 1.0 + (behind - first <= 7).float()
        within = torch.where((first <= said) & (said < behind), short, 0.0)
    if months is None or days is None:
        return within
    month = c.pick(c.memory.month).long().expand(c.shape)
    day = c.pick(c.memory.day).long().expand(c.shape)
    near = torch.nn.functional.pad(days, (1, 1))
    near = near[:, :-2] | near[:, 1:-1] | near[:, 2:]
    in_month = months.gather(1, month.clamp(min=0)) & (month >= 0)
    on_day = near.gather(1, day.clamp(min=0)) & in_month
    return torch.maximum(in_month.float() + on_day.float(), within)


@signal("event", reads=("span",), indicator=True)
def _event(c: Candidates) -> Tensor:
    """1 if the atom states a time ("yesterday") within the days that the question names."""
    if c.query.span is None:
        return c.zeros
    first, behind = c.query.span[:, :, None].unbind(1)
    start, end = c.pick(c.memory.told[:, 0]), c.pick(c.memory.told[:, 1])
    return (torch.maximum(start, first) < torch.minimum(end, behind)).float()


@signal("time_expression", indicator=True)
def _time_expression(c: Candidates) -> Tensor:
    """1 if the question asks when and the atom states a time."""
    asks = c.query.asks_when
    if asks is None:
        return c.zeros
    return asks.float()[:, None] * c.pick(c.memory.tells_time)


@signal("length")
def _length(c: Candidates) -> Tensor:
    """ln(1 + words): longer atoms say more."""
    return c.pick(c.memory.log_words).expand(c.shape)


@signal("question", indicator=True)
def _question(c: Candidates) -> Tensor:
    """1 if the atom asks rather than states."""
    return c.pick(c.memory.is_question).expand(c.shape)


@signal("decay", reads=("retention",))
def _decay(c: Candidates) -> Tensor:
    """e^{-lambda t}: 1 for an atom just used, without decay, or of unknown age."""
    retention = c.query.retention
    return c.zeros + 1.0 if retention is None else _of_query(c, retention)


@signal("ended", reads=("ended",), indicator=True, learned=False)
def _ended(c: Candidates) -> Tensor:
    """1 if the atom stopped being true before the question (`docs/mathematics.md` 5.1)."""
    ended = c.query.ended
    return c.zeros if ended is None else _of_query(c, ended.float())


@signal("succession", reads=("followed",), indicator=True, learned=False)
def _succession(c: Candidates) -> Tensor:
    """1 for the value in a succession that the question asks for (`docs/mathematics.md` 5.9)."""
    led = c.query.followed
    if led is None:
        return c.zeros
    rows = torch.arange(c.shape[1], device=led.device)[None] if c.rows is None else c.rows
    return (rows[:, :, None] == led[:, None]).any(2).float()


@signal("reply", reads=("replies",), indicator=True, learned=False)
def _reply(c: Candidates) -> Tensor:
    """1 for the reply to a stored question that asks the same, less for later turns.

    `docs/mathematics.md` 8.9.
    """
    led, weight = c.query.replies, c.query.reply_weight
    if led is None or weight is None:
        return c.zeros
    rows = torch.arange(c.shape[1], device=led.device)[None] if c.rows is None else c.rows
    return (weight[:, None] * (rows[:, :, None] == led[:, None])).amax(2).float()


def _of_query(c: Candidates, values: Tensor) -> Tensor:  # [B or 1, A] -> [B, C]
    """Take a question's values of all atoms for its candidates."""
    everyone = c.rows is None or len(values) == len(c.query)
    return (c.pick_each(values) if everyone else c.pick(values[0])).expand(c.shape)


@signal("activation", graph=True, reads=("activation",))
def _activation(c: Candidates) -> Tensor:
    """Activation after the last round (`docs/mathematics.md` 4)."""
    return c.pick_reached(c.reached.activation)


@signal("traversal", graph=True, reads=("traversal",))
def _traversal(c: Candidates) -> Tensor:
    """Hop-discounted similarity around the seeds; 0 beyond reach (`docs/mathematics.md` 3)."""
    if c.reached.traversal is None:
        return c.zeros
    reach = c.pick_reached(c.reached.traversal)
    return discounted(c.signal("semantic"), reach).where(reach > 0, 0.0)


@signal("title_hop", graph=True, reads=("hops",), indicator=True)
def _title_hop(c: Candidates) -> Tensor:
    """Mention of the document's title in an anchor, if the question does not name it."""
    return c.pick_reached(c.reached.title_hop)


@signal("entity_hop", graph=True, reads=("hops",), indicator=True)
def _entity_hop(c: Candidates) -> Tensor:
    """Entities shared by an anchor and the document that the question does not name."""
    return c.pick_reached(c.reached.entity_hop)


@signal("hop", graph=True, reads=("lifts",), indicator=True, learned=False)
def _hop(c: Candidates) -> Tensor:
    """Raise of a document's score by a hop, to below its anchor (`docs/mathematics.md` 8.4)."""
    return raised_by_hops(c)


@signal("pagerank", graph=True)
def _pagerank(c: Candidates) -> Tensor:
    """PageRank relative to the largest of any atom."""
    memory = c.memory
    rank = memory.pagerank
    if rank is None:  # the index was built for other signals
        rank = relative_pagerank(memory.graph, memory.node.long())
    return c.pick(rank.float()).expand(c.shape)


@signal("personalized_pagerank", graph=True, reads=("walk",))
def _personalized_pagerank(c: Candidates) -> Tensor:
    """Probability of the atom in a walk that restarts at the question's anchors."""
    return c.pick_reached(c.reached.walk)


@signal("decayed_pagerank", graph=True, reads=("walk", "retention"))
def _decayed_pagerank(c: Candidates) -> Tensor:
    """Personalised PageRank times decay."""
    return c.signal("personalized_pagerank") * c.signal("decay")


@signal("strength", graph=True, reads=("retention",))
def _strength(c: Candidates) -> Tensor:
    """S(t) = e^{-lambda t} + beta C(n), C(n) the PageRank relative to the largest."""
    return c.signal("decay") + CENTRALITY * c.signal("pagerank")


@signal("proximity", graph=True)
def _proximity(c: Candidates) -> Tensor:
    """Electrical nearness to the nearest anchor, times the anchor's relevance; in [0, 1]."""
    direction, component = c.memory.direction, c.memory.component
    anchors, relevance = c.reached.anchors, c.reached.relevance
    if direction is None or component is None or anchors is None or relevance is None:
        return c.zeros
    if anchors.shape[1] == 0:
        return c.zeros
    known, rows = anchors >= 0, anchors.clamp(min=0)
    start = direction.float()[rows] * relevance.where(known, 0.0)[:, :, None]
    there = c.pick(component)[:, None] == component[rows][:, :, None]
    if c.rows is None:
        near = start @ direction.float().T
    else:
        near = torch.bmm(start, direction.float()[c.rows.clamp(min=0)].mT)
    near = near.where(there, 0.0).amax(1).clamp(min=0.0, max=1.0)
    return near if c.rows is None else near.where(c.rows >= 0, 0.0)


@signal("inverse_resistance", graph=True)
def _inverse_resistance(c: Candidates) -> Tensor:
    """1 / R to the nearest anchor, as Spectral Memory prints it (`docs/mathematics.md` 2.6).

    At most 1, the value of an anchor, whose own R is 0: for two nodes R >= 1 - (v_i - v_j)^2 / 2.
    """
    far, anchors = c.memory.resistance_far, c.reached.anchors
    if far is None or anchors is None or anchors.shape[1] == 0:
        return c.zeros
    resistance = published_resistances(c.memory, anchors, c.rows)
    near = resistance.amin(1).clamp(min=1.0).reciprocal()
    return near if c.rows is None else near.where(c.rows >= 0, 0.0)


@signal("sign_change", graph=True, indicator=True)
def _sign_change(c: Candidates) -> Tensor:
    """1 for the ends of edges across which the Fiedler vector changes its sign, as printed."""
    changes = c.memory.sign_change
    return c.zeros if changes is None else c.pick(changes.float()).expand(c.shape)


@signal("bridge", graph=True)
def _bridge(c: Candidates) -> Tensor:
    """Bridge bonus of the atom: importance of its edges into other communities; in [0, 1]."""
    bonus = c.memory.bridge_bonus
    return c.zeros if bonus is None else c.pick(bonus.float()).expand(c.shape)


@signal("mode")
def _mode(c: Candidates) -> Tensor:
    """w_k of the atom's mode (`docs/mathematics.md` 1.5); 0 in an index without modes."""
    modes, own = c.memory.modes, c.config.modes
    if modes is None:
        return c.zeros
    weight = mode_weights(
        modes, c.query.embedding, half_life_days=own.half_life_days, absolute=own.absolute
    )
    return weight.gather(1, c.pick(modes.label).long().expand(c.shape))


def _from_derived(c: Candidates, *, own: str) -> Tensor:
    """Best value of a signal over the atoms derived from each candidate; at least 0.

    If every derived atom has several sources, as aggregates do, a candidate without one keeps its
    own value: 0 would rank it after each member of an aggregate. If some restate single atoms, as
    facts do, it has 0.
    """
    if not c.memory.derived_source.shape[0]:
        return c.zeros
    values = c.signal(own).expand(c.shape)
    if c.query.allowed is not None:  # excluded atoms have no value
        values = values.where(c.valid, 0.0)
    place, goal = c.derived
    best = torch.zeros_like(values).flatten()
    given = torch.nn.functional.pad(values.flatten(), (0, 1))  # one that is no candidate gives 0
    best = best.scatter_reduce(0, goal, given.index_select(0, place), "amax")
    alone = c.pick(c.memory.underived)
    return torch.where(alone, values.clamp(min=0), best.view(c.shape))


for _name, _own in (
    ("derived_interaction", "interaction_focus"),
    ("derived_late", "late"),
    ("derived_sharp", "interaction_sharp"),
    ("derived_semantic", "semantic_positive"),
    ("derived_lexical", "lexical"),
):
    signal(_name, graph=True, reads=("derived",))(partial(_from_derived, own=_own))


def published_resistances(
    memory: MemoryTensors,
    anchors: Tensor,  # [B, K] int64 rows, -1 = none
    rows: Tensor | None,  # [B, C] int64 rows, -1 = none; None: every atom
) -> Tensor:  # [B, K, C]
    """Return the resistance of each anchor to each candidate by the printed formula.

    R_ij = 2 - 2 w_ij / sqrt(d_i d_j) - 2 (v_i - v_j)^2 + |z_i - z_j|^2 in a component, infinite
    between components, 0 from an atom to itself (`docs/mathematics.md` 2.6).
    """
    far, null = memory.resistance_far, memory.resistance_null
    scale, component = memory.resistance_scale, memory.component
    assert far is not None and null is not None and scale is not None and component is not None
    shape, atoms = anchors.shape, memory.num_atoms
    known, own = anchors >= 0, anchors.clamp(min=0)
    joined = _edge_weights(memory, own.flatten()).view(*shape, atoms)
    every = torch.arange(atoms, device=own.device).expand(len(own), -1)
    other = every if rows is None else rows.clamp(min=0)
    joined = joined.gather(2, other[:, None].expand(-1, shape[1], -1))
    z, length = far.float(), far.float().square().sum(1)
    apart = length[own][:, :, None] + length[other][:, None]
    apart = apart - 2 * torch.bmm(z[own], z[other].mT)
    found = 2 - 2 * joined * scale.float()[own][:, :, None] * scale.float()[other][:, None]
    found = found - 2 * (null.float()[own][:, :, None] - null.float()[other][:, None]).square()
    found = (found + apart.clamp(min=0)).clamp(min=SMALLEST)
    there = (component[own][:, :, None] == component[other][:, None]) & known[:, :, None]
    found = found.where(there, torch.inf)
    return found.masked_fill((own[:, :, None] == other[:, None]) & known[:, :, None], 0.0)


def _edge_weights(memory: MemoryTensors, rows: Tensor) -> Tensor:  # [n] int64 -> [n, A]
    """Return the largest |w| of the edges between some atoms and each, in either direction."""
    graph, node = memory.graph, memory.node.long()[rows]
    first, count = graph.spans(node)
    begin, place = ranges(first, count)
    edge = graph.leaving(place).long()
    back, at = ranges(graph.indptr[node].long(), graph.indptr.diff()[node].long())
    line = torch.cat([begin, back])
    end = torch.cat([graph.stored.target[edge], graph.source[at]]).long()
    weight = torch.cat([graph.stored.weight[edge], graph.weight[at]]).abs().float()
    atom = memory.atom[end].long()
    found = weight.new_zeros(len(rows) * (memory.num_atoms + 1))
    key = line * (memory.num_atoms + 1) + atom % (memory.num_atoms + 1)
    found = found.scatter_reduce(0, key, weight, "amax")
    return found.view(len(rows), memory.num_atoms + 1)[:, :-1]
