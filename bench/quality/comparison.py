"""`graphmem eval compare A B`: paired tests of two runs over their common questions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from graphmem_torch.errors import InputError, unknown
from graphmem_torch.evaluation.bootstrap import mean_interval, randomization_test
from graphmem_torch.evaluation.retrieval import measure_rankings
from graphmem_torch.readers.source import decode, parse_json, read_bytes

from .common.compare import DIGITS, question_digest
from .common.measure import code_version
from .common.scores import gain, percent
from .common.tables import Head, Table
from .common.texts import json_rows
from .request import COMPARING, Judged

__all__ = ["CUTOFFS", "compare"]
CUTOFFS: tuple[int, ...] = (5, 10, 25)
"""Numbers of hits of the measures."""

_MEASURES = ("recall", "ndcg", "map", "mrr")


@dataclass(frozen=True, slots=True)
class _Run:
    """Values of every question in a file.

    Attributes:
        path: Path of the file.
        presets: Names of the systems that are presets, the evaluated one first.
        values: By system, by measure (`recall@10`), by id of the question.
        asked: By id, `question_digest` of the text and the gold; empty for an older report.
    """

    path: Path
    presets: tuple[str, ...]
    values: Mapping[str, Mapping[str, Mapping[str, float]]]
    asked: Mapping[str, str]


def compare(
    first: Path,
    second: Path,
    *,
    systems: Sequence[str] | None = None,
    seed: int = 0,
    resamples: int = 2000,
) -> Judged:
    """Compare the systems of two reports, or of two files of rankings.

    The presets of both files are compared, and every system that both have. Each difference has a
    95 % interval (`mean_interval`) and the probability of a paired randomisation test
    (`randomization_test`), without correction for the number of rows.

    Args:
        first: File of `graphmem eval`: its report, or its `--rankings`.
        second: Another such file.
        systems: One system of each file to compare instead.
        seed: Seed of the draws.
        resamples: Number of resamples of the intervals.

    Raises:
        InputError: Invalid file, different questions under one id, unknown systems, or no common
            system.
    """
    one, two = _read(first), _read(second)
    shared = [id for id in _ids(one) if id in _ids(two)]
    if not shared:
        raise InputError(
            f"compare: expected files with questions of one data set, got {first} and {second}, "
            "which share none; compare runs on the same data"
        )
    for id in shared:
        if id in one.asked and id in two.asked and one.asked[id] != two.asked[id]:
            raise InputError(
                f"compare: expected one text and one gold of question {id!r} in both files, got "
                "others; compare runs on the same questions and evidence"
            )
    pairs = [_pair(one, two, a, b, shared, seed, resamples) for a, b in _pairs(one, two, systems)]
    report = {
        "dataset": "compare",
        "commit": code_version(),
        "files": [str(first), str(second)],
        "n": {"shared": len(shared), "first": len(_ids(one)), "second": len(_ids(two))},
        "pairs": pairs,
        "seed": seed,
        "resamples": resamples,
    }
    return Judged(report, _table(report))


def _ids(run: _Run) -> Mapping[str, object]:
    """Return the questions with a value, in the order of the file."""
    found: dict[str, object] = {}
    for measures in run.values.values():
        for values in measures.values():
            found.update(values)
    return found


def _pairs(one: _Run, two: _Run, systems: Sequence[str] | None) -> list[tuple[str, str]]:
    if systems is not None:
        if len(systems) != 2:
            raise InputError(f"--systems: expected one of each file, got {len(systems)}; name two")
        for name, run in zip(systems, (one, two), strict=True):
            if name not in run.values:
                raise InputError(f"{run.path}: {unknown('--systems', name, run.values)}")
        return [(systems[0], systems[1])]
    presets = [(one.presets[0], two.presets[0])] if one.presets and two.presets else []
    pairs = dict.fromkeys([*presets, *((name, name) for name in one.values if name in two.values)])
    if not pairs:
        raise InputError(
            f"compare: expected a system that both files have, got {', '.join(one.values)} and "
            f"{', '.join(two.values)}; name two with --systems"
        )
    return list(pairs)


def _pair(
    one: _Run, two: _Run, a: str, b: str, shared: Sequence[str], seed: int, resamples: int
) -> dict[str, Any]:
    """Return the means, the difference and its probability, measure by measure."""
    measures = {}
    for name in one.values[a]:
        if name not in two.values[b]:
            continue
        left, right = one.values[a][name], two.values[b][name]
        ids = [id for id in shared if id in left and id in right]
        if not ids:
            continue
        mine, other = _column(left, ids), _column(right, ids)
        generator = torch.Generator().manual_seed(seed)
        measures[name] = {
            "n": len(ids),
            "first": float(mine.mean()),
            "second": float(other.mean()),
            "difference": mean_interval(mine - other, seed=seed, resamples=resamples),
            "p": randomization_test(mine - other, generator=generator),
        }
    return {"first": a, "second": b, "measures": measures}


def _column(values: Mapping[str, float], ids: Sequence[str]) -> Tensor:
    # A report has them rounded, rankings have not.
    return torch.tensor([round(values[id], DIGITS) for id in ids], dtype=torch.float64)


def _read(path: Path) -> _Run:
    """Read a report, or a file of rankings, distinguished by the first line."""
    text = decode(read_bytes(path), str(path))
    if '"system":' in text.lstrip().partition("\n")[0]:
        return _read_rankings(path)
    report = parse_json(text, str(path))
    parts = [report, *report.get("sets", {}).values()] if isinstance(report, dict) else []
    parts = [part["by_question"] for part in parts if "by_question" in part]
    if not parts:
        named = report.get("dataset") if isinstance(report, dict) else None
        raise InputError(
            "expected a report with values of every question, or a file of rankings, got "
            f"{f'one of {named}' if named else 'neither'}; give what `graphmem eval` of "
            f"{', '.join(sorted(COMPARING))} wrote to --json or --rankings",
            where=str(path),
        )
    values: dict[str, dict[str, dict[str, float]]] = {}
    asked: dict[str, str] = {}
    for part in parts:
        if "asked" in part:
            asked |= zip(part["ids"], part["asked"], strict=True)
        for system, measures in part["systems"].items():
            for name, row in measures.items():
                known = values.setdefault(system, {}).setdefault(name, {})
                pairs = zip(part["ids"], row, strict=True)
                known.update((id, value) for id, value in pairs if value is not None)
    presets = tuple(report.get("configs") or [report["preset"]])
    return _Run(path, presets, values, asked)


def _read_rankings(path: Path) -> _Run:
    rows: dict[str, dict[str, list[str]]] = {}
    asked: dict[str, tuple[str, Mapping[str, float]]] = {}
    presets: dict[str, None] = {}
    for row, where in json_rows(path, ("id", "question", "system", "gold", "ids")):
        id, system, gold, ids = str(row["id"]), str(row["system"]), row["gold"], row["ids"]
        if not isinstance(gold, dict) or not isinstance(ids, list):
            raise InputError(
                "expected a mapping of ids to grades as gold and a list as ids, got "
                f"{gold!r:.80} and {ids!r:.80}; write the file again",
                where=where,
            )
        ranked = rows.setdefault(system, {})
        if id in ranked:
            raise InputError(
                f"id: expected one ranking of a question by {system}, got {id!r} again; "
                "keep one of the lines",
                where=where,
            )
        if asked.setdefault(id, (str(row["question"]), gold)) != (str(row["question"]), gold):
            raise InputError(
                f"id: expected one text and one gold of question {id!r}, got others; "
                "write the file anew",
                where=where,
            )
        ranked[id] = [str(name) for name in ids]
        if row.get("preset"):
            presets[system] = None
    values = {system: _measured(ranked, asked) for system, ranked in rows.items()}
    digests = {id: question_digest(text, gold) for id, (text, gold) in asked.items()}
    return _Run(path, tuple(presets), values, digests)


def _measured(
    ranked: Mapping[str, Sequence[str]], asked: Mapping[str, tuple[str, Mapping[str, float]]]
) -> dict[str, dict[str, float]]:
    ids = list(ranked)
    gold = [asked[id][1] for id in ids]
    found = measure_rankings([ranked[id] for id in ids], ids, gold, k=CUTOFFS, resamples=1)
    return {
        f"{name}@{k}": dict(
            zip(found.questions, found.values[name][:, place].tolist(), strict=True)
        )
        for name in _MEASURES
        for place, k in enumerate(CUTOFFS)
    }


def _table(report: Mapping[str, Any]) -> Table:
    """Return a line for each pair and measure."""
    columns = [
        *(Head("first"), Head("second"), Head("measure"), Head("n", "{:,}".format)),
        *(Head("first %", percent), Head("second %", percent)),
        *(Head("first minus second", gain), Head("p", _probability)),
    ]
    rows = [
        [
            *(pair["first"], pair["second"], name, found["n"]),
            *(found["first"], found["second"], found["difference"], found["p"]),
        ]
        for pair in report["pairs"]
        for name, found in pair["measures"].items()
    ]
    counts = report["n"]
    notes = [
        f"{counts['shared']} questions in both files, {counts['first'] - counts['shared']} in the "
        f"first alone, {counts['second'] - counts['shared']} in the second alone; points, "
        "[95 % interval]; p: paired randomisation test of the row alone"
    ]
    return Table(columns, rows, notes)


def _probability(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
