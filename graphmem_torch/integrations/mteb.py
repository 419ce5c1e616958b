"""A memory as a search model of `mteb`: `mteb.evaluate(MemorySearch(), tasks)`."""

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
from graphmem_torch.memory import Memory
from graphmem_torch.version import __version__

__all__ = ["MemorySearch"]

_BATCH = 64  # queries that are asked at once
_KIND = "passage"


class MemorySearch:
    """Indexes the corpus of a retrieval task in a memory, and asks it the queries.

    It fulfils `mteb.SearchProtocol`. A document is an atom: its title, on a line of its
    own, and its text. Where a task names candidates for a query, they alone may be hits, and the
    others may still lead to them. A corpus that several subsets of a task share is indexed once.

    Attributes:
        config: The settings of the memory.
        memory: With the corpus that was indexed last; None before.
    """

    def __init__(
        self,
        *,
        preset: str = "default",
        config: Config | None = None,
        embedder: Any = None,
        device: str = "auto",
    ) -> None:
        """Indexes nothing yet.

        Args:
            preset: Name of a preset, or path of a YAML file.
            config: Settings, instead of a preset.
            embedder: As in `Memory.open`; that of the settings by default.
            device: Likewise.

        Raises:
            ConfigError: As `load_config`.
        """
        self.config = load_config(preset) if config is None else config
        self.memory: Memory | None = None
        self._embedder, self._device = embedder, device
        self._corpus, self._ids = "", list[str]()  # digest of what it holds, and ids by row

    @cached_property
    def mteb_model_meta(self) -> Any:
        """What results are filed under: the preset, the encoder and the release.

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
        """Puts a corpus into a new memory, in the place of the one before.

        Documents without text are left out: nothing finds them.

        Args:
            corpus: Rows with `id`, `text` and, where there is one, `title`.
            _: What else `mteb` says of the task: it is not looked at.

        Raises:
            InputError: A document that is no text; an id of two different ones.
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
        """The scores of the best documents of each query, by id.

        Args:
            queries: Rows with `id`, `text` and, where there is one, `instruction`.
            top_k: Documents a query at most; a large corpus may give fewer, for only the candidates
                of the settings (`rank.candidates`) are ranked.
            top_ranked: For ids of queries the documents among which they are asked; those of others
                may be any.
            _: What else `mteb` says of the task: it is not looked at.

        Raises:
            InputError: Nothing is indexed, or a query that is no text.
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
    """The text of a document below its title."""
    text, title = _text(row), str(row.get("title") or "").strip()
    return f"{title}\n{text}" if title else text


def _text(row: Mapping[str, Any], beside: str = "") -> str:
    """The text of a row, with another field behind it."""
    text = row["text"]
    if not isinstance(text, str):
        raise InputError(
            f"text: expected a text, got {type(text).__name__} in row {row['id']!r:.60}; choose "
            "tasks of texts, not of images or conversations"
        )
    more = str(row.get(beside) or "").strip() if beside else ""
    return f"{text} {more}" if more else text
