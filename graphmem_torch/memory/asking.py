"""Asking: questions of one memory, ranked hits, contexts, answers and explanations."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

import torch
from torch import Tensor

from graphmem_torch.checks import check_count, check_flag
from graphmem_torch.errors import InputError
from graphmem_torch.index.retrieve import Stages
from graphmem_torch.memory import contexts
from graphmem_torch.memory.context_atoms import ContextHits
from graphmem_torch.memory.fields import one_warning
from graphmem_torch.memory.filter_masks import atom_masks, entity_seeds, over_moments
from graphmem_torch.memory.index_view import IndexView
from graphmem_torch.memory.lookup import refresh_expiry
from graphmem_torch.memory.plans import answered, carried_out, plans_at
from graphmem_torch.memory.questions import (
    as_hit,
    checked_questions,
    encode_questions,
    pick_encoded,
    to_explanation,
    to_results,
    verdicts,
    verified,
    verified_results,
    with_duplicates,
    with_traces,
)
from graphmem_torch.memory.request import Filters, Layout
from graphmem_torch.memory.state import State
from graphmem_torch.oracle import method_of
from graphmem_torch.rank.query import QueryBatch
from graphmem_torch.results import Answer, Context, Explanation, QueryPlan, Result
from graphmem_torch.text.embedder import Encoded, encode_checked, rescaled
from graphmem_torch.text.question import looks_back
from graphmem_torch.text.times import TimeLike, parse_time

if TYPE_CHECKING:
    from graphmem_torch.memory.feedback import Named

__all__ = ["Asking", "expect_explained"]

T = TypeVar("T")

_EVERYTHING = Filters()


class Asking:
    """Questions to one memory; safe between threads."""

    def __init__(self, state: State) -> None:
        """Keep the state of the memory; loads nothing.

        Args:
            state: State of the memory.
        """
        self.state = state

    @property
    def states(self) -> Sequence[State]:
        """States of the stores that are asked."""
        return [self.state]

    # Hits.

    def retrieve(
        self,
        questions: str | Sequence[str],
        filters: Filters,
        *,
        k: int | None = None,
        oracle: Any = None,
        trace: bool = False,
    ) -> Any:
        """Rank memories for questions; see `Memory.retrieve`.

        Returns:
            A result; for several questions a list of results. With several moments, a list of these
            for one question and a list of lists for several.
        """
        listed = checked_questions(questions)
        if k is not None:
            check_count("k", k)
        check_flag("trace", trace)
        verify = None if oracle is None else method_of(oracle, "verify")
        with one_warning():
            if filters.scope.namespaces is None:
                results = self._retrieve(listed, filters, None, k=k, trace=trace)
            else:
                ask = partial(type(self)._retrieve, k=k, trace=trace)
                results = self._fan_out_to_namespaces(listed, filters, ask)
        if verify is not None:
            results = verified_results(verify, results)
        if not isinstance(filters.as_of, list | tuple):
            only = [result for (result,) in results]
            return only[0] if isinstance(questions, str) else only
        return results[0] if isinstance(questions, str) else results

    def _retrieve(
        self,
        asked: Sequence[str],
        filters: Filters,
        encoded: Encoded | None,
        *,
        k: int | None,
        trace: bool,
    ) -> list[list[Result]]:
        """Return the results of each moment for each question.

        Moments between which no atom was updated are asked in one batch.
        """
        instants = filters.instants
        if filters.scope.refresh:
            self.state.store.expect_writable()
        if len(instants) == 1:
            work = partial(self.placed_results, asked, filters, encoded, instants, k=k, trace=trace)
            results, _ = self.state.with_retry(work, instants[0])
            if filters.scope.refresh:
                self._refresh({hit.id for result in results for hit in result.hits})
            return [[result] for result in results]
        ends = self.state.store.version_ends()
        shared: dict[int, list[int]] = {}
        for place, moment in enumerate(instants):
            version = bisect_right(ends, cast(float, moment))
            shared.setdefault(version, []).append(place)
        if len(shared) > 1 and encoded is None and asked:
            encoded = encode_checked(self.state.embedder, list(asked), query=True)
        found: dict[int, list[Result]] = {}
        for places in shared.values():
            part = [instants[place] for place in places]
            work = partial(self.placed_results, asked, filters, encoded, part, k=k, trace=trace)
            rows, _ = self.state.with_retry(work, part[0])
            found |= {place: rows[i :: len(part)] for i, place in enumerate(places)}
        return [[found[place][i] for place in range(len(instants))] for i in range(len(asked))]

    def placed_results(
        self,
        asked: Sequence[str],
        filters: Filters,
        encoded: Encoded | None,
        instants: Sequence[float | None],
        view: IndexView,
        *,
        k: int | None,
        trace: bool,
    ) -> tuple[list[Result], list[list[int]]]:
        """Return the results of each question at each moment, and the ranks of their hits."""
        snapshot = view.snapshot
        rows = [question for question in asked for _ in instants]
        if not rows or not snapshot.index.num_atoms:
            if filters.where is not None:
                view.fields.where(snapshot, filters.where)  # warns of fields that no atom has
            return [Result(question, (), 0.0, False) for question in rows], [[] for _ in rows]
        stages = Stages() if trace else None
        query = self.query(view, asked, filters, encoded=encoded, instants=instants)
        if stages is not None:
            stages.done("encode")
        planned = plans_at(self.state, view, asked, filters, instants)
        found, plans = answered(
            snapshot, view.store, rows, query, *planned, k, paths=True, stages=stages
        )
        config, name = self.state.config, self.state.embedder.name
        judged = verdicts(snapshot, found, query, config.gate.threshold)
        results = to_results(rows, snapshot, query, found, view.store, config, name, judged)
        if query.group is not None:
            results = with_duplicates(results, snapshot, found.rows, query, view.store)
        pairs = zip(results, plans, strict=True)
        results = [each if own is None else replace(each, plan=own) for each, own in pairs]
        hits = zip(found.rows.tolist(), found.place.tolist(), strict=True)
        places = [[place for row, place in zip(*own, strict=True) if row >= 0] for own in hits]
        if stages is None:
            return results, places
        return with_traces(results, snapshot, found, view.store, stages), places

    # Contexts and answers.

    def compile(
        self,
        question: str | Sequence[str],
        budget: int | Sequence[int],
        filters: Filters,
        layout: Layout,
        *,
        k: int | None = None,
    ) -> Any:
        """Write contexts for questions; see `Memory.compile`.

        Returns:
            A context; for several questions or budgets a list of contexts. For both, a list with a
            context for each budget for each question.
        """
        listed, budgets = checked_questions(question), contexts.checked_budgets(budget)
        if k is not None:
            check_count("k", k)
        redundancy = rescaled(contexts.REDUNDANCY, self.state.embedder)
        settings = contexts.context_settings(
            self.state.config.context, layout, redundancy=redundancy
        )
        ask = partial(type(self)._compile, budgets=budgets, k=k, settings=settings)
        with one_warning():
            if filters.scope.namespaces is None:
                made = ask(self, listed, filters, None)
            else:
                made = self._fan_out_to_namespaces(listed, filters, ask)
        if isinstance(budget, int):
            only = [curve[0] for curve in made]
            return only[0] if isinstance(question, str) else only
        return made[0] if isinstance(question, str) else made

    def _compile(
        self,
        asked: Sequence[str],
        filters: Filters,
        encoded: Encoded | None,
        *,
        budgets: Sequence[int],
        k: int | None,
        settings: contexts.ContextSettings,
    ) -> list[list[Context]]:
        """Return a context of each budget for each question, and record the memories it uses."""
        if not asked or not budgets:
            return [[] for _ in asked]
        count = settings.candidates(budgets, self.state.config.rank.k) if k is None else k
        if filters.scope.refresh:
            self.state.store.expect_writable()
        made = self._written(asked, filters, encoded, budgets, count, settings)
        if filters.scope.refresh:
            self._refresh({name for curve in made for each in curve for name in each.sources})
        return made

    def _refresh(self, ids: Iterable[str]) -> None:
        """Refresh the expiry of memories that were read."""
        store = self.state.store
        refresh_expiry(store, [node for node, _ in store.known([*ids]).values()])

    def _written(
        self,
        asked: Sequence[str],
        filters: Filters,
        encoded: Encoded | None,
        budgets: Sequence[int],
        count: int,
        settings: contexts.ContextSettings,
    ) -> list[list[Context]]:
        """Return the contexts of the `count` best memories, and record the ones that they use."""
        floor = settings.config.min_relevance

        def work(view: IndexView) -> tuple[list[list[Context]], Tensor]:
            hits, plans = self.context_hits(asked, filters, encoded, count, floor, view)
            atoms = view.context_atoms.of(view.snapshot)
            return view.contexts.compile(atoms, hits, asked, plans, budgets, settings)

        made, used = self.state.with_retry(work, filters.instant)
        self.state.note_uses(used.tolist())
        return made

    def context_hits(
        self,
        asked: Sequence[str],
        filters: Filters,
        encoded: Encoded | None,
        count: int,
        floor: float,
        view: IndexView,
    ) -> tuple[ContextHits, list[QueryPlan | None]]:
        """Return the best memories for contexts, and the outcome of plans.

        Args:
            asked: B questions.
            filters: Conditions on the memories.
            encoded: Vectors of the questions, if they are known.
            count: Number of memories of each.
            floor: Minimum relevance (`ContextHits.of`).
            view: Index that is asked.
        """
        snapshot = view.snapshot
        query = self.query(view, asked, filters, encoded=encoded)
        planned = plans_at(self.state, view, asked, filters)
        found, plans = answered(snapshot, view.store, asked, query, *planned, count)
        judged = verdicts(snapshot, found, query, self.state.config.gate.threshold)
        return ContextHits.of(snapshot, query, found, judged, floor), plans

    def answer(
        self,
        question: str | Sequence[str],
        filters: Filters,
        layout: Layout,
        wait: contexts.Wait,
        *,
        llm: Any,
        budget: int,
        oracle: Any = None,
        k: int | None = None,
    ) -> Any:
        """Compile contexts and ask a language model; see `Memory.answer`.

        Args:
            question: One question, or several.
            filters: Conditions on the memories.
            layout: Layout of the contexts.
            wait: Function that returns the result of an awaitable.
            llm: Language model.
            budget: Tokens of the whole prompt.
            oracle: Second check of the gate.
            k: Number of memories to choose from.
        """
        layout = contexts.answer_layout(llm, layout)
        if not isinstance(budget, int):
            raise InputError(
                f"budget: expected one whole number of tokens, got {budget!r:.60}; ask for one"
            )
        verify = None if oracle is None else contexts.waiting(method_of(oracle, "verify"), wait)
        asked = checked_questions(question)
        prompts = self.compile(asked, budget, filters, layout, k=k)
        answers = (
            contexts.ask_model(llm, prompts, wait)
            if verify is None
            else contexts.ask_known(llm, verified(verify, prompts), wait)
        )
        cited: dict[str, list[Answer]] = {}
        names = filters.scope.namespaces or [""] * len(asked)
        for name, answer in zip(names, answers, strict=True):
            if answer.cited:
                cited.setdefault(name, []).append(answer)
        if cited:
            from graphmem_torch.memory.feedback import note_cited
        for name, own in cited.items():
            note_cited((self._within(name) if name else self).states, own)
        return answers[0] if isinstance(question, str) else answers

    def feedback(
        self, question: str, used: str | Sequence[str], not_used: str | Sequence[str]
    ) -> None:
        """Record which memories helped with a question; see `Memory.feedback`."""
        from graphmem_torch.memory.feedback import record_feedback

        (asked,) = checked_questions([question])
        with ExitStack() as turns:
            for state in self.states:
                turns.enter_context(state.store.turn())
            record_feedback(self.states, asked, self._named(used), self._named(not_used))

    def _named(self, ids: str | Sequence[str]) -> list[Named]:
        """Return the ids and nodes of atoms in each of `states`."""
        return [self.state.resolve_ids(ids)]

    # Explanations.

    def explain(
        self,
        question: str,
        id: str | None,
        filters: Filters,
        *,
        limit: int,
        k: int | None,
    ) -> Explanation:
        """Explain the score of a memory; see `Memory.explain`."""
        (text,) = checked_questions([question])
        if k is not None:
            check_count("k", k)
        check_count("limit", limit)
        if filters.scope.namespaces is not None:
            raise InputError(
                "namespaces: expected none for an explanation, got some; ask "
                "`memory.namespaces[name].explain`"
            )
        if filters.scope.refresh:
            raise InputError("refresh: expected False for an explanation, got True; leave it out")
        return self._explanation(text, id, filters, limit, k)

    def _explanation(
        self, text: str, id: str | None, filters: Filters, limit: int, k: int | None
    ) -> Explanation:
        hidden = self.state.store.expiry.hidden(filters.instant)
        nodes = None if id is None else self.state.resolve_ids([id], "id", hidden=hidden)[1]
        work = partial(self.explained, text, nodes, filters, limit, k)
        return expect_explained(self.state.with_retry(work, filters.instant))

    def explained(
        self,
        text: str,
        nodes: Sequence[int] | None,
        filters: Filters,
        limit: int,
        k: int | None,
        view: IndexView,
    ) -> Explanation | None:
        """Return the explanation of a memory; None if there is none to explain here.

        Args:
            text: The question.
            nodes: Node of the memory; empty if another shard has it; None is the best hit.
            filters: Conditions on the memories.
            limit: Maximum number of edges and of gradients.
            k: Number of hits.
            view: Index that is asked.
        """
        snapshot = view.snapshot
        query = self.query(view, [text], filters)
        planned = plans_at(self.state, view, [text], filters)
        ((_, query, _),) = carried_out(snapshot, view.store, [text], query, *planned)
        if nodes is None:
            with torch.inference_mode():
                best = snapshot.index(query, k=1).rows.flatten().cpu()
            rows = best[best >= 0]
        else:
            rows = snapshot.rows_of(nodes)
        # Shards explain together, one whatever it has, so that all take the same steps.
        together = snapshot.index.tensors.peers is not None
        if not len(rows) and not together:
            return None
        row = int(rows[0]) if len(rows) else 0
        found = snapshot.index.explain(query, row, k=k)
        own = self.state.config, self.state.embedder.name
        hit = as_hit(text, snapshot, query, row, found, view.store, *own)
        if not len(rows):
            return None
        return to_explanation(text, snapshot, row, found, hit, view.store, limit)

    # Questions as tensors.

    def query(
        self,
        view: IndexView,
        questions: Sequence[str],
        filters: Filters = _EVERYTHING,
        *,
        asked: Sequence[TimeLike | None] | None = None,
        encoded: Encoded | None = None,
        instants: Sequence[float | None] | None = None,
    ) -> QueryBatch:
        """Return questions with their filters and signal settings as tensors.

        Args:
            view: Index that is asked.
            questions: B questions.
            filters: Conditions on the memories.
            asked: Time of each question; None takes that of `filters`.
            encoded: Vectors of the questions, if they are known.
            instants: T moments, by default those of `filters`. Each question has a row for each
                moment: the batch has B * T rows.
        """
        state, scope = self.state, filters.scope
        snapshot, count = view.snapshot, len(questions)
        moments = filters.instants if instants is None else instants
        excluded = [
            state.resolve_ids(ids, "exclude", hidden=())[1] if ids else []
            for ids in scope.names("exclude", count)
        ]
        valid, valid_at = None, None
        if filters.valid_at is not None:
            valid_at = parse_time(filters.valid_at, "valid_at")
            at = [valid_at] * len(moments)
            valid = state.spans.valid(snapshot, view.store, at, moments)
        expired = [state.store.expiry.hidden(moment) for moment in moments]
        masks = atom_masks(snapshot, view.fields, filters, moments, excluded, valid, expired)
        masks |= entity_seeds(snapshot, view.store, scope.names("seeds", count), count)
        each = [scope.asked] * count if asked is None else asked
        if len(each) != count:
            raise InputError(
                f"asked: expected a time for each of {count} questions, got {len(each)}; "
                "give None where nobody knows"
            )
        given = [None if one is None else parse_time(one, "asked") for one in each]
        rows = [question for question in questions for _ in moments]
        if len(moments) > 1:
            if encoded is None:
                encoded = encode_checked(state.embedder, list(questions), query=True)
            encoded = pick_encoded(encoded, [i for i in range(count) for _ in moments])
        reads, times = snapshot.index.reads, None
        present = math.nan if reads.isdisjoint(("span", "ended")) else state.clock()
        if "span" in reads:
            then = [present if t is None else t for t in moments]
            times = [t if one is None else one for one in given for t in then]
        query = encode_questions(rows, state.embedder, snapshot, encoded, asked=times)
        device = query.embedding.device
        if "retention" in reads:
            left = [state.decay.retention(snapshot.node, t) for t in moments]
            masks["retention"] = torch.stack(left).to(device)
        if "ended" in reads:
            asked_at = present if scope.asked is None else parse_time(scope.asked, "asked")
            at = [asked_at if t is None else t for t in moments]
            at = at if valid_at is None else [valid_at] * len(moments)
            ended = state.spans.ended(snapshot, view.store, at, moments)
            if ended is not None:
                masks["ended"] = ended.to(device)
        masks = over_moments(masks, count, len(moments))
        if state.config.rank.unique and (group := state.duplicates.column(snapshot)) is not None:
            masks["group"] = group[None].to(device)
        if "ended" in masks and bool((back := looks_back(rows)).any()):
            masks["ended"] = masks["ended"] & ~back[:, None].to(device)
        return replace(query, **masks) if masks else query

    # Namespaces.

    def _within(self, name: str) -> Asking:
        """Return the asking of a namespace."""
        return Asking(self.state.expect_root().space(name))

    def _fan_out_to_namespaces(
        self,
        asked: Sequence[str],
        filters: Filters,
        ask: Callable[[Asking, list[str], Filters, Encoded], list[T]],
    ) -> list[T]:
        """Return the results of each question in its namespace; encodes all questions at once."""
        root, named = self.state.expect_root(), filters.scope.namespaces
        if isinstance(named, str) or not isinstance(named, Sequence):
            raise InputError(
                f"namespaces: expected a list of names, got {named!r:.80}; name one for each "
                "question"
            )
        if len(named) != len(asked):
            raise InputError(
                f"namespaces: expected one for each of {len(asked)} questions, got "
                f"{len(named)}; name one for each"
            )
        places: dict[str, list[int]] = {}
        for place, name in enumerate(named):
            places.setdefault(root.spaces.expect(name), []).append(place)
        found: list[T | None] = [None] * len(asked)
        encoded = encode_checked(root.embedder, list(asked), query=True) if asked else None
        for name, group in places.items():
            assert encoded is not None
            part = ask(
                self._within(name),
                [asked[i] for i in group],
                replace(filters, scope=filters.scope.take(group, len(asked))),
                pick_encoded(encoded, group),
            )
            for place, each in zip(group, part, strict=True):
                found[place] = each
        return cast("list[T]", found)


def expect_explained(found: Explanation | None) -> Explanation:
    """Return an explanation, which must exist.

    Raises:
        InputError: There is none.
    """
    if found is None:
        raise InputError(
            "id: expected a memory to explain, got none, and nothing is found; name one"
        )
    return found
