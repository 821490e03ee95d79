"""Mixed batches against one pass per subnetwork, in float64; nets that would join levels."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import tuneparts as tp
from tuneparts.core import seeding
from tuneparts.core.errors import ConfigError
from tuneparts.methods.partitioned._isolation import check_mixable
from tuneparts.methods.partitioned.mixed import MixedBatch
from tuneparts.methods.partitioned.subnetwork import PartitionedNet
from tuneparts.nets.layers import Bias, ScalarMultiplier

PROPORTIONS = (0.5, 0.3, 0.2)
LEVELS = torch.tensor([1, 1, 1, 2, 2, 3, 3, 3])


def _parts(net, x):
    parts = PartitionedNet(net, proportions=PROPORTIONS, seed=0, scheme="node", example=x)
    generator = seeding.torch_generator(3, "noise")
    for k in (1, 2, 3):  # norm factors and summands that differ between partitions
        for share in parts.shares(k):
            if share.index_m is None:
                noise = torch.rand(share.flat_n.shape, generator=generator, dtype=torch.float64)
                share.flat_n.add_(noise - 0.3)
    return parts


def _assert_mixed_equals_separate(parts, x, y, levels=LEVELS):
    batch = MixedBatch(parts, levels)
    logits = batch(x)
    losses = nn.functional.cross_entropy(logits, y, reduction="none")
    (losses * torch.arange(1, len(x) + 1)).sum().backward()
    mixed = batch.grads()
    assert list(mixed) == sorted(set(levels.tolist()))
    for k in mixed:
        rows = levels == k
        view = parts.view(k, trainable=True)
        out = parts.run(view, x[rows])
        torch.testing.assert_close(logits[rows], out, rtol=1e-10, atol=1e-10)
        losses = nn.functional.cross_entropy(out, y[rows], reduction="none")
        weighted = (losses * torch.arange(1, len(x) + 1)[rows]).sum()
        separate = torch.autograd.grad(weighted, view.leaves)
        for share, a, b in zip(parts.shares(k), mixed[k], separate, strict=True):
            torch.testing.assert_close(
                share.gather(a), share.gather(b), rtol=1e-10, atol=1e-10, msg=share.name
            )


@pytest.fixture(params=["mlp", "mnist_cnn", "digits_cnn", "fixup_resnet", "resnet50_gn", "resnet9"])
def mixable(request, nets):
    return nets[request.param]


def test_a_mixed_batch_equals_one_pass_per_subnetwork(mixable):
    x, y = mixable.batch(8)
    _assert_mixed_equals_separate(_parts(mixable.build(), x), x, y)


@pytest.mark.parametrize("levels", [[1] * 8, [3] * 8, [1, 1, 1, 1, 1, 1, 1, 3]])
def test_any_mixture_of_levels(digits_cnn, levels):
    x, y = digits_cnn.batch(8)
    _assert_mixed_equals_separate(_parts(digits_cnn.build(), x), x, y, torch.tensor(levels))


class _Odd(nn.Module):
    """Activations that are not zero at zero, groups, sequences, one dimension, and norms."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(2, 12, 3, padding=1, dilation=1, stride=2)
        self.grouped = nn.Conv1d(12, 12, 3, groups=3)
        self.norm = nn.LayerNorm(12)
        self.scale, self.shift = ScalarMultiplier(), Bias()
        self.hidden = nn.Linear(12, 10)
        self.out = nn.Linear(10, 4)

    def forward(self, x):
        h = torch.sigmoid(self.conv(x))
        h = self.shift(torch.tanh(self.scale(self.grouped(h)))).transpose(1, 2)
        h = torch.cos(self.hidden(self.norm(h)))
        return self.out(h).mean(1)


def test_units_that_do_not_fall_silent_are_masked_all_the_same():
    with seeding.isolated(0, "init"):
        net = _Odd().double()
        x, y = torch.randn(8, 2, 11).double(), torch.randint(4, (8,))
    _assert_mixed_equals_separate(_parts(net, x), x, y)


def test_units_are_labelled_through_flattening_and_residual_sums(digits_cnn, nets):
    x, _ = digits_cnn.batch()
    layers = _parts(digits_cnn.build(), x).units
    assert layers["conv1"].in_labels.tolist() == [1]
    assert torch.equal(layers["conv2"].in_labels, layers["conv1"].out_labels)
    # 8x8 pooled twice: each channel is four features in a row
    assert torch.equal(layers["linear1"].in_labels, layers["conv2"].out_labels.repeat_interleave(4))
    assert layers["classifier"].out_labels.tolist() == [1] * 4
    assert all(units.is_silent for units in layers.values())
    case = nets["fixup_resnet"]
    layers = _parts(case.build(), case.batch()[0]).units
    stream = layers["stem"].out_labels
    assert set(stream.tolist()) == {1, 2, 3}
    assert torch.equal(layers["stage1_block1.conv1"].in_labels, stream)
    assert torch.equal(layers["stage1_block1.conv2"].out_labels, stream)
    assert not layers["stage1_block1.conv1"].is_silent


