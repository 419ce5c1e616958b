"""Request and result of a judge of `graphmem eval`."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from graphmem_torch.config import Config, load_config
from graphmem_torch.errors import InputError

if TYPE_CHECKING:  # needs torch, and `--help` does not
    from .common.tables import Table

__all__ = ["COMPARING", "JUDGES", "Judged", "Request", "judge"]
JUDGES: Mapping[str, frozenset[str]] = {
    "abstention": frozenset({"cv"}),
    "all": frozenset({"cv"}),
    "claims": frozenset(),
    "context": frozenset(),
    "custom": frozenset({"questions"}),
    "echo": frozenset({"evidence"}),
    "forgetting": frozenset({"sizes"}),
    "growth": frozenset({"sizes"}),
    "locomo": frozenset({"evidence", "input", "cv", "ablate"}),
    "longdoc": frozenset(),
    "longmemeval": frozenset(),
    "modes": frozenset({"evidence"}),
    "multihop": frozenset(),
    "proofs": frozenset(),
    "planning": frozenset(),
    "refinement": frozenset({"evidence", "sizes"}),
    "regime": frozenset(),
    "retrieval": frozenset({"queries", "qrels"}),
    "spreading": frozenset({"evidence", "input"}),
    "temporal": frozenset({"evidence"}),
}
"""Data sets, one module of this package each, with their own options."""

COMPARING = frozenset({"all", "custom", "locomo", "longmemeval", "multihop", "retrieval"})
"""Data sets that compare several presets with the same baselines, and keep rankings."""

_PLAIN: Mapping[str, Any] = {
    "evidence": None,
    "input": "raw",
    "cv": False,
    "ablate": False,
    "questions": None,
    "queries": None,
    "qrels": None,
    "sizes": None,
}


@dataclass(frozen=True, kw_only=True)
class Request:
    """Evaluation request.

    Attributes:
        data: Path of the data set's file or folder; for custom, of the data to index; for
            retrieval, of the corpus.
        preset: Name of the preset under test, or path of a YAML file.
        config: Settings that replace the preset's, which then only gives the name.
        others: Presets to compare with the same baselines in the same run (`COMPARING`).
        rankings: Whether to keep the ranking of every question.
        embedder: Name or folder of an encoder, `hashing`, or an object; the preset's by default.
        device: Device of the indices.
        seed: Seed of all random draws.
        progress: Whether to show bars on stderr.
        cache: Folder of encodings; by default `text.models.cache_folder`.
        evidence, input, cv, ablate, questions, queries, qrels, sizes: Options of single data sets;
            see `JUDGES`.
    """

    data: Path
    preset: str = "default"
    config: Config | None = None
    others: tuple[Config, ...] = ()
    rankings: bool = False
    embedder: Any = None
    device: str = "auto"
    seed: int = 0
    progress: bool = False
    cache: Path | None = None
    evidence: Path | None = None
    input: Literal["raw", "observations"] = "raw"
    cv: bool = False
    ablate: bool = False
    questions: Path | None = None
    queries: Path | None = None
    qrels: Path | None = None
    sizes: tuple[int, ...] | None = None

    @property
    def settings(self) -> Config:
        """Return the settings of the preset under test, with the encoder in use."""
        config = load_config(self.preset) if self.config is None else self.config
        return self._resolved(config)

    @property
    def presets(self) -> list[Config]:
        """Return the settings of all presets, the one under test first.

        Raises:
            InputError: Two presets of one name.
        """
        found = [self.settings, *map(self._resolved, self.others)]
        for place, config in enumerate(found):
            if config.name in {other.name for other in found[:place]}:
                raise InputError(
                    f"--preset: expected presets of different names, got {config.name!r} twice; "
                    "give each file a name of its own"
                )
        return found

    def _resolved(self, config: Config) -> Config:
        if not isinstance(self.embedder, str):
            return config
        return replace(config, embedder=replace(config.embedder, name=self.embedder))

    @property
    def chance(self) -> random.Random:
        """Return a fresh random generator of the seed."""
        return random.Random(self.seed)


@dataclass(frozen=True)
class Judged:
    """Result of a judge.

    Attributes:
        report: Plain JSON values.
        shown: Tables and texts for people.
        rankings: Mapping for each question and system, if requested.
    """

    report: dict[str, Any]
    shown: str | Table | Sequence[str | Table]
    rankings: Iterable[Mapping[str, Any]] = ()

    @property
    def table(self) -> str:
        """Return everything shown, as text."""
        return "\n\n".join(map(str, self._parts))

    @property
    def tables(self) -> list[Table]:
        """Return only the tables."""
        return [part for part in self._parts if not isinstance(part, str)]

    @property
    def _parts(self) -> Sequence[str | Table]:
        return (
            self.shown
            if isinstance(self.shown, Sequence) and not isinstance(self.shown, str)
            else [self.shown]
        )


def judge(dataset: str, request: Request) -> Judged:
    """Run the judge of a data set.

    Raises:
        InputError: Option of another data set, or invalid data.
    """
    own = JUDGES[dataset]
    for name, plain in _PLAIN.items():
        given = getattr(request, name)
        if name not in own and given != plain:
            owners = ", ".join(sorted(d for d, options in JUDGES.items() if name in options))
            raise InputError(
                f"--{name}: expected nothing for {dataset}, got {given}; it is for {owners}"
            )
    comparing = ", ".join(sorted(COMPARING))
    if request.others and dataset not in COMPARING:
        raise InputError(
            f"--preset: expected one preset for {dataset}, got {1 + len(request.others)}; several "
            f"are for {comparing}"
        )
    if request.rankings and dataset not in COMPARING:
        raise InputError(
            f"--rankings: expected nothing for {dataset}, got a file; it is for {comparing}"
        )
    found = import_module(f".{dataset}.judge", __package__).judge(request)
    assert isinstance(found, Judged)
    return found
