"""Every method of the catalog under another precision, and what a runtime refuses."""

import pytest
import torch
from pydantic import ValidationError
from torch import nn

from tuneparts.core.errors import ConfigError
from tuneparts.data.config import Data
from tuneparts.data.task import Task
from tuneparts.methods import catalog
from tuneparts.methods.baselines.config import Standard
from tuneparts.methods.catalog import METHODS
from tuneparts.search import load
from tuneparts.testing.learner import LearnerContract, history
from tuneparts.testing.null import NullConfig
from tuneparts.training import checkpoint
from tuneparts.training.config import Method, Runtime
from tuneparts.training.forward import Forward, run
from tuneparts.training.learner import Context, Learner
from tuneparts.training.loop import Step

BF16 = {"runtime.precision": "bf16"}
SHORT = dict(LearnerContract.short)
LONGER = dict(LearnerContract.longer)
QUICK = ("standard", "partitioned")
ALL = [
    pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in METHODS.known
]


@pytest.fixture(scope="module")
def task() -> Task:
    return Data(name="stripes", num_train=96, num_val=32, num_test=32).load()


def _config(method: str, changes: dict[str, object]) -> Method:
    return catalog.config_class(method)().replaced(changes)


def _start(config: Method, task: Task) -> Learner:
    return config.build(Context(task=task, seed=0, device=torch.device("cpu")))


@pytest.mark.parametrize("method", ALL)
def test_every_method_resumes_bit_for_bit_in_bf16(method: str, task: Task) -> None:
    config = _config(method, {**SHORT, **BF16})
    whole = _start(config, task)
    rows = history(whole)
    stopped, resumed = _start(config, task), _start(config, task)
    stopped.advance()
    resumed.load_state_dict(checkpoint.from_bytes(checkpoint.to_bytes(stopped.state_dict())))
    assert history(resumed) == rows[1:]
    assert checkpoint.to_bytes(resumed.state_dict()) == checkpoint.to_bytes(whole.state_dict())
    exact = [row["train/loss"] for row in history(_start(_config(method, SHORT), task))]
    rounded = [row["train/loss"] for row in rows]
    assert rounded != exact
    assert rounded == pytest.approx(exact, rel=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS.known)
def test_every_method_learns_in_bf16(method: str, task: Task) -> None:
    rows = history(_start(_config(method, {**LONGER, **BF16}), task))
    assert rows[-1]["train/loss"] < 0.9 * rows[0]["train/loss"]


def test_a_mixed_batch_is_computed_in_bf16(task: Task) -> None:
    changes = {**SHORT, "scheme": "node", "mixed": True, "hyper_share": 0.25}
    exact = history(_start(_config("partitioned", changes), task))
    rounded = history(_start(_config("partitioned", {**changes, **BF16}), task))
    losses = [[row["train/loss"] for row in rows] for rows in (rounded, exact)]
    assert losses[0] != losses[1]
    assert losses[0] == pytest.approx(losses[1], rel=0.05)


def test_hyper_steps_and_outputs_are_in_float32() -> None:
    seen = []

    def net(x: torch.Tensor) -> torch.Tensor:
        seen.append(nn.functional.linear(x, torch.ones(2, 3)).dtype)
        return nn.functional.linear(x, torch.ones(2, 3))

    with Forward(Runtime(precision="bf16"), torch.device("cpu")).training():
        outputs = run(net, torch.ones(4, 3)), run(net, torch.ones(4, 3), exactly=True)
    run(net, torch.ones(4, 3))
    assert seen == [torch.bfloat16, torch.float32, torch.float32]
    assert {one.dtype for one in outputs} == {torch.float32}


