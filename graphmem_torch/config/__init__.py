"""Configuration: a tree of frozen dataclasses, read strictly from YAML.

A preset is a file `configs/<name>.yaml`; its values override the defaults below, and overrides
given in code or on the command line override the preset. An unknown key is an error that names
the nearest known one.
"""

from __future__ import annotations

from graphmem_torch.config.presets import (
    config_from_dict,
    config_to_dict,
    load_config,
    preset_names,
    preset_path,
)
from graphmem_torch.config.settings import (
    AnchorConfig,
    Config,
    ContextConfig,
    DecayConfig,
    EmbedderConfig,
    GateConfig,
    LinkConfig,
    ModesConfig,
    RankConfig,
    RegimeConfig,
    SegmentConfig,
    SpreadConfig,
    StructureConfig,
    WalkConfig,
)

__all__ = [
    "AnchorConfig",
    "Config",
    "ContextConfig",
    "DecayConfig",
    "EmbedderConfig",
    "GateConfig",
    "LinkConfig",
    "ModesConfig",
    "RankConfig",
    "RegimeConfig",
    "SegmentConfig",
    "SpreadConfig",
    "StructureConfig",
    "WalkConfig",
    "config_from_dict",
    "config_to_dict",
    "load_config",
    "preset_names",
    "preset_path",
]
