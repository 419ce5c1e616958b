"""Compare a preset with the best of its own ingredients, by set and by kind of data.

The promise of `default` (`docs/evaluation.md` 1): on no kind of data is it below the best of
cosine, BM25, their reciprocal rank fusion and late interaction, beyond the interval after Holm's
correction over the sets. The best ingredient is picked afterwards, by its mean.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from graphmem_torch.evaluation.bootstrap import (
    holm,
    mean_interval,
    randomization_test,
    stratified_interval,
)

from ..common.scores import gain, percent
from ..common.sets import QuestionSet
from ..common.tables import Head, Table

__all__ = [
    "INGREDIENTS",
    "held_against",
    "hold_against",
    "kind_table",
    "promise_table",
    "set_table",
]
INGREDIENTS: Mapping[str, str] = {
    "dense": "cosine",
    "bm25": "BM25",
    "rrf": "RRF",
    "interaction": "late interaction",
}
"""Systems that a preset is compared with, and their heads in a table."""

Values = Mapping[str, Tensor]


def hold_against(sets: Sequence[QuestionSet], report: Mapping[str, Any]) -> dict[str, Any]:
    """Return each preset's difference to the best ingredient, with intervals and probabilities.

    Args:
        sets: Sets of the report.
        report: Report of `graphmem eval all`.

    Returns:
        `sets` and `kinds`: lists by preset, or by its fit. A row has `name`, `n`, the means of all
        `systems`, `best`, `difference` with its 95 % interval, `p` of the paired randomisation
        test, and `holm`, `p` corrected over the list.
    """
    values = {one.name: dict(_values(one, report)) for one in sets if one.data_kind}
    kinds: dict[str, list[str]] = {}
    for one in sets:
        # Merged sets repeat the content of their parts.
        if one.data_kind and len(one.sources) == 1:
            kinds.setdefault(one.data_kind, []).append(one.name)
    known = report.get("configs") or [report["preset"]]
    subjects = list(
        dict.fromkeys(
            name for found in values.values() for name in found if name.split(",")[0] in known
        )
    )
    parts = {"sets": {name: [name] for name in values}, "kinds": kinds}
    return {
        part: held_against(groups, values, subjects, seed=report["seed"])
        for part, groups in parts.items()
    }


def held_against(
    groups: Mapping[str, Sequence[str]],
    values: Mapping[str, Values],
    subjects: Sequence[str],
    *,
    seed: int,
) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of `hold_against` for each subject and group of sets.

    Args:
        groups: Names of sets by name of their group.
        values: Values by set and system, one a question; NaN for missing ones.
        subjects: Systems that are compared with the ingredients.
        seed: Seed of the intervals and tests.
    """
    return {subject: _rows(subject, groups, values, seed) for subject in subjects}


def _values(one: QuestionSet, report: Mapping[str, Any]) -> Iterator[tuple[str, Tensor]]:
    """Yield the values of a set's own measure by system, NaN for questions without one."""
    found = report["sets"][one.name]["by_question"]
    group = next(iter(one.groups.values()))
    asked = [question for each in one.conversations for question in each.questions]
    inside = torch.tensor([question.category in group for question in asked])
    for system, measures in found["systems"].items():
        row = measures[f"{one.measure}@{one.at}"]
        column = torch.tensor(
            [torch.nan if value is None else value for value in row], dtype=torch.float64
        )
        yield system, column[inside]


def _rows(
    subject: str, groups: Mapping[str, Sequence[str]], values: Mapping[str, Values], seed: int
) -> list[dict[str, Any]]:
    rows = []
    for name, members in groups.items():
        found = [values[member] for member in members]
        if not all(system in each for each in found for system in (*INGREDIENTS, subject)):
            continue
        systems = {
            system: sum(float(each[system].nanmean()) for each in found) / len(found)
            for system in (*INGREDIENTS, subject)
        }
        best = max(INGREDIENTS, key=systems.__getitem__)
        less = [each[subject] - each[best] for each in found]
        interval = (
            mean_interval(less[0], seed=seed)
            if len(less) == 1
            else stratified_interval(less, seed=seed)
        )
        # Every set counts alike: a question of a small one weighs more.
        shares = torch.cat([each / (~each.isnan()).sum() for each in less])
        rows.append(
            {
                "name": name,
                "n": int(sum(int((~each.isnan()).sum()) for each in less)),
                "systems": systems,
                "best": best,
                "difference": interval,
                "p": randomization_test(shares, generator=torch.Generator().manual_seed(seed)),
            }
        )
    for row, corrected in zip(rows, holm([row["p"] for row in rows]), strict=True):
        row["holm"] = corrected
    return rows


def set_table(report: Mapping[str, Any]) -> Table:
    """Return a line for each set: the ingredients, the preset, and its difference to the best."""
    return promise_table("set", report["promise"]["sets"])


def kind_table(report: Mapping[str, Any]) -> Table:
    """Return a line for each kind of data; every set of a kind counts alike."""
    return promise_table("kind", report["promise"]["kinds"])


def promise_table(what: str, found: Mapping[str, Sequence[Mapping[str, Any]]]) -> Table:
    """Return a line for each subject and set, or kind, as `what` says."""
    heads = [
        *(Head(what), Head("n", str), Head("system")),
        *(Head(title, percent) for title in INGREDIENTS.values()),
        *(Head("system %", percent), Head("best"), Head("system minus best", gain)),
        *(Head("p", _probability), Head("p, Holm", _probability)),
    ]
    rows = [
        [
            *(row["name"], row["n"], subject),
            *(row["systems"][name] for name in INGREDIENTS),
            *(row["systems"][subject], INGREDIENTS[row["best"]], row["difference"]),
            *(row["p"], row["holm"]),
        ]
        for subject, lines in found.items()
        for row in lines
    ]
    notes = [
        "%; best: the best of the four ingredients, picked afterwards; points, [95 % interval] of "
        "paired differences; p: paired randomisation test, then corrected over the lines of the "
        "system (Holm)"
    ]
    for subject, lines in found.items():
        below = [
            row["name"] for row in lines if _beyond(row["difference"], -1) and row["holm"] <= 0.05
        ]
        above = [row["name"] for row in lines if _beyond(row["difference"], 1)]
        notes.append(
            f"{subject}: below the best after correction: {', '.join(below) or 'nowhere'}; above "
            f"it beyond the interval: {len(above)} of {len(lines)}"
        )
    return Table(heads, rows, notes)


def _beyond(interval: Sequence[float] | None, sign: int) -> bool:
    """Return whether an interval lies on one side of 0."""
    return interval is not None and min(sign * interval[1], sign * interval[2]) > 0


def _probability(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
