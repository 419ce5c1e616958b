"""Report: one self-contained HTML page about a memory; see `write_report`."""

from __future__ import annotations

from graphmem_torch.report.contents import ReportInput
from graphmem_torch.report.write import Report, checked_target, write_report

__all__ = ["Report", "ReportInput", "checked_target", "write_report"]
