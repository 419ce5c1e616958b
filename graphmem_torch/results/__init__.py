"""Plain values that a memory returns: no tensors, and no torch."""

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
from graphmem_torch.results.timeline import ChainEntry, Change, Conflict, History, Validity, Version

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
