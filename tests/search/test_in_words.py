from tuneparts.data.config import DataConfig
from tuneparts.search import in_words, load
from tuneparts.search.algorithms import Pruned, Tpe
from tuneparts.search.space import Choice, Int, Normal, Uniform


def test_arms_of_the_quickstart_say_what_they_are():
    search = load.load("rotated_digits", scale="smoke")
    told = {arm.name: in_words.arm(search, arm.name) for arm in search.arms}
    assert all(text.endswith((".", ")")) for text in told.values())
    assert told["partitioned"].startswith("Weights and hypers in one run")
    assert "independent draws" in told["random"]
    assert "hypers that `partitioned` found" in told["partitioned_retrained"]
    assert len(set(told.values())) == len(told)


def test_arms_of_one_method_say_how_they_differ():
    search = load.load("random_vs_partitioned", scale="smoke")
    assert "As `augerino`, but with `safe` False." in in_words.arm(search, "augerino_unsafe")
    oracle = in_words.arm(search, "oracle")
    assert "`hypers.affine` (" in oracle
    assert "rotation 3.14" in oracle
    assert "sampler tpe" in in_words.arm(search, "tpe")


def test_the_usual_pruner_is_named_and_a_sampler_that_is_no_field_is_not(null_search, null_arm):
    arms = {"pruned": Pruned(num_trials=3, every=2), "tpe": Tpe(num_trials=3, num_startup=2)}
    search = null_search(*(null_arm(name, algorithm=own) for name, own in arms.items()))
    assert in_words.arm(search, "pruned").endswith("(pruner median, every 2)")
    assert in_words.arm(search, "tpe").endswith("(num_startup 2)")


def test_a_space_in_words_with_units():
    space = {
        "hypers.affine.rotation": Uniform(low=0, high=3.14),
        "hypers.affine.shear": Uniform(low=0, high=0.5),
        "hypers.affine.scale_x": Uniform(low=0, high=0.5),
        "batch_size": Int(low=16, high=64, step=16),
        "optimiser.kind": Choice(options=("sgd", "adam")),
        "noise": Normal(mean=0.0, std=1.0),
    }
    assert in_words.space(space) == (
        "rotation (rad): 0 to 3.14; shear, scale_x (log): 0 to 0.5; "
        "batch_size: 16 to 64 in steps of 16; kind: sgd or adam; noise: normal (mean 0, std 1)"
    )
    assert in_words.space({}) == ""


def test_data_and_nets_in_words():
    search = load.load("rotated_digits", scale="smoke")
    assert in_words.data(search, None).startswith("digits, rotated")
    counts = {"num_train": 1000, "num_val": 300, "num_test": 500, "in_shape": [1, 8, 8]}
    assert "1,000 training, 300 validation, 500 test examples of 1 x 8 x 8" in in_words.data(
        search, counts
    )
    assert in_words.net(search).startswith("digits_cnn")


def test_the_truth_is_known_where_data_is_made():
    assert DataConfig(name="digits", rotated=True).truth.keys() == {"hyper/rotation"}
    assert DataConfig(name="input_selection").truth == {"hyper/num_kept": 15.0}
    assert DataConfig(name="digits").truth == {}
