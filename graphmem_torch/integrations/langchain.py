"""Memory as a retriever and as a vector store of LangChain."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Self

import numpy as np

from graphmem_torch.atoms import Atom
from graphmem_torch.errors import InputError
from graphmem_torch.integrations.framework import (
    MemoryOwner,
    check_arguments,
    given_memory,
    importing,
    open_options,
)
from graphmem_torch.integrations.json_values import json_copy
from graphmem_torch.integrations.langchain_embeddings import MemoryEmbeddings, as_embedder
from graphmem_torch.memory import Memory
from graphmem_torch.results import Hit

with importing("langchain_core", "langchain-core", ">=1.8,<2", "langchain"):
    from langchain_core.documents import Document
    from langchain_core.embeddings import Embeddings
    from langchain_core.retrievers import BaseRetriever
    from langchain_core.vectorstores import VectorStore
    from langchain_core.vectorstores.utils import maximal_marginal_relevance
    from pydantic import ConfigDict, Field, PrivateAttr, model_validator

__all__ = ["GraphMemRetriever", "GraphMemVectorStore"]

_KIND = "document"

Filter = Mapping[str, Any] | Callable[[Document], bool] | None
"""Conditions on metadata by name, with the operators of `Memory.retrieve`; or a function."""


class GraphMemRetriever(MemoryOwner, BaseRetriever):
    """Retriever of what `Memory.retrieve` finds: `GraphMemRetriever("agent.mem", k=5)`.

    A document has the text of a memory with title and speaker, as a prompt shows it. Its metadata
    are those of the memory, and where these have no such name `score`, `kind`, `speaker`, `session`
    and `time` (seconds since the epoch UTC). It closes what it opened: `close`, or a `with` block.

    Attributes:
        memory: The memory; a path is opened.
        k: Maximum number of documents.
        where: Conditions on memories, as in `Memory.retrieve`.
        options: Arguments of `Memory.open` for a path, such as `embedder`.
    """

    # A misspelt `where` must not answer without its conditions.
    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    memory: Any = None
    k: int = Field(default=4, ge=1)
    where: Mapping[str, Any] | None = None
    options: dict[str, Any] = Field(default_factory=dict)

    _owned: bool = PrivateAttr(default=False)

    def __init__(self, memory: Any = None, **fields: Any) -> None:
        """Open or take the memory; arguments are the attributes of the class.

        Raises:
            InputError: An unknown attribute.
            ValueError: An unusable attribute, or options with an open memory.
            ConfigError, EmbedderError, StoreError: See `Memory.open`.
        """
        if not fields.keys() <= (known := type(self).model_fields.keys()):
            check_arguments(fields, [*known, *(f"options.{name}" for name in open_options())])
        super().__init__(**{"memory": memory, **fields})

    @model_validator(mode="after")
    def _open(self) -> Self:
        options = dict(self.options)
        if "embedder" in options:
            options["embedder"] = as_embedder(options["embedder"])
        self.memory, self._owned = given_memory(self.memory, options)
        return self

    def _get_relevant_documents(
        self, query: str, *, run_manager: Any = None, k: int | None = None
    ) -> list[Document]:
        """Return the documents of the best memories; see `Memory.retrieve`."""
        result = self.memory.retrieve(query, k=self.k if k is None else k, where=self.where)
        return [_retrieved(hit) for hit in result.hits]

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: Any = None, k: int | None = None
    ) -> list[Document]:
        return await asyncio.to_thread(self._get_relevant_documents, query, k=k)


class GraphMemVectorStore(MemoryOwner, VectorStore):
    """Vector store on a memory: `GraphMemVectorStore("docs.mem")`.

    A document is a memory; its metadata must be what JSON can hold, and come back exactly. A
    search by text ranks as `Memory.retrieve` does, with its probability as score; a search by
    vector ranks by cosine. Adding a document whose id is stored replaces it.

    A filter is a mapping of conditions on metadata, such as `{"page": {"$gte": 3}}`, with the
    operators of `Memory.retrieve`, or a function of a document, which reads all of them.

    Attributes:
        memory: The memory. Searches find all that it holds.
    """

    def __init__(
        self,
        memory: str | os.PathLike[str] | Memory | None = None,
        embedding: Any = None,
        **options: Any,
    ) -> None:
        """Open or take the memory.

        Args:
            memory: Folder of a store, or an open `Memory`; None keeps it in the process.
            embedding: LangChain's `Embeddings`, or an encoder as `embedder` of `Memory.open`.
            options: Other arguments of `Memory.open`.

        Raises:
            InputError: Options or an encoder with an open memory.
            ConfigError, EmbedderError, StoreError: See `Memory.open`.
        """
        if embedding is not None:
            options["embedder"] = as_embedder(embedding)
        self.memory, self._owned = given_memory(memory, options)
        given = embedding if isinstance(embedding, Embeddings) else None
        self._embeddings: Embeddings | None = given

    @property
    def embeddings(self) -> Embeddings:
        """The encoder: as it was given, or that of the memory."""
        return self._embeddings or MemoryEmbeddings(self.memory.embedder)

    @classmethod
    def from_texts(
        cls,
        texts: list[str],
        embedding: Any = None,
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: list[str] | None = None,
        memory: str | os.PathLike[str] | Memory | None = None,
        **options: Any,
    ) -> GraphMemVectorStore:
        """Return a store with texts; arguments as of the class and of `add_texts`."""
        store = cls(memory, embedding, **options)
        try:
            store.add_texts(texts, metadatas, ids=ids)
        except BaseException:
            store.close()
            raise
        return store

    def add_texts(
        self,
        texts: Iterable[str],
        metadatas: Sequence[Mapping[str, Any]] | None = None,
        *,
        ids: Sequence[str | None] | None = None,
        **_: Any,
    ) -> list[str]:
        """Store texts as documents; see `add_documents`.

        Raises:
            InputError: Not one metadata or id for each text; see `add_documents`.
        """
        listed = [texts] if isinstance(texts, str) else list(texts)
        if foreign := [each for each in listed if not isinstance(each, str)]:
            raise InputError(
                f"texts: expected strings, got {foreign[0]!r:.80}; give documents to "
                "`add_documents`"
            )
        own = (
            [{} for _ in listed] if metadatas is None else [dict(each or {}) for each in metadatas]
        )
        if len(own) != len(listed):
            raise InputError(
                f"metadatas: expected one for each of {len(listed)} texts, got {len(own)}; leave "
                "them out for none"
            )
        pairs = zip(listed, own, strict=True)
        return self.add_documents([Document(text, metadata=each) for text, each in pairs], ids)

    def add_documents(
        self, documents: list[Document], ids: Sequence[str | None] | None = None, **_: Any
    ) -> list[str]:
        """Store documents, and replace those whose ids are stored; returns the ids.

        Args:
            documents: Documents; of several with one id the last counts.
            ids: Ids instead of those of the documents; a missing one is made up.
            _: Other arguments of LangChain, such as `batch_size`; ignored.

        Raises:
            InputError: A document without text, metadata that JSON cannot hold, or not one id for
                each document.
            EmbedderError, StoreError: See `Memory.add`.
        """
        listed = list(documents)
        if foreign := [each for each in listed if not isinstance(each, Document)]:
            raise InputError(
                f"documents: expected a list of `Document`, got {foreign[0]!r:.80} in it; give "
                "texts to `add_texts`"
            )
        names = [each.id for each in listed] if ids is None else _listed(ids)
        if len(names) != len(listed):
            raise InputError(
                f"ids: expected one for each of {len(listed)} documents, got {len(names)}; leave "
                "them out to have them made"
            )
        made = [json_copy(str(name or uuid.uuid4()), "ids") for name in names]
        atoms: dict[str, Atom] = {}
        for name, each in zip(made, listed, strict=True):
            metadata = json_copy(each.metadata, f"metadata of {name!r:.60}")
            atoms[name] = Atom(name, each.page_content, _KIND, meta=metadata)
        self.memory.add(atoms.values(), replace=True)
        return made

    def delete(self, ids: Sequence[str] | None = None, **_: Any) -> bool:
        """Delete documents, or without ids all; unknown ids are passed over.

        Memories that are no documents of a vector store are deleted by id only.

        Raises:
            InputError: A single string instead of a list of ids.
            StoreError: The store is read-only, locked or full.
        """
        store = self.memory.store
        with store.turn():
            if ids is None:
                store.expect_writable()
                ids = [atom.id for atom in self.memory.list(where={"kind": _KIND})]
            self.memory.delete(
                [name for name in dict.fromkeys(_listed(ids)) if name in self.memory]
            )
        return True

    def get_by_ids(self, ids: Sequence[str], /) -> list[Document]:
        """Return documents by id, each once, in the order given; unknown ids are left out."""
        with self.memory.store.reading():
            known = [name for name in dict.fromkeys(_listed(ids)) if name in self.memory]
            return [_document(atom) for atom in self.memory.get(known)]

    def similarity_search(
        self, query: str, k: int = 4, filter: Filter = None, **_: Any
    ) -> list[Document]:
        """Return the documents of the best memories for a query; see `Memory.retrieve`.

        Args:
            query: The query.
            k: Maximum number of documents.
            filter: Conditions on metadata, or a function.
            _: Other arguments of LangChain; ignored.

        Raises:
            InputError: An empty query, or an unusable filter.
        """
        return [document for document, _ in self.similarity_search_with_score(query, k, filter)]

    def similarity_search_with_score(
        self, query: str, k: int = 4, filter: Filter = None, **_: Any
    ) -> list[tuple[Document, float]]:
        """Return documents with the probability that they are relevant, best first."""
        result = self.memory.retrieve(query, k=k, where=self._where(filter))
        return [(_hit_document(hit), hit.score) for hit in result.hits]

    def similarity_search_by_vector(
        self, embedding: list[float], k: int = 4, filter: Filter = None, **_: Any
    ) -> list[Document]:
        """Return the documents nearest to a vector by cosine."""
        found = self.similarity_search_with_score_by_vector(embedding, k, filter)
        return [document for document, _ in found]

    def similarity_search_with_score_by_vector(
        self, embedding: list[float], k: int = 4, filter: Filter = None, **_: Any
    ) -> list[tuple[Document, float]]:
        """Return the documents nearest to a vector, with their cosines."""
        near = dict(self.memory.tensors.nearest(embedding, k=k, where=self._where(filter)))
        return [(each, near[str(each.id)]) for each in self.get_by_ids(list(near))]

    def max_marginal_relevance_search(
        self,
        query: str,
        k: int = 4,
        fetch_k: int = 20,
        lambda_mult: float = 0.5,
        filter: Filter = None,
        **_: Any,
    ) -> list[Document]:
        """Return k of the `fetch_k` best documents that repeat each other least.

        Args:
            query: The query.
            k: Maximum number of documents.
            fetch_k: Number of documents to choose from.
            lambda_mult: Weight of the relevance in [0, 1]; the rest is that of the difference.
            filter: Conditions on metadata, or a function.
            _: Other arguments of LangChain; ignored.
        """
        found = self.similarity_search(query, fetch_k, filter)
        vector = self.memory.tensors.encode(query).embedding[0].tolist()
        return self._different(vector, found, k, lambda_mult)

    def max_marginal_relevance_search_by_vector(
        self,
        embedding: list[float],
        k: int = 4,
        fetch_k: int = 20,
        lambda_mult: float = 0.5,
        filter: Filter = None,
        **_: Any,
    ) -> list[Document]:
        """Return k of the `fetch_k` documents nearest to a vector that repeat each other least."""
        found = self.similarity_search_by_vector(embedding, fetch_k, filter)
        return self._different(embedding, found, k, lambda_mult)

    def _different(
        self, vector: Sequence[float], found: list[Document], k: int, relevance: float
    ) -> list[Document]:
        store = self.memory.store
        with store.reading():
            known = store.known([str(each.id) for each in found])
            there = [each for each in found if each.id in known]
            nodes = [known[str(each.id)][0] for each in there]
            rows = store.vectors(nodes, tokens=False).embeddings
        chosen = maximal_marginal_relevance(
            np.array(vector, dtype=np.float32), rows.tolist(), lambda_mult=relevance, k=k
        )
        return [there[place] for place in chosen]

    def _select_relevance_score_fn(self) -> Callable[[float], float]:
        return float  # scores are probabilities already

    def _where(self, filter: Filter) -> dict[str, Any] | None:
        """Return the conditions of a filter, as `Memory.retrieve` takes them."""
        if callable(filter):
            kept = (each.id for each in self._documents() if filter(each))
            return {"id": {"$in": list(kept)}}
        if not isinstance(filter, Mapping | None):
            raise InputError(
                f"filter: expected conditions by name or a function, got {filter!r:.80}; write "
                '{"page": {"$gte": 3}}'
            )
        return _on_metadata(filter) if filter else None

    def _documents(self) -> Iterator[Document]:
        return map(_document, self.memory)


def _listed(ids: Sequence[Any]) -> list[Any]:
    """Return ids as a list; a single string would name a document by each character."""
    if isinstance(ids, str):
        raise InputError(f"ids: expected a list of ids, got {ids!r:.80}; write [{ids!r:.80}]")
    return list(ids)


def _on_metadata(filter: Mapping[str, Any]) -> dict[str, Any]:
    """Return the conditions of a filter on metadata as conditions on memories."""
    if not isinstance(filter, Mapping):
        raise InputError(
            f"filter: expected conditions by name, got {filter!r:.80}; write "
            '{"page": {"$gte": 3}}'
        )
    where: dict[str, Any] = {}
    for name, condition in filter.items():
        if name in ("$and", "$or") and isinstance(condition, list | tuple):
            where[name] = [_on_metadata(part) for part in condition]
        elif name == "$not" and isinstance(condition, Mapping):
            where[name] = _on_metadata(condition)
        else:
            where[name if str(name).startswith("$") else f"meta.{name}"] = condition
    return where


def _document(atom: Atom) -> Document:
    """Return an atom as a document, with its metadata as they were given."""
    text = atom.rendered
    return Document(id=atom.id, page_content=text, metadata=json_copy(atom.meta, "metadata"))


def _hit_document(hit: Hit) -> Document:
    return Document(id=hit.id, page_content=hit.text, metadata=json_copy(hit.meta, "metadata"))


def _retrieved(hit: Hit) -> Document:
    """Return a hit as a document of a retriever, with what is known of the memory."""
    own = {"speaker": hit.speaker, "session": hit.session, "time": hit.time}
    said = {name: value for name, value in own.items() if value is not None}
    document = _hit_document(hit)
    document.metadata = {"score": hit.score, "kind": hit.kind} | said | document.metadata
    return document
