"""Writer: what a store is bound to, and new atoms, encoded, linked and stored by batches."""

from __future__ import annotations

import itertools
import json
import logging
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor

from graphmem_torch.atoms import CONCEPT, KINDS, MEMORY_TYPES, Atom, Link, text_hash
from graphmem_torch.config import EmbedderConfig, LinkConfig
from graphmem_torch.errors import ConfigError, EmbedderError, InputError, first_line, unknown
from graphmem_torch.memory.link import Linker, concept_id
from graphmem_torch.readers.jsonl import atom_from_record, content_id
from graphmem_torch.store import Batch, MemoryStore, TokenRows
from graphmem_torch.store.blocks import join_tokens, pick_tokens
from graphmem_torch.store.database import DATABASE_NAME
from graphmem_torch.store.reader import LINKED_BY
from graphmem_torch.text.concepts import ConceptExtractor, load_concepts
from graphmem_torch.text.embedder import Embedder, Encoded, encode_checked
from graphmem_torch.text.sentence_transformer import load_embedder
from graphmem_torch.text.times import parse_time

__all__ = [
    "Writer",
    "as_atom",
    "batched",
    "bind_concepts",
    "bound_concepts",
    "bound_embedder",
    "open_bound",
    "usable_device",
]

T = TypeVar("T")

_log = logging.getLogger(__name__)

_LONGEST_KIND = 64
_RESTORED = 4096  # atoms read at once when the linker is restored
_EMBEDDER = "embedder"  # key of the store's meta strings


class Writer:
    """Adds atoms to a store. Each batch is one transaction: there whole, or not at all."""

    def __init__(self, store: MemoryStore, embedder: Embedder, config: LinkConfig) -> None:
        """Nothing is read before the first batch."""
        self._store, self._embedder, self._config = store, embedder, config
        self._linker: Linker | None = None

    def warn_of_unresolved(self) -> None:
        """Warns where stated edges point to atoms that never came; they wait in their atoms."""
        waiting = {} if self._linker is None else self._linker.unresolved
        if waiting:
            _log.warning(
                "%d stated edges point to ids that are not stored, the first of them %r; they are "
                "made as soon as these atoms are added",
                sum(waiting.values()),
                next(iter(waiting)),
            )

    def add(
        self, atoms: Sequence[Atom], origins: Mapping[str, str], when: float
    ) -> tuple[list[Atom], Tensor]:  # [n, d]
        """Adds one batch, on disk for good when it returns; the n atoms that were new, encoded.

        Args:
            atoms: In the order in which they are stored.
            origins: For ids of atoms, the file and line they came from, for messages.
            when: Now, seconds since the epoch UTC.
        """
        fresh = self._unknown(atoms, origins)
        if not fresh:
            return [], torch.empty(0, self._embedder.dim)
        # After an error the linker would be ahead of the store, so it is only kept on success.
        linker, self._linker = self._linker or self._restored(), None
        encoded = self._encoded(fresh)
        linked = linker.link(fresh, encoded.pooled, self._store.next_node)
        rows = _token_rows(encoded)
        if rows is not None:  # concepts have no token vectors
            none = rows.offsets[-1:].expand(len(linked.concepts))
            rows = rows._replace(offsets=torch.cat([rows.offsets, none]))
        batch = Batch(
            atoms=[*fresh, *linked.concepts],
            embeddings=torch.cat([encoded.pooled, linked.embeddings]),
            tokens=rows,
            edges=linked.edges,
        )
        self._store.append(batch, when=when)
        self._linker = linker
        return fresh, encoded.pooled

    def _unknown(self, atoms: Sequence[Atom], origins: Mapping[str, str]) -> list[Atom]:
        """The atoms that are not stored yet, each id once.

        Raises:
            InputError: Empty text, a kind or id of concepts, or an id that is stored, or comes
                twice, with other content.
        """
        known = self._store.known([atom.id for atom in atoms])
        digests = {name: digest for name, (_, digest) in known.items()}
        fresh = []
        for atom in atoms:
            where = origins.get(atom.id)
            if atom.kind == CONCEPT or atom.id.startswith(concept_id("")):
                raise InputError(
                    f"atom {atom.id!r}: the kind {CONCEPT!r} and ids that begin with "
                    f"{concept_id('')!r} belong to the concepts that linking makes; choose others",
                    where=where,
                )
            _check_kind(atom, where)
            if not atom.text.strip():
                raise InputError(
                    f"atom {atom.id!r}: expected text, got none; leave it out", where=where
                )
            digest = _digest(atom)
            kept = digests.setdefault(atom.id, digest)
            if kept != digest:
                met = "is stored already" if known[atom.id][0] >= 0 else "is given twice,"
                raise InputError(
                    f"atom {atom.id!r} {met} with other content; give the new one an id of its own",
                    where=where,
                )
            if atom.id not in known:
                known[atom.id] = (-1, kept)
                fresh.append(atom)
        return fresh

    def _encoded(self, atoms: Sequence[Atom]) -> Encoded:
        """Vectors of the atoms; a text that is stored, or comes twice, is not encoded again."""
        hashes = [text_hash(atom.rendered) for atom in atoms]
        stored = self._store.cached(hashes)
        new = {h: a.rendered for h, a in zip(hashes, atoms, strict=True) if h not in stored}
        encoded = encode_checked(self._embedder, list(new.values()))
        if len(new) == len(atoms):
            return encoded
        old = self._store.vectors(list(stored.values()))
        place = {h: i for i, h in enumerate([*new, *stored])}
        pick = torch.tensor([place[h] for h in hashes], dtype=torch.int64)
        pooled = torch.cat([encoded.pooled, old.embeddings])[pick]
        rows = _token_rows(encoded)
        if rows is None:
            return Encoded(pooled)
        parts = [rows, *([] if old.tokens is None else [old.tokens])]
        return Encoded(pooled, *pick_tokens(join_tokens(parts, rows.tokens.shape[1]), pick))

    def _restored(self) -> Linker:
        """A linker that knows what is stored."""
        extractor = bind_concepts(self._store, self._config.concepts)
        linker = Linker(
            self._embedder.dim,
            self._config,
            None if extractor is None else extractor.extract,
            lambda names: encode_checked(self._embedder, list(names)).pooled,
        )
        if self._store.num_nodes:
            nodes = self._store.columns().node.tolist()
            parts = (self._store.atoms(part) for part in batched(iter(nodes), _RESTORED))
            stored = zip(nodes, itertools.chain.from_iterable(parts), strict=True)
            linker.restore(stored, self._store.embeddings())
        return linker


