"""Judge of abstention: does a memory know what it cannot answer?"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphmem_torch.config import Config
from graphmem_torch.errors import InputError
from graphmem_torch.evaluation.bootstrap import interval_table
from graphmem_torch.rank.abstention import conformal_threshold
from graphmem_torch.rank.registry import Weight

from ..all.judge import sets_of, shares_of
from ..common.abstention import ANSWERABLE, KINDS, Seen, learn_gate, see
from ..common.compare import BuiltSet, build
from ..common.encoder import caching
from ..common.run import Run
from ..common.scores import auroc, percent, share
from ..common.tables import Head, Table
from ..request import Judged, Request

__all__ = ["calibration_error", "format_abstention", "format_promises", "judge", "promises"]
_BINS = 10
_EVERY = (ANSWERABLE, *KINDS)
_RATES = (0.025, 0.05, 0.1)  # rates of false refusals that a threshold promises
_FITTED = ("half", "elsewhere")  # data the thresholds are fitted to


def judge(request: Request, *, resamples: int = 500) -> Judged:
    """Ask the memories of every set answerable and unanswerable questions.

    Three kinds of questions have no answer: those marked by the set, those of other memories, and
    the memory's own without the answering atoms.

    With `cv` two more gates are compared: learned from the sets of all other sources, and the same
    without the signal of speakers.

    Each gate is also held to what conformal thresholds promise (`promises`).

    Raises:
        InputError: No set there, one that cannot be used, a preset whose confidence is not
            learned, or `cv` with sets of one source.
    """
    run = Run(request, resamples)
    config = run.config
    if request.cv and config.gate.link != "sigmoid":
        raise InputError(
            f"cv: expected a preset whose gate is learned, got {config.name!r}; leave out --cv"
        )
    encoders = run.encoders
    built = [
        build(one, [config], encoders, request.device, request.progress)
        for one in sets_of(request, encoders)
        if len(one.sources) == 1  # merged sets repeat the questions of their parts
    ]
    tasks = [task for one in built for task in one.own]
    with caching(encoders):
        seen = dict(zip(tasks, see(tasks, config), strict=True))
    sets = {}
    for one in built:
        own = [seen[task] for task in one.own]
        gates = {config.name: config}
        if request.cv:
            gates |= _learned_elsewhere(one, built, seen, config)
        counts = {kind: sum(int(s.of(kind).sum()) for s in own) for kind in _EVERY}
        figures = {name: _figures(own, g, request.seed, resamples) for name, g in gates.items()}
        foreign = [seen[task] for other in _elsewhere(one, built) for task in other.own]
        for name, gate in gates.items():
            figures[name]["promised"] = promises(
                [_answerable(each, gate) for each in own],
                [_answerable(each, gate) for each in foreign],
                seed=request.seed,
                resamples=resamples,
            )
        sets[one.questions.name] = {"n": counts, "gates": figures}
    for one in built:
        one.close()
    n = {name: found["n"][ANSWERABLE] for name, found in sets.items()}
    return run.judged(
        "abstention",
        lambda report: [format_abstention(report), format_promises(report)],
        options={"cv": request.cv},
        n=n,
        sets=sets,
    )


def _elsewhere(one: BuiltSet, built: Sequence[BuiltSet]) -> list[BuiltSet]:
    """Return the sets of all other sources."""
    return [other for other in built if other.questions.sources.isdisjoint(one.questions.sources)]


def _learned_elsewhere(
    one: BuiltSet, built: Sequence[BuiltSet], seen: Mapping[Any, Seen], config: Config
) -> Iterator[tuple[str, Config]]:
    """Yield gates from the sets of all other sources, with and without the signal of speakers."""
    others = _elsewhere(one, built)
    if not others:
        raise InputError(
            f"cv: expected sets of at least 2 sources to leave one out, got "
            f"{sorted(one.questions.sources)}; leave out --cv"
        )
    shares, known = shares_of(others), [seen[task] for other in others for task in other.own]
    silent = {
        key: value
        for key, value in config.gate.weights.items()
        if not Weight.named(key).signal.endswith("_speaker")
    }
    gates = {"": config.gate.weights, ", no speaker": silent}
    for label, weights in gates.items():
        start = replace(config, gate=replace(config.gate, weights=weights))
        yield f"{config.name}, other sets{label}", learn_gate(known, shares, start)


def _figures(own: Sequence[Seen], config: Config, seed: int, resamples: int) -> dict[str, Any]:
    """Return the figures of a gate on the questions to the memories of a set."""
    sure = torch.cat([one.confidence(config) for one in own])
    masks = {kind: torch.cat([one.of(kind) for one in own]) for kind in _EVERY}
    answerable = sure[masks[ANSWERABLE]]
    closed = (sure < config.gate.threshold).double()
    weight = torch.cat([one.weight() for one in own])
    unmarked = sure[masks[KINDS[1]] | masks[KINDS[2]]]
    return {
        "auroc": {k: _interval(answerable, sure[masks[k]], seed, resamples) for k in KINDS},
        "auroc_unmarked": _interval(answerable, unmarked, seed, resamples),
        "refused": {k: float(closed[m].mean()) if m.any() else None for k, m in masks.items()},
        "calibration_error": calibration_error(sure, masks[ANSWERABLE], weight),
    }


def _answerable(seen: Seen, config: Config) -> Tensor:  # [n]
    """Return the confidences of a memory's answerable questions."""
    return seen.confidence(config)[seen.of(ANSWERABLE)]


