"""The judge of mode retrieval: what it costs in recall, and the paper's retrieval experiment.

A LoCoMo file gives both; any other text, or a store, gives curves at scale (`modes_scale.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor

from graphmem_torch.atoms import EdgeType
from graphmem_torch.config import Config, config_to_dict, load_config
from graphmem_torch.errors import InputError
from graphmem_torch.text.embedder import Embedder
from graphmem_torch.text.embedders import load_embedder

from ..common.arena import TURN, Arena
from ..common.measure import code_version
from ..common.questions import read_conversations
from ..common.remember import RememberingEmbedder
from ..common.tally import ADVERSARIAL
from ..locomo.judge import build_arenas
from ..request import Judged, Request
from .curve import Field, measure_curves
from .experiment import answer_measures, compare
from .grid import Setting, partition
from .rivals import build_communities, build_tree
from .scale import judge_scale
from .search import by_modes, flat
from .source import has_conversations
from .table import format_modes

__all__ = ["judge"]
_DEPTH = 150  # hits asked of a preset


def judge(request: Request) -> Judged:
    """Recall against cost of mode retrieval, and its rivals with the same encoder.

    Raises:
        InputError: For data that cannot be used, or without a question that has an answer.
    """
    if not has_conversations(request.data):
        report = judge_scale(request)
        return Judged(report, format_modes(report))
    config = request.settings
    conversations = read_conversations(request.data, evidence=request.evidence)
    encoder = RememberingEmbedder(
        load_embedder(
            config.embedder.name if request.embedder is None else request.embedder,
            request.device,
            token_dim=config.embedder.token_dim,
        )
    )
    shared = replace(load_config("default"), embedder=config.embedder)
    shared = replace(shared, link=replace(shared.link, concepts=config.link.concepts))
    with encoder.remembering():
        own = _arenas(conversations, config, encoder, request)
        ground = own if config == shared else _arenas(conversations, shared, encoder, request)
        asked = [_answerable(arena) for arena in ground]
        count = sum(int(mask.sum()) for mask in asked)
        if count == 0:
            raise InputError(
                "expected questions whose evidence is a turn, got none; give --evidence",
                where=str(request.data),
            )
        fields = [_field(arena, mask) for arena, mask in zip(ground, asked, strict=True)]
        curves = measure_curves(
            fields,
            preset=config.modes if config.modes.retrieve else None,
            seed=request.seed,
            progress=request.progress,
        )
        chosen = _chosen(curves, len(fields))
        answers: dict[str, list[tuple[Tensor, Tensor, Tensor]]] = {}
        for one, other, mask, field, setting in zip(
            own, ground, asked, fields, chosen, strict=True
        ):
            rankings = _rankings(other, field, setting, encoder, request.seed)
            rankings["default"] = _retrieved(other, mask)
            rankings[config.name] = _retrieved(one, mask)
            for name, ranking in rankings.items():
                found = answer_measures(ranking, field.gold, field.costs)
                answers.setdefault(name, []).append(found)
    report = {
        "dataset": "modes",
        "preset": config.name,
        "commit": code_version(),
        "n": {"questions": count, "conversations": len(fields)},
        "curves": curves,
        "systems": compare(answers, subject=config.name, reference="flat", seed=request.seed),
        "config": config_to_dict(config),
        "seed": request.seed,
    }
    return Judged(report, format_modes(report))


def _chosen(curves: Mapping[str, Any], count: int) -> list[Setting]:
    """The setting for each conversation: chosen on the others, where there are some."""
    left = curves["left_out"]
    found = [curves["recommended"]] * count if left is None else left["chosen"]
    return [Setting(s["rule"], s["assign"], s["modes"], s["atoms"]) for s in found]


def _arenas(
    conversations: Sequence[Any], config: Config, encoder: Embedder, request: Request
) -> list[Arena]:
    return build_arenas(conversations, config, encoder, request.device, request.progress)[0]


def _answerable(arena: Arena) -> Tensor:  # [B] bool
    """Questions of categories 1 to 4 whose evidence is known."""
    return (arena.categories != ADVERSARIAL) & (arena.gold >= 0).any(1)


def _field(arena: Arena, asked: Tensor) -> Field:
    queries = arena.scope(arena.questions).query.embedding.float().cpu()
    return Field(
        arena.embeddings[arena.turns],
        queries[asked],
        arena.gold[asked],
        arena.costs,
    )


def _rankings(
    arena: Arena,
    field: Field,
    setting: Setting,
    encoder: Embedder,
    seed: int,
) -> dict[str, Tensor]:
    """The turns of one conversation as each system without a preset ranks them."""
    store = arena.memory.store
    node = store.known(arena.ids)
    texts = [atom.rendered for atom in store.atoms([node[i][0] for i in arena.ids])]

    def encode(texts: Sequence[str]) -> Tensor:
        return encoder.encode(list(texts)).pooled.float().cpu()

    modes = partition(field.vectors, setting.rule, setting.assign, seed=seed)
    (found,) = by_modes(
        modes,
        field.vectors,
        field.queries,
        searched=setting.modes or len(modes),
        taken=[setting.atoms],
    )
    tree = build_tree(field.vectors, texts, encode, seed=seed)
    graph = arena.undirected(EdgeType.ABSTRACTION, EdgeType.ASSOCIATION)
    groups = build_communities(graph, arena.turns, field.vectors, texts, encode)
    return {
        "flat": flat(field.vectors, field.queries, len(field.vectors)).ranking,
        "tree": tree.search(field.queries),
        "communities": groups.search(field.queries),
        "modes": found.ranking,
    }


def _retrieved(arena: Arena, asked: Tensor) -> Tensor:  # [B, K]
    questions = [q for q, kept in zip(arena.questions, asked.tolist(), strict=True) if kept]
    results = arena.memory.retrieve(questions, k=_DEPTH, kinds=[TURN])
    return arena.positions([[hit.id for hit in result.hits] for result in results])
