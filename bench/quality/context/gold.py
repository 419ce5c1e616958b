"""Measure gold evidence kept per token, on conversations and passages (`docs/evaluation.md` 4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from graphmem_torch.atoms import Atom
from graphmem_torch.config import Config
from graphmem_torch.context.compile import TokenCosts
from graphmem_torch.context.formats import load_format
from graphmem_torch.evaluation.bootstrap import interval_table
from graphmem_torch.progress import Progress
from graphmem_torch.text.embedder import Embedder

from ..common.baselines import BASELINES
from ..common.questions import find_evidence
from ..common.rankings import rank_candidates
from ..common.scores import BUDGETS, difference_table, group_masks
from ..common.sets import QuestionSet, locomo_set, passage_set
from ..common.task import RetrievalTask
from ..common.texts import read_passage_sets
from .greedy import fill_by_density, kept_part, kept_whole, line_costs, prefix, skipping
from .hops import ablate, ablation_figures

__all__ = [
    "CURVE",
    "PARTS",
    "SYSTEMS",
    "chosen_by",
    "compare_curves",
    "entry_costs",
    "gold_share",
    "judge_gold",
    "read_gold_sets",
    "tokens_for",
]
CURVE: tuple[int, ...] = (
    64, 91, 128, 181, 256, 362, 512, 724, 1024, 1448, 2048, 2896, 4096,
)  # fmt: skip
"""Token budgets of a curve: two to a doubling."""

_RESAMPLES = 2000
_LEVEL = 0.95


def gold_share(
    chosen: Tensor,  # [B, K, N] bool, or the share of each that was chosen
    gold: Tensor,  # [B, G] candidates, -1 = padding
) -> Tensor:  # [B, K] float64, NaN without gold
    """Return the chosen share of each question's gold."""
    real = gold >= 0
    places = gold.clamp(min=0)[:, None].expand(-1, chosen.shape[1], -1)
    found = (chosen.gather(2, places).double() * real[:, None]).sum(2)
    count = real.sum(1, keepdim=True)
    return (found / count.clamp(min=1)).masked_fill(count == 0, torch.nan)


def tokens_for(
    recall: Tensor,  # [R, K] mean recall at each budget, R resamples
    budgets: Sequence[int],
    target: Tensor,  # [R]
) -> Tensor:  # [R] tokens, inf where the curve does not get there
    """Return the tokens at which a curve reaches a recall, log-interpolated between budgets."""
    best = recall.cummax(1).values
    scale = torch.tensor(budgets, dtype=torch.float64).log2()
    enough = best >= target[:, None] - 1e-12
    place = enough.double().argmax(1)
    before = (place - 1).clamp(min=0)
    high, low = best.gather(1, place[:, None])[:, 0], best.gather(1, before[:, None])[:, 0]
    part = ((target - low) / (high - low).clamp(min=1e-12)).clamp(0.0, 1.0)
    part = torch.where(place == 0, 1.0, part)
    tokens = (scale[before] + part * (scale[place] - scale[before])).exp2()
    return tokens.masked_fill(~enough.any(1), torch.inf)


def compare_curves(
    curves: Mapping[str, Tensor],  # each [n, len(CURVE)] recall of every question
    *,
    subject: str,
    seed: int,
) -> dict[str, Any]:
    """Return mean recall by system and budget, and the tokens `subject` needs for equal recall.

    `difference` is the recall of the subject minus that of another, resampled in pairs.
    `tokens_needed` gives, for a budget of another system, its recall, the tokens at which the
    subject reaches it, and their ratio with its interval, from the same resamples of questions for
    both curves. None if the curve does not reach it.
    """
    own = curves[subject]
    report: dict[str, Any] = {}
    drawn = _resamples(len(own), seed)
    differences = difference_table(curves, subject, CURVE, seed=seed)
    for name, curve in curves.items():
        figures: dict[str, Any] = {
            "recall": dict(zip(map(str, CURVE), curve.mean(0).tolist(), strict=True)),
            "ci": interval_table(curve, CURVE, seed=seed),
        }
        if name != subject:
            figures["difference"] = differences[name]
            figures["tokens_needed"] = {
                str(budget): _needed(own, curve, CURVE.index(budget), drawn) for budget in BUDGETS
            }
        report[name] = figures
    return report


