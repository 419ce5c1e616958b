"""Facts: validity, versions, contradictions and repetitions of the memories of one memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import EllipsisType
from typing import Literal

from graphmem_torch.checks import check_count
from graphmem_torch.config import POLICIES, ReconcileConfig
from graphmem_torch.errors import InputError
from graphmem_torch.judge.entailment import LexicalJudge
from graphmem_torch.memory.conflicts import conflicts_of, explained, outdated_statements
from graphmem_torch.memory.filter_masks import concept_nodes
from graphmem_torch.memory.history import changes_since, history_of, versions_of, with_archived
from graphmem_torch.memory.reconcile import (
    Resolver,
    find,
)
from graphmem_torch.memory.validity import set_validity, supersede, validity_of
from graphmem_torch.memory.writing import Writing
from graphmem_torch.oracle import Judge, Oracle, method_of
from graphmem_torch.progress import Progress
from graphmem_torch.results import Change, Conflict, History, Reconciled, Validity, Version
from graphmem_torch.text.naming import plain_name
from graphmem_torch.text.times import TimeLike, parse_time

__all__ = ["Facts"]


class Facts:
    """What holds when, what said otherwise before, and what contradicts what.

    `docs/mathematics.md` 5.1 and 5.8.
    """

    def __init__(self, writing: Writing) -> None:
        """Load nothing yet.

        Args:
            writing: Writing to the memory.
        """
        self._writing = writing
        self._state, self._store = writing.state, writing.state.store

    def supersede(
        self,
        old: str,
        new: str,
        *,
        when: TimeLike | None = None,
        known: TimeLike | None = None,
    ) -> Validity:
        """State that an atom replaced another, which was true until then and stays stored.

        The old atom is valid until `when`, not included: from then on the signal `ended` counts
        against it, and `valid_at` leaves it out. No index is rebuilt. The same statement again
        changes nothing; another atom in the old one's place is a later statement. Deleting or
        forgetting either atom drops the statement, and the old one is valid as before.

        Args:
            old: Id of the atom whose content is no longer true.
            new: Id of the atom that is true in its place.
            when: Moment of the change, a time as in `Memory.retrieve`. By default the moment at
                which the new atom begins to be true, but not before the old one began; an end of
                the old atom that is stated already, or its own, is never moved back.
            known: Moment at which this became known, which `as_of` goes by; by default now, and
                never before what is known of both already.

        Returns:
            The validity of the old atom.

        Raises:
            InputError: An id that is not stored, an atom that would supersede itself, directly or
                through others, or an end before the beginning.
            StoreError: Read-only store or full disk; nothing has changed then.
        """
        now = self._state.clock()
        (found,) = supersede(self._store, [(old, new, when, known)], self._state.resolve_ids, now)
        return found

    def set_validity(
        self,
        ids: str | Sequence[str],
        *,
        start: TimeLike | EllipsisType | None = ...,
        stop: TimeLike | EllipsisType | None = ...,
        known: TimeLike | None = None,
    ) -> dict[str, Validity]:
        """State from when to when the content of atoms was true, all or none.

        Args:
            ids: Ids of stored atoms.
            start: Beginning, a time as in `Memory.retrieve`; `-math.inf` for always, None for what
                the atom says. Left out, it stays as it is.
            stop: End, not included; `math.inf` for open, None for what the atom says, also if
                another one superseded it. Left out, it stays as it is.
            known: Moment at which this became known, as in `supersede`.

        Returns:
            The validity of each atom.

        Raises:
            InputError: An id that is not stored, no end given, or an end before the beginning.
            StoreError: Read-only store or full disk; nothing has changed then.
        """
        resolve, now = self._state.resolve_ids, self._state.clock()
        return set_validity(self._store, ids, start, stop, known, resolve, now)

    def validity(
        self, ids: str | Sequence[str], *, as_of: TimeLike | None = None
    ) -> dict[str, Validity]:
        """Return from when to when the content of atoms was true, as known at a moment.

        An atom without a statement is valid from its `event_time`, else its `time`, to its
        `event_end`. The beginning is unknown if the end is before the atom was said.

        Args:
            ids: Ids of stored atoms.
            as_of: The moment, a time as in `Memory.retrieve`; by default now. Atoms are read as
                they are today.

        Raises:
            InputError: An id that is not stored, or that of a concept.
        """
        moment = None if as_of is None else parse_time(as_of, "as_of")
        with self._store.reading():
            nodes = dict(zip(*self._state.resolve_ids(ids), strict=True))
            return self._state.as_given(ids, validity_of(self._store, nodes, moment))

    def versions(self, id: str) -> list[Version]:
        """Return the versions of an atom, the first one first and that of today last.

        Raises:
            InputError: An id that is not stored, or that of a concept.
        """
        with self._store.reading():
            return versions_of(self._store, self._state.resolve_ids(id)[1][0])

    def history(self, id: str) -> History:
        """Return the versions of an atom, the statements of its validity, and its chain.

        The chain holds what it superseded and what superseded it, directly or through others, each
        with its times.

        Raises:
            InputError: An id that is not stored, or that of a concept.
        """
        with self._store.reading():
            return history_of(self._store, self._state.resolve_ids(id)[1][0])

    def changes(self, since: TimeLike) -> list[Change]:
        """Return what has changed since a moment, that included, in the order it became known.

        Lists atoms that were added or restored, updated, superseded, archived, or given a validity.
        Of deletions only the number is kept. Changes that an older release stored without their
        time are missing.

        Args:
            since: The moment by the clock of the memory, a time as in `Memory.retrieve`.

        Raises:
            InputError: No time.
        """
        moment, archive = parse_time(since, "since"), self._state.archive()
        with self._store.reading():
            found = changes_since(self._store, moment)
        return found if archive is None else with_archived(found, archive.store, moment)

    def reconcile(
        self,
        *,
        oracle: Oracle | Judge | None = None,
        policy: Literal["recency", "importance", "both"] | None = None,
        block: int = 1024,
        progress: bool = False,
    ) -> Reconciled:
        """Find memories that contradict or repeat each other.

        Compares each memory that is new since the last call with those that share a key with it
        (`docs/mathematics.md` 5.8). A contradiction is an open conflict: `conflicts` lists it with
        its reason, and it changes no ranking and no validity. Without an oracle a memory ends in
        one case: a later memory of the same speaker or source states the change in so many words
        ("moved to", "no longer", "changed from A to B", "renamed"). A memory that says again what
        an earlier one says supports it, and counts as a use of it. Nothing is deleted. Each block
        of memories commits before the next starts, so an interrupted run can be repeated; a second
        call finds nothing to do. Readers and writers are not blocked.

        Args:
            oracle: Judge as in `GraphEdits.judge`, asked both ways round about each pair that is
                similar or shares a key. What it calls a contradiction is resolved by the policy. If
                it says that one contradicts the other, and the other follows from the one, the pair
                is neutral, with a warning. By default the local rules, which know English.
            policy: Policy in place of that of the settings. `recency`: the later one supersedes the
                earlier; `importance`: the more important one the other, if an oracle judges;
                `both`: both stay, and an aggregate derived from both states the conflict.
            block: Memories whose pairs are judged before what was found is stored.
            progress: Whether to show a bar on stderr.

        Raises:
            InputError: No oracle, or an unknown policy.
            StoreError: Read-only store or full disk; what was done stays.
        """
        check_count("block", block)
        settings = self._state.config.reconcile
        if policy is not None:
            if policy not in POLICIES:
                raise InputError(
                    f"policy: expected one of {', '.join(POLICIES)}, got {policy!r:.60}; leave it "
                    "out for that of the settings"
                )
            settings = replace(settings, policy=policy)
        asked = None if oracle is None else method_of(oracle, "judge")
        return reconcile_before(self._writing, settings, asked, block=block, progress=progress)

    def conflicts(self) -> list[Conflict]:
        """Return memories that contradict each other, each pair with its reason.

        They were found by `reconcile` or `GraphEdits.judge`, or connected by a caller. A conflict
        is open if both memories count as true at one time and no aggregate states it.
        """
        return explained(conflicts_of(self._store), LexicalJudge(self._state.embedder))

    def duplicates(self) -> list[tuple[str, ...]]:
        """Return groups of ids of memories that say the same, as `reconcile` found them.

        The first memory is in front. All of a group are of one speaker, of equal text or of a
        cosine of at least 0.75, and have the same words and signs in the same order, whatever their
        case, punctuation and greetings; "today" is the same day in all of them. With
        `rank.unique` only the best of them is a hit.
        """
        with self._store.reading():
            groups = self._state.duplicates.groups()
            nodes = [node for group in groups for node in group]
            names = dict(zip(nodes, (atom.id for atom in self._store.atoms(nodes)), strict=True))
        return [tuple(names[node] for node in group) for group in groups]

    def split_name(self, name: str) -> bool:
        """Separate a name from the concept that it shares with others, for good.

        The name is a concept of its own from then on: memories that are added later do not join it
        with another, and neither does a copy of the store or an import. What is kept of it is a
        SHA-256 with the store's own salt. Forgetting the last memory that says the name drops that
        too.

        Args:
            name: Name of a concept, in any case.

        Returns:
            Whether it was not split before.

        Raises:
            InputError: No text, or no concept has this name.
            StoreError: Read-only store or full disk; nothing has changed then.
        """
        return self._state.writer().split(self._said_name(name), alone=True)

    def join_name(self, name: str) -> bool:
        """Undo `split_name`: the name joins others again if the memories show that it should.

        Args:
            name: Name that was split, in any case.

        Returns:
            Whether it was split before.

        Raises:
            InputError: No text, or no concept has this name.
            StoreError: Read-only store or full disk; nothing has changed then.
        """
        return self._state.writer().split(self._said_name(name), alone=False)

    def _said_name(self, name: str) -> str:
        """Return the name of a concept as the store has it."""
        if not isinstance(name, str):
            raise InputError(
                f"name: expected a name of a concept, got {type(name).__name__}; give its text"
            )
        concept_nodes(self._store, [name], "name", do="name one that a memory says")
        return plain_name(name)


def reconcile_before(
    writing: Writing,
    settings: ReconcileConfig,
    judge: Judge | None,
    *,
    stop: int | None = None,
    block: int = 1024,
    progress: bool = False,
) -> Reconciled:
    """Reconcile the memories before a node; see `Facts.reconcile`.

    Args:
        writing: Writing to the memory.
        settings: Settings of the comparison.
        judge: Oracle; None is the local rules.
        stop: First node that is left out; None takes all.
        block: Memories whose pairs are judged before what was found is stored.
        progress: Whether to show a bar on stderr.
    """
    state = writing.state
    state.store.expect_writable()
    by, done = Resolver(writing, state.clock()), Reconciled()
    with state.turn():
        writing.delete(outdated_statements(state.store))
    local = LexicalJudge(state.embedder)
    with Progress(what="reconcile", unit="pairs", shown=progress) as bar:
        for part in find(
            state.store,
            settings,
            state.keys,
            local=local,
            judge=judge,
            by=by,
            block=block,
            stop=stop,
        ):
            done += part
            bar.update(part.compared)
    return done
