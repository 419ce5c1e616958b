"""Echoes: stored questions that ask the same as a question; they lead to their replies.

An agent that stores each turn before it asks would find that turn first. An echo is therefore no
hit and no anchor for the question, and adds nothing to its neighbours. The turns after it take its
place (signal `reply`). `docs/mathematics.md` 8.9.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from graphmem_torch.ops.fixed_shapes import shapes_are_fixed
from graphmem_torch.ops.tiles import stable_topk, tile_elements
from graphmem_torch.rank.memory_tensors import MemoryTensors
from graphmem_torch.rank.query import QueryBatch
from graphmem_torch.rank.relevance import cosine

__all__ = ["without_echoes"]

_LOOKED_AT = 64  # maximum stored questions compared with a question term by term
_HALF = 0.5  # minimum share of the terms of the question in an echo
_MOSTLY = 0.7  # the same for an echo found by its terms alone
_ALIKE = 0.65  # minimum cosine, above that of unrelated texts, of open questions that ask the same
_LEADING = 0.85  # minimum cosine of open questions that lead to their replies
_BARELY = 0.01  # similarity of an echo that leads to no reply
_LEADS = 8  # maximum echoes whose replies are used
_TURNS = 4  # maximum turns read after an echo
_EARLIER = 0.5  # weight of a reply, relative to the reply of the next later echo
_LATER = 0.5  # weight of the turn after a reply, relative to the reply
_OPEN, _NO_ANSWER = 1, 2  # of `text.asked.FORMS`
_TILE = 1 << 22  # floats at a time


def without_echoes(memory: MemoryTensors, query: QueryBatch) -> QueryBatch:
    """Exclude echoes from the atoms of a question, and add the replies that they lead to.

    An atom is an echo if one of these holds:

    - It asks in the same words: its key is equal.
    - It only asks, all of its terms are terms of the question, and it has 70 % of those.
    - It only asks, openly and without a name or number, each of both has half of the other's
      terms, and the cosine is high.

    Args:
        memory: A atoms.
        query: B questions; those without `asked_key` stay as they are.

    Returns:
        The questions, with `allowed`, `replies` and `reply_weight` if there is any echo.
    """
    if query.asked_key is None or memory.asked_key is None or not memory.num_atoms:
        return query
    fixed = shapes_are_fixed()
    rows = torch.arange(memory.num_atoms, device=memory.node.device) if fixed else memory.asking
    if not len(rows):
        return query
    alike = _alike(memory, query, rows).masked_fill(memory.list_of_questions[rows], 0.0)
    if query.allowed is not None:
        alike = alike * query.allowed.expand(len(query), -1)[:, rows]
    if not fixed and not bool(alike.any()):
        return query
    there = torch.ones(len(query), memory.num_atoms, dtype=torch.bool, device=rows.device)
    there = there.index_copy(1, rows, alike == 0)
    seen = there if query.allowed is None else there & query.allowed
    replies, weight = _replies(memory, query, alike, rows, seen)
    return replace(query, allowed=seen, replies=replies, reply_weight=weight)


def _alike(memory: MemoryTensors, query: QueryBatch, rows: Tensor) -> Tensor:  # [n] -> [B, n]
    """Return how nearly each asking atom asks the question: 1 in the same words, 0 if not."""
    assert query.asked_key is not None and memory.asked_key is not None
    key = query.asked_key[:, None]
    alike = ((memory.asked_key[rows][None] == key) & (key != 0)).float()
    if query.asked_terms is None or query.asked_words is None or memory.asked_words is None:
        return alike
    words = memory.asked_words[rows]
    step = max(1, tile_elements(rows.device, _TILE) // memory.num_atoms)
    for start in range(0, len(query), step):
        part = slice(start, start + step)
        terms = query.asked_terms[part].contiguous()
        score = memory.bm25.score(terms)[:, rows].masked_fill(words[None] == 0, 0.0)
        sharing = torch.arange(len(rows), device=rows.device)
        if not shapes_are_fixed():  # most stored questions share no term
            sharing = (score > 0).any(0).nonzero().squeeze(1)
            if not len(sharing):
                continue
        worth, best = stable_topk(score[:, sharing], min(_LOOKED_AT, len(sharing)))
        place = sharing[best]
        near = _near(memory, query.rows(part), rows[place], words[place])
        near = near.masked_fill(worth <= 0, 0.0)
        alike[part] = alike[part].scatter_reduce(1, place, near, "amax")
    return alike


def _near(memory: MemoryTensors, query: QueryBatch, rows: Tensor, words: Tensor) -> Tensor:
    """Return `_alike` for atoms [B, c] that only ask, by their terms and their cosine."""
    assert query.asked_terms is not None and query.asked_words is not None
    assert memory.asked_form is not None
    assert memory.asked_bits is not None and query.asked_bits is not None
    # Words outside the question in an atom (its speaker, who is addressed) do not count.
    asked_too = (memory.asked_bits[rows][:, None] & query.asked_bits[:, :, None]) != 0
    has = (memory.bm25.holds(query.asked_terms.contiguous(), rows) * asked_too).sum(1)
    own = has / words.clamp(min=1)
    asked = has / query.asked_words[:, None].clamp(min=1)
    similar = cosine(memory, query, rows)
    half = (own >= _HALF) & (asked >= _HALF)
    same = (own >= 1.0) & (asked >= _MOSTLY)
    opens = half & (memory.asked_form[rows] == _OPEN)
    leads = same | (opens & (similar >= _LEADING))
    near = torch.where(leads, similar.clamp(min=_BARELY, max=1.0), _BARELY)
    there = (words > 0) & (query.asked_words > 0)[:, None] & (same | (opens & (similar >= _ALIKE)))
    return near.masked_fill(~there, 0.0).float()


def _replies(
    memory: MemoryTensors,
    query: QueryBatch,
    alike: Tensor,  # [B, n]
    rows: Tensor,  # [n] int64, ascending
    seen: Tensor,  # [B, A] bool
) -> tuple[Tensor, Tensor]:  # [B, P] int64, -1 = none; [B, P]
    """Return the turns that follow echoes in their sessions, and their weights.

    The latest of the nearest echoes has full weight, each earlier one half of the next. The first
    visible turn after an echo is its reply; the turn after that weighs half. A turn after "I don't
    know" counts by its cosine, since anything may follow.
    """
    # Prefer the latest of equal ones, and the last stored of equal or unknown times.
    time = memory.time_bits.view(torch.float64)[rows].nan_to_num(-torch.inf)
    latest = time.argsort(stable=True).flip(0)
    value, place = stable_topk(alike[:, latest], min(_LEADS, alike.shape[1]))
    row = torch.where(value > 0, rows[latest[place]], -1)
    assert memory.asked_words is not None and memory.asked_form is not None
    unknown = memory.asked_form == _NO_ANSWER
    tells = (memory.asked_words == 0) & ~unknown
    pointers, _ = memory.turns
    share, turns, shares = torch.ones_like(value), [], []
    unanswered = torch.zeros_like(row, dtype=torch.bool)
    for _ in range(_TURNS):
        row = pointers.take(row)
        at = row.clamp(min=0)
        there = (row >= 0) & seen.gather(1, at) & tells[at]
        turns.append(row.masked_fill(~there, -1))
        worth = torch.where(unanswered, share * cosine(memory, query, at).clamp(0.0, 1.0), share)
        shares.append(worth.masked_fill(~there, 0.0))
        unanswered |= (row >= 0) & unknown[at]
        share = torch.where(there, share * _LATER, share).masked_fill(share < 1.0, 0.0)
    led = torch.stack(shares, 2)
    led = led * value.square()[:, :, None]
    answered = led.amax(2) > 0
    before = answered.long().cumsum(1) - answered.long()
    led = led * (_EARLIER**before)[:, :, None]
    return torch.stack(turns, 2).flatten(1), led.flatten(1)
