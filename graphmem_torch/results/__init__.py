"""Plain values that a memory returns: no tensors, and no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphmem_torch.lazy import lazy_names

if TYPE_CHECKING:
    from graphmem_torch.results.additions import Added, Indexed, Page
    from graphmem_torch.results.answer import Answer, Context
    from graphmem_torch.results.explanation import EdgeGradient, Explanation, Start, WeighedPath
    from graphmem_torch.results.hits import Grounds, Hit, PathStep, Result, Trace
    from graphmem_torch.results.maintenance import (
        Consolidated,
        Learned,
        Particle,
        Reconciled,
        Understood,
    )
    from graphmem_torch.results.mode_summaries import (
        Mode,
        ModeAlignment,
        ModePair,
        ModeSummary,
        RegimeSwitch,
        Statement,
    )
    from graphmem_torch.results.query_plan import PRESENT, PlanStep, QueryPlan
    from graphmem_torch.results.receipt import Receipt
    from graphmem_torch.results.timeline import (
        ChainEntry,
        Change,
        Conflict,
        History,
        Validity,
        Version,
    )

__all__ = [
    "PRESENT",
    "Added",
    "Answer",
    "ChainEntry",
    "Change",
    "Conflict",
    "Consolidated",
    "Context",
    "EdgeGradient",
    "Explanation",
    "Grounds",
    "History",
    "Hit",
    "Indexed",
    "Learned",
    "Mode",
    "ModeAlignment",
    "ModePair",
    "ModeSummary",
    "Page",
    "Particle",
    "PathStep",
    "PlanStep",
    "QueryPlan",
    "Receipt",
    "Reconciled",
    "RegimeSwitch",
    "Result",
    "Start",
    "Statement",
    "Trace",
    "Understood",
    "Validity",
    "Version",
    "WeighedPath",
]

_MODULE = {
    "Added": "results.additions",
    "Answer": "results.answer",
    "ChainEntry": "results.timeline",
    "Change": "results.timeline",
    "Conflict": "results.timeline",
    "Consolidated": "results.maintenance",
    "Context": "results.answer",
    "EdgeGradient": "results.explanation",
    "Explanation": "results.explanation",
    "Grounds": "results.hits",
    "History": "results.timeline",
    "Hit": "results.hits",
    "Indexed": "results.additions",
    "Learned": "results.maintenance",
    "Mode": "results.mode_summaries",
    "ModeAlignment": "results.mode_summaries",
    "ModePair": "results.mode_summaries",
    "ModeSummary": "results.mode_summaries",
    "PRESENT": "results.query_plan",
    "Page": "results.additions",
    "Particle": "results.maintenance",
    "PathStep": "results.hits",
    "PlanStep": "results.query_plan",
    "QueryPlan": "results.query_plan",
    "Receipt": "results.receipt",
    "Reconciled": "results.maintenance",
    "RegimeSwitch": "results.mode_summaries",
    "Result": "results.hits",
    "Start": "results.explanation",
    "Statement": "results.mode_summaries",
    "Trace": "results.hits",
    "Understood": "results.maintenance",
    "Validity": "results.timeline",
    "Version": "results.timeline",
    "WeighedPath": "results.explanation",
}

__getattr__ = lazy_names(__name__, _MODULE)
