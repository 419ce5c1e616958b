"""Token costs: what memories cost as entries of a context, counted once for each."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Literal

import torch
from torch import Tensor

from graphmem_torch.atoms import Atom
from graphmem_torch.context.formats import UNLABELLED, Format, label_of
from graphmem_torch.errors import InputError
from graphmem_torch.text.tokens import get_counter

__all__ = ["Shorten", "TokenCosts", "ValueKind", "shortened", "values_from_scores"]
ValueKind = Literal["share", "rank", "score"]


def values_from_scores(
    scores: Tensor,  # [B, k]; -inf: nothing there
    *,
    kind: ValueKind = "rank",
    temperature: float = 1.5,
) -> Tensor:  # [B, k] float64 in [0, 1], or the scores where they count themselves
    """Hybrid scores as values of which a knapsack may take the sum (`docs/mathematics.md` 6).

    A score is made to rank, and sums of scores mean nothing: two memories of a fair score are then
    worth more than the one that answers, and short ones win. What a sum should mean is the evidence
    that is expected in the context, so the value of a memory is how likely it is to be evidence:

    - `share`: softmax(scores / temperature), the memory's share of what is expected; for scores
      that are log-odds, as fitted ones are. The sum over a context is the share that it holds.
    - `rank`: 1 / rank, ranks from 1, over the sum of all: the same for scores of any scale.
    - `score`: the score itself, at least 0: ContextOS's utility. Of 512 tokens of LoCoMo it fills
      nearly all with short turns and keeps a fifth of what a top-k does.

    Args:
        scores: In any order.
        kind: As above.
        temperature: Of `share`; 1 takes the scores for log-odds as they are.

    Raises:
        InputError: A score that is NaN or +inf, a kind that there is not, a temperature of 0 or
            less.
    """
    if scores.dim() != 2:
        raise InputError(f"scores: expected [B, k], got {list(scores.shape)}; add the missing axis")
    if not temperature > 0:
        raise InputError(f"temperature: expected more than 0, got {temperature}; 1.5 is usual")
    there = scores > -torch.inf
    if bool((torch.isnan(scores) | (scores == torch.inf)).any()):
        raise InputError("scores: expected finite numbers or -inf, got others; repair the signals")
    worth = scores.double()
    if kind == "share":
        # A row without candidates would be NaN.
        return torch.softmax(worth / temperature, dim=1).where(there, 0.0)
    if kind == "rank":
        order = worth.argsort(dim=1, descending=True, stable=True)
        place = torch.arange(1, scores.shape[1] + 1, dtype=torch.float64, device=scores.device)
        value = torch.zeros_like(worth).scatter(1, order, (1.0 / place).expand_as(worth))
        value = value.where(there, 0.0)
        return value / value.sum(1, keepdim=True).clamp(min=1e-300)
    if kind == "score":
        return worth.clamp(min=0.0)
    raise InputError(f"kind: expected share, rank or score, got {kind!r}")


_log = logging.getLogger(__name__)

Shorten = Callable[[str, Sequence[str]], Sequence[str]]
"""From a question and the texts of memories to what is written of each."""


def shortened(shorten: Shorten, question: str, texts: Sequence[str]) -> list[str]:
    """What a function makes of texts; a text that it makes nothing of stays as it is.

    A function that fails, or gives something else than a text for each text, is told of in a
    warning, and costs nothing but brevity.
    """
    try:
        made = list(shorten(question, texts))
    except Exception as error:  # whatever a caller's function raises
        _log.warning("shortening failed (%r); the memories are written in full", error)
        return list(texts)
    if len(made) != len(texts):
        _log.warning(
            "shortening gave %d texts for %d; the memories are written in full",
            len(made),
            len(texts),
        )
        return list(texts)
    usable = [isinstance(text, str) and bool(text.strip()) for text in made]
    if not all(usable):
        _log.warning("shortening gave no text for %d of %d", usable.count(False), len(usable))
    return [new if good else old for new, old, good in zip(made, texts, usable, strict=True)]


_NUMBER = 10  # the number that a counted entry bears: of two digits, as most have


class TokenCosts:
    """Costs and labels of memories by their node numbers, which never mean anything else.

    A count holds for the entry alone, its line feed included. Encodings break before the first
    letter or digit of a line, so that the counts of entries add up to that of the whole; for other
    tokenizers nearly so.

    Attributes:
        costs: [N] int64 tokens, -1 = not counted yet.
        groups: [N] int64 number of the label, 0 = none.
        ids: Id of every counted memory.
        header_costs: [G] int64 tokens of the header of every group.
        inline: Whether each entry bears its label, and there are no headers.
    """

    def __init__(self, layout: Format, tokenizer: str, *, inline: bool) -> None:
        """Has counted nothing yet.

        Args:
            layout: How entries and headers are written; its templates do not matter.
            tokenizer: Name of the tokenizer that counts.
            inline: Whether each entry bears its label, instead of a header for several.
        """
        self._layout, self.inline = layout, inline
        self._count = get_counter(tokenizer)
        self.costs = torch.full((0,), -1, dtype=torch.int64)
        self.groups = torch.zeros(0, dtype=torch.int64)
        self.ids: dict[int, str] = {}
        self._number: dict[str | None, int] = {None: 0}
        self.header_costs = torch.tensor([self._header_cost(UNLABELLED)])

    def learn(self, nodes: Tensor, fetch: Callable[[Sequence[int]], Sequence[Atom]]) -> None:
        """Counts those of these nodes that are not counted yet.

        Args:
            nodes: [n] int64 node numbers.
            fetch: Reads the memories of nodes.
        """
        self._grow(int(nodes.max()) + 1 if len(nodes) else 0)
        fresh = nodes[self.costs[nodes] < 0].unique()
        if not len(fresh):
            return
        atoms = fetch(fresh.tolist())
        self.ids |= zip(fresh.tolist(), [atom.id for atom in atoms], strict=True)
        self.groups[fresh] = torch.tensor([self._group(atom) for atom in atoms])
        self.costs[fresh] = torch.tensor([self.cost(atom, atom.rendered) for atom in atoms])

    def read(self, nodes: Tensor) -> tuple[Tensor, Tensor]:  # [..] -> [..], [..]
        """Costs and groups of counted nodes; 0 and -1 where a number is -1."""
        self._grow(1)
        at = nodes.clamp(min=0)
        return self.costs[at].masked_fill(nodes < 0, 0), self.groups[at].masked_fill(nodes < 0, -1)

    def cost(self, atom: Atom, text: str) -> int:
        """Tokens of the entry of a memory with this text."""
        label = label_of(atom) if self.inline else None
        return self._count(self._layout.entry(_NUMBER, atom, text, label))

    def _group(self, atom: Atom) -> int:
        label = label_of(atom) if self._layout.grouped and not self.inline else None
        number = self._number.setdefault(label, len(self._number))
        if number == len(self.header_costs):
            cost = torch.tensor([self._header_cost(label or UNLABELLED)])
            self.header_costs = torch.cat([self.header_costs, cost])
        return number

    def _header_cost(self, label: str) -> int:
        return self._count(self._layout.headed(label))

    def _grow(self, size: int) -> None:
        more = size - len(self.costs)
        if more > 0:
            more = max(more, len(self.costs))
            self.costs = torch.cat([self.costs, self.costs.new_full((more,), -1)])
            self.groups = torch.cat([self.groups, self.groups.new_zeros(more)])
