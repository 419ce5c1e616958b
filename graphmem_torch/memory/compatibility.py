"""What a store is bound to: the encoder of its vectors, what finds its concepts; and a device."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import torch

from graphmem_torch.config import Config, EmbedderConfig, LinkConfig
from graphmem_torch.errors import ConfigError, EmbedderError, InputError, first_line
from graphmem_torch.store import MemoryStore
from graphmem_torch.store.folder import DATABASE_NAME, has_namespaces, store_folder
from graphmem_torch.store.schema import LINKED_BY
from graphmem_torch.text.concepts import ConceptExtractor, load_concepts
from graphmem_torch.text.embedder import Embedder, HashingEmbedder, rescaled
from graphmem_torch.text.sentence_transformer import AUTO, load_embedder

__all__ = [
    "bind_concepts",
    "bound_concepts",
    "bound_embedder",
    "copy_binding",
    "embedder_meta",
    "expect_bound",
    "link_settings",
    "load_as",
    "load_extractor",
    "open_bound",
    "resolved_settings",
    "usable_device",
]

_EMBEDDER = "embedder"  # key of the store's meta strings


def open_bound(
    path: str | os.PathLike[str] | None,
    mode: Literal["w", "r"],
    embedder: Any,
    own: EmbedderConfig,
    device: str,
    *,
    create: bool = True,
) -> tuple[MemoryStore, Embedder | None]:
    """Opens a store with its encoder: the one given, else the store's own, else the settings'.

    What is only read gets an encoder when it is first needed (`bound_embedder`).

    Raises:
        EmbedderError, StoreError: As they say; nothing is changed.
    """
    path = None if path is None else store_folder(path)
    if mode == "r" and embedder is None:
        return MemoryStore.open(path, mode="r"), None
    if not create and not _exists(path):
        MemoryStore.open(path, mode="r")  # says that there is none
    remembered = None
    if embedder is None and _exists(path):
        with MemoryStore.open(path, mode="r") as kept:
            bound = kept.num_nodes or has_namespaces(kept.path)
            remembered = _remembered(kept) if bound else None
    spec, how = remembered or (embedder or own.name, own)
    loaded = load_as(spec, how, device)
    try:
        store = MemoryStore.open(path, mode=mode, fingerprint=loaded.fingerprint, dim=loaded.dim)
    except EmbedderError:
        if not isinstance(loaded, HashingEmbedder) or not _exists(path):
            raise
        with MemoryStore.open(path, mode="r") as kept:  # of an earlier release, perhaps
            loaded = loaded.like(kept.fingerprint)
        store = MemoryStore.open(path, mode=mode, fingerprint=loaded.fingerprint, dim=loaded.dim)
    for key, value in embedder_meta(spec, how).items():
        if mode == "w" and value is not None and store.meta_get(key) != value:
            store.meta_set(key, value)
    return store, loaded


def _exists(folder: Path | None) -> bool:
    return folder is not None and (folder / DATABASE_NAME).exists()


def resolved_settings(settings: Config) -> Config:
    """The settings with absolute paths: their folders of models stay those of now."""
    encoder, context = settings.embedder, settings.context
    name, chunker = _located(encoder.name), _located(encoder.chunk_tokenizer)
    return replace(
        settings,
        embedder=replace(encoder, name=name, chunk_tokenizer=chunker),
        context=replace(context, tokenizer=_located(context.tokenizer)),
    )


def _located(name: str) -> str:
    """A name of a model as it is; the path of a folder absolute."""
    folder = name and not name.startswith("hashing") and Path(name).is_dir()
    return str(Path(name).resolve()) if folder else name


def load_as(spec: Any, how: EmbedderConfig, device: str) -> Embedder:
    """The encoder that `spec` names (`load_embedder`), as settings say that it is to be opened."""
    return load_embedder(
        spec,
        device,
        token_dim=how.token_dim,
        query_prompt=how.query_prompt,
        document_prompt=how.document_prompt,
    )


def embedder_meta(spec: Any, how: EmbedderConfig) -> dict[str, str | None]:
    """The strings by which a store remembers an encoder that was named; None: it was not."""
    if not isinstance(spec, str):
        return {_EMBEDDER: None}
    name = _located(spec)
    prompts = [how.query_prompt, how.document_prompt]
    # Earlier releases read the first two alone.
    own = [] if prompts == [AUTO, AUTO] else prompts
    return {_EMBEDDER: json.dumps([name, how.token_dim, *own])}


def bound_embedder(store: MemoryStore, own: EmbedderConfig, device: str) -> Embedder:
    """The encoder of an open store, loaded as it was when the store was filled.

    Raises:
        EmbedderError: It cannot be loaded, or is not the one that filled the store.
    """
    spec, how = _remembered(store) or (own.name, own)
    return expect_bound(store, load_as(spec, how, device))


def expect_bound(store: MemoryStore, embedder: Embedder) -> Embedder:
    """The encoder, if it is the one that filled the store.

    Raises:
        EmbedderError: It is not.
    """
    bound = store.fingerprint
    if isinstance(embedder, HashingEmbedder):
        embedder = embedder.like(bound)
    if bound is not None and bound != embedder.fingerprint:
        raise EmbedderError(
            f"{store.path}: expected the embedder that filled this store ({bound}), got "
            f"{embedder.name!r} ({embedder.fingerprint}); open the store with its own embedder, or "
            "give it this one: `graphmem store reembed`"
        )
    return embedder


def copy_binding(source: MemoryStore, target: MemoryStore) -> None:
    """Has a new store remember the encoder that another remembers."""
    kept = source.meta_get(_EMBEDDER)
    if kept is not None:
        target.meta_set(_EMBEDDER, kept)


def bind_concepts(store: MemoryStore, wanted: str | ConceptExtractor) -> ConceptExtractor | None:
    """What finds the concepts of a store, which is bound to it from then on; None: nothing does.

    Args:
        store: An empty one takes any.
        wanted: An extractor or its name. `auto` means what the store has; where it has none yet,
            the best that is installed.

    Raises:
        ConfigError: The store is bound to another extractor.
        InputError: An unknown extractor, or one that is not installed.
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
    return extractor


