"""What a search file says once, and what its arms take over from it."""

import json
from pathlib import Path
from typing import Any

import pytest

import tuneparts as tp
from tuneparts.core.config import parse
from tuneparts.core.errors import ConfigError
from tuneparts.search import load
from tuneparts.search.arm import Arm
from tuneparts.search.space import Dimension
from tuneparts.search.spec import Search

DATA = tp.data.Digits(num_train=40, num_val=20, num_test=20)
RATES = {"lr": tp.Uniform(0.001, 0.1, log=True)}


def asked(arms: dict[str, Any], **fields: Any) -> Search:
    return Search(**{"data": DATA, "steps": 40, "arms": arms, **fields})


def again(search: Search) -> Search:
    return parse(Search, json.loads(search.model_dump_json()))


def test_arms_have_the_names_of_their_keys() -> None:
    arms = {
        "method": tp.Standard(),
        "arm": tp.Arm(config=tp.Standard(), max_failures=0),
        "searched": tp.Standard().searched_by(tp.RandomSearch(2), lr=tp.Uniform(0.001, 0.1)),
        "plain": {"config": {"method": "standard"}},
    }
    search = asked(arms)
    assert [arm.name for arm in search.arms] == list(arms)
    assert search.arm("arm").max_failures == 0
    assert asked({name: search.arm(name) for name in arms}) == search
    with pytest.raises(ValueError, match="pattern"):
        asked({"Not a name": tp.Standard()})


def test_what_arms_share_is_taken_over_where_they_do_not_set_it() -> None:
    shared: dict[str, Any] = {
        "net": tp.nets.DigitsCnn(),
        "hypers": tp.Affine(),
        "interval": 8,
        "batch_size": 16,
        "optimiser": tp.Sgd(lr=0.5),
        "runtime": tp.Runtime(precision="bf16"),
    }
    own: dict[str, Any] = {
        "net": tp.nets.Mlp(),
        "hypers": [],
        "interval": 20,
        "batch_size": 50,
        "optimiser": tp.Adam(),
        "runtime": tp.Runtime(),
    }
    search = asked({"taking": tp.Standard(), "own": tp.Standard(**own)}, **shared)
    for found in (search, again(search)):
        taking, other = found.arm("taking").config, found.arm("own").config
        for name, value in shared.items():
            assert getattr(taking, name) == getattr(search, name), name
            assert getattr(other, name) == getattr(tp.Standard(**own), name), name
            assert value is not None
        assert taking.steps == other.steps == 40
    assert again(search) == search
    assert again(search).digest == search.digest
    alone = asked({"taking": search.arm("taking").config, "own": search.arm("own").config})
    assert alone.digest == search.digest  # where a field stands changes no number


def test_the_interval_is_a_tenth_of_the_steps_unless_given() -> None:
    assert asked({"a": tp.Standard()}).arm("a").config.interval == 4
    assert asked({"a": tp.Standard()}, steps=5).arm("a").config.interval == 1
    assert asked({"a": tp.Standard(interval=7)}).arm("a").config.interval == 7
    assert asked({"a": tp.Standard()}, interval=7).arm("a").config.interval == 7
    search = asked({"a": tp.Standard(), "b": tp.Standard(steps=80)}, steps=80)
    assert [arm.config.interval for arm in search.arms] == [8, 8]


@pytest.mark.parametrize(("given", "seeds"), [(3, (0, 1, 2)), ((7, 5), (7, 5)), ([4], (4,))])
def test_a_number_of_seeds_counts_from_zero(given: Any, seeds: tuple[int, ...]) -> None:
    assert asked({"a": tp.Standard()}, seeds=given).seeds == seeds


def test_a_path_of_a_space_may_be_its_last_name() -> None:
    def paths(space: dict[str, Dimension], **fields: Any) -> list[str]:
        arm = tp.Standard(hypers=tp.Affine()).searched_by(tp.RandomSearch(2), space)
        return list(asked({"a": arm}, **fields).arm("a").space)

    whole = ["optimiser.lr", "hypers.affine.rotation"]
    assert paths({**RATES, "rotation": tp.Uniform(0, 3)}) == whole
    assert paths({path: tp.Uniform(0.01, 0.5) for path in whole}) == whole
    assert paths({"data.num_train": tp.Choice([20, 40])}) == ["data.num_train"]
    with pytest.raises(ValueError, match=r"arms\['a'\].space\['rotatoin'\]: no such field of Stan"):
        paths({"rotatoin": tp.Uniform(0, 3)})
    with pytest.raises(ValueError, match=r"Did you mean `hypers.affine.rotation`\?"):
        paths({"rotatoin": tp.Uniform(0, 3)})


