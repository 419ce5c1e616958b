"""Adapters of frameworks; each file of tests is skipped where its framework is missing."""

from __future__ import annotations

import os

import pytest


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """End the run if a file is skipped though `ALL_ADAPTERS` is set (`make integrations`)."""
    if report.skipped and os.environ.get("ALL_ADAPTERS"):
        pytest.exit(f"{report.nodeid}: expected its framework, got {report.longrepr}", returncode=1)
