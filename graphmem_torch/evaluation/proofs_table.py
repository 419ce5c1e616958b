"""The figures of proof graphs as tables for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from graphmem_torch.evaluation.cells import aligned, gain, percent

__all__ = ["format_proofs"]

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
    """For each set bridges, then chains of each setting; percent, the preset last."""
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
    return aligned(rows)


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
    return aligned(rows)