def _token_rows(encoded: Encoded) -> TokenRows | None:
    tokens, pieces, offsets = encoded.tokens, encoded.pieces, encoded.offsets
    if tokens is None or pieces is None or offsets is None:
        return None
    return TokenRows(tokens, pieces, offsets)


def as_atom(
    value: Atom | str | Mapping[str, Any], seen: Counter[str], session: str | None = None
) -> Atom:
    """An atom from an atom, a text, or a mapping as in a line of JSON lines.

    Args:
        value: What was given.
        seen: Counts the contents without an id, for `content_id`.
        session: That of what names none.

    Raises:
        InputError: What it holds does not fit; see `readers.atom_from_record`.
    """
    if isinstance(value, Atom):
        atom = _checked(value)
    else:
        atom = atom_from_record({"text": value} if isinstance(value, str) else value)
    if session is not None and atom.session is None:
        atom = replace(atom, session=session)
    if atom.id or isinstance(value, Atom):
        return atom
    return replace(atom, id=content_id(atom.kind, _digest(atom), seen))


def _checked(atom: Atom) -> Atom:
    """What is looked at before the store, which checks the rest, sees the atom."""
    for name in ("id", "text"):
        if not isinstance(getattr(atom, name), str):
            raise InputError(
                f"atom {atom.id!r}: {name}: expected a string, got {getattr(atom, name)!r}"
            )
    if atom.type is not None and atom.type not in MEMORY_TYPES:
        raise InputError(f"atom {atom.id!r}: {unknown('type', atom.type, MEMORY_TYPES)}")
    if not all(isinstance(link, Link) for link in atom.edges):
        raise InputError(
            f"atom {atom.id!r}: edges: expected Link(target, type, weight), got {atom.edges!r}"
        )
    # Numbers stay as they are, and so the digests by which stored atoms are known.
    times: dict[str, Any] = {
        name: parse_time(value, f"atom {atom.id!r}: {name}")
        for name in ("time", "event_time")
        if isinstance(value := getattr(atom, name), (str, date))
    }
    return replace(atom, **times) if times else atom


