"""What stores keep about settings stays what it was under the settings' former names."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from safetensors import safe_open

from graphmem_torch.config import Config, config_to_dict, former_section, load_config
from graphmem_torch.errors import ConfigError
from graphmem_torch.memory.learned_values import settings_digest
from graphmem_torch.memory.modes import REGIME_KEY
from tests.memories import config_of, opened, planted, turns

# Settings as they were called when stores first kept digests of them: literals, on purpose.
ANCHORS = {"source": "fused", "k": 10, "temperature": 1.0, "named": 2.0}
SPREAD = {
    **{"rounds": 3, "retention": 0.5, "spread": 0.8, "reduce": "sum", "fan": "degree"},
    **{"fan_least": "one", "inhibition": 0.15, "top": 7, "competitors": "all", "spare": 0},
    **{"firing": "sigmoid", "gain": 5.0, "threshold": 0.5, "temporal_decay": 0.01},
    **{"temporal_step": 0.0, "edges": {}, "reverse": {}, "max_edges": 15, "min_nodes": 10},
    "capped": ["temporal", "similarity", "abstraction", "association", "cooccurrence"],
}
RANK = {
    **{"weights": {"semantic": 1.0, "hop": 0.5}, "cold_weights": {}, "scale": "raw"},
    **{"unique": False, "echoes": False, "dense_limit": 2048, "candidates": 96},
}
MODES = {
    **{"build": True, "select": "energy", "count": 0, "epsilon": 0.1, "assign": "kmeans"},
    **{"drift": 0.05, "retrieve": False, "look": 8, "per_mode": 16, "half_life_days": 0.0},
    "absolute": False,
}
SEGMENT = {"retrieve": False, "hops": 2, "discount": 0.9, "seeds": 1}
WALK = {"damping": 0.85, "kept": 64, "relative": False}
HOPS = {"title": 1.0, "entity": 1.0, "title_named": 1.0, "entity_named": 1.0}
GATE = {
    **{"weights": {"activation": 1.0}, "firing": "score", "fan": "score"},
    **{"bias": 0.0, "link": "identity"},
}
REGIME = {"detector": "spectral", "threshold": 0.0, "hazard": 0.1, "factor": 3.0}


def literal_digest(**more: Any) -> str:
    """SHA-256 of the former settings, by hand."""
    sections = {"anchors": ANCHORS, "spread": SPREAD, "rank": RANK, "modes": MODES}
    sections |= {"segment": SEGMENT, "walk": WALK, "hops": HOPS, **more}
    text = json.dumps(["an encoder", sections], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def default_settings() -> Config:
    config = Config()
    return replace(
        config,
        rank=replace(config.rank, weights=RANK["weights"]),
        anchors=replace(config.anchors, named=2.0),
        modes=replace(config.modes, use="kept"),
    )


def test_digests_are_those_of_the_former_names() -> None:
    config = default_settings()
    assert settings_digest(config, "weights", "an encoder") == literal_digest()
    assert settings_digest(config, "threshold", "an encoder") == literal_digest(gate=GATE)


@pytest.mark.parametrize(
    ("preset", "own"),
    [
        ("spectral", {"build": True, "retrieve": True, "half_life_days": 365.0}),
        (
            "spectral-published",
            {"build": True, "retrieve": True, "half_life_days": 365.0}
            | {"select": "gcv_published", "absolute": True},
        ),
    ],
)
def test_one_setting_stands_for_two_former_ones(preset: str, own: dict[str, Any]) -> None:
    values = config_to_dict(load_config(preset))["modes"]
    assert former_section("modes", values) == MODES | own


def test_what_was_learned_is_applied_where_the_store_has_the_former_digest(tmp_path: Path) -> None:
    """A store that was fitted and calibrated names settings by digests: these are recomputed."""
    atoms, questions, evidence = planted()
    weights = {"semantic": 1.0, "lexical": 0.5, "semantic_previous": 0.1}
    config = replace(config_of(), rank=replace(config_of().rank, weights=weights))
    with opened(tmp_path / "m", config=config) as memory:
        memory.add(atoms)
        memory.learning.fit(questions[:30], evidence[:30])
        memory.learning.calibrate(questions[:20])
        fingerprint = memory.store.fingerprint
        stored = {one.kind: one.settings for one in memory.learning.records()}
    spread = SPREAD | {
        **{"rounds": 2, "reduce": "max", "fan": "sqrt", "inhibition": 0.0, "firing": "linear"},
        "edges": dict(config.spread.edges),
        "reverse": dict(config.spread.reverse),
    }
    own = config.anchors
    anchors = {"source": "fused", "k": own.k, "temperature": own.temperature, "named": own.named}
    modes = MODES | {"build": False}
    rank = RANK | {"weights": weights, "scale": "background"}
    sections: dict[str, Any] = {"anchors": anchors, "spread": spread, "rank": rank, "modes": modes}
    sections |= {"segment": SEGMENT, "walk": WALK}
    text = json.dumps([fingerprint, sections], sort_keys=True)
    assert stored["weights"] == hashlib.sha256(text.encode()).hexdigest()[:16]
    with opened(tmp_path / "m", config=config) as memory:
        assert {one.kind: (one.applied, one.reason) for one in memory.learning.records()} == {
            "weights": (True, ""),
            "threshold": (True, ""),
        }


def test_indexes_and_detectors_keep_the_former_names(tmp_path: Path) -> None:
    config = replace(config_of(), spread=Config().spread, modes=replace(Config().modes, use="kept"))
    with opened(tmp_path / "m", config=config) as memory:
        memory.add(turns())
        memory.retrieve("comet")
        memory.themes.switches()
        dim = memory.embedder.dim
    with opened(tmp_path / "m", config=config) as memory:
        kept = memory.store.meta_get(REGIME_KEY)
        assert kept is not None and json.loads(kept)["settings"] == REGIME | {"dim": dim}
    (path,) = (tmp_path / "m").rglob("snapshot.safetensors")
    with safe_open(path, "pt") as file:
        built = json.loads(file.metadata()["built"])
    assert built[3] == SPREAD
    assert built[4] == {name: MODES[name] for name in ("select", "count", "epsilon", "assign")}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("link.every", "which is link.batch_concepts now; give that"),
        (
            "decay.half_life",
            r"which is decay.half_life_days \(hours / 24\) now; give that",
        ),
        ("rank.dense_limit", "which is rank.exhaustive_up_to now; give that"),
        ("walk.kept", "which is a constant now; leave it out"),
        ("aggregate.words", "which is a constant now; leave it out"),
        ("plan.match", "which is a constant now; leave it out"),
        ("spread.top", "which is a constant now; leave it out"),
        ("link.window", "which is a constant now; leave it out"),
        ("link.concept_dedup", "which is a constant now; leave it out"),
        ("modes.build", "which modes.use says now; give one of none, kept, candidates"),
        ("modes.absolute", "which modes.select says now; give one of gcv_published"),
        ("calibration.others", "which is calibration.encoders.others now; give that"),
        ("context.summary", r"which is an argument now; give Layout\(shorten=...\) to compile"),
        ("context.format", r"which is an argument now; give Layout\(format=...\)"),
        ("structure.concepts", "which is an argument now; give concepts=True"),
    ],
)
def test_former_settings_say_what_became_of_them(name: str, said: str) -> None:
    with pytest.raises(ConfigError, match=f"config: expected settings, got '{name}', {said}"):
        load_config("default", {name: 1})


def test_all_former_settings_of_a_preset_are_listed_at_once(tmp_path: Path) -> None:
    preset = tmp_path / "mine.yaml"
    preset.write_text(
        "extends: default\nlink: {window_turns: 2, every: 9}\nmodes: {drift: 0.07, build: true}\n"
        "context: {format: markdown, unheard: 1}\n"
    )
    with pytest.raises(ConfigError) as caught:
        load_config(str(preset))
    told = str(caught.value)
    assert "\n" not in told and "'link.window_turns', 'modes.drift', which is a constant" in told
    assert all(f"'{name}'" in told for name in ("link.every", "modes.build", "context.format"))
    assert "unheard" not in told  # has no former meaning
