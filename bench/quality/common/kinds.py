"""Fit weights and constants of `default` to kinds of data that each count alike.

Weights minimise a listwise softmax with shrinkage to a prior. The constants of hops are then
searched on the measures themselves, in which the worst kind counts half (`docs/mathematics.md`
8.8).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from graphmem_torch.config import Config
from graphmem_torch.rank.registry import SIGNALS, Weight

from .signals import LEARNED_FROM, Gathered

__all__ = [
    "CONSTANTS",
    "INGREDIENTS",
    "KEYS",
    "PRIOR",
    "KindFit",
    "KindSet",
    "fit_kinds",
    "ingredient_values",
    "leave_kinds_out",
    "measure",
    "preset_values",
    "to_config",
]

KEYS: tuple[str, ...] = (
    *("semantic@plain", "lexical@plain", "late@plain"),
    *("semantic@said", "lexical@said", "late@said", "length@peer", "question@peer"),
    *("interaction_passage", "interaction_session_best", "interaction_answer", "lexical_session"),
    *("interaction_previous", "interaction_sharp_previous"),
    *("speaker", "role", "date", "event", "time_expression"),
    *("derived_semantic", "derived_late"),
)
"""Signals whose weights are fitted by descent."""

PRIOR: Mapping[str, float] = {
    **{f"semantic@{form}": 0.8 for form in ("plain", "said")},
    **{f"{name}@{form}": 0.4 for name in ("lexical", "late") for form in ("plain", "said")},
    # Set by hand for kinds without data: without chats a user's words come first.
    "role": 1.0,
}
"""Prior that the fit shrinks to; 0 for all other weights."""

CONSTANTS: Mapping[str, float] = {
    "named": 0.7,
    "anchors.named": 3.0,
    "anchors.temperature": 4.5,
    "hops.title": 0.5,
    "hops.entity": 0.25,
    "hops.title_named": 1.0,
    "hops.entity_named": 1.0,
}
"""Initial values of the searched constants, set by hand where no kind needs several hops."""

_STRONG: Mapping[str, float] = {
    "hops.title": 6.0,
    "hops.entity": 0.5,
    "hops.title_named": 9.0,
    "hops.entity_named": 8.75,
}
_CLEARLY = 0.002  # minimum gain of strong hops in the objective for the search to start from them

INGREDIENTS: tuple[str, ...] = ("semantic", "lexical", "rrf", "interaction")
_PENALTY, _OF_FLAGS = 0.01, 0.05  # of squared distances from the prior; share for flags
_STEPS, _RATE, _RENEWED = 120, 0.05, 20  # steps of Adam between two updates of the hops
_FLOOR = 1 / 4  # weight of BM25 beside cosine for texts without a speaker
_FACTORS = ((0.3, 0.5, 0.7, 1.4, 2.0), (0.7, 0.85, 1.18, 1.4))
_WORST = 0.5  # weight of the worst kind's difference to its best ingredient
_ANCHORS, _BEHIND = 10, 0.001
_PLACE = {name: place for place, name in enumerate(LEARNED_FROM)}


@dataclass(frozen=True, eq=False)
class KindSet:
    """Questions of a set.

    Attributes:
        name: Name of the set.
        data_kind: Kind of data.
        measure: `recall` or `ndcg`.
        at: Number of hits of the measure.
        gathered: Signals of its memories.
    """

    name: str
    data_kind: str
    measure: str
    at: int
    gathered: Sequence[Gathered]


@dataclass(frozen=True, eq=False)
class KindFit:
    """Result of a fit: weights by key, and constants by name."""

    weights: Mapping[str, float]
    constants: Mapping[str, float] = field(default_factory=lambda: dict(CONSTANTS))


@dataclass(frozen=True, eq=False)
class _Design:
    """Data of one memory for the fit: Q questions, C candidates, K keys, P hops."""

    terms: Tensor  # [Q, C, K]
    fixed: Tensor  # [Q, C]
    named: Tensor  # [Q, C]
    listed: Tensor  # [Q, C] bool
    found: Gathered

    @classmethod
    def of(cls, found: Gathered, fixed: Mapping[str, float]) -> _Design:
        values = found.values.float()
        columns = []
        for key in KEYS:
            weight = Weight.named(key)
            own = torch.isin(found.form.long(), torch.tensor(weight.rows))
            columns.append(values[:, :, _PLACE[weight.signal]] * own)
        still = sum(
            (values[:, :, _PLACE[name]] * value for name, value in fixed.items()),
            start=torch.zeros(found.form.shape),
        )
        named = values[:, :, _PLACE["named"]]
        return cls(torch.stack(columns, 2), still, named, found.listed, found)

    def score(self, weights: Tensor, constants: Mapping[str, float]) -> Tensor:  # [Q, C]
        """Return the weighted sums, before hops."""
        return self.terms @ weights + self.fixed + constants["named"] * self.named

    def raised(self, score: Tensor, constants: Mapping[str, float]) -> Tensor:  # [Q, C]
        """Return how much hops raise the scores; equals `rank.lifts` for kept candidates."""
        hop, value = self.found.hop.long(), self.found.hop_value
        none = torch.zeros_like(score)
        if not len(hop):
            return none
        led = (score + constants["anchors.named"] * self.named).masked_fill(
            ~self.listed, -torch.inf
        )
        best, place = led.topk(min(_ANCHORS, led.shape[1]))
        weight = torch.exp((best - best[:, :1]) / constants["anchors.temperature"])
        weight = none.scatter(1, place, weight.where(best > -torch.inf, 0.0))
        share = self.named.where(self.listed, 0.0).amax(1)
        question, anchor, target = hop.unbind(1)
        strength = torch.stack(
            [
                (1 - share) * constants[f"hops.{name}"] + share * constants[f"hops.{name}_named"]
                for name in ("title", "entity")
            ],
            1,
        )
        lift = weight[question, anchor] * (strength[question] * value).sum(1)
        own = score[question, target]
        top = score[question, anchor] - _BEHIND
        gain = (torch.minimum(own + lift, top) - own).clamp(min=0.0)
        flat = question * score.shape[1] + target
        return none.flatten().scatter_reduce(0, flat, gain, "amax").view_as(score)

    def ranked(self, weights: Tensor, constants: Mapping[str, float]) -> Tensor:  # [Q, C]
        """Return the scores with hops, minus infinity for padding."""
        score = self.score(weights, constants)
        score = score + self.raised(score, constants)
        return score.masked_fill(~self.listed, -torch.inf)


def measure(
    score: Tensor,  # [Q, C]
    found: Gathered,
    name: str,
    at: int,
) -> Tensor:  # [Q]
    """Return recall or nDCG of a ranking at a number of hits, over all gold of each question."""
    # The gold comes first in the storage order, which must not decide between equal scores.
    drawn = torch.randperm(score.shape[1], generator=torch.Generator().manual_seed(0))
    order = drawn[score[:, drawn].argsort(dim=1, descending=True, stable=True)[:, :at]]
    grade = found.gold.gather(1, order) * (score.gather(1, order) > -torch.inf)
    if name == "recall":
        return (grade > 0).sum(1) / (found.ideal > 0).sum(1)
    discount = torch.log2(torch.arange(at, dtype=torch.float32) + 2.0)
    gained = (grade / discount[: grade.shape[1]]).sum(1)
    ideal = found.ideal[:, :at]
    return gained / (ideal / discount[: ideal.shape[1]]).sum(1)


def ingredient_values(one: KindSet) -> dict[str, Tensor]:
    """Return the measure of each ingredient, question by question, among the kept candidates."""
    parts: dict[str, list[Tensor]] = {name: [] for name in INGREDIENTS}
    for found in one.gathered:
        values = found.values.float()
        own = {name: values[:, :, _PLACE[name]] for name in INGREDIENTS if name in _PLACE}
        ranks = [_ranks(own[name].masked_fill(~found.listed, -torch.inf)) for name in own]
        own["rrf"] = 1 / (60 + ranks[0]) + 1 / (60 + ranks[1])
        for name, score in own.items():
            score = score.masked_fill(~found.listed, -torch.inf)
            parts[name].append(measure(score, found, one.measure, one.at))
    return {name: torch.cat(values) for name, values in parts.items()}


def _ranks(scores: Tensor) -> Tensor:  # [Q, C], 1 = best, equal ones share their mean
    ordered = scores.sort(dim=1).values
    lower = torch.searchsorted(ordered, scores.contiguous())
    upper = torch.searchsorted(ordered, scores.contiguous(), right=True)
    return scores.shape[1] - (lower + upper - 1) / 2.0


def preset_values(one: KindSet, fit: KindFit, fixed: Mapping[str, float]) -> Tensor:  # [n]
    """Return the measure of fitted weights, question by question."""
    weights = torch.tensor([fit.weights[key] for key in KEYS])
    return torch.cat(
        [
            measure(
                _Design.of(found, fixed).ranked(weights, fit.constants),
                found,
                one.measure,
                one.at,
            )
            for found in one.gathered
        ]
    )


def fit_kinds(
    sets: Sequence[KindSet],
    fixed: Mapping[str, float],
    *,
    told: Callable[[str], None] = lambda _: None,
) -> KindFit:
    """Fit weights and constants to several kinds; kinds count alike, and so do sets of a kind.

    Args:
        sets: Sets to learn from.
        fixed: Weights of signals that are set by hand.
        told: Function that receives progress messages.
    """
    designs = [[_Design.of(found, fixed) for found in one.gathered] for one in sets]
    shares = _shares(sets)
    best = [max(float(values.mean()) for values in ingredient_values(one).values()) for one in sets]
    constants = dict(CONSTANTS)
    hops = any(len(design.found.hop) for each in designs for design in each)
    for turn, factors in enumerate(_FACTORS):
        weights = _descended(designs, shares, constants)
        if hops and turn == 0:
            # Weak and strong hops are two valleys that the search would not cross.
            strong = constants | dict(_STRONG)
            other = _descended(designs, shares, strong)
            gained = _objective(sets, designs, best, other, strong)
            if gained > _objective(sets, designs, best, weights, constants) + _CLEARLY:
                weights, constants = other, strong
        if hops:
            constants = _searched(sets, designs, best, weights, constants, factors)
        told(f"turn {turn + 1}: {_objective(sets, designs, best, weights, constants):.4f}")
    weights = _descended(designs, shares, constants)
    return KindFit(dict(zip(KEYS, weights.tolist(), strict=True)), constants)


def _shares(sets: Sequence[KindSet]) -> list[float]:
    """Return the weight of each set's mean: kinds count alike, and so do sets of a kind."""
    kinds = [one.data_kind for one in sets]
    return [1.0 / (len(set(kinds)) * kinds.count(kind)) for kind in kinds]