def test_shares_of_hidden_weights_follow_the_squares():
    # V_k^2 - V_{k-1}^2 for hidden-to-hidden layers
    with seeding.isolated(0, "init"):
        net = nn.Sequential(
            nn.Linear(5, 100), nn.ReLU(), nn.Linear(100, 100), nn.ReLU(), nn.Linear(100, 3)
        )
    parts = PartitionedNet(
        net, proportions=(0.8, 0.1, 0.1), seed=0, scheme="node", example=torch.ones(1, 5)
    )
    counts = torch.bincount(parts.map_of("2.weight").view(-1).long(), minlength=4)[1:]
    assert counts.tolist() == [6400, 1700, 1900]


def test_later_chunks_leave_no_trace_in_earlier_gradients(digits_cnn):
    x, y = digits_cnn.batch(8, dtype=torch.float32)
    parts = PartitionedNet(
        digits_cnn.build(dtype=torch.float32),
        proportions=PROPORTIONS,
        seed=0,
        scheme="node",
        example=x,
    )

    def gradients(inputs):
        batch = MixedBatch(parts, LEVELS)
        nn.functional.cross_entropy(batch(inputs), y, reduction="sum").backward()
        return {
            k: [s.gather(g) for s, g in zip(parts.shares(k), grads, strict=True)]
            for k, grads in batch.grads().items()
        }

    before = gradients(x)
    altered = x.clone()
    altered[3:] *= -7
    after = gradients(altered)
    assert all(map(torch.equal, before[1], after[1]))
    assert not all(map(torch.equal, before[2], after[2]))


def test_the_net_is_left_as_it_was(digits_cnn):
    x, _ = digits_cnn.batch(8)
    net = digits_cnn.build()
    parts = _parts(net, x)
    MixedBatch(parts, LEVELS)(x)
    assert all("forward" not in vars(module) for module in net.modules())
    with pytest.raises(ConfigError, match="one row per example"):
        MixedBatch(parts, LEVELS)(x[:5])
    assert all("forward" not in vars(module) for module in net.modules())


def test_what_cannot_be_mixed_is_refused_by_name(nets):
    case = nets["wide_resnet"]
    x, _ = case.batch(8)
    with pytest.raises(ConfigError, match=r"`stage1_block1\.norm1` is a BatchNorm2d"):
        MixedBatch(_parts(case.build(), x), LEVELS)(x)
    net = nn.Sequential(nn.Conv2d(1, 6, 3, padding="same"), nn.Flatten(), nn.Linear(96, 2)).double()
    x = torch.ones(8, 1, 4, 4, dtype=torch.float64)
    with pytest.raises(ConfigError, match="`0` is a Conv2d: its padding"):
        MixedBatch(_parts(net, x), LEVELS)(x)
    with pytest.raises(ConfigError, match="ascend"):
        MixedBatch(_parts(net, x), LEVELS.flip(0))


def test_what_has_no_units_to_label_is_refused_by_name():
    def parts(net, example, **kwargs):
        return PartitionedNet(
            net, proportions=PROPORTIONS, seed=0, scheme="node", example=example, **kwargs
        )

    x = torch.ones(1, 2, 5)
    transposed = nn.Sequential(nn.ConvTranspose1d(2, 4, 3), nn.Flatten(), nn.Linear(28, 3))
    with pytest.raises(ConfigError, match="`0` is a ConvTranspose1d"):
        parts(transposed, x)
    shared = nn.Linear(5, 5)
    with pytest.raises(ConfigError, match=r"`0` \(Linear\) runs again"):
        parts(nn.Sequential(shared, nn.ReLU(), shared), torch.ones(1, 5))
    with pytest.raises(ConfigError, match="single layer"):
        parts(nn.Linear(5, 5), torch.ones(1, 5))
    with pytest.raises(ConfigError, match="no `example`"):
        parts(nn.Sequential(nn.Linear(5, 5)), None)
    with pytest.raises(ConfigError, match="zero defaults"):
        parts(nn.Sequential(nn.Linear(5, 5)), torch.ones(1, 5), defaults="initial")


SETTINGS = {"interval": 4, "batch_size": 8}


class _Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(12, 20), nn.Linear(20, 3)

    def forward(self, x):
        return self.b(torch.relu(self.a(x)))


class _WeightAsDecoder(_Two):
    def __init__(self):
        super().__init__()
        self.b = nn.Linear(12, 3)

    def forward(self, x):
        return self.b(torch.relu(F.linear(torch.relu(self.a(x)), self.a.weight.t())))


