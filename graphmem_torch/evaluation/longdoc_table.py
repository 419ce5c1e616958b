"""The figures of long documents as tables for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from graphmem_torch.evaluation.cells import aligned, gain, mean_range, percent

__all__ = ["format_longdoc"]

_FIGURES = (
    ("recall", "5"),
    ("recall", "10"),
    ("recall", "20"),
    ("evidence", "512"),
    ("evidence", "1024"),
    ("evidence", "2048"),
    ("complete", "2048"),
    ("answer", "2048"),
)
_TITLES = tuple(f"{name}@{at}" for name, at in _FIGURES)


def format_longdoc(report: Mapping[str, Any]) -> str:
    """For each collection the systems, the ablation, the prompts and the answers; percent."""
    subject, lines = report["preset"], []
    for name, found in report["collections"].items():
        size = found["size"]
        lines += [
            f"{name} ({found['kind']}): {size['questions']} questions about {size['documents']} "
            f"documents, {size['chunks']:,} chunks, {size['tokens']:,} tokens",
            *_systems(found, subject),
            "",
        ]
        if found["ablation"]:
            lines += ["one setting changed (* the preset's own)", *_ablation(found), ""]
        lines += ["evidence kept in the prompt, by summariser", *_prompts(found["prompts"]), ""]
        if found["answers"]:
            lines += [*_answers(found["answers"]), ""]
    if report["reader"]["not_run"]:
        lines += [f"answers not run: {report['reader']['not_run']}", ""]
    for name, case in (report["orthogonal"] or {}).items():
        lines.append(
            f"chunks {name} (largest cosine {case['largest_cosine']:.2f}): "
            f"{case['similarity_edges']} similarity edges; "
            + ("only chronological context is retrieved" if case["holds"] else "FAILED")
        )
    return "\n".join(lines).rstrip()


def _systems(found: Mapping[str, Any], subject: str) -> list[str]:
    rows = [["system", *_TITLES, f"{subject} minus, recall@10", "evidence@1024"]]
    for name, figures in found["systems"].items():
        more = found["difference"].get(name, {})
        rows.append(
            [
                name,
                *_figures(figures),
                gain(more.get("recall", {}).get("10")),
                gain(more.get("evidence", {}).get("1024")),
            ]
        )
    return aligned(rows)


def _ablation(found: Mapping[str, Any]) -> list[str]:
    rows = [["setting", *_TITLES]]
    for setting, values in found["ablation"].items():
        for value, figures in values.items():
            mark = " *" if figures.get("own") else ""
            rows.append([f"{setting} {value}{mark}", *_figures(figures)])
    return aligned(rows)


def _prompts(found: Mapping[str, Any]) -> list[str]:
    budgets = list(next(iter(found.values()))["kept"])
    columns = [(name, at) for name in ("kept", "answer") for at in budgets]
    rows = [["summariser", *(f"{name}@{at}" for name, at in columns), "over budget"]]
    for name, figures in found.items():
        cells = [percent(figures[key][at]) for key, at in columns]
        rows.append([name, *cells, str(figures["over_budget"])])
    return aligned(rows)


def _answers(found: Mapping[str, Any]) -> list[str]:
    rows = [["given", "token F1", "holds the answer"]]
    for name, figures in found["given"].items():
        rows.append([name, mean_range(figures["f1"]), mean_range(figures["contains"])])
    more = found["graph_minus_flat"]
    rows.append(["graph minus flat", gain(more["f1"]), gain(more["contains"])])
    return [
        f"answers of a small language model to {found['n']} questions, prompts of "
        f"{found['budget']} tokens",
        *aligned(rows),
    ]


def _figures(figures: Mapping[str, Any]) -> list[str]:
    return [percent(figures[name][at]) for name, at in _FIGURES]
