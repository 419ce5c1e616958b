"""Compilation of memories into prompts that fit token budgets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from graphmem_torch.atoms import Atom
from graphmem_torch.context.choose import Choice
from graphmem_torch.context.formats import UNLABELLED, Format, Prompt, label_of, render
from graphmem_torch.context.order import arrange, edges_among
from graphmem_torch.context.pool import Pool, Relations
from graphmem_torch.context.summarise import extract
from graphmem_torch.errors import InputError
from graphmem_torch.text.tokens import TokenCounter, get_counter

__all__ = ["Compiled", "Compiler", "TokenCosts"]

_SLACK = 0.01  # share of a budget whose waste, from merged tokens, is worth another choice
_GROWTHS = 3  # maximum number of such choices
_TOKENS = 1 << 40  # above any meaningful budget
_TRIED = 16  # memories for which an extract is tried
_SOME = 32  # tokens of an extract before the others share the room
_WORTH = 0.1  # minimum value of an extracted memory, relative to the best
_NUMBER = 10  # number of an entry when it is counted: two digits, as most have


class TokenCosts:
    """Costs and labels of memories by their node numbers, which are never reused.

    Each count is for the entry alone, with its line feed. Encodings split before the first letter
    or digit of a line, so the counts of entries add up; for other tokenizers only nearly.

    Attributes:
        costs: [N] int64 tokens, -1 = not counted yet.
        groups: [N] int64 number of the label, 0 = none.
        ids: Ids of the counted memories by node number.
        header_costs: [G] int64 tokens of the header of each group.
        inline: Whether each entry carries its label, without headers.
    """

    def __init__(self, layout: Format, tokenizer: str | TokenCounter, *, inline: bool) -> None:
        """Start without counts.

        Args:
            layout: Format of entries and headers; its templates matter only through `reserved`.
            tokenizer: Token counter; see `text.tokens.get_counter`.
            inline: Whether each entry carries its label, instead of a header for several.
        """
        self._layout, self.inline = layout, inline
        self._count = get_counter(tokenizer)
        self.costs = torch.full((0,), -1, dtype=torch.int64)
        self.groups = torch.zeros(0, dtype=torch.int64)
        self.ids: dict[int, str] = {}
        self._number: dict[str | None, int] = {None: 0}
        self.header_costs = torch.tensor([self._header_cost(UNLABELLED)])

    def learn(self, nodes: Tensor, fetch: Callable[[Sequence[int]], Sequence[Atom]]) -> None:
        """Count the nodes that are not counted yet.

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
        """Return costs and groups of counted nodes; 0 and -1 for a number of -1."""
        self._grow(1)
        at = nodes.clamp(min=0)
        return self.costs[at].masked_fill(nodes < 0, 0), self.groups[at].masked_fill(nodes < 0, -1)

    def cost(self, atom: Atom, text: str) -> int:
        """Return the tokens of the entry of a memory with this text."""
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


@dataclass(frozen=True, slots=True)
class Compiled:
    """Compiled prompt.

    Attributes:
        prompt: Prompt to send.
        tokens: Number of tokens of the prompt.
        chosen: Atom rows, in the order of the prompt.
        value, upper_bound: Value and bound of the choice; see `Selection`.
        extract: Whether a valuable memory that does not fit whole is written in part.
    """

    prompt: Prompt
    tokens: int
    chosen: tuple[int, ...]
    value: float
    upper_bound: float
    extract: bool = False

    @property
    def exact(self) -> bool:
        """Return whether the choice is optimal up to rounding."""
        return self.value >= self.upper_bound - 1e-9 * abs(self.upper_bound)


