"""Data of one's own: what a function may return, how it is split, and what is refused."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch.utils.data import Dataset, IterableDataset, TensorDataset

from tuneparts.core.config import parse
from tuneparts.core.errors import ConfigError, DataError, UnknownNameError
from tuneparts.data import sets
from tuneparts.data.config import Data
from tuneparts.data.own import given_task
from tuneparts.data.task import Task

N = 40
X = np.arange(N * 3, dtype=np.float64).reshape(N, 3)
Y = np.arange(N) % 2
FORCE = X.sum(axis=1) / 100
MADE: dict[str, Any] = {}


def made(form: str = "") -> Any:
    """What a test put there."""
    return MADE[form]() if isinstance(MADE[form], Callable) else MADE[form]  # type: ignore[arg-type]


def load(value: Any, **fields: Any) -> Task:
    MADE[""] = value
    return Data(name=made, **fields).load()


@dataclass
class Pairs(Dataset[Any]):
    x: Any
    y: Any

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        return self.x[index], self.y[index]


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Any:
        return iter([])


@dataclass
class Columns:
    """As `datasets.Dataset` of Hugging Face: columns by name, and rows by number."""

    columns_by_name: dict[str, list[Any]]

    @property
    def column_names(self) -> list[str]:
        return list(self.columns_by_name)

    def __len__(self) -> int:
        return len(next(iter(self.columns_by_name.values())))

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            return self.columns_by_name[key]
        return {name: column[key] for name, column in self.columns_by_name.items()}


FRAME = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "c": X[:, 2].astype(int), "y": Y})
FORMS = {
    "arrays": (X, Y),
    "tensors": (torch.as_tensor(X), torch.as_tensor(Y)),
    "lists": (X.tolist(), Y.tolist()),
    "booleans": (X, Y == 1),
    "a data set": Pairs(X, Y),
    "a tensor data set": TensorDataset(torch.as_tensor(X), torch.as_tensor(Y)),
    "a list of pairs": list(zip(X, Y.tolist(), strict=True)),
    "pandas": (FRAME, "y"),
    "a dict of columns": ({name: FRAME[name].to_numpy() for name in FRAME}, "y"),
    "Hugging Face": (Columns({name: FRAME[name].tolist() for name in FRAME}), "y"),
    "one column of lists": (Columns({"row": X.tolist(), "y": Y.tolist()}), "y"),
    "words": (X, np.array(["cat", "dog"])[Y]),
    "a table with words": (FRAME.assign(y=np.array(["cat", "dog"])[Y]), "y"),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_task(form: str) -> None:
    expected = load((X, Y), num_val=8, num_test=10)
    found = load(FORMS[form], num_val=8, num_test=10)
    for part in ("train", "val", "test"):
        one, other = getattr(found, part), getattr(expected, part)
        np.testing.assert_array_equal(one.inputs, other.inputs)
        np.testing.assert_array_equal(one.labels, other.labels)
        assert (one.inputs.dtype, one.labels.dtype) == (np.float32, np.int64)
    assert (found.num_classes, found.num_outputs, found.in_shape) == (2, 2, (3,))
    assert (len(found.train), len(found.val), len(found.test)) == (22, 8, 10)


def rows(task: Task) -> dict[str, set[float]]:
    """The first feature of each example, which tells examples apart."""
    return {part: set(getattr(task, part).inputs[:, 0]) for part in ("train", "val", "test")}


class TestOneSet:
    def test_its_parts_are_disjoint_and_all_of_it(self) -> None:
        found = rows(load((X, Y), num_val=8))
        assert sum(len(part) for part in found.values()) == N
        assert set.union(*found.values()) == set(X[:, 0].astype(np.float32))
        assert len(found["test"]) == 8  # a fifth

    def test_parts_are_stratified_where_there_are_classes(self) -> None:
        task = load((X, (np.arange(N) % 4 == 0).astype(int)), num_val=8, num_test=8)
        assert [int(getattr(task, part).labels.sum()) for part in ("val", "test")] == [2, 2]

    def test_smaller_parts_lie_in_larger_ones_and_another_seed_splits_anew(self) -> None:
        large, small = (
            rows(load((X, Y), num_val=8, num_test=8, num_train=num)) for num in (20, 10)
        )
        assert small["train"] < large["train"]
        assert small["test"] == large["test"]
        other = rows(load((X, Y), num_val=8, num_test=8, num_train=20, seed=1))
        assert all(other[part] != large[part] for part in other)

    def test_asking_for_more_than_there_is_names_the_numbers(self) -> None:
        with pytest.raises(
            ConfigError, match="40 - num_test` must hold, but got num_train 0 and num_test 40"
        ):
            load((X, Y), num_test=40)
        with pytest.raises(ConfigError, match=r"32 - num_val.*num_train 30 and num_val 8"):
            load((X, Y), num_train=30, num_val=8)


class TestGivenParts:
    def test_they_are_taken_as_they_are(self) -> None:
        parts = {
            "test": (X[:5], Y[:5]),
            "train": (X[10:], Y[10:]),
            "validation": (X[5:10], Y[5:10]),
        }
        found = rows(load(parts))
        assert found["test"] == set(X[:5, 0])
        assert found["val"] == set(X[5:10, 0])
        assert found["train"] == set(X[10:, 0])

    def test_numbers_take_subsets_of_them(self) -> None:
        parts = {"train": (X[10:], Y[10:]), "val": (X[5:10], Y[5:10]), "test": (X[:5], Y[:5])}
        task = load(parts, num_train=12, num_val=4, num_test=2)
        assert (len(task.train), len(task.val), len(task.test)) == (12, 4, 2)
        assert rows(task)["val"] < set(X[5:10, 0])

    def test_a_part_that_is_missing_is_split_off(self) -> None:
        found = rows(load({"train": (X, Y)}, num_val=6, num_test=4))
        assert [len(found[part]) for part in ("train", "val", "test")] == [30, 6, 4]

    def test_a_column_is_that_of_all_parts(self) -> None:
        task = load(({"train": FRAME[5:], "test": FRAME[:5]}, "y"))
        assert rows(task)["test"] == set(X[:5, 0])

    def test_words_are_numbered_over_all_parts(self) -> None:
        parts = {"train": (X, np.array(["b", "c"])[Y]), "test": (X[:2], np.array(["a", "c"]))}
        task = load(parts)
        assert task.num_classes == 3
        assert sorted(set(task.train.labels)) == [1, 2]


class TestTargets:
    def test_real_numbers(self) -> None:
        task = load((X, FORCE), target="values")
        assert task.train.labels.dtype == np.float32
        assert task.train.labels.shape == (32, 1)
        assert (task.num_outputs, task.num_classes) == (1, 0)

    def test_several_columns_are_several_outputs(self) -> None:
        assert load((FRAME, ["b", "y"]), target="values").num_outputs == 2

    def test_binary(self) -> None:
        task = load((X, Y == 1), target="binary")
        assert (task.num_outputs, task.num_classes) == (1, 0)
        assert task.train.labels.dtype == np.int64

    def test_our_own_sets_can_have_another_target(self) -> None:
        task = Data(name="digits", target="values").load()
        assert task.train.labels.shape == (1297, 1)
        with pytest.raises(ConfigError, match="0 or 1"):
            Data(name="digits", target="binary").load()


class TestInputs:
    def test_bytes_are_images_and_other_whole_numbers_stay_whole(self) -> None:
        images = np.zeros((N, 1, 4, 4), np.uint8)
        task = load((images, Y), pool=2)
        assert task.has_pixels
        assert task.in_shape == (1, 2, 2)
        assert load((images, Y), rotated=True).train.degrees is not None
        tokens = load((np.zeros((N, 7), np.int32), Y))
        assert tokens.has_tokens
        assert tokens.train.inputs.dtype == np.int64

    def test_they_are_standardised_by_the_training_part(self) -> None:
        plain = load((X, Y), num_val=8).train.inputs
        task = load((X, Y), num_val=8, standardise=True)
        np.testing.assert_allclose(task.mean, plain.mean(axis=0), rtol=1e-6)
        np.testing.assert_allclose(task.std, plain.std(axis=0), rtol=1e-6)
        with pytest.raises(DataError, match="whole numbers"):
            load((X.astype(int), Y), standardise=True)

    def test_pooling_what_are_no_images_is_refused(self) -> None:
        with pytest.raises(DataError, match=r"need images as uint8 .* float32 \(40, 3\)"):
            load((X, Y), pool=2)


class TestImageFolders:
    def test_one_folder_of_classes_is_split(self, data_dir, write_image) -> None:
        for name in ("cat", "dog"):
            for i in range(10):
                write_image(data_dir / "pets" / name / f"{i}.png", 10 * i)
        task = load("pets", num_val=4)
        assert (len(task.train), len(task.val), len(task.test)) == (12, 4, 4)
        assert task.num_classes == 2
        assert load(data_dir / "pets", target="binary").num_outputs == 1

    def test_parts_are_those_of_the_folder(self, data_dir, write_image) -> None:
        for part, count in (("train", 4), ("val", 2), ("test", 3)):
            for name in ("cat", "dog"):
                for i in range(count):
                    write_image(data_dir / "pets" / part / name / f"{i}.png", 10 * i)
        task = load("pets")
        assert (len(task.train), len(task.val), len(task.test)) == (8, 4, 6)

    def test_a_folder_that_is_not_there_names_where_it_was_looked_for(self, data_dir) -> None:
        with pytest.raises(DataError, match=f"no image folder was found at {data_dir}/pets or"):
            load("pets")


def broken() -> None:
    raise RuntimeError("the disk is on fire")


NAN = X.copy()
NAN[7, 2] = np.nan
BAD = {
    "nothing": (None, "`train` is a NoneType"),
    "one array": (X, "`train` is a ndarray"),
    "three things": ((X, Y, Y), "`train` is a tuple"),
    "a stream": (Stream(), "`train` is a Stream"),
    "a table alone": (FRAME, r"columns a, b, c, y, but which .*Return \(table"),
    "a wrong column": ((FRAME, "z"), "`z` was asked of the columns a, b, c, y"),
    "words as inputs": (
        (FRAME.assign(a="red"), "y"),
        "`a` holds <U3 such as .*'red'.*code it as numbers",
    ),
    "unequal lengths": ((X, Y[:30]), "in `train`: .*40 inputs and 30 labels"),
    "an empty part": ({"train": (X, Y), "test": (X[:0], Y[:0])}, "in `test`: .*0 inputs"),
    "an empty data set": (Pairs([], []), "`train` is empty"),
    "nan in inputs": ((NAN, Y), r"1 of them are NaN.*example 7 at \[2\]"),
    "one class": ((X, np.zeros(N, int)), "all 40 labels of `train` are 0"),
    "classes from -1": ((X, 2 * Y - 1), "-1.*Number the classes from 0"),
    "real classes": ((X, FORCE), "or use the target `values`"),
    "no train": ({"test": (X, Y)}, "has the part `train`.*but got test"),
    "unknown part": ({"train": (X, Y), "tset": (X, Y)}, "but got train, tset"),
    "channels last": (
        (np.zeros((N, 8, 8, 3), np.uint8), Y),
        r"looks like \(N, H, W, C\).*transpose",
    ),
    "other shapes": ({"train": (X, Y), "test": (X[:, :2], Y)}, "inputs of all parts have one"),
    "ragged": (Pairs([X[0], X[0, :2]], [0, 1]), r"example 1 is \(2,\). Pad"),
    "no pairs": ([1, 2, 3], "gave 1 for 0"),
    "objects": ((np.array([object()] * N)[:, None], Y), "of type object"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_cannot_be_learnt_from_is_refused_by_a_sentence(case: str) -> None:
    value, law = BAD[case]
    with pytest.raises(DataError, match=law) as caught:
        load(value)
    assert f"{__name__}:made" in str(caught.value)


@pytest.mark.parametrize(
    ("labels", "target", "law"),
    [
        (np.where(np.arange(N) == 3, np.nan, FORCE), "values", "labels must be finite.*example 3"),
        (np.zeros((N, 2, 2)), "values", r"\(N,\) or \(N, K\)"),
        (np.array(["a", "b"])[Y], "values", "words name classes"),
        (2 * Y - 1, "binary", r"0 or 1.*such as \[-1, 1\]"),
        (np.full(N, 0.5), "values", "all 40 labels"),
    ],
)
def test_labels_that_do_not_fit_the_target_are_refused(labels, target: str, law: str) -> None:
    with pytest.raises(DataError, match=law):
        load((X, labels), target=target)


class TestNames:
    def test_a_function_that_fails_is_named(self) -> None:
        with pytest.raises(DataError, match=r"broken` raised RuntimeError: the disk is on fire"):
            Data(name=broken).load()

    def test_it_survives_json_and_has_arguments(self) -> None:
        MADE["other"] = (X, Y)
        config = Data(name=made, arguments={"form": "other"}, target="binary")
        assert config.name == f"{__name__}:made"
        again = Data.model_validate_json(config.model_dump_json())
        assert again == config
        assert len(again.load().train) == 32
        assert config.replaced({"arguments.form": "x"}).arguments == {"form": "x"}

    @pytest.mark.parametrize(
        ("fields", "law"),
        [
            ({"name": made, "arguments": {"from": 1}}, "'from': 1.* unexpected keyword argument"),
            ({"name": "digits", "arguments": {"a": 1}}, "`digits` is none"),
            ({"name": f"{__name__}:N"}, "must be a function.*40 is not a callable"),
            ({"name": "nowhere.at.all:data"}, "No module named 'nowhere'"),
            ({"name": lambda: (X, Y)}, "lambda"),
            ({"name": "digits", "target": 3}, "target"),
        ],
    )
    def test_what_a_worker_could_not_load_is_refused_at_once(self, fields, law: str) -> None:
        with pytest.raises(ConfigError, match=law):
            parse(Data, fields)

    def test_an_installed_package_gives_its_data_a_name(self, monkeypatch) -> None:
        point = metadata.EntryPoint("mine", f"{__name__}:made", "tuneparts.data")
        monkeypatch.setattr(metadata, "entry_points", lambda group: [point])
        MADE[""] = (X, Y)
        assert len(Data(name="mine").load().train) == 32
        found = {name: source for name, source, _ in sets.inventory()}
        assert found["mine"].where == f"{__name__}:made"
        with pytest.raises(UnknownNameError, match="Did you mean `mine`"):
            Data(name="mien")


def test_two_packages_cannot_give_one_name_to_their_data(monkeypatch) -> None:
    made = [metadata.EntryPoint("taken", f"{who}:data", "tuneparts.data") for who in ("one", "two")]
    monkeypatch.setattr(metadata, "entry_points", lambda group: made)
    with pytest.raises(ConfigError, match=r"`taken` .* is one:data, not two:data"):
        sets.REGISTRY.names()


def test_tensors_and_arrays_become_the_same_task():
    x, y = torch.arange(12.0).view(3, 4), torch.tensor([0, 2, 1])
    for inputs, labels in ((x, y), (x.numpy().astype(np.float64), y.numpy().astype(np.uint8))):
        task = given_task((inputs, labels), (inputs[:2], labels[:2]))
        assert task.train.inputs.dtype == np.float32
        assert task.train.labels.dtype == np.int64
        assert task.in_shape == (4,)
        assert (len(task.train), len(task.val), len(task.test)) == (3, 2, 0)
        assert task.num_classes == 3


@pytest.mark.parametrize(
    "labels", [np.zeros(2, np.int64), np.zeros(3), np.zeros((3, 1), np.int64), np.array([0, -1, 0])]
)
def test_what_is_no_class_per_input_is_refused(labels):
    with pytest.raises(ConfigError, match="one label"):
        given_task((np.zeros((3, 4)), labels))


def test_inputs_without_features_are_refused():
    with pytest.raises(ConfigError, match=r"inputs \(3,\)"):
        given_task((np.zeros(3), np.zeros(3, np.int64)))
