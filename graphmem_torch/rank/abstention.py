"""Abstention: decide from a few statistics of the ranking whether any memory answers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from graphmem_torch.config import GateConfig
from graphmem_torch.errors import ConfigError, InputError, unknown
from graphmem_torch.linalg.logistic import minimise_log_loss
from graphmem_torch.ops.topk_cosine import inner_products
from graphmem_torch.rank.candidates import Candidates
from graphmem_torch.rank.peers import Ranking
from graphmem_torch.rank.registry import Weight, signal_names
from graphmem_torch.text.embedder import usual_cosine

__all__ = [
    "ABOVE",
    "ABSTENTION_STATISTICS",
    "DEPTH",
    "abstention_statistics",
    "confidence",
    "conformal_threshold",
    "fit_abstention",
    "of_forms",
]
Statistic = Callable[[Candidates, Ranking], Tensor]
"""(candidates, the `DEPTH` best at most) -> [B]."""

DEPTH = 10
"""Number of best candidates that the statistics read."""


def _activation(candidates: Candidates, best: Ranking) -> Tensor:
    """Return the largest activation; at a cold start the best cosine, at least 0."""
    reached = candidates.reached
    activation = reached.activation if reached.gate is None else reached.gate
    peers = candidates.peers
    if activation is None and peers is not None and peers.starts:  # another shard has some
        activation = candidates.zeros
    if activation is None:
        return _of_best("semantic")(candidates, best).clamp(min=0.0)
    return _largest(candidates, activation.topk(1)[0].squeeze(1))


def _of_top(name: str, count: int = 1) -> Statistic:
    def first(candidates: Candidates, best: Ranking) -> Tensor:
        values = candidates.signal(name).expand(candidates.shape)
        return _usual(candidates, name, best.values(values)[:, :count].mean(1))

    return first


def _of_best(name: str) -> Statistic:
    def best_of_all(candidates: Candidates, best: Ranking) -> Tensor:
        there = candidates.signal(name).masked_fill(~candidates.listed, -torch.inf)
        largest = _largest(candidates, there.amax(1))
        return _usual(candidates, name, largest.clamp(min=-1.0))

    return best_of_all


def _best_above(candidates: Candidates, best: Ranking) -> Tensor:
    """Return the best cosine above that of unrelated texts, relative to the possible rest.

    For a question with several wishes, the wish that fits the memory best counts.
    """
    cosine = candidates.signal("semantic").masked_fill(~candidates.listed, -torch.inf).amax(1)
    wishes = candidates.query.wishes
    if wishes is not None:
        cosine = torch.maximum(cosine, _best_wish(candidates, wishes).to(cosine))
    cosine = _largest(candidates, cosine)
    nearest = candidates.query.nearest
    own = torch.zeros_like(cosine) if nearest is None else nearest
    return ((cosine - own) / (1.0 - own).clamp(min=_LEAST_ROOM)).clamp(min=-1.0)


def _best_wish(candidates: Candidates, wishes: Tensor) -> Tensor:  # [B, P, d] -> [B]
    """Return the best cosine of a wish with any atom that may be a hit; -inf without one."""
    embeddings, rows = candidates.memory.embeddings, candidates.rows
    if rows is None:
        cosine = inner_products(wishes.flatten(0, 1), embeddings).view(*wishes.shape[:2], -1)
    else:
        cosine = torch.bmm(wishes, embeddings[rows.clamp(min=0)].to(wishes.dtype).mT)
    there = candidates.listed[:, None] & (wishes != 0).any(2)[:, :, None]
    return cosine.masked_fill(~there, -torch.inf).flatten(1).amax(1)


def _best_near(candidates: Candidates, best: Ranking) -> Tensor:
    """Return the larger of `_best_above` and sharp late interaction, with token vectors."""
    above = _best_above(candidates, best)
    if candidates.by_words:
        return above
    return torch.maximum(above, _of_best("interaction_sharp")(candidates, best))


def _pair_speaker(candidates: Candidates, best: Ranking) -> Tensor:
    """Return the share of the five best hits by the person named; less among more than two people.

    Among many people a question about one is often answered by another.
    """
    named = candidates.query.speakers
    people = 0 if named is None else named.shape[1]
    return _of_top("speaker", 5)(candidates, best) * (_PAIR / max(_PAIR, people)) ** 2


def _largest(candidates: Candidates, own: Tensor) -> Tensor:  # [B] -> [B]
    """Return the largest value of any shard."""
    peers = candidates.peers
    return own if peers is None else peers.largest("statistic", own)


def _usual(candidates: Candidates, name: str, value: Tensor) -> Tensor:
    """Rescale a cosine so that unrelated texts are orthogonal; return other values unchanged."""
    background = candidates.query.background
    if name != "semantic" or background is None:
        return value
    return usual_cosine(value, background)


def _score(candidates: Candidates, best: Ranking) -> Tensor:
    return best.scores[:, 0].clamp(min=_NO_HIT)


def _lead(place: int) -> Statistic:
    """Score difference between the first hit and the hit at `place`, or the last hit."""

    def lead(candidates: Candidates, best: Ranking) -> Tensor:
        scores = best.scores
        hits = (scores[:, :place] > -torch.inf).sum(1, keepdim=True)
        last = scores.gather(1, (hits - 1).clamp(min=0)).squeeze(1)
        return scores[:, 0].clamp(min=_NO_HIT) - last.clamp(min=_NO_HIT)

    return lead


def _one(candidates: Candidates, best: Ranking) -> Tensor:
    return torch.ones_like(best.scores[:, 0])


_PAIR = 2  # people of a conversation
_LEAST_ROOM = 1e-3  # minimum room above the cosine of unrelated texts
_NO_HIT = -100.0  # score of the first hit if there is no hit
ABSTENTION_STATISTICS: dict[str, Statistic] = {
    "activation": _activation,
    "top_interaction": _of_top("interaction_focus"),
    "top_sharp": _of_top("interaction_sharp"),
    "top_passage": _of_top("interaction_passage"),
    "top_semantic": _of_top("semantic"),
    "top_lexical": _of_top("lexical"),
    "top_speaker": _of_top("speaker"),
    "best_interaction": _of_best("interaction_focus"),
    "best_sharp": _of_best("interaction_sharp"),
    "best_semantic": _of_best("semantic"),
    "best_lexical": _of_best("lexical"),
    "best_above": _best_above,
    "best_near": _best_near,
    "best_speaker": _of_best("speaker"),
    "mean_speaker": _of_top("speaker", 5),
    "pair_speaker": _pair_speaker,
    "score": _score,
    "lead_2": _lead(2),
    "lead_5": _lead(5),
    "lead_10": _lead(10),
    "one": _one,
}
"""Statistics for abstention (`docs/mathematics.md` 8.2).