def _descended(
    designs: Sequence[Sequence[_Design]], shares: Sequence[float], constants: Mapping[str, float]
) -> Tensor:  # [K]
    prior = torch.tensor([PRIOR.get(key, 0.0) for key in KEYS])
    flags = torch.tensor([SIGNALS[Weight.named(key).signal].indicator for key in KEYS])
    penalty = _PENALTY * torch.where(flags, _OF_FLAGS, 1.0)
    weights = prior.clone().requires_grad_()
    steps = torch.optim.Adam([weights], lr=_RATE)
    semantic, lexical = KEYS.index("semantic@plain"), KEYS.index("lexical@plain")
    raised: list[list[Tensor]] = []
    for step in range(_STEPS):
        if step % _RENEWED == 0:
            with torch.no_grad():
                raised = [
                    [d.raised(d.score(weights, constants), constants) for d in each]
                    for each in designs
                ]
        loss = (penalty * (weights - prior).square()).sum()
        for each, share, lifts in zip(designs, shares, raised, strict=True):
            count = sum(len(design.found) for design in each)
            for design, lift in zip(each, lifts, strict=True):
                score = (design.score(weights, constants) + lift).masked_fill(
                    ~design.listed, -torch.inf
                )
                gold = design.found.gold > 0
                loss = loss + share / count * _listwise(score, gold)
        steps.zero_grad()
        loss.backward()
        steps.step()
        with torch.no_grad():
            weights[lexical] = torch.maximum(weights[lexical], _FLOOR * weights[semantic])
    return weights.detach()


