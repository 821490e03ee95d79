"""A method is found by its name or by the import path of its config class."""

import doctest

import pytest

from tuneparts import catalog
from tuneparts.bench.null import NullConfig
from tuneparts.config import parse
from tuneparts.errors import ConfigError, UnknownNameError


@pytest.mark.parametrize("name", list(catalog.METHODS))
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
        ("tuneparts.bench.null:NoConfig", "NoConfig"),
        ("tuneparts.bench.null:NullLearner", "subclass of MethodConfig"),
        ("json:dumps", "subclass of MethodConfig"),
        (":NullConfig", "package.module:ConfigClass"),
        (".null:NullConfig", "package.module:ConfigClass"),
        ("tuneparts.bench.null:", "package.module:ConfigClass"),
        ("a\0b:C", "package.module:ConfigClass"),
    ],
)
def test_a_path_that_leads_to_no_method_is_refused(path: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        catalog.config_class(path)


def test_the_example_runs() -> None:
    assert doctest.testmod(catalog).failed == 0