They are the best value of any atom, plain or above that of unrelated texts; the value of the first
hit; the mean of five; the lead of the first hit; and 1, a bias for one form (`one@peer`)."""

ABOVE = frozenset({"best_above", "best_near"})
"""The statistics that read `QueryBatch.nearest` and `QueryBatch.wishes`."""


def abstention_statistics(
    candidates: Candidates,
    best: Ranking,  # of the K best candidates, of which the first `DEPTH` are read
    names: Sequence[str],
) -> Tensor:  # [B, S]
    """Compute the named statistics.

    Raises:
        ConfigError: A name is no statistic.
    """
    for name in names:
        if name not in ABSTENTION_STATISTICS:
            known = sorted(ABSTENTION_STATISTICS)
            raise ConfigError(unknown("gate.weights", name, known, what="statistics among"))
    if candidates.shape[1] == 0:
        return candidates.query.embedding.new_zeros(
            len(candidates.query), len(names), dtype=torch.float32
        )
    best = best._replace(scores=best.scores[:, :DEPTH])
    if best.peers is None:
        best = best._replace(places=best.places[:, :DEPTH])
    return torch.stack([ABSTENTION_STATISTICS[name](candidates, best) for name in names], dim=1)


def confidence(
    statistics: Tensor,  # [B, S], of `signal_names(config.weights)`
    form: Tensor,  # [B] int64, of the first hit
    weights: Tensor,  # [3, S], `weight_table(config.weights)`
    config: GateConfig,
) -> Tensor:  # [B] in [0, 1]
    """Return the weighted sum of the statistics, through the link of the preset."""
    total = (statistics * weights[form]).sum(1) + config.bias
    return torch.sigmoid(total) if config.link == "sigmoid" else total.clamp(0.0, 1.0)


def of_forms(
    statistics: Tensor,  # [n, S], of `signal_names(keys)`
    form: Tensor,  # [n] int64
    keys: Sequence[str],
) -> Tensor:  # [n, len(keys)]
    """Return the values that the keys of `gate.weights` weigh; `score@peer` is 0 off `peer`."""
    names, columns = signal_names(keys), []
    for weight in map(Weight.named, keys):
        column = statistics[:, names.index(weight.signal)]
        own = torch.isin(form, torch.tensor(weight.rows, device=form.device))
        columns.append(column.where(own, 0.0))
    return torch.stack(columns, dim=1)


def conformal_threshold(confidences: Tensor, rate: float) -> float:
    """Return the threshold that refuses at most `rate` of exchangeable answerable questions.

    It is the floor(rate * (n + 1))-th smallest of n held-out confidences (`docs/mathematics.md` 7),
    or minus infinity if n is too small for a guarantee.

    Raises:
        InputError: The rate is outside [0, 1), or there are no confidences.
    """
    if not 0.0 <= rate < 1.0 or confidences.numel() == 0:
        raise InputError(
            f"rate: expected a share in [0, 1) and at least one confidence, got {rate} and "
            f"{confidences.numel()}; give answerable questions held back"
        )
    # 0.57 * 100 is 56.99...: the product of a decimal rate must not lose a whole rank.
    rank = math.floor(rate * (confidences.numel() + 1) + 1e-9)
    return -math.inf if rank == 0 else float(confidences.sort().values[rank - 1])


def fit_abstention(
    statistics: Tensor,  # [n, G]
    answerable: Tensor,  # [n] bool
    *,
    weight: Tensor | None = None,  # [n]
    penalty: float = 1e-2,
) -> tuple[Tensor, float]:  # [G] weights, bias
    """Fit a logistic regression of answerable against unanswerable questions.

    Both classes have equal weight; `weight` sets the weight of each question within its class.

    Raises:
        InputError: One class is empty.
    """
    if answerable.all() or not answerable.any():
        raise InputError(
            "answerable: expected both answerable and unanswerable questions, got one kind; add "
            "some of the other"
        )
    mean, scale = statistics.mean(0), statistics.std(0).clamp(min=1e-6)
    x, y = (statistics - mean) / scale, answerable.float()
    own = torch.ones_like(y) if weight is None else weight.float()
    balance = own * torch.where(answerable, 0.5 / (own * y).sum(), 0.5 / (own * (1 - y)).sum())
    fitted = minimise_log_loss(x, y, balance, penalty=penalty, steps=60)
    slope = fitted[:-1] / scale
    return slope, float(fitted[-1] - slope @ mean)
