"""Judge of long documents: the segment graph against flat retrieval (`docs/mathematics.md` 3).

The protocol is that of Segment-Graph Retrieval Memory, section 6: recall@k of the relevant chunks,
answers with and without the graph, ablation over k, chunk size and summariser. Its edge case (5 F)
is a document whose chunks have orthogonal vectors: there must be no similarity edge, and exactly
the chunks up to L places before and after are returned.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from graphmem_torch.atoms import EdgeType
from graphmem_torch.config import Config, load_config
from graphmem_torch.errors import InputError
from graphmem_torch.evaluation.retrieval import mean_range, text_table
from graphmem_torch.memory import Memory
from graphmem_torch.progress import Progress
from graphmem_torch.text.embedder import Encoded
from graphmem_torch.text.tokens import Tokenizer, WordTokenizer

from ..common.encoder import CachingEmbedder, load_encoder
from ..common.run import Run
from ..common.scores import gain, percent
from ..request import Judged, Request
from .chunked import Chunked, chunk_document
from .documents import Collection, read_collections
from .prompts import judge_prompts
from .reader import Reader, SmallReader, judge_answers
from .retrieval import ABLATIONS, PRESETS, ablate, compare

__all__ = [
    "GivenEmbedder",
    "format_longdoc",
    "judge",
    "judge_collection",
    "judge_orthogonal",
    "judge_unlike",
]
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
    """Format systems, ablation, prompts and answers of each collection, in percent."""
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
    return text_table(rows)


def _ablation(found: Mapping[str, Any]) -> list[str]:
    rows = [["setting", *_TITLES]]
    for setting, values in found["ablation"].items():
        for value, figures in values.items():
            mark = " *" if figures.get("own") else ""
            rows.append([f"{setting} {value}{mark}", *_figures(figures)])
    return text_table(rows)


def _prompts(found: Mapping[str, Any]) -> list[str]:
    budgets = list(next(iter(found.values()))["kept"])
    columns = [(name, at) for name in ("kept", "answer") for at in budgets]
    rows = [["summariser", *(f"{name}@{at}" for name, at in columns), "over budget"]]
    for name, figures in found.items():
        cells = [percent(figures[key][at]) for key, at in columns]
        rows.append([name, *cells, str(figures["over_budget"])])
    return text_table(rows)


def _answers(found: Mapping[str, Any]) -> list[str]:
    rows = [["given", "token F1", "holds the answer"]]
    for name, figures in found["given"].items():
        rows.append([name, mean_range(figures["f1"]), mean_range(figures["contains"])])
    more = found["graph_minus_flat"]
    rows.append(["graph minus flat", gain(more["f1"]), gain(more["contains"])])
    return [
        f"answers of a small language model to {found['n']} questions, prompts of "
        f"{found['budget']} tokens",
        *text_table(rows),
    ]


def _figures(figures: Mapping[str, Any]) -> list[str]:
    return [percent(figures[name][at]) for name, at in _FIGURES]


_TOKEN_DIM = 128  # the baseline `default` reads token vectors, whatever the preset does


def judge(
    request: Request,
    *,
    presets: Sequence[Config] | None = None,
    ablations: Mapping[str, Sequence[float]] = ABLATIONS,
    reader: Callable[[], Reader] = SmallReader,
) -> Judged:
    """Judge every collection found in the folder `request.data`.

    Args:
        request: Evaluation request.
        presets: Presets that it is compared with; the shipped `PRESETS` by default.
        ablations: Settings that are varied one at a time, and their values.
        reader: Loader of the language model that answers; its `InputError` tells why there is none.

    Raises:
        InputError: No source of documents, or unreadable data.
    """
    run = Run(request)
    config = run.config
    device = "cpu" if request.device == "auto" else request.device
    encoder = load_encoder(request, device=device, token_dim=_TOKEN_DIM)
    presets = [load_config(name) for name in PRESETS] if presets is None else presets
    model, why = _loaded(reader)
    found = {}
    bar = Progress(
        read_collections(request.data, request.seed), "collections", shown=request.progress
    )
    for collection in bar:
        with encoder.caching():
            found[collection.name] = judge_collection(
                collection,
                config,
                encoder,
                device=device,
                presets=presets,
                ablations=ablations,
                reader=model,
                seed=request.seed,
            )
    return run.judged(
        "longdoc",
        format_longdoc,
        n={name: result["size"] for name, result in found.items()},
        collections=found,
        orthogonal=judge_orthogonal(config, request.seed) if config.segment.retrieve else None,
        reader={"name": getattr(model, "name", None), "not_run": why},
    )


def judge_collection(
    collection: Collection,
    config: Config,
    encoder: CachingEmbedder,
    *,
    device: str,
    presets: Sequence[Config],
    ablations: Mapping[str, Sequence[float]],
    reader: Reader | None,
    seed: int,
) -> dict[str, Any]:
    """Measure retrieval, ablation, prompts and (with a reader) answers on one collection."""
    cases = [chunk_document(each, config, encoder, device) for each in collection.documents]
    shared: dict[str, Any] = {"embedder": encoder, "device": device}
    judged = compare(cases, subject=config.name, seed=seed, presets=presets, **shared)
    answers = None
    if reader is not None:
        answers = judge_answers(cases, reader, config=config, embedder=encoder, seed=seed)
    return {
        "kind": collection.kind,
        "size": _size(cases),
        **judged,
        "ablation": ablate(cases, config=config, ablations=ablations, **shared),
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


def _loaded(reader: Callable[[], Reader]) -> tuple[Reader | None, str | None]:
    """Return the language model, or the reason why there is none."""
    try:
        return reader(), None
    except InputError as error:
        return None, str(error)


_CHUNKS = 60
_WIDTH = 384  # width of the nearly orthogonal vectors: MiniLM's
_NUMBER = re.compile(r"\d+")


class GivenEmbedder:
    """Embedder whose vector of a text is the row that its first number names."""

    def __init__(self, rows: Tensor) -> None:  # [n, d], unit
        self._rows = rows
        self.dim = rows.shape[1]
        self.token_dim = 0
        self.num_pieces = 0
        self.name = f"given:{len(rows)}"
        self.fingerprint = self.name
        self.tokenizer: Tokenizer = WordTokenizer()
        self.window = 254

    def encode(self, texts: Sequence[str], *, progress: bool = False) -> Encoded:
        """See `Embedder.encode`."""
        numbers = [int(_NUMBER.findall(text)[0]) for text in texts]
        return Encoded(self._rows[torch.tensor(numbers, dtype=torch.int64)])


def judge_orthogonal(config: Config, seed: int) -> dict[str, Any]:
    """Judge both documents under the settings of a segment graph, by name."""
    drawn = torch.randn(_CHUNKS, _WIDTH, generator=torch.Generator().manual_seed(seed))
    return {
        "orthogonal": judge_unlike(torch.eye(_CHUNKS), config),
        "nearly": judge_unlike(torch.nn.functional.normalize(drawn, dim=1), config),
    }


def judge_unlike(rows: Tensor, config: Config) -> Mapping[str, Any]:  # [n, d], unit
    """Measure retrieval from one seed of a document whose chunks have these vectors.

    Returns:
        Largest cosine of two chunks; number of similarity edges; for each seed chunk the retrieved
        chunks and the expected neighbourhood; and whether everything `holds`.
    """
    count, hops = len(rows), config.segment.hops
    size = config.embedder.max_tokens
    chunks = [" ".join([f"w{i}"] * (size - 1)) + "." for i in range(count)]
    asked = [0, count // 2, count - 1]
    # As published: further seeds would be chunks that are no more like the question than any.
    config = replace(config, segment=replace(config.segment, seeds=1))
    with Memory.open(None, config=config, embedder=GivenEmbedder(rows), device="cpu") as memory:
        memory.add_document("\n\n".join(chunks), name="unlike")
        results = memory.retrieve([f"w{i}" for i in asked], k=count)
        edges = int((memory.store.edges().type == int(EdgeType.SIMILARITY)).sum())
    found = [sorted(int(_NUMBER.findall(hit.text)[0]) for hit in result.hits) for result in results]
    around = [list(range(max(0, i - hops), min(count, i + hops + 1))) for i in asked]
    cosine = (rows @ rows.T).fill_diagonal_(-1.0)
    return {
        "chunks": count,
        "hops": hops,
        "largest_cosine": float(cosine.max()),
        "similarity_edges": edges,
        "asked": asked,
        "retrieved": found,
        "expected": around,
        "holds": found == around and edges == 0,
    }
