"""Table of all sets of questions: rows are systems, columns are sets."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from graphmem_torch.atoms import Atom
from graphmem_torch.errors import InputError
from graphmem_torch.progress import Progress
from graphmem_torch.readers.read import document_atoms
from graphmem_torch.text.tokens import Tokenizer, get_tokenizer

from ..claims.model import read_claims
from ..common.chats import find_chats, read_chats
from ..common.compare import BuiltSet, build, compare
from ..common.encoder import CachingEmbedder, caching, load_encoders
from ..common.fitting import Fit, fit_all, leave_one_out
from ..common.measure import framed
from ..common.questions import Conversation, Question, find_evidence
from ..common.scores import gain, percent
from ..common.sets import QuestionSet, locomo_set, merged_passages, passage_set
from ..common.tables import Head, Table
from ..common.texts import read_passage_sets
from ..context.facts import LITERAL, PARAPHRASED
from ..context.needles import Essay, place_needles, read_essays
from ..request import Judged, Request
from .collections import read_chat_sets, read_collections
from .long_texts import long_text_sets, read_asked, read_long_texts
from .promise import hold_against, kind_table, set_table

__all__ = [
    "claim_set",
    "fit_sets",
    "format_all",
    "judge",
    "needle_set",
    "read_sets",
    "sets_of",
    "shares_of",
]
_CONVERSATIONS, _KINDS = "other conversations", "other kinds"
_LITERAL, _PARAPHRASED = 20, 21  # numbers of kinds of questions
_SUPPORTED, _REFUTED = 30, 31
_CHUNK = 96  # encoder pieces of a chunk of an essay, as the judge of contexts cuts them
_CLAIMS = 200
_ENOUGH = 100  # questions of a source; smaller sources count less in learning


def judge(request: Request, *, resamples: int = 2000) -> Judged:
    """Run presets and every baseline on every set below a data root.

    With `cv` there are two more rows, for the preset and for the linear formula. Their fit uses the
    other conversations of the set and all sets of other kinds of data, each set counting alike.

    Args:
        request: Evaluation request.
        resamples: Number of resamples of the intervals.

    Returns:
        Report (see `bench/quality/README.md`) with its table.

    Raises:
        InputError: No set, an invalid one, or `cv` with sets of one source.
        ConfigError: Unknown preset.
    """
    presets, encoders = request.presets, load_encoders(request)
    sets = sets_of(request, encoders)
    sources = frozenset[str]().union(*(one.sources for one in sets))
    if request.cv and len(sources) < 2:
        raise InputError(
            f"cv: expected sets of at least 2 sources to leave one out, got {sorted(sources)}; "
            "leave out --cv",
            where=str(request.data),
        )
    rankings: list[dict[str, Any]] = []
    found: dict[str, Any] = {}
    built: list[BuiltSet] = []
    for asked in sets:
        built.append(build(asked, presets, encoders, request.device, request.progress))
        if not request.cv:
            none: list[dict[str, Sequence[Fit]]] = [{} for _ in presets]
            found[asked.name] = _compared(built[-1], none, encoders, request, resamples, rankings)
            built.pop().close()
            _tell(request, sets, found)
    # Fitting to other sets needs all of them at once.
    elsewhere: dict[tuple[int, tuple[str, ...]], Fit] = {}
    for one in Progress(built, "sets", shown=request.progress):
        with caching(encoders):
            fits = [dict(_fits(one, built, place, elsewhere)) for place in range(len(presets))]
        found[one.questions.name] = _compared(one, fits, encoders, request, resamples, rankings)
        _tell(request, sets, found)
    report = _report(request, sets, found)
    tables = [format_all(report), set_table(report), kind_table(report)]
    return Judged(report, tables, rankings)


def _report(
    request: Request, sets: Sequence[QuestionSet], found: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the report on the sets that have been asked."""
    asked = [one for one in sets if one.name in found]
    report = framed(
        "all",
        request.presets,
        request.seed,
        n={one.name: found[one.name]["n"][next(iter(one.groups))] for one in asked},
        columns=[column for one in asked for column in _columns(one)],
        sets=found,
    )
    report["config"]["eval"] = {"cv": request.cv}
    report["promise"] = hold_against(asked, report)
    return report


