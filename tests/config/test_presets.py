"""Settings are read strictly: what is misspelt or of the wrong type is named, never passed over."""

from __future__ import annotations

import json
import math
import re
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

import graphmem_torch.rank.signals  # noqa: F401  (registers them)
from graphmem_torch.atoms import EdgeType
from graphmem_torch.config import (
    Config,
    config_from_dict,
    config_to_dict,
    load_config,
    preset_names,
    preset_path,
    save_preset,
)
from graphmem_torch.errors import ConfigError
from graphmem_torch.memory.mentions import NAME_COSINE
from graphmem_torch.memory.session_turns import WINDOW_TURNS
from graphmem_torch.ops.spread import INHIBITORS
from graphmem_torch.rank.abstention import ABSTENTION_STATISTICS
from graphmem_torch.rank.registry import check_signal_names, signal_names


@pytest.fixture
def shipped(root: Path) -> list[Path]:
    return sorted((root / "configs").glob("*.yaml"), key=lambda path: path.stem)


def test_presets_say_what_their_files_say(shipped: list[Path]) -> None:
    assert preset_names() == [path.stem for path in shipped]
    assert {"default", "synapse"} <= set(preset_names())
    for path in shipped:
        config = load_config(path.stem)
        assert config.name == path.stem
        assert config == load_config(str(path))
        written = yaml.safe_load(path.read_text())
        whole = config_to_dict(config)
        assert json.loads(json.dumps(whole)) == whole
        for section, values in written.items():
            for key, value in values.items() if isinstance(values, dict) else ():
                own = whole[section][key]
                if isinstance(value, dict):  # beside those of the preset that it extends
                    value = {name: number for name, number in value.items() if number is not None}
                    own = {name: own[name] for name in value}
                assert own == value
        check_signal_names(config.rank.weights)
        assert set(signal_names(config.gate.weights)) <= set(ABSTENTION_STATISTICS)
        assert {*config.spread.edges, *config.spread.reverse} <= {t.name.lower() for t in EdgeType}


def test_synapse_has_the_constants_of_the_paper() -> None:
    config = load_config("synapse-published")
    spread = config.spread
    # docs/mathematics.md 4; retention is 1 - delta.
    assert (spread.rounds, spread.retention, spread.spread) == (3, 0.5, 0.8)
    assert spread.inhibition == 0.15
    assert (spread.gain, spread.threshold, spread.max_edges) == (5.0, 0.5, 15)
    assert (spread.reduce, spread.fan, spread.firing) == ("sum", "degree", "sigmoid")
    assert config.rank.weights == {"semantic_positive": 0.5, "activation": 0.3, "pagerank": 0.2}
    assert (config.rank.k, config.gate.threshold, config.anchors.source) == (30, 0.12, "dual")
    assert (INHIBITORS, WINDOW_TURNS, NAME_COSINE) == (7, 5, 0.92)


def test_config_round_trip_and_defaults() -> None:
    for name in preset_names():
        config = load_config(name)
        assert config_from_dict(config_to_dict(config)) == config
        assert config_from_dict(yaml.safe_load(yaml.safe_dump(config_to_dict(config)))) == config
    assert config_from_dict({}) == Config()


def test_overrides_by_dotted_name_and_nested() -> None:
    base = load_config("default")
    dotted = load_config("default", {"spread.rounds": 7, "rank.weights.semantic": 9})
    nested = load_config("default", {"spread": {"rounds": 7}, "rank": {"weights": {"semantic": 9}}})
    assert dotted == nested
    expected = config_to_dict(base)
    expected["spread"]["rounds"] = 7
    expected["rank"]["weights"]["semantic"] = 9.0
    assert config_to_dict(dotted) == expected
    assert load_config("default") == base  # an override leaves no trace


def test_overrides_add_what_the_file_does_not_name() -> None:
    config = load_config("synapse", {"rank.exhaustive_up_to": 5, "embedder.name": "hashing"})
    assert (config.rank.exhaustive_up_to, config.embedder.name) == (5, "hashing")


