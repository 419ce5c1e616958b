"""The context compiler: what fits a token budget, and how it is written."""

from __future__ import annotations

from graphmem_torch.context.formats import FORMATS, load_format, render
from graphmem_torch.context.order import ORDERS, topological_order
from graphmem_torch.context.pool import ValueKind, values_from_scores
from graphmem_torch.context.problem import Overlap
from graphmem_torch.context.select import Selection, select
from graphmem_torch.context.summarise import Shorten, Summaries

__all__ = [
    "FORMATS",
    "ORDERS",
    "Overlap",
    "Selection",
    "Shorten",
    "Summaries",
    "ValueKind",
    "load_format",
    "render",
    "select",
    "topological_order",
    "values_from_scores",
]
