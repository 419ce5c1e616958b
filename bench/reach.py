"""Reach of the graph in a memory, by the age of the memories.

`python -m bench.reach --data PATH/novels.jsonl.xz [--atoms 1000 10000 100000] [--json OUT]`

Paragraphs become memories in their order; their sentences and later ones become questions. An atom
is reached if it has activation after the last round and is not an anchor. The report gives the mean
share that a question reaches in each tenth of the memories, the oldest first. Caps on the edges of
a node that favour old or new ends would show here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from torch import Tensor
from tyro.conf import arg

from bench.command import command
from bench.scale import paragraphs, questions
from graphmem_torch.config import load_config
from graphmem_torch.memory import Memory
from graphmem_torch.ops import SparseRows
from graphmem_torch.quality.common.measure import code_version
from graphmem_torch.text.sentence_transformer import load_embedder

__all__ = ["Reach", "deciles", "main", "run"]
_ADDED = 5000  # memories added at once


@dataclass(frozen=True)
class Reach:
    """Settings of a measurement.

    Attributes:
        data: JSON lines with `text`, `book`, `chapter` and `par`; also `.xz`.
        atoms: Numbers of memories.
        presets: Presets whose edges and propagation are measured.
        questions: Number of questions.
        batch: Questions asked at once.
        embedder: Name of an encoder.
        concepts: Name of a concept extractor.
        seed: Seed of the questions.
        json: File to write the report to; standard output by default.
    """

    data: Annotated[Path, arg(metavar="PATH")]
    atoms: tuple[int, ...] = (1000, 10_000, 100_000)
    presets: tuple[str, ...] = ("synapse", "default")
    questions: int = 100
    batch: int = 20
    embedder: str = "hashing"
    concepts: Literal["pattern", "spacy"] = "pattern"
    seed: int = 0
    json: Path | None = None


def deciles(reached: Tensor) -> Tensor:  # [B, A] bool -> [10]
    """Return the mean share of each tenth of the atoms that a question reaches."""
    share = reached.float().mean(0)
    return torch.stack([part.mean() for part in share.tensor_split(10)])


def run(options: Reach) -> dict[str, Any]:
    """Return the shares by preset and size, and the ratio of the largest to the smallest."""
    found = {
        preset: {str(size): _measured(options, preset, size) for size in options.atoms}
        for preset in options.presets
    }
    asked = {"questions": options.questions, "embedder": options.embedder, "seed": options.seed}
    return {"commit": code_version(), **asked, "concepts": options.concepts, "reached": found}


def _measured(options: Reach, preset: str, size: int) -> Mapping[str, Any]:
    config = load_config(preset, {"link.concepts": options.concepts})
    asked = questions(options.data, size, options.questions, options.seed)
    with Memory.open(None, config=config, embedder=load_embedder(options.embedder)) as memory:
        atoms = list(paragraphs(options.data, size))
        for begin in range(0, len(atoms), _ADDED):
            memory.add(atoms[begin : begin + _ADDED])
        memory.upkeep.consolidate()
        index = memory.index
        shares = []
        for begin in range(0, len(asked), options.batch):
            query = memory.tensors.encode(asked[begin : begin + options.batch])
            with torch.inference_mode():
                brought = index.candidates(query).reached
            assert brought.activation is not None and brought.anchors is not None
            active = brought.activation
            dense = active.to_dense() if isinstance(active, SparseRows) else active
            reached = torch.nn.functional.pad(dense > 0, (0, 1))  # a column for -1
            reached.scatter_(1, brought.anchors % reached.shape[1], False)
            shares.append(deciles(reached[:, :-1]) * len(query))
        share = torch.stack(shares).sum(0) / len(asked)
        return {
            "nodes": index.tensors.graph.num_nodes,
            "edges": index.tensors.graph.num_edges,
            "deciles": share.tolist(),
            "ratio": float(share.max() / share.min()) if share.min() > 0 else None,
        }


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and write the report."""
    command(Reach, run, arguments, __doc__)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
