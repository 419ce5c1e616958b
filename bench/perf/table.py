"""Markdown table of a run: times, accuracies, and whether targets are met."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["cells", "render", "table"]

_HEADER = (
    "operation",
    "size",
    "threads",
    "ours ms",
    "accuracy",
    "others ms (accuracy)",
    "ours / other",
    "target",
    "met",
)


def table(report: Mapping[str, Any]) -> str:
    """Return the Markdown of a pytest-benchmark report whose entries were made by `Race`."""
    infos = [entry["extra_info"] for entry in report["benchmarks"]]
    rows = [row for info in infos if "contenders" in info for row in _rows(info)]
    header = list(_HEADER)
    if any("bandwidth" in row for row in rows):
        header.insert(5, "bandwidth")
    lines = [cells(header), cells(["---"] * len(header))]
    lines += [cells([row.get(name, "") for name in header]) for row in rows]
    return "\n".join([*lines, "", *render(report["machine_info"].get("described", {}))])


def cells(values: list[str]) -> str:
    """Return one row of a table."""
    return "| " + " | ".join(str(value).replace("|", "\\|") for value in values) + " |"


def render(machine: Mapping[str, Any]) -> list[str]:
    """Describe the machine of a report, in lines."""
    if not machine:
        return []
    device = f", {machine['device']}" if machine.get("device") else ""
    versions = ", ".join(f"{name} {number}" for name, number in machine["versions"].items())
    return [
        f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_gb']} GB{device}; "
        f"Python {machine['python']}, torch {machine['torch']}; {versions}.",
        "Medians of interleaved rounds. (!): misses the accuracy, so it is shown but not compared.",
    ]


def _rows(info: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return one row for each target; later rows contain only new values."""
    contenders: Mapping[str, Mapping[str, Any]] = info["contenders"]
    ours = contenders["ours"]
    size = info["size"]
    given = ", ".join(f"{key} {_number(value)}" for key, value in size.items() if key != "name")
    first = {
        "operation": f"`{info['operation']}` {info['title'].rstrip('.')}",
        "size": f"{size['name']}: {given}",
        "threads": _where(info),
        "ours ms": _milliseconds(ours),
        "accuracy": f"{ours['accuracy']:.3g} ({info['measure']})",
        "others ms (accuracy)": "; ".join(
            _other(name, one) for name, one in contenders.items() if name != "ours"
        ),
    }
    if info.get("bandwidth"):
        moved = info["bandwidth"]
        first["bandwidth"] = (
            f"{moved['gb_s']:.3g} GB/s, {moved['share']:.0%} of a copy's {moved['copy_gb_s']:.3g}"
        )
    rows = [first] + [{} for _ in info["verdicts"][1:]]
    for row, verdict in zip(rows, info["verdicts"], strict=True):
        ratio, target = verdict["ratio"], verdict["target"]
        row["ours / other"] = "-" if ratio is None else f"{ratio:.3g} {verdict['against']}"
        row["target"] = "-" if target is None else f"<= {target:.3g} {verdict['against'] or ''}"
        row["met"] = {True: "yes", False: "no", None: "-"}[verdict["met"]]
    return rows


def _where(info: Mapping[str, Any]) -> str:
    if info["device"] != "cpu":
        return info["device"]
    return f"{info['threads']}, CPU time" if info["clock"] == "cpu" else str(info["threads"])


def _other(name: str, one: Mapping[str, Any]) -> str:
    if "absent" in one:
        return f"{name}: {one['absent']}"
    accuracy = "floor" if one["kind"] == "floor" else f"{one['accuracy']:.3g}"
    return f"{name} {_milliseconds(one)} ({accuracy}{'' if one['fit'] else ' !'})"


def _milliseconds(one: Mapping[str, Any]) -> str:
    return f"{one['median_ms']:.3g}" if one["median_ms"] < 1000 else f"{one['median_ms']:,.0f}"


def _number(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
