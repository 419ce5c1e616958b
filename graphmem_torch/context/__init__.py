"""The context compiler: what fits a token budget, and how it is written."""

from __future__ import annotations

from graphmem_torch.context.arrange import ORDERS
from graphmem_torch.context.formats import FORMATS, load_format
from graphmem_torch.context.order import topological_order
from graphmem_torch.context.render import render
from graphmem_torch.context.select import Overlap, Selection, select
from graphmem_torch.context.shorten import Shorten
from graphmem_torch.context.summarise import Summaries
from graphmem_torch.context.value import ValueKind, values_from_scores

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
