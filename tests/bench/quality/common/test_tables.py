"""Tables for people, as CSV and as LaTeX."""

from __future__ import annotations

import csv
import io

from graphmem_torch.evaluation.retrieval import mean_range
from graphmem_torch.quality.common.scores import percent
from graphmem_torch.quality.common.tables import Head, Table, tables_as_csv, tables_as_latex

TABLE = Table(
    [
        Head("system"),
        Head("recall @10", percent),
        Head("@25", percent),
        Head("nDCG", mean_range),
    ],
    [["a_b & c", 0.5, None, [0.5, 0.25, 1.0]], ['"50 %", new', 1 / 3, 1.0, None]],
    ["two systems"],
)


def test_a_table_is_text() -> None:
    lines = str(TABLE).split("\n")
    assert lines[0].split() == ["system", "recall", "@10", "@25", "nDCG"]
    assert lines[1].split()[-5:] == ["50.0", "-", "50.0", "[25.0,", "100.0]"]
    assert lines[2].split()[-3:] == ["33.3", "100.0", "-"] and lines[3] == "two systems"


def test_csv_has_the_values_and_the_ends_of_intervals() -> None:
    texts = Table.of_texts([["name", "said"], ["x", "3 of 4"]])
    first, second = tables_as_csv([TABLE, texts]).split("\n\n")
    rows = list(csv.reader(io.StringIO(first)))
    assert rows[0] == ["system", "recall @10", "recall @25", "nDCG", "nDCG low", "nDCG high"]
    assert rows[1] == ["a_b & c", "0.5", "", "0.5", "0.25", "1.0"]
    assert rows[2][0] == '"50 %", new' and float(rows[2][1]) == 1 / 3
    assert rows[2][2:] == ["1.0", "", "", ""]
    assert list(csv.reader(io.StringIO(second))) == [["name", "said"], ["x", "3 of 4"]]


def test_latex_is_a_tabular_that_escapes_what_tex_reads() -> None:
    lines = tables_as_latex([TABLE]).split("\n")
    assert lines[0] == "% two systems" and lines[1] == r"\begin{tabular}{lrrr}"
    assert lines[3] == r"system & recall @10 & @25 & nDCG \\"
    assert lines[5] == r"a\_b \& c & 50.0 & - & 50.0 [25.0, 100.0] \\"
    assert lines[6].startswith(r'"50 \%", new & 33.3')
    assert lines[-3:] == [r"\bottomrule", r"\end{tabular}", ""]
    odd = Table.of_texts([["x"], ["\\^~#{}$"]]).latex()
    assert r"\textbackslash{}\textasciicircum{}\textasciitilde{}\#\{\}\$" in odd
