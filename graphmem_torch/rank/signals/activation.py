"""What the graph says: spread activation, PageRank, and what was derived from an atom."""

from __future__ import annotations

from torch import Tensor

from graphmem_torch.rank.scope import Scope
from graphmem_torch.rank.signals.registry import signal

__all__: list[str] = []


@signal("activation", graph=True)
def _activation(scope: Scope) -> Tensor:
    """Activation after the last round (`mathematics.md` 4)."""
    if scope.activation is None:
        return scope.zeros()
    return (
        scope.activation.to_dense() if scope.rows is None else scope.activation.gather(scope.rows)
    )


@signal("pagerank", graph=True)
def _pagerank(scope: Scope) -> Tensor:
    """PageRank relative to the largest of any atom."""
    return scope.pick(scope.index.pagerank.float()).expand(scope.shape)


def _from_derived(scope: Scope, values: Tensor) -> Tensor:
    """The best value among the atoms derived from each candidate."""
    source, target = scope.index.derived_source.long(), scope.index.derived_target.long()
    if not len(source):
        return scope.zeros()
    everyone = values
    if scope.rows is not None:
        everyone = values.new_zeros(len(scope.query), scope.index.num_atoms)
        everyone = everyone.scatter_reduce(
            1, scope.rows.clamp(min=0), values.where(scope.rows >= 0, 0.0), "amax"
        )
    best = values.new_zeros(everyone.shape)
    best = best.scatter_reduce(1, target.expand(len(best), -1), everyone[:, source], "amax")
    return scope.pick_each(best)


@signal("derived_interaction", graph=True)
def _derived_interaction(scope: Scope) -> Tensor:
    """Late interaction with the facts derived from the atom."""
    return _from_derived(scope, scope.memo("interaction_focus"))


@signal("derived_sharp", graph=True)
def _derived_sharp(scope: Scope) -> Tensor:
    """Near-exact matches in the facts derived from the atom."""
    return _from_derived(scope, scope.memo("interaction_sharp"))


@signal("derived_semantic", graph=True)
def _derived_semantic(scope: Scope) -> Tensor:
    """Cosine of the question with the facts derived from the atom."""
    return _from_derived(scope, scope.memo("semantic").clamp(min=0.0))


@signal("derived_lexical", graph=True)
def _derived_lexical(scope: Scope) -> Tensor:
    """BM25 of the facts derived from the atom."""
    return _from_derived(scope, scope.memo("lexical"))
