"""Receipts of erasures, as salted hashes, and their verification."""

from __future__ import annotations

import json
import mmap
import os
import secrets
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from graphmem_torch.atoms import CONCEPT
from graphmem_torch.errors import InputError
from graphmem_torch.readers.source import decode
from graphmem_torch.results import Receipt
from graphmem_torch.store.reader import StoreReader

__all__ = [
    "Erased",
    "erased_content",
    "find_traces",
    "new_receipt",
    "read_receipt",
    "receipt_problems",
]

_PIECE = 64  # bytes of each searched piece of a long text, one every _STEP
_STEP = 256
_LISTED = "(SELECT value FROM json_each(?))"


class Erased(NamedTuple):
    """Content that a batch erases.

    Attributes:
        ids: Ids of atoms, and `concept:` with the name for names of concepts.
        texts: Texts of these atoms, earlier versions included.
        atoms: Number of memories.
        first: Smallest erased node that learning may have seen; None: no such node.
        sources: Numbers of the files that the atoms came from.
    """

    ids: list[str]
    texts: set[str]
    atoms: int
    first: int | None
    sources: set[int]


def erased_content(
    store: StoreReader,
    gone: Sequence[int],
    unnamed: Sequence[str],
    archived: tuple[StoreReader, Sequence[int]] | None,
) -> Erased:
    """Read the content that a batch is about to erase.

    Args:
        store: Store of the atoms.
        gone: Node numbers of the atoms.
        unnamed: Names of concepts to erase.
        archived: The archive, and the nodes to erase there.
    """
    database, listed = store._database, json.dumps(list(gone))
    ids, texts = store.contents(gone)
    sources = {number for own in store.sources.holders(ids).values() for number in own}
    aliases = database.query(f"SELECT name FROM alias WHERE node IN {_LISTED}", (listed,))
    names = {f"{CONCEPT}:{name}" for name in [*unnamed, *(row[0] for row in aliases)]}
    away, said = ([], set[str]()) if archived is None else archived[0].contents(archived[1])
    sources |= store.sources.labelled([*ids, *away])  # archived atoms have no `source_atom` rows
    count = f"SELECT count(*) FROM atom WHERE kind != ? AND node IN {_LISTED}"
    atoms = database.query(count, (CONCEPT, listed))[0][0] + len(away)
    # Includes earlier deletions, whose bytes are erased too; nothing is learned from concepts.
    first = database.query(
        "WITH listed AS (SELECT value FROM json_each(?)) SELECT min(node) FROM ("
        "SELECT node FROM unwiped UNION ALL "
        "SELECT node FROM version WHERE current IN listed UNION ALL "
        "SELECT node FROM atom WHERE kind != ? AND node IN listed)",
        (listed, CONCEPT),
    )[0][0]
    return Erased([*ids, *names, *away], texts | said, atoms, first, sources)


def read_receipt(receipt: Receipt | str | os.PathLike[str]) -> Receipt:
    """Return a receipt, read from a file with its `to_json` if a path is given.

    Raises:
        InputError: Neither a receipt nor a path, or the file is missing or holds no receipt.
    """
    if isinstance(receipt, Receipt):
        return receipt
    if not isinstance(receipt, (str, os.PathLike)):
        raise InputError(
            f"receipt: expected a Receipt or the path of one, got {receipt!r:.60}; give what "
            "`forget` returned"
        )
    try:
        said = Path(receipt).read_bytes()
    except OSError as error:
        raise InputError(
            f"receipt: expected a file, got {str(receipt)!r} ({error.strerror}); name one that has "
            "what `forget` gave"
        ) from error
    return Receipt.from_json(decode(said, str(receipt)))


def receipt_problems(stores: Sequence[StoreReader], receipt: Receipt) -> list[str]:
    """Verify a receipt; return the reasons it fails, or an empty list if it is valid.

    Its digest must match its content, and the first store must have noted that digest. No id, text
    or concept name in any store, earlier versions included, may match its salted hashes.
    """
    database = stores[0]._database
    if receipt.digest != receipt.content_digest():
        return ["receipt: its digest does not match its content; it was changed"]
    noted = [] if not database.has("receipt") else database.query("SELECT digest FROM receipt")
    known = [row[0] for row in noted]
    if receipt.digest not in known:
        return ["receipt: this store never gave it; it is of another store, or one put back"]
    found = []
    before = known.index(receipt.digest)
    if receipt.previous != (known[before - 1] if before else ""):
        found.append("receipt: the one before it is another; the list of the store was changed")
    erased = set(receipt.erased)
    said = (each for one in stores for each in _said(one))
    there = sum(receipt.hash_of(kind, text) in erased for kind, text in said)
    if there:
        found.append(f"receipt: {there} of what it names is in the store (again)")
    if any(one._database.query("SELECT 1 FROM meta WHERE key = 'store.wiping'") for one in stores):
        found.append("receipt: not wiped from the logs yet; open the store to write, alone")
    return found