def test_a_name_that_two_fields_have_is_refused() -> None:
    twice = tp.Partitioned(hypers=tp.Affine(), finetune=tp.Finetune(optimiser=tp.Adam()))
    said = r"arms\['a'\].space\['lr'\]: could be (optimiser|finetune.optimiser).lr or .*\. Write"
    with pytest.raises(ValueError, match=said):
        asked({"a": twice.searched_by(tp.RandomSearch(2), RATES)})


def test_points_have_the_paths_of_their_space() -> None:
    arm = tp.Arm(config=tp.Standard(), algorithm=tp.RandomSearch(2), space=RATES)
    arm = arm.model_copy(update={"points": ({"lr": 0.05},)})
    search = asked({"a": arm})
    assert search.arm("a").points == ({"optimiser.lr": 0.05},)
    assert again(search) == search
    with pytest.raises(ValueError, match=r"arms\['a'\].points\[0\]\['rl'\]: no such dimension"):
        asked({"a": tp.Arm(**{**dict(arm), "points": ({"rl": 0.05},)})})


@pytest.mark.parametrize("source", ["nobody", "later", "taking"])
def test_hypers_come_from_an_arm_before(source: str) -> None:
    arms = {
        "first": tp.Partitioned.published(),
        "taking": tp.Standard(hypers_from=source),
        "later": tp.Partitioned.published(),
    }
    said = rf"arms\['taking'\].hypers_from = '{source}': must be an arm before it \(first\)"
    with pytest.raises(ValueError, match=said):
        asked(arms, hypers=tp.Affine())


@pytest.mark.parametrize(
    ("short", "long"),
    [
        (tp.Uniform(0, 1), {"kind": "uniform", "low": 0.0, "high": 1.0}),
        (tp.Uniform(1, 8, log=True), {"kind": "uniform", "low": 1.0, "high": 8.0, "log": True}),
        (tp.Int(1, 8), {"kind": "int", "low": 1, "high": 8}),
        (tp.Choice([16, 32]), {"kind": "choice", "options": [16, 32]}),
        (tp.Normal(0.5, 2), {"kind": "normal", "mean": 0.5, "std": 2.0}),
        (tp.RandomSearch(20), {"kind": "random", "num_trials": 20}),
        (tp.Tpe(20), {"kind": "tpe", "num_trials": 20}),
        (tp.Asha(20, min_steps=5), {"kind": "asha", "num_trials": 20, "min_steps": 5}),
    ],
)
def test_positions_say_what_names_say(short: Any, long: dict[str, Any]) -> None:
    base = tp.Dimension if isinstance(short, tp.Dimension) else tp.Algorithm
    named = base.made_from(long)
    assert short == named
    assert type(short) is type(named)
    assert base.made_from(json.loads(short.model_dump_json())) == short
    field = "space" if base is tp.Dimension else "algorithm"
    whole = {"algorithm": tp.RandomSearch(2), "space": {"lr": tp.Uniform(0, 1)}}
    whole[field] = {"lr": short} if field == "space" else short
    arm = tp.Arm(config=tp.Standard(), **whole)
    assert parse(Arm, json.loads(arm.model_dump_json())) == arm


FILE = '''"""Which rate is best?

What follows is for readers of the file.
"""

import tuneparts as tp


def search(scale: tp.Scale, *, wide: bool = False) -> tp.Search:
    return tp.Search(
        data=tp.data.Digits(num_train=40, num_val=20, num_test=20),
        steps=scale.pick(smoke=20, cpu=40, paper=80),
        arms={
            "plain": tp.Standard(),
            "wide": tp.Standard(net=tp.nets.Mlp(widths=(64,)) if wide else tp.nets.DigitsCnn()),
            "sgd": tp.Standard(optimiser=tp.Sgd(lr=0.1)),
            "longer": tp.Arm(config=tp.Standard(steps=100), budget_note="to see the end"),
        },
        EXTRA
    )
'''


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "best_rate.py"
    path.write_text(FILE.replace("EXTRA", ""))
    return path


