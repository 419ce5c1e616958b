"""QueryBatch: which rows it hands on, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from graphmem_torch.errors import InputError
from graphmem_torch.rank.query import QueryBatch


def test_rows_share_one_retention_for_all_questions() -> None:
    whole = QueryBatch(torch.zeros(3, 4), retention=torch.ones(1, 7), terms=torch.ones(3, 2))
    part = whole.rows(slice(1, 3))
    assert part.retention is whole.retention
    assert part.terms is not None and len(part) == len(part.terms) == 2


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("embedding", torch.zeros(5, 7), "[5, 16], got torch.float32 [5, 7]"),
        ("embedding", torch.full((5, 16), torch.nan), "finite numbers"),
        ("tokens", torch.full((5, 5, 8), torch.inf), "finite numbers"),
        ("terms", torch.zeros(4, 2, dtype=torch.int64), "[5, ?], got torch.int64 [4, 2]"),
        ("speakers", torch.zeros(5, 2, dtype=torch.bool), "[5, 3], got torch.bool [5, 2]"),
        ("allowed", torch.ones(2, 40, dtype=torch.bool), "[5, 40], got torch.bool [2, 40]"),
    ],
)
def test_check_says_what_was_expected(
    name: str, value: Any, expected: str, random_questions: Callable[..., QueryBatch]
) -> None:
    random_questions().check(dim=16, atoms=40, speakers=3)
    with pytest.raises(InputError) as raised:
        changed = replace(random_questions(), **{name: value})
        changed.check(dim=16, atoms=40, speakers=3)
        changed.checked(vocabulary=1000)
    assert str(raised.value).startswith(f"query.{name}: expected {expected}")
