"""What an atom is, apart from its words: who said it, when, how long, how faded.

`docs/mathematics.md` 8.2.
"""

from __future__ import annotations

import torch
from torch import Tensor

from graphmem_torch.rank.candidates import Candidates
from graphmem_torch.rank.registry import signal

__all__ = []


@signal("speaker", conversational=True)
def _speaker(c: Candidates) -> Tensor:
    """1 for the words of a person whom the question names, -1 for the words of the others."""
    named = c.query.speakers
    if named is None or named.shape[1] == 0:
        return c.zeros()
    codes = c.pick(c.memory.speaker.long()).expand(c.shape)
    own = named.float().gather(1, codes.clamp(min=0))
    anyone = named.any(1, keepdim=True).float()
    return torch.where(codes >= 0, 2.0 * own - anyone, 0.0).where(anyone > 0, 0.0)


@signal("date", conversational=True)
def _date(c: Candidates) -> Tensor:
    """1 where the atom's month is named in the question, 2 where a day next to it is named too."""
    months, days = c.query.months, c.query.days
    if months is None or days is None:
        return c.zeros()
    month = c.pick(c.memory.month.long()).expand(c.shape)
    day = c.pick(c.memory.day.long()).expand(c.shape)
    near = torch.nn.functional.pad(days, (1, 1))
    near = near[:, :-2] | near[:, 1:-1] | near[:, 2:]
    in_month = months.gather(1, month.clamp(min=0)) & (month >= 0)
    on_day = near.gather(1, day.clamp(min=0)) & in_month
    return in_month.float() + on_day.float()


@signal("time_expression", conversational=True)
def _time_expression(c: Candidates) -> Tensor:
    """1 where the question asks when and the atom tells a time."""
    asks = c.query.asks_when
    if asks is None:
        return c.zeros()
    return asks.float()[:, None] * c.pick(c.memory.tells_time)


@signal("length")
def _length(c: Candidates) -> Tensor:
    """ln(1 + words): the longer atom tells more."""
    return c.pick(c.memory.log_words).expand(c.shape)


@signal("question", conversational=True)
def _question(c: Candidates) -> Tensor:
    """1 where the atom asks rather than tells."""
    return c.pick(c.memory.is_question).expand(c.shape)


@signal("decay", reads=("retention",))
def _decay(c: Candidates) -> Tensor:
    """e^{-lambda t}: 1 for what was just used, does not fade, or has no known age."""
    retention = c.query.retention
    if retention is None:
        return c.zeros() + 1.0
    everyone = c.rows is None or len(retention) == len(c.query)
    values = c.pick_each(retention) if everyone else c.pick(retention[0])
    return values.expand(c.shape)
