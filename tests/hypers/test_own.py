"""Hypers of one's own in a config, in a run and in a search."""

import dataclasses
import json
from importlib import metadata
from typing import Annotated, Any

import pytest
import torch
from torch import Tensor, nn

from tuneparts.core import schema
from tuneparts.core.config import parse
from tuneparts.core.errors import ConfigError, UnknownNameError
from tuneparts.data.config import Data
from tuneparts.data.target import Classes, Values
from tuneparts.hypers import KINDS, Call, Hyper, Hypers, Noise, Number
from tuneparts.hypers.hyper import POSITIVE, REAL
from tuneparts.hypers.kinds import LabelSmoothing, WeightDecay
from tuneparts.methods.baselines.config import (
    Augerino,
    Laplace,
    Standard,
    ValidationSet,
)
from tuneparts.methods.federated.config import FedAvg, Federated
from tuneparts.methods.partitioned import Partitioned
from tuneparts.training.learner import Context

NET = {"name": "mlp", "widths": (8,)}
SMALL = {"steps": 8, "interval": 4, "batch_size": 8, "net": NET}


class Prior(Hyper):
    """Adds a number to the logits of each class."""

    offset: Annotated[
        float | tuple[float, ...], Number(REAL, "added to a logit", identity=0.0, each="output")
    ] = 0.0

    def on_outputs(self, outputs_BK: Tensor, now: Call) -> Tensor:
        return outputs_BK + now["offset"]


class Gain(Hyper):
    """Multiplies activations; not random, so that it acts in evaluation too."""

    factor: Annotated[float, Number(POSITIVE, "of activations", identity=1.0)] = 1.5

    def on_activations(self, h: Tensor, slot: int, now: Call) -> Tensor:
        return h * now["factor"]


class Blur(Gain):
    """Multiplies activations by a random number, in training."""

    is_random = True

    def on_activations(self, h: Tensor, slot: int, now: Call) -> Tensor:
        return h * (1 + now["factor"] * torch.randn(h.shape, generator=now.generator))


class Sharpness(Hyper):
    """A part of the likelihood that acts on the loss."""

    in_likelihood = True

    power: Annotated[float, Number(POSITIVE, "of the likelihood", identity=1.0)] = 2.0

    def on_loss(
        self,
        losses_B: Tensor,
        outputs_BK: Tensor,
        targets_B: Tensor,
        now: Call,
    ) -> Tensor:
        return now["power"] * losses_B - now["power"].log()


