"""Erasing for good: rows of blocks, free pages and logs, and the receipt that says what was erased.

A deleted atom leaves its vectors in the blocks, and a database its old pages in files. What is
erased leaves neither: rows are taken out, pages that become free are overwritten (`secure_delete`),
and the write-ahead log is emptied. A mark in the database says that this is still to be done, so
that a kill in between delays it until the store is next opened to write.
"""

from __future__ import annotations

import json
import mmap
import secrets
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from graphmem_torch.atoms import CONCEPT
from graphmem_torch.errors import InputError
from graphmem_torch.results import Receipt
from graphmem_torch.store.blocks import rewrite_tokens, zero_embeddings
from graphmem_torch.store.database import Database
from graphmem_torch.store.reader import StoreReader

__all__ = ["contents", "erase_rows", "find_traces", "new_receipt", "receipt_problems"]

_PIECE = 64  # bytes of a long text that are looked for, one every _STEP
_STEP = 256
_LISTED = "(SELECT value FROM json_each(?))"


def contents(database: Database, nodes: Sequence[int]) -> tuple[list[str], set[str]]:
    """Ids of atoms and concepts, and all that they said, earlier versions included."""
    listed = (json.dumps(list(nodes)),)
    rows = database.query(f"SELECT id, text FROM atom WHERE node IN {_LISTED}", listed)
    sql = f"SELECT id, text FROM version WHERE current IN {_LISTED}"
    rows += database.query(sql, listed)
    return sorted({id_ for id_, _ in rows}), {text for _, text in rows}


def erase_rows(database: Database, nodes: Sequence[int]) -> None:
    """Takes out what blocks and logs hold of deleted nodes; only inside `Database.write`.

    Those that were deleted before, and whose rows are there still, go too.
    """
    run = database.execute_many
    rows = database.query("SELECT node FROM unwiped")
    gone = sorted({*nodes, *(row[0] for row in rows)})
    for table, rewrite in (("embedding_block", zero_embeddings), ("token_block", rewrite_tokens)):
        for start, own in _parts_of(database, table, gone).items():
            rewrite(database, start, torch.tensor(own) - start)
    # A time of storing goes with the last atom that was stored then.
    there = "SELECT 1 FROM {} WHERE node >= stored_at.start AND node < stored_at.start + count"
    left = " OR ".join(f"EXISTS ({there.format(table)})" for table in ("atom", "version"))
    starts = [(start,) for start in _parts_of(database, "stored_at", gone)]
    run(f"DELETE FROM stored_at WHERE start = ? AND NOT ({left})", starts)
    run("DELETE FROM unwiped", [()])


def _parts_of(database: Database, table: str, nodes: Sequence[int]) -> dict[int, list[int]]:
    """The nodes of each row that has a part of all nodes, by its start."""
    start = f"SELECT max(start) FROM {table} WHERE start <= value"
    within: dict[int, list[int]] = {}
    for first, node in database.query(
        f"SELECT ({start}), value FROM json_each(?)", (json.dumps(list(nodes)),)
    ):
        if first is not None:
            within.setdefault(first, []).append(node)
    return within


def receipt_problems(stores: Sequence[StoreReader], receipt: Receipt) -> list[str]:
    """Why a receipt does not prove that what it names is in no store; empty where it does.

    It is unchanged where its digest is that of its content, and of the first store where that noted
    the digest when it erased. What it names by salted hashes is looked for among all ids, texts
    and names of concepts, those of earlier versions included.
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
    """Every id, text and name of a concept."""
    tables = ["atom", *(["version"] if store._database.has("version") else [])]
    for table in tables:
        for id_, text in store._database.stream(f"SELECT id, text FROM {table}"):
            yield from (("id", id_), ("text", text))
    yield from (("id", f"{CONCEPT}:{name}") for _, name, _ in store.aliases())


def find_traces(folder: Path, texts: Iterable[str]) -> list[str]:
    """Where in the files of a folder there are bytes of texts, in sentences.

    As UTF-8 and as JSON writes it. Of long texts pieces are looked for, for a file may hold them in
    parts.

    Raises:
        InputError: No such folder.
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
    atoms: int,
    ids: Iterable[str],
    texts: Iterable[str],
    archived: tuple[StoreReader, Sequence[int]] | None = None,
) -> Receipt:
    """A receipt of what was just erased, noted in the database; only inside `Database.write`.

    What another atom says as well, here or in the archive, was not erased.

    Args:
        store: Which erased it.
        state: Before and after.
        when: Seconds since the epoch UTC.
        atoms: How many went.
        ids: Of atoms, and `concept:` with the name for names of concepts.
        texts: What they said.
        archived: The archive, and the nodes that are to be erased there.
    """
    ids, texts = _said_by_none(store, ids, texts)
    if archived is not None:
        ids, texts = _said_by_none(archived[0], ids, texts, but={*archived[1]})
    database = store._database
    last = database.query("SELECT digest FROM receipt ORDER BY entry DESC LIMIT 1")
    bare = Receipt(
        when=when,
        atoms=atoms,
        before=state[0],
        after=state[1],
        previous=last[0][0] if last else "",
        salt=secrets.token_hex(16),
        erased=(),
        digest="",
    )
    said = [*(("id", id_) for id_ in ids), *(("text", text) for text in texts)]
    erased = tuple(sorted({bare.hash_of(kind, value) for kind, value in said}))
    receipt = replace(bare, erased=erased)
    receipt = replace(receipt, digest=receipt.content_digest())
    row = when, atoms, receipt.digest
    database.execute_many("INSERT INTO receipt (time, atoms, digest) VALUES (?, ?, ?)", [row])
    return receipt


def _said_by_none(
    store: StoreReader, ids: Iterable[str], texts: Iterable[str], *, but: Collection[int] = ()
) -> tuple[set[str], set[str]]:
    """Those ids and texts that no node of a store has, but for some of its nodes.

    A name of a concept, `concept:` and the name, may be that of another one.
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
