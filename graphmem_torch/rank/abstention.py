"""Abstention: is there a record at all? A confidence from a few statistics of the ranking."""

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
Statistic = Callable[[Candidates, Tensor, Tensor], Tensor]
"""(candidates, places of the best [B, K], their scores [B, K], best first) -> [B]."""

DEPTH = 10
"""How many of the best candidates the statistics look at."""


def _activation(candidates: Candidates, best: Tensor, scores: Tensor) -> Tensor:
    """The largest activation; at a cold start that of an anchor before it spreads, its cosine."""
    reached = candidates.reached
    activation = reached.activation if reached.gate is None else reached.gate
    if activation is None:
        return _of_best("semantic")(candidates, best, scores).clamp(min=0.0)
    return activation.topk(1)[0].squeeze(1)


def _of_top(name: str, count: int = 1) -> Statistic:
    def first(candidates: Candidates, best: Tensor, scores: Tensor) -> Tensor:
        values = candidates.signal(name).expand(candidates.shape)
        return _usual(candidates, name, values.gather(1, best[:, :count]).mean(1))

    return first


def _of_best(name: str) -> Statistic:
    def best_of_all(candidates: Candidates, best: Tensor, scores: Tensor) -> Tensor:
        there = candidates.signal(name).masked_fill(~candidates.listed, -torch.inf)
        return _usual(candidates, name, there.amax(1).clamp(min=-1.0))

    return best_of_all


def _best_above(candidates: Candidates, best: Tensor, scores: Tensor) -> Tensor:
    """The best cosine above what unrelated texts reach in this memory, relative to the rest.

    Of a question with several wishes it is that of the wish that the memory fits best.
    """
    cosine = candidates.signal("semantic").masked_fill(~candidates.listed, -torch.inf).amax(1)
    wishes = candidates.query.wishes
    if wishes is not None:
        cosine = torch.maximum(cosine, _best_wish(candidates, wishes).to(cosine))
    nearest = candidates.query.nearest
    own = torch.zeros_like(cosine) if nearest is None else nearest
    return ((cosine - own) / (1.0 - own).clamp(min=_LEAST_ROOM)).clamp(min=-1.0)


def _best_wish(candidates: Candidates, wishes: Tensor) -> Tensor:  # [B, P, d] -> [B]
    """The best cosine of a wish with any atom that may be a hit, -inf where there is none."""
    embeddings, rows = candidates.memory.embeddings, candidates.rows
    if rows is None:
        cosine = inner_products(wishes.flatten(0, 1), embeddings).view(*wishes.shape[:2], -1)
    else:
        cosine = torch.bmm(wishes, embeddings[rows.clamp(min=0)].to(wishes.dtype).mT)
    there = candidates.listed[:, None] & (wishes != 0).any(2)[:, :, None]
    return cosine.masked_fill(~there, -torch.inf).flatten(1).amax(1)


def _best_near(candidates: Candidates, best: Tensor, scores: Tensor) -> Tensor:
    """The larger of that and of sharp late interaction, where there are token vectors."""
    above = _best_above(candidates, best, scores)
    if candidates.by_words:
        return above
    return torch.maximum(above, _of_best("interaction_sharp")(candidates, best, scores))


def _pair_speaker(candidates: Candidates, best: Tensor, scores: Tensor) -> Tensor:
    """Whether the five best are of the one who is named, between two; less among more people.

    Among many people a question about one is often answered by another.
    """
    named = candidates.query.speakers
    people = 0 if named is None else named.shape[1]
    return _of_top("speaker", 5)(candidates, best, scores) * (_PAIR / max(_PAIR, people)) ** 2


def _usual(candidates: Candidates, name: str, value: Tensor) -> Tensor:
    """A cosine as an encoder gives it whose unrelated texts are orthogonal; other values as is."""
    background = candidates.query.background
    if name != "semantic" or background is None:
        return value
    return usual_cosine(value, background)


