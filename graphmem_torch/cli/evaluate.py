"""`graphmem eval`: retrieval quality on a labelled data set, beside every baseline, in one run."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from graphmem_torch.cli.options import Command
from graphmem_torch.errors import InputError
from graphmem_torch.quality.request import JUDGES, Request, judge

__all__ = ["Evaluate"]


@dataclass(frozen=True, kw_only=True)
class Evaluate(Command):
    """Measure a preset beside its baselines; writes a JSON file and prints a table.

    Attributes:
        dataset: What to measure on; `custom` is data of your own.
        data: The data set's file, or the folder it is in; not for custom.
        atoms: For custom: a file or folder that `graphmem index` takes.
        questions: For custom: JSON lines with `question` and `evidence`, a list of ids of atoms.
        json: File to write the results to.
        evidence: For locomo and modes: file with repaired evidence ids, one JSON object a line.
        preset: Name of a preset, or the path of a YAML file.
        input: For locomo: the turns only, or also the facts that ship with the data set.
        cv: For locomo: refit whatever is fitted for each conversation on all the others.
        embedder: SentenceTransformer name or folder, or `hashing`; the preset's by default.
        device: `auto`, `cpu`, `cuda` or `cuda:N`.
        seed: Of the bootstrap and of whatever else is drawn.
    """

    dataset: Annotated[Positional[Literal[tuple(JUDGES)]], arg(metavar="|".join(JUDGES))]  # type: ignore[valid-type]
    data: Annotated[Path | None, arg(metavar="PATH")] = None
    atoms: Annotated[Path | None, arg(metavar="FILE")] = None
    questions: Annotated[Path | None, arg(metavar="FILE")] = None
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
            raise InputError(
                f"--json: expected a file to write, got the folder {self.json}; name a file"
            )
        if not self.json.parent.is_dir():
            raise InputError(f"--json: expected a file in a folder that exists, got {self.json}")
        data = self._data()
        found = judge(
            self.dataset,
            Request(
                data=data,
                questions=self.questions,
                preset=self.preset,
                config=self.config,
                embedder=self.embedder,
                device=self.device,
                seed=self.seed,
                progress=True,
                evidence=self.evidence,
                input=self.input,
                cv=self.cv,
            ),
        )
        partial = self.json.with_name(self.json.name + ".partial")
        partial.write_text(json.dumps(found.report, indent=1) + "\n", encoding="utf-8")
        partial.replace(self.json)
        print(found.table)
        return 0

    def _data(self) -> Path:
        """What is read: `--atoms` of custom, `--data` of every other data set."""
        own = self.dataset == "custom"
        needed = {"atoms": self.atoms, "questions": self.questions} if own else {"data": self.data}
        for name, value in needed.items():
            if value is None:
                raise InputError(f"--{name}: expected a path, got none; {self.dataset} needs it")
        other = {"data": self.data} if own else {"atoms": self.atoms}
        for name, value in other.items():
            if value is not None:
                raise InputError(f"--{name}: expected nothing for {self.dataset}, got {value}")
        data = self.atoms if own else self.data
        assert data is not None
        return data
