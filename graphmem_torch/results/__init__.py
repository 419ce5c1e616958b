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

_NAMES = {
    "results.additions": "Added Indexed Page",
    "results.answer": "Answer Context",
    "results.explanation": "EdgeGradient Explanation Start WeighedPath",
    "results.hits": "Grounds Hit PathStep Result Trace",
    "results.maintenance": "Consolidated Learned Particle Reconciled Understood",
    "results.mode_summaries": "Mode ModeAlignment ModePair ModeSummary RegimeSwitch Statement",
    "results.query_plan": "PRESENT PlanStep QueryPlan",
    "results.receipt": "Receipt",
    "results.timeline": "ChainEntry Change Conflict History Validity Version",
}

__getattr__ = lazy_names(__name__, _NAMES)
