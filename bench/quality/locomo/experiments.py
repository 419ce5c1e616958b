"""Experiments of SYNAPSE's paper on its gate, and on short and dissimilar memories."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from graphmem_torch.config import Config
from graphmem_torch.evaluation.bootstrap import interval_table
from graphmem_torch.evaluation.metrics import ranking_measures
from graphmem_torch.memory import Scope
from graphmem_torch.text.tokens import count_tokens

from ..common.baselines import BASELINES
from ..common.encoder import CachingEmbedder
from ..common.questions import Conversation
from ..common.rankings import gold_positions, rank_candidates
from ..common.scores import ADVERSARIAL
from ..common.task import RetrievalTask, memory_of

__all__ = [
    "Found",
    "cold_starts",
    "gate_sweep",
    "low_similarity",
    "paraphrase",
    "paraphrased",
    "retrieved",
    "tunnelling",
]
_SWEEP = range(5, 21)  # twelfths of the threshold; for the published 0.12 these are 0.05 to 0.20
_UNLIKE = 0.3  # cosine of a question and its evidence, from the paper
_NEAR = 30  # hits of a question, from the paper
_BLOCKS = (10, 20, 40)  # turns of a young memory
_FIRST = 5  # hits of a young memory


@dataclass(frozen=True)
class Found:
    """Results of a memory for B questions."""

    ranking: Tensor  # [B, K] candidates, -1 = nothing there
    confidence: Tensor  # [B]
    known: Tensor  # [B] bool


def retrieved(task: RetrievalTask, config: Config, questions: Sequence[str], k: int) -> Found:
    """Return the first k of each question, by the weights and the gate of some settings."""
    if (task.memory.config.rank, task.memory.config.gate) != (config.rank, config.gate):
        task.adopt(config)
    results = task.retrieve(questions, k)
    return Found(
        task.positions([[hit.id for hit in result.hits] for result in results]),
        torch.tensor([result.confidence for result in results], dtype=torch.float64),
        torch.tensor([result.known is not False for result in results]),
    )


def _recall(task: RetrievalTask, ranking: Tensor, k: int, rows: Tensor | None = None) -> Tensor:
    gold = task.gold if rows is None else task.gold[rows]
    positions = gold_positions(ranking, gold, len(task.ids))
    return ranking_measures(positions, gold, (k,))["recall"][:, 0]


def _thresholds(config: Config) -> list[float]:
    return [config.gate.threshold * place / 12 for place in _SWEEP]


def gate_sweep(
    found: Sequence[Found], tasks: Sequence[RetrievalTask], config: Config
) -> list[dict[str, Any]]:
    """Return the share of answerable and of adversarial questions the gate refuses, by threshold.

    `score` is the mean over all questions of recall@10 if answered, and of 1 for a refused
    adversarial one.
    """
    confidence = torch.cat([one.confidence for one in found])
    adversarial = torch.cat([task.categories == ADVERSARIAL for task in tasks])
    parts = zip(tasks, found, strict=True)
    recall = torch.cat([_recall(task, one.ranking, 10) for task, one in parts])
    rows = []
    for threshold in _thresholds(config):
        refused = confidence < threshold
        score = torch.where(adversarial, refused.double(), recall * ~refused)
        rows.append(
            {
                "threshold": threshold,
                "refused": float(refused[~adversarial].double().mean()),
                "adversarial": float(refused[adversarial].double().mean()),
                "score": float(score.nanmean()),
            }
        )
    return rows


_SYNONYMS = """
    adopt=take_in afraid=scared area=region art=artwork attend=go_to book=novel books=novels
    bought=purchased brother=sibling build=make buy=purchase career=profession celebrate=mark
    children=kids choose=pick city=town country=nation create=make discuss=talk_about enjoy=like
    event=occasion excited=thrilled family=relatives favorite=preferred feel=think find=discover
    food=dish friend=pal friends=pals game=match gift=present goal=aim happy=glad hobby=pastime
    house=home inspired=motivated job=work join=enter kind=sort kids=children learn=find_out
    like=enjoy main=chief mention=bring_up movie=film movies=films new=recent often=frequently
    paint=draw painting=picture passionate=keen pet=animal photo=picture picture=photo
    plan=intend planning=intending project=undertaking received=got recently=lately
    recommend=suggest road=street realize=notice share=tell significance=meaning start=begin
    store=shop stress=pressure team=side trip=journey type=kind use=employ visit=go_to want=wish
    win=gain won=gained work=job writing=composing
