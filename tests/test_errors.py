"""Parts of the messages of errors."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphmem_torch.errors import (
    InputError,
    MissingPackageError,
    interruptible,
    nearest,
    nearest_names,
    nearest_path,
    optional_import,
    unknown,
)


def test_unknown_names_the_nearest_and_all() -> None:
    known = ["temporal", "similarity"]
    assert unknown("type", "temporl", known) == (
        "type: expected one of temporal, similarity, got 'temporl'; did you mean 'temporal'?"
    )
    assert unknown("k", 3, range(2)) == "k: expected one of 0, 1, got 3; choose one of them"
    assert len(unknown("k", "x" * 999, ["a"])) < 150


def test_nearest_names_come_nearest_first_in_whatever_case() -> None:
    known = ["Lisbon", "Lisburn", "LISBON", "Oslo"]
    assert nearest_names("lisbn", known, 3) == ["Lisbon", "Lisburn"]
    assert nearest_names("lisbn", known, 1) == [nearest("lisbn", known)] == ["Lisbon"]
    assert nearest_names("qqqq", known, 3) == [] and nearest("qqqq", known) is None


def test_optional_import_names_what_to_install() -> None:
    assert optional_import("os.path", "paths", "python").join("a", "b") == "a/b"
    for kind in (MissingPackageError, InputError, ImportError, ValueError):
        with pytest.raises(kind, match=r"nowhere: expected the package for x, got .*'a\[b\]'"):
            optional_import("nowhere.at_all", "x", "a[b]")


def test_interruptible_turns_what_torch_makes_of_ctrl_c_back() -> None:
    said = "could not determine the shape of object type 'torch.storage.UntypedStorage'"
    with pytest.raises(KeyboardInterrupt), interruptible():
        raise ValueError(said)
    with pytest.raises(ValueError, match="another"), interruptible():
        raise ValueError("another")


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("notse.md", "notes.md"),
        ("NOTES.md", "notes.md"),
        ("dtaa/friends.mem", "data/friends.mem"),
        ("dat/freinds.mem", "data/friends.mem"),
        ("data/deeep/er/a.txt", "data/deep/er/a.txt"),
        ("qqqq", None),
        ("notes.md/a", None),
        ("x\0y", None),
    ],
)
def test_nearest_path(given: str, meant: str | None, tmp_path: Path) -> None:
    for name in ("notes.md", "data/friends.mem", "data/deep/er/a.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert nearest_path(tmp_path / given) == (meant and tmp_path / meant)
    assert nearest_path(tmp_path / given, Path.is_dir) != tmp_path / "notes.md"
