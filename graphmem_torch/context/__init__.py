"""The context compiler: what fits a token budget, and how it is written."""

from __future__ import annotations

from graphmem_torch.context.compile import compile_context
from graphmem_torch.context.render import render, render_entry
from graphmem_torch.context.select import select_by_density

__all__ = ["compile_context", "render", "render_entry", "select_by_density"]
