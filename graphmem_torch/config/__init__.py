"""Configuration: a tree of frozen dataclasses, read strictly from YAML.

Owns the settings with their bounds, and the presets `configs/<name>.yaml`. Presets override the
defaults; code and command line override presets. May import `atoms` and `errors` only.
"""

from __future__ import annotations

from graphmem_torch.config.former import former_section
from graphmem_torch.config.loading import (
    checked_config,
    config_from_dict,
    config_to_dict,
    load_config,
    preset_names,
    preset_path,
    save_preset,
)
from graphmem_torch.config.settings import (
    OTHER_ENCODERS,
    POLICIES,
    AggregateConfig,
    AnchorConfig,
    CalibrationConfig,
    Config,
    ContextConfig,
    DecayConfig,
    EmbedderConfig,
    GateConfig,
    HopConfig,
    LinkConfig,
    ModesConfig,
    PlanConfig,
    Policy,
    RankConfig,
    ReconcileConfig,
    RefineConfig,
    RegimeConfig,
    SegmentConfig,
    SpreadConfig,
    StructureConfig,
    WalkConfig,
)

__all__ = [
    "OTHER_ENCODERS",
    "POLICIES",
    "AggregateConfig",
    "AnchorConfig",
    "CalibrationConfig",
    "Config",
    "ContextConfig",
    "DecayConfig",
    "EmbedderConfig",
    "GateConfig",
    "HopConfig",
    "LinkConfig",
    "ModesConfig",
    "PlanConfig",
    "Policy",
    "RankConfig",
    "ReconcileConfig",
    "RefineConfig",
    "RegimeConfig",
    "SegmentConfig",
    "SpreadConfig",
    "StructureConfig",
    "WalkConfig",
    "checked_config",
    "config_from_dict",
    "config_to_dict",
    "former_section",
    "load_config",
    "preset_names",
    "preset_path",
    "save_preset",
]
