"""Tensors: questions and memories as the rows that the index reads."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from graphmem_torch.checks import check_count
from graphmem_torch.errors import InputError
from graphmem_torch.memory.asking import Asking
from graphmem_torch.memory.questions import checked_questions
from graphmem_torch.memory.state import IndexView
from graphmem_torch.ops.topk_cosine import numbered_keys
from graphmem_torch.rank.filters import Where
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

    def nearest(
        self, vector: Tensor | Sequence[float], *, k: int, where: Where = None
    ) -> list[tuple[str, float]]:
        """Return ids and cosines of the atoms nearest to a vector of the encoder, best first.

        Args:
            vector: [d] vector of any length.
            k: Maximum number of atoms.
            where: Conditions on fields, as in `Memory.retrieve`.

        Raises:
            InputError: Not d finite numbers, `k` below 1, or an unusable condition.
        """
        check_count("k", k)
        width = self._state.store.dim
        do = "give one vector of the memory's encoder"
        try:
            own = torch.as_tensor(vector, dtype=torch.float32)
        except (TypeError, ValueError, RuntimeError) as error:
            raise InputError(f"vector: expected numbers, got {vector!r:.60}; {do}") from error
        if own.dim() != 1 or len(own) != (width or len(own)) or not own.isfinite().all():
            raise InputError(
                f"vector: expected {width} finite numbers, got {list(own.shape)}; {do}"
            )

        def work(view: IndexView) -> list[tuple[str, float]]:
            keys = view.snapshot.index.embeddings
            node = view.snapshot.node[: len(keys)].to(keys.device)
            listed = torch.ones(len(keys), dtype=torch.bool, device=keys.device)
            if where:
                listed = view.fields.where(view.snapshot, where)
            if hidden := view.store.expiry.hidden():
                listed = listed & ~torch.isin(node, torch.tensor([*hidden], device=keys.device))
            if not listed.all():
                keys, node = keys[listed], node[listed]
            if not len(keys):
                return []
            unit = torch.nn.functional.normalize(own, dim=0)[None].to(keys.device)
            cosines, places = numbered_keys(unit, keys, min(k, len(keys)))
            atoms = view.store.atoms(node[places[0]].tolist())
            pairs = zip(atoms, cosines[0].tolist(), strict=True)
            return [(atom.id, cosine) for atom, cosine in pairs]

        return self._state.with_retry(work)
