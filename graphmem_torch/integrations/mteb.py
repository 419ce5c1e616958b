"""Memory as a search model of `mteb`: `mteb.evaluate(MemorySearch(), tasks)`."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch

from graphmem_torch.atoms import Atom
from graphmem_torch.config import Config, load_config
from graphmem_torch.errors import InputError, optional_import
from graphmem_torch.integrations.framework import check_arguments
from graphmem_torch.memory import Memory
from graphmem_torch.version import __version__

__all__ = ["MemorySearch"]

_BATCH = 64  # queries of one batch
_KIND = "passage"


class MemorySearch:
    """Search model that indexes the corpus of a retrieval task in a memory.

    It implements `mteb.SearchProtocol`. A document is an atom: its title on the first line, and its
    text. If a task restricts the candidates of a query, only they are hits, but others are still
    traversed. A corpus that several subsets of a task share is indexed once.

    Attributes:
        config: Settings of the memory.
        memory: Memory with the corpus indexed last; None before the first.
    """

    def __init__(
        self,
        *,
        preset: str = "default",
        config: Config | None = None,
        embedder: Any = None,
        device: str = "auto",
        **unknown: Any,
    ) -> None:
        """Create the model without a corpus.

        Args:
            preset: Name of a preset, or path of a YAML file.
            config: Settings, instead of a preset.
            embedder: Embedder, see `Memory.open`; by default that of the settings.
            device: Device, see `Memory.open`.
            unknown: Misspelt arguments, for the message.

        Raises:
            InputError: An unknown argument.
            ConfigError: Invalid settings, see `load_config`.
        """
        check_arguments(unknown, ("preset", "config", "embedder", "device"))
        self.config = load_config(preset) if config is None else config
        self.memory: Memory | None = None
        self._embedder, self._device = embedder, device
        self._corpus, self._ids = "", list[str]()  # digest of its content, and ids by row

    @cached_property
    def mteb_model_meta(self) -> Any:
        """Return the metadata that results are filed under: preset, encoder and release.

        Raises:
            MissingPackageError: `mteb` is not installed.
        """
        meta = optional_import("mteb.models", "its tasks", "graphmem-torch[mteb]").ModelMeta
        embedder = self._embedder or self.config.embedder.name
        encoder = getattr(embedder, "name", type(embedder).__name__)
        encoder = embedder if isinstance(embedder, str) else str(encoder)
        name = f"graphmem-torch/{self.config.name}-{encoder.rpartition('/')[2].replace(':', '-')}"
        own = {"name": name, "revision": __version__, "framework": ["PyTorch"]}
        return meta.create_empty(own | {"model_type": ["hybrid"], "use_instructions": False})

    def index(self, corpus: Iterable[Mapping[str, Any]], **_: Any) -> None:
        """Index a corpus in a new memory, which replaces the previous one.

        Documents without text are skipped; nothing could find them.

        Args:
            corpus: Rows with `id`, `text` and optionally `title`.
            _: Further arguments of `mteb`, ignored.

        Raises:
            InputError: Document that is not text, or one id for two different documents.
        """
        named = ((str(row["id"]), _document(row)) for row in corpus)
        atoms = [Atom(id=name, text=text, kind=_KIND) for name, text in named if text.strip()]
        digest = hashlib.sha256()
        for atom in atoms:
            digest.update(f"{atom.id}\0{atom.text}\0".encode("utf-8", "surrogatepass"))
        if digest.hexdigest() == self._corpus:
            return
        self._corpus = ""
        if self.memory is not None:
            self.memory.close()
        self.memory = Memory.open(
            None, config=self.config, embedder=self._embedder, device=self._device
        )
        self.memory.add(atoms)
        ids = list(dict.fromkeys(atom.id for atom in atoms))
        rows = self.memory.tensors.rows(ids).tolist()
        self._ids = [name for _, name in sorted(zip(rows, ids, strict=True))]
        self._corpus = digest.hexdigest()

    def search(
        self,
        queries: Iterable[Mapping[str, Any]],
        *,
        top_k: int,
        top_ranked: Mapping[str, Sequence[str]] | None = None,
        **_: Any,
    ) -> dict[str, dict[str, float]]:
        """Return the scores of the best documents of each query, by id.

        Args:
            queries: Rows with `id`, `text` and optionally `instruction`.
            top_k: Maximum documents of a query. A large corpus may give fewer, because only the
                candidates (`rank.candidates`) are ranked.
            top_ranked: Candidate documents by query id; other queries are unrestricted.
            _: Further arguments of `mteb`, ignored.

        Raises:
            InputError: No corpus is indexed, or a query is not text.
        """
        if self.memory is None:
            raise InputError("search: expected a corpus, got none; call `index` first")
        rows = [(str(row["id"]), _text(row, "instruction")) for row in queries]
        found: dict[str, dict[str, float]] = {}
        for start in range(0, len(rows), _BATCH):
            part = rows[start : start + _BATCH]
            found |= self._search(self.memory, part, top_k, top_ranked or {})
        return found

    def _search(
        self,
        memory: Memory,
        rows: Sequence[tuple[str, str]],
        top_k: int,
        top_ranked: Mapping[str, Sequence[str]],
    ) -> dict[str, dict[str, float]]:
        index, ids = memory.index, self._ids
        if not index.num_atoms:
            return {name: {} for name, _ in rows}
        query = memory.tensors.encode([text for _, text in rows])
        if top_ranked:
            listed = torch.ones(len(rows), index.num_atoms, dtype=torch.bool)
            place = {name: row for row, name in enumerate(ids)}
            for line, (name, _) in zip(listed, rows, strict=True):
                if name in top_ranked:
                    known = [place[each] for each in top_ranked[name] if each in place]
                    line.fill_(False)[known] = True
            query = replace(query, listed=listed.to(query.embedding.device))
        with torch.inference_mode():
            hits = index(query, k=min(top_k, index.num_atoms))
        return {
            name: {ids[row]: score for row, score in zip(*line, strict=True) if row >= 0}
            for (name, _), *line in zip(rows, hits.rows.tolist(), hits.scores.tolist(), strict=True)
        }


def _document(row: Mapping[str, Any]) -> str:
    """Return the title and text of a document."""
    text, title = _text(row), str(row.get("title") or "").strip()
    return f"{title}\n{text}" if title else text


def _text(row: Mapping[str, Any], beside: str = "") -> str:
    """Return the text of a row, followed by another field."""
    text = row["text"]
    if not isinstance(text, str):
        raise InputError(
            f"text: expected a text, got {type(text).__name__} in row {row['id']!r:.60}; choose "
            "tasks of texts, not of images or conversations"
        )
    more = str(row.get(beside) or "").strip() if beside else ""
    return f"{text} {more}" if more else text