def test_numbers_of_the_other_kind_are_taken_when_nothing_is_lost() -> None:
    config = config_from_dict({"rank": {"k": 5.0}, "gate": {"threshold": 1}})
    assert (config.rank.k, config.gate.threshold) == (5, 1.0)
    assert isinstance(config.rank.k, int)
    assert isinstance(config.gate.threshold, float)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"spread.round": 3}, r"config: .*, got 'spread.round'; did you mean 'spread.rounds'\?"),
        ({"sprad.rounds": 3}, r"config: .*, got 'sprad'; did you mean 'spread'\?"),
        ({"rank.weigths": {}}, r"config: .*; did you mean 'rank.weights'\?"),
        ({"spread.edges.temporl": 1.0}, r"spread.edges: .* 'temporl'; did you mean 'temporal'\?"),
        ({"spread.reverse.cause": 1.0}, r"spread.reverse: .* 'cause'; did you mean 'causes'\?"),
        ({"context.requires": ["caus"]}, r"context.requires: .* 'caus'; did you mean 'causes'\?"),
        (
            {"decay.half_life_days.semantc": 1},
            r"decay.half_life_days: .*; did you mean 'semantic'\?",
        ),
        ({"spread.reduce": "mean"}, "spread.reduce: expected one of sum, max, got 'mean'"),
        ({"spread.rounds": 2.5}, "spread.rounds: expected a whole number, got 2.5"),
        ({"spread.rounds": True}, "spread.rounds: expected a whole number, got True"),
        ({"spread.rounds": "3"}, "spread.rounds: expected a whole number, got '3'"),
        ({"spread.spread": None}, "spread.spread: expected a number, got None"),
        ({"embedder.name": 3}, "embedder.name: expected a text, got 3"),
        ({"plan.use": 1}, "plan.use: expected true or false, got 1"),
        ({"rank": 3}, "rank: expected settings, got 3"),
        ({"rank.weights": [1]}, r"rank.weights: expected a mapping of names to numbers, got \[1\]"),
        ({"rank.weights.semantic": "x"}, "rank.weights.semantic: expected a number, got 'x'"),
        ({"rank.k.deeper": 1}, "k: expected a section, got 30"),
        ({"context.requires": 3}, "context.requires: expected a list of edge types, got 3"),
    ],
)
def test_overrides_that_do_not_fit_are_named(overrides: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_config("default", overrides)


def test_preset_path_of_an_unknown_preset_and_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"got 'synaps'; did you mean 'synapse'\?"):
        load_config("synaps")
    with pytest.raises(
        ConfigError, match=r"preset: expected a YAML file of settings, or one of .*, got .*no file"
    ):
        preset_path(str(tmp_path / "none.yaml"))
    (tmp_path / "mine.yaml").write_text("extends: mien2.yaml")
    (tmp_path / "mine2.yaml").write_text("extends: default")
    with pytest.raises(ConfigError, match=r"did you mean .*mine.yaml\?"):
        preset_path(str(tmp_path / "mien.yaml"))
    with pytest.raises(ConfigError, match=r"extends: .*did you mean 'mine2.yaml'\?"):
        load_config(str(tmp_path / "mine.yaml"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"- 1\n- 2\n", "own.yaml: expected a mapping, got list"),
        (b"rank: [1, 2", "own.yaml: expected YAML, got"),
        (b"\xff\xfe\xfa", "own.yaml: expected YAML, got"),
        (b"spread: 5\n", "spread: expected settings, got 5"),
        (b"3: 5\n", "config: expected one of .*, got '3'"),
    ],
)
def test_load_config_of_an_unusable_file(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "own.yaml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        load_config(str(path))


def test_load_config_of_an_own_and_an_empty_file(tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    path.write_text("rank: {k: 3, weights: {semantic: 1}}\n")
    assert load_config(str(path)).rank.k == 3
    assert load_config(str(path)).name == "own"
    for content in ("", "rank: {k: 3}\n"):
        path.write_text(content)
        with pytest.raises(ConfigError, match=r"own.yaml: expected the weights .*extends: default"):
            load_config(str(path))
    assert load_config(str(path), {"rank.weights.semantic": 1}).rank.weights == {"semantic": 1.0}


def _files(folder: Path, **files: Any) -> list[str]:
    """Presets as files; their paths in the order of their names."""
    for name, content in files.items():
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(content))
    return [str(folder / f"{name}.yaml") for name in files]


def test_a_partial_preset_is_filled_from_the_one_it_extends(tmp_path: Path) -> None:
    own = {
        "extends": "default",
        "rank": {"k": 7, "weights": {"speaker": None, "semantic": 2.5, "recency": 0.25}},
        "context": {"temperature": None},
        "gate": None,
    }
    (path,) = _files(tmp_path, mine=own)
    written = yaml.safe_load(preset_path("default").read_text())
    weights = {**written["rank"]["weights"], "semantic": 2.5, "recency": 0.25}
    del weights["speaker"], written["context"]["temperature"], written["gate"]
    written |= {"name": "mine", "rank": {**written["rank"], "k": 7, "weights": weights}}
    assert load_config(path) == config_from_dict(written)
    assert "gate" in config_to_dict(load_config(path))  # whole, and without `extends`
    assert config_from_dict(config_to_dict(load_config(path))) == load_config(path)
    assert load_config("default").rank.weights["speaker"]  # what is extended stays as it is
    assert load_config(path, {"rank.k": 9}).rank.k == 9


@pytest.mark.parametrize("base", ["default", "synapse", "contextos"])
def test_settings_are_saved_as_what_differs_from_a_preset(tmp_path: Path, base: str) -> None:
    path = tmp_path / "mine.yaml"
    shipped = load_config(base)
    first, *rest = shipped.rank.weights
    changed = replace(
        shipped,
        rank=replace(shipped.rank, k=7, weights={**dict.fromkeys(rest, 1.5), "recency": 1 / 3}),
        gate=replace(shipped.gate, threshold=0.1, weights={"best_lexical": 2.0}),
        context=replace(shipped.context, requires=("causes",)),
    )
    for config in (shipped, changed, replace(changed, name="not shipped")):
        save_preset(config, path)
        assert load_config(str(path)) == replace(config, name="mine")
    assert yaml.safe_load(path.read_text())["extends"] == "default"
    save_preset(shipped, path)
    assert yaml.safe_load(path.read_text()) == {"extends": base} and first
    with pytest.raises(ConfigError, match=r"path: expected a file that ends in \.yaml"):
        save_preset(shipped, tmp_path / "mine")


def test_presets_extend_files_beside_them(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    one = {"extends": "deep/two.yaml", "rank": {"weights": {"lexical": 3}}, "name": "top"}
    (path,) = _files(tmp_path, one=one)
    two = {"extends": "../default.yaml", "rank": {"k": 4, "weights": {"semantic": None}}}
    _files(tmp_path / "deep", two=two)
    # A file may extend the shipped preset of its own name.
    _files(tmp_path, default={"extends": "default", "rank": {"k": 3, "exhaustive_up_to": 9}})
    config = load_config(path)
    assert (config.name, config.rank.k, config.rank.exhaustive_up_to) == ("top", 4, 9)
    weights = {**load_config("default").rank.weights, "lexical": 3.0}
    del weights["semantic"]
    assert config.rank.weights == weights


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"a": {"extends": "defalt"}}, r"a.yaml: extends: .*'defalt'; did you mean 'default'\?"),
        ({"a": {"extends": "none.yaml"}}, "a.yaml: extends: .* beside a.yaml, got 'none.yaml'"),
        (
            {"a": {"extends": ["default"]}},
            r"a.yaml: extends: expected the name .*, got \['default'\]",
        ),
        ({"a": {"extends": None}}, "a.yaml: extends: expected the name of a preset .*, got None"),
        ({"a": {"extends": "a.yaml"}}, "extends: .*, got a.yaml -> a.yaml"),
        (
            {"a": {"extends": "b.yaml"}, "b": {"extends": "c.yaml"}, "c": {"extends": "a.yaml"}},
            "extends: .*, got a.yaml -> b.yaml -> c.yaml -> a.yaml",
        ),
        (
            {"a": {"extends": "default", "rank": {"weights": {"speeker": None}}}},
            r"a.yaml: rank.weights.speeker: .*, got 'speeker'; did you mean 'speaker'\?",
        ),
        ({"a": {"extends": "default", "rank": {"weights": None}}}, "a.yaml: expected the weights"),
        ({"a": {"extends": "default", "rnk": {"k": 3}}}, r"'rnk'; did you mean 'rank'\?"),
    ],
)
def test_what_cannot_be_extended_is_named(
    files: dict[str, Any], message: str, tmp_path: Path
) -> None:
    path, *_ = _files(tmp_path, **files)
    with pytest.raises(ConfigError, match=message):
        load_config(path)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("link.batch_atoms", 0, "a finite number of at least 1, got 0"),
        ("anchors.k", -1, "a finite number of at least 1, got -1"),
        ("rank.k", 0, "a finite number of at least 1, got 0"),
        ("segment.discount", 0.0, "a finite number of at least 1e-09 and of at most 1, got 0.0"),
        ("decay.half_life_days.working", -1.0, "a finite number of at least 0, got -1.0"),
        ("rank.weights.semantic", math.nan, "a finite number, got nan"),
        ("gate.bias", math.inf, "a finite number, got inf"),
    ],
)
def test_bounds_of_numbers(name: str, value: float, message: str) -> None:
    with pytest.raises(ConfigError, match=f"{name}: expected {message}"):
        load_config(overrides={name: value})


def _leaves() -> list[str]:
    sections = [field.name for field in fields(Config) if field.name != "name"]
    return [f"{name}.{leaf.name}" for name in sections for leaf in fields(getattr(Config(), name))]


def test_settings_do_not_become_more() -> None:
    """A new one needs a preset or a measurement that varies it; else it is a constant."""
    assert len(_leaves()) <= 88


def test_each_setting_is_read(root: Path) -> None:
    package = root / "graphmem_torch"
    paths = [path for path in package.rglob("*.py") if path.parent.name != "config"]
    text = "\n".join(path.read_text("utf-8") for path in paths)
    unread = [leaf for leaf in _leaves() if not re.search(rf"\.{leaf.split('.')[1]}\b", text)]
    assert not unread
