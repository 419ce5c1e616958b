"""Judge of proof graphs: bridges found again, premise chains (`docs/evaluation.md` 4).

Every proof set of the folder is judged separately. Learning uses the rest of the same graph:
nothing of removed dependencies, and of a theorem under test only that it is a neighbour of others.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from graphmem_torch.config import Config
from graphmem_torch.errors import InputError
from graphmem_torch.evaluation.retrieval import text_table
from graphmem_torch.progress import Progress

from ..common.encoder import load_encoder
from ..common.run import Run
from ..common.scores import gain, percent
from ..request import Judged, Request
from .bridges import judge_bridges
from .chains import judge_chains
from .sets import ProofSet, find_sets, read_set

__all__ = ["format_proofs", "judge", "judge_set"]
_log = logging.getLogger(__name__)
_BRIDGES = (
    ("P@10", "precision@10"),
    ("P@100", "precision@100"),
    ("found", "found"),
    ("r@10", "recall@10"),
    ("r@100", "recall@100"),
    ("MRR", "reciprocal_rank"),
)
_CHAINS = ("atoms@10", "atoms@50", "atoms@200", "own_size", "tokens@512", "tokens@2048")


def format_proofs(report: Mapping[str, Any]) -> str:
    """Format bridges, then chains of each setting, for each set; percent, the preset last."""
    subject = report["preset"]
    lines: list[str] = []
    for name, found in report["sets"].items():
        size, bridges, chains = found["size"], found["bridges"], found["chains"]
        lines += [
            f"{name}: {size['statements']:,} statements, {size['dependencies']:,} dependencies; "
            f"{bridges['removed']:,} removed in each of {bridges['draws']} draws, "
            f"{bridges['candidates']:,} absent pairs",
            *_bridges(bridges, subject),
            "",
        ]
        for setting, judged in chains["settings"].items():
            lines += [
                f"{name}, chains {setting}: {chains['n']} theorems, "
                f"{judged['gold_mean']:.0f} statements a chain; completeness",
                *_chains(judged, subject),
                "",
            ]
    lines += [f"left out: {name}: {why}" for name, why in report["left_out"].items()]
    return "\n".join(lines).rstrip()


def _bridges(bridges: Mapping[str, Any], subject: str) -> list[str]:
    title = [
        *(title for title, _ in _BRIDGES),
        "chains F1",
        "resistance",
        f"{subject} minus, found",
    ]
    rows = [["system", *title]]
    plain = percent(bridges["nothing_added"]["f1"])
    rows.append(["(nothing added)", *([""] * len(_BRIDGES)), plain, "", ""])
    for name, figures in bridges["systems"].items():
        rows.append(
            [
                name,
                *(percent(figures[key]) for _, key in _BRIDGES),
                percent(figures["chains"]["f1"]),
                f"-{100 * figures['resistance']['fall']:.2f}%",
                gain(bridges["ci"]["difference"].get(name, {}).get("found")),
            ]
        )
    return text_table(rows)


def _chains(judged: Mapping[str, Any], subject: str) -> list[str]:
    rows = [["system", *_CHAINS, f"{subject} minus, own_size"]]
    rows.append(["(ceiling)", *(percent(judged["ceiling"][key]) for key in _CHAINS), ""])
    for name, figures in judged["systems"].items():
        rows.append(
            [
                name,
                *(percent(figures[key]) for key in _CHAINS),
                gain(judged["ci"]["difference"].get(name, {}).get("own_size")),
            ]
        )
    return text_table(rows)


_DRAWS = 2
_SMALL_DRAWS = 20  # draws of a set in which each removes few dependencies
_SMALL = 2000  # dependencies
_TESTS = 200  # theorems whose chains are asked for


def judge(request: Request, *, draws: int | None = None) -> Judged:
    """Judge both tasks on every proof set in the folder `request.data`.

    Args:
        request: Evaluation request.
        draws: Number of removals of dependencies; by default larger for a smaller set.

    Raises:
        InputError: No proof set of sufficient size.
    """
    run = Run(request)
    config = run.config
    device = "cpu" if request.device == "auto" else request.device
    embedder = load_encoder(request, device=device)
    sets, left_out = find_sets(request.data)
    found: dict[str, Mapping[str, Any]] = {}
    with Progress(what="proof sets", unit="steps", shown=request.progress) as bar:
        for path, name in sets.items():
            try:
                proofs = read_set(path, name, embedder)
            except InputError as error:
                _leave_out(left_out, name, str(error))
                continue
            if proofs.left_out:
                told = f"{proofs.left_out:,} statements beyond the first {len(proofs.texts):,}"
                _leave_out(left_out, f"part of {name}", f"{told}: everything here is dense")
            bar.update(1)
            found[name] = judge_set(
                proofs, config, seed=request.seed, draws=draws, advance=bar.update
            )
    if not found:
        reasons = "; ".join(f"{name}: {why}" for name, why in left_out.items())
        raise InputError(
            f"expected a proof set that can be judged, got {reasons}; add one",
            where=str(request.data),
        )
    return run.judged(
        "proofs",
        format_proofs,
        n={name: result["size"] for name, result in found.items()},
        sets=found,
        left_out=left_out,
    )


def _leave_out(left_out: dict[str, str], name: str, why: str) -> None:
    """Record what is not judged, and print it at once."""
    left_out[name] = why
    _log.warning("%s: left out: %s", name, why)


def judge_set(
    proofs: ProofSet,
    config: Config,
    *,
    seed: int,
    draws: int | None = None,
    advance: Callable[[int], object] = lambda count: None,
) -> Mapping[str, Any]:
    """Judge both tasks on one proof set, with its size and the seconds they took.

    Args:
        proofs: Proof set.
        config: Preset.
        seed: Seed of the draws.
        draws: Number of removals; by default larger for a smaller set.
        advance: Function called with 1 after each draw, and after the chains.
    """
    start = time.perf_counter()
    if draws is None:
        draws = _SMALL_DRAWS if proofs.graph.num_edges < _SMALL else _DRAWS
    bridges = judge_bridges(proofs, config, draws=draws, seed=seed, advance=advance)
    middle = time.perf_counter()
    chains = judge_chains(proofs, subject=config.name, tests=_TESTS, seed=seed)
    advance(1)
    return {
        "size": {
            "statements": proofs.graph.num_nodes,
            "dependencies": proofs.graph.num_edges,
            "left_out": proofs.left_out,
            "proved_in_order": proofs.order is not None,
        },
        "bridges": bridges | {"seconds": middle - start},
        "chains": chains | {"seconds": time.perf_counter() - middle},
    }
