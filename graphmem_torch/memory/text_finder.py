"""Finder of what an index needs to know of each text: terms, times, questions and counts.

Each atom is read once, when it is added, and the store keeps what was found (`store.text_columns`).
"""

from __future__ import annotations

import math
import zlib

from graphmem_torch.atoms import CONCEPT, Atom
from graphmem_torch.store.records import AtomRow, atom_to_row
from graphmem_torch.store.text_columns import TextRow
from graphmem_torch.text.asked import FORMS, NOTHING_ASKED, read_asked
from graphmem_torch.text.question import is_question, tells_time
from graphmem_torch.text.terms import TERMS, terms, title_terms
from graphmem_torch.text.times import DAYS, told_days
from graphmem_torch.text.words import count_words

__all__ = ["FINDER", "found_in", "row_of"]

_FOUND = 1  # raise it when anything but terms and days is found otherwise
FINDER = _FOUND << 16 | TERMS << 8 | DAYS
"""Version of `found_in`; rows of another version are found again."""

_MOST_WORDS = 1 << 14  # maximum words of a question


def row_of(atom: Atom) -> AtomRow:
    """Return the row of an atom with the columns of its text.

    Raises:
        InputError: The atom has a value that the store could not return unchanged.
    """
    return AtomRow(atom_to_row(0, atom), found_in(atom))


def found_in(atom: Atom) -> TextRow:
    """Return the columns of an atom's text, a function of the atom alone.

    Of a concept only terms and lot are found. An entry without speaker and session asks nothing if
    its title or metadata may hold the answer.
    """
    body = atom.rendered
    found = terms(body)
    lot = zlib.crc32(body.encode("utf-8", "surrogatepass"))
    if atom.kind == CONCEPT:
        return TextRow((FINDER, len(found), -1, 0.0, 0, 0, 0, 0, False, False, 0, 0, lot), found)
    filed = atom.speaker is None and atom.session is None
    filed = filed and (atom.title is not None or bool(atom.meta))
    # Neither title nor name of the speaker asks.
    asked = NOTHING_ASKED if filed else read_asked(atom.text)
    numbers = (
        FINDER,
        len(found),
        title_terms(body),
        math.log1p(count_words(body)),
        asked.key,
        asked.bits,
        min(len(asked.terms), _MOST_WORDS),
        FORMS.index(asked.form),
        is_question(body),
        tells_time(body),
        *told_days(body, math.nan if atom.time is None else float(atom.time)),
        lot,
    )
    return TextRow(numbers, found)