class _WeightNorm(_Two):
    def forward(self, x):
        return self.b(torch.relu(self.a(x) / self.a.weight.norm()))


class _RowsTurned(_Two):
    def forward(self, x):
        return self.b(torch.relu(self.a(x)).flip(0)).flip(0)


class _InputsTurned(_Two):
    def forward(self, x):
        return super().forward(x.flip(0))


class _BatchMean(_Two):
    def forward(self, x):
        h = torch.relu(self.a(x))
        return self.b(h - h.mean(0))


class _MixedInTraining(_Two):
    def forward(self, x):
        return super().forward(x + x.flip(0) if self.training else x)


class _TimeFirst(nn.Module):
    """As many steps as the probe has rows, so that no shape tells them apart."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(12, 20), nn.Linear(20, 3)

    def forward(self, x):
        steps = torch.stack([x * k for k in range(1, 10)])
        return self.b(torch.relu(self.a(steps)).mean(0))


class _Noisy(_Two):
    """Random and in float32, but each row by itself."""

    def forward(self, x):
        h = torch.relu(self.a(x.float())) + torch.zeros(12) @ torch.ones(12, 20)
        return self.b(F.dropout(h, 0.3, self.training))


LEAKY = {
    _WeightAsDecoder: "depends on `a.weight` of others",
    _WeightNorm: "subnetwork 1 is another",
    _RowsTurned: "depends on",
    _InputsTurned: "is another|depends on",
    _BatchMean: "subnetwork 1 is another",
    _MixedInTraining: "level 1 depends on the inputs of others",
    _TimeFirst: "is another",
}


def _inputs(num=60):
    return torch.randn(num, 12, generator=torch.Generator().manual_seed(0))


def _built(kind):
    with seeding.isolated(0, "init"):
        return kind()


def _dealt(net):
    return PartitionedNet(
        net, proportions=(0.6, 0.2, 0.2), seed=0, scheme="node", example=_inputs()[:1]
    )


@pytest.mark.parametrize("kind", LEAKY)
def test_a_net_that_joins_levels_is_refused_by_the_reason(kind):
    with pytest.raises(ConfigError, match=LEAKY[kind]):
        check_mixable(_dealt(_built(kind)), _inputs()[:8])


def _fitted(net, **method):
    x = _inputs()
    estimator = tp.PartitionedClassifier(net, steps=4, method={**SETTINGS, **method})
    return estimator.fit(x, x[:, :3].argmax(1))


@pytest.mark.parametrize("kind", [_WeightAsDecoder, _BatchMean])
def test_the_estimator_deals_out_single_weights_of_such_a_net(kind):
    found = _fitted(_built(kind))
    assert (found.method_.scheme, found.method_.mixed) == ("random", False)
    assert np.isfinite(found.history_[-1]["train/loss"])


def test_such_a_net_is_refused_where_a_mixed_batch_was_asked_for():
    with pytest.raises(ConfigError, match="Set `mixed` to false"):
        _fitted(_built(_BatchMean), scheme="node", mixed=True)


@pytest.mark.parametrize("kind", [_Two, _Noisy])
def test_a_net_that_treats_each_row_by_itself_passes_and_nothing_changes(kind):
    net = _built(kind).eval()
    parts = _dealt(net)
    before = {name: tensor.clone() for name, tensor in parts.state_dict().items()}
    drawn = torch.get_rng_state()
    check_mixable(parts, _inputs()[:8])
    assert torch.equal(torch.get_rng_state(), drawn)
    assert not net.training
    assert all(torch.equal(tensor, before[n]) for n, tensor in parts.state_dict().items())


def test_a_last_layer_at_zero_hides_nothing():
    net = _built(_WeightAsDecoder)
    nn.init.zeros_(net.b.weight)
    with pytest.raises(ConfigError, match=r"`a.weight` of others"):
        check_mixable(_dealt(net), _inputs()[:8])


def test_norms_with_parts_of_their_own_and_empty_partitions_pass():
    net = _built(
        lambda: nn.Sequential(nn.Linear(12, 20), nn.LayerNorm(20), nn.ReLU(), nn.Linear(20, 3))
    )
    x = _inputs()
    for proportions in ((0.6, 0.0, 0.4), (0.3, 0.2, 0.2, 0.1, 0.1, 0.1), (1.0,)):
        parts = PartitionedNet(net, proportions=proportions, seed=0, scheme="node", example=x[:1])
        check_mixable(parts, x[:2])


def test_a_net_too_small_for_its_partitions_of_units_is_refused():
    net = nn.Sequential(nn.Linear(12, 6), nn.ReLU(), nn.Linear(6, 3))
    with pytest.raises(ConfigError, match="owns none of this small net"):
        _fitted(net, scheme="node")
    assert _fitted(net).method_.scheme == "random"
