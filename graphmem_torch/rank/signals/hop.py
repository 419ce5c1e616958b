"""Documents: how they are judged by themselves, and what leads to them from other memories.

A document is an atom with a title that stands alone (`rank.hop_tensors`). All are 0 for what is
none, and an index without documents leaves them out. Weights learned from conversations lean on
the turns around and on who speaks, which a document lacks: its own signals correct them.
"""

from __future__ import annotations

from torch import Tensor

from graphmem_torch.rank.scope import Scope
from graphmem_torch.rank.signals.registry import signal

__all__ = ["DOCUMENT_SIGNALS", "HOP_SIGNALS"]

HOP_SIGNALS = frozenset({"title_hop", "entity_hop"})
"""Signals that read where hops from the anchors lead."""

DOCUMENT_SIGNALS = HOP_SIGNALS | {
    "document_semantic",
    "document_lexical",
    "document_interaction",
}
"""Signals that are 0 for what is no document."""


def _of_documents(scope: Scope, values: Tensor) -> Tensor:  # [B, C]
    document = scope.index.hop_document
    return scope.zeros() if document is None else values.where(scope.pick(document), 0.0)


def _hop(scope: Scope, which: int) -> Tensor:  # [B, C]
    if scope.hops is None:
        return scope.zeros()
    found = scope.hops[which]
    return found.to_dense() if scope.rows is None else found.gather(scope.rows)


@signal("document_semantic")
def _semantic(scope: Scope) -> Tensor:
    """Cosine of question and document."""
    return _of_documents(scope, scope.memo("semantic"))


@signal("document_lexical")
def _lexical(scope: Scope) -> Tensor:
    """BM25 of the document."""
    return _of_documents(scope, scope.memo("lexical"))


@signal("document_interaction")
def _interaction(scope: Scope) -> Tensor:
    """Late interaction with the document."""
    return _of_documents(scope, scope.memo("interaction"))


@signal("title_hop", graph=True)
def _title_hop(scope: Scope) -> Tensor:
    """A strong memory mentions the document's title and the question does not."""
    return _hop(scope, 0)


@signal("entity_hop", graph=True)
def _entity_hop(scope: Scope) -> Tensor:
    """A strong memory shares entities with the document that the question does not name."""
    return _hop(scope, 1)