def load_extractor(store: MemoryStore, wanted: str | ConceptExtractor) -> ConceptExtractor | None:
    """Load the extractor that finds the concepts of a store, as for `bind_concepts`.

    Loading takes seconds the first time: do it before others have to wait.

    Raises:
        ConfigError, InputError: As `bind_concepts`.
    """
    kept = _kept_concepts(store)
    own = kept is not None and wanted == "auto"
    if isinstance(wanted, str):
        # The name of an extractor is its specification and its version: "spacy:PIPELINE-3.8.0".
        spec = kept.rpartition("-")[0] or kept if own and kept is not None else wanted
        return None if spec == "none" else _named(spec, kept if own else None)
    if all(hasattr(wanted, name) for name in ("name", "extract", "forms")):
        return wanted  # `isinstance` does not see what `__getattr__` passes on (Python 3.12)
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
    """Name of the extractor that a store is bound to, "none" where nothing finds concepts.

    None where nothing was added yet, or only by a version that did not keep it.
    """
    return store.meta_get(LINKED_BY)


def link_settings(link: LinkConfig, embedder: Embedder) -> LinkConfig:
    """How the graph grows, with thresholds for the cosines of an encoder (`rescaled`)."""
    return replace(
        link,
        min_similarity=rescaled(link.min_similarity, embedder),
        concept_dedup=rescaled(link.concept_dedup, embedder),
    )


def usable_device(device: str) -> str:
    """The device that `device` names; `auto` is CUDA where there is one.

    Raises:
        InputError: No such device here.
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
    """Name of the encoder of a store that was opened with a named one, and how it was opened."""
    kept = store.meta_get(_EMBEDDER)
    if kept is None:
        return None
    name, token_dim, *prompts = json.loads(kept)
    query, document = prompts or (AUTO, AUTO)
    return name, EmbedderConfig(
        name, token_dim=token_dim, query_prompt=query, document_prompt=document
    )
