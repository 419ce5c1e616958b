"""Gold evidence kept per token, on conversations and on passages (`evaluation.md`, Context)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm

from graphmem_torch.config import Config
from graphmem_torch.evaluation.arena import Arena
from graphmem_torch.evaluation.context_curves import compare_curves, gold_share
from graphmem_torch.evaluation.context_hops import ablate, ablation_figures
from graphmem_torch.evaluation.context_pools import GoldSet
from graphmem_torch.evaluation.context_systems import chosen_by
from graphmem_torch.evaluation.metrics import group_masks
from graphmem_torch.text.embed import Embedder

__all__ = ["judge_gold"]

_GROUPS = ("1-4", "all", "1")


def judge_gold(
    gold: GoldSet,
    config: Config,
    embedder: Embedder,
    *,
    device: str,
    seed: int,
    progress: bool = False,
) -> dict[str, Any]:
    """Every system's curve on a set, by groups of questions, and the ablation of passages.

    The groups of a conversation set are LoCoMo's categories; passages have one, `all`.
    """
    shares: dict[str, list[Tensor]] = {}
    categories, hops = [], {}
    arenas = gold.arenas(config, embedder, device)
    for arena in tqdm(arenas, desc=gold.name, total=len(gold.conversations), disable=not progress):
        for name, chosen in chosen_by(arena, subject=config.name).items():
            shares.setdefault(name, []).append(_shares(arena, chosen))
        categories.append(arena.categories)
        if not gold.conversational:
            wanted = [set(ids) for ids in arena.evidence]
            found = ablate(arena.memory, arena.questions, wanted)
            hops = ablation_figures(found, seed)
    curves = {name: torch.cat(parts) for name, parts in shares.items()}
    groups = _groups(torch.cat(categories), gold.conversational)
    report: dict[str, Any] = {
        "n": {name: int(mask.sum()) for name, mask in groups.items()},
        "groups": {
            name: compare_curves(
                {system: curve[mask] for system, curve in curves.items()},
                subject=config.name,
                seed=seed,
            )
            for name, mask in groups.items()
        },
    }
    return report | ({"two_hop": hops} if hops else {})


def _shares(arena: Arena, chosen: list[Tensor]) -> Tensor:  # [B, len(CURVE)]
    gold = arena.gold.split([len(tile) for tile in chosen])
    return torch.cat([gold_share(tile, own) for tile, own in zip(chosen, gold, strict=True)])


def _groups(categories: Tensor, conversational: bool) -> Mapping[str, Tensor]:
    masks = group_masks(categories)
    names = _GROUPS if conversational else ("all",)
    return {name: masks[name] for name in names if bool(masks[name].any())}
