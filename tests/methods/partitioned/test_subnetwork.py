"""Subnetworks against an obvious reference: a copy of the net with its weights written in."""

import copy
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

from tuneparts.core import seeding
from tuneparts.core.errors import ConfigError
from tuneparts.methods.partitioned._assign import Role
from tuneparts.methods.partitioned.mixed import MixedBatch
from tuneparts.methods.partitioned.subnetwork import PartitionedNet
from tuneparts.nets.layers import Bias, ScalarMultiplier
from tuneparts.training import checkpoint

PROPORTIONS = (0.5, 0.3, 0.2)


def _parts(case, net=None, **kwargs):
    net = case.build() if net is None else net
    if kwargs.get("scheme") == "node":
        kwargs["example"] = case.batch(2)[0]
    return PartitionedNet(net, **{"proportions": PROPORTIONS, "seed": 0, **kwargs})


def _scramble(parts, k, seed=1):
    """Replace all that partition k owns by noise."""
    generator = seeding.torch_generator(seed, "noise", k)
    for share in parts.shares(k):
        now = share.gather(share.flat_n)
        noise = torch.randn(now.shape, generator=generator, dtype=now.dtype)
        share.scatter(noise.to(now.dtype))


def _train_statistics(parts, case):
    """Give every subnetwork's norms statistics of its own."""
    parts.net.train()
    for k in parts.filled:
        view = parts.view(k, trainable=True)
        dtype = next(parts.net.parameters()).dtype
        parts.run(view, case.batch(6, seed=k, dtype=dtype)[0], learns_statistics=True)
    parts.net.eval()


def _reference(parts, initial, level, defaults):
    """Subnetwork `level` as an ordinary net, entry by entry."""
    net = copy.deepcopy(parts.net)
    with torch.no_grad():
        for name, parameter in net.named_parameters():
            role = parts.roles[name]
            if role is Role.ENTRIES:
                default = initial.get_parameter(name) if defaults == "initial" else 0.0
                is_active = parts.map_of(name) <= level
                parameter.copy_(torch.where(is_active, parameter, default))
            elif role is not Role.HELD:
                rows = parts.get_parameter(f"parts:{name}".replace(".", "/"))
                value = torch.ones_like(rows[0]) if role is Role.PRODUCT else rows[0] * 0
                for i in range(level):
                    value = value * rows[i] if role is Role.PRODUCT else value + rows[i]
                parameter.copy_(value)
        for name, buffer in net.named_buffers():
            layer, _, kind = name.rpartition(".")
            rows = dict(parts.named_buffers())[f"{kind}:{layer}".replace(".", "/")]
            if level:
                buffer.copy_(rows[level - 1])
    return net.eval()


