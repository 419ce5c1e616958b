"""Judge of a user's own data: presets and all baselines on files and labelled questions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from graphmem_torch.atoms import Atom
from graphmem_torch.config import Config
from graphmem_torch.errors import InputError
from graphmem_torch.evaluation.metrics import MEASURES
from graphmem_torch.evaluation.retrieval import RetrievalReport, mean_range, measure_rankings
from graphmem_torch.memory import Memory
from graphmem_torch.progress import Progress
from graphmem_torch.readers.read import check_paths, read_atoms
from graphmem_torch.text.embedder import Embedder

from ..common.compare import KEPT, build, by_question, ranking_rows, systems_of
from ..common.encoder import CachingEmbedder, caching, load_encoders
from ..common.fitting import Fit
from ..common.measure import framed, latencies, percentiles
from ..common.questions import Conversation, Question
from ..common.scores import gain
from ..common.sets import QuestionSet
from ..common.tables import Head, Table
from ..common.texts import json_rows
from ..request import Judged, Request

__all__ = ["CUTOFFS", "format_questions", "judge", "judge_questions", "read_questions"]
CUTOFFS: tuple[int, ...] = (5, 10, 25)
"""Numbers of hits of the measures."""

_COLUMNS = (("recall", 5), ("recall", 10), ("recall", 25), ("complete", 10), ("ndcg", 10))
_TIMED = 20  # questions whose latency is measured


def judge(request: Request, *, resamples: int = 2000) -> Judged:
    """Run presets and their ingredients on the files and the questions of a request.

    The files are those that `graphmem index` accepts. Every atom of them is a candidate, with
    chunks of the first preset's size.

    Raises:
        InputError: Files that cannot be read, a line of questions without its fields, or evidence
            that the files do not have.
    """
    if request.questions is None:
        raise InputError("questions: expected a file of JSON lines, got none; give --questions")
    encoders = load_encoders(request)
    atoms = _read(request.data, request.presets[0], encoders[0], request.device)
    questions = read_questions(request.questions, {atom.id for atom in atoms})
    conversation = Conversation(request.data.name, tuple(atoms), tuple(questions))
    return judge_questions(
        request,
        "custom",
        conversation,
        encoders,
        cutoffs=CUTOFFS,
        columns=_COLUMNS,
        resamples=resamples,
    )


def judge_questions(
    request: Request,
    dataset: str,
    conversation: Conversation,
    encoders: Sequence[CachingEmbedder],
    *,
    cutoffs: Sequence[int],
    columns: Sequence[tuple[str, int]],
    resamples: int,
    counts: Mapping[str, int] | None = None,
    without_own: bool = False,
) -> Judged:
    """Run presets and every baseline on one collection of atoms, all of them candidates.

    Args:
        request: Evaluation request.
        dataset: Name of the judge.
        conversation: Atoms, and the questions about them.
        encoders: One for each preset of the request.
        cutoffs: Numbers of hits of the measures.
        columns: Measures and cut-offs of the table; the preset's gain is in the second.
        resamples: Number of resamples of the intervals.
        counts: Further counts for the report.
        without_own: Whether the atom with a question's own id is removed from its ranking.
    """
    presets, atoms = request.presets, list(conversation.atoms)
    asks = QuestionSet(dataset, (conversation,), kind=None, groups={"all": (1,)})
    built = build(asks, presets, encoders, request.device, request.progress)
    own = {one.config.name: one.tasks[0] for one in built.presets}
    ground = built.ground.tasks[0]
    depth = max(*cutoffs, KEPT) if request.rankings else max(cutoffs)
    # Without sessions, who stands next to whom is the order of a file.
    left_out = set() if bool((ground.session >= 0).any()) else {"fusion_neighbours"}
    grades = [question.grades for question in conversation.questions]
    names = [question.id for question in conversation.questions]
    reports: dict[str, RetrievalReport] = {}
    rankings: list[dict[str, Any]] = []
    systems = systems_of(
        {name: (task, {"": Fit.shipped(task.memory.config)}) for name, task in own.items()},
        ground,
        depth=depth + without_own,
    )
    with caching(encoders):
        for name, system in Progress(list(systems), "systems", shown=request.progress):
            if name in left_out:
                continue
            answer = system(ground.questions)
            if without_own:
                answer = answer.without(ground.ids, names)
            ranked = [[ground.ids[i] for i in row if i >= 0] for row in answer.ranking.tolist()]
            reports[name] = measure_rankings(
                ranked,
                ground.questions,
                grades,
                k=cutoffs,
                seed=request.seed,
                resamples=resamples,
            )
            if request.rankings:
                rankings += ranking_rows(ground, names, name, answer, preset=name in own)
    subject = reports[presets[0].name]
    timed = request.chance.sample(ground.questions, min(_TIMED, len(ground.questions)))
    gains = {
        preset: {
            name: reports[preset].minus(found) for name, found in reports.items() if name != preset
        }
        for preset in own
    }
    asked = [question for question in conversation.questions if question.grades]
    report = framed(
        dataset,
        presets,
        request.seed,
        n={
            "atoms": len(atoms),
            "questions": len(subject.questions),
            "without_evidence": len(subject.without_evidence),
            **(counts or {}),
        },
        made_with=built.made_with(),
        systems={
            name: {measure: dict(found.intervals[measure]) for measure in MEASURES}
            for name, found in reports.items()
        },
        difference=gains[presets[0].name],
        **({"differences": gains} if len(gains) > 1 else {}),
        latency_ms=percentiles(latencies(own[presets[0].name].memory.retrieve, timed)),
        without_evidence=[q.id for q in conversation.questions if not q.grades],
    )
    values = {
        name: {
            f"{measure}@{k}": found.values[measure][:, place]
            for measure in ("recall", "ndcg")
            for place, k in enumerate(found.cutoffs)
            if k == 10
        }
        for name, found in reports.items()
    }
    report["by_question"] = by_question([each.id for each in asked], asked, values)
    built.close()
    return Judged(report, format_questions(report, columns), rankings)


def read_questions(path: Path, known: set[str]) -> list[Question]:
    """Read the questions of JSON lines with `question` and `evidence`, a list of ids.

    The id of a question is its `id` (`_id`) if it has one, else its text.

    Args:
        path: Path of the file.
        known: Ids of the atoms.

    Raises:
        InputError: Line without its fields, with an unknown atom id, or with the id of another
            question; an empty file.
    """
    questions: list[Question] = []
    times: dict[str, int] = {}
    places: dict[str, str] = {}
    for row, where in json_rows(path, ("question", "evidence")):
        text, ids = row["question"], row["evidence"]
        if not isinstance(text, str) or not text.strip():
            raise InputError(f"question: expected a text, got {text!r:.80}; add it", where=where)
        if not isinstance(ids, list) or not all(isinstance(name, str) for name in ids):
            raise InputError(
                f"evidence: expected a list of ids, got {ids!r:.80}; add it", where=where
            )
        missing = [name for name in ids if name not in known]
        if missing:
            raise InputError(
                f"evidence: expected ids of the atoms, got {missing[0]!r}, which none has; "
                "`graphmem query --json` shows ids",
                where=where,
            )
        name = row.get("id", row.get("_id"))
        if name is None:
            times[text] = times.get(text, 0) + 1
            name = text if times[text] == 1 else f"{text} ({times[text]})"
        elif isinstance(name, bool) or not isinstance(name, (str, int)) or name == "":
            raise InputError(
                f"id: expected a text or a number, got {name!r:.80}; correct it", where=where
            )
        name = str(name)
        if places.setdefault(name, where) != where:
            raise InputError(
                f"id: expected another for each question, got {name!r:.80}, which {places[name]} "
                "has; rename one of them",
                where=where,
            )
        # One conversation of one category: LoCoMo's numbers mean nothing here.
        questions.append(Question(text, 1, tuple(dict.fromkeys(ids)), id=name))
    return questions


def _read(path: Path, config: Config, encoder: Embedder, device: str) -> list[Atom]:
    """Read the atoms of a file or folder, in chunks of the preset's size."""
    check_paths([path])
    with Memory.open(None, config=config, embedder=encoder, device=device) as memory:
        size = config.embedder.max_tokens
        atoms = list(read_atoms([path], tokenizer=memory._state.chunker, max_tokens=size))
    if not atoms:
        raise InputError("expected atoms, got none; name another file", where=str(path))
    return atoms


