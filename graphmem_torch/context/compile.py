"""Compiling: what memories cost as entries, and prompts of them that fit their budgets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

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

_SLACK = 0.01  # of a budget: what is worth another choice, where entries merge into fewer tokens
_GROWTHS = 3  # such choices
_TOKENS = 1 << 40  # more than any budget that means something
_TRIED = 16  # memories of which an extract is tried
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

    def __init__(self, layout: Format, tokenizer: str | TokenCounter, *, inline: bool) -> None:
        """Has counted nothing yet.

        Args:
            layout: How entries and headers are written; of templates, its `reserved` matters.
            tokenizer: What counts; see `text.tokens.get_counter`.
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


@dataclass(frozen=True, slots=True)
class Compiled:
    """One prompt.

    Attributes:
        prompt: As it is sent.
        tokens: How long it is.
        chosen: Atom rows, in their order.
        value, upper_bound: Of the choice; see `Selection`.
        extract: Whether no memory fits whole, and a part of the best one is written.
    """

    prompt: Prompt
    tokens: int
    chosen: tuple[int, ...]
    value: float
    upper_bound: float
    extract: bool = False

    @property
    def exact(self) -> bool:
        """Whether no choice is better, but for rounding."""
        return self.value >= self.upper_bound - 1e-9 * abs(self.upper_bound)


@dataclass(frozen=True, eq=False)
class Compiler:
    """How the pools of questions become prompts.

    Attributes:
        layout: How memories and prompts are written.
        tokenizer: What counts; see `text.tokens.get_counter`.
        order: See `arrange`.
        token_costs: What entries cost; it knows every memory of the pools.
        node: [A] int64 node number of every atom row.
        time: [A] float64 seconds since the epoch UTC, NaN = unknown.
        before: What comes before what, for the order.
        fetch: Reads the memories of nodes.
        texts: What is written of a memory instead of its text, by question and atom row.
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
        """The best prompt for each of B questions and each of W budgets.

        Entries are chosen by their own costs beside that of the prompt without them. Where the
        whole comes out longer, because tokens or headers do not add up, the choice is made again
        with as much less; where it comes out much shorter, with as much more. Where nothing fits,
        the prompt holds an extract of the best memory.

        Raises:
            InputError: A budget below what the prompt takes with no memories but the pinned ones.
        """
        count = len(questions)
        limit = torch.tensor([min(budget, _TOKENS) for budget in budgets] * count)
        question = torch.arange(count).repeat_interleave(len(budgets))
        writing = _Writing(self, pool, questions)
        every = torch.arange(count)
        bare = writing.write(every, torch.zeros_like(choice.pinned))
        least = writing.write(every, choice.pinned) if bool(choice.pinned.any()) else bare
        self._check(budgets, least)
        frame = torch.tensor([tokens for _, tokens, _ in bare])[question]
        room = torch.maximum(limit - frame, choice.least[question])

        found = choice.choose(question, room)
        done = writing.write(question, found.mask)
        length = torch.tensor([tokens for _, tokens, _ in done])
        value, bound, cost = found.value, found.upper_bound, found.cost
        settled = length > limit
        open_, step = settled.nonzero().squeeze(1), 1
        while len(open_):
            # The steps double, so that few are needed however wrong the costs are.
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
        compiled = [
            Compiled(*parts, worth, most)
            for parts, worth, most in zip(done, value.tolist(), bound.tolist(), strict=True)
        ]
        width = len(budgets)
        for at, made in enumerate(compiled):
            if not made.chosen and (part := writing.extract(at // width, budgets[at % width])):
                compiled[at] = Compiled(*part[0], 0.0, made.upper_bound, part[1])
        return [compiled[b * width : (b + 1) * width] for b in range(count)]

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


class _Writing:
    """Writes chosen items; reads every memory once."""

    def __init__(self, compiler: Compiler, pool: Pool, questions: Sequence[str]) -> None:
        self._by, self._pool, self._questions = compiler, pool, questions
        self._atoms: dict[int, Atom] = {}

    def write(self, question: Tensor, mask: Tensor) -> list[_Written]:  # [R], [R, n]
        """The prompt of each choice, its tokens, and the atom rows in their order."""
        chosen = []
        for b, inside in zip(question.tolist(), mask, strict=True):
            at = inside.nonzero().squeeze(1)
            rows = self._pool.rows[b, at]
            if len(rows) > 1:
                rows = rows[self._order(rows, self._pool.place[b, at])]
            chosen.append(rows.tolist())
        self._read([row for rows in chosen for row in rows])
        return [self._one(b, rows) for b, rows in zip(question.tolist(), chosen, strict=True)]

    def extract(self, question: int, budget: int) -> tuple[_Written, bool] | None:
        """A prompt with as much of the best memory as fits, and whether that is a part of it.

        Whole sentences where any fits, else words; of the next best memory where no word does.
        """
        pool, by = self._pool, self._by
        items = ((pool.rows[question] >= 0) & ~pool.barred[question]).nonzero().squeeze(1)
        for item in items[pool.place[question, items].argsort(stable=True)[:_TRIED]].tolist():
            row = int(pool.rows[question, item])
            atom = self._read([row])[row]
            text = by.texts.get((question, row), atom.rendered)
            empty = self._one(question, [row], "")[1]
            entry = by.token_costs.cost(atom, "")

            def more(part: str, atom: Atom = atom, entry: int = entry) -> int:
                return by.token_costs.cost(atom, part) - entry

            left = max(1, budget - empty)
            while left > 0:
                part = extract([text], self._questions[question], left, count=more)[0]
                written = self._one(question, [row], part)
                if written[1] <= budget:
                    return written, part != text
                # Seams and headers are seen only in the whole.
                left -= written[1] - budget
        return None

    def _read(self, rows: Sequence[int]) -> dict[int, Atom]:
        """All memories read so far, these among them."""
        if fresh := sorted(set(rows) - self._atoms.keys()):
            read = self._by.fetch(self._by.node[torch.tensor(fresh)].tolist())
            self._atoms |= zip(fresh, read, strict=True)
        return self._atoms

    def _order(self, rows: Tensor, place: Tensor) -> Tensor:
        by = self._by
        return arrange(
            by.order,
            place=place,
            time=by.time[rows],
            stored=by.node[rows],
            edges=edges_among(rows, by.before),
        )

    def _one(self, question: int, rows: list[int], only: str | None = None) -> _Written:
        by, atoms = self._by, [self._atoms[row] for row in rows]
        texts = [
            by.texts.get((question, row), atom.rendered) if only is None else only
            for row, atom in zip(rows, atoms, strict=True)
        ]
        context = render(by.layout, atoms, texts, inline=by.token_costs.inline)
        prompt = by.layout.prompt(context, self._questions[question])
        return prompt, prompt.tokens(by.tokenizer), tuple(rows)
