"""Judge of the local judge: claims with evidence, supersessions, and its calibration.

Both come in two halves. The judge's confidences were fitted on the first: claims whose evidence has
an even digest, and supersessions by the templates `fit`. All figures are of the second unless
stated otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from graphmem_torch.atoms import text_hash
from graphmem_torch.evaluation.bootstrap import mean_interval
from graphmem_torch.judge.entailment import RELATED, Evidence, LexicalJudge
from graphmem_torch.linalg.logistic import fit_logistic
from graphmem_torch.oracle import Verdict
from graphmem_torch.text.embedder import rescaled

from ..common.encoder import CachingEmbedder, load_encoder
from ..common.run import Run
from ..common.scores import auroc, percent, share
from ..common.tables import Head, Table
from ..request import Judged, Request
from .model import measure, read_claims
from .supersessions import GROUPS, KINDS, Pair, supersessions

__all__ = ["judge", "reliability"]

_PAIRS = 2000  # supersessions of each group
_BINS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0)
_PENALTY = 1e-2  # penalty of the logistic models, on signals of unit variance


def judge(request: Request, *, pairs: int = _PAIRS) -> Judged:
    """Measure the local judge on claims and on supersessions.

    Args:
        request: Evaluation request; `data` holds claims with evidence (see `model.read_claims`).
        pairs: Supersessions of each group of templates.

    Raises:
        InputError: Data that cannot be used.
    """
    rows = read_claims(request.data)
    run, encoder = Run(request), load_encoder(request, token_dim=0)
    made = {group: supersessions(pairs, group=group, seed=request.seed) for group in GROUPS}
    with encoder.caching():
        first, second = _halves(rows)
        sides = {
            "claims, fit": _claims_of(first, encoder),
            "claims": _claims_of(second, encoder),
            "supersessions, fit": _supersessions_of(made["fit"], encoder),
            "supersessions": _supersessions_of(made["held_out"], encoder),
        }
        claims = measure(rows, encoder, seed=request.seed)
        held = measure(second, encoder, seed=request.seed) if second else None
        told = _told(made["held_out"], encoder, request.seed)
    related = rescaled(RELATED, encoder)
    return run.judged(
        "claims",
        lambda report: [_claims_table(report), _told_table(report), _reliability_table(report)],
        n={"claims": len(rows), "held_out_claims": len(second), "supersessions": pairs},
        claims={"all": claims, "held_out": held},
        supersessions=told,
        reliability={
            name: {
                label: reliability(side.verdicts, truth, label)
                for label, truth in (("contradict", side.refuted), ("entail", side.entailed))
            }
            for name, side in sides.items()
        },
        fitted={
            "contradiction": _fitted(
                [sides["claims, fit"], sides["supersessions, fit"]],
                lambda side: side.refuted,
                lambda each, near: each.conflict(near, related),
            ),
            "entailment": _fitted(
                [sides["claims, fit"], sides["supersessions, fit"]],
                lambda side: side.entailed,
                lambda each, near: each.agreement(near, related),
            ),
        },
    )


class _Side:
    """Pairs of known truth, with the judge's verdicts.

    Attributes:
        evidence: Evidence of each pair.
        cosine: [n].
        verdicts: Verdict on each pair.
        refuted: [n] bool, true for a contradiction.
        entailed: [n] bool, true for an entailment.
    """

    def __init__(
        self,
        premises: Sequence[str],
        hypotheses: Sequence[str],
        refuted: Sequence[bool],
        entailed: Sequence[bool],
        encoder: CachingEmbedder,
    ) -> None:
        local = LexicalJudge(encoder)
        ends = [encoder.encode(list(side)).pooled for side in (premises, hypotheses)]
        self.evidence = local.evidence(premises, hypotheses)
        self.cosine = (ends[0] * ends[1]).sum(1)
        self.verdicts = local.judge_near(premises, hypotheses, self.cosine)
        self.refuted = torch.tensor(refuted, dtype=torch.bool)
        self.entailed = torch.tensor(entailed, dtype=torch.bool)


def _halves(rows: Sequence[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Split claims by the digest of their evidence: all claims of one piece are in one half."""
    parts: tuple[list[dict[str, Any]], list[dict[str, Any]]] = ([], [])
    for row in rows:
        parts[int(text_hash(" ".join(row["evidence"])), 16) % 2].append(row)
    return parts


def _claims_of(rows: Sequence[dict[str, Any]], encoder: CachingEmbedder) -> _Side:
    supported = [row["label"] == "SUPPORTED" for row in rows]
    premises = [" ".join(row["evidence"]) for row in rows]
    refuted = [not each for each in supported]
    return _Side(premises, [row["claim"] for row in rows], refuted, supported, encoder)


def _supersessions_of(pairs: Sequence[Pair], encoder: CachingEmbedder) -> _Side:
    return _Side(
        [pair.later for pair in pairs],
        [pair.earlier for pair in pairs],
        [pair.superseded for pair in pairs],
        [pair.kind == "same" for pair in pairs],
        encoder,
    )


