from tuneparts.core import schema
from tuneparts.core.schema import Direction, Metric
from tuneparts.data.config import Data
from tuneparts.methods.baselines.config import Standard
from tuneparts.search import card, load
from tuneparts.search.algorithms.sampler import Pruned, Tpe
from tuneparts.search.space import Choice, Int, Normal, Uniform


def test_arms_of_the_quickstart_say_what_they_are():
    search = load.load("rotated_digits", scale="smoke")
    told = {arm.name: card._what(search, arm) for arm in search.arms}
    assert all(text.endswith((".", ")")) for text in told.values())
    assert told["partitioned"].startswith("Weights and hyperparameters in one run")
    assert "independent draws" in told["random"]
    assert "hyperparameters that `partitioned` found" in told["partitioned_retrained"]
    assert len(set(told.values())) == len(told)


def test_arms_of_one_method_say_how_they_differ():
    search = load.load("random_vs_partitioned", scale="smoke")
    assert "As `augerino`, but with `safe` False." in card._what(
        search, search.arm("augerino_unsafe")
    )
    oracle = card._what(search, search.arm("oracle"))
    assert "`hypers.affine` (" in oracle
    assert "rotation 3.14" in oracle
    assert "sampler tpe" in card._what(search, search.arm("tpe"))


def test_the_usual_pruner_is_named_and_a_sampler_that_is_no_field_is_not(null_search, null_arm):
    arms = {"pruned": Pruned(num_trials=3, every=2), "tpe": Tpe(num_trials=3, num_startup=2)}
    search = null_search(*(null_arm(name, algorithm=own) for name, own in arms.items()))
    assert card._what(search, search.arm("pruned")).endswith("(pruner median, every 2)")
    assert card._what(search, search.arm("tpe")).endswith("(num_startup 2)")


def test_a_space_in_words_with_units():
    space = {
        "hypers.affine.rotation": Uniform(low=0, high=3.14),
        "hypers.affine.shear": Uniform(low=0, high=0.5),
        "hypers.affine.scale_x": Uniform(low=0, high=0.5),
        "batch_size": Int(low=16, high=64, step=16),
        "optimiser.kind": Choice(options=("sgd", "adam")),
        "noise": Normal(mean=0.0, std=1.0),
    }
    assert card._space(space) == (
        "rotation (rad): 0 to 3.14; shear, scale_x (log): 0 to 0.5; "
        "batch_size: 16 to 64 in steps of 16; kind: sgd or adam; noise: normal (mean 0, std 1)"
    )
    assert card._space({}) == ""


def test_data_and_nets_in_words():
    search = load.load("rotated_digits", scale="smoke")
    assert card._data(search, None).startswith("digits, rotated")
    counts = {"num_train": 1000, "num_val": 300, "num_test": 500, "in_shape": [1, 8, 8]}
    assert "1,000 training, 300 validation, 500 test examples of 1 x 8 x 8" in card._data(
        search, counts
    )
    assert card._nets(search).startswith("digits_cnn")


def test_the_truth_is_known_where_data_is_made():
    assert Data(name="digits", rotated=True).truth.keys() == {"hyper/rotation"}
    assert Data(name="input_selection").truth == {"hyper/num_kept": 15.0}
    assert Data(name="digits").truth == {}


def test_a_class_without_words_of_its_own_is_named():
    class Plain(Standard):
        pass

    assert card._sentence(Plain()) == ""


def test_a_card_survives_json():
    arm = card.ArmCard("a", "standard", 2, (0, 1), what="An arm.")
    stop = card._StopCard("a", 0, "asked for")
    told = card.RunCard("s", "q", (arm,), found={"hyper/x": None}, stops=(stop,), within=0.1)
    assert card.RunCard.from_json(told.to_json()) == told


def test_source_arms_nearest_first():
    arms = [
        card.ArmCard(n, "m", 1, (0,), source=f) for n, f in [("a", None), ("b", "a"), ("c", "b")]
    ]
    assert card.RunCard("s", "q", tuple(arms)).sources("c") == ("b", "a")


def test_metrics_of_methods_are_declared_for_readers_without_the_methods(monkeypatch):
    monkeypatch.setattr(schema, "METRICS", dict(schema.METRICS))
    own = Metric("val/regret", Direction.DOWN, "s", 2, "distance to the optimum")
    told = card.RunCard("s", "q", (), metric="val/regret", metrics=(own,))
    assert schema.find("val/regret") is None
    assert card.RunCard.from_json(told.to_json()) == told
    assert schema.selection_metric("val/regret") == own
