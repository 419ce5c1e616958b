"""Desk: what compiling knows of a store beside its index: costs of entries, relations."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from graphmem_torch.atoms import Atom
from graphmem_torch.config import ContextConfig
from graphmem_torch.context.choose import Choice
from graphmem_torch.context.compile import Compiled, Compiler
from graphmem_torch.context.costs import Ledger, Shorten, shortened
from graphmem_torch.context.formats import Format
from graphmem_torch.context.pool import Pool, Relations, gather_pool
from graphmem_torch.edges import EdgeBlock
from graphmem_torch.memory.assemble import Assembled, to_rows
from graphmem_torch.store import MemoryStore

__all__ = ["Desk"]

_KEPT = 8192  # memories that are kept as read


class Desk:
    """Keeps what does not change from question to question."""

    def __init__(self, store: MemoryStore) -> None:
        """Nothing is read before it is asked for."""
        self._store = store
        self._ledgers: dict[tuple[str, str, bool], Ledger] = {}
        self._relations: dict[tuple[str, ...], Relations] = {}
        self._atoms: dict[int, Atom] = {}  # by node, whose number never means anything else
        self._state: str | None = None
        self._pins: tuple[object, Tensor] | None = None

    def pool(
        self,
        current: Assembled,
        rows: Tensor,  # [B, k] int64, -1 = none
        values: Tensor,  # [B, k]
        allowed: Tensor | None,  # [B or 1, A] bool
        settings: ContextConfig,
    ) -> Pool:
        """What was retrieved, what is pinned, and what these need."""
        return gather_pool(
            rows,
            values,
            atoms=current.index.num_atoms,
            pinned=self._pinned(current),
            needs=self.relations(current, settings.requires),
            allowed=allowed,
            limit=settings.pool,
        )

    def compile(
        self,
        current: Assembled,
        pool: Pool,
        layout: Format,
        settings: ContextConfig,
        questions: Sequence[str],
        budgets: Sequence[int],
        shorten: Shorten | None,
    ) -> list[list[Compiled]]:  # B x W
        """The prompts of pools; see `Compiler.compile`.

        Args:
            current: The index that the rows of the pool belong to.
            pool: The memories of each question.
            layout: How they are written; the format and the template of the settings do not count.
            settings: Tokenizer, order and the rest.
            questions: As asked.
            budgets: Tokens of the whole prompt.
            shorten: What says what is written of memories.
        """
        index, ledger = current.index, self._ledger(layout, settings)
        nodes = torch.where(pool.rows >= 0, current.node[pool.rows.clamp(min=0)], -1)
        ledger.learn(nodes[nodes >= 0], self._store.atoms)
        costs, groups = ledger.read(nodes)
        texts: dict[tuple[int, int], str] = {}
        if shorten is not None:
            for place, question in enumerate(questions):
                there = nodes[place] >= 0
                atoms = self._store.atoms(nodes[place, there].tolist())
                made = shortened(shorten, question, [atom.rendered for atom in atoms])
                tokens = [ledger.cost(*pair) for pair in zip(atoms, made, strict=True)]
                costs[place, there] = torch.tensor(tokens, dtype=torch.int64)
                keys = [(place, row) for row in pool.rows[place, there].tolist()]
                texts |= zip(keys, made, strict=True)
        before = settings.order_edges if settings.order == "topological" else ()
        compiler = Compiler(
            layout=layout,
            tokenizer=settings.tokenizer,
            order=settings.order,
            ledger=ledger,
            node=current.node,
            time=index.time.cpu(),
            before=self.relations(current, before),
            fetch=self._fetched,
            texts=texts,
        )
        with torch.inference_mode():
            choice = Choice.of(
                pool,
                costs,
                groups,
                ledger.header_costs,
                embeddings=index.embeddings,
                redundancy=settings.redundancy,
                work=settings.work,
                gap=settings.gap,
            )
            return compiler.compile(pool, choice, questions, budgets)

    def names(
        self, current: Assembled, layout: Format, settings: ContextConfig
    ) -> Callable[[Tensor], tuple[str, ...]]:
        """What gives the ids of rows [n] of pools that were compiled so."""
        known = self._ledger(layout, settings).ids
        return lambda rows: tuple(map(known.__getitem__, current.node[rows].tolist()))

    def _fetched(self, nodes: Sequence[int]) -> list[Atom]:
        """The memories of nodes; what is written again and again is read once."""
        fresh = [node for node in nodes if node not in self._atoms]
        if len(self._atoms) + len(fresh) > _KEPT:
            self._atoms, fresh = {}, list(nodes)
        if fresh:
            self._atoms |= zip(fresh, self._store.atoms(fresh), strict=True)
        return [self._atoms[node] for node in nodes]

    def _pinned(self, current: Assembled) -> Tensor:  # [P] int64
        """Rows of the pinned memories; looked up anew when the store or the pins have changed."""
        life = self._store.life
        version = (current.state, tuple(life.pins()))
        if self._pins is None or self._pins[0] != version:
            known = self._store.known(life.pinned())
            pinned = torch.tensor([node for node, _ in known.values()], dtype=torch.int64)
            rows = torch.isin(current.node[: current.index.num_atoms], pinned)
            self._pins = version, rows.nonzero().squeeze(1)
        return self._pins[1]

    def _ledger(self, layout: Format, settings: ContextConfig) -> Ledger:
        inline = layout.grouped and settings.order == "relevance"
        key = (layout.name, settings.tokenizer, inline)
        if key not in self._ledgers:
            self._ledgers[key] = Ledger(layout, settings.tokenizer, inline=inline)
        return self._ledgers[key]

    def relations(self, current: Assembled, types: Sequence[str]) -> Relations:
        """The relations that edges of these types make; read anew when the store has changed."""
        if self._state != current.state:
            self._relations, self._state = {}, current.state
        key = tuple(types)
        if key not in self._relations:
            edges = self._store.edges() if key else EdgeBlock.empty()
            rows = to_rows(edges, current.node)
            self._relations[key] = Relations.of(rows, key, current.index.num_atoms)
        return self._relations[key]