def test_name_question_and_scale_come_from_the_file(file: Path) -> None:
    search = load.load(str(file), scale="smoke")
    assert (search.name, search.question) == ("best_rate", "Which rate is best?")
    assert (search.scale, search.steps, search.metric) == (tp.Scale.SMOKE, 20, "val/accuracy")
    given = 'name="mine", question="Why?", scale=tp.Scale.PAPER'
    file.write_text(FILE.replace("EXTRA", given))
    search = load.load(str(file), scale="smoke")
    assert (search.name, search.question, str(search.scale)) == ("mine", "Why?", "paper")
    outside = asked({"a": tp.Standard()})  # no file, no name of one
    assert (outside.name, outside.question) == ("search", "")


def changed(file: Path, *changes: str) -> Search:
    return load.load(str(file), scale="smoke", changes=changes)


def test_a_shared_field_can_be_changed_for_all_arms_that_take_it_over(file: Path) -> None:
    search = changed(file, "steps=200")
    assert search.steps == 200
    assert [arm.config.steps for arm in search.arms] == [200, 200, 200, 100]
    assert [arm.config.interval for arm in search.arms] == [20, 20, 20, 10]
    search = changed(file, "optimiser.lr=0.5", "batch_size=10", "search.interval=5")
    assert [arm.config.optimiser.lr for arm in search.arms] == [0.5, 0.5, 0.1, 0.5]
    assert {arm.config.batch_size for arm in search.arms} == {10}
    assert {arm.config.interval for arm in changed(file, "search.interval=5").arms} == {5}
    twice = changed(file, "steps=200", "steps=300", "search.interval=7", "optimiser.lr=0.5")
    assert [arm.config.steps for arm in twice.arms] == [300, 300, 300, 100]
    assert {arm.config.interval for arm in twice.arms} == {7}
    nets = [arm.config.net.name for arm in changed(file, "net=digits_cnn").arms]
    assert nets == ["digits_cnn"] * 4
    assert changed(file, "runtime.precision=bf16").arm("sgd").config.runtime.precision == "bf16"


def test_arms_keywords_and_other_fields_can_be_changed(file: Path) -> None:
    search = changed(file, "wide=true", "seeds=2", "max_failures=0", "stop.hours=2", "sgd.steps=40")
    assert search.arm("wide").config.net.name == "mlp"
    assert (search.seeds, search.max_failures, search.stop.hours) == ((0, 1), 0, 2.0)
    assert (search.arm("sgd").config.steps, search.arm("sgd").config.interval) == (40, 4)
    assert search.arm("sgd").budget_note


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("optimizer.lr=1", r"`optimizer.lr`: neither an arm nor .*Did you mean `optimiser.lr`\?"),
        ("lr=1", r"`lr`: neither an arm nor a field .* Did you mean `optimiser.lr`\?"),
        ("hours=1", r"Did you mean `stop.hours`\?"),
        ("sdg.steps=1", r"Did you mean `sgd.steps`\?"),
        ("sgd.lr=1", r"`lr`: no field of `sgd`. Did you mean `optimiser.lr`\?"),
        ("sgd=1", "`sgd`: is an arm, and a change of it reads `ARM.FIELD=VALUE`"),
        ("steps", "`steps`: a change reads `ARM.FIELD=VALUE`, or `FIELD=VALUE`"),
        ("optimiser.weight_decya=1", r"Did you mean `weight_decay`\?"),
        ("steps=0", "greater than 0"),
    ],
)
def test_a_change_of_nothing_says_what_was_meant(file: Path, change: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        changed(file, change)


def test_what_every_arm_has_for_itself_is_not_shared(file: Path) -> None:
    file.write_text(FILE.replace("EXTRA", "").replace("tp.Standard(", "tp.Standard(batch_size=9, "))
    with pytest.raises(
        ConfigError, match=r"`batch_size`: every arm has its own\. Change it as `ARM"
    ):
        changed(file, "batch_size=4")
