"""Run: the head that all judges share, and the report of what one measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from graphmem_torch.config import Config

from ..request import Judged, Request
from .encoder import CachingEmbedder, load_encoder, load_encoders
from .measure import framed
from .tables import Table

__all__ = ["Run"]

Shown = str | Table | Sequence[str | Table]


@dataclass(eq=False)
class Run:
    """One evaluation at work; the encoder is loaded when it is first asked for.

    Attributes:
        request: Evaluation that was asked for.
        resamples: Number of resamples of the intervals.
        rankings: Rankings of the questions, added by `compare` where the request wants them.
    """

    request: Request
    resamples: int = 2000
    rankings: list[dict[str, Any]] = field(default_factory=list)

    @cached_property
    def config(self) -> Config:
        """Settings of the preset under test."""
        return self.request.settings

    @cached_property
    def encoder(self) -> CachingEmbedder:
        """Encoder of the preset under test."""
        return load_encoder(self.request)

    @cached_property
    def encoders(self) -> list[CachingEmbedder]:
        """Encoder of each preset."""
        return load_encoders(self.request)

    @property
    def drawn(self) -> dict[str, Any]:
        """Arguments of every bootstrap interval."""
        return {"seed": self.request.seed, "resamples": self.resamples}

    def judged(
        self,
        dataset: str,
        shown: Callable[[dict[str, Any]], Shown],
        *,
        config: Config | None = None,
        options: Mapping[str, Any] | None = None,
        **figures: Any,
    ) -> Judged:
        """Return the report of the run (`bench/quality/README.md`), and what people are shown.

        Args:
            dataset: Name of the judge.
            shown: Function from the report to its tables.
            config: Settings where the judge changed those of the preset.
            options: Options of the evaluation that the report notes beside the settings.
            figures: Measurements; `n` says on how many.
        """
        report = framed(dataset, config or self.request.presets, self.request.seed, **figures)
        if options is not None:
            report["config"]["eval"] = dict(options)
        return Judged(report, shown(report), self.rankings)
