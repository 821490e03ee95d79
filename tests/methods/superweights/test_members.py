import contextlib
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tuneparts.core import seeding
from tuneparts.data.config import Data
from tuneparts.data.target import Classes
from tuneparts.methods.superweights import _ties as tying
from tuneparts.methods.superweights._allocation import make_plan
from tuneparts.methods.superweights._bank import SuperweightMembers, TemplateBank
from tuneparts.methods.superweights._clusters import depth_bins, layers_of
from tuneparts.methods.superweights.config import SuperWeights
from tuneparts.nets import DigitsCnn, FixupResNet, Mlp, MobileNetV2, NetConfig, WideResNet
from tuneparts.training.learner import Context

WRN_16, WRN_10 = WideResNet(depth=16), WideResNet(depth=10, width=1.5)


def members(*configs: NetConfig, budget: int = 400_000, bins: int | None = 4) -> SuperweightMembers:
    with seeding.isolated(0, "members"):
        nets = [config.build((1, 8, 8), 10) for config in configs]
    layers = [layer for m, net in enumerate(nets) for layer in layers_of(net, m)]
    plan = make_plan(layers, depth_bins(layers, bins), budget=budget)
    bank = TemplateBank(
        plan,
        tying.private(plan),
        initialisation="fan_in",
        generator=torch.Generator().manual_seed(0),
    )
    return SuperweightMembers(nets, bank, [1] * len(nets))


def images(num: int = 6) -> torch.Tensor:
    return torch.randn(num, 1, 8, 8, generator=torch.Generator().manual_seed(0))


FAMILIES = [
    (WRN_16, WRN_10),
    (WRN_16,),
    (DigitsCnn(), Mlp(widths=(32, 16))),
    (MobileNetV2(width=0.25), WRN_10),
]


@pytest.mark.parametrize("configs", FAMILIES)
def test_members_of_any_family_answer_like_plain_nets_with_the_same_weights(configs) -> None:
    model = members(*configs).eval()
    logits = model(images())
    assert logits.shape == (len(configs), 6, 10)
    for m, config in enumerate(configs):
        plain = model.plain(m).eval()
        torch.testing.assert_close(plain(images()), logits[m], rtol=1e-6, atol=1e-6)
        untouched = config.build((1, 8, 8), 10)
        assert set(plain.state_dict()) == set(untouched.state_dict())
        untouched.load_state_dict(plain.state_dict())
    with model.prepared(), torch.no_grad():
        assert torch.equal(model(images()), logits)


def test_layer_gradients_are_those_of_each_use_alone() -> None:
    model = members(WRN_16, WRN_10).eval()
    y = torch.arange(6)
    loss, gradients = model.layer_gradients(images(), y, loss=Classes().loss, norms="eval")
    plain = [model.plain(m).eval() for m in range(2)]
    losses = [F.cross_entropy(net(images()), y) for net in plain]
    assert float(loss) == pytest.approx(float(sum(losses).detach()) / 2)
    sum(losses).backward()
    for layer, gradient in zip(model.bank.plan.layers, gradients, strict=True):
        expected = plain[layer.member].get_parameter(f"{layer.name}.weight").grad
        torch.testing.assert_close(gradient, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("norms", ["eval", "train"])
def test_looking_at_gradients_changes_nothing(norms: str) -> None:
    model = members(WRN_16, WRN_10)
    model.train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = torch.get_rng_state()
    model.layer_gradients(images(), torch.arange(6), loss=Classes().loss, norms=norms)
    assert model.training
    assert torch.equal(torch.get_rng_state(), state)
    assert all(p.grad is None for p in model.parameters())
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]), name