@pytest.mark.parametrize("defaults", ["zero", "initial"])
def test_every_subnetwork_equals_a_net_with_its_weights_written_in(small_net, defaults):
    parts = _parts(small_net, defaults=defaults)
    initial = copy.deepcopy(parts.net)
    for k in (1, 2, 3):
        _scramble(parts, k)
    _train_statistics(parts, small_net)
    x, _ = small_net.batch()
    for level in range(4):
        expected = _reference(parts, initial, level, defaults)(x)
        torch.testing.assert_close(parts(x, level), expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("scheme", ["random", "node"])
def test_later_partitions_never_touch_an_earlier_subnetwork(any_net, scheme):
    parts = _parts(any_net, scheme=scheme)
    _train_statistics(parts, any_net)
    x, _ = any_net.batch(2)
    for level in (2, 1, 0):
        before = parts(x, level)
        for k in range(level + 1, 4):
            _scramble(parts, k)
        assert torch.equal(parts(x, level), before)
        assert not torch.equal(parts(x, level + 1), before)


@pytest.mark.parametrize("defaults", ["zero", "initial"])
def test_the_last_subnetwork_is_the_ordinary_net_bit_for_bit(any_net, defaults):
    net = any_net.build(dtype=torch.float32).eval()
    x, _ = any_net.batch(dtype=torch.float32)
    ordinary = net(x)
    parts = _parts(any_net, net, defaults=defaults)
    assert torch.equal(parts(x), ordinary)
    for k in (1, 2, 3):
        _scramble(parts, k)
    _train_statistics(parts, any_net)
    last = parts(x)
    assert not torch.equal(last, ordinary)
    assert torch.equal(parts.merged().eval()(x), last)


def test_norm_factors_multiply_and_shifts_add_with_gradients_to_the_last(small_net):
    parts = _parts(small_net)
    names = [n for n, role in parts.roles.items() if role in {Role.PRODUCT, Role.SUM}]
    x, y = small_net.batch()
    parts.net.eval()
    start = [parts.view(k).tensors for k in (1, 2, 3)]
    for name in names:
        for tensors in start:  # all subnetworks start with the net's own affine
            assert torch.equal(tensors[name], parts.net.get_parameter(name))
    for k in (1, 2, 3):
        _scramble(parts, k)
    view = parts.view(3, trainable=True)
    loss = nn.functional.cross_entropy(parts.run(view, x), y)
    grads = torch.autograd.grad(loss, view.leaves)
    rows = {
        n: parts.get_parameter(f"parts:{n}".replace(".", "/")).detach().requires_grad_()
        for n in names
    }
    tensors = dict(parts.view(3).tensors)
    for name, row in rows.items():
        is_product = parts.roles[name] is Role.PRODUCT
        tensors[name] = row[0] * row[1] * row[2] if is_product else row[0] + row[1] + row[2]
    expected = nn.functional.cross_entropy(torch.func.functional_call(parts.net, tensors, (x,)), y)
    by_rows = (
        dict(zip(names, torch.autograd.grad(expected, rows.values()), strict=True)) if names else {}
    )
    for share, grad in zip(parts.shares(3), grads, strict=True):
        if share.name in by_rows:
            torch.testing.assert_close(grad, by_rows[share.name][2], rtol=1e-9, atol=1e-12)


def test_maps_are_bytes_with_exact_shares_and_survive_a_checkpoint(small_net):
    parts, other = _parts(small_net), _parts(small_net, seed=7)
    names = [n for n, role in parts.roles.items() if role is Role.ENTRIES]
    assert any(not torch.equal(parts.map_of(n), other.map_of(n)) for n in names)
    for name in names:
        labels = parts.map_of(name)
        assert labels.dtype == torch.uint8
        assert labels.shape == parts.net.get_parameter(name).shape
        for k, share in enumerate(PROPORTIONS, start=1):
            if labels.numel() >= 3:
                assert abs(int((labels == k).sum()) - share * labels.numel()) < 1
    other.load_state_dict(checkpoint.from_bytes(checkpoint.to_bytes(parts.state_dict())))
    for name in names:
        assert torch.equal(parts.map_of(name), other.map_of(name))
    x, _ = small_net.batch()
    parts.net.eval()
    other.net.eval()
    for level in range(4):
        assert torch.equal(parts(x, level), other(x, level))


def test_every_entry_belongs_to_exactly_one_share(small_net):
    parts = _parts(small_net)
    owners = {n: torch.zeros(p.numel()) for n, p in parts.net.named_parameters()}
    for k in (1, 2, 3):
        for share in parts.shares(k):
            if share.index_m is not None:
                owners[share.name][share.index_m.long()] += 1
            elif parts.roles[share.name] is Role.ENTRIES:
                owners[share.name] += 1
    for name, role in parts.roles.items():
        if role is Role.ENTRIES:
            assert torch.equal(owners[name], torch.ones_like(owners[name]))


def test_an_empty_partition_is_the_subnetwork_before_it(small_net):
    parts = _parts(small_net, proportions=(1, 0))
    _train_statistics(parts, small_net)
    x, _ = small_net.batch()
    assert parts.filled == [1]
    assert parts.shares(2) == []
    assert torch.equal(parts(x, 1), parts(x, 2))
    assert torch.equal(parts(x, 1), parts.merged().eval()(x))


def test_defaults_drawn_again_equal_the_stored_copy(small_net):
    stored = _parts(small_net, defaults="initial")
    drawn = _parts(small_net, defaults="initial", rebuild=small_net.build)
    x, _ = small_net.batch()
    for parts in (stored, drawn):
        parts.net.eval()
        for k in (1, 2, 3):
            _scramble(parts, k)
    assert sum(b.nbytes for b in drawn.buffers()) < sum(b.nbytes for b in stored.buffers())
    for level in range(4):
        assert torch.equal(stored(x, level), drawn(x, level))


def test_statistics_are_kept_apart_and_learnt_in_updates_only():
    net = nn.Sequential(nn.Linear(5, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3)).double()
    parts = PartitionedNet(net, proportions=PROPORTIONS, seed=0)
    x = torch.randn(9, 5, dtype=torch.float64, generator=seeding.torch_generator(0, "x"))
    parts.run(parts.view(2, trainable=True), x, learns_statistics=True)
    means = parts.get_buffer("running_mean:1")
    hidden = torch.func.functional_call(
        net[0], {k[2:]: v for k, v in parts.view(2).tensors.items() if k[:2] == "0."}, (x,)
    )
    torch.testing.assert_close(means[1], 0.1 * hidden.mean(0).detach())
    assert not means[0].any()
    assert not means[2].any()
    assert parts.get_buffer("num_batches_tracked:1").tolist() == [0, 1, 0]
    before = copy.deepcopy(parts.state_dict())
    assert net[1].training
    parts.run(parts.view(2), x)  # as a hyper step does
    assert net[1].training
    for name, tensor in parts.state_dict().items():
        assert torch.equal(tensor, before[name])


def test_held_layers_belong_to_no_partition_and_alone_get_hyper_gradients(digits_cnn):
    parts = _parts(digits_cnn, num_held=2)
    held = {name for name, role in parts.roles.items() if role is Role.HELD}
    assert held == {"conv1.weight", "conv1.bias", "conv2.weight", "conv2.bias"}
    x, y = digits_cnn.batch()
    loss = nn.functional.cross_entropy(parts.run(parts.view(1), x), y)
    loss.backward()
    with_grad = {n for n, p in parts.net.named_parameters() if p.grad is not None}
    assert with_grad == held
    view = parts.view(1, trainable=True)
    assert not view.tensors["conv1.weight"].requires_grad


class _Mixer(nn.Module):
    """Attention, an embedding, recurrence, PReLU, RMSNorm and a bare parameter in one net."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(9, 8)
        self.shift = nn.Parameter(torch.randn(5, 8))
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.norm = nn.RMSNorm(8)
        self.recurrent = nn.LSTM(8, 6, num_layers=2, batch_first=True)
        self.act = nn.PReLU()
        self.head = nn.Linear(6, 4)

    def forward(self, tokens):
        h = self.embedding(tokens) + self.shift
        h = self.norm(h + self.attention(h, h, h, need_weights=False)[0])
        return self.head(self.act(self.recurrent(h)[0][:, -1]))


@pytest.mark.parametrize("defaults", ["zero", "initial"])
def test_any_layer_is_dealt_out_by_the_random_scheme(defaults):
    with seeding.isolated(0, "init"):
        net = _Mixer().double()
    tokens = torch.arange(15).view(3, 5) % 9
    parts = PartitionedNet(net, proportions=(0.5, 0.3, 0.2), seed=0, defaults=defaults)
    start = copy.deepcopy(net)
    assert {n for n, r in parts.roles.items() if r is not Role.ENTRIES} == {"norm.weight"}
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(7)))
    for level in (1, 2, 3):
        written = copy.deepcopy(net)
        written.norm.weight.data = start.norm.weight.data  # its parts are apart, and did not move
        with torch.no_grad():
            for name, parameter in written.named_parameters():
                if name != "norm.weight":
                    later = parts.map_of(name) > level
                    default = start.get_parameter(name) if defaults == "initial" else 0.0
                    parameter.copy_(torch.where(later, default, parameter))
        view = parts.view(level, trainable=True)
        out = parts.run(view, tokens)
        torch.testing.assert_close(out, written(tokens), rtol=1e-12, atol=1e-12)
        for share, leaf in zip(parts.shares(level), view.leaves, strict=True):
            (grad,) = torch.autograd.grad(out.sum(), leaf, retain_graph=True)
            expected = torch.autograd.grad(written(tokens).sum(), written.get_parameter(share.name))
            torch.testing.assert_close(share.gather(grad), share.gather(expected[0]))


@pytest.mark.parametrize(
    ("layer", "kind"),
    [(nn.PReLU(), "PReLU"), (nn.Embedding(5, 6), "Embedding"), (nn.LSTM(6, 6), "LSTM")],
)
def test_a_layer_without_units_is_refused_by_name_in_the_node_scheme(layer, kind):
    net = nn.Sequential()
    net.add_module("body", nn.Sequential(nn.Linear(6, 6), layer))
    with pytest.raises(ConfigError, match=rf"`body\.1` is a {kind}"):
        PartitionedNet(
            net, proportions=PROPORTIONS, seed=0, scheme="node", example=torch.zeros(1, 6)
        )


def test_a_frozen_parameter_is_held():
    net = nn.Sequential(nn.Linear(4, 4), nn.PReLU())
    net[1].weight.requires_grad_(False)
    assert PartitionedNet(net, proportions=PROPORTIONS, seed=0).roles["1.weight"] is Role.HELD


def test_other_norms_and_scalars_are_known():
    net = nn.Sequential(
        nn.Linear(4, 6), nn.LayerNorm(6), ScalarMultiplier(), Bias(), nn.Linear(6, 2)
    )
    parts = PartitionedNet(net, proportions=PROPORTIONS, seed=0)
    assert parts.roles["1.weight"] is Role.PRODUCT
    assert parts.roles["1.bias"] is Role.SUM
    assert parts.roles["2.scale"] is Role.PRODUCT
    assert parts.roles["3.bias"] is Role.SUM


def test_levels_and_tiny_nets_are_checked(mlp):
    parts = _parts(mlp)
    with pytest.raises(ConfigError, match="numbered 0 to 3, not 4"):
        parts(mlp.batch()[0], 4)
    with pytest.raises(ConfigError, match=r"partition 2 of proportions .* owns none"):
        PartitionedNet(nn.Sequential(nn.Linear(1, 2, bias=False)), proportions=(1, 1, 1), seed=0)


def test_threads_run_different_subnetworks_of_one_net_at_once():
    net = nn.Sequential(nn.Linear(64, 256), nn.BatchNorm1d(256), nn.ReLU(), nn.Linear(256, 8))
    parts = PartitionedNet(net, proportions=PROPORTIONS, seed=0)
    x = torch.randn(32, 64, generator=torch.Generator().manual_seed(0))
    expected = {level: parts(x, level) for level in (1, 2, 3)}
    levels = [1, 2, 3] * 40
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda level: parts(x, level), levels))
    assert net.training
    assert all(module.training for module in net.modules())
    for level, logits in zip(levels, found, strict=True):
        assert torch.equal(logits, expected[level])


def _tied():
    with seeding.isolated(0, "init"):
        net = nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 2))
    net[2].weight = net[0].weight
    return net


def test_tied_weights_are_read_alike_under_all_their_names():
    net = _tied()
    x = torch.randn(5, 6, generator=torch.Generator().manual_seed(1))
    parts = PartitionedNet(net, proportions=(0.5, 0.5), seed=0)
    written = copy.deepcopy(net)
    with torch.no_grad():
        for name, parameter in written.named_parameters():
            parameter.masked_fill_(parts.map_of(name) == 2, 0)
    assert torch.equal(parts(x, level=1), written(x))
    # A later partition must not reach the earlier subnetwork through the second name.
    before = parts(x, level=1)
    with torch.no_grad():
        net[0].weight.masked_fill_(parts.map_of("0.weight") == 2, 9.0)
    assert torch.equal(parts(x, level=1), before)
    assert not torch.equal(parts(x, level=2), before)


def test_a_tied_weight_belongs_to_the_latest_unit_of_its_places_in_the_node_scheme():
    net = _tied()
    parts = PartitionedNet(
        net, proportions=(0.5, 0.5), seed=0, scheme="node", example=torch.zeros(1, 6)
    )
    units = parts.units
    expected = torch.ones(6, 6, dtype=torch.uint8)
    for layer in ("0", "2"):
        for o in range(6):
            for i in range(6):
                latest = max(units[layer].out_labels[o], units[layer].in_labels[i])
                expected[o, i] = max(expected[o, i], latest)
    assert torch.equal(parts.map_of("0.weight"), expected)
    assert (expected == 1).any()
    x = torch.randn(5, 6, generator=torch.Generator().manual_seed(1))
    before = parts(x, level=1)
    with torch.no_grad():
        for name, parameter in net.named_parameters():
            parameter.masked_fill_(parts.map_of(name) == 2, 9.0)
    assert torch.equal(parts(x, level=1), before)
    with pytest.raises(ConfigError, match=r"`0.weight` is used by several layers"):
        MixedBatch(parts, torch.ones(5, dtype=torch.long))


class _Heads(nn.Module):
    """Class logits that two layers make, of which neither is called last."""

    def __init__(self):
        super().__init__()
        self.deep, self.wide, self.hidden = nn.Linear(8, 4), nn.Linear(6, 4), nn.Linear(6, 8)
        self.gate = nn.Linear(8, 1)

    def forward(self, x):
        h = self.hidden(x).relu()
        logits = self.deep(h) + self.wide(x)
        return (logits * self.gate(h)).log_softmax(1)


def test_the_layers_that_make_the_outputs_are_found_by_probing():
    with seeding.isolated(0, "init"):
        net = _Heads()
    parts = PartitionedNet(
        net, proportions=(0.5, 0.5), seed=0, scheme="node", example=torch.zeros(1, 6)
    )
    labels = {name: set(units.out_labels.tolist()) for name, units in parts.units.items()}
    assert labels == {"hidden": {1, 2}, "deep": {1}, "wide": {1}, "gate": {1}}
    assert list(labels)[-1] == "gate"  # one unit has one label, whatever it is called after


def test_a_weight_that_no_layer_calls_stays_in_the_first_partition():
    class Cosine(nn.Module):
        def __init__(self):
            super().__init__()
            self.hidden, self.head = nn.Linear(6, 8), nn.Linear(8, 4, bias=False)

        def forward(self, x):
            h = self.hidden(x).relu()
            return nn.functional.linear(h, nn.functional.normalize(self.head.weight))

    net = Cosine()
    parts = PartitionedNet(
        net, proportions=(0.5, 0.5), seed=0, scheme="node", example=torch.zeros(1, 6)
    )
    assert (parts.map_of("head.weight") == 1).all()
    with pytest.raises(ConfigError, match=r"`head.weight` is used by several layers, or by none"):
        MixedBatch(parts, torch.ones(5, dtype=torch.long))
