"""A method is found by its name or by the import path of its config class."""

import doctest
from importlib import metadata
from typing import Literal

import pytest

from tuneparts.core.config import parse
from tuneparts.core.errors import ConfigError, UnknownNameError
from tuneparts.methods import catalog
from tuneparts.methods.baselines.config import Standard
from tuneparts.search.arm import Arm
from tuneparts.testing.null import NullConfig
from tuneparts.training.config import Method


@pytest.mark.parametrize("name", list(catalog.METHODS.known))
def test_the_name_in_a_config_leads_back_to_its_class(name: str) -> None:
    config = catalog.config_class(name)()
    assert config.model_dump(mode="json")["method"] == name
    assert type(config) is catalog.config_class(name)


def test_a_config_that_names_its_import_path_survives_json() -> None:
    config = NullConfig(x=0.25)
    tree = config.model_dump(mode="json")
    assert parse(catalog.config_class(tree["method"]), tree) == config


def test_an_unknown_word_lists_the_known_ones() -> None:
    with pytest.raises(UnknownNameError, match="Did you mean `standard`"):
        catalog.config_class("standart")


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("nowhere.at.all:Config", "No module named 'nowhere'"),
        ("tuneparts.testing.null:NoConfig", "NoConfig"),
        ("tuneparts.testing.null:NullLearner", "subclass of Method"),
        ("json:dumps", "subclass of Method"),
        (":NullConfig", "package.module:Name"),
        (".null:NullConfig", "package.module:Name"),
        ("tuneparts.testing.null:", "package.module:Name"),
        ("a\0b:C", "package.module:Name"),
    ],
)
def test_a_path_that_leads_to_no_method_is_refused(path: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        catalog.config_class(path)


def test_the_example_runs() -> None:
    assert doctest.testmod(catalog).failed == 0


class Mine(Standard):
    """Has no field `method` of its own."""


class Twin(Standard):
    method: Literal["standard"] = "standard"


class Word(Standard):
    method: Literal["mine"] = "mine"


def test_a_class_without_a_name_is_named_by_its_import_path() -> None:
    config = Mine(steps=8)
    assert config.model_dump()["method"] == f"{__name__}:Mine"
    assert Standard().method == "standard"
    assert "method" not in Method.model_fields
    arm = Arm(name="mine", config=config)
    assert type(parse(Arm, arm.model_dump(mode="json")).config) is Mine


def test_a_class_that_a_worker_cannot_import_is_refused() -> None:
    class Local(Standard):
        pass

    with pytest.raises(ValueError, match=r"stands inside a function\. Define it"):
        Arm(name="mine", config=Local())


def test_two_methods_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match=r"`standard` of .*:Twin is the name of tuneparts.*Leave"):
        Arm(name="mine", config=Twin())


def test_a_word_that_nobody_knows_is_refused_with_the_cure() -> None:
    with pytest.raises(ValueError, match=r"`mine` is not a known method.*Leave the field `method`"):
        Arm(name="mine", config=Word())


@pytest.fixture
def installed(monkeypatch):
    """Pretends that a package with entry points is installed."""

    def install(**points: str) -> None:
        made = [
            metadata.EntryPoint(name, path, catalog.METHODS.group) for name, path in points.items()
        ]
        monkeypatch.setattr(metadata, "entry_points", lambda group: made)

    return install


def test_an_installed_package_gives_a_name_to_its_method(installed) -> None:
    installed(ours=f"{__name__}:Mine", mine=f"{__name__}:Word")
    assert catalog.METHODS.names()["ours"] == f"{__name__}:Mine"
    arm = parse(Arm, {"name": "a", "config": {"method": "ours", "steps": 8}})
    assert arm.config == Mine(steps=8)
    assert Arm(name="mine", config=Word()).config.method == "mine"


def test_an_entry_point_with_a_taken_name_is_refused(installed) -> None:
    installed(standard=f"{__name__}:Mine")
    with pytest.raises(ConfigError, match=r"`standard` of .*Mine.*Rename"):
        catalog.METHODS.names()
