"""Vectors and texts that the tests of the judges make up."""

from __future__ import annotations

import random

import torch


def unit(*shape: int, seed: int = 0) -> torch.Tensor:
    """Random unit rows."""
    rows = torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
    return torch.nn.functional.normalize(rows, dim=-1)


def clusters(groups: int, each: int, width: int = 16) -> torch.Tensor:
    """Unit rows around random centres."""
    rows = unit(groups, width).repeat_interleave(each, 0) + 0.1 * unit(groups * each, width)
    return torch.nn.functional.normalize(rows, dim=1)


def novel(count: int) -> list[str]:
    """Texts of three sentences."""
    chance = random.Random(4)
    words = [f"word{i}" for i in range(300)]
    phrases = [[" ".join(chance.choices(words, k=7)) for _ in range(3)] for _ in range(count)]
    return [". ".join(part.capitalize() for part in three) + "." for three in phrases]
