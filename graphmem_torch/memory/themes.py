"""Themes: modes of the memories of one memory, their summaries, and regime switches."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from graphmem_torch.checks import check_count
from graphmem_torch.memory.asking import Asking
from graphmem_torch.memory.index_view import IndexView
from graphmem_torch.memory.modes import align_parts, mode_records, mode_summaries
from graphmem_torch.memory.questions import checked_questions
from graphmem_torch.memory.state import State
from graphmem_torch.results import Mode, ModeAlignment, ModeSummary, RegimeSwitch

__all__ = ["Themes"]


class Themes:
    """Groups of related memories, and when they changed."""

    def __init__(self, asking: Asking) -> None:
        """Load nothing yet.

        Args:
            asking: Asking of the memory.
        """
        self._asking, self._state = asking, asking.state

    def summary(
        self, question: str | None = None, *, modes: int | None = None
    ) -> list[ModeSummary]:
        """Return a claim, a piece of evidence and a question of each mode, one sentence each.

        `docs/mathematics.md` 1.6: a short account of the memories, for a model.

        Args:
            question: Question whose modes are returned, the best first; by default all modes.
            modes: Maximum number of modes; for a question by default
                `modes.modes_searched`.

        Raises:
            InputError: A question without text, or fewer than one mode.
        """
        if modes is not None:
            check_count("modes", modes)
        asked = None if question is None else checked_questions([question])
        return self._state.with_retry(partial(self._summaries, asked, modes))

    def _summaries(
        self, asked: list[str] | None, count: int | None, view: IndexView
    ) -> list[ModeSummary]:
        found = self._state.modes.of(view.snapshot)
        if found is None:
            return []
        query = self._asking.query(view, asked).embedding.float() if asked else None
        return mode_summaries(found, view.snapshot, self._state.store, query, count)

    def align(
        self, first: str = "episodic", second: str = "semantic", *, by: str = "type"
    ) -> ModeAlignment:
        """Return which modes of one part of the memory match those of another.

        See `modes.align_modes`.

        Args:
            first: Value of `by` that the atoms of the first part have.
            second: Value of `by` that the atoms of the second part have.
            by: `type`, `kind`, `speaker` or `session`.

        Raises:
            InputError: A value that no atom has.
        """
        return align_parts(self._state.current(), self._state.store, first, second, by)

    def switches(self) -> list[RegimeSwitch]:
        """Return the regime switches among all stored atoms, in the order of adding.

        The detector reads atoms as they are added, and here those that it has not read yet. No
        switch depends on later atoms. A writable store keeps its state. After `Memory.forget` it
        reads all remaining atoms again. Each switch makes modes and structure be computed again.

        Raises:
            InputError: A preset whose `regime.detector` is `none`.
        """
        return self._state.regimes.switches()

    def on_switch(
        self, function: Callable[[RegimeSwitch], object]
    ) -> Callable[[RegimeSwitch], object]:
        """Call a function at every regime switch in what is added; also as a decorator.

        `Memory.add` calls it after storing the atoms. If it raises, the error is logged and adding
        continues. The first call after opening covers the atoms that were added since.

        Args:
            function: Function of one `RegimeSwitch`.

        Returns:
            The function.

        Raises:
            InputError: A memory opened to read, or a preset whose `regime.detector` is `none`.
        """
        self._state.regimes.listen(function)
        return function

    # The last method: below it `list` would mean this one in annotations.

    def list(self) -> list[Mode]:
        """Return the themes of the memories, the largest first.

        `docs/mathematics.md` 1.3. New atoms update them. They are computed again after a drift of
        0.05 of the energy, or after a regime switch (1.8).
        """
        return self._state.with_retry(partial(_records, self._state))


def _records(state: State, view: IndexView) -> list[Mode]:
    modes = state.modes.of(view.snapshot)
    return [] if modes is None else mode_records(modes, view.snapshot, state.store)