def _listwise(score: Tensor, gold: Tensor) -> Tensor:  # []
    """Return the sum over questions of the mean of -log softmax over their gold."""
    some = gold.any(1)
    logs = score[some].log_softmax(1).masked_fill(~gold[some], 0.0)
    return -(logs.sum(1) / gold[some].sum(1)).sum()


def _objective(
    sets: Sequence[KindSet],
    designs: Sequence[Sequence[_Design]],
    best: Sequence[float],
    weights: Tensor,
    constants: Mapping[str, float],
) -> float:
    """Return the mean of the kinds plus half of the worst difference to a best ingredient."""
    kinds: dict[str, list[tuple[float, float]]] = {}
    for one, each, floor in zip(sets, designs, best, strict=True):
        values = torch.cat(
            [
                measure(design.ranked(weights, constants), design.found, one.measure, one.at)
                for design in each
            ]
        )
        kinds.setdefault(one.data_kind, []).append((float(values.mean()), floor))
    means = [sum(own for own, _ in each) / len(each) for each in kinds.values()]
    less = [sum(own - floor for own, floor in each) / len(each) for each in kinds.values()]
    return sum(means) / len(means) + _WORST * min(0.0, *less)


def _searched(
    sets: Sequence[KindSet],
    designs: Sequence[Sequence[_Design]],
    best: Sequence[float],
    weights: Tensor,
    constants: Mapping[str, float],
    factors: Sequence[float],
) -> dict[str, float]:
    """Search coordinates: each constant times each factor in turn, kept if better."""
    found = dict(constants)
    # Only documents make a difference to them.
    some = [
        any(bool(design.found.values[:, :, _PLACE["named"]].any()) or len(design.found.hop)
            for design in each)
        for each in designs
    ]  # fmt: skip
    parts = [
        (one, each, floor)
        for one, each, floor, use in zip(sets, designs, best, some, strict=True)
        if use
    ]
    if not parts:
        return found
    sets, designs, best = zip(*parts, strict=True)
    highest = _objective(sets, designs, best, weights, found)
    for name in CONSTANTS:
        start = found[name]
        for factor in factors:
            other = found | {name: start * factor}
            value = _objective(sets, designs, best, weights, other)
            if value > highest + 1e-6:
                highest, found = value, other
    return found


