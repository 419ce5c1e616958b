"""Contexts: ranked memories written into prompts, and the answers of a language model."""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections.abc import Awaitable, Callable, Hashable, Iterator, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor

from graphmem_torch.atoms import Atom
from graphmem_torch.config import ContextConfig
from graphmem_torch.errors import InputError
from graphmem_torch.memory.context_atoms import ContextAtoms, ContextHits
from graphmem_torch.memory.duplicates import ComparedContent
from graphmem_torch.memory.request import Layout
from graphmem_torch.results import Answer, Context, QueryPlan
from graphmem_torch.text.tokens import TokenCounter, get_counter

# Functions import what writes a context: a question needs none of it.
if TYPE_CHECKING:
    from graphmem_torch.context.compile import Compiled, TokenCosts
    from graphmem_torch.context.formats import Format
    from graphmem_torch.context.summarise import Shorten

__all__ = [
    "ContextCompiler",
    "ContextSettings",
    "Wait",
    "answer_layout",
    "ask_known",
    "ask_model",
    "awaited",
    "callers_loop",
    "checked_budgets",
    "context_settings",
    "own_loop",
    "waiting",
]

Wait = Callable[[Awaitable[Any]], Any]
"""Function that returns the result of an awaitable to a synchronous caller."""

_log = logging.getLogger(__name__)

REDUNDANCY = 0.95
"""Minimum cosine, for all-MiniLM-L6-v2 (`text.embedder.rescaled`), of near-duplicates: memories
that say the same (`Facts.duplicates`). A near-duplicate of a chosen memory has no value."""

_FORMAT: Final = "text"  # format of a context whose layout names none
_POOL = 4096  # maximum memories to choose from: far more than a budget can hold
# Limit of alternatives tried for a question if the first choice is not proven optimal, and the
# relative gap to the optimum at which the search stops.
_WORK, _GAP = 64, 1e-4
# Types of edges with an order: the target of a dependency comes first, else the source.
_ORDER_EDGES = ("dependency", "causes", "precedes", "implication")
_GRAIN = 8  # tokens of a short entry: at most budget / 8 memories are considered
_KEPT = 8192  # maximum cached memories
_CHATS = ("openai", "anthropic")
_REFUSED = "the memory has no record of it"
_PROMPT = (
    "Answer the question from the numbered memories.\n\n{context}\n\nQuestion: {question}\nAnswer:"
)


