"""Signals: what speaks for a memory. One file a family, one registry entry a signal.

A signal maps B questions and their C candidates to values [B, C]; the hybrid score is their
weighted sum. Adding one is one function decorated with `@signal("name")` in a module that is
imported here.
"""

from __future__ import annotations

from graphmem_torch.rank.registry import SIGNALS, Signal, check_signal_names, signal
from graphmem_torch.rank.signals import graph, text, turns  # noqa: F401  (for their registrations)

__all__ = ["SIGNALS", "Signal", "check_signal_names", "signal"]