def leave_kinds_out(sets: Sequence[KindSet], fixed: Mapping[str, float]) -> dict[str, KindFit]:
    """Return for each kind the fit to all the others."""
    return {
        kind: fit_kinds([one for one in sets if one.data_kind != kind], fixed)
        for kind in dict.fromkeys(one.data_kind for one in sets)
    }


def to_config(fit: KindFit, config: Config) -> Config:
    """Return the settings with the fitted values; those set by hand stay."""
    weights: dict[str, float] = {}
    for name in ("semantic", "lexical", "late"):
        weights[name] = fit.weights[f"{name}@plain"]
        weights[f"{name}@said"] = fit.weights[f"{name}@said"] - fit.weights[f"{name}@plain"]
    weights |= {key: fit.weights[key] for key in KEYS if key.partition("@")[0] not in weights}
    weights["named"] = fit.constants["named"]
    kept = {key: value for key, value in config.rank.weights.items() if key not in weights}
    own = {name: fit.constants[f"hops.{name}"] for name in ("title", "entity")}
    own |= {f"{name}_named": fit.constants[f"hops.{name}_named"] for name in ("title", "entity")}
    return replace(
        config,
        rank=replace(config.rank, weights=weights | kept),
        anchors=replace(
            config.anchors,
            named=fit.constants["anchors.named"],
            temperature=fit.constants["anchors.temperature"],
        ),
        hops=replace(config.hops, **own),
    )