@dataclass(frozen=True, eq=False)
class Compiler:
    """Compiler of the pools of questions into prompts.

    Attributes:
        layout: Format of memories and prompts.
        tokenizer: Token counter; see `text.tokens.get_counter`.
        order: Order of the memories; see `arrange`.
        token_costs: Costs of the entries of every memory in the pools.
        node: [A] int64 node number of every atom row.
        time: [A] float64 seconds since the epoch UTC, NaN = unknown.
        before: Relations that the order respects.
        fetch: Reads the memories of nodes.
        texts: Replacements for the texts of memories, by question and atom row.
    """

    layout: Format
    tokenizer: str | TokenCounter
    order: str
    token_costs: TokenCosts
    node: Tensor
    time: Tensor
    before: Relations
    fetch: Callable[[Sequence[int]], Sequence[Atom]]
    texts: Mapping[tuple[int, int], str]

    def compile(
        self, pool: Pool, choice: Choice, questions: Sequence[str], budgets: Sequence[int]
    ) -> list[list[Compiled]]:  # B x W
        """Compile the best prompt for each of B questions and each of W budgets.

        Entries are chosen by the sum of their costs and that of the empty prompt. If the prompt is
        longer, because tokens or headers do not add up, the choice is repeated with less room; if
        it is much shorter, with more. If the best memory does not fit, an extract represents it. It
        takes half of the room if others fit beside it, then grows into the rest.

        Raises:
            InputError: A budget is below the tokens of the prompt with only the pinned memories.
        """
        count, width = len(questions), len(budgets)
        limit = torch.tensor([min(budget, _TOKENS) for budget in budgets] * count)
        question = torch.arange(count).repeat_interleave(width)
        writing = _Writing(self, pool, questions)
        every = torch.arange(count)
        bare = writing.write(every, torch.zeros_like(choice.pinned))
        least = writing.write(every, choice.pinned) if bool(choice.pinned.any()) else bare
        self._check(budgets, least)
        frame = torch.tensor([tokens for _, tokens, _ in bare])[question]
        shortened = writing.shortened(choice, question, limit, limit - frame)
        if shortened.any():
            # One problem for each question and budget, as their extracts may differ.
            choice, writing, question = shortened.apart(choice, writing, question)
        compiled = self._compiled(choice, writing, question, limit, frame)
        for at, made in enumerate(compiled):
            if shortened.item[at] >= 0:
                compiled[at] = replace(made, extract=writing.is_cut(at))
            elif not made.chosen and (part := writing.extract(int(question[at]), int(limit[at]))):
                compiled[at] = Compiled(*part[0], 0.0, made.upper_bound, part[1])
        return [compiled[b * width : (b + 1) * width] for b in range(count)]

    def _compiled(
        self,
        choice: Choice,
        writing: _Writing,
        question: Tensor,  # [R] int64
        limit: Tensor,  # [R] int64 tokens of the prompt
        frame: Tensor,  # [R] int64 tokens of the prompt without memories
    ) -> list[Compiled]:  # R
        """Write the best choice for each question and limit, and repeat until it fits."""
        room = torch.maximum(limit - frame, choice.least[question])
        found = choice.choose(question, room)
        done = writing.write(question, found.mask)
        length = torch.tensor([tokens for _, tokens, _ in done])
        value, bound, cost = found.value, found.upper_bound, found.cost
        settled = length > limit
        open_, step = settled.nonzero().squeeze(1), 1
        while len(open_):
            # The steps double, so few are needed even if the costs are far off.
            asked = question[open_]
            smaller = cost[open_] - step * (length - limit)[open_]
            again = choice.choose(asked, torch.maximum(smaller, choice.least[asked]))
            written = writing.write(asked, again.mask)
            for at, prompt in zip(open_.tolist(), written, strict=True):
                done[at] = prompt
            length[open_] = torch.tensor([tokens for _, tokens, _ in written])
            value[open_], cost[open_] = again.value, again.cost
            open_, step = open_[length[open_] > limit[open_]], 2 * step
        for _ in range(_GROWTHS):
            spare = cost - (length - frame)
            worthwhile = torch.minimum(spare, limit - length) > (_SLACK * limit).clamp(min=2)
            more = (worthwhile & ~settled).nonzero().squeeze(1)
            if not len(more):
                break
            larger = choice.choose(question[more], room[more] + spare[more])
            written = writing.write(question[more], larger.mask)
            longer = torch.tensor([tokens for _, tokens, _ in written])
            kept = (longer <= limit[more]) & (larger.value > value[more])
            settled[more[~kept]] = True
            for at in kept.nonzero().squeeze(1).tolist():
                done[more[at]] = written[at]
            taken = more[kept]
            length[taken], cost[taken] = longer[kept], larger.cost[kept]
            value[taken], bound[taken] = larger.value[kept], larger.upper_bound[kept]
        writing.grow(question, done, limit)
        return [
            Compiled(*parts, worth, most)
            for parts, worth, most in zip(done, value.tolist(), bound.tolist(), strict=True)
        ]

    def _check(self, budgets: Sequence[int], least: Sequence[_Written]) -> None:
        for _, tokens, chosen in least:
            if tokens > min(budgets, default=tokens):
                what = (
                    f"the {len(chosen)} pinned memories, what they need and the prompt around them"
                    if chosen
                    else "the prompt without any memory"
                )
                advice = "unpin some" if chosen else "shorten the template or the question"
                raise InputError(
                    f"budget: expected at least the {tokens} tokens ({self.tokenizer}) of {what}, "
                    f"got {min(budgets)}; raise it or {advice}"
                )


_Written = tuple[Prompt, int, tuple[int, ...]]


