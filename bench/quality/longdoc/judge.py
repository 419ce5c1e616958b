"""The judge of long documents: the segment graph against flat retrieval (`docs/mathematics.md` 3).

The protocol is that of Segment-Graph Retrieval Memory, section 6: recall@k of the relevant chunks,
answers with and without the graph, ablation over k, chunk size and summariser.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tqdm import tqdm

from graphmem_torch.config import Config, config_to_dict
from graphmem_torch.errors import InputError
from graphmem_torch.text.embedders import load_embedder

from ..common.measure import code_version
from ..common.remember import RememberingEmbedder
from ..common.tables import aligned, gain, mean_range, percent
from ..request import Judged, Request
from .answers import Reader, SmallReader, judge_answers
from .documents import Chunked, Collection, chunk_document, read_collections
from .edge import judge_orthogonal
from .prompts import judge_prompts
from .retrieval import ablate, compare

__all__ = ["format_longdoc", "judge", "judge_collection"]
_FIGURES = (
    ("recall", "5"),
    ("recall", "10"),
    ("recall", "20"),
    ("evidence", "512"),
    ("evidence", "1024"),
    ("evidence", "2048"),
    ("complete", "2048"),
    ("answer", "2048"),
)
_TITLES = tuple(f"{name}@{at}" for name, at in _FIGURES)


def format_longdoc(report: Mapping[str, Any]) -> str:
    """For each collection the systems, the ablation, the prompts and the answers; percent."""
    subject, lines = report["preset"], []
    for name, found in report["collections"].items():
        size = found["size"]
        lines += [
            f"{name} ({found['kind']}): {size['questions']} questions about {size['documents']} "
            f"documents, {size['chunks']:,} chunks, {size['tokens']:,} tokens",
            *_systems(found, subject),
            "",
        ]
        if found["ablation"]:
            lines += ["one setting changed (* the preset's own)", *_ablation(found), ""]
        lines += ["evidence kept in the prompt, by summariser", *_prompts(found["prompts"]), ""]
        if found["answers"]:
            lines += [*_answers(found["answers"]), ""]
    if report["reader"]["not_run"]:
        lines += [f"answers not run: {report['reader']['not_run']}", ""]
    for name, case in (report["orthogonal"] or {}).items():
        lines.append(
            f"chunks {name} (largest cosine {case['largest_cosine']:.2f}): "
            f"{case['similarity_edges']} similarity edges; "
            + ("only chronological context is retrieved" if case["holds"] else "FAILED")
        )
    return "\n".join(lines).rstrip()


def _systems(found: Mapping[str, Any], subject: str) -> list[str]:
    rows = [["system", *_TITLES, f"{subject} minus, recall@10", "evidence@1024"]]
    for name, figures in found["systems"].items():
        more = found["difference"].get(name, {})
        rows.append(
            [
                name,
                *_figures(figures),
                gain(more.get("recall", {}).get("10")),
                gain(more.get("evidence", {}).get("1024")),
            ]
        )
    return aligned(rows)


def _ablation(found: Mapping[str, Any]) -> list[str]:
    rows = [["setting", *_TITLES]]
    for setting, values in found["ablation"].items():
        for value, figures in values.items():
            mark = " *" if figures.get("own") else ""
            rows.append([f"{setting} {value}{mark}", *_figures(figures)])
    return aligned(rows)


def _prompts(found: Mapping[str, Any]) -> list[str]:
    budgets = list(next(iter(found.values()))["kept"])
    columns = [(name, at) for name in ("kept", "answer") for at in budgets]
    rows = [["summariser", *(f"{name}@{at}" for name, at in columns), "over budget"]]
    for name, figures in found.items():
        cells = [percent(figures[key][at]) for key, at in columns]
        rows.append([name, *cells, str(figures["over_budget"])])
    return aligned(rows)


def _answers(found: Mapping[str, Any]) -> list[str]:
    rows = [["given", "token F1", "holds the answer"]]
    for name, figures in found["given"].items():
        rows.append([name, mean_range(figures["f1"]), mean_range(figures["contains"])])
    more = found["graph_minus_flat"]
    rows.append(["graph minus flat", gain(more["f1"]), gain(more["contains"])])
    return [
        f"answers of a small language model to {found['n']} questions, prompts of "
        f"{found['budget']} tokens",
        *aligned(rows),
    ]


def _figures(figures: Mapping[str, Any]) -> list[str]:
    return [percent(figures[name][at]) for name, at in _FIGURES]


_TOKEN_DIM = 128  # the baseline `default` reads token vectors, whatever the preset does


def judge(request: Request) -> Judged:
    """Everything on every collection found in the folder `request.data`.

    Raises:
        InputError: Nothing to make documents of, or data that cannot be read.
    """
    config = request.settings
    device = "cpu" if request.device == "auto" else request.device
    encoder = RememberingEmbedder(
        load_embedder(
            config.embedder.name if request.embedder is None else request.embedder,
            device,
            token_dim=_TOKEN_DIM,
        )
    )
    reader, why = _reader()
    found = {}
    bar = tqdm(
        read_collections(request.data, request.seed),
        desc="collections",
        disable=not request.progress,
    )
    for collection in bar:
        with encoder.remembering():
            found[collection.name] = judge_collection(
                collection, config, encoder, device=device, reader=reader, seed=request.seed
            )
    report = {
        "dataset": "longdoc",
        "preset": config.name,
        "commit": code_version(),
        "n": {name: result["size"] for name, result in found.items()},
        "collections": found,
        "orthogonal": judge_orthogonal(config, request.seed) if config.segment.retrieve else None,
        "reader": {"name": None if reader is None else reader.name, "not_run": why},
        "config": config_to_dict(config),
        "seed": request.seed,
    }
    return Judged(report, format_longdoc(report))


def judge_collection(
    collection: Collection,
    config: Config,
    encoder: RememberingEmbedder,
    *,
    device: str,
    reader: Reader | None,
    seed: int,
) -> dict[str, Any]:
    """Retrieval, ablation, prompts and (with a reader) answers on one collection."""
    cases = [chunk_document(each, config, encoder, device) for each in collection.documents]
    judged = compare(cases, subject=config.name, embedder=encoder, device=device, seed=seed)
    answers = None
    if reader is not None:
        answers = judge_answers(cases, reader, config=config, embedder=encoder, seed=seed)
    return {
        "kind": collection.kind,
        "size": _size(cases),
        **judged,
        "ablation": ablate(cases, config=config, embedder=encoder, device=device),
        "prompts": judge_prompts(cases),
        "answers": answers,
    }


def _size(cases: Sequence[Chunked]) -> dict[str, int]:
    return {
        "documents": len(cases),
        "questions": sum(len(case.questions) for case in cases),
        "chunks": sum(len(case.atoms) for case in cases),
        "tokens": sum(int(case.costs.sum()) for case in cases),
    }


def _reader() -> tuple[SmallReader | None, str | None]:
    """The small language model, or why there is none."""
    try:
        return SmallReader(), None
    except InputError as error:
        return None, str(error)
