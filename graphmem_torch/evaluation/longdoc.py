"""The judge of long documents: the segment graph held against flat retrieval (`mathematics.md` 3).

The protocol is that of Segment-Graph Retrieval Memory, section 6: recall@k of the relevant chunks,
answers with and without the graph, ablation over k, chunk size and summariser.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tqdm import tqdm

from graphmem_torch.config import Config, config_to_dict
from graphmem_torch.errors import InputError
from graphmem_torch.evaluation.longdoc_answers import Reader, judge_answers
from graphmem_torch.evaluation.longdoc_chunks import Chunked, chunk_document
from graphmem_torch.evaluation.longdoc_documents import Collection, read_collections
from graphmem_torch.evaluation.longdoc_edge import judge_orthogonal
from graphmem_torch.evaluation.longdoc_prompts import judge_prompts
from graphmem_torch.evaluation.longdoc_reader import SmallReader
from graphmem_torch.evaluation.longdoc_retrieval import ablate, compare
from graphmem_torch.evaluation.longdoc_table import format_longdoc
from graphmem_torch.evaluation.measure import code_version
from graphmem_torch.evaluation.remember import RememberingEmbedder
from graphmem_torch.evaluation.request import Judged, Request
from graphmem_torch.text.embed import load_embedder

__all__ = ["judge", "judge_collection"]

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
