"""Import: read everything that a caller has put into a memory from lines of JSON.

`memory.exporting` describes the file. Its checksum refuses cut or changed files before anything is
stored. Edges from linking (concepts, temporal edges) are not in it: they are rebuilt.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from graphmem_torch.atoms import Atom, Link
from graphmem_torch.errors import InputError
from graphmem_torch.memory.decay import ORACLE
from graphmem_torch.memory.exporting import VERSION, VERSIONED, Exported, checked_type
from graphmem_torch.memory.known_vectors import AtomVectors
from graphmem_torch.memory.lookup import NamedEdge
from graphmem_torch.memory.validity import NamedStatement
from graphmem_torch.readers.jsonl import parse_edge_type
from graphmem_torch.readers.source import decode, parse_json, raw_lines
from graphmem_torch.store import MemoryStore
from graphmem_torch.text.embedder import Embedder
from graphmem_torch.text.times import parse_time

__all__ = [
    "ExportedPart",
    "check_export",
    "exported_atoms",
    "exported_edges",
    "exported_splits",
    "exported_validity",
    "is_export_file",
    "restore_learned",
    "restore_life",
    "versions_apart",
]

_HEADER = {"atoms", "fingerprint", "vectors"}
_END = b'{"end": '
_MARK = b'{"graphmem": "export"'  # begins the first line of an export
_OPEN = (str(-math.inf), str(math.inf))
_AGAIN = "export the memory again"


@dataclass(frozen=True)
class ExportedPart:
    """Memory of an export file, or one of its namespaces.

    Attributes:
        path: The file.
        header: First line of the part.
        line: Number of that line.
        offset: Byte offset of that line.
    """

    path: Path
    header: dict[str, Any]
    line: int
    offset: int

    @property
    def namespace(self) -> str | None:
        """Name of the namespace; None for the memory itself."""
        return self.header.get("namespace")


def is_export_file(path: Path) -> bool:
    """Return whether a file begins as an export does, whole or not."""
    try:
        return next(iter(raw_lines(path)), b"").startswith(_MARK)
    except InputError:  # whoever reads it says why
        return False


def check_export(path: Path) -> list[ExportedPart]:
    """Check a whole export and return its parts, the memory itself first.

    Raises:
        InputError: No export, one of a later version, or one that was cut or changed.
    """
    parts: list[ExportedPart] = []
    number, offset, whole, ended = 0, 0, True, True
    for number, line in enumerate(raw_lines(path), start=1):
        where = f"{path}:{number}"
        if ended:
            if parts and len(parts) > parts[0].header.get("namespaces", 0):
                raise InputError(f"expected the end of an export, got more; {_AGAIN}", where=where)
            parts.append(ExportedPart(path, _header(line, where), number, offset))
            if isinstance(parts[-1].namespace, str) != (len(parts) > 1):
                raise InputError(f"expected a namespace, got no name; {_AGAIN}", where=where)
            digest, ended = hashlib.sha256(), False
        if line.startswith(_END):
            end = parse_json(decode(line, str(path), line=number), str(path), line=number)["end"]
            if end != {"lines": number - parts[-1].line, "sha256": digest.hexdigest()}:
                raise InputError(
                    f"expected the lines that were exported, got others; {_AGAIN}", where=where
                )
            ended = True
        digest.update(line)
        offset, whole = offset + len(line), line.endswith(b"\n")
    if not number:
        _header(b"", str(path))
    if not ended or len(parts) <= parts[0].header.get("namespaces", 0):
        cut = f"the file ends {'behind' if whole else 'inside'} line {number}"
        raise InputError(
            f"expected the line that ends an export, got a cut: {cut}; {_AGAIN}",
            where=f"{path}:{number}",
        )
    return parts


def _header(line: bytes, where: str) -> dict[str, Any]:
    try:
        header = json.loads(line)
    except ValueError:
        header = None
    if not isinstance(header, dict) or header.get("graphmem") != "export":
        raise InputError(
            "expected what `graphmem store export` wrote, got another file; "
            "`graphmem index` reads those",
            where=where,
        )
    if header.get("version") not in (VERSION, VERSIONED) or not header.keys() >= _HEADER:
        raise InputError(
            f"expected an export of version {VERSIONED}, got {header.get('version')!r:.20}; "
            "upgrade graphmem_torch",
            where=where,
        )
    counts = header["atoms"], header.get("namespaces", 0)
    if not all(isinstance(count, int) and count >= 0 for count in counts):
        raise InputError(
            f"expected numbers of memories and of namespaces, got {counts!r:.60}; {_AGAIN}",
            where=where,
        )
    return header


def exported_atoms(part: ExportedPart, embedder: Embedder | None) -> Iterator[Exported]:
    """Yield the memories of a part from `check_export`, in order.

    Vectors are read if they are of `embedder`; None reads none.

    Raises:
        InputError: Invalid line.
    """
    for where, record in _lines(part, "atom"):
        try:
            fields = dict(record["atom"])
            links = [
                Link(target, parse_edge_type(kind), weight)
                for target, kind, weight in fields.pop("edges", ())
            ]
            yield Exported(
                where,
                Atom(**fields, edges=tuple(links)),
                record.get("pinned"),
                checked_type(record.get("found_type")),
                None if embedder is None else _read_vectors(record, embedder),
                None if record.get("until") is None else parse_time(record["until"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(
                f"expected a memory as it is exported, got {error}; {_AGAIN}", where=where
            ) from error


def versions_apart(entries: Iterable[Exported]) -> Iterator[tuple[Exported, Exported | None]]:
    """Yield each entry with its previous version, or None for a first one."""
    last: dict[str, Exported] = {}
    for entry in entries:
        yield entry, last.pop(entry.atom.id, None)
        if entry.until is not None:
            last[entry.atom.id] = entry


def restore_life(store: MemoryStore, entries: Sequence[Exported], pinned: Container[int]) -> None:
    """Restore pins and found types of stored memories without overwriting known ones.

    The pins of the nodes in `pinned` stay, as do types that an oracle found.
    """
    known = store.known([entry.atom.id for entry in entries])
    # Skip memories deleted meanwhile.
    found = [(known[entry.atom.id][0], entry) for entry in entries if entry.atom.id in known]
    for value in (False, True):
        nodes = [n for n, entry in found if entry.pinned is value and n not in pinned]
        store.life.set_pins(nodes, value)
    types: dict[str, dict[int, tuple[str, float | None]]] = {}
    for node, entry in found:
        if entry.found_type is not None:
            name, factor, source = entry.found_type
            types.setdefault(source, {})[node] = name, factor
    for source, values in types.items():
        store.life.set_found_types(values, source, keep=ORACLE)


def exported_edges(
    part: ExportedPart, kind: Literal["edge", "tied_edge"] = "edge"
) -> Iterator[NamedEdge]:
    """Yield the edges of an export, or those that an archive keeps.

    Raises:
        InputError: Invalid line.
    """
    for where, record in _lines(part, kind):
        edge = record[kind]
        if (
            not isinstance(edge, list)
            or len(edge) != 4
            or not all(isinstance(each, str) for each in edge[:3])
            or not isinstance(edge[3], int | float)
        ):
            raise InputError(f"expected an edge, got {edge!r:.80}; {_AGAIN}", where=where)
        yield edge[0], edge[1], edge[2], edge[3]


def exported_validity(
    part: ExportedPart, kind: Literal["validity", "tied_validity"] = "validity"
) -> Iterator[NamedStatement]:
    """Yield the validity statements of an export, or those that an archive keeps.

    Raises:
        InputError: Invalid line.
    """
    for where, record in _lines(part, kind):
        try:
            one, start, stop, by, known = record[kind]
            if not isinstance(one, str) or not isinstance(by, str | None):
                raise ValueError(f"{record[kind]!r:.80}")
            yield one, _end(start), _end(stop), by, parse_time(known)
        except (TypeError, ValueError) as error:
            raise InputError(
                f"expected a validity as it is exported, got {error}; {_AGAIN}", where=where
            ) from error


def _end(value: Any) -> float | None:
    """Return a start or stop, infinite if it is open."""
    return None if value is None else float(value) if value in _OPEN else parse_time(value)


def exported_splits(part: ExportedPart) -> set[str]:
    """Return the names that were split from others.

    Raises:
        InputError: Invalid line.
    """
    found = set[str]()
    for where, record in _lines(part, "split_names"):
        names = record["split_names"]
        if not isinstance(names, list) or not all(isinstance(each, str) for each in names):
            raise InputError(f"expected names, got {names!r:.80}; {_AGAIN}", where=where)
        found.update(names)
    return found


def restore_learned(store: MemoryStore, part: ExportedPart) -> None:
    """Restore the learned values and feedback of an export whose memories are all stored.

    A shard takes what is about its own memories. Feedback that is there is not added again.
    """
    erased = store.learned.erased
    for where, record in _lines(part, "learned"):
        try:
            value = dict(record["learned"])
            known = store.known(value["evidence"])
            value["evidence"] = sorted(node for node, _ in known.values())
            store.learned.put(value.pop("kind"), value, erased)
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(
                f"expected what was learned as it is exported, got {error}; {_AGAIN}", where=where
            ) from error
    there = {each.question: each for each in store.learned.feedback()}
    for where, record in _lines(part, "feedback"):
        try:
            said = record["feedback"]
            known = store.known([*said["used"], *said["not_used"]])
            used, left = (
                [known[name][0] for name in said[k] if name in known] for k in ("used", "not_used")
            )
            question, when = str(said["question"]), parse_time(said["time"])
            own = there.get(question)
            if own and when <= own.time and {*used} <= {*own.used} and {*left} <= {*own.not_used}:
                continue
            if used or left:  # else it is about the memories of other shards
                store.learned.give(question, used, left, when)
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(
                f"expected feedback as it is exported, got {error}; {_AGAIN}", where=where
            ) from error


def _lines(part: ExportedPart, kind: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the lines of a part with this key, each with its place."""
    path, start = part.path, f'{{"{kind}"'.encode()
    for number, line in enumerate(raw_lines(path, part.offset), start=part.line):
        if line.startswith(_END):
            return
        if line.startswith(start):
            text = decode(line, str(path), line=number)
            yield f"{path}:{number}", parse_json(text, str(path), line=number)


def _read_vectors(record: Mapping[str, Any], embedder: Embedder) -> AtomVectors:
    """Return the vectors of a line; ValueError if their widths are not the embedder's."""
    width = embedder.token_dim
    embedding = _values_of(record["vector"], np.float32)
    tokens = _values_of(record.get("tokens", ""), np.int8)
    pieces = _values_of(record.get("pieces", ""), np.int32)
    if len(embedding) != embedder.dim or len(tokens) != len(pieces) * width:
        raise ValueError(f"vectors of other widths than {embedder.dim} and {width}")
    return embedding, tokens.view(-1, width) if width else tokens.view(0, 0), pieces


def _values_of(text: str, kind: type[np.generic]) -> Tensor:
    return torch.from_numpy(np.frombuffer(base64.b64decode(text, validate=True), kind).copy())
