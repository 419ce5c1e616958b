"""Evaluations: a preset and every baseline on a labelled data set, in one run (`bench/quality`)."""

from __future__ import annotations

from graphmem_torch.evaluation.locomo import evaluate_locomo
from graphmem_torch.evaluation.table import format_table

__all__ = ["evaluate_locomo", "format_table"]
