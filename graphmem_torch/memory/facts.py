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
from graphmem_torch.memory.lookup import one_id
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
    """Validity, versions and contradictions of memories (`docs/mathematics.md` 5.1 and 5.8)."""

    def __init__(self, writing: Writing) -> None:
        """Keep the part that writes; loads nothing.

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

        The old atom is valid until `when`, exclusive. From then on the signal `ended` counts
        against it, and `valid_at` leaves it out. No index is rebuilt. Repeating a statement changes
        nothing; naming another successor is a later statement. Deleting or forgetting either atom
        drops the statement, and the old one is valid as before.

        Args:
            old: Id of the atom whose content is no longer true.
            new: Id of the atom that is true in its place.
            when: Moment of the change, a time as in `Memory.retrieve`. By default the start of the
                new atom's validity, but not before that of the old one. An earlier end of the old
                atom, its own or from `set_validity`, is kept.
            known: Moment at which this became known, for `as_of`. By default now, and never before
                the latest statement about both.

        Returns:
            The validity of the old atom.

        Raises:
            InputError: An id is not stored, an atom would supersede itself, directly or through
                others, or the end is before the start.
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
        """State the validity of atoms, all or none.

        Args:
            ids: Ids of stored atoms.
            start: Start, a time as in `Memory.retrieve`; `-math.inf` for always, None for the time
                in the atom. If omitted, it is unchanged.
            stop: End, exclusive; `math.inf` for open, None for the time in the atom, even if it was
                superseded. If omitted, it is unchanged.
            known: Moment at which this became known, as in `supersede`.

        Returns:
            The validity of each atom.

        Raises:
            InputError: An id is not stored, `start` and `stop` are both omitted, or the end is
                before the start.
            StoreError: Read-only store or full disk; nothing has changed then.
        """
        resolve, now = self._state.resolve_ids, self._state.clock()
        return set_validity(self._store, ids, start, stop, known, resolve, now)

    def validity(
        self, ids: str | Sequence[str], *, as_of: TimeLike | None = None
    ) -> dict[str, Validity]:
        """Return the validity of atoms, as known at a moment.

        An atom without a statement is valid from its `event_time`, else its `time`, to its
        `event_end`. The start is unknown if the end is before the atom was said.

        Args:
            ids: Ids of stored atoms.
            as_of: Moment, a time as in `Memory.retrieve`; by default now. Atoms are read in their
                current version.

        Raises:
            InputError: An id is not stored, or is that of a concept.
        """
        moment = None if as_of is None else parse_time(as_of, "as_of")
        with self._store.reading():
            nodes = dict(zip(*self._state.resolve_ids(ids), strict=True))
            return self._state.as_given(ids, validity_of(self._store, nodes, moment))

    def versions(self, id: str) -> list[Version]:
        """Return the versions of an atom, from first to current.

        Raises:
            InputError: No id, or one that is not stored, or that of a concept.
        """
        with self._store.reading():
            return versions_of(self._store, self._state.resolve_ids(one_id(id))[1][0])

    def history(self, id: str) -> History:
        """Return the versions of an atom, the statements of its validity, and its chain.

        The chain has the atoms it superseded and those that superseded it, directly or through
        others, each with its times.

        Raises:
            InputError: No id, or one that is not stored, or that of a concept.
        """
        with self._store.reading():
            return history_of(self._store, self._state.resolve_ids(one_id(id))[1][0])

    def changes(self, since: TimeLike) -> list[Change]:
        """Return the changes since a moment, inclusive, in the order they became known.

        Lists atoms that were added or restored, updated, superseded, archived, or given a validity.
        For deletions only the number is kept. Changes that an older release stored without their
        time are missing.

        Args:
            since: Moment by the clock of the memory, a time as in `Memory.retrieve`.

        Raises:
            InputError: Invalid time.
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

        Compares each memory that is new since the last call with those that share a key
        (`docs/mathematics.md` 5.8). A contradiction is an open conflict: `conflicts` lists it with
        its reason; rankings and validity stay. Without an oracle, only an explicit change by the
        same speaker or source ends a memory ("moved to", "no longer", "changed from A to B",
        "renamed"). A memory that repeats an earlier one supports it, and counts as a use of it.
        Nothing is deleted. Each block of memories commits before the next starts, so an interrupted
        run can be repeated. Idempotent; readers and writers are not blocked.

        Args:
            oracle: Judge as in `GraphEdits.judge`, asked in both directions about each pair that is
                similar or shares a key. The policy resolves its contradictions. A contradiction in
                one direction with an entailment in the other is neutral, with a warning. By default
                the local rules for English.
            policy: Policy in place of that of the settings. `recency`: the later memory supersedes
                the earlier. `importance`: the more important one supersedes the other, if an oracle
                judges. `both`: both stay, and an aggregate derived from both states the conflict.
            block: Number of memories whose pairs are judged before a commit.
            progress: Whether to show a bar on stderr.

        Raises:
            InputError: Unusable oracle, or an unknown policy.
            StoreError: Read-only store or full disk; committed blocks stay.
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

        `reconcile`, `GraphEdits.judge` or a caller found them. A conflict is open if the validity
        of both overlaps and no aggregate states it.
        """
        return explained(conflicts_of(self._store), LexicalJudge(self._state.embedder))

    def duplicates(self) -> list[tuple[str, ...]]:
        """Return groups of ids of memories that say the same, as `reconcile` found them.

        Each group starts with its first memory. Its memories share the speaker, the days they
        mention, and the words and signs in order, whatever case, punctuation and greetings. Texts
        that differ need a cosine of at least 0.75. With `rank.unique` only the best of a group is a
        hit.
        """
        with self._store.reading():
            hidden = self._store.expiry.hidden()
            every = self._state.duplicates.groups()
            visible = [[node for node in group if node not in hidden] for group in every]
            groups = [group for group in visible if len(group) > 1]
            nodes = [node for group in groups for node in group]
            names = dict(zip(nodes, (atom.id for atom in self._store.atoms(nodes)), strict=True))
        return [tuple(names[node] for node in group) for group in groups]

    def split_name(self, name: str) -> bool:
        """Separate a name from the concept that it shares with others, for good.

        The name becomes a concept of its own, also in copies and imports: later memories never join
        it with another. Only its SHA-256 with the store's own salt is kept, until the last memory
        with the name is forgotten.

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
        """Undo `split_name`: the name joins other names again if the memories show that it should.

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
        """Return the name of a concept as it is stored."""
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
        block: Number of memories whose pairs are judged before a commit.
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
