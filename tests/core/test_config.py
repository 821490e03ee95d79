import re
from typing import Annotated, Any, Literal

import pytest
from pydantic import Field

from tuneparts.core.config import Config, differing, parse
from tuneparts.core.errors import ConfigError


class Inner(Config):
    lr: float = Field(default=0.1, gt=0)


class Outer(Config):
    num_epochs: int = 3
    inner: Inner = Inner()
    maybe: Inner | None = None


class Small(Config):
    kind: Literal["small"] = "small"
    num: int = Field(default=1, le=3)


class Large(Config):
    kind: Literal["large"] = "large"
    tall: bool = True


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


class Member(Config):
    name: str
    size: Annotated[Small | Large, Field(discriminator="kind")]


class Team(Config):
    members: tuple[Member, ...] = ()


@pytest.mark.parametrize(
    ("cls", "values", "said"),
    [
        (Inner, {"lr": 0}, "`lr` = 0: should be greater than 0"),
        (Inner, {"lr": "fast"}, "`lr` = 'fast': should be a valid number"),
        (Outer, {"num_epochs": 1.5}, "`num_epochs` = 1.5: should be a valid integer"),
        (Outer, {"inner": {"lr": -1}}, "`inner.lr` = -1: should be greater than 0"),
        (
            Team,
            {"members": [{"name": "ann", "size": {"kind": "small", "num": 9}}]},
            "`ann.size.num` = 9: should be less than or equal to 3",
        ),
        (Team, {"members": [{"size": {"kind": "large"}}]}, "members.0.name: Field required"),
        (
            Team,
            {"members": [{"name": "ann", "size": {"kind": "large", "tall": "x"}}]},
            "`ann.size.tall` = 'x': should be a valid boolean",
        ),
    ],
)
def test_what_is_out_of_range_is_told_with_the_field_and_its_value(cls, values, said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        parse(cls, values)


def test_a_config_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Outer().num_epochs = 5


class _Kind(Config):
    kind: str = "plain"
    old: int = 1
    new: tuple[int, ...] = ()


class _Holder(Config):
    one: _Kind = _Kind()
    many: tuple[_Kind, ...] = ()
    named: dict[str, _Kind] = Field(default_factory=dict)


def test_what_differs_is_told_with_the_kind_of_each_part() -> None:
    def found(holder: _Holder) -> Any:
        return differing(holder, holder.model_dump(mode="json"))

    assert found(_Holder(one=_Kind(old=1))) == {}
    assert found(_Holder(many=(_Kind(), _Kind(new=(2,))), named={"a": _Kind(old=3)})) == {
        "many": [{"kind": "plain"}, {"kind": "plain", "new": [2]}],
        "named": {"a": {"kind": "plain", "old": 3}},
    }