@dataclass(frozen=True, eq=False)
class _Shortened:
    """Best items that do not fit whole, for R questions and budgets.

    Attributes:
        item: [R] int64 place among the items; -1: the best item fits.
        text: Extract of each; empty if it fits.
        cost: [R] int64 tokens of the entry of the extract.
    """

    item: Tensor
    text: list[str]
    cost: Tensor

    def any(self) -> bool:
        """Return whether there are such items."""
        return bool((self.item >= 0).any())

    def apart(
        self, choice: Choice, writing: _Writing, question: Tensor
    ) -> tuple[Choice, _Writing, Tensor]:
        """Return one problem for each of the R, with its extract pinned, and their numbers."""
        every, own = torch.arange(len(question)), (self.item >= 0).nonzero().squeeze(1)
        choice = choice.rows(question)
        costs, pinned = choice.costs.clone(), choice.pinned.clone()
        costs[own, self.item[own]] = self.cost[own]
        pinned[own, self.item[own]] = True
        choice = replace(choice, costs=costs, pinned=pinned)
        extracts = {
            (at, int(choice.pool.rows[at, self.item[at]])): self.text[at] for at in own.tolist()
        }
        return choice, writing.apart(choice.pool, question.tolist(), extracts), every


class _Writing:
    """Writer of chosen items that reads every memory once."""

    def __init__(self, compiler: Compiler, pool: Pool, questions: Sequence[str]) -> None:
        self._by, self._pool, self._questions = compiler, pool, questions
        self._texts = dict(compiler.texts)
        self._whole: dict[int, tuple[int, str]] = {}  # row and full text, by question
        self._atoms: dict[int, Atom] = {}

    def apart(
        self, pool: Pool, questions: Sequence[int], extracts: Mapping[tuple[int, int], str]
    ) -> _Writing:
        """Return a writer with one number for each prompt of a question, and with extracts."""
        other = _Writing(self._by, pool, [self._questions[b] for b in questions])
        other._atoms = self._atoms
        of: dict[int, list[tuple[int, str]]] = {}
        for (b, row), text in self._texts.items():
            of.setdefault(b, []).append((row, text))
        other._texts = {
            (at, row): text for at, b in enumerate(questions) for row, text in of.get(b, ())
        } | dict(extracts)
        for at, row in extracts:
            whole = self._texts.get((questions[at], row), self._atoms[row].rendered)
            other._whole[at] = row, whole
        return other

    def is_cut(self, question: int) -> bool:
        """Return whether the extract of a question is shorter than its memory."""
        row, whole = self._whole[question]
        return self._texts[question, row] != whole

    def shortened(
        self,
        choice: Choice,
        question: Tensor,  # [R] int64
        limit: Tensor,  # [R] int64 tokens of the prompt
        room: Tensor,  # [R] int64 tokens for entries
    ) -> _Shortened:
        """Extract the best items that never fit whole, except those that need other items.

        If a better item fits, the extract leaves room for it.
        """
        pool = self._pool
        found = torch.full_like(question, -1)
        texts, costs = [""] * len(question), torch.zeros_like(question)
        if not pool.rows.shape[1]:
            return _Shortened(found, texts, costs)
        needs = torch.zeros_like(pool.pinned)
        needs[pool.requires[0], pool.requires[1]] = True
        worth = pool.values.masked_fill(choice.pinned | pool.barred, 0.0)[question]
        worth[worth < _WORTH * pool.values[question].amax(1, keepdim=True)] = 0.0
        left = (room - choice.least[question])[:, None]
        own = choice.whole[question]
        beyond = (worth > 0) & (own > left) & ~needs[question]
        for at in beyond.any(1).nonzero().squeeze(1).tolist():
            b, place = int(question[at]), pool.place[question[at]]
            item = int(place.masked_fill(~beyond[at], torch.inf).argmin())
            row = int(pool.rows[b, item])
            kept = choice.pinned[b].clone()
            first = int(place.masked_fill(worth[at] == 0, torch.inf).argmin())
            kept[first] = kept[first] | (first != item)
            # Others fit beside an extract that takes half of the room.
            beside = bool(((worth[at] > 0) & (own[at] <= left[at] // 2)).any())
            whole = self._texts.get((b, row), self._read([row])[row].rendered)
            rows = [row, *pool.rows[b, kept].tolist()]
            part = self._part(b, row, int(limit[at]), rows, whole, share=0.5 if beside else 1.0)
            if part is not None:
                count, atom = self._by.token_costs.cost, self._atoms[row]
                found[at], texts[at] = item, part
                costs[at] = choice.costs[b, item] - count(atom, whole) + count(atom, part)
        return _Shortened(found, texts, costs)

    def grow(self, question: Tensor, done: list[_Written], limit: Tensor) -> None:
        """Lengthen the extracts of prompts that have room left."""
        for at, (b, most) in enumerate(zip(question.tolist(), limit.tolist(), strict=True)):
            if b not in self._whole or done[at][1] >= most:
                continue
            (row, whole), (_, _, rows) = self._whole[b], done[at]
            before = self._texts[b, row]
            part = self._part(b, row, most, list(rows), whole)
            if part is None or part == before:
                continue
            self._texts[b, row] = part
            longer = self._one(b, list(rows))
            if longer[1] <= most:
                done[at] = longer
            else:
                self._texts[b, row] = before

    def write(self, question: Tensor, mask: Tensor) -> list[_Written]:  # [R], [R, n]
        """Return the prompt of each choice, its tokens, and the atom rows in their order."""
        chosen = []
        for b, inside in zip(question.tolist(), mask, strict=True):
            at = inside.nonzero().squeeze(1)
            rows = self._pool.rows[b, at]
            if len(rows) > 1:
                rows = rows[self._order(rows, self._pool.place[b, at])]
            chosen.append(rows.tolist())
        self._read([row for rows in chosen for row in rows])
        return [self._one(b, rows) for b, rows in zip(question.tolist(), chosen, strict=True)]

    def _part(
        self,
        question: int,
        row: int,
        limit: int,
        rows: Sequence[int],
        whole: str,
        *,
        share: float = 1.0,
    ) -> str | None:
        """Return as much of the text of a memory as fits into a prompt; None if no word fits.

        Args:
            question: Number of the question.
            row: The memory, one of `rows`.
            limit: Maximum number of tokens of the prompt.
            rows: Memories in the prompt, in their order.
            whole: The text.
            share: Share of the room that the others leave.
        """
        rows = self._in_order(question, rows)
        atom = self._read(rows)[row]
        entry = self._by.token_costs.cost(atom, "")

        def more(part: str) -> int:
            return self._by.token_costs.cost(atom, part) - entry

        room = limit - self._one(question, rows, {(question, row): ""})[1]
        left = max(1, min(room, _SOME), int(share * room))
        while left > 0:
            part = extract([whole], self._questions[question], left, count=more)[0]
            length = self._one(question, rows, {(question, row): part})[1]
            if length <= limit:
                return part
            left -= length - limit  # merged tokens and headers show only in the whole
        return None

    def extract(self, question: int, budget: int) -> tuple[_Written, bool] | None:
        """Return a prompt with as much of the best memory as fits, and whether that is only a part.

        It holds whole sentences if one fits, else words; if no word fits, the next best memory.
        """
        pool = self._pool
        there = (pool.rows[question] >= 0) & ~pool.barred[question]
        worth = there & (pool.values[question] > 0)
        items = (worth if bool(worth.any()) else there).nonzero().squeeze(1)
        for item in items[pool.place[question, items].argsort(stable=True)[:_TRIED]].tolist():
            row = int(pool.rows[question, item])
            atom = self._read([row])[row]
            text = self._texts.get((question, row), atom.rendered)
            part = self._part(question, row, budget, [row], text)
            if part is not None:
                return self._one(question, [row], {(question, row): part}), part != text
        return None

    def _read(self, rows: Sequence[int]) -> dict[int, Atom]:
        """Read the missing memories and return all read so far."""
        if fresh := sorted(set(rows) - self._atoms.keys()):
            read = self._by.fetch(self._by.node[torch.tensor(fresh)].tolist())
            self._atoms |= zip(fresh, read, strict=True)
        return self._atoms

    def _in_order(self, question: int, rows: Sequence[int]) -> list[int]:
        """Return memories of a question in the order of its prompt."""
        if len(rows) < 2:
            return list(rows)
        at = torch.isin(self._pool.rows[question], torch.tensor(list(rows))).nonzero().squeeze(1)
        own = self._pool.rows[question, at]
        found: list[int] = own[self._order(own, self._pool.place[question, at])].tolist()
        return found

    def _order(self, rows: Tensor, place: Tensor) -> Tensor:
        by = self._by
        return arrange(
            by.order,
            place=place,
            time=by.time[rows],
            stored=by.node[rows],
            edges=edges_among(rows, by.before),
        )

    def _one(
        self, question: int, rows: list[int], other: Mapping[tuple[int, int], str] | None = None
    ) -> _Written:
        """Write the prompt of memories in their order; `other` replaces some of their texts."""
        by, atoms, said = self._by, [self._atoms[row] for row in rows], other or {}
        texts = [
            said.get((question, row), self._texts.get((question, row), atom.rendered))
            for row, atom in zip(rows, atoms, strict=True)
        ]
        context = render(by.layout, atoms, texts, inline=by.token_costs.inline)
        prompt = by.layout.prompt(context, self._questions[question])
        return prompt, prompt.tokens(by.tokenizer), tuple(rows)