def format_questions(report: Mapping[str, Any], columns: Sequence[tuple[str, int]]) -> Table:
    """Return a line for each system: some measures, and the first preset's gain in the second."""
    subject, counts = report["preset"], report["n"]
    measure, k = columns[1]
    heads = [
        Head("system"),
        *(Head(f"{_TITLES.get(name, name)}@{at}", mean_range) for name, at in columns),
        Head(f"{subject} minus it, {_TITLES.get(measure, measure)}@{k}", gain),
    ]
    rows = [
        [
            name,
            *(figures[name_][str(at)] for name_, at in columns),
            report["difference"].get(name, {}).get(measure, {}).get(str(k)),
        ]
        for name, figures in report["systems"].items()
    ]
    notes = [f"{counts['questions']} questions about {counts['atoms']:,} atoms; %, [95 % interval]"]
    if counts["without_evidence"]:
        notes.append(f"questions without evidence, left out: {counts['without_evidence']}")
    notes += [f"{told}: {counts[name]}" for name, told in _COUNTED.items() if counts.get(name)]
    return Table(heads, rows, notes)


_COUNTED = {
    "unjudged": "questions that nothing was judged for, not asked",
    "absent_documents": "relevant documents that the corpus lacks, not found by any system",
    "absent_queries": "judged queries that the file of queries lacks, not asked",
    "empty": "documents and queries without a text, left out",
    "repeated": "documents judged again for a query, of which the last grade counts",
    "own_documents": "queries that are documents, which are left out of their own rankings",
}
_TITLES = {"ndcg": "nDCG", "map": "MAP", "mrr": "MRR"}
