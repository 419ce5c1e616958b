"""Long-term memory for LLM agents as one tensor engine.

Text comes in, a typed and timed graph of memories grows, and a batch of questions comes back as
ranked memories and a ready-to-send context. The public names are imported when they are first
used, so that `import graphmem_torch` costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphmem_torch.lazy import lazy_names
from graphmem_torch.version import __version__ as __version__

if TYPE_CHECKING:
    from graphmem_torch import linalg, modes, ops, rank, spectral
    from graphmem_torch.atoms import Atom, EdgeType, Link
    from graphmem_torch.config import Config, load_config
    from graphmem_torch.context.summarise import HuggingFaceSummariser, Summaries
    from graphmem_torch.errors import (
        ConfigError,
        EmbedderError,
        GraphMemError,
        InputError,
        OracleError,
        StoreDamagedError,
        StoreError,
        StoreLockedError,
    )
    from graphmem_torch.evaluation.retrieval import RetrievalReport, evaluate
    from graphmem_torch.graph import Graph
    from graphmem_torch.index import MemoryIndex
    from graphmem_torch.memory import Layout, Memory, Scope, create_shards
    from graphmem_torch.memory.reembedding import reembed
    from graphmem_torch.oracle import OpenAIClient, OpenAIOracle, Oracle, Verdict
    from graphmem_torch.readers import read_atoms
    from graphmem_torch.results import (
        PRESENT,
        Added,
        Answer,
        ChainEntry,
        Change,
        Conflict,
        Consolidated,
        Context,
        EdgeGradient,
        Explanation,
        History,
        Hit,
        Indexed,
        Learned,
        Mode,
        ModeAlignment,
        ModePair,
        ModeSummary,
        Page,
        Particle,
        PathStep,
        PlanStep,
        QueryPlan,
        Receipt,
        Reconciled,
        RegimeSwitch,
        Result,
        Start,
        Statement,
        Trace,
        Understood,
        Validity,
        Version,
        WeighedPath,
    )
    from graphmem_torch.text.deferred import DeferredEmbedder
    from graphmem_torch.text.embedder import EmbeddedQuestion
    from graphmem_torch.text.embedding_server import ServerEmbedder

__all__ = [
    "PRESENT",
    "Added",
    "Answer",
    "Atom",
    "ChainEntry",
    "Change",
    "Config",
    "ConfigError",
    "Conflict",
    "Consolidated",
    "Context",
    "DeferredEmbedder",
    "EdgeGradient",
    "EdgeType",
    "EmbeddedQuestion",
    "EmbedderError",
    "Explanation",
    "Graph",
    "GraphMemError",
    "History",
    "Hit",
    "HuggingFaceSummariser",
    "Indexed",
    "InputError",
    "Layout",
    "Learned",
    "Link",
    "Memory",
    "MemoryIndex",
    "Mode",
    "ModeAlignment",
    "ModePair",
    "ModeSummary",
    "OpenAIClient",
    "OpenAIOracle",
    "Oracle",
    "OracleError",
    "Page",
    "Particle",
    "PathStep",
    "PlanStep",
    "QueryPlan",
    "Receipt",
    "Reconciled",
    "RegimeSwitch",
    "Result",
    "RetrievalReport",
    "Scope",
    "ServerEmbedder",
    "Start",
    "Statement",
    "StoreDamagedError",
    "StoreError",
    "StoreLockedError",
    "Summaries",
    "Trace",
    "Understood",
    "Validity",
    "Verdict",
    "Version",
    "WeighedPath",
    "create_shards",
    "evaluate",
    "linalg",
    "load_config",
    "modes",
    "ops",
    "rank",
    "read_atoms",
    "reembed",
    "spectral",
]

_NAMES = {
    "atoms": "Atom EdgeType Link",
    "config": "Config load_config",
    "context.summarise": "HuggingFaceSummariser Summaries",
    "errors": "ConfigError EmbedderError GraphMemError InputError OracleError StoreDamagedError "
    "StoreError StoreLockedError",
    "evaluation.retrieval": "RetrievalReport evaluate",
    "graph": "Graph",
    "index": "MemoryIndex",
    "memory": "Layout Memory Scope create_shards",
    "memory.reembedding": "reembed",
    "oracle": "OpenAIClient OpenAIOracle Oracle Verdict",
    "readers": "read_atoms",
    "results": "PRESENT Added Answer ChainEntry Change Conflict Consolidated Context EdgeGradient "
    "Explanation History Hit Indexed Learned Mode ModeAlignment ModePair ModeSummary "
    "Page Particle PathStep PlanStep QueryPlan Receipt Reconciled RegimeSwitch Result "
    "Start Statement Trace Understood Validity Version WeighedPath",
    "text.embedding_server": "ServerEmbedder",
    "text.deferred": "DeferredEmbedder",
    "text.embedder": "EmbeddedQuestion",
}
"""Public names by module; the packages are imported by their own names."""

_IN_MODULES = " ".join(_NAMES.values()).split()

__getattr__ = lazy_names(
    __name__, {**_NAMES, **{name: name for name in __all__ if name not in _IN_MODULES}}
)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
