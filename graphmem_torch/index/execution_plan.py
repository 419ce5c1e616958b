"""ExecutionPlan: the steps that answer a question, decided once for an index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

import torch
from torch import Tensor

from graphmem_torch.config import Config, SpreadConfig
from graphmem_torch.rank.calibration import read_statistics
from graphmem_torch.rank.memory_tensors import computed_once
from graphmem_torch.rank.registry import SIGNALS, reading, signal_names, weight_table

__all__ = ["CONSTANTS", "CandidateRule", "ExecutionPlan", "gate_spread"]

CONSTANTS = ("retention", "spread", "inhibition", "gain", "threshold")
"""Constants of `spread` that have a gradient."""


class CandidateRule(Enum):
    """Rule that chooses the atoms compared with a question."""

    EVERY = "every atom"
    BASE = "the best by cosine and by BM25, their neighbours, and what the graph reaches"
    MODES = "the best atoms of the best modes"
    REACHED = "what a traversal reaches"

    @classmethod
    def of(cls, config: Config, atoms: int, *, modes: bool) -> CandidateRule:
        """Return the rule for a memory of `atoms` atoms, with or without modes."""
        if config.segment.retrieve:
            return cls.REACHED
        if config.modes.use == "candidates" and modes:
            return cls.MODES
        return cls.BASE if atoms > config.rank.exhaustive_up_to else cls.EVERY


@dataclass(frozen=True)
class ExecutionPlan:
    """Steps that answer a question, decided once for an index.

    Attributes:
        config: The settings.
        names: F signals of the score.
        rule: Rule that chooses the candidates.
        traverses: Whether a question walks from its seeds.
        hops: Whether a signal reads the targets of hops.
        lifts: Whether a signal reads the lifts of hops.
        activates: Whether another signal reads the graph, and it is worth spreading over.
        walks: Whether one of these reads a walk from the anchors.
        spreads: Whether activation spreads; with a walk, only if a signal or the abstention reads
            it.
        statistics: Statistics that abstention reads.
        gate: [3, .], their weights by form.
        read: S statistics: those of abstention, then those that only calibration reads.
        constants: Constants of the propagation that the settings use, by the names in
            `CONSTANTS`: numbers, or tensors [].
        fixed: Whether shapes and branches do not depend on values (`ops.fixed_shapes`). The host
            then waits once for each batch, with its answer.
    """

    config: Config
    names: tuple[str, ...]
    rule: CandidateRule
    traverses: bool
    hops: bool
    lifts: bool
    activates: bool
    walks: bool
    spreads: bool
    statistics: tuple[str, ...]
    gate: Tensor
    read: tuple[str, ...]
    constants: Mapping[str, float | Tensor]
    fixed: bool = False

    def gate_on(self, device: torch.device, dtype: torch.dtype) -> Tensor:  # [3, .]
        """Return `gate` on a device; copied there once."""
        if torch.compiler.is_compiling():
            return self.gate.to(device, dtype)
        kept = self.__dict__.setdefault("_gates", {})
        if (device, dtype) not in kept:
            with torch.inference_mode(False):  # a later call may need gradients
                kept[device, dtype] = self.gate.to(device, dtype)
        found: Tensor = kept[device, dtype]
        return found

    @computed_once
    def starts(self) -> bool:
        """True if anything starts at anchors."""
        return self.activates or self.hops or self.lifts

    @computed_once
    def base(self) -> tuple[str, ...]:
        """Signals that need no graph, which choose the anchors."""
        return tuple(self.names[place] for place in self.base_places)

    @computed_once
    def base_places(self) -> list[int]:
        """Places of the base signals in the names."""
        return self.places(graph=False)

    def places(self, *, graph: bool) -> list[int]:
        """Return the places of the graph signals in the names, or of the base signals."""
        return [i for i, name in enumerate(self.names) if SIGNALS[name].graph is graph]

    def with_numbers(self, values: Mapping[str, Tensor]) -> ExecutionPlan:  # [] each
        """Return the plan with constants as numbers; an unchanged one keeps the settings' digits.

        Waits for the device.
        """
        constants: dict[str, float | Tensor] = {}
        for name, value in values.items():
            given = getattr(self.config.spread, name)
            same = torch.tensor(given, dtype=value.dtype).item() == value.item()
            constants[name] = given if same else value.item()
        return replace(self, constants=constants)

    @classmethod
    def of(
        cls, config: Config, names: Sequence[str], rule: CandidateRule, *, graph: bool
    ) -> ExecutionPlan:
        """Plan for some signals; `graph` says whether the graph is worth spreading over."""
        own = reading(names, "traversal", "hops", "lifts")  # these have their own steps
        activates = graph and any(SIGNALS[name].graph for name in names if name not in own)
        walks = activates and bool(reading(names, "walk"))
        statistics = tuple(signal_names(config.gate.weights))
        needed = activates and len(reading(names, "derived")) < sum(
            SIGNALS[name].graph for name in names if name not in own
        )
        read = bool(reading(names, "activation")) or "activation" in statistics
        return cls(
            config,
            tuple(names),
            rule,
            traverses=rule == CandidateRule.REACHED or bool(reading(names, "traversal")),
            hops=bool(reading(names, "hops")),
            lifts=bool(reading(names, "lifts")),
            activates=activates,
            walks=walks,
            spreads=needed and (read or not walks),
            statistics=statistics,
            gate=weight_table(config.gate.weights),
            read=tuple(dict.fromkeys([*statistics, *read_statistics(config.calibration)])),
            constants=_constants(config),
        )


def _constants(config: Config) -> dict[str, float | Tensor]:
    settings = config.spread
    unused = {"inhibition"} if settings.inhibition == 0 else set()
    linear = {settings.firing, gate_spread(config).firing} == {"linear"}
    unused |= {"gain", "threshold"} if linear else set()
    return {name: getattr(settings, name) for name in CONSTANTS if name not in unused}


def gate_spread(config: Config) -> SpreadConfig:
    """Return the settings of the spread for the gate."""
    spread, gate = config.spread, config.gate
    return replace(
        spread,
        firing=spread.firing if gate.firing == "score" else gate.firing,
        fan=spread.fan if gate.fan == "score" else gate.fan,
    )
