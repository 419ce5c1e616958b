"""Forgetting: selects atoms by conditions, and erases them here and in the archive."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import cast

import torch

from graphmem_torch.atoms import Atom
from graphmem_torch.checks import check_count
from graphmem_torch.errors import InputError
from graphmem_torch.memory.archive import apart, derived_of_both, finish_forgetting
from graphmem_torch.memory.asking import Asking
from graphmem_torch.memory.fields import one_warning
from graphmem_torch.memory.lookup import nodes_that_fit, with_derived
from graphmem_torch.memory.questions import checked_questions
from graphmem_torch.memory.request import Filters
from graphmem_torch.memory.state import State
from graphmem_torch.memory.writing import Writing
from graphmem_torch.rank.filters import Where, parse_where
from graphmem_torch.results import Receipt
from graphmem_torch.text.times import TimeLike, parse_time

__all__ = ["Conditions", "Forgetting", "select_nodes"]


@dataclass(frozen=True)
class Conditions:
    """Conditions on atoms, which must all hold.

    Attributes:
        session: Session of the atoms.
        speaker: Speaker of the atoms.
        before: Upper bound of the time of the atoms, exclusive.
        where: Conditions on fields, as in `Memory.retrieve`.
        question: Question whose `k` best hits are selected, from atoms that meet the rest.
        k: Number of hits.
    """

    session: str | None = None
    speaker: str | None = None
    before: TimeLike | None = None
    where: Where = None
    question: str | None = None
    k: int | None = None

    def __post_init__(self) -> None:
        """Check the names.

        Raises:
            InputError: A session or speaker that is no text.
        """
        for name in ("session", "speaker"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, str):
                raise InputError(f"{name}: expected a text, got {value!r:.80}; name one")


class Forgetting:
    """Erases atoms of one memory for good, here and in its archive."""

    def __init__(self, asking: Asking, writing: Writing) -> None:
        """Keep the parts of the memory; loads nothing.

        Args:
            asking: Asking of the memory.
            writing: Writing to the memory.
        """
        self._asking, self._writing = asking, writing
        self._state = writing.state

    def forget(self, ids: str | Iterable[str] | None, conditions: Conditions) -> Receipt:
        """Erase atoms; see `Memory.forget`."""
        state = self._state
        state.store.expect_writable()
        with self._forgetting(ids, conditions) as (archive, nodes, away):
            if archive is None:
                if state.is_archive:
                    self._writing.drop_archive_links(state.store.contents(nodes)[0])
                return state.erase(nodes)
            receipt = state.erase(nodes, (archive.store, away))
            finish_forgetting(state.store, archive)
        return receipt

    def forgettable(self, ids: str | Iterable[str] | None, conditions: Conditions) -> list[Atom]:
        """Return the atoms that `forget` would erase, archived ones last; changes nothing."""
        with self._forgetting(ids, conditions) as (archive, nodes, away):
            atoms = self._state.store.atoms(nodes)
            if archive is not None:
                atoms += archive.store.atoms(away)
        # An interrupted move may have left an atom in both.
        return list({atom.id: atom for atom in reversed(atoms)}.values())[::-1]

    @contextmanager
    def _forgetting(
        self, ids: str | Iterable[str] | None, conditions: Conditions
    ) -> Iterator[tuple[State | None, list[int], list[int]]]:
        """Select the nodes to erase here and in the archive.

        Holds the turn inside the context; for a read-only store, one state of it.
        """
        state = self._state
        # Without ids, at least one condition is required.
        where = parse_where(conditions.where) if conditions.where else None
        conditions = replace(conditions, where=where)
        no_question = conditions.question is None
        if (ids is None and conditions == Conditions()) or (conditions.k is None) != no_question:
            none = conditions.k is None and no_question
            raise InputError(
                "forget: expected ids, session, speaker, before, where, or question with k, got "
                f"{'none of them' if none else 'one without the other'}; say what to erase"
            )
        archive = state.archive()
        with ExitStack() as stack:
            for each in [state] if archive is None else [state, archive]:
                own = each.store
                stack.enter_context(own.reading() if own.readonly else each.turn())
            if archive is None:
                with one_warning():
                    chosen = select_nodes(self._asking, ids, conditions)
                yield None, with_derived(state.store, chosen), []
                return
            named = [ids] if isinstance(ids, str) else None if ids is None else list(ids)
            with one_warning():
                if no_question:
                    nodes, away = _select_in_both(self._asking, archive, named, conditions)
                else:
                    nodes, away = select_nodes(self._asking, named, conditions), []
            yield archive, *derived_of_both(state.store, archive.store, nodes, away)


def select_nodes(
    asking: Asking, ids: str | Iterable[str] | None, conditions: Conditions
) -> list[int]:
    """Return the node numbers of the atoms for which all conditions hold.

    Raises:
        InputError: An id, session or speaker is not stored, or a condition is unusable.
    """
    state = asking.state
    named = None if ids is None else state.resolve_ids(ids, hidden=())[1]
    if named is not None and conditions == Conditions():
        return named
    before = conditions.before
    nodes = torch.tensor(
        nodes_that_fit(
            state.store,
            named,
            session=conditions.session,
            speaker=conditions.speaker,
            before=None if before is None else parse_time(before, "before"),
        ),
        dtype=torch.int64,
    )
    if conditions.where is not None:
        view = state.view()
        fits = view.fields.where(view.snapshot, conditions.where, removing=True).cpu()
        nodes = nodes[torch.isin(nodes, view.snapshot.node[fits])]
    if conditions.question is not None:
        check_count("k", cast(int, conditions.k))
        view, asked = state.view(), checked_questions(conditions.question)
        listed = torch.isin(view.snapshot.node, nodes)
        query = asking.query(view, asked, Filters(conditions.where))
        if named is None and query.listed is not None:
            listed &= query.listed[0].cpu()
        query = replace(query, listed=listed[None].to(query.embedding.device))
        with torch.inference_mode():
            rows = view.snapshot.index(query, k=conditions.k).rows[0].cpu()
        nodes = view.snapshot.node[rows[rows >= 0]]
    return cast("list[int]", nodes.tolist())


def _select_in_both(
    asking: Asking, archive: State, ids: Sequence[str] | None, conditions: Conditions
) -> tuple[list[int], list[int]]:
    """Return the node numbers of matching atoms here and in the archive.

    Raises:
        InputError: A condition is unusable in both.
    """
    store = asking.state.store
    mine, theirs = (None, None) if ids is None else apart(ids, store, archive.store)
    found, errors = list[list[int]](), list[InputError]()
    for memory, own in ((asking, mine), (Asking(archive), theirs)):
        try:
            found.append(select_nodes(memory, own, conditions))
        except InputError as error:  # a name that only the other store has
            found.append([])
            errors.append(error)
    if len(errors) == len(found):
        raise errors[0]
    return found[0], found[1]
