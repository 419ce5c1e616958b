"""What `graphmem eval` asks of a judge, and what it gets back."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from graphmem_torch.config import Config, load_config
from graphmem_torch.errors import InputError

__all__ = ["JUDGES", "Judged", "Request", "judge"]
JUDGES: Mapping[str, frozenset[str]] = {
    "all": frozenset({"cv"}),
    "context": frozenset(),
    "custom": frozenset({"questions"}),
    "forgetting": frozenset({"sizes"}),
    "growth": frozenset({"sizes"}),
    "locomo": frozenset({"evidence", "input", "cv"}),
    "longdoc": frozenset(),
    "longmemeval": frozenset(),
    "modes": frozenset({"evidence"}),
    "multihop": frozenset(),
    "proofs": frozenset(),
    "regime": frozenset(),
}
"""The data sets, one module of this package each, and the options that are theirs alone."""

_PLAIN: Mapping[str, Any] = {
    "evidence": None,
    "input": "raw",
    "cv": False,
    "questions": None,
    "sizes": None,
}


@dataclass(frozen=True, kw_only=True)
class Request:
    """One evaluation.

    Attributes:
        data: The data set's file, or the folder it is in; of custom, what to index.
        preset: Name of the preset under test, or path of a YAML file.
        config: Its settings where they are changed; the preset then only gives the name.
        embedder: Name or folder of an encoder, `hashing`, or an object; the preset's by default.
        device: Where the indices live.
        seed: Of everything that is drawn.
        progress: Whether to show bars on stderr.
        cache: Folder of encodings; by default `common.encodings.cache_folder`.
        evidence, input, cv, questions, sizes: Options of single data sets; see `JUDGES`.
    """

    data: Path
    preset: str = "default"
    config: Config | None = None
    embedder: Any = None
    device: str = "auto"
    seed: int = 0
    progress: bool = False
    cache: Path | None = None
    evidence: Path | None = None
    input: Literal["raw", "observations"] = "raw"
    cv: bool = False
    questions: Path | None = None
    sizes: tuple[int, ...] | None = None

    @property
    def settings(self) -> Config:
        """The settings of the preset under test."""
        return load_config(self.preset) if self.config is None else self.config

    @property
    def chance(self) -> random.Random:
        """Random numbers of the seed, from their beginning."""
        return random.Random(self.seed)


@dataclass(frozen=True)
class Judged:
    """What a judge found: plain JSON values, and a table for people."""

    report: dict[str, Any]
    table: str


def judge(dataset: str, request: Request) -> Judged:
    """Runs the judge of a data set.

    Raises:
        InputError: An option that the data set does not have, or data that cannot be used.
    """
    own = JUDGES[dataset]
    for name, plain in _PLAIN.items():
        given = getattr(request, name)
        if name not in own and given != plain:
            owners = ", ".join(sorted(d for d, options in JUDGES.items() if name in options))
            raise InputError(
                f"--{name}: expected nothing for {dataset}, got {given}; it is for {owners}"
            )
    found = import_module(f".{dataset}.judge", __package__).judge(request)
    assert isinstance(found, Judged)
    return found