def _tell(request: Request, sets: Sequence[QuestionSet], found: Mapping[str, Any]) -> None:
    """Show intermediate results: a run takes long and may be stopped."""
    if request.progress and len(found) < len(sets):
        tqdm.write(f"{format_all(_report(request, sets, found))}\n", file=sys.stderr)


def sets_of(request: Request, encoders: Sequence[CachingEmbedder]) -> list[QuestionSet]:
    """Return the sets of a request, essays cut as its first preset cuts them; see `read_sets`.

    Args:
        request: Evaluation request.
        encoders: Encoders of its presets.
    """
    named = request.presets[0].embedder.chunk_tokenizer
    tokenizer = get_tokenizer(named) if named else encoders[0].tokenizer
    return read_sets(Path(request.data), tokenizer, request.seed)


def read_sets(root: Path, tokenizer: Tokenizer, seed: int = 0) -> list[QuestionSet]:
    """Return every set below a data root, the small ones first.

    A LoCoMo file in `locomo` (with `*evidence*.jsonl` beside it, if there is one) as turns and with
    its facts; passages anywhere, each pair of files and all merged; needles in the texts of `text`,
    and questions to chunks of long ones; claims in `claims`, to be asked for their evidence; chats
    in `longmemeval`; collections in BEIR form in the folders of `ir`, chats of people in those of
    `chats`.

    Args:
        root: Path of the folder.
        tokenizer: Tokenizer of the length of chunks.
        seed: Seed of the order of texts and needles, and of the sampled claims.

    Raises:
        InputError: No set, or an invalid one.
    """
    sets: list[QuestionSet] = []
    folder = root / "locomo"
    if folder.is_dir():
        evidence = find_evidence(folder)
        sets += [
            locomo_set(folder, evidence=evidence, input=input) for input in ("raw", "observations")
        ]
    if (root / "text").is_dir() and any((root / "text").rglob("*.txt")):
        sets.append(needle_set(read_essays(root), tokenizer, seed))
    if (root / "text").is_dir():
        long = read_asked()
        names = list(dict.fromkeys(one.text for one in long))
        sets += long_text_sets(read_long_texts(root / "text", names), long, tokenizer)
    if (root / "claims").is_dir():
        sets.append(claim_set(read_claims(root / "claims"), seed))
    passages = [passage_set(one) for one in read_passage_sets(root)]
    passages.sort(key=_size)
    sets += passages
    folder = root / "longmemeval"
    if folder.is_dir() and find_chats(folder) is not None:
        sets.append(read_chats(folder))
    if len(passages) > 1:
        sets.append(merged_passages(passages))
    sets += read_collections(root / "ir")
    sets += read_chat_sets(root / "chats", tokenizer)
    if not sets:
        raise InputError(
            "expected LoCoMo in locomo, passages (NAME_corpus.jsonl with NAME_queries.jsonl) or "
            "texts in text, claims in claims, chats in longmemeval or chats, or collections in ir, "
            "found none of them; name the folder above them",
            where=str(root),
        )
    return sets


