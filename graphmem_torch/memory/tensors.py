"""Tensors: questions and memories as the rows that the index reads."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from graphmem_torch.memory.asking import Asking
from graphmem_torch.memory.questions import checked_questions
from graphmem_torch.rank.query import QueryBatch
from graphmem_torch.text.times import TimeLike

__all__ = ["Tensors"]


class Tensors:
    """Rows of the index of one memory, for callers that compute with `Memory.index`."""

    def __init__(self, asking: Asking) -> None:
        """Load nothing yet.

        Args:
            asking: Asking of the memory.
        """
        self._asking, self._state = asking, asking.state

    def rows(self, ids: str | Sequence[str]) -> Tensor:  # [n] int64
        """Return the rows of the index for stored atoms, on its device.

        Args:
            ids: Ids of n stored atoms; one id is a single row.

        Raises:
            InputError: An id that is not stored, or that of a concept.
        """
        snapshot, rows = self._state.rows_for(ids)
        return rows.to(snapshot.index.embeddings.device)

    def encode(
        self, questions: str | Sequence[str], *, asked: Sequence[TimeLike | None] | None = None
    ) -> QueryBatch:
        """Return questions as the tensors that the index reads, on its device.

        Args:
            questions: B questions; one alone is a batch of one.
            asked: Time at which each is asked; None is now.

        Raises:
            InputError: A question without text, not one time for each question, or no time.
        """
        view = self._state.view()
        return self._asking.query(view, checked_questions(questions), asked=asked)