def _said(store: StoreReader) -> Iterator[tuple[str, str]]:
    """Yield every id, text and concept name, with its kind."""
    tables = ["atom", *(["version"] if store._database.has("version") else [])]
    for table in tables:
        for id_, text in store._database.stream(f"SELECT id, text FROM {table}"):
            yield from (("id", id_), ("text", text))
    yield from (("id", f"{CONCEPT}:{name}") for _, name, _ in store.aliases())


def find_traces(folder: Path, texts: Iterable[str]) -> list[str]:
    """Search the files of a folder for bytes of texts; return a sentence for each match.

    Searches for UTF-8 and JSON forms. Long texts are searched in pieces, because a file may split
    them.

    Raises:
        InputError: The folder does not exist.
    """
    if not folder.is_dir():
        raise InputError(f"store: expected a folder, got {str(folder)!r}; check the path")
    wanted = {text: sorted(set(_pieces(text))) for text in texts if text}
    found = []
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        if not path.stat().st_size:
            continue
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            for number, pieces in enumerate(wanted.values(), start=1):
                places = [at for piece in pieces if (at := data.find(piece)) >= 0]
                if places:
                    name = path.relative_to(folder)
                    found.append(f"text {number}: {name} holds a part of it at byte {min(places)}")
    return found


def _pieces(text: str) -> Iterator[bytes]:
    for form in (text, json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1]):
        data = form.encode("utf-8", "surrogatepass")
        if len(data) <= _STEP:
            yield data
        else:
            yield from (data[at : at + _PIECE] for at in range(0, len(data) - _PIECE, _STEP))


def new_receipt(
    store: StoreReader,
    *,
    state: tuple[str, str],
    when: float,
    erased: Erased,
    archived: tuple[StoreReader, Sequence[int]] | None = None,
) -> Receipt:
    """Make a receipt of an erasure and note it in the database; only inside `Database.write`.

    Content that another atom also has, here or in the archive, does not count as erased.

    Args:
        store: Store that erased the content.
        state: States before and after.
        when: Seconds since the epoch UTC.
        erased: The erased content.
        archived: The archive, and the nodes to erase there.
    """
    ids, texts = _said_by_none(store, erased.ids, erased.texts)
    if archived is not None:
        ids, texts = _said_by_none(archived[0], ids, texts, but={*archived[1]})
    database = store._database
    last = database.query("SELECT digest FROM receipt ORDER BY entry DESC LIMIT 1")
    bare = Receipt(
        when=when,
        atoms=erased.atoms,
        before=state[0],
        after=state[1],
        previous=last[0][0] if last else "",
        salt=secrets.token_hex(16),
        erased=(),
        digest="",
    )
    said = [*(("id", id_) for id_ in ids), *(("text", text) for text in texts)]
    hashes = tuple(sorted({bare.hash_of(kind, value) for kind, value in said}))
    receipt = replace(bare, erased=hashes)
    receipt = replace(receipt, digest=receipt.content_digest())
    row = when, erased.atoms, receipt.digest
    database.execute_many("INSERT INTO receipt (time, atoms, digest) VALUES (?, ?, ?)", [row])
    return receipt


def _said_by_none(
    store: StoreReader, ids: Iterable[str], texts: Iterable[str], *, but: Collection[int] = ()
) -> tuple[set[str], set[str]]:
    """Return the ids and texts that no node of a store has, ignoring the nodes `but`.

    A concept name (`concept:` and the name) may still be an alias of another concept.
    """
    ids, texts = {*ids}, {*texts}
    for sql, asked in (
        ("SELECT id, node FROM atom WHERE id", ids),
        ("SELECT id, current FROM version WHERE id", ids),
        ("SELECT text, current FROM version WHERE text", texts),
    ):
        asked -= {said for said, own in store._select_in(sql, [*asked]) if own not in but}
    texts -= {said for said, own in store.saying(sorted(texts)) if own not in but}
    concept = f"{CONCEPT}:"
    names = [each.removeprefix(concept) for each in ids if each.startswith(concept)]
    named = {row[0] for row in store._select_in("SELECT name FROM alias WHERE name", names)}
    return ids - {concept + name for name in named}, texts - named