@pytest.fixture(autouse=True)
def _own_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same names are of other hypers in other tests."""
    monkeypatch.setattr(schema, "METRICS", dict(schema.METRICS))


@pytest.fixture(scope="module")
def context() -> Context:
    task = Data(name="stripes", num_train=96, num_val=32, num_test=32).load()
    return Context(task=task, seed=0, device=torch.device("cpu"))


def net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 5), nn.Dropout(0.0), nn.Linear(5, 3))


def built(config: Hypers, **options: Any) -> tuple[Any, nn.Module]:
    made = net()
    options = {"learnable": False, "in_shape": (4,), "num_outputs": 3, **options}
    return config.build(net=made, **options), made


def rows_of(learner: Any) -> list[dict[str, float]]:
    rows = []
    while not learner.finished:
        rows.append(dict(learner.advance()))
    return rows


class TestConfig:
    def test_it_stands_beside_the_fields_and_survives_json(self) -> None:
        config = Hypers(prior=Prior(offset=(1.0, 2.0)), noise=0.1, frozen=("prior",))
        tree = json.loads(config.model_dump_json())
        assert tree["prior"] == {"kind": f"{__name__}:Prior", "offset": [1.0, 2.0]}
        assert tree["noise"] == 0.1
        assert parse(Hypers, tree) == config
        assert list(config.parts) == ["noise", "prior"]
        assert config.prior == Prior(offset=(1.0, 2.0))

    def test_without_one_a_config_is_written_as_ever(self) -> None:
        assert list(Hypers().model_dump()) == [
            "affine", "colour", "noise", "mask", "temperature", "dropout",
            "samples", "eval_samples", "averaging", "frozen",
        ]  # fmt: skip

    def test_a_path_varies_it(self) -> None:
        config = Standard(hypers={"smoothing": LabelSmoothing()})
        changed = config.replaced({"hypers.smoothing.rate": 0.4})
        assert changed.hypers.parts["smoothing"] == LabelSmoothing(rate=0.4)

    def test_our_own_have_short_names_and_packages_can_give_some(self, monkeypatch) -> None:
        config = parse(Hypers, {"s": {"kind": "label_smoothing", "rate": 0.3}})
        assert config.parts["s"] == LabelSmoothing(rate=0.3)

        class Point:
            name, value, dist = "prior", f"{__name__}:Prior", None

        def points(group: str) -> list[type[Point]]:
            return [Point] if group == "tuneparts.hypers" else []

        monkeypatch.setattr(metadata, "entry_points", points)
        assert parse(Hypers, {"p": {"kind": "prior"}}).parts["p"] == Prior()
        Point.name = "weight_decay"
        with pytest.raises(ConfigError, match=r"`weight_decay` of a package"):
            KINDS.names()

    def test_values_that_are_not_there_leave_it_out(self) -> None:
        assert Hypers(prior=None) == Hypers()

    @pytest.mark.parametrize(
        ("values", "law"),
        [
            ({"rotation": LabelSmoothing()}, "`hyper/rotation` is taken"),
            ({"build": LabelSmoothing()}, "got `build` for LabelSmoothing"),
            ({"Big": LabelSmoothing()}, "lower-case word"),
            ({"noise": 0.1, "more": Noise()}, "`hyper/noise` is taken"),
            ({"smoothing": LabelSmoothing}, "is the class LabelSmoothing"),
            ({"smoothing": 0.1}, "`smoothing` is not a field of Hypers.* with a `kind`"),
            ({"smoothing": {"rate": 0.1}}, "in JSON its fields with a `kind`"),
            ({"temperatur": 2.0}, "Did you mean `temperature`"),
            ({"label_smoothing": 0.1}, "`label_smoothing` cannot be learnt here: "),
            ({"s": {"kind": "label_smothing"}}, "Did you mean `label_smoothing`"),
            ({"s": {"kind": "torch.nn:Linear"}}, "not a subclass of Hyper"),
            ({"s": {"kind": "nowhere.to_be:Found"}}, "cannot"),
            ({"s": {"kind": "label_smoothing", "rat": 0.1}}, "Did you mean `rate`"),
            ({"s": LabelSmoothing(), "frozen": ("t",)}, "`t`, which is not among: s"),
        ],
    )
    def test_bad_input_is_a_sentence(self, values: dict[str, Any], law: str) -> None:
        with pytest.raises((ConfigError, UnknownNameError), match=law):
            parse(Hypers, values)

    def test_a_class_that_no_worker_could_import_is_refused(self) -> None:
        class Local(Prior):
            pass

        with pytest.raises(ConfigError, match="stands inside a function"):
            parse(Hypers, {"prior": Local()})

    def test_found_values_are_placed(self) -> None:
        config = Hypers(prior=Prior(), smoothing=LabelSmoothing())
        at = config.at({"smoothing": 0.3, "prior.0": 1.0, "prior.1": -1.0, "noise": 0.2})
        assert at == Hypers(
            prior=Prior(offset=(1.0, -1.0)), smoothing=LabelSmoothing(rate=0.3), noise=0.2
        )
        with pytest.raises(UnknownNameError, match="not a known hyperparameter"):
            Hypers().at({"smoothing": 0.3})
        assert Hypers().joined(config).at({"smoothing": 0.3}).parts["smoothing"].rate == 0.3


class TestPredictions:
    def test_outputs_are_changed_after_the_temperature(self) -> None:
        config = Hypers(prior=Prior(offset=(1.0, 2.0, 3.0)), temperature=2.0)
        hypers, made = built(config)
        x = torch.randn(2, 4, generator=torch.Generator().manual_seed(0))
        for training in (True, False):
            found = hypers.predict(made, x, generator=torch.Generator(), training=training)
            torch.testing.assert_close(found, made(x) / 2 + torch.tensor([1.0, 2.0, 3.0]))

    def test_activations_are_reached_at_dropout_layers(self) -> None:
        hypers, made = built(Hypers(gain=Gain(factor=3.0)))
        x = torch.randn(2, 4, generator=torch.Generator().manual_seed(0))
        wanted = made[2](3 * made[0](x))
        for training in (True, False):
            found = hypers.predict(made, x, generator=torch.Generator(), training=training)
            torch.testing.assert_close(found, wanted)

    def test_random_ones_of_activations_are_drawn_in_training_and_averaged(self) -> None:
        hypers, made = built(Hypers(blur=Blur(), dropout={"rate": 0.2}, samples=3))
        x = torch.randn(2, 4, generator=torch.Generator().manual_seed(0))
        assert hypers.num_samples(training=True) == 3
        first, again = (
            hypers.predict(made, x, generator=torch.Generator().manual_seed(1), training=True)
            for _ in range(2)
        )
        assert torch.equal(first, again)
        scored = hypers.predict(made, x, generator=torch.Generator(), training=False)
        assert torch.equal(scored, made(x))
        assert not torch.equal(scored, first)

    def test_own_inputs_come_after_the_noise(self) -> None:
        hypers, made = built(Hypers(noise=0.1, more=Doubled(), samples=2))
        x, draws = torch.zeros(2, 4), torch.Generator().manual_seed(0)
        noisy = 0.1 * torch.randn(4, 4, generator=torch.Generator().manual_seed(0))
        seen: list[Tensor] = []
        hypers.predict(lambda h: seen.append(h) or made(h), x, generator=draws, training=True)
        torch.testing.assert_close(seen[0], 2 * noisy)

    def test_a_training_loss_is_not_what_held_out_data_is_judged_by(self) -> None:
        config = Hypers(smoothing=LabelSmoothing(rate=0.5), sharp=Sharpness(power=2.0))
        hypers, _ = built(config)
        outputs, y = torch.tensor([[1.0, 0.0, -1.0]]), torch.tensor([0])
        plain = Classes().loss(outputs, y)
        held_out = hypers.loss(outputs, y, Classes().loss, held_out=True)
        torch.testing.assert_close(held_out, 2 * plain - torch.tensor(2.0).log())
        assert hypers.loss(outputs, y, Classes().loss) > held_out
        one_each = hypers.loss(outputs, y, Classes().loss, reduction="none", held_out=True)
        assert one_each.shape == (1,)


class Doubled(Hyper):
    factor: Annotated[float, Number(POSITIVE, "of inputs", identity=1.0)] = 2.0

    def on_inputs(self, x: Tensor, now: Call) -> Tensor:
        return x * now["factor"]


class TestLearning:
    @pytest.mark.parametrize(
        "config",
        [
            Partitioned.published(),
            Partitioned(parameter_proportions="as_data"),
            ValidationSet(),
            Federated(),
            Laplace(),
            Augerino(),
        ],
        ids=lambda config: f"{config.method}-{getattr(config, 'scheme', '')}",
    )
    def test_methods_learn_what_is_in_the_likelihood_and_refuse_the_rest(
        self, config: Any, context: Context
    ) -> None:
        hypers = config.hypers.model_dump() | {"prior": Prior()}
        changes = {**SMALL, "steps": 30, "interval": 30, "hyper_lr": 0.1}
        if config.method == "laplace":
            changes |= {"evidence_every": 1, "burn_in": 0.0}
        with_prior = config.replaced(changes | {"hypers": hypers})
        rows = rows_of(with_prior.build(context))
        names = {f"hyper/prior.{k}" for k in range(context.task.num_classes)}
        assert names <= rows[-1].keys()
        assert any(rows[-1][name] != 0 for name in names)

        smoothed = {**config.hypers.model_dump(), "smoothing": LabelSmoothing()}
        with pytest.raises(ConfigError, match=r"`smoothing` cannot be learnt here.*exactly zero"):
            config.replaced({"hypers": smoothed})
        held = config.replaced({**SMALL, "hypers": {**smoothed, "frozen": ("smoothing",)}})
        rows = rows_of(held.build(context))
        assert {row["hyper/smoothing"] for row in rows} == {0.1}

    @pytest.mark.parametrize("method", [Partitioned, Federated, FedAvg])
    def test_penalties_are_refused_where_weights_train_in_parts(self, method: Any) -> None:
        with pytest.raises(ConfigError, match="`decay` penalises all weights together"):
            parse(method, {"hypers": {"decay": WeightDecay(), "frozen": ("decay",)}})

    def test_laplace_refuses_another_likelihood(self) -> None:
        with pytest.raises(ConfigError, match="`sharp` changes it"):
            parse(Laplace, {"hypers": {"sharp": Sharpness()}})

    def test_a_held_smoothing_changes_what_standard_training_learns(self, context) -> None:
        plain, smooth = (
            rows_of(parse(Standard, {**SMALL, "hypers": hypers}).build(context))
            for hypers in ({}, {"smoothing": LabelSmoothing(rate=0.5)})
        )
        assert plain[-1]["test/nll"] != smooth[-1]["test/nll"]
        assert "hyper/smoothing" not in plain[-1]

    def test_a_held_decay_is_that_of_the_optimiser(self, context) -> None:
        sgd = {"kind": "sgd", "lr": 0.05}
        by_optimiser = {**SMALL, "optimiser": {**sgd, "weight_decay": 0.1}}
        by_hyper = {**SMALL, "optimiser": sgd, "hypers": {"decay": WeightDecay(strength=0.1)}}
        one, other = (
            rows_of(parse(Standard, fields).build(context))[-1]
            for fields in (by_optimiser, by_hyper)
        )
        assert one["test/nll"] == pytest.approx(other["test/nll"], rel=1e-5)

    def test_the_final_module_applies_it(self, context) -> None:
        hypers = {"prior": Prior(offset=(5.0, 0.0, 0.0, 0.0))}
        assert context.task.num_classes == 4
        learner = parse(Standard, {**SMALL, "hypers": hypers}).build(context)
        rows_of(learner)
        x = torch.as_tensor(context.task.test.inputs[:3])
        moved = learner.final_module()(x)
        learner.hypers.own = nn.ModuleDict()
        learner.hypers._names["outputs"] = []
        plain = learner.final_module()(x)
        torch.testing.assert_close(moved - plain, torch.tensor([[5.0, 0.0, 0.0, 0.0]] * 3))


class TestDriver:
    """A wrong hyper is refused before anything is trained."""

    @pytest.mark.parametrize(
        ("hyper", "law"),
        [
            (Prior(offset=(1.0, 2.0)), "one number for each output, but got 2 for 4"),
            (Doubled(factor=0.0), "must start strictly between 0 and inf"),
        ],
    )
    def test_what_does_not_fit_the_data(self, hyper: Hyper, law: str, context) -> None:
        config = Partitioned(hypers={"mine": hyper})
        with pytest.raises(ConfigError, match=law):
            config.check(context.task)

    def test_what_cannot_be_learnt_from_where_it_starts(self, context) -> None:
        config = Partitioned(hypers={"noise": 0.0})
        with pytest.raises(ConfigError, match="`noise` must start strictly"):
            config.build(context)
        Standard(hypers={"noise": 0.0}).build(context)

    def test_what_raises_or_has_a_wrong_shape(self, context) -> None:
        with pytest.raises(ConfigError, match="`raises` acts on outputs, but Raises raised Key"):
            Standard(hypers={"raises": Raises()}).check(context.task)
        with pytest.raises(ConfigError, match=r"shape \(2, 4\) here, but `sums` returned \(2,\)"):
            Standard(hypers={"sums": Sums()}).check(context.task)

    def test_what_is_made_for_classes(self) -> None:
        task = Data(name="stripes", num_train=20, num_val=8, num_test=8).load()
        labels = dataclasses.replace(task.train, labels=task.train.labels[:, None] * 1.0)
        other = dataclasses.replace(task, train=labels, num_classes=0, target=Values())
        with pytest.raises(ConfigError, match="`s` acts on the logits of classes"):
            Standard(hypers={"s": LabelSmoothing()}).check(other)


class Raises(Prior):
    def on_outputs(self, outputs_BK: Tensor, now: Call) -> Tensor:
        raise KeyError("missing")


class Sums(Prior):
    def on_outputs(self, outputs_BK: Tensor, now: Call) -> Tensor:
        return outputs_BK.sum(1)