"""
_ALIKE = dict(pair.replace("_", " ").split("=") for pair in _SYNONYMS.split())
"""Near synonyms of frequent words in questions."""

_CLAUSE = re.compile(
    r"^(.+?) ((?:in|on|at|after|before|during|for|with|from|to|while|when|about|as) [^?]+)\?$"
)


def paraphrase(question: str) -> str:
    """Paraphrase a question deterministically: same meaning, other words and order.

    Words of a fixed list are replaced by a near synonym. The last clause that begins with a
    preposition or conjunction is put first; without one the question is asked indirectly.
    """
    words = re.split(r"(\W+)", question)
    said = "".join(_ALIKE.get(word, word) for word in words)
    clause = _CLAUSE.match(said)
    first = said[:1].lower() + said[1:]
    if clause is None or len(clause[1].split()) < 4:
        return f"Do you remember: {first}"
    # The shortest last clause: the text before it stays unchanged.
    head, tail = clause[1], clause[2]
    while (inner := _CLAUSE.match(f"{tail}?")) is not None:
        head, tail = f"{head} {inner[1]}", inner[2]
    return f"{tail[:1].upper()}{tail[1:]}, {head[:1].lower()}{head[1:]}?"


def paraphrased(
    tasks: Sequence[RetrievalTask], config: Config, found: Sequence[Found]
) -> dict[str, Any]:
    """Measure the gate on paraphrased adversarial questions.

    Args:
        tasks: Conversations.
        config: Preset.
        found: Results for the original questions.

    Returns:
        `n`, the mean `cosine` to the original question, the share `refused` at each threshold, the
        share `flipped` on which the preset's gate decides differently, and three examples.
    """
    before, after, cosines = [], [], []
    examples: list[list[str]] = []
    for task, one in zip(tasks, found, strict=True):
        rows = (task.categories == ADVERSARIAL).nonzero().squeeze(1).tolist()
        plain = [task.questions[row] for row in rows]
        said = [paraphrase(question) for question in plain]
        if not rows:
            continue
        results = _asked_anew(task, config, said)
        before.append(one.confidence[rows])
        after.append(results)
        left, right = (task.memory.embedder.encode(texts).pooled for texts in (plain, said))
        cosines.append(torch.nn.functional.cosine_similarity(left.float(), right.float()))
        examples += [list(pair) for pair in zip(plain, said, strict=True)]
    if not before:
        return {
            "n": 0,
            "cosine": 0.0,
            "refused": [0.0] * len(_SWEEP),
            "flipped": 0.0,
            "examples": [],
        }
    was, now = torch.cat(before), torch.cat(after)
    gate = config.gate.threshold
    return {
        "n": len(was),
        "cosine": float(torch.cat(cosines).mean()),
        "refused": [float((now < threshold).double().mean()) for threshold in _thresholds(config)],
        "flipped": float(((was < gate) != (now < gate)).double().mean()),
        "examples": examples[:3],
    }


def _asked_anew(task: RetrievalTask, config: Config, questions: Sequence[str]) -> Tensor:
    """Return the confidence of questions outside of the set."""
    if (task.memory.config.rank, task.memory.config.gate) != (config.rank, config.gate):
        task.adopt(config)
    kinds = None if task.kind is None else [task.kind]
    results = task.memory.retrieve(list(questions), k=10, scope=Scope(kinds=kinds))
    return torch.tensor([result.confidence for result in results], dtype=torch.float64)


def low_similarity(
    tasks: Sequence[RetrievalTask],
    found: Mapping[str, Sequence[Found]],
    drawn: Mapping[str, Any],
) -> list[dict[str, Any]]:
    """Return recall@10 of questions without evidence of a cosine of 0.3, and that of all."""
    unlike, recalls = [], dict[str, list[Tensor]]()
    for number, task in enumerate(tasks):
        cosine = BASELINES["dense"](task, task.questions)
        near = cosine.gather(1, task.gold.clamp(min=0)).masked_fill(task.gold < 0, -torch.inf)
        answered = (task.categories != ADVERSARIAL) & (task.gold >= 0).any(1)
        unlike.append(torch.where(answered, (near.amax(1) < _UNLIKE).double(), torch.nan))
        for name, own in found.items():
            recalls.setdefault(name, []).append(_recall(task, own[number].ranking, 10))
        for name in ("bm25", "fusion", "interaction"):
            ranking = rank_candidates(BASELINES[name](task, task.questions))
            recalls.setdefault(name, []).append(_recall(task, ranking, 10))
    below = torch.cat(unlike)
    base = torch.cat(recalls.get("vectors only", next(iter(recalls.values()))))
    rows = []
    for name, parts in recalls.items():
        recall = torch.cat(parts)
        every, low = recall[~below.isnan()].nanmean(), recall[below == 1].nanmean()
        more = (recall - base)[below == 1][:, None]
        rows.append(
            {
                "system": name,
                "n": int((below == 1).sum()),
                "all": float(every),
                "below": float(low),
                "drop": float((every - low) / every) if every > 0 else None,
                "difference": interval_table(more, ["all"], **drawn)["all"],
            }
        )
    return rows


def tunnelling(
    tasks: Sequence[RetrievalTask], found: Mapping[str, Sequence[Found]]
) -> list[dict[str, Any]]:
    """Measure gold that fusion has in 30 and a variant has not, and losses in the first 10.

    `found` is the share of all gold in the first 30 by cosine and BM25. `lost` is the share of that
    gold missing in the variant's first 30. `lost_10` is the share of gold in the ten of the same
    preset without inhibition that is missing in the variant's ten.
    """
    rows = []
    free = found.get("no inhibition", next(iter(found.values())))
    for name, own in found.items():
        counts = torch.zeros(5)
        for number, task in enumerate(tasks):
            real = (task.gold >= 0) & (task.categories != ADVERSARIAL)[:, None]
            fused = rank_candidates(BASELINES["fusion"](task, task.questions))
            place, fusion, other = (
                gold_positions(ranking, task.gold, len(task.ids))
                for ranking in (own[number].ranking, fused, free[number].ranking)
            )
            near = real & (fusion >= 0) & (fusion < _NEAR)
            ten = real & (other < 10)
            counts += torch.tensor(
                [
                    float(part.sum())
                    for part in (real, near, near & (place >= _NEAR), ten, ten & (place >= 10))
                ]
            )
        gold, near_, lost, ten_, lost_ten = counts.tolist()
        rows.append(
            {
                "variant": name,
                "found": near_ / max(1.0, gold),
                "lost": lost / max(1.0, near_),
                "lost_10": lost_ten / max(1.0, ten_),
            }
        )
    return rows


def cold_starts(
    conversations: Sequence[Conversation],
    configs: Mapping[str, Config],
    encoder: CachingEmbedder,
    device: str,
) -> list[dict[str, Any]]:
    """Measure young memories: successive blocks of turns as memories of their own.

    Each is asked the questions whose evidence lies in it. A plain buffer of all turns has recall 1
    and costs their tokens; one of as many turns as requested has the newest.

    Returns:
        For the first turns of each conversation (`first 20`) and for all blocks of one length, by
        system: `n`, `recall`, recall of the `newest` turns, and tokens of the hits and of all
        turns.
    """
    systems = {
        name: config
        for name, config in configs.items()
        if name in ("as it is", "no graph", "vectors only")
    }
    rows = []
    for size in _BLOCKS:
        parts: dict[tuple[str, str], list[Tensor]] = {}
        for conversation in conversations:
            for number, block in enumerate(_blocks(conversation, size)):
                for name, values in _begun(block, systems, encoder, device).items():
                    parts.setdefault((f"any {size}", name), []).append(values)
                    if number == 0:
                        parts.setdefault((f"first {size}", name), []).append(values)
        for (turns, name), found in sorted(parts.items()):
            values = torch.cat(found)
            means = values.mean(0)
            rows.append(
                {
                    "turns": turns,
                    "system": name,
                    "n": len(values),
                    "recall": float(means[0]),
                    "newest": float(means[1]),
                    "tokens": round(float(means[2])),
                    "tokens_of_all": round(float(means[3])),
                }
            )
    return rows


def _blocks(conversation: Conversation, size: int) -> list[Conversation]:
    """Return blocks of `size` turns with the questions whose evidence lies in them, if any."""
    turns = [atom for atom in conversation.atoms if atom.kind == "turn"]
    blocks = []
    for begin in range(0, len(turns) - size + 1, size):
        part = turns[begin : begin + size]
        names = {atom.id for atom in part}
        asked = tuple(
            question
            for question in conversation.questions
            if question.category != ADVERSARIAL
            and question.gold
            and names.issuperset(question.gold)
        )
        if asked or not begin:
            blocks.append(replace(conversation, atoms=tuple(part), questions=asked))
    return blocks


def _begun(
    block: Conversation, systems: Mapping[str, Config], encoder: CachingEmbedder, device: str
) -> dict[str, Tensor]:  # each [B, 4]
    """Return recall of the first hits, of the newest turns, tokens of the hits and of all turns."""
    if not block.questions:
        return {name: torch.zeros(0, 4) for name in systems}
    found = {}
    first, *_ = systems.values()
    with memory_of(
        block.atoms, first, encoder, device, concepts=encoder.extractor(first.link.concepts)
    ) as memory:
        task = RetrievalTask(block, memory)
        costs = torch.tensor(count_tokens([atom.rendered for atom in block.atoms])).float()
        newest = torch.arange(len(task.ids) - 1, -1, -1).expand(len(task.questions), -1)
        for name, config in systems.items():
            ranking = retrieved(task, config, task.questions, _FIRST).ranking
            tokens = torch.stack([costs[row[row >= 0]].sum() for row in ranking])
            found[name] = torch.stack(
                [
                    _recall(task, ranking, _FIRST),
                    _recall(task, newest, _FIRST),
                    tokens.double(),
                    costs.sum().double().expand(len(ranking)),
                ],
                dim=1,
            )
    return found
