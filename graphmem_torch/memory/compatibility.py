"""Bind a store to its encoder and its extractor of concepts, and choose a device."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch

from graphmem_torch.config import Config, EmbedderConfig, LinkConfig
from graphmem_torch.errors import ConfigError, EmbedderError, InputError, first_line
from graphmem_torch.store import MemoryStore
from graphmem_torch.store.folder import DATABASE_NAME, has_namespaces, store_folder
from graphmem_torch.store.schema import LINKED_BY, NAMED_BY
from graphmem_torch.text.concepts import ConceptExtractor, load_concepts
from graphmem_torch.text.deferred import DeferredEmbedder
from graphmem_torch.text.embedder import Embedder, HashingEmbedder, rescaled
from graphmem_torch.text.models import AUTO
from graphmem_torch.text.probed import ProbedEmbedder
from graphmem_torch.text.sentence_transformer import load_embedder

__all__ = [
    "bind_concepts",
    "bound_concepts",
    "bound_embedder",
    "copy_binding",
    "deferred_meta",
    "embedder_meta",
    "expect_bound",
    "link_settings",
    "load_as",
    "load_extractor",
    "namer",
    "open_bound",
    "resolved_settings",
    "usable_device",
]

_EMBEDDER = "embedder"  # key of the store's meta strings
_DEFERRED = "embedder.deferred"  # key of what a deferred encoder is made of again
_WORDS = "words"  # value of NAMED_BY


def open_bound(
    path: str | os.PathLike[str] | None,
    mode: Literal["w", "r"],
    embedder: Any,
    own: EmbedderConfig,
    device: str,
    *,
    create: bool = True,
) -> tuple[MemoryStore, Embedder | None]:
    """Open a store with its encoder: the given one, else the store's own, else the settings'.

    A read-only store loads its encoder on first use (`bound_embedder`).

    Raises:
        EmbedderError, StoreError: The encoder or store cannot be opened; nothing is changed.
    """
    path = None if path is None else store_folder(path)
    if mode == "r" and embedder is None:
        return MemoryStore.open(path, mode="r"), None
    if not create and not _exists(path):
        MemoryStore.open(path, mode="r")  # raises the error for a missing store
    remembered = deferred = None
    if isinstance(embedder, DeferredEmbedder):
        load = partial(load_as, embedder.spec, own, device)
        deferred = embedder.loading(load, names_apart=True)
    if _exists(path):
        with MemoryStore.open(path, mode="r") as kept:
            if kept.num_nodes or has_namespaces(kept.path):
                remembered = _remembered(kept) if embedder is None else None
                _expect_dtype(remembered, own)
                deferred = _deferred(kept, deferred or embedder, own, device)
    spec, how = remembered or (embedder or own.name, own)
    fresh = remembered is None or spec == own.name
    loaded = deferred or load_as(spec, how, device, from_store=not fresh)
    try:
        store = MemoryStore.open(path, mode=mode, fingerprint=loaded.fingerprint, dim=loaded.dim)
    except EmbedderError:
        if not _exists(path):
            raise
        with MemoryStore.open(path, mode="r") as kept:
            loaded = _as_bound(loaded, kept.fingerprint)
        store = MemoryStore.open(path, mode=mode, fingerprint=loaded.fingerprint, dim=loaded.dim)
    named = loaded if isinstance(loaded, DeferredEmbedder) else spec
    for key, value in {**embedder_meta(named, how), **deferred_meta(loaded)}.items():
        given = value is not None or key == _DEFERRED
        if mode == "w" and given and store.meta_get(key) != value:
            store.meta_set(key, value)
    return store, loaded


def _expect_dtype(remembered: tuple[str, EmbedderConfig] | None, own: EmbedderConfig) -> None:
    """Raise EmbedderError if settings ask for another type than that which filled a store."""
    if own.dtype != EmbedderConfig.dtype and remembered and remembered[1].dtype != own.dtype:
        raise EmbedderError(
            f"embedder.dtype: expected {remembered[1].dtype!r}, with which this store was filled, "
            f"got {own.dtype!r}; leave it out, or index into a new folder"
        )


def _deferred(
    store: MemoryStore, embedder: Any, own: EmbedderConfig, device: str
) -> DeferredEmbedder | None:
    """Return the deferred encoder of a store that has one, or that is opened with one.

    Names of concepts stay in the vectors of those that are stored.
    """
    kept = store.meta_get(_DEFERRED)
    if isinstance(embedder, DeferredEmbedder):
        return embedder if kept else embedder.loading(embedder.loaded, names_apart=False)
    if kept is None:
        return None
    spec, how = (_remembered(store) if embedder is None else (embedder, own)) or (None, own)
    load = None if spec is None else partial(load_as, spec, how, device)
    named = spec if isinstance(spec, str) else None
    return DeferredEmbedder(load=load, spec=named, **json.loads(kept))


def _exists(folder: Path | None) -> bool:
    return folder is not None and (folder / DATABASE_NAME).exists()


def resolved_settings(settings: Config) -> Config:
    """Return the settings with model folders as absolute paths."""
    encoder, context = settings.embedder, settings.context
    name, chunker = _located(encoder.name), _located(encoder.chunk_tokenizer)
    return replace(
        settings,
        embedder=replace(encoder, name=name, chunk_tokenizer=chunker),
        context=replace(context, tokenizer=_located(context.tokenizer)),
    )


def _located(name: str) -> str:
    """Return a model name unchanged, a folder as an absolute path."""
    folder = name and not name.startswith("hashing") and Path(name).is_dir()
    return str(Path(name).resolve()) if folder else name


def _as_bound(embedder: Embedder, fingerprint: str | None) -> Embedder:
    """Return the embedder with the fingerprint of a store that it, or an earlier release, filled.

    The fingerprints of one encoder may differ: see `like` of each class.
    """
    if isinstance(embedder, HashingEmbedder | ProbedEmbedder):
        return embedder.like(fingerprint)
    return embedder


def load_as(spec: Any, how: EmbedderConfig, device: str, *, from_store: bool = False) -> Embedder:
    """Load the encoder that `spec` names (`load_embedder`) with these settings."""
    return load_embedder(
        spec,
        device,
        token_dim=how.token_dim,
        query_prompt=how.query_prompt,
        document_prompt=how.document_prompt,
        dtype=how.dtype,
        from_store=from_store,
    )


def embedder_meta(spec: Any, how: EmbedderConfig) -> dict[str, str | None]:
    """Return the strings that store a named encoder; None values for an unnamed one."""
    if isinstance(spec, DeferredEmbedder):
        spec = spec.spec
    if not isinstance(spec, str):
        return {_EMBEDDER: None}
    name = _located(spec)
    prompts = [how.query_prompt, how.document_prompt]
    # Earlier releases read only the first two, and later ones the prompts.
    plain = how.dtype == EmbedderConfig.dtype
    own = ([] if prompts == [AUTO, AUTO] else prompts) if plain else [*prompts, how.dtype]
    return {_EMBEDDER: json.dumps([name, how.token_dim, *own])}


def deferred_meta(loaded: Embedder) -> dict[str, str | None]:
    """Return the string that makes a deferred encoder again; None for another encoder."""
    if isinstance(loaded, DeferredEmbedder) and loaded.names_apart:
        return {_DEFERRED: json.dumps(loaded.to_dict())}
    return {_DEFERRED: None}


def bound_embedder(store: MemoryStore, own: EmbedderConfig, device: str) -> Embedder:
    """Load the encoder of an open store with the settings of the time it was filled.

    Raises:
        EmbedderError: The encoder cannot be loaded, or is not the one that filled the store.
    """
    deferred = _deferred(store, None, own, device)
    if deferred is not None:
        return deferred
    spec, how = _remembered(store) or (own.name, own)
    return expect_bound(store, load_as(spec, how, device, from_store=spec != own.name))


def expect_bound(store: MemoryStore, embedder: Embedder) -> Embedder:
    """Return the encoder if it is the one that filled the store.

    Raises:
        EmbedderError: The encoder is another one.
    """
    bound = store.fingerprint
    embedder = _as_bound(embedder, bound)
    if bound is not None and bound != embedder.fingerprint:
        raise EmbedderError(
            f"{store.path}: expected the embedder that filled this store ({bound}), got "
            f"{embedder.name!r} ({embedder.fingerprint}); open the store with its own embedder, or "
            "give it this one: `graphmem store reembed`"
        )
    return embedder


def copy_binding(source: MemoryStore, target: MemoryStore) -> None:
    """Copy the name of the encoder from a store to a new one."""
    for key in (_EMBEDDER, _DEFERRED):
        kept = source.meta_get(key)
        if kept is not None:
            target.meta_set(key, kept)


def bind_concepts(store: MemoryStore, wanted: str | ConceptExtractor) -> ConceptExtractor | None:
    """Bind a store to an extractor of concepts and return it; None: concepts are off.

    Args:
        store: Store to bind; an empty one takes any extractor.
        wanted: Extractor or its name. `auto` is that of the store or, if it has none yet,
            `pattern`.

    Raises:
        ConfigError: The store is bound to another extractor.
        InputError: The extractor is unknown or not installed.
    """
    kept = _kept_concepts(store)
    extractor = load_extractor(store, wanted)
    found = "none" if extractor is None else extractor.name
    if kept is not None and kept != found:
        raise ConfigError(
            f"link.concepts: expected {kept!r}, which found the concepts of this store, got "
            f"{found!r}; "
            + ("install that version" if wanted == "auto" else "set it to 'auto'")
            + ", or index the original files into a new folder"
        )
    if kept is None:
        store.meta_set(LINKED_BY, found)
    if not store.num_nodes and store.meta_get(NAMED_BY) is None:
        store.meta_set(NAMED_BY, _WORDS)
    return extractor


def load_extractor(store: MemoryStore, wanted: str | ConceptExtractor) -> ConceptExtractor | None:
    """Load the extractor that finds the concepts of a store, as for `bind_concepts`.

    The first load takes seconds: call it before taking a lock.

    Raises:
        ConfigError, InputError: See `bind_concepts`.
    """
    kept = _kept_concepts(store)
    own = kept is not None and wanted == "auto"
    if isinstance(wanted, str):
        # An extractor's name is its specification and version: "spacy:PIPELINE-3.8.0".
        spec = kept.rpartition("-")[0] or kept if own and kept is not None else wanted
        return None if spec == "none" else _named(spec, kept if own else None)
    if all(hasattr(wanted, name) for name in ("name", "extract", "forms")):
        return wanted  # `isinstance` ignores `__getattr__` (Python 3.12)
    raise InputError(
        f"concepts: expected an extractor or its name, got {type(wanted).__name__}; give an "
        "object with `name`, `extract` and `forms` (`ConceptExtractor`)"
    )


def _kept_concepts(store: MemoryStore) -> str | None:
    return bound_concepts(store) if store.num_nodes else None


def _named(spec: str, kept: str | None) -> ConceptExtractor:
    try:
        return load_concepts(spec)
    except InputError as error:
        if kept is None or spec.startswith("spacy"):
            raise
        raise ConfigError(
            f"concepts: expected {kept!r}, which found the concepts of this store, got no such "
            "extractor; give it to `Memory.open(..., concepts=...)`"
        ) from error


def bound_concepts(store: MemoryStore) -> str | None:
    """Return the name of the extractor that a store is bound to; "none" if concepts are off.

    Returns None if nothing was added yet, or only by a version that kept no name.
    """
    return store.meta_get(LINKED_BY)


def namer(store: MemoryStore, embedder: Embedder) -> Embedder:
    """Return the encoder of the names of concepts.

    It is one of words, which costs nothing and finds as much (`docs/evaluation.md` 7); a store of
    an earlier release keeps its encoder.
    """
    apart = isinstance(embedder, DeferredEmbedder) and embedder.names_apart
    if apart or store.meta_get(NAMED_BY) == _WORDS:
        return HashingEmbedder(embedder.dim, 0)
    return embedder


def link_settings(link: LinkConfig, embedder: Embedder) -> LinkConfig:
    """Return the settings of links with the threshold for cosines of an encoder (`rescaled`)."""
    return replace(link, min_similarity=rescaled(link.min_similarity, embedder))


def usable_device(device: str) -> str:
    """Return the device that `device` names; `auto` is CUDA if available.

    Raises:
        InputError: The device is not available.
    """
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise InputError(
            f"device: expected one of this machine (auto, cpu, cuda, ...), got {device!r}: "
            f"{first_line(error)}; choose another"
        ) from error
    return device


def _remembered(store: MemoryStore) -> tuple[str, EmbedderConfig] | None:
    """Return the name and settings of the encoder that a store was opened with."""
    kept = store.meta_get(_EMBEDDER)
    if kept is None:
        return None
    name, token_dim, *more = json.loads(kept)
    names = ("query_prompt", "document_prompt", "dtype")[: len(more)]
    return name, EmbedderConfig(name, token_dim=token_dim, **dict(zip(names, more, strict=True)))
