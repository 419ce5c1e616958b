"""Measure how often the rules for memory types agree with a reader.

`python -m bench.quality.memory_types --data FILE [--json OUT]`

`FILE` holds JSON lines with `text`, `type` (the label) and optionally `kind`, `speaker` and
`source`, the atoms that `graphmem index` reads. `bench/quality/memory_types.jsonl` has 106
sentences of instructions, notes and agents. The weights of the rules were fitted to lines 1, 3, 5,
...; `--held-out` measures on lines 2, 4, 6, ... only.

The baseline uses the kind of an atom alone: a turn is episodic, all else semantic.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import torch
import tyro
from tyro.conf import arg

from graphmem_torch.atoms import MEMORY_TYPES, Atom
from graphmem_torch.errors import InputError
from graphmem_torch.evaluation.bootstrap import interval_table
from graphmem_torch.readers.jsonl import read_records
from graphmem_torch.text.memory_type import RULES, memory_types

from .common.measure import code_version

__all__ = ["main", "measure"]


@dataclass(frozen=True)
class Types:
    """Measure the rules for memory types on labelled texts.

    Attributes:
        data: JSON lines.
        json: File for the report.
        held_out: Every second line only, from the second on.
        seed: Seed of the intervals.
    """

    data: Annotated[Path, arg(metavar="FILE")]
    json: Annotated[Path | None, arg(metavar="OUT")] = None
    held_out: bool = False
    seed: int = 0


def measure(atoms: Sequence[Atom], *, seed: int = 0) -> dict[str, Any]:
    """Return accuracy of the rules and of the kind alone, with intervals, and the confusions.

    Args:
        atoms: Atoms with the type that a reader gave them; `source` in `meta` groups them.
        seed: Seed of the intervals.

    Raises:
        InputError: No atoms, or one without a type.
    """
    labels = [atom.type for atom in atoms]
    if not atoms or None in labels:
        raise InputError(
            "expected texts that each have a `type`, got one without, or no text; add it"
        )
    found = memory_types([replace(atom, type=None) for atom in atoms])
    alone = ["episodic" if atom.speaker or atom.kind == "turn" else "semantic" for atom in atoms]
    right = torch.tensor(
        [[a == label, b == label] for a, b, label in zip(found, alone, labels, strict=True)]
    ).double()
    sources = [str(atom.meta.get("source", "")) for atom in atoms]
    pairs = Counter(zip(labels, found, strict=True))
    return {
        "n": len(atoms),
        "accuracy": interval_table(right, ("rules", "kind"), seed=seed),
        "by_source": {
            name: {
                "n": sources.count(name),
                "rules": float(right[[s == name for s in sources], 0].mean()),
            }
            for name in sorted(set(sources))
        },
        "confusion": {
            label: {other: pairs[label, other] for other in MEMORY_TYPES} for label in MEMORY_TYPES
        },
        "rules": RULES,
    }


def main() -> int:
    """Read the options, measure, print."""
    options = tyro.cli(Types, description=__doc__)
    lines = options.data.read_bytes().splitlines(keepends=True)
    atoms = list(read_records(lines, str(options.data)))
    report = measure(atoms[1::2] if options.held_out else atoms, seed=options.seed)
    report |= {"dataset": options.data.name, "held_out": options.held_out, "seed": options.seed}
    report["commit"] = code_version()
    text = json.dumps(report, indent=2)
    if options.json is not None:
        options.json.write_text(text + "\n", encoding="utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