def needle_set(essays: Sequence[Essay], tokenizer: Tokenizer, seed: int) -> QuestionSet:
    """Return sentences hidden in the chunks of essays, with questions for the chunk of each.

    Literal needles are asked for in their own words, paraphrased ones in others. A needle that two
    chunks share is found if both are.
    """
    chance = random.Random(seed)
    needles = [*((_LITERAL, one) for one in LITERAL), *((_PARAPHRASED, one) for one in PARAPHRASED)]
    chance.shuffle(needles)
    depths = [place / (len(needles) - 1) for place in range(len(needles))]
    length = sum(sum(essay.tokens) for essay in essays)
    order = chance.sample(list(essays), len(essays))
    texts = place_needles(order, length, depths, [needle for _, needle in needles])
    atoms: list[Atom] = []
    gold: dict[str, tuple[str, ...]] = {}
    for name, text in texts:
        chunks = list(document_atoms(text, name=name, tokenizer=tokenizer, max_tokens=_CHUNK))
        atoms += chunks
        for _, needle in needles:
            start = text.find(needle.text)
            if start >= 0:
                end = start + len(needle.text)
                gold[needle.text] = tuple(
                    chunk.id
                    for chunk in chunks
                    if chunk.meta["start"] < end and start < chunk.meta["end"]
                )
    questions = tuple(Question(one.question, kind, gold[one.text]) for kind, one in needles)
    return QuestionSet(
        "needles",
        (Conversation("needles", tuple(atoms), questions),),
        kind="chunk",
        groups={
            "all": (_LITERAL, _PARAPHRASED),
            "literal": (_LITERAL,),
            "paraphrased": (_PARAPHRASED,),
        },
        cutoffs=(1, 5, 10, 25),
        at=1,
        sources=frozenset({"needles"}),
        data_kind="needles",
    )


def claim_set(claims: Sequence[Mapping[str, Any]], seed: int) -> QuestionSet:
    """Return claims whose evidence is searched among all sentences, refuted claims included.

    At most 200 claims are asked, no two with the same evidence.
    """
    names: dict[str, str] = {}
    for claim in claims:
        for sentence in claim["evidence"]:
            names.setdefault(sentence, f"claims:{len(names)}")
    drawn: dict[tuple[str, ...], Mapping[str, Any]] = {}
    for claim in random.Random(seed).sample(list(claims), len(claims)):
        drawn.setdefault(tuple(claim["evidence"]), claim)
    questions = tuple(
        Question(
            claim["claim"],
            _SUPPORTED if claim["label"] == "SUPPORTED" else _REFUTED,
            tuple(dict.fromkeys(names[sentence] for sentence in claim["evidence"])),
        )
        for claim in list(drawn.values())[:_CLAIMS]
    )
    atoms = tuple(Atom(name, sentence, kind="evidence") for sentence, name in names.items())
    return QuestionSet(
        "claims",
        (Conversation("claims", atoms, questions),),
        kind="evidence",
        groups={
            "all": (_SUPPORTED, _REFUTED),
            "supported": (_SUPPORTED,),
            "refuted": (_REFUTED,),
        },
        at=5,
        sources=frozenset({"claims"}),
        data_kind="evidence",
    )


def _size(asked: QuestionSet) -> int:
    return sum(len(one.atoms) for one in asked.conversations)


def _fits(
    one: BuiltSet,
    built: Sequence[BuiltSet],
    place: int,
    elsewhere: dict[tuple[int, tuple[str, ...]], Fit],
) -> Iterator[tuple[str, Sequence[Fit]]]:
    """Yield the fits of a preset to other conversations of the set, and to other sets.

    `elsewhere` caches the latter: sets of one source are left out together.
    """
    preset = one.presets[place]
    if len(one.own) > 1:
        yield _CONVERSATIONS, leave_one_out(preset.tasks, one.ground.tasks, preset.config)
    # Merged sets repeat the content of their parts.
    others = [
        other
        for other in built
        if other.questions.sources.isdisjoint(one.questions.sources)
        and (other.questions.data_kind != one.questions.data_kind or not one.questions.data_kind)
        and len(other.questions.sources) == 1
    ]
    if not others:
        return
    key = place, tuple(other.questions.name for other in others)
    if key not in elsewhere:
        # The table compares rankings: the gate stays unchanged.
        elsewhere[key] = fit_sets(others, place, gate=False)
    yield _KINDS, [elsewhere[key]] * len(one.own)