@dataclass(frozen=True)
class ContextSettings:
    """Settings of contexts.

    Attributes:
        config: Order and other settings; its tokenizer is ignored.
        tokenizer: Counter of tokens; see `text.tokens.get_counter`.
        layout: Format of memories and prompts.
        shorten: Function that shortens memories; None: full texts.
        redundancy: Minimum cosine of near-duplicates; above 1: none are.
    """

    config: ContextConfig
    tokenizer: str | TokenCounter
    layout: Format
    shorten: Shorten | None
    redundancy: float = REDUNDANCY

    def candidates(self, budgets: Sequence[int], minimum: int) -> int:
        """Return the number of memories worth considering for these budgets."""
        return min(max(minimum, max(budgets) // _GRAIN), _POOL)


def context_settings(
    own: ContextConfig, layout: Layout, *, redundancy: float = REDUNDANCY
) -> ContextSettings:
    """Return the settings with a caller's overrides.

    Raises:
        InputError: Unknown tokenizer, order, format or field of the template, or a `shorten` that
            is not callable.
    """
    from graphmem_torch.context.formats import load_format
    from graphmem_torch.context.order import check_order

    if not isinstance(layout, Layout):
        raise InputError(f"layout: expected a Layout, got {layout!r:.80}; give Layout(format=...)")
    shorten = layout.shorten
    if shorten is not None and not callable(shorten):
        raise InputError(
            f"shorten: expected a function (question, texts) -> texts, got {shorten!r:.60}; "
            "Summaries(0.5) is one"
        )
    config = own if layout.order is None else replace(own, order=layout.order)
    check_order(config.order)
    counted = own.tokenizer if layout.tokenizer is None else layout.tokenizer
    get_counter(counted)
    written = load_format(layout.format or _FORMAT, layout.template)
    return ContextSettings(config, counted, written, shorten, redundancy)


def checked_budgets(budget: int | Sequence[int]) -> list[int]:
    """Return one or several budgets as a list.

    Raises:
        InputError: A budget is negative or no whole number.
    """
    budgets = [budget] if isinstance(budget, int) else budget
    for each in budgets if isinstance(budgets, (list, tuple)) else [budget]:
        if not isinstance(each, int) or isinstance(each, bool) or each < 0:
            raise InputError(
                f"budget: expected a whole number of tokens, at least 0, got {each!r:.60}; 2048 is "
                "usual"
            )
    return list(budgets)


class ContextCompiler:
    """Compiles contexts from hits; safe to share between threads.

    Caches costs of entries and texts between questions.
    """

    def __init__(self) -> None:
        """Start with empty caches."""
        self._lock = threading.RLock()
        self._costs: dict[tuple[str, str, str | TokenCounter, bool], TokenCosts] = {}
        self._atoms: dict[int, Atom] = {}  # by node; numbers are never reused

    def compile(
        self,
        atoms: ContextAtoms,
        hits: ContextHits,
        questions: Sequence[str],  # B
        plans: Sequence[QueryPlan | None],  # B
        budgets: Sequence[int],  # W
        settings: ContextSettings,
    ) -> tuple[list[list[Context]], Tensor]:  # B x W, [n] int64
        """Return a context for each question and budget, and the nodes of the memories they use.

        A budget is of the whole prompt.

        Args:
            atoms: Atoms that contexts may hold.
            hits: Hits of the questions.
            questions: B questions.
            plans: Plan of each question; None for none.
            budgets: W budgets.
            settings: Settings of the contexts.

        Raises:
            InputError: A budget is too small for the pinned memories and the template.
        """
        from graphmem_torch.context.choose import Choice
        from graphmem_torch.context.compile import Compiler
        from graphmem_torch.context.pool import gather_pool, values_from_scores
        from graphmem_torch.context.summarise import shortened

        rows, config, judged = hits.rows, settings.config, hits.judged
        # Cap each score by those before it, so that a context keeps the order of the plan.
        scores = hits.scores.cummin(dim=1).values
        values = values_from_scores(scores, kind=config.value, temperature=config.temperature)
        # Memories within a stated time are related, whatever their words.
        timed = [plan is not None and plan.between is not None for plan in plans]
        unrelated = hits.unrelated & ~torch.tensor(timed)[:, None]
        fetch = partial(self._fetched, atoms)
        pool = gather_pool(
            rows,
            values.masked_fill(unrelated, 0.0),
            atoms=len(atoms),
            pinned=atoms.pinned,
            needs=atoms.related(config.requires),
            allowed=hits.allowed,
            limit=_POOL,
        )
        nodes = torch.where(pool.rows >= 0, atoms.node[pool.rows.clamp(min=0)], -1)
        with self._lock:
            token_costs = self._token_costs(settings)
            token_costs.learn(nodes[nodes >= 0], atoms.fetch)
            costs, groups = token_costs.read(nodes)
            header_costs = token_costs.header_costs
        texts: dict[tuple[int, int], str] = {}
        if settings.shorten is not None:
            for place, question in enumerate(questions):
                there = nodes[place] >= 0
                told = atoms.fetch(nodes[place, there].tolist())
                made = shortened(settings.shorten, question, [atom.rendered for atom in told])
                tokens = [token_costs.cost(*pair) for pair in zip(told, made, strict=True)]
                costs[place, there] = torch.tensor(tokens, dtype=torch.int64)
                keys = [(place, row) for row in pool.rows[place, there].tolist()]
                texts |= zip(keys, made, strict=True)
        before = _ORDER_EDGES if config.order == "topological" else ()
        compiler = Compiler(
            layout=settings.layout,
            tokenizer=settings.tokenizer,
            order=config.order,
            token_costs=token_costs,
            node=atoms.node,
            time=atoms.time,
            before=atoms.related(before),
            fetch=fetch,
            texts=texts,
        )
        with torch.inference_mode():
            choice = Choice.of(
                pool,
                costs,
                groups,
                header_costs,
                embeddings=atoms.embeddings,
                redundancy=settings.redundancy,
                work=_WORK,
                gap=_GAP,
                repeats=partial(self._repeats, atoms),
            )
            curves = compiler.compile(pool, choice, questions, budgets)

        def names(listed: Tensor) -> tuple[str, ...]:
            return tuple(token_costs.ids[node] for node in atoms.node[listed].tolist())

        def context(b: int, made: Compiled, budget: int) -> Context:
            chosen, listed = torch.tensor(made.chosen, dtype=torch.int64), rows[b][rows[b] >= 0]
            below = rows[b][unrelated[b]]
            return Context(
                question=questions[b],
                text=made.prompt.text,
                tokens=made.tokens,
                budget=budget,
                tokenizer=counted,
                sources=names(chosen),
                omitted=names(listed[~torch.isin(listed, chosen)]),
                confidence=judged[b][0],
                known=judged[b][1],
                messages=made.prompt.messages,
                system=made.prompt.system,
                value=made.value,
                upper_bound=made.upper_bound,
                exact=made.exact,
                extract=made.extract,
                unrelated=names(below[~torch.isin(below, chosen)]),
            )

        counted = getattr(settings.tokenizer, "__name__", str(settings.tokenizer))
        contexts = [
            [context(b, made, budget) for made, budget in zip(curve, budgets, strict=True)]
            for b, curve in enumerate(curves)
        ]
        # Refresh no memories for a question that the memory may not know.
        used = {
            row
            for curve, each in zip(curves, contexts, strict=True)
            for made, written in zip(curve, each, strict=True)
            if written.known
            for row in made.chosen
        }
        return contexts, atoms.node[torch.tensor(sorted(used), dtype=torch.int64)]

    def _repeats(self, atoms: ContextAtoms, one: Tensor, other: Tensor) -> Tensor:  # [P] bool
        """Return whether the atoms of each pair of rows say the same."""
        rows, place = torch.cat([one, other]).unique(return_inverse=True)
        told = self._fetched(atoms, atoms.node[rows].tolist())
        number: dict[Hashable, int] = {}
        said = [number.setdefault(ComparedContent.of(atom).content, len(number)) for atom in told]
        first, second = torch.tensor(said, dtype=torch.int64)[place].view(2, -1)
        return first == second

    def _fetched(self, atoms: ContextAtoms, nodes: Sequence[int]) -> list[Atom]:
        """Return the memories of nodes, cached."""
        with self._lock:
            fresh = [node for node in nodes if node not in self._atoms]
            if len(self._atoms) + len(fresh) > _KEPT:
                self._atoms, fresh = {}, list(nodes)
            if fresh:
                self._atoms |= zip(fresh, atoms.fetch(fresh), strict=True)
            return [self._atoms[node] for node in nodes]

    def _token_costs(self, settings: ContextSettings) -> TokenCosts:
        """Return the costs of entries in this format with this counter."""
        from graphmem_torch.context.compile import TokenCosts

        layout, tokenizer = settings.layout, settings.tokenizer
        inline = layout.grouped and settings.config.order == "relevance"
        key = (layout.name, layout.reserved, tokenizer, inline)
        if key not in self._costs:
            self._costs[key] = TokenCosts(layout, tokenizer, inline=inline)
        return self._costs[key]


def answer_layout(llm: Any, layout: Layout) -> Layout:
    """Return a layout whose prompt asks a language model the question.

    Raises:
        InputError: The model is unusable, or a template lacks `{question}`.
    """
    from graphmem_torch.context.formats import load_format

    template = layout.template
    complete = getattr(llm, "complete", llm)
    if not callable(complete):
        raise InputError(
            f"llm: expected a function from a prompt to a text, or a client, got {llm!r}; "
            'for a server, oracle.OpenAIClient("model", base_url=...)'
        )
    format = layout.format or ("openai" if complete is not llm else _FORMAT)
    if template is None and format not in _CHATS:
        template = _PROMPT
    if not any(text.count("question") for text in load_format(format, template).templates.values()):
        raise InputError(
            "template: expected the field {question}, for a model is to answer it, got "
            f"{template!r:.80}; add it"
        )
    return replace(layout, format=format, template=template)


@contextmanager
def own_loop() -> Iterator[Wait]:
    """Yield a function that returns the result of an awaitable, on one shared event loop.

    The loop runs in its own thread, as the caller's thread may already have one (notebooks).
    """
    begun: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def serve() -> None:
        end = asyncio.Event()
        begun.set_result((asyncio.get_running_loop(), end))
        await end.wait()

    def loop() -> asyncio.AbstractEventLoop:
        if not begun.done():  # started by the first awaitable
            thread.submit(asyncio.run, serve())
        return begun.result()[0]

    with ThreadPoolExecutor(1, thread_name_prefix="answer") as thread:
        try:
            with _waiting(loop) as wait:
                yield wait
        finally:
            if begun.done():
                served, end = begun.result()
                served.call_soon_threadsafe(end.set)


@contextmanager
def callers_loop() -> Iterator[Wait]:
    """Yield a function for a thread that runs awaitables in the caller's event loop."""
    loop = asyncio.get_running_loop()
    with _waiting(lambda: loop) as wait:
        yield wait


@contextmanager
def _waiting(loop: Callable[[], asyncio.AbstractEventLoop]) -> Iterator[Wait]:
    """Yield a function that runs awaitables in an event loop of another thread.

    On an exception, running awaitables are cancelled and new ones refused.
    """
    running, ended = set[Future[Any]](), threading.Event()

    def wait(given: Awaitable[Any]) -> Any:
        work = asyncio.run_coroutine_threadsafe(awaited(given), loop())
        running.add(work)
        if ended.is_set():
            work.cancel()
        try:
            return work.result()
        except CancelledError:
            if ended.is_set():
                raise asyncio.CancelledError from None  # not an answer
            raise
        finally:
            if work.done():
                running.discard(work)

    try:
        yield wait
    finally:
        ended.set()
        for work in [*running]:
            work.cancel()


async def awaited(given: Awaitable[Any]) -> Any:
    """Await any awaitable as a coroutine."""
    return await given


def waiting(function: Callable[..., Any], wait: Wait) -> Callable[..., Any]:
    """Return a function that waits for the results of one that may return awaitables."""

    def call(*given: Any) -> Any:
        found = function(*given)
        return wait(found) if inspect.isawaitable(found) else found

    return call


def ask_known(llm: Any, contexts: Sequence[Context], wait: Wait) -> list[Answer]:
    """Return the answers of `ask_model`, with refusals for contexts that are not `known`.

    If `known` is None, the model is asked.
    """
    asked = [context for context in contexts if context.known is not False]
    answers = iter(ask_model(llm, asked, wait))
    return [
        Answer(context.question, None, context, _REFUSED)
        if context.known is False
        else next(answers)
        for context in contexts
    ]


def ask_model(llm: Any, contexts: Sequence[Context], wait: Wait) -> list[Answer]:
    """Return the answer of a language model to each context, or the reason for none.

    `wait` returns the result of an awaitable.
    """
    complete = waiting(getattr(llm, "complete", llm), wait)
    prompts = [_prompt(context) for context in contexts]
    every = getattr(llm, "attempt_all", None) or getattr(llm, "complete_all", None)
    if prompts and callable(every):
        found = _attempt(lambda asked: list(waiting(every, wait)(asked)), prompts)
        if isinstance(found, list) and len(found) != len(prompts):
            found = InputError(f"expected {len(prompts)} answers, got {len(found)}")
        said = found if isinstance(found, list) else [found] * len(prompts)
    else:
        said = [_attempt(complete, prompt) for prompt in prompts]
    answers = []
    for context, answer in zip(contexts, said, strict=True):
        text, error = _read(answer)
        answers.append(Answer(context.question, text, context, error))
    lost: dict[str, list[str]] = {}
    for each in answers:
        if each.error is not None:
            lost.setdefault(each.error, []).append(each.question)
    for error, (first, *others) in lost.items():
        more = f" and {len(others):,} more" if others else ""
        _log.warning("No answer to %.80r%s: %s", first, more, error)
    return answers


def _prompt(context: Context) -> str | list[dict[str, str]]:
    """Return the input for the model: a text, or the messages of a chat."""
    if not context.messages:
        return context.text
    system = [] if context.system is None else [{"role": "system", "content": context.system}]
    return [*system, *context.messages]


def _attempt(function: Callable[[Any], Any], given: Any) -> Any:
    try:
        return function(given)
    except Exception as error:  # a caller's function may raise anything
        return error


def _read(answer: object) -> tuple[str | None, str | None]:  # text, error
    if isinstance(answer, Exception):
        return None, f"{type(answer).__name__}: {answer}"
    if isinstance(answer, str) and answer.strip():
        return answer.strip(), None
    return None, f"expected a text, got {answer!r:.80}"
