"""Ledger: what memories cost as entries of a context, counted once for each."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from graphmem_torch.atoms import Atom
from graphmem_torch.context.formats import Format
from graphmem_torch.context.labels import label_of
from graphmem_torch.context.render import UNLABELLED
from graphmem_torch.text.tokens import get_counter

__all__ = ["Ledger"]

_NUMBER = 10  # the number that a counted entry bears: of two digits, as most have


class Ledger:
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