def _fitted(
    sides: Sequence[_Side],
    truth: Callable[[_Side], Tensor],
    asked: Callable[[Evidence, float], bool],
) -> dict[str, float] | None:
    """Fit the logistic model of a verdict to pairs that suggest it; each set counts alike."""
    rows, labels, weights = [], [], []
    for side in sides:
        near = side.cosine.tolist()
        place = [
            i for i, each in enumerate(side.evidence) if each is not None and asked(each, near[i])
        ]
        known = [each for i in place if (each := side.evidence[i]) is not None]
        rows += [[each.shared, *each.cues.values()] for each in known]
        labels += truth(side)[place].tolist()
        weights += [1000.0 / len(place)] * len(place) if place else []
    if len(set(labels)) < 2:
        return None
    names = next(each for side in sides for each in side.evidence if each is not None).cues
    signals = torch.tensor(rows)
    # A cue that the rule never lets by is none of the model.
    model = fit_logistic(signals, torch.tensor(labels), torch.tensor(weights), penalty=_PENALTY)
    pairs = zip(["shared", *names], model.weights.tolist(), strict=True)
    weighed = {name: round(weight, 2) for name, weight in pairs if abs(weight) >= 0.005}
    return {"bias": round(model.bias, 2), **weighed}


def _told(pairs: Sequence[Pair], encoder: CachingEmbedder, seed: int) -> dict[str, Any]:
    """Measure the detection of supersessions beside always-yes and cosine, and by kind."""
    side = _supersessions_of(pairs, encoder)
    truth = side.refuted
    sure = torch.tensor(
        [each.confidence if each.label == "contradict" else 0.0 for each in side.verdicts]
    )
    said = torch.tensor([each.label == "contradict" for each in side.verdicts])
    scores = {
        "always_yes": (torch.ones(len(pairs)), torch.ones(len(pairs), dtype=torch.bool)),
        "cosine": (side.cosine, side.cosine >= side.cosine.median()),
        "judge": (sure, said),
    }
    return {
        "n": {"pairs": len(pairs), "superseded": int(truth.sum())},
        "systems": {
            name: {
                "auroc": auroc(score[truth], score[~truth]),
                "accuracy": mean_interval((found == truth).double(), seed=seed),
                "precision": float(truth[found].double().mean()) if found.any() else None,
                "recall": float(found[truth].double().mean()),
            }
            for name, (score, found) in scores.items()
        },
        "kinds": {
            kind: [int(mask.sum()), float(said[mask].double().mean())]
            for kind in (*KINDS, "same", "beside", "other_subject", "other")
            if (mask := torch.tensor([pair.kind == kind for pair in pairs])).any()
        },
    }


def reliability(
    verdicts: Sequence[Verdict],
    truth: Tensor,  # [n] bool
    label: str,
) -> list[dict[str, float]]:
    """Return number, mean confidence and precision of the verdicts of a label, by confidence."""
    place = torch.tensor([i for i, each in enumerate(verdicts) if each.label == label])
    if not len(place):
        return []
    sure = torch.tensor([verdicts[i].confidence for i in place.tolist()], dtype=torch.float64)
    right = truth[place].double()
    rows = []
    for low, high in zip(_BINS, (*_BINS[1:-1], 1.01), strict=False):
        inside = (sure >= low) & (sure < high)
        if inside.any():
            rows.append(
                {
                    "from": low,
                    "n": int(inside.sum()),
                    "confidence": float(sure[inside].mean()),
                    "right": float(right[inside].mean()),
                }
            )
    return rows


def _claims_table(report: Mapping[str, Any]) -> Table:
    heads = [Head("claims"), Head("system"), Head("AUROC", "{:.3f}".format)]
    heads += [Head("accuracy", share), Head("above majority", share)]
    rows = [
        [
            f"{part} ({found['n']['claims']})",
            name,
            own["auroc"],
            own["accuracy"],
            own["minus_majority"],
        ]
        for part, found in report["claims"].items()
        if found is not None
        for name, own in found["systems"].items()
    ]
    return Table(heads, rows)


def _told_table(report: Mapping[str, Any]) -> Table:
    found = report["supersessions"]
    heads = [Head(f"supersessions ({found['n']['pairs']})"), Head("AUROC", "{:.3f}".format)]
    heads += [Head("accuracy", share), Head("precision", percent), Head("recall", percent)]
    rows = [
        [name, own["auroc"], own["accuracy"], own["precision"], own["recall"]]
        for name, own in found["systems"].items()
    ]
    kinds = (f"{kind} {percent(share)} of {n}" for kind, (n, share) in found["kinds"].items())
    return Table(heads, rows, ["called superseded, %: " + "; ".join(kinds)])


def _reliability_table(report: Mapping[str, Any]) -> Table:
    heads = [Head("verdicts"), Head("of"), Head("from", "{:.2f}".format), Head("n")]
    heads += [Head("confidence", percent), Head("right", percent)]
    rows = [
        [label, name, row["from"], row["n"], row["confidence"], row["right"]]
        for name, labels in report["reliability"].items()
        for label, rows in labels.items()
        for row in rows
    ]
    return Table(heads, rows)
