"""Export: write everything that a caller has put into a memory as lines of JSON.

Each part has a header, memories and earlier versions in storing order, their edges, learned values
and feedback, and a last line with a checksum. Each namespace is another part with its name in the
header. The first header has their number. `memory.exchange` reads them.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import os
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TextIO

import numpy as np

from graphmem_torch.atoms import CONCEPT, MEMORY_TYPES, Atom, EdgeType
from graphmem_torch.errors import GraphMemError, InputError, output_file
from graphmem_torch.exact import dump_json
from graphmem_torch.memory.archive import kept_ties
from graphmem_torch.memory.lookup import NamedEdge
from graphmem_torch.memory.split_names import SplitNames
from graphmem_torch.memory.validity import NamedStatement, named_statements
from graphmem_torch.readers.jsonl import atom_to_record
from graphmem_torch.store.failures import store_error
from graphmem_torch.store.reader import StoreReader

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "VERSION",
    "VERSIONED",
    "Exported",
    "VectorsOf",
    "checked_type",
    "export_lines",
    "stored_entries",
    "write_export",
]

VectorsOf = Callable[[Any, Sequence[int]], list[tuple["Tensor", "Tensor", "Tensor"]]]
"""Reader of embedding [d], token vectors [t, m] and their pieces [t] of nodes of a store."""

VERSION = 1
"""Version of an export without earlier versions of memories."""

VERSIONED = 2
"""Version of an export with earlier versions of memories."""

_TILE = 4096  # atoms read per batch


def write_export(
    path: str | os.PathLike[str] | TextIO,
    stores: Sequence[StoreReader],
    within: Callable[[str], AbstractContextManager[Sequence[StoreReader]]],
    names: Callable[[], Sequence[str]],
    *,
    own: Path | None,
    vectors: VectorsOf | None = None,
) -> int:
    """Write a memory and its namespaces; see `Memory.export`.

    Args:
        path: File, which is replaced, or an open text stream.
        stores: Store of the memory, or those of its shards.
        within: Function that opens the stores of a namespace or archive.
        names: Function that returns the names of the namespaces to write as well; one that is
            dropped meanwhile is left out.
        own: Folder of the memory, which must not contain the export.
        vectors: Reader of embeddings and token vectors; None leaves them out.

    Returns:
        The number of memories.

    Raises:
        InputError: Not a file, inside the folder of the store, or in a missing folder.
        StoreError: The file cannot be written; an existing file is unchanged.
    """

    def write(file: TextIO, folder: Path | None = None) -> int:
        # The first header has the number of namespaces, known only when all are read: one may be
        # dropped meanwhile.
        with tempfile.TemporaryFile(dir=folder) as parts:
            number = count = 0
            for name in names():
                start = parts.tell()
                try:
                    count += _write_namespace(parts, name, within, vectors)
                    number += 1
                except GraphMemError:
                    if name in names():
                        raise
                    parts.seek(start)
                    parts.truncate()
            header: dict[str, Any] = {"namespaces": number} if number else {}
            lines = export_lines(stores, vectors=vectors, **header)
            first = next(lines)
            file.writelines(line + "\n" for line in chain([first], lines))
            parts.seek(0)
            file.writelines(line.decode() for line in parts)
        return count + _atoms(first)

    if not isinstance(path, (str, os.PathLike)):
        try:
            path.write("")
        except (AttributeError, TypeError, ValueError) as error:  # not a text stream, or closed
            raise InputError(
                f"path: expected a file, or an open stream of text, got {path!r:.80}; open one "
                "with mode 'w' and encoding 'utf-8'"
            ) from error
        return write(path)
    target = _target(Path(path), own)
    partial = target.with_name(target.name + ".partial")
    try:
        partial.unlink(missing_ok=True)  # it may be a link to anything
        with partial.open("x", encoding="utf-8", newline="\n") as file:
            count = write(file, target.parent)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(target)
    except OSError as error:
        raise store_error(error, target) from error
    finally:
        partial.unlink(missing_ok=True)
    return count


def _write_namespace(
    file: BinaryIO,
    name: str,
    within: Callable[[str], AbstractContextManager[Sequence[StoreReader]]],
    vectors: VectorsOf | None,
) -> int:
    """Write the part of a namespace and return its number of memories."""
    with within(name) as stores:
        ties = [kept_ties(store) for store in stores]
        edges = [edge for own in ties for edge in own.edges]
        validity = [said for own in ties for said in own.validity]
        lines = export_lines(stores, vectors=vectors, tied=(edges, validity), namespace=name)
        first = next(lines)
        file.writelines(f"{line}\n".encode() for line in chain([first], lines))
    return _atoms(first)


def _atoms(header: str) -> int:
    """Return the number of memories that a header names."""
    return int(json.loads(header)["atoms"])


def _target(path: Path, own: Path | None) -> Path:
    """Return the path of the file to write.

    Raises:
        InputError: It is no file, or inside the store's folder.
    """
    if own is not None and path.resolve().is_relative_to(own):
        raise InputError(
            f"path: expected a file outside of the store, got {str(path)!r}; name another"
        )
    if output_file(path).exists() and not path.is_file():
        raise InputError(
            f"path: expected a new file, or one to replace, got {str(path)!r}, which is none; "
            "name a file"
        )
    return Path(os.path.realpath(path))  # replace the target of a link, not the link


@dataclass(frozen=True, eq=False)
class Exported:
    """Memory of an export.

    Attributes:
        where: File and line.
        atom: Unchanged atom.
        pinned: Whether it was pinned or unpinned by name; None: neither.
        found_type: Found type, decay factor per hour or None, and source of both.
        vectors: Embedding [d], token vectors [t, m] and their pieces [t].
        until: Time when its next version, on a later line, replaced it; None: it is the last.
    """

    where: str
    atom: Atom
    pinned: bool | None
    found_type: tuple[str, float | None, str] | None
    vectors: tuple[Tensor, Tensor, Tensor] | None
    until: float | None = None


def export_lines(
    stores: Sequence[StoreReader],
    *,
    vectors: VectorsOf | None = None,
    tied: tuple[Iterable[NamedEdge], Iterable[NamedStatement]] = ((), ()),
    **header: str | int,
) -> Iterator[str]:
    """Yield the lines of an export of one moment, without line feeds; writers wait meanwhile.

    Args:
        stores: Store of the memories, or those of the shards.
        vectors: Reader of embeddings and token vectors to write as well.
        tied: Edges and validity kept by an archive.
        header: `namespace`, its name; or `namespaces`, the number of parts that follow.
    """
    digest, count = hashlib.sha256(), 0
    with ExitStack() as reading:
        for store in stores:
            reading.enter_context(store.reading())
        for record in chain(_records(stores, vectors, header), _tied_records(*tied)):
            line = dump_json(record, ensure_ascii=False, allow_nan=False)
            digest.update(line.encode() + b"\n")
            count += 1
            yield line
    yield json.dumps({"end": {"lines": count, "sha256": digest.hexdigest()}})


def _records(
    stores: Sequence[StoreReader], vectors: VectorsOf | None, header: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    hidden = [store.expiry.hidden() for store in stores]
    nodes = [
        [node for node, concept, _ in store.outline() if concept is None and node not in gone]
        for store, gone in zip(stores, hidden, strict=True)
    ]
    earlier = [store.earlier_nodes(own) for store, own in zip(stores, nodes, strict=True)]
    yield {
        "graphmem": "export",
        "version": VERSIONED if any(earlier) else VERSION,
        "atoms": sum(map(len, nodes)),
        "fingerprint": stores[0].fingerprint,
        "vectors": vectors is not None,
        **header,
    }
    for store, own, before in zip(stores, nodes, earlier, strict=True):
        yield from _own_records(store, own, before, vectors)
    if alone := sorted({name for store in stores for name in _split_names(store)}):
        yield {"split_names": alone}
    yield from _learned_records(stores, hidden)


def _own_records(
    store: StoreReader, nodes: Sequence[int], earlier: Sequence[int], vectors: VectorsOf | None
) -> Iterator[dict[str, Any]]:
    """Yield the memories, edges and validity of one store."""
    edges = store.edge_arrays()
    between = np.isin(edges.source, nodes) & np.isin(edges.target, nodes)
    edges = edges.take(between & (edges.type != int(EdgeType.TEMPORAL)))
    edges = edges.take(edges.source.argsort(kind="stable"))
    ids = _ids_of(store)
    stated: set[tuple[str, str, int, float]] = set()
    told = sorted([*nodes, *earlier])
    for entry in stored_entries(store, told, vectors):
        yield _record_of(entry)
        for link in entry.atom.edges if entry.until is None else ():
            weight = float(np.float32(link.strength))  # the precision of stored edges
            stated.add((entry.atom.id, link.target, int(link.type), weight))
    names = [kind.name.lower() for kind in EdgeType]
    columns_of = zip(*(column.tolist() for column in edges), strict=True)
    for source, target, kind, weight in columns_of:
        edge = ids[source], ids[target], kind, weight
        if edge not in stated:
            yield {"edge": [*edge[:2], names[kind], weight]}
    for said in named_statements(store):
        yield {"validity": _told(said)}


def _ids_of(store: StoreReader) -> dict[int, str]:
    """Return the id of each node."""
    return dict(zip((node for node, _, _ in store.outline()), store.ids(), strict=True))


def _split_names(store: StoreReader) -> set[str]:
    """Return the names that were split from others."""
    split = SplitNames.of(store)
    if not split.hashes:
        return set()
    known = [*store.texts(kind=CONCEPT), *(name for _, name, _ in store.aliases())]
    return {name for name in known if name in split}


def _learned_records(
    stores: Sequence[StoreReader], hidden: Sequence[Collection[int]]
) -> Iterator[dict[str, Any]]:
    """Yield the learned values and the feedback, which each shard keeps about its memories."""
    learned: dict[str, dict[str, Any]] = {}
    for store in stores:
        for kind, (value, _) in store.learned.rows().items():
            if value is not None:
                named = store.learned.ids(value["evidence"])
                first = learned.setdefault(kind, {**value, "kind": kind, "evidence": []})
                first["evidence"] += named
    yield from ({"learned": value} for value in learned.values())
    said: dict[str, dict[str, Any]] = {}
    for store, gone in zip(stores, hidden, strict=True):
        given = store.learned.feedback()
        ids = _ids_of(store) if given else {}
        for each in given:
            new = {"question": each.question, "time": each.time, "used": [], "not_used": []}
            record = said.setdefault(each.question, new)
            record["time"] = max(record["time"], each.time)
            for name in ("used", "not_used"):
                record[name] += [ids[node] for node in getattr(each, name) if node not in gone]
    yield from ({"feedback": record} for record in said.values())


def _tied_records(
    edges: Iterable[NamedEdge], validity: Iterable[NamedStatement]
) -> Iterator[dict[str, Any]]:
    for edge in edges:
        yield {"tied_edge": list(edge)}
    for said in validity:
        yield {"tied_validity": _told(said)}


def _told(said: NamedStatement) -> list[Any]:
    """Return a statement for JSON, which has no infinity."""
    return [str(each) if each in (-math.inf, math.inf) else each for each in said]


def stored_entries(
    store: StoreReader, nodes: Sequence[int], vectors: VectorsOf | None
) -> Iterator[Exported]:
    """Yield atoms and earlier versions as they are stored, by ascending node number."""
    earlier = {node: (until, atom) for node, until, atom in store.earlier()}
    pins = dict(store.life.pins())
    found = {node: checked_type(rest) for node, *rest in store.life.found_types()}
    for start in range(0, len(nodes), _TILE):
        part = nodes[start : start + _TILE]
        rows = [None] * len(part) if vectors is None else vectors(store, part)
        current = iter(store.atoms([node for node in part if node not in earlier]))
        for node, own in zip(part, rows, strict=True):
            until, atom = earlier[node] if node in earlier else (None, next(current))
            pin = pins.get(node)
            pinned = None if pin is None else bool(pin)
            yield Exported("", atom, pinned, found.get(node), own, until)


def checked_type(value: Any) -> tuple[str, float | None, str] | None:
    """Return a found type; ValueError or TypeError for an invalid one."""
    if value is None:
        return None
    name, factor, source = value
    if name not in MEMORY_TYPES or not isinstance(source, str):
        raise ValueError(f"the found type {value!r:.60}")
    if factor is not None and not math.isfinite(factor := float(factor)):
        raise ValueError(f"the decay factor {factor}")
    return name, factor, source


def _record_of(entry: Exported) -> dict[str, Any]:
    """Return the line of a memory."""
    record: dict[str, Any] = {"atom": atom_to_record(entry.atom)}
    if entry.until is not None:
        record["until"] = entry.until
    if entry.until is None and entry.pinned is not None:
        record["pinned"] = entry.pinned
    if entry.until is None and entry.found_type is not None:
        record["found_type"] = entry.found_type
    if entry.vectors is not None:
        vector, tokens, pieces = entry.vectors
        record["vector"] = _text_of(vector)
        if tokens.shape[1]:
            record |= {"tokens": _text_of(tokens), "pieces": _text_of(pieces)}
    return record


def _text_of(values: Tensor) -> str:
    return base64.b64encode(values.contiguous().numpy().tobytes()).decode()
