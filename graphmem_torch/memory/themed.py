"""What a memory is about: its modes, their summaries, and switches from one regime to another."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from graphmem_torch.atoms import Atom
from graphmem_torch.errors import InputError
from graphmem_torch.memory.ask import checked_questions, query_batch
from graphmem_torch.memory.core import MemoryCore
from graphmem_torch.memory.mode_records import aligned, listed, summarised
from graphmem_torch.memory.regimes import RegimeWatch
from graphmem_torch.results import Mode, ModeAlignment, ModeSummary, RegimeSwitch

__all__ = ["ThemedMemory"]


class ThemedMemory(MemoryCore):
    """What can be asked of the themes of a memory."""

    def modes(self) -> list[Mode]:
        """The themes that the memories gather around, the largest first.

        `docs/mathematics.md` 1.3, as the settings `modes` say, whether the preset's index keeps
        them or not. Modes follow what is added, and are found anew where they have drifted by
        `modes.drift` or a regime has switched (1.8).
        """
        return listed(self._current(), self.store)

    def summary(
        self, question: str | None = None, *, modes: int | None = None
    ) -> list[ModeSummary]:
        """A claim, a piece of evidence and a question of each mode, one sentence each.

        `docs/mathematics.md` 1.6: the smallest thing to send to a model that says what is
        remembered.

        Args:
            question: Only the modes that matter to it, the best first; by default all modes.
            modes: At most so many; for a question by default as many as `modes.look` says.

        Raises:
            InputError: An empty question, or `modes` below 1.
        """
        if modes is not None and (not isinstance(modes, int) or modes < 1):
            raise InputError(f"modes must be a whole number of at least 1, got {modes!r}")
        asked = [] if question is None else checked_questions([question])
        current = self._current()
        query = query_batch(asked, self.embedder, current).embedding.float() if asked else None
        return summarised(current, self.store, query, modes)

    def align_modes(
        self, first: str = "episodic", second: str = "semantic", *, by: str = "type"
    ) -> ModeAlignment:
        """Which modes of one part of the memory are those of another.

        See `modes.align_modes` for what it is good for.

        Args:
            first: A value of `by`: the atoms that have it are the first part.
            second: Another.
            by: `type`, `kind`, `speaker` or `session`.

        Raises:
            InputError: A value that no atom has.
        """
        return aligned(self._current(), self.store, first, second, by)

    def on_regime_switch(
        self, function: Callable[[RegimeSwitch], object]
    ) -> Callable[[RegimeSwitch], object]:
        """Calls a function whenever what is added turns to something else; also as a decorator.

        It is called by `add`, once the atoms are stored for good, and gets a `RegimeSwitch`; where
        it raises, that is logged and the adding goes on. What the detector has learned stays in the
        store; the first call after opening catches up with at most the last 4,096 atoms.

        Returns:
            The function.

        Raises:
            InputError: Nothing that can be called, a memory that is only read, or a preset whose
                `regime.detector` is `none`.
        """
        if self.store.readonly:
            raise InputError(
                "on_regime_switch: expected a memory that can be added to, got one opened with "
                "mode='r'; open it with mode='w'"
            )
        if self._watch is None:
            self._watch = RegimeWatch(self.store, self.config.regime, self.embedder.dim)
            self._watch.call(self._switched)
        self._watch.call(function)
        return function

    def _watched(self, atoms: Sequence[Atom], embeddings: Tensor) -> None:
        """A batch is stored."""
        if self._watch is not None:
            self._watch.observe(atoms, embeddings)

    def _switched(self, switch: RegimeSwitch) -> None:
        """The first to be called: the others find communities and modes that are fresh."""
        self._survey = None
        self._follower.renew()
