import pytest
from pydantic import Field

from tuneparts.config import Config, parse
from tuneparts.errors import ConfigError


class Inner(Config):
    lr: float = Field(default=0.1, gt=0)


class Outer(Config):
    num_epochs: int = 3
    inner: Inner = Inner()
    maybe: Inner | None = None


def test_an_unknown_key_names_the_nearest_field() -> None:
    with pytest.raises(
        ConfigError, match=r"`num_epoch` is not a field of Outer. Did you mean `num_epochs`"
    ):
        parse(Outer, {"num_epoch": 4})


def test_replaced_changes_nested_fields_and_validates() -> None:
    changed = Outer().replaced({"inner.lr": 0.5, "num_epochs": 7, "maybe.lr": 0.2})
    assert (changed.inner.lr, changed.num_epochs) == (0.5, 7)
    assert changed.maybe == Inner(lr=0.2)
    with pytest.raises(ConfigError, match=r"inner.lr"):
        Outer().replaced({"inner.lr": -1})


@pytest.mark.parametrize("path", ["nothing.lr", "num_epochs.lr", "inner.nothing", "nothing"])
def test_a_path_that_leads_nowhere_is_refused(path: str) -> None:
    with pytest.raises(ConfigError, match=r"nothing|num_epochs"):
        Outer().replaced({path: 1})


def test_a_config_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Outer().num_epochs = 5