def loss(logits_BK: torch.Tensor, y_B: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(logits_BK, y_B)


def test_gradients_member_by_member_are_those_of_the_sum_and_of_plain_nets() -> None:
    model = members(WRN_16, WRN_10, WRN_16).double()
    x, y = images().double(), torch.arange(6)
    plain = [model.plain(m) for m in range(3)]
    sum(loss(logits, y) for logits in model(x)).backward()
    whole = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    losses = model.backward([(x, y)] * 3, loss)
    assert not losses.requires_grad
    for parameter, expected in zip(model.parameters(), whole, strict=True):
        torch.testing.assert_close(parameter.grad, expected, rtol=1e-10, atol=1e-12)
    for net in plain:
        loss(net(x), y).backward()
    layers, weights = model.bank.plan.layers, model.bank.compose()
    sent = [plain[a.member].get_parameter(f"{a.name}.weight").grad for a in layers]
    expected = torch.autograd.grad(weights, list(model.bank.parameters()), sent)
    for parameter, gradient in zip(model.bank.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-9, atol=1e-12)


class Kept:
    """Counts the bytes of activations that a graph holds at its largest."""

    def __init__(self) -> None:
        self.now = self.most = 0

    def pack(self, tensor: torch.Tensor) -> torch.Tensor:
        copy = tensor.detach().clone()
        size = copy.numel() * copy.element_size()
        self.now += size
        self.most = max(self.most, self.now)
        weakref.finalize(copy, self._drop, size)
        return copy

    def _drop(self, size: int) -> None:
        self.now -= size


def test_one_member_at_a_time_holds_its_activations() -> None:
    model = members(*[WideResNet(depth=10)] * 4, budget=80_000)
    x, y = images(64), torch.arange(64) % 10
    most = {}
    for name in ("together", "one by one"):
        kept = Kept()
        with torch.autograd.graph.saved_tensors_hooks(kept.pack, lambda tensor: tensor):
            if name == "together":
                sum(loss(logits, y) for logits in model(x)).backward()
            else:
                model.backward([(x, y)] * 4, loss)
        most[name] = kept.most
    assert most["one by one"] <= most["together"] / 3


def test_served_members_compose_nothing_and_answer_the_same() -> None:
    model = members(WRN_16, WRN_10).eval()
    served = model.materialised().eval()
    assert not any(isinstance(module, TemplateBank) for module in served.modules())
    assert torch.equal(served(images()), model(images()))
    program = torch.export.export(served, (images(),))
    torch.testing.assert_close(program.module()(images()), served(images()))


def test_threads_that_run_the_members_at_once_get_the_right_outputs() -> None:
    model = members(WRN_16, WRN_10).eval()

    @torch.no_grad()
    def run(number: int) -> torch.Tensor:
        with model.prepared() if number % 2 else contextlib.nullcontext():
            return model(images(3 + number % 4))

    expected = [run(number) for number in range(4)]
    # A thread counts its own: with another number, sums are rounded otherwise.
    alike = {"initializer": torch.set_num_threads, "initargs": (torch.get_num_threads(),)}
    with ThreadPoolExecutor(4, **alike) as pool:
        found = pool.map(run, range(40))
        assert all(torch.equal(out, expected[number % 4]) for number, out in enumerate(found))


def test_deep_fixup_nets_keep_their_own_scale() -> None:
    config = FixupResNet(depth=50)
    settings = SuperWeights(
        members=(config, config),
        steps=4,
        interval=2,
        allocation={"when_short": "merge"},
        sharing={"clusters": "depth", "coefficients": "private"},
    )
    task = Data(name="stripes", num_train=60, num_val=8, num_test=8).load()
    learner = settings.build(Context(task, 0, torch.device("cpu")))
    inputs = torch.randn(16, *task.in_shape, generator=torch.Generator().manual_seed(0))
    scales: list[float] = []
    for net in (config.build(task.in_shape, 2), learner.model.plain(0)):
        head = [module for module in net.modules() if isinstance(module, nn.Linear)][-1]
        head.register_forward_pre_hook(lambda _, args: scales.append(float(args[0].std())))
        with torch.no_grad():
            net(inputs)
    assert 0.5 < scales[1] / scales[0] < 2
