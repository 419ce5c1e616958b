"""Measure how well the local judge separates supported from refuted claims, with baselines.

`python -m bench.quality.claims.model --data FILE [--json OUT]`

`FILE` holds JSON lines with `claim`, `label` (SUPPORTED or REFUTED) and `evidence`, a list of
sentences (the format of COVID-Fact), or is a folder of such files.

Three systems decide every claim by a threshold that is fitted on claims of other evidence (five
folds). `majority` always gives the commoner label, `cosine` uses the similarity of claim and
evidence, `judge` uses `LexicalJudge.support`. The last column is `LexicalJudge.judge` itself, which
may leave a claim open. `graphmem eval claims` also measures supersessions. Intervals are
bootstrapped over pieces of evidence.

With `--model NAME --base-url URL` a language model on an OpenAI-compatible server is measured as
well, by the sign and confidence of its verdicts, and by the verdicts themselves.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
import tyro
from torch import Tensor
from tyro.conf import arg

from graphmem_torch.errors import InputError
from graphmem_torch.evaluation.bootstrap import bootstrap_interval
from graphmem_torch.judge.entailment import LexicalJudge
from graphmem_torch.oracle import OpenAIClient, OpenAIOracle, Verdict
from graphmem_torch.text.sentence_transformer import load_embedder

from ..common.encoder import CachingEmbedder
from ..common.measure import code_version
from ..common.scores import auroc
from ..common.texts import json_rows

__all__ = ["main", "measure", "read_claims"]

_FOLDS = 5


@dataclass(frozen=True)
class Claims:
    """Measure the local judge on claims with evidence.

    Attributes:
        data: JSON lines, or a folder of them.
        json: File for the report.
        embedder: Name of the encoder.
        limit: Maximum claims, drawn by the seed; all by default.
        model: Name of a language model to measure as well.
        base_url: Address of its server, such as http://127.0.0.1:8080/v1.
        cache: SQLite file for the model's answers.
        seed: Seed of the sample, the folds and the intervals.
    """

    data: Annotated[Path, arg(metavar="FILE")]
    json: Annotated[Path | None, arg(metavar="OUT")] = None
    embedder: str = "all-MiniLM-L6-v2"
    limit: int | None = None
    model: str | None = None
    base_url: str | None = None
    cache: Path | None = None
    seed: int = 0


def main() -> int:
    """Read the options, measure, print."""
    options = tyro.cli(Claims, description=__doc__)
    encoder = CachingEmbedder(load_embedder(options.embedder, "auto", token_dim=0))
    rows = _drawn(read_claims(options.data), options.limit, options.seed)
    oracle = None
    if options.model is not None:
        client = OpenAIClient(
            options.model, base_url=options.base_url, timeout=600.0, cache=options.cache
        )
        oracle = OpenAIOracle(client)
    report = measure(rows, encoder, seed=options.seed, oracle=oracle)
    text = json.dumps(report, indent=2)
    if options.json is not None:
        options.json.write_text(text + "\n", encoding="utf-8")
    print(text)
    return 0


def measure(
    rows: Sequence[dict[str, Any]],
    encoder: Any,
    *,
    seed: int = 0,
    oracle: OpenAIOracle | None = None,
) -> dict[str, Any]:
    """Return the report on some claims as JSON values."""
    premises = [" ".join(row["evidence"]) for row in rows]
    hypotheses = [row["claim"] for row in rows]
    truth = torch.tensor([row["label"] == "SUPPORTED" for row in rows])
    names = {text: place for place, text in enumerate(dict.fromkeys(premises))}
    group = torch.tensor([names[text] for text in premises])
    generator = torch.Generator().manual_seed(seed)
    fold = torch.randint(_FOLDS, (len(names),), generator=generator)[group]
    judge = LexicalJudge(encoder)
    with encoder.caching():
        support = judge.support(premises, hypotheses)
        vectors = encoder.encode(premises).pooled, encoder.encode(hypotheses).pooled
        verdicts = judge.judge(premises, hypotheses)
    scores = {
        "majority": torch.zeros(len(rows)),
        "cosine": (vectors[0] * vectors[1]).sum(1),
        "judge": support,
    }
    given: dict[str, Sequence[Verdict | None]] = {"verdicts": verdicts}
    if oracle is not None:
        given["verdicts_of_model"] = found = oracle.judge(premises, hypotheses)
        scores["model"] = torch.tensor([_signed(verdict) for verdict in found])
    right = {name: _decided(score, truth, fold) == truth for name, score in scores.items()}
    return {
        "dataset": "claims",
        "commit": code_version(),
        "n": {"claims": len(rows), "supported": int(truth.sum()), "evidence": len(names)},
        "systems": {
            name: {
                "accuracy": _interval(right[name].double(), group, generator),
                "auroc": auroc(score[truth], score[~truth]),
                "minus_majority": _interval(
                    right[name].double() - right["majority"].double(), group, generator
                ),
            }
            for name, score in scores.items()
        },
        "judge_minus_cosine": _interval(
            right["judge"].double() - right["cosine"].double(), group, generator
        ),
        **{name: _as_said(found, truth, group, generator) for name, found in given.items()},
        **(
            {}
            if oracle is None
            else {"model": oracle.client.model, "usage": asdict(oracle.client.usage)}
        ),
        "seed": seed,
    }


def _signed(verdict: Verdict | None) -> float:
    """Return the confidence of an entailment, minus that of a contradiction, 0 otherwise."""
    if verdict is None or verdict.label == "neutral":
        return 0.0
    return verdict.confidence if verdict.label == "entail" else -verdict.confidence


def _as_said(
    verdicts: Sequence[Verdict | None],
    truth: Tensor,  # [n] bool
    group: Tensor,  # [n]
    generator: torch.Generator,
) -> dict[str, Any]:
    """Return the accuracy of the verdicts themselves; a missing one decides nothing."""
    said = ["lost" if verdict is None else verdict.label for verdict in verdicts]
    entailed = torch.tensor([label == "entail" for label in said])
    decided = entailed | torch.tensor([label == "contradict" for label in said])
    own = (entailed == truth)[decided].double()
    return {
        "decided": float(decided.double().mean()),
        "lost": said.count("lost"),
        "accuracy_of_decided": _interval(own, group[decided], generator),
        "supported_by_label": {
            label: [
                said.count(label),
                int(truth[torch.tensor([one == label for one in said])].sum()),
            ]
            for label in ("entail", "contradict", "neutral")
        },
    }


def _drawn(rows: list[dict[str, Any]], limit: int | None, seed: int) -> list[dict[str, Any]]:
    """Return a sample of rows, drawn by the seed, in their order."""
    if limit is None or limit >= len(rows):
        return rows
    if limit < 1:
        raise InputError(f"limit: expected at least 1 claim, got {limit}; raise it")
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))
    return [rows[place] for place in order[:limit].sort().values.tolist()]


def _decided(score: Tensor, truth: Tensor, fold: Tensor) -> Tensor:  # [n] bool
    """Decide whether claims are supported, by the best threshold for the other folds."""
    out = torch.zeros_like(truth)
    for part in range(_FOLDS):
        own = fold == part
        values, labels = score[~own], truth[~own]
        order = values.argsort(descending=True)
        # Right answers if the first i are called supported, i = 0 .. n.
        gain = torch.cat([torch.zeros(1), torch.where(labels[order], 1.0, -1.0).cumsum(0)])
        ordered = values[order]
        ties = torch.cat([ordered[1:] == ordered[:-1], torch.zeros(1, dtype=torch.bool)])
        gain[1:][ties] = -torch.inf  # equal scores are decided alike
        count = int(gain.argmax())
        least = float(ordered[count - 1]) if count else torch.inf
        out[own] = score[own] >= least
    return out


def _interval(
    values: Tensor,  # [n]
    group: Tensor,  # [n]
    generator: torch.Generator,
) -> list[float] | None:
    """Return the mean over claims and its 95 % interval, resampled by piece of evidence."""
    if len(values) == 0:
        return None
    _, place = torch.unique(group, return_inverse=True)
    count = torch.bincount(place).double()
    total = torch.zeros_like(count).index_add_(0, place, values.double())
    # A ratio of means: each piece of evidence enters with all its claims.
    mean = float(values.mean())
    shifted = (total - mean * count) / count.mean()
    (found,) = bootstrap_interval(shifted[:, None], generator=generator)
    assert found is not None
    return [mean, mean + found[1], mean + found[2]]


def read_claims(path: Path) -> list[dict[str, Any]]:
    """Return the claims of a file, or of the files of a folder.

    Raises:
        InputError: No claims, or an invalid line.
    """
    files = sorted(path.glob("*.jsonl")) if path.is_dir() else [path]
    rows = []
    for file in files:
        for row, where in json_rows(file, ("claim", "label", "evidence")):
            if row["label"] not in ("SUPPORTED", "REFUTED") or not row["evidence"]:
                raise InputError(
                    f"expected a label SUPPORTED or REFUTED and evidence, got {row!r:.80}; add it",
                    where=where,
                )
            rows.append(row)
    if not rows:
        raise InputError(
            "expected claims as JSON lines, found none; name another file", where=str(path)
        )
    return rows


if __name__ == "__main__":
    raise SystemExit(main())