def promises(
    own: Sequence[Tensor],  # confidences [n] of each memory's answerable questions
    others: Sequence[Tensor],  # confidences of the sets of other sources
    *,
    seed: int,
    resamples: int,
) -> dict[str, dict[str, Any]]:
    """Return the answerable questions that conformal thresholds refuse on other data.

    `half`: each half of the memories by the threshold of the other half; with one memory, halves of
    its questions. `elsewhere`: all by the threshold of the sets of other sources.
    `docs/mathematics.md` 7.

    Returns:
        For both, None without data to fit to: `n`, the questions judged; and for each promised rate
        the share refused, with its 95 % interval, [mean, low, high].
    """
    every = [part for part in own if len(part)]
    if len(every) == 1:
        order = list(range(len(every[0])))
        random.Random(seed).shuffle(order)
        every = [every[0][order[i::2]] for i in (0, 1)]
    firsts, seconds = every[::2], every[1::2]
    pairs = {"half": [(firsts, seconds), (seconds, firsts)], "elsewhere": [(others, every)]}
    found: dict[str, dict[str, Any]] = {}
    for name, folds in pairs.items():
        parts = [
            torch.stack([(sure < _threshold(known, rate)).double() for rate in _RATES], dim=1)
            for known, sure in ((_joined(fit), _joined(on)) for fit, on in folds)
            if len(known) and len(sure)
        ]
        if parts:
            refused = torch.cat(parts)
            table = interval_table(refused, _RATES, seed=seed, resamples=resamples)
            found[name] = {"n": len(refused), **table}
    return {name: found.get(name) for name in _FITTED}


def _joined(parts: Sequence[Tensor]) -> Tensor:
    return torch.cat(list(parts)) if parts else torch.empty(0)


def _threshold(confidences: Tensor, rate: float) -> float:
    return max(conformal_threshold(confidences, rate), 0.0)


def calibration_error(
    confidence: Tensor,  # [n] in [0, 1]
    truth: Tensor,  # [n] bool
    weight: Tensor,  # [n]
) -> float:
    """Return the expected calibration error: mean distance of confidence and truth over ten bins.

    Guo et al. 2017, equation 3, with weighted questions.
    """
    place = (confidence.double() * _BINS).long().clamp(max=_BINS - 1)
    off = torch.zeros(_BINS, dtype=torch.float64)
    off.index_add_(0, place, weight.double() * (confidence.double() - truth.double()))
    return float(off.abs().sum() / weight.double().sum())


def _interval(
    positive: Tensor, negative: Tensor, seed: int, resamples: int
) -> tuple[float, float, float] | None:
    """Return AUROC with the ends of its 95 % bootstrap interval over questions of both sides."""
    area = auroc(positive, negative)
    if area is None:
        return None
    generator = torch.Generator().manual_seed(seed)

    def drawn(count: int) -> Tensor:  # [resamples, count], how often each is there
        places = torch.randint(count, (resamples, count), generator=generator)
        return torch.zeros(resamples, count).scatter_add_(1, places, torch.ones(places.shape))

    # Who wins each pair, ties half: a resample weighs the pairs.
    wins = (positive[:, None] > negative).float() + 0.5 * (positive[:, None] == negative).float()
    times = drawn(len(positive)), drawn(len(negative))
    areas = ((times[0] @ wins) * times[1]).sum(1) / wins.numel()
    low, high = np.quantile(areas.numpy(), [0.025, 0.975]).tolist()
    return area, low, high


def format_abstention(report: Mapping[str, Any]) -> Table:
    """Return a row for each set and gate: AUROC by kind, refusals, and the calibration error."""
    heads = [Head("set"), Head("gate"), *(Head(f"AUROC {kind}", _area) for kind in KINDS)]
    heads += [Head(f"refused {kind}", percent) for kind in _EVERY]
    heads.append(Head("calibration error", "{:.2f}".format))
    rows = []
    for name, found in report["sets"].items():
        title = f"{name} ({found['n'][ANSWERABLE]})"
        for gate, own in found["gates"].items():
            shown = [title, gate, *(own["auroc"][kind] for kind in KINDS)]
            shown += [own["refused"][kind] for kind in _EVERY]
            rows.append([*shown, own["calibration_error"]])
    told = "adversarial: marked so by the set; foreign: asked of other memories; "
    return Table(heads, rows, [f"{told}removed: the memories that answer it are left out"])


def format_promises(report: Mapping[str, Any]) -> Table:
    """Return a row for each set and gate: refused answerable questions by promised rate."""
    heads = [Head("set"), Head("gate"), Head("AUROC without marked", _area)]
    heads += [Head(f"{100 * rate:g} % by {name}", share) for name in _FITTED for rate in _RATES]
    rows = []
    for name, found in report["sets"].items():
        for gate, own in found["gates"].items():
            parts = [own["promised"][fitted] or {} for fitted in _FITTED]
            shown = [part.get(str(rate)) for part in parts for rate in _RATES]
            rows.append([f"{name} ({found['n'][ANSWERABLE]})", gate, own["auroc_unmarked"], *shown])
    told = (
        "answerable questions refused, %, by conformal thresholds of so much; half: fitted to the "
        "other half of the memories;"
    )
    return Table(heads, rows, [told, "elsewhere: to the sets of all other sources"])


def _area(value: Sequence[float] | None) -> str:
    return "-" if value is None else f"{value[0]:.3f} [{value[1]:.2f}, {value[2]:.2f}]"
