"""The fields that a method's config has are listed, those of a net of its own included."""

from tuneparts.cli._listing import fields_of
from tuneparts.cli._training import split_changes
from tuneparts.methods.ensembles.config import Hne, MsdNetEnsemble


def test_fields_of_the_one_net_that_a_method_takes_are_listed() -> None:
    found = {one.path: one.default for one in fields_of(MsdNetEnsemble)}
    assert found["sizes.exits"] == "2"  # the default of the method, and not of the net


def test_fields_of_any_net_are_left_to_the_listing_of_nets() -> None:
    paths = {one.path for one in fields_of(Hne)}
    assert "net" in paths
    assert not any(path.startswith("net.") for path in paths)


def test_changes_are_of_the_method_or_of_the_data() -> None:
    changes = ["standard.optimiser.lr=0.1", "steps=200", "data.rotated=true"]
    expected = {"optimiser.lr": 0.1, "steps": 200}, {"rotated": True}
    assert split_changes(changes, "standard") == expected