def _check_kind(atom: Atom, where: str | None) -> None:
    kind = atom.kind
    named = isinstance(kind, str) and kind.isprintable() and bool(kind.strip())
    if not named or len(kind) > _LONGEST_KIND:
        raise InputError(
            f"atom {atom.id!r}: kind: expected a word such as {', '.join(list(KINDS)[:5])} or one "
            f"of your own, of at most {_LONGEST_KIND} characters in one line, got {kind!r:.80}",
            where=where,
        )


def _digest(atom: Atom) -> str:
    try:
        return atom.digest
    except (TypeError, ValueError) as error:
        raise InputError(
            f"atom {atom.id!r}: expected what JSON can hold, got another value ({error})"
        ) from error


def batched(items: Iterator[T], size: int) -> Iterator[list[T]]:
    """The items in lists of `size`."""
    while part := list(itertools.islice(items, size)):
        yield part


def open_bound(
    path: str | os.PathLike[str] | None,
    mode: Literal["w", "r"],
    embedder: Any,
    own: EmbedderConfig,
    device: str,
) -> tuple[MemoryStore, Embedder | None]:
    """Opens a store with its encoder: the one given, else the store's own, else the settings'.

    What is only read gets an encoder when it is first needed (`bound_embedder`).

    Raises:
        EmbedderError, StoreError: As they say; nothing is changed.
    """
    if mode == "r" and embedder is None:
        return MemoryStore.open(path, mode="r"), None
    remembered = None
    if embedder is None and path is not None and (Path(path) / DATABASE_NAME).exists():
        with MemoryStore.open(path, mode="r") as kept:
            remembered = _remembered(kept) if kept.num_nodes else None
    spec, token_dim = remembered or (embedder or own.name, own.token_dim)
    loaded = load_embedder(spec, device, token_dim=token_dim)
    store = MemoryStore.open(path, mode=mode, fingerprint=loaded.fingerprint, dim=loaded.dim)
    if mode == "w" and isinstance(spec, str):
        name = str(Path(spec).resolve()) if Path(spec).is_dir() else spec
        value = json.dumps([name, token_dim])
        if store.meta_get(_EMBEDDER) != value:
            store.meta_set(_EMBEDDER, value)
    return store, loaded


def bound_embedder(store: MemoryStore, own: EmbedderConfig, device: str) -> Embedder:
    """The encoder of an open store, loaded as it was when the store was filled.

    Raises:
        EmbedderError: It cannot be loaded, or is not the one that filled the store.
    """
    spec, token_dim = _remembered(store) or (own.name, own.token_dim)
    loaded = load_embedder(spec, device, token_dim=token_dim)
    bound = store.fingerprint
    if bound is not None and bound != loaded.fingerprint:
        raise EmbedderError(
            f"{store.path}: expected the embedder that filled this store ({bound}), got "
            f"{loaded.name!r} ({loaded.fingerprint}); open the store with its own embedder, or "
            "index the original files into a new folder"
        )
    return loaded


def bind_concepts(store: MemoryStore, wanted: str) -> ConceptExtractor | None:
    """What finds the concepts of a store, which is bound to it from then on; None: nothing does.

    An empty store takes any. `auto`, of `link.concepts` in the settings, means what the store has;
    where it has none yet, the best that is installed.

    Raises:
        ConfigError: The store is bound to another extractor.
        InputError: An unknown extractor, or one that is not installed.
    """
    kept = bound_concepts(store) if store.num_nodes else None
    own = kept is not None and wanted == "auto"
    # The name of an extractor is its specification and its version: "spacy:PIPELINE-3.8.0".
    spec = kept.rpartition("-")[0] or kept if own and kept is not None else wanted
    extractor = None if spec == "none" else load_concepts(spec)
    found = "none" if extractor is None else extractor.name
    if kept is not None and kept != found:
        raise ConfigError(
            f"link.concepts: expected {kept!r}, which found the concepts of this store, got "
            f"{found!r}; "
            + ("install that version" if own else "set it to 'auto'")
            + ", or index the original files into a new folder"
        )
    if kept is None:
        store.meta_set(LINKED_BY, found)
    return extractor


def bound_concepts(store: MemoryStore) -> str | None:
    """Name of the extractor that a store is bound to, "none" where nothing finds concepts.

    None where nothing was added yet, or only by a version that did not keep it.
    """
    return store.meta_get(LINKED_BY)


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


def _remembered(store: MemoryStore) -> tuple[str, int] | None:
    """Name and token width of the encoder of a store that was opened with a named one."""
    kept = store.meta_get(_EMBEDDER)
    return None if kept is None else tuple(json.loads(kept))