def _needed(own: Tensor, other: Tensor, column: int, drawn: Tensor) -> dict[str, Any]:
    budget = CURVE[column]
    target = other[:, column].double()
    tokens = float(tokens_for(own.double().mean(0)[None], CURVE, target.mean()[None]))
    ratios = tokens_for(drawn @ own.double(), CURVE, drawn @ target) / budget
    ends = torch.tensor([(1 - _LEVEL) / 2, (1 + _LEVEL) / 2], dtype=torch.float64)
    interval = ratios.quantile(ends, interpolation="nearest").tolist()
    reached = tokens != torch.inf
    return {
        "recall": float(target.mean()),
        "tokens": tokens if reached else None,
        "ratio": tokens / budget if reached else None,
        "ci": [end if end != torch.inf else None for end in interval],
    }


def _resamples(count: int, seed: int) -> Tensor:  # [_RESAMPLES, n], rows sum to 1
    drawn = torch.randint(count, (_RESAMPLES, count), generator=torch.Generator().manual_seed(seed))
    weights = torch.zeros(_RESAMPLES, count, dtype=torch.float64)
    return weights.scatter_add_(1, drawn, torch.ones_like(drawn, dtype=torch.float64)) / count


def read_gold_sets(root: Path) -> list[QuestionSet]:
    """Return every set below a data root: LoCoMo in `locomo`, passages anywhere.

    Questions without gold are dropped, and conversations without questions.

    Raises:
        InputError: Invalid file.
    """
    sets = []
    locomo = root / "locomo"
    if locomo.is_dir():
        found = locomo_set(locomo, evidence=find_evidence(locomo)).answerable()
        sets += [found] if found.conversations else []
    return sets + [passage_set(one) for one in read_passage_sets(root)]


SYSTEMS: Mapping[str, str] = {
    "top-k dense": "the best by cosine up to the first that does not fit, in the preset's form",
    "top-k dense, plain": "the same, a line each, with nothing around it",
    "top-k dense, skipping": "the same, and what does not fit is passed over",
    "top-k own": "the best by the preset's own score, likewise, in the same form",
    "contextos greedy": "50 cosine + 10 PageRank decay, by value per token, plain (published)",
}
"""Names of the baselines; the preset's name stands for the whole of `Memory.compile`."""

PARTS = "{}, parts"
"""Name of a preset whose extracts count by the share of their memory's words."""

_PART = 0.99  # maximum share of a memory that is not there as a whole
_STEP = 64  # questions at once: their choices are [64, 13, N] bool


def chosen_by(task: RetrievalTask, *, subject: str) -> dict[str, list[Tensor]]:
    """Return the choices of each system: tiles of [B, len(CURVE), N] bool, N candidates.

    The preset under test also appears with extracts, as shares in [0, 1] (`PARTS`).

    Args:
        task: Candidates and questions.
        subject: Name of the preset under test.
    """
    parts = PARTS.format(subject)
    found: dict[str, list[Tensor]] = {name: [] for name in (subject, parts, *SYSTEMS)}
    plain = line_costs(_atoms(task, task.ids), task.memory.config.context.tokenizer)
    for start in range(0, len(task.questions), _STEP):
        asked = slice(start, start + _STEP)
        share = _compiled(task, asked)
        found[subject].append(share == 1.0)
        found[parts].append(share)
        for name, chosen in _baselines(task, asked, plain).items():
            found[name].append(chosen)
    return found


def entry_costs(
    task: RetrievalTask,
    ranking: Tensor,  # [B, L] candidates, best first, -1 = none
) -> Tensor:  # [B, L] int64 tokens
    """Return the rendered cost of each entry at its rank, as the compiler writes it.

    The first entry of a group pays for its header.
    """
    tokenizer = task.memory.config.context.tokenizer
    token_costs = TokenCosts(load_format("text"), tokenizer, inline=False)
    known = task.memory.store.known(task.ids)
    nodes = torch.tensor([known[name][0] for name in task.ids])
    token_costs.learn(nodes, task.memory.store.atoms)
    group = token_costs.groups[nodes][ranking.clamp(min=0)].masked_fill(ranking < 0, -1)
    costs = token_costs.costs[nodes][ranking.clamp(min=0)]
    # Stable: the best of a group comes first.
    ordered, order = group.sort(dim=1, stable=True)
    first = torch.nn.functional.pad(ordered[:, 1:] != ordered[:, :-1], (1, 0), value=True)
    leads = torch.zeros_like(first).scatter_(1, order, first) & (group > 0)
    return costs + token_costs.header_costs[group.clamp(min=0)] * leads


