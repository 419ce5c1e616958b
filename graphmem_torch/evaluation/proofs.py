"""The judge of proof graphs: bridges found again, premise chains (`evaluation.md`, Proof graphs).

Every proof set of the folder is judged by itself. What is learned is learned from the rest of the
same graph: nothing from removed dependencies, and from a theorem that is asked for only that it is
among the neighbours of others.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from tqdm import tqdm

from graphmem_torch.config import config_to_dict
from graphmem_torch.evaluation.measure import code_version
from graphmem_torch.evaluation.proofs_bridges import judge_bridges
from graphmem_torch.evaluation.proofs_chains import judge_chains
from graphmem_torch.evaluation.proofs_sets import ProofSet, read_sets
from graphmem_torch.evaluation.proofs_table import format_proofs
from graphmem_torch.evaluation.request import Judged, Request
from graphmem_torch.text.embed import load_embedder

__all__ = ["judge", "judge_set"]

_DRAWS = 2
_SMALL_DRAWS = 20  # of a set in which a draw removes few dependencies
_SMALL = 2000  # dependencies
_TESTS = 200  # theorems whose chains are asked for


def judge(request: Request) -> Judged:
    """Both tasks on every proof set found; the folder is `request.data`.

    Raises:
        InputError: No proof set, or one that cannot be read.
    """
    config = request.settings
    device = "cpu" if request.device == "auto" else request.device
    embedder = load_embedder(
        config.embedder.name if request.embedder is None else request.embedder,
        device,
        token_dim=config.embedder.token_dim,
    )
    subject = config.name
    found = {
        proofs.name: judge_set(proofs, subject=subject, seed=request.seed)
        for proofs in tqdm(
            read_sets(request.data, embedder), desc="proof sets", disable=not request.progress
        )
    }
    report = {
        "dataset": "proofs",
        "preset": subject,
        "commit": code_version(),
        "n": {name: result["size"] for name, result in found.items()},
        "sets": found,
        "config": config_to_dict(config),
        "seed": request.seed,
    }
    return Judged(report, format_proofs(report))


def judge_set(proofs: ProofSet, *, subject: str, seed: int) -> Mapping[str, Any]:
    """Both tasks on one proof set, with its size and the seconds they took."""
    start = time.perf_counter()
    few = proofs.graph.num_edges < _SMALL
    bridges = judge_bridges(
        proofs, subject=subject, draws=_SMALL_DRAWS if few else _DRAWS, seed=seed
    )
    middle = time.perf_counter()
    chains = judge_chains(proofs, subject=subject, tests=_TESTS, seed=seed)
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
