"""Requests: the conditions of callers on memories, and the layout of a context.

Imports neither the index nor the store, as every import of `Memory` loads it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, cast

from graphmem_torch.checks import check_flag
from graphmem_torch.errors import InputError
from graphmem_torch.rank.filters import Where, parse_where
from graphmem_torch.results import QueryPlan
from graphmem_torch.text.times import TimeLike, parse_span, parse_time

if TYPE_CHECKING:
    from graphmem_torch.context.summarise import Shorten
    from graphmem_torch.text.tokens import TokenCounter

__all__ = [
    "EVERYTHING",
    "PRESET_LAYOUT",
    "Between",
    "Filters",
    "FormatName",
    "Instants",
    "Layout",
    "OrderName",
    "PlanLike",
    "Scope",
]

FormatName = Literal["text", "markdown", "openai", "anthropic", "json"]
OrderName = Literal["relevance", "time", "topological"]

Names = str | Sequence[str] | Sequence[Sequence[str]]
"""Texts for all questions, or a list of them for each question."""


PlanLike = QueryPlan | Literal["present"] | bool | None
"""A plan, `present` for how things are now, whether to derive one, or None for the settings."""


Instants = list[Any] | tuple[Any, ...]  # sequences of one form of times, or of several
"""Moments at which the same questions are asked."""

Between = tuple[TimeLike | None, TimeLike | None]
"""First and last moment of a span of time, inclusive; None for an open end."""


@dataclass(frozen=True)
class Scope:
    """Rarely used conditions on visible memories, and start concepts.

    Attributes:
        kinds: Kinds that hits must have; other atoms still lead to them. Aggregates are hits
            only if they are listed here, or if `where` has a condition on `kind` or `id`.
        exclude: Ids that may not be hits, or a list of them for each question. They still lead to
            others.
        seeds: Names of additional start concepts, each as strong as its best anchor, or a list
            of them for each question. They count where the preset spreads, walks or hops.
        asked: Time of the questions, the origin of "last week" in them; by default `as_of`,
            else now.
        namespaces: Name of the namespace to ask instead of this memory, for each question.
        plan: Plan that narrows down the questions, or one for each. True derives one from the
            words of a question, False uses none, "present" asks for how things are now. None
            takes `plan` of the settings. `Result.plan` reports the outcome.
        refresh: Whether hits, or the memories in a context, expire their `ttl` from now on, as in
            `Memory.get`; not at another moment.
    """

    kinds: Sequence[str] | None = None
    exclude: Names = ()
    seeds: Names = ()
    asked: TimeLike | None = None
    namespaces: Sequence[str] | None = None
    plan: PlanLike | Sequence[PlanLike] = None
    refresh: bool = False

    def __post_init__(self) -> None:
        """Check the time and the flag.

        Raises:
            InputError: `asked` is no time, or `refresh` no flag.
        """
        check_flag("refresh", self.refresh)
        if self.asked is not None:
            parse_time(self.asked, "asked")

    def take(self, places: Sequence[int], count: int) -> Scope:
        """Return the scope of the questions at some places among `count`."""
        parts: dict[str, Any] = {}
        for name in ("exclude", "seeds"):
            if len(listed := self.names(name, count)) > 1:
                parts[name] = [listed[place] for place in places]
        if isinstance(self.plan, Sequence) and len(self.plan) == count:
            parts["plan"] = [self.plan[place] for place in places]
        return replace(self, namespaces=None, **parts)

    def names(self, name: Literal["exclude", "seeds"], count: int) -> list[list[str]]:
        """Return one list of ids or names for each of `count` questions, or one for all of them.

        Raises:
            InputError: Neither.
        """
        given: Any = getattr(self, name)
        listed = _listed([given] if isinstance(given, str) else given)
        if all(isinstance(each, str) for each in listed):
            return [listed]
        parts = [_listed(None if isinstance(each, str) else each) for each in listed]
        if all(isinstance(own, str) for part in parts for own in part):
            if len(parts) == count:
                return parts
            got = f"{len(parts)} lists for {count} questions"
            raise InputError(f"{name}: expected one list for each, got {got}; give () for none")
        raise InputError(
            f"{name}: expected a list of texts, or a list of them for each question, got "
            f"{given!r:.80}; give one of these"
        )


EVERYTHING = Scope()
"""Scope without conditions."""


@dataclass(frozen=True)
class Filters:
    """All conditions on the memories that questions may see.

    Attributes:
        where: Conditions on fields of the hits.
        between: Span that the time of the atoms must be in.
        scope: Rarely used conditions.
        as_of: Moment whose state is asked, or several of them; None is the present.
        valid_at: Moment at which the content of atoms must be true; None is any.
    """

    where: Where = None
    between: Between | None = None
    scope: Scope = EVERYTHING
    as_of: TimeLike | Instants | None = None
    valid_at: TimeLike | None = None

    def __post_init__(self) -> None:
        """Check conditions and times, which does not depend on the memories.

        Raises:
            InputError: See `parse_where`, `parse_span` and `parse_time`.
        """
        if self.where is not None:
            object.__setattr__(self, "where", parse_where(self.where))
        if self.between is not None:
            parse_span(self.between)
        if self.valid_at is not None:
            parse_time(self.valid_at, "valid_at")
        if not isinstance(self.scope, Scope):
            raise InputError(
                f"scope: expected a Scope, got {self.scope!r:.80}; give Scope(kinds=...)"
            )
        if self.scope.refresh and self.as_of is not None:
            raise InputError("refresh: expected False at another moment, got True; leave it out")

    @property
    def instants(self) -> list[float | None]:
        """Moments of `as_of`, seconds since the epoch UTC; None is the present.

        Raises:
            InputError: An invalid time.
        """
        if isinstance(self.as_of, list | tuple):
            return [parse_time(each, "as_of") for each in self.as_of]
        return [self.instant]

    @property
    def instant(self) -> float | None:
        """The only moment of `as_of`, seconds since the epoch UTC; None is the present.

        Raises:
            InputError: Not one time.
        """
        return None if self.as_of is None else parse_time(cast(TimeLike, self.as_of), "as_of")


@dataclass(frozen=True)
class Layout:
    """Layout of a context; None takes the value of `context` in the settings.

    Attributes:
        order: `relevance`, `time` or `topological`; see `context.order.arrange`.
        format: `text`, `markdown`, `openai`, `anthropic` or `json`.
        template: A prompt with the fields `{context}` and `{question}`; for a chat the message of
            the user, or a mapping with `system` and `user`.
        tokenizer: Name of the tokenizer that counts (`text.tokens.get_counter`), or a function from
            a text to its number of tokens.
        shorten: Function (question, texts) -> texts that shortens the texts of memories.
    """

    order: OrderName | None = None
    format: FormatName | None = None
    template: str | Mapping[str, str] | None = None
    tokenizer: str | TokenCounter | None = None
    shorten: Shorten | None = None


PRESET_LAYOUT = Layout()
"""Layout of the settings."""


def _listed(given: Any) -> list[Any]:
    """Return an iterable as a list; [None] for anything else."""
    return list(given) if isinstance(given, Iterable) else [None]
