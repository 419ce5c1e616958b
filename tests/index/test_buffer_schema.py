"""The layout of an index: what is written down of its tensors is what they are."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from graphmem_torch.config import load_config
from graphmem_torch.errors import InputError
from graphmem_torch.index.buffer_schema import LAYOUT, check_buffers
from graphmem_torch.index.buffers import OPTIONAL_PARTS, REQUIRED_PARTS
from graphmem_torch.index.data import FOLLOWED
from graphmem_torch.index.index_input import IndexInput
from graphmem_torch.index.module import MemoryIndex
from graphmem_torch.rank.query import QueryBatch


def test_every_part_is_laid_out() -> None:
    assert LAYOUT.keys() == {*REQUIRED_PARTS, *OPTIONAL_PARTS, *FOLLOWED}


def test_an_index_keeps_to_its_layout(random_columns: Callable[..., IndexInput]) -> None:
    index = MemoryIndex.build(random_columns(30), load_config("spectral"))
    check_buffers(index.state_dict())
    check_buffers(index.half().state_dict(), A=30)
    with pytest.raises(InputError, match=r"embeddings: expected \[A,d\] with A = 31"):
        check_buffers(index.state_dict(), A=31)


def hostile(tensor: torch.Tensor) -> list[torch.Tensor]:
    """Other tensors of the same type that numbers, pointers and shapes could be."""
    most, least = torch.iinfo(tensor.dtype).max, torch.iinfo(tensor.dtype).min
    changed = [tensor.clone() for _ in range(3)]
    for other, place, value in zip(changed, (-1, 0, -1), (most, most, least), strict=True):
        other.view(-1)[place] = value
    return [*changed, torch.full_like(tensor, most), tensor.flip(0), tensor[:-1], tensor[:0]]


def test_no_integer_leads_out_of_an_index(
    random_columns: Callable[..., IndexInput], random_questions: Callable[..., QueryBatch]
) -> None:
    """Every integer tensor spoilt: refused, or an index that answers without a fault."""
    asked, looked_at = random_questions(2), set[str]()
    for preset in ("default", "spectral"):
        index = MemoryIndex.build(random_columns(20), load_config(preset))
        state, refused = index.state_dict(), 0
        whole = {n for n, t in state.items() if not t.is_floating_point() and t.dtype != torch.bool}
        integer = whole - looked_at
        for name in integer:
            for spoilt in hostile(state[name]) if state[name].numel() else []:
                try:
                    MemoryIndex.from_state_dict({**state, name: spoilt}, index.config)(asked, k=5)
                except InputError:
                    refused += 1
        assert refused > 4 * len(integer) > 32
        looked_at |= integer
    assert len(looked_at) > 40


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("log_words", torch.Tensor.double, r"log_words: expected torch.float32, as other parts"),
        ("previous", lambda t: t + 30, r"previous: expected entries from -1 to 29"),
        ("graph_indptr", lambda t: t.flip(0), "graph_indptr: expected offsets that rise from 0"),
        ("graph_indptr", lambda t: t[:0], "graph_indptr: expected"),
        ("graph_target", lambda t: t.float(), "graph_target: expected index, got torch.float32"),
        ("month", lambda t: t[:-1], r"month: expected \[A\] with A = 30, got \[29\]"),
        ("embeddings", lambda t: t[0], "embeddings: expected"),
        ("modes_order", None, "modes_order: expected it beside other parts"),
    ],
)
def test_what_does_not_fit_is_named(
    random_columns: Callable[..., IndexInput],
    name: str,
    change: Callable[[torch.Tensor], torch.Tensor] | None,
    said: str,
) -> None:
    parts = dict(MemoryIndex.build(random_columns(30), load_config("spectral")).state_dict())
    if change is None:
        del parts[name]
    else:
        parts[name] = change(parts[name])
    with pytest.raises(InputError, match=said):
        check_buffers(parts)
