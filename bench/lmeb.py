"""LoCoMo in the form of LMEB (arXiv 2603.12572), by the task of `mteb`, on a memory.

`python -m bench.lmeb [--data locomo.json] [--preset NAME] [--json OUT]`, with the extra `mteb`

There are five subsets, one a category. The turns of all conversations are one corpus; the
candidates of a question are those of its own conversation. nDCG@10 is the main score. Without
`--data` the task fetches its own data. With a LoCoMo file, the documents are `[time] speaker:
text`, which is not how LMEB writes them, so the figures are not comparable with LMEB's own.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import arg

from bench.command import command
from graphmem_torch.atoms import Atom
from graphmem_torch.errors import optional_import
from graphmem_torch.integrations.mteb import MemorySearch
from graphmem_torch.quality.common.measure import code_version
from graphmem_torch.quality.common.questions import find_evidence, read_conversations

__all__ = ["Lmeb", "main", "run", "subsets"]

_CATEGORIES = {
    "single_hop": 4,
    "multi_hop": 1,
    "temporal_reasoning": 2,
    "open_domain": 3,
    "adversarial": 5,
}
_SHOWN = ("ndcg_at_10", "recall_at_10", "R_cap_at_10")


@dataclass(frozen=True)
class Lmeb:
    """Options of the measurement.

    Attributes:
        data: LoCoMo file, instead of LMEB's own data.
        preset: Name of a preset, or path of a YAML file.
        embedder: Name of an encoder; the preset's by default.
        json: File to write the report to; printed by default.
    """

    data: Annotated[Path | None, arg(metavar="FILE")] = None
    preset: str = "default"
    embedder: str | None = None
    json: Path | None = None


def subsets(data: Path) -> dict[str, dict[str, Any]]:
    """Return the subsets of a LoCoMo file: `corpus`, `queries`, `relevant_docs`, `top_ranked`.

    Questions without evidence are left out, as in LMEB.
    """
    found = read_conversations(data, evidence=find_evidence(data.parent))
    corpus = [
        {"id": f"{one.name} {atom.id}", "text": _document(atom), "title": ""}
        for one in found
        for atom in one.atoms
    ]
    own = {one.name: [f"{one.name} {atom.id}" for atom in one.atoms] for one in found}
    made: dict[str, dict[str, Any]] = {}
    for name, category in _CATEGORIES.items():
        queries, relevant, candidates = [], {}, {}
        for one in found:
            for number, question in enumerate(one.questions):
                if question.category == category and question.gold:
                    key = f"{one.name} {number}"
                    queries.append({"id": key, "text": question.text})
                    relevant[key] = {f"{one.name} {gold}": 1 for gold in question.gold}
                    candidates[key] = own[one.name]
        made[name] = {
            "corpus": corpus,
            "queries": queries,
            "relevant_docs": relevant,
            "top_ranked": candidates,
        }
    return made


def _document(atom: Atom) -> str:
    """Return a turn with its time."""
    if atom.time is None:
        return atom.rendered
    return f"[{datetime.fromtimestamp(atom.time, UTC):%d %B %Y, %H:%M}] {atom.rendered}"


def run(options: Lmeb) -> dict[str, Any]:
    """Return the figures of each subset, and their mean."""
    mteb = optional_import("mteb", "LMEB's task", "graphmem-torch[mteb]")
    parts = {} if options.data is None else subsets(options.data)
    parts = {name: own for name, own in parts.items() if own["queries"]}
    task = mteb.get_task("LoCoMo", hf_subsets=[*parts] or None)
    if options.data is not None:
        from datasets import Dataset

        task.dataset = {
            name: {
                "test": own | {key: Dataset.from_list(own[key]) for key in ("corpus", "queries")}
            }
            for name, own in parts.items()
        }
        task.data_loaded = True
    model = MemorySearch(preset=options.preset, embedder=options.embedder)
    done = mteb.evaluate(model, task, cache=None, co2_tracker=False, show_progress_bar=False)
    figures = {}
    for scores in done.task_results[0].scores["test"]:
        name = scores["hf_subset"]
        figures[name] = {"n": len(task.dataset[name]["test"]["queries"])} if task.dataset else {}
        figures[name] |= {key: scores[key] for key in _SHOWN if key in scores}
    return {
        "model": done.model_name,
        "data": "LMEB" if options.data is None else str(options.data),
        "subsets": figures,
        "ndcg_at_10": sum(each["ndcg_at_10"] for each in figures.values()) / len(figures),
        "code": code_version(),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the measurement."""
    command(Lmeb, run, arguments, __doc__)
    return 0


if __name__ == "__main__":
    sys.exit(main())