def fit_sets(sets: Sequence[BuiltSet], place: int = 0, *, gate: bool = True) -> Fit:
    """Fit a preset to some sets, each source of 100 or more questions counting alike.

    Args:
        sets: Sets, each of one source.
        place: Index of the preset.
        gate: Whether to fit the gate, too.
    """
    shares = shares_of(sets)
    own = [task for other in sets for task in other.presets[place].tasks]
    shared = all(other.presets[place] is other.ground for other in sets)
    ground = own if shared else [task for other in sets for task in other.ground.tasks]
    return fit_all(own, ground, sets[0].presets[place].config, shares, gate=gate)


def shares_of(sets: Sequence[BuiltSet]) -> list[float]:
    """Return the weight of a question of each memory; each source of 100 or more counts alike."""
    alike = [sum(o.questions.sources == other.questions.sources for o in sets) for other in sets]
    return [
        1.0 / (times * max(_ENOUGH, len(other.categories)))
        for other, times in zip(sets, alike, strict=True)
        for _ in other.own
    ]


def _compared(
    one: BuiltSet,
    fits: Sequence[Mapping[str, Sequence[Fit]]],
    encoders: Sequence[CachingEmbedder],
    request: Request,
    resamples: int,
    rankings: list[dict[str, Any]],
) -> dict[str, Any]:
    return compare(
        one,
        [{**plain, **own} for plain, own in zip(one.shipped, fits, strict=True)],
        encoders,
        request,
        rankings,
        resamples=resamples,
    )


def _columns(asked: QuestionSet) -> Iterator[dict[str, Any]]:
    """Yield the figures that represent a set: its first group's measure, recall of sessions."""
    group = next(iter(asked.groups))
    title = asked.name if group == "all" else f"{asked.name} {group}"
    if asked.measure == "ndcg":
        title = f"{title} nDCG"
    shared = {"set": asked.name, "group": group, "k": asked.at}
    yield {
        "title": f"{title} @{asked.at}",
        "of": "systems",
        "measure": asked.measure,
        "data_kind": asked.data_kind,
        **shared,
    }
    if any(question.sessions for one in asked.conversations for question in one.questions):
        yield {"title": f"sessions @{asked.at}", "of": "sessions", "measure": "recall", **shared}


def format_all(report: Mapping[str, Any]) -> Table:
    """Format measures in percent, a line for each system, and list systems that beat the preset."""
    subject, columns = report["preset"], report["columns"]
    found = dict.fromkeys(
        name for column in columns for name in report["sets"][column["set"]][column["of"]]
    )
    names = [name for name in found if name != subject] + [subject]
    heads = [Head("recall or nDCG, %"), *(Head(column["title"], _shown) for column in columns)]
    rows = [["n", *(report["n"][column["set"]] for column in columns)]]
    rows += [[name, *(_cell(report, column, name) for column in columns)] for name in names]
    lines = [""]
    for column in columns:
        better = [f"{name} {gain(value)}" for name, value in _better(report, column)]
        said = (
            f"{subject} is beaten by {', '.join(better)}" if better else f"{subject} is not beaten"
        )
        lines.append(f"{column['title']}: {said}")
    return Table(heads, rows, lines)


def _cell(report: Mapping[str, Any], column: Mapping[str, Any], name: str) -> float | None:
    figures = report["sets"][column["set"]][column["of"]].get(name, {})
    value = figures.get(column["measure"], {}).get(column["group"], {}).get(str(column["k"]))
    assert value is None or isinstance(value, float)
    return value


def _shown(value: float | None) -> str:
    """Return a count, or a share in percent; empty for None."""
    if isinstance(value, int):
        return str(value)
    return "" if value is None else percent(value)


def _better(
    report: Mapping[str, Any], column: Mapping[str, Any]
) -> Iterator[tuple[str, list[float]]]:
    """Yield the systems above the preset, with the interval of the difference."""
    figures = report["sets"][column["set"]][column["of"]][report["preset"]]
    for name, groups in figures["ci"]["difference"].items():
        less = groups[column["group"]][str(column["k"])]
        if less is not None and less[2] < 0:
            yield name, [-less[0], -less[2], -less[1]]