@pytest.mark.parametrize("is_last", [True, False])
def test_images_come_in_the_layout_that_was_asked_for(task: Task, is_last: bool) -> None:
    fields = {**SHORT, "net": {"name": "digits_cnn"}, "runtime": Runtime(channels_last=is_last)}
    learner = _start(Standard(**fields), task)
    seen = set()
    layer = next(m for m in learner.net.modules() if isinstance(m, nn.Conv2d) and m.in_channels > 1)
    layer.register_forward_pre_hook(
        lambda _, given: seen.add(given[0].is_contiguous(memory_format=torch.channels_last))
    )
    learner.advance()
    assert seen == {is_last}


def test_deterministic_kernels_are_asked_for_inside_steps_only(task: Task) -> None:
    learner = _start(Standard(**SHORT, runtime=Runtime(deterministic=True)), task)
    seen = []
    step = learner.step  # type: ignore[attr-defined]

    def watched() -> object:
        seen.append(torch.are_deterministic_algorithms_enabled())
        return step()

    learner.step = watched  # type: ignore[attr-defined]
    learner.advance()
    assert set(seen) == {True}
    assert not torch.are_deterministic_algorithms_enabled()


def test_a_kernel_that_cannot_repeat_itself_is_named() -> None:
    with (
        Runtime(deterministic=True).numerics(torch.device("cpu"), is_training=True),
        pytest.raises(RuntimeError, match="does not have a deterministic implementation"),
    ):
        torch.ones(4).put_(torch.tensor([1, 1]), torch.tensor([1.0, 2.0]), accumulate=False)


def test_a_method_that_never_asks_is_refused(task: Task) -> None:
    learner = _start(Standard(**SHORT, runtime=Runtime(precision="bf16")), task)
    learner.step = lambda: Step(1, {"train/loss": torch.ones(())})  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match="had no effect"):
        learner.advance()


def test_what_trains_no_net_of_ours_takes_no_runtime() -> None:
    with pytest.raises(ValidationError, match="trains no net"):
        NullConfig(runtime=Runtime())


def test_compile_is_for_nets_that_train_as_they_are() -> None:
    with pytest.raises(ValidationError, match="changes the weights"):
        catalog.config_class("partitioned")(runtime=Runtime(compile=True))


@pytest.mark.slow
def test_a_compiled_net_learns_the_same(task: Task) -> None:
    config = Standard(**SHORT, net="mlp")
    plain = [row["train/loss"] for row in history(_start(config, task))]
    compiled = config.replaced({"runtime.compile": True})
    learner = _start(compiled, task)
    assert [row["train/loss"] for row in history(learner)] == pytest.approx(plain, rel=1e-4)
    again = _start(config, task)  # the state of one is a state of the other
    again.load_state_dict(learner.state_dict())


def test_a_search_gives_its_runtime_to_arms_without() -> None:
    plain = load.load("rotated_digits", scale="smoke")
    changes = ["random.packed=1", "runtime.precision=bf16", "random.runtime.precision=tf32"]
    search = load.load("rotated_digits", scale="smoke", changes=changes)
    found = {arm.name: arm.config.runtime.precision for arm in search.arms}
    assert found.pop("random") == "tf32"
    assert set(found.values()) == {"bf16"}
    assert search.digest != plain.digest
    again = type(search).model_validate_json(search.model_dump_json())
    assert again.digest == search.digest


@pytest.mark.parametrize("precision", ["float32", "tf32"])
def test_gpus_round_factors_in_training_steps_and_only_if_asked(precision: str) -> None:
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matmul.allow_tf32, cudnn.allow_tf32
    runtime, gpu = Runtime(precision=precision), torch.device("cuda")  # flags need no GPU
    with runtime.numerics(gpu, is_training=False):
        assert (matmul.allow_tf32, cudnn.allow_tf32) == (False, False)
        with runtime.numerics(gpu, is_training=True):
            is_rounded = precision == "tf32"
            assert (matmul.allow_tf32, cudnn.allow_tf32) == (is_rounded, is_rounded)
    assert (matmul.allow_tf32, cudnn.allow_tf32) == before