def _score(candidates: Candidates, best: Tensor, scores: Tensor) -> Tensor:
    return scores[:, 0].clamp(min=_NO_HIT)


def _lead(place: int) -> Statistic:
    """By how much the first hit is ahead of a later one, or of the last there is."""

    def lead(candidates: Candidates, best: Tensor, scores: Tensor) -> Tensor:
        hits = (scores[:, :place] > -torch.inf).sum(1, keepdim=True)
        last = scores.gather(1, (hits - 1).clamp(min=0)).squeeze(1)
        return scores[:, 0].clamp(min=_NO_HIT) - last.clamp(min=_NO_HIT)

    return lead


def _one(candidates: Candidates, best: Tensor, scores: Tensor) -> Tensor:
    return torch.ones_like(scores[:, 0])


_PAIR = 2  # people of a conversation
_LEAST_ROOM = 1e-3  # cosine that is left above what unrelated texts reach
_NO_HIT = -100.0  # the score of the first hit where there is none
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
"""Statistics for abstention: the best value of any atom, as it is or above what unrelated texts
reach (`docs/mathematics.md` 8.2), the value of the first hit, the mean of five, how far the first
is ahead; and 1, for a bias of one form of memories (`one@peer`)."""

ABOVE = frozenset({"best_above", "best_near"})
"""The statistics that read `QueryBatch.nearest` and `QueryBatch.wishes`."""


def abstention_statistics(
    candidates: Candidates,
    best: Tensor,  # [B, K] places of the K <= `DEPTH` best candidates, best first
    scores: Tensor,  # [B, K]
    names: Sequence[str],
) -> Tensor:  # [B, S]
    """The named statistics.

    Raises:
        ConfigError: A name that is no statistic.
    """
    for name in names:
        if name not in ABSTENTION_STATISTICS:
            known = sorted(ABSTENTION_STATISTICS)
            raise ConfigError(unknown("gate.weights", name, known, what="statistics among"))
    if candidates.shape[1] == 0:
        return candidates.query.embedding.new_zeros(
            len(candidates.query), len(names), dtype=torch.float32
        )
    return torch.stack(
        [ABSTENTION_STATISTICS[name](candidates, best, scores) for name in names], dim=1
    )


def confidence(
    statistics: Tensor,  # [B, S], of `signal_names(config.weights)`
    form: Tensor,  # [B] int64, of the first hit
    weights: Tensor,  # [3, S], `weight_table(config.weights)`
    config: GateConfig,
) -> Tensor:  # [B] in [0, 1]
    """The weighted sum of the statistics, through the link of the preset."""
    total = (statistics * weights[form]).sum(1) + config.bias
    return torch.sigmoid(total) if config.link == "sigmoid" else total.clamp(0.0, 1.0)


def of_forms(
    statistics: Tensor,  # [n, S], of `signal_names(keys)`
    form: Tensor,  # [n] int64
    keys: Sequence[str],
) -> Tensor:  # [n, len(keys)]
    """What each key of `gate.weights` weighs: `score@peer` is 0 but where the form is `peer`."""
    names, columns = signal_names(keys), []
    for weight in map(Weight.named, keys):
        column = statistics[:, names.index(weight.signal)]
        own = torch.isin(form, torch.tensor(weight.rows, device=form.device))
        columns.append(column.where(own, 0.0))
    return torch.stack(columns, dim=1)


def conformal_threshold(confidences: Tensor, rate: float) -> float:
    """The threshold that refuses at most `rate` of exchangeable answerable questions.

    `docs/mathematics.md` 7: the floor(rate * (n + 1))-th smallest of n held-out confidences; minus
    infinity where n is too small to promise.

    Raises:
        InputError: A rate outside [0, 1), or no confidences.
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
    """Logistic regression of answerable against unanswerable questions.

    Both classes weigh the same; `weight` says what questions count within their class.

    Raises:
        InputError: One of the classes is empty.
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
