"""LexicalJudge: does a text support another, contradict it, or neither? By rule, without a model.

It reads what lies on the surface and nothing else: paraphrase, arithmetic and knowledge of the
world are beyond it. `bench/quality/claims.py` measures how far that goes.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from graphmem_torch.errors import InputError
from graphmem_torch.oracle import Verdict
from graphmem_torch.text.cues import Claim, conflicts
from graphmem_torch.text.encoded import Embedder, encode_checked

__all__ = ["LexicalJudge"]

_RELATED = 0.5  # cosine below which two texts are not about the same
_COVERED = 0.7  # share of the hypothesis's words that the premise must hold to entail it
_SHARED = 0.5  # the same for a conflict, which is about the rest
_DOUBT = 0.5  # what a conflict takes from the support of a hypothesis


class LexicalJudge:
    """The local default `Oracle`: similarity, shared words, and what speaks against each other.

    Entailed is a hypothesis whose content words are nearly all in one sentence of a premise that is
    about the same, with no conflict between the two; contradicted, one that shares most of its
    words with such a sentence and differs in a negation, an antonym, a number with its unit, a year
    or a month. The confidence is the share of its words. Anything else is neutral.
    """

    def __init__(self, embedder: Embedder) -> None:
        """Judges by the vectors of this encoder."""
        self._embedder = embedder

    def judge(self, premises: Sequence[str], hypotheses: Sequence[str]) -> list[Verdict]:
        """One verdict for each premise with the hypothesis of the same place.

        Raises:
            InputError: Lengths that differ.
        """
        cosine, shared, conflict = self._evidence(premises, hypotheses)
        columns = (cosine.tolist(), shared.tolist(), conflict.tolist())
        return [_verdict(*row) for row in zip(*columns, strict=True)]

    def support(self, premises: Sequence[str], hypotheses: Sequence[str]) -> Tensor:  # [P]
        """How much each premise speaks for its hypothesis, in [-1, 1], to rank pairs by.

        The mean of cosine and shared words, less a half where there is a conflict.

        Raises:
            InputError: Lengths that differ.
        """
        cosine, shared, conflict = self._evidence(premises, hypotheses)
        return (cosine + shared) / 2 - _DOUBT * conflict

    def _evidence(
        self, premises: Sequence[str], hypotheses: Sequence[str]
    ) -> tuple[Tensor, Tensor, Tensor]:  # [P] cosine, [P] share of words, [P] bool
        if len(premises) != len(hypotheses):
            raise InputError(
                f"expected a hypothesis for each premise, got {len(premises)} premises and "
                f"{len(hypotheses)} hypotheses"
            )
        texts = {text: place for place, text in enumerate(dict.fromkeys([*premises, *hypotheses]))}
        vectors = encode_checked(self._embedder, list(texts)).pooled
        ends = [[texts[text] for text in side] for side in (premises, hypotheses)]
        one, other = (vectors[torch.tensor(side, dtype=torch.int64)] for side in ends)
        claims = {text: Claim.read(text) for text in texts}
        found = [
            conflicts(claims[premise], claims[hypothesis])
            for premise, hypothesis in zip(premises, hypotheses, strict=True)
        ]
        shared = torch.tensor([share for share, _ in found], dtype=torch.float32)
        conflict = torch.tensor([bool(cues) for _, cues in found], dtype=torch.bool)
        return (one * other).sum(1), shared, conflict


def _verdict(cosine: float, shared: float, conflict: bool) -> Verdict:
    if cosine >= _RELATED and conflict and shared >= _SHARED:
        return Verdict("contradict", shared)
    if cosine >= _RELATED and not conflict and shared >= _COVERED:
        return Verdict("entail", shared)
    return Verdict("neutral", 1.0 - shared)
