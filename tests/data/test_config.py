import os
import subprocess
import sys

import numpy as np
import pytest
from pydantic import ValidationError

import tuneparts as tp
from tuneparts.core.config import parse
from tuneparts.core.errors import ConfigError
from tuneparts.data import _images as image_files
from tuneparts.data import sets
from tuneparts.data._variants import angles, resample
from tuneparts.data.config import Data


def test_parts_have_the_sizes_asked_for():
    task = Data(name="digits", num_train=300, num_val=100, num_test=50).load()
    assert (len(task.train), len(task.val), len(task.test)) == (300, 100, 50)
    assert np.bincount(task.train.labels).min() >= 28


def test_no_validation_by_default():
    task = Data(name="digits").load()
    assert (len(task.train), len(task.val), len(task.test)) == (1297, 0, 500)
    assert task.val.inputs.shape == (0, 1, 8, 8)


def test_the_seed_moves_splits_but_not_the_test_part():
    one, two = (Data(name="digits", num_val=200, seed=seed).load() for seed in (0, 1))
    assert not np.array_equal(one.val.inputs, two.val.inputs)
    np.testing.assert_array_equal(one.test.inputs, two.test.inputs)


def _angle_of_each(config):
    """Which place in the official part every training image of a task has."""
    plain = Data(name="digits").load().train.inputs
    index = {image.tobytes(): i for i, image in enumerate(plain)}
    chosen = Data(**(config.model_dump() | {"rotated": False})).load().train.inputs
    return plain, np.array([index[image.tobytes()] for image in chosen])


@pytest.mark.parametrize("fields", [{}, {"num_train": 50}, {"num_train": 80, "seed": 3}])
def test_an_image_keeps_its_angle_whatever_the_subset(fields):
    config = Data(name="digits", rotated=True, **fields)
    plain, places = _angle_of_each(config)
    everything = resample(plain, degrees_N=angles(1297, "train"), pool=1)
    np.testing.assert_array_equal(config.load().train.inputs, everything[places])


def test_train_and_test_parts_turn_by_different_angles():
    plain = Data(name="digits").load()
    turned = Data(name="digits", rotated=True).load()
    assert turned.name == "rotated_digits"
    expected = resample(plain.test.inputs, degrees_N=angles(500, "test"), pool=1)
    np.testing.assert_array_equal(turned.test.inputs, expected)


def test_pooling_halves_the_sides():
    task = Data(name="digits", pool=2).load()
    assert task.in_shape == (1, 4, 4)
    assert Data(name="digits", rotated=True, pool=4).load().in_shape == (1, 2, 2)


def test_generated_sets_grow_with_the_request():
    task = Data(name="input_selection", num_train=5000, num_val=100, num_test=2000).load()
    assert (len(task.train), len(task.val), len(task.test)) == (5000, 100, 2000)
    usual = Data(name="input_selection").load()
    assert (len(usual.train), len(usual.test), usual.in_shape) == (3000, 1000, (30,))


def test_input_selection_is_configured_by_its_own_fields():
    config = Data(name="input_selection").replaced({"input_selection.num_inputs": 4})
    assert config.load().in_shape == (4,)


def test_rotating_more_than_memory_is_refused(data_dir, write_image, monkeypatch):
    for part in ("train", "test"):
        for name in ("a", "b"):
            for i in range(8):
                write_image(data_dir / "f" / part / name / f"{i}.png", 10 * i)
    monkeypatch.setattr(image_files, "IN_MEMORY_BYTES", 12 * 3 * 8 * 8)
    with pytest.raises(ConfigError, match="16 images of `folder:f`"):
        Data(name="folder:f", rotated=True).load()
    task = Data(name="folder:f", rotated=True, num_train=12, num_test=4).load()
    assert isinstance(task.train.inputs, np.ndarray)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"name": "blobs", "rotated": True}, "need images"),
        ({"name": "input_selection", "pool": 2}, "need images"),
        ({"name": "mnist", "image_size": 14}, "use `pool`"),
        ({"name": "digits", "input_selection": {}}, "not a part of the set `digits`"),
        ({"name": "digits", "num_train": 0}, "num_train"),
        ({"name": "digits", "num_val": -1}, "num_val"),
        ({"name": "digits", "pool": 0}, "pool"),
        ({"name": "digits", "rotate": True}, "Did you mean `rotated`"),
    ],
)
def test_fields_that_do_not_fit_the_set_are_refused(fields, message):
    with pytest.raises(ConfigError, match=message):
        parse(Data, fields)
    with pytest.raises(ValidationError, match=message):
        Data(**fields)


def test_a_pool_that_does_not_divide_names_the_size():
    with pytest.raises(ConfigError, match="3: must divide the image size 8 x 8"):
        Data(name="digits", pool=3).load()


def test_survives_json():
    config = Data(name="input_selection", input_selection={"num_inputs": 3}, num_val=5)
    assert Data.model_validate_json(config.model_dump_json()) == config


def test_planning_imports_no_heavy_library():
    code = (
        "import sys, tuneparts.data.config, tuneparts.nets;"
        "print([m for m in ('torch', 'pandas', 'sklearn', 'PIL') if m in sys.modules])"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


PLANTED = {"num_inputs": 3}


def toy() -> tuple[np.ndarray, np.ndarray]:
    return np.arange(80.0).reshape(40, 2), np.arange(40) % 2


def test_every_set_of_ours_has_a_class_that_an_editor_completes():
    classes = {cls.model_fields["name"].default: cls for cls in Data.__subclasses__()}
    assert classes.keys() == sets.REGISTRY.known.keys()
    for cls in classes.values():
        assert getattr(tp.data, cls.__name__) is cls
        assert cls.__doc__ != Data.__doc__


@pytest.mark.parametrize(
    ("typed", "fields"),
    [
        (tp.data.Digits(rotated=True, num_val=300), {"rotated": True, "num_val": 300}),
        (tp.data.Mnist(pool=2, seed=3), {"pool": 2, "seed": 3}),
        (tp.data.Imagenet(image_size=64), {"image_size": 64}),
        (tp.data.InputSelection(input_selection=PLANTED), {"input_selection": PLANTED}),
        (tp.data.Stripes(target=tp.data.Classes()), {}),
        (tp.data.Data(name=toy, target="binary"), {"target": tp.data.Binary()}),
    ],
    ids=lambda one: getattr(one, "name", ""),
)
def test_a_search_has_the_same_data_by_class_by_name_and_from_json(typed, fields):
    arms = {"a": tp.Standard()}
    searches = [
        tp.Search(data=given, arms=arms)
        for given in (typed, Data(name=typed.name, **fields), {"name": typed.name, **fields})
    ]
    searches.append(parse(tp.Search, searches[0].model_dump(mode="json")))
    for search in searches:
        assert search.data == typed
        assert type(search.data) is type(typed)
        assert search.digest == searches[0].digest


@pytest.mark.parametrize("given", ["digits", Data(name="digits"), {"name": "digits"}])
def test_a_set_may_be_given_by_its_name_alone(given):
    assert tp.Search(data=given, arms={"a": tp.Standard()}).data == tp.data.Digits()


def test_a_class_of_a_set_has_its_name_only():
    with pytest.raises(ConfigError, match=r"`name` = 'mnist': should be 'digits'"):
        parse(tp.data.Digits, {"name": "mnist"})
