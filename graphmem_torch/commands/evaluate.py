"""`graphmem eval`: retrieval quality on a labelled data set, beside every baseline, in one run."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from graphmem_torch.commands.options import Command
from graphmem_torch.errors import InputError

__all__ = ["Evaluate"]


@dataclass(frozen=True, kw_only=True)
class Evaluate(Command):
    """Measure a preset beside its baselines; writes a JSON file and prints a table.

    Attributes:
        dataset: What to measure on.
        data: The data set's file, or the folder it is in.
        json: File to write the results to.
        evidence: File with repaired evidence ids, one JSON object a line.
        preset: Name of a preset, or the path of a YAML file.
        input: The turns only, or also the facts that ship with the data set.
        cv: Refit whatever is fitted for each conversation on all the others.
        embedder: SentenceTransformer name or folder, or `hashing`; the preset's by default.
        device: `auto`, `cpu`, `cuda` or `cuda:N`.
        seed: Of the bootstrap and of the choice of questions that are timed.
    """

    dataset: Annotated[Positional[Literal["locomo"]], arg(metavar="locomo")]
    data: Annotated[Path, arg(metavar="FILE")]
    json: Annotated[Path, arg(metavar="OUT")]
    evidence: Annotated[Path | None, arg(metavar="FILE")] = None
    preset: Annotated[str, arg(metavar="NAME")] = "default"
    input: Literal["raw", "observations"] = "raw"
    cv: bool = False
    embedder: Annotated[str | None, arg(metavar="NAME")] = None
    device: Annotated[str, arg(metavar="DEVICE")] = "auto"
    seed: int = 0

    def run(self) -> int:
        """Runs the evaluation, writes its report and prints the table."""
        # Told now, not after the work.
        if self.json.is_dir():
            raise InputError(f"expected --json to be a file to write, got the folder {self.json}")
        if not self.json.parent.is_dir():
            raise InputError(f"expected --json in a folder that exists, got {self.json}")
        from graphmem_torch.evaluation.locomo import evaluate_locomo
        from graphmem_torch.evaluation.table import format_table

        report = evaluate_locomo(
            self.data,
            evidence=self.evidence,
            preset=self.preset,
            config=self.config,
            input=self.input,
            cv=self.cv,
            device=self.device,
            embedder=self.embedder,
            seed=self.seed,
            progress=True,
        )
        partial = self.json.with_name(self.json.name + ".partial")
        partial.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
        partial.replace(self.json)
        print(format_table(report))
        return 0