def _atoms(task: RetrievalTask, ids: Sequence[str]) -> list[Atom]:
    known = task.memory.store.known(ids)
    return task.memory.store.atoms([known[name][0] for name in ids])


def _compiled(task: RetrievalTask, asked: slice) -> Tensor:  # [B, K, N] float64
    """Return the share of each gold memory that is in the contexts; others are left 0."""
    curves = task.memory.compile(task.questions[asked], budget=list(CURVE))
    wanted = task.evidence[asked]
    known = {atom.id: atom for atom in _atoms(task, sorted(set(chain(*wanted))))}
    layout = load_format("text")
    place = {name: number for number, name in enumerate(task.ids)}
    share = torch.zeros(len(wanted), len(CURVE), len(place), dtype=torch.float64)
    for b, (gold, curve) in enumerate(zip(wanted, curves, strict=True)):
        atoms = [known[name] for name in sorted({*gold} & place.keys())]
        for column, context in enumerate(curve):
            whole = kept_whole(context, atoms, layout)
            for atom in atoms:
                part = kept_part(context, atom) if context.extract else 0.0
                share[b, column, place[atom.id]] = 1.0 if atom.id in whole else min(part, _PART)
    return share


def _baselines(task: RetrievalTask, asked: slice, plain: Tensor) -> dict[str, Tensor]:
    budgets, count = torch.tensor(CURVE), len(task.ids)
    questions = task.questions[asked]
    deepest = max(CURVE) // int(plain.min())
    ranked = rank_candidates(BASELINES["dense"](task, questions))
    dense = ranked[:, :deepest]
    results = task.memory.retrieve(questions, k=max(CURVE) // 8)
    own = task.positions([[hit.id for hit in result.hits] for result in results])
    utility = BASELINES["contextos"](task, questions)
    return {
        "top-k dense": prefix(dense, entry_costs(task, dense), budgets, count),
        "top-k dense, plain": prefix(dense, plain[dense.clamp(min=0)], budgets, count),
        "top-k dense, skipping": skipping(ranked, plain[ranked.clamp(min=0)], budgets, count),
        "top-k own": prefix(own, entry_costs(task, own), budgets, count),
        "contextos greedy": fill_by_density(utility, plain, budgets),
    }


_GROUPS = ("1-4", "all", "1")


def judge_gold(
    gold: QuestionSet,
    config: Config,
    embedder: Embedder,
    *,
    device: str,
    seed: int,
    progress: bool = False,
) -> dict[str, Any]:
    """Return every system's curve on a set, by groups of questions, and the ablation of passages.

    The groups of a conversation set are LoCoMo's categories; passages have one, `all`.
    """
    shares: dict[str, list[Tensor]] = {}
    categories, hops = [], {}
    tasks = gold.tasks(config, embedder, device)
    for task in Progress(tasks, gold.name, total=len(gold.conversations), shown=progress):
        for name, chosen in chosen_by(task, subject=config.name).items():
            shares.setdefault(name, []).append(_shares(task, chosen))
        categories.append(task.categories)
        if not gold.conversational:
            wanted = [set(ids) for ids in task.evidence]
            found = ablate(task.memory, task.questions, wanted)
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


def _shares(task: RetrievalTask, chosen: list[Tensor]) -> Tensor:  # [B, len(CURVE)]
    gold = task.gold.split([len(tile) for tile in chosen])
    return torch.cat([gold_share(tile, own) for tile, own in zip(chosen, gold, strict=True)])


def _groups(categories: Tensor, conversational: bool) -> Mapping[str, Tensor]:
    masks = group_masks(categories)
    names = _GROUPS if conversational else ("all",)
    return {name: masks[name] for name in names if bool(masks[name].any())}
