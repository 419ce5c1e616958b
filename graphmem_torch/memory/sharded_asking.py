"""Sharded asking: questions that all shards of a memory answer together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal, cast

from graphmem_torch.errors import InputError
from graphmem_torch.memory.asking import Asking, expect_explained
from graphmem_torch.memory.context_atoms import ContextAtoms, ContextHits, joined_hits
from graphmem_torch.memory.contexts import ContextSettings
from graphmem_torch.memory.feedback import Named
from graphmem_torch.memory.filter_masks import unknown_concept
from graphmem_torch.memory.index_view import IndexView
from graphmem_torch.memory.lookup import refresh_expiry
from graphmem_torch.memory.request import Filters, Scope
from graphmem_torch.memory.shards import Shards, ids_in
from graphmem_torch.memory.state import State
from graphmem_torch.results import Context, Explanation, QueryPlan, Result, Trace
from graphmem_torch.text.embedder import Encoded, encode_checked
from graphmem_torch.text.naming import plain_name

__all__ = ["ShardedAsking"]

_Placed = tuple[list[Result], list[list[int]]]


class ShardedAsking(Asking):
    """Questions to a memory of shards; safe between threads.

    Each shard answers as a memory of one store does (`Asking`), with the background, anchors and
    ranking of all (`rank.peers`). Edges lead inside a shard only.
    """

    def __init__(self, shards: Shards) -> None:
        """Keep the shards; loads nothing."""
        super().__init__(shards.first)
        self._shards = shards

    @property
    def states(self) -> list[State]:
        """States of the shards of this process."""
        return self._shards.states

    def _retrieve(
        self,
        asked: Sequence[str],
        filters: Filters,
        encoded: Encoded | None,
        *,
        k: int | None,
        trace: bool,
    ) -> list[list[Result]]:
        """Return the results of each moment for each question."""
        _check_scope(filters.scope)
        states = self._shards.states
        if filters.scope.refresh:
            states[0].store.expect_writable()
        if encoded is None and asked:
            encoded = encode_checked(self.state.embedder, list(asked), query=True)
        scopes = self._own_scopes(filters.scope, len(asked))
        each = []
        for instant in filters.instants:
            found = self._at(asked, replace(filters, as_of=instant), encoded, scopes, k, trace)
            each.append(found)
            if filters.scope.refresh:
                self._refresh({hit.id for result in found for hit in result.hits})
        return [list(results) for results in zip(*each, strict=True)] if asked else []

    def _at(
        self,
        asked: Sequence[str],
        filters: Filters,
        encoded: Encoded | None,
        scopes: Sequence[Scope],
        k: int | None,
        trace: bool,
    ) -> list[Result]:
        """Return the result of each question at one moment."""
        instant = filters.instant

        def work(state: State, view: IndexView) -> _Placed:
            own = replace(filters, scope=scopes[self.states.index(state)])
            ask = partial(Asking(state).placed_results, asked, own, encoded, [instant], view)
            results, places = ask(k=k, trace=trace)
            return [self._shards.group.portable(result) for result in results], places

        found = {id(state): each for state, each in self._shards.ask(work, instant)}
        told = self._shards.group.collect([found.get(id(own)) for own in self._shards.states])
        parts = [each for each in told if each is not None]
        if not parts:
            return [Result(question, (), 0.0, False) for question in asked]
        count = self.state.config.rank.k if k is None else k
        return [
            _merged([(results[b], places[b]) for results, places in parts], count)
            for b in range(len(asked))
        ]

    def _own_scopes(self, scope: Scope, count: int) -> list[Scope]:
        """Return the scope of each shard of this process: with its own ids and concepts.

        Raises:
            InputError: An id or concept that no shard has.
        """
        states, group = self._shards.states, self._shards.group
        scopes = [scope] * len(states)
        known: dict[Literal["exclude", "seeds"], Any] = {"exclude": ids_in, "seeds": _concepts_in}
        for name, there in known.items():
            listed = scope.names(name, count)
            wanted = list(dict.fromkeys(each for own in listed for each in own))
            if not wanted:
                continue
            every = group.collect([there(state, wanted) for state in states])
            lost = [each for each in wanted if not any(each in own for own in every)]
            if lost:
                if name == "exclude":
                    self._shards.holding(lost, "exclude")  # raises
                raise unknown_concept(lost[0], [state.store for state in states], "seeds")
            for place, number in enumerate(group.numbers):
                own = [[each for each in part if each in every[number]] for part in listed]
                flat: Any = own if len(listed) > 1 else own[0]
                scopes[place] = replace(scopes[place], **cast(Any, {name: flat}))
        return scopes

    def _refresh(self, ids: Iterable[str]) -> None:
        """Refresh the expiry of memories that were read."""
        named = [*ids]
        for state in self._shards.states:
            refresh_expiry(state.store, [node for node, _ in state.store.known(named).values()])

    def _within(self, name: str) -> ShardedAsking:
        """Return the asking of a namespace."""
        return ShardedAsking(self._shards.within(name))

    def _written(
        self,
        asked: Sequence[str],
        filters: Filters,
        encoded: Encoded | None,
        budgets: Sequence[int],
        count: int,
        settings: ContextSettings,
    ) -> list[list[Context]]:
        """Return the contexts of the best memories of all shards, and record those they use."""
        _check_scope(filters.scope)
        shards = self._shards
        shards.expect_here("compile")
        if encoded is None:
            encoded = encode_checked(self.state.embedder, list(asked), query=True)
        scopes, floor = self._own_scopes(filters.scope, len(asked)), settings.config.min_relevance

        def work(
            state: State, view: IndexView
        ) -> tuple[ContextAtoms, ContextHits, list[QueryPlan | None]]:
            own = replace(filters, scope=scopes[self.states.index(state)])
            found = Asking(state).context_hits(asked, own, encoded, count, floor, view)
            return view.context_atoms.of(view.snapshot), *found

        def join(
            told: list[tuple[State, Any]],
        ) -> tuple[list[list[Context]], list[list[int]]] | None:
            if not told:  # no shard has atoms
                return None
            numbers = [self.states.index(state) for state, _ in told]
            parts, hits, plans = zip(*(each for _, each in told), strict=True)
            verdicts = zip(*(own.judged for own in hits), strict=True)
            joined = joined_hits(hits, [*map(len, parts)], count, [*map(_verdict, verdicts)])
            joining = shards.context_atoms
            atoms = joining.of(parts, numbers)
            made, used = shards.contexts.compile(atoms, joined, asked, plans[0], budgets, settings)
            return made, joining.split(used)

        done = shards.ask_and_join(work, join, filters.instant)
        if done is None:
            return super()._written(asked, filters, encoded, budgets, count, settings)
        for state, nodes in zip(self.states, done[1], strict=True):
            state.note_uses(nodes)
        return done[0]

    def _named(self, ids: str | Sequence[str]) -> list[Named]:
        """Return the ids and nodes of atoms in each shard."""
        held = zip(self.states, self._shards.holding(ids), strict=True)
        return [state.resolve_ids(own) if own else ([], []) for state, own in held]

    def _explanation(
        self, text: str, id: str | None, filters: Filters, limit: int, k: int | None
    ) -> Explanation:
        """Return the explanation by the shard that has the memory, asked together with the others.

        Influences are left out.
        """
        _check_scope(filters.scope)
        self._shards.expect_here("explain")
        nodes: list[Any] = [None] * len(self.states)
        if id is not None:
            held = zip(self.states, self._shards.holding([id], "id"), strict=True)
            moment = filters.instant
            nodes = [
                state.resolve_ids(own, "id", hidden=state.store.expiry.hidden(moment))[1]
                if own
                else []
                for state, own in held
            ]
        scopes = self._own_scopes(filters.scope, 1)

        def work(state: State, view: IndexView) -> Explanation | None:
            own = replace(filters, scope=scopes[self.states.index(state)])
            named = nodes[self.states.index(state)]
            return Asking(state).explained(text, named, own, limit, k, view)

        told = self._shards.ask(work, filters.instant)
        return expect_explained(next((each for _, each in told if each is not None), None))


def _not_yet(name: str, instead: str) -> InputError:
    return InputError(
        f"{name}: expected a memory of one store, got one of shards, which cannot do this yet; use "
        f"{instead}"
    )


def _check_scope(scope: Scope) -> None:
    plans = scope.plan if isinstance(scope.plan, list | tuple) else [scope.plan]
    if any(plan is not None and plan is not False for plan in plans):
        raise _not_yet("plan", "`where`, `between` and `at`")


def _concepts_in(state: State, names: Sequence[str]) -> set[str]:
    """Return which of some names are concepts of a shard."""
    plain = {name: plain_name(name) for name in names}
    found = state.store.concepts(list(dict.fromkeys(plain.values())))
    return {name for name, own in plain.items() if own in found}


def _merged(parts: Sequence[tuple[Result, Sequence[int]]], count: int) -> Result:
    """Return the result of a question from those of the shards, with the places of their hits."""
    results = [result for result, _ in parts]
    confidence, known = _verdict([(result.confidence, result.known) for result in results])
    placed = [pair for result, places in parts for pair in zip(places, result.hits, strict=True)]
    placed.sort(key=lambda pair: pair[0])
    traces = [result.trace for result in results if result.trace is not None]
    return replace(
        results[0],
        hits=tuple(hit for _, hit in placed[:count]),
        confidence=confidence,
        known=known,
        trace=_joined(traces) if traces else None,
    )


def _verdict(parts: Sequence[tuple[float, bool | None]]) -> tuple[float, bool | None]:
    """Return the confidence and verdict of all shards.

    Shards without hits say that the memory does not know; so one that says more is right.
    """
    said = [known for _, known in parts]
    return max(sure for sure, _ in parts), True if True in said else None if None in said else False


def _joined(traces: Sequence[Trace]) -> Trace:
    """Return the trace of all shards: counts add up, and each stage ends with the last shard."""
    stages = dict.fromkeys(name for trace in traces for name in trace.seconds)
    activated = [trace.activated for trace in traces if trace.activated is not None]
    anchors = [pair for trace in traces for pair in trace.anchors]
    return Trace(
        seconds={name: max(trace.seconds.get(name, 0.0) for trace in traces) for name in stages},
        questions=traces[0].questions,
        atoms=sum(trace.atoms for trace in traces),
        rule="; ".join(dict.fromkeys(trace.rule for trace in traces)),
        candidates=sum(trace.candidates for trace in traces),
        activated=sum(activated) if activated else None,
        anchors=tuple(sorted(anchors, key=lambda pair: -pair[1])),
    )
