"""What an atom is beside its words: who said it, when, how long (`docs/mathematics.md` 8.2)."""

from __future__ import annotations

import torch
from torch import Tensor

from graphmem_torch.rank.registry import signal
from graphmem_torch.rank.scope import Scope

__all__ = []


@signal("speaker", conversational=True)
def _speaker(scope: Scope) -> Tensor:
    """1 for the words of a person whom the question names, -1 for the words of the others."""
    named = scope.query.speakers
    if named is None or named.shape[1] == 0:
        return scope.zeros()
    codes = scope.pick(scope.index.speaker.long()).expand(scope.shape)
    own = named.float().gather(1, codes.clamp(min=0))
    anyone = named.any(1, keepdim=True).float()
    return torch.where(codes >= 0, 2.0 * own - anyone, 0.0).where(anyone > 0, 0.0)


@signal("date", conversational=True)
def _date(scope: Scope) -> Tensor:
    """1 where the atom's month is named in the question, 2 where a day next to it is named too."""
    months, days = scope.query.months, scope.query.days
    if months is None or days is None:
        return scope.zeros()
    month = scope.pick(scope.index.month.long()).expand(scope.shape)
    day = scope.pick(scope.index.day.long()).expand(scope.shape)
    near = torch.nn.functional.pad(days, (1, 1))
    near = near[:, :-2] | near[:, 1:-1] | near[:, 2:]
    in_month = months.gather(1, month.clamp(min=0)) & (month >= 0)
    on_day = near.gather(1, day.clamp(min=0)) & in_month
    return in_month.float() + on_day.float()


@signal("time_expression", conversational=True)
def _time_expression(scope: Scope) -> Tensor:
    """1 where the question asks when and the atom tells a time."""
    asks = scope.query.asks_when
    if asks is None:
        return scope.zeros()
    return asks.float()[:, None] * scope.pick(scope.index.tells_time)


@signal("length")
def _length(scope: Scope) -> Tensor:
    """ln(1 + words): the longer atom tells more."""
    return scope.pick(scope.index.log_words).expand(scope.shape)


@signal("question", conversational=True)
def _question(scope: Scope) -> Tensor:
    """1 where the atom asks rather than tells."""
    return scope.pick(scope.index.is_question).expand(scope.shape)
