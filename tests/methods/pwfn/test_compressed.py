import copy

import pytest
import torch
from torch import nn

from tuneparts.core import seeding, torchvision_door
from tuneparts.core.errors import CheckpointError, ConfigError
from tuneparts.methods.pwfn import compress, load
from tuneparts.methods.pwfn.config import PwfnConfig
from tuneparts.models.config import GivenNet, given_config

SETTINGS = {"passes": 40, "interval": 20, "batch_size": 20, "pretrain": 0.5}


def _net(seed=0):
    with seeding.isolated(seed, "init"):
        return nn.Sequential(
            nn.Linear(6, 16), nn.BatchNorm1d(16), nn.Dropout(0.2), nn.ReLU(), nn.Linear(16, 3)
        )


def _data(num=60, seed=0):
    x = torch.randn(num, 6, generator=torch.Generator().manual_seed(seed))
    return x, x[:, :3].argmax(dim=1)


def test_the_net_is_plain_has_few_values_and_the_given_one_is_untouched():
    net = _net()
    before = copy.deepcopy(net.state_dict())
    modes = [m.training for m in net.modules()]
    small = compress(net, _data(), **SETTINGS)
    assert all(torch.equal(v, before[k]) for k, v in net.state_dict().items())
    assert modes == [m.training for m in net.modules()]
    assert [type(m) for m in small.net.modules()] == [type(m) for m in net.modules()]
    coded = torch.cat([p.flatten() for i in (0, 4) for p in small.net[i].parameters()])
    assert len(coded.unique()) == small.num_values < len(coded) / 2
    assert small.covered == len(coded) / sum(p.numel() for p in net.parameters())
    reason = "is of a BatchNorm1d (16)"
    assert small.left_out == {"1.weight": reason, "1.bias": reason}
    assert not torch.equal(small.net[1].weight, net[1].weight)
    assert 0 < small.entropy < 16
    assert small.num_float_bytes == 4 * sum(v.numel() for v in before.values()) + 4


def test_a_net_in_evaluation_mode_is_trained_as_one_in_training_mode():
    usual, given = (compress(_net().train(mode), _data(), **SETTINGS) for mode in (True, False))
    assert given.history == usual.history
    assert torch.equal(given.net[1].running_mean, usual.net[1].running_mean)


def test_scores_are_those_of_the_plain_nets_on_validation_data():
    net, val = _net(), _data(30, seed=1)
    small = compress(net, _data(), val, **SETTINGS)
    for scores, of in ((small.before, net), (small.after, small.net)):
        logits = of.eval()(val[0])
        assert scores["accuracy"] == pytest.approx((logits.argmax(1) == val[1]).double().mean())
        assert scores["nll"] == pytest.approx(nn.functional.cross_entropy(logits, val[1]).item())
    assert small.history[-1]["val/nll"] == pytest.approx(small.after["nll"], rel=1e-5)
    assert small.after["nll"] < small.before["nll"]


def test_the_file_loads_bit_for_bit(tmp_path):
    file = tmp_path / "new" / "net.npz"
    small = compress(_net(), _data(), file=file, **SETTINGS)
    assert file.stat().st_size == small.num_bytes
    other = _net(seed=1)
    assert load(str(file), other) is other
    for name, value in small.net.state_dict().items():
        assert torch.equal(value, other.state_dict()[name])
    wrong = nn.Sequential(nn.Linear(6, 3))
    with pytest.raises(CheckpointError, match="Build the net"):
        load(file, wrong)
    with pytest.raises(CheckpointError, match="nothing: cannot be read"):
        load(tmp_path / "nothing", other)


def test_same_seed_same_net_arrays_or_tensors_and_the_global_generator_is_untouched():
    x, y = _data()
    state = torch.get_rng_state()
    seen = []
    first = compress(_net(), (x, y), report=seen.append, **SETTINGS)
    again = compress(_net(), (x.numpy(), y.numpy()), **SETTINGS)
    other = compress(_net(), (x, y), seed=1, **SETTINGS)
    assert torch.equal(torch.get_rng_state(), state)
    assert first.history == seen == again.history != other.history


def test_a_call_that_was_stopped_goes_on_bit_for_bit(tmp_path):
    fields = {**SETTINGS, "interval": 10}
    whole = compress(_net(), _data(), **fields)

    def stop(row):
        if row["cost/passes"] == 30:
            raise KeyboardInterrupt

    file = tmp_path / "net.npz"
    with pytest.raises(KeyboardInterrupt):
        compress(_net(), _data(), file=file, report=stop, **fields)
    assert not file.exists()
    seen = []
    resumed = compress(_net(), _data(), file=file, report=seen.append, **fields)
    assert [row["cost/passes"] for row in seen] == [30, 40]
    assert resumed.history == whole.history
    assert file.stat().st_size == whole.num_bytes
    assert [path.name for path in tmp_path.iterdir()] == ["net.npz"]


def test_what_another_call_left_is_not_continued(tmp_path):
    file = tmp_path / "net.npz"
    (tmp_path / "net.npz.partial").write_bytes(b"torn")
    first = compress(_net(), _data(), file=file, **SETTINGS)

    def stop(row):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compress(_net(1), _data(), file=file, report=stop, **{**SETTINGS, "interval": 10})
    again = compress(_net(), _data(), file=file, **SETTINGS)
    assert again.history == first.history


def test_deviations_move_as_far_as_they_should_by_default():
    small = compress(_net(), _data(), **SETTINGS)
    assert small.history[-1]["fixing/exposure"] == pytest.approx(1.0)
    given = compress(_net(), _data(), **SETTINGS, sigma={"alpha": 0.0})
    assert given.history[-1]["fixing/exposure"] == 0
    compress(_net(), _data(), **SETTINGS, quantiser={"kind": "nearest"})


def test_without_pretraining_all_passes_go_to_fixing():
    fields = {**SETTINGS, "pretrain": 0.0, "passes": 20, "interval": 10}
    small = compress(_net(), _data(), **fields)
    assert small.history == compress(_net(), _data(), **{
        k: v for k, v in fields.items() if k != "pretrain"
    }).history  # fmt: skip
    assert small.history[0]["fixing/fraction"] > 0


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"pretrained": "x.pt"}, "`pretrained`: not a setting"),
        ({"hypers": {"temperature": 2.0}}, "`hypers`: not a setting"),
        ({"ensemble": 4}, "`ensemble`: not a setting"),
        ({"quantiser": {"kind": "free"}}, "`free`: makes no codebook"),
        ({"quantiser": {"kind": "uniform"}, "fractions": (1.0,)}, "makes no codebook"),
        ({"pases": 4}, "Did you mean `passes`"),
        ({"fractions": (0.5, 0.4)}, "fractions rise"),
    ],
)
def test_fields_that_cannot_be_meant_are_refused(fields, message):
    with pytest.raises(ConfigError, match=message):
        compress(_net(), _data(), **fields)


def test_data_that_do_not_fit_are_refused():
    x, y = _data()
    with pytest.raises(ConfigError, match="one label"):
        compress(_net(), (x, y[:-1]))
    with pytest.raises(ConfigError, match="one label"):
        compress(_net(), (x[:0], y[:0]))
    with pytest.raises(ConfigError, match="shape of training inputs"):
        compress(_net(), (x, y), (x[:, :5], y))
    with pytest.raises(ConfigError, match=r"shape \(8, 5\), but its forward raised"):
        compress(_net(), (x[:, :5], y))
    with pytest.raises(ConfigError, match="has 3 for 4 classes"):
        compress(_net(), (x, y + 1))
    with pytest.raises(ConfigError, match=r"must make logits"):
        compress(nn.Sequential(nn.Linear(6, 3), nn.Unflatten(1, (3, 1))), (x, y))


def test_a_net_without_a_layer_to_cover_is_refused_with_the_reasons():
    with pytest.raises(ConfigError, match="`weight` is of a LayerNorm"):
        compress(nn.LayerNorm(6), _data())
    assert compress(nn.Linear(6, 3), _data(), **SETTINGS).covered == 1
    with pytest.raises(ConfigError, match="Float and Double"):
        compress(nn.Sequential(nn.Linear(6, 3)).double(), _data())


def test_given_nets_stand_in_configs_of_any_method():
    net = _net()
    config = given_config(PwfnConfig, {"passes": 8}, net=GivenNet(lambda: net))
    assert config.net.build((6,), 3) is net
    assert '"name":"given"' in config.model_dump_json()
    with pytest.raises(ConfigError, match="pretrain"):
        given_config(PwfnConfig, {"warmup": 0.9}, net=GivenNet(lambda: net))


def test_frozen_weights_do_not_train_and_are_still_coded():
    net = _net()
    net[0].requires_grad_(False)
    small = compress(net, _data(), **SETTINGS)
    assert small.left_out.keys() == {"1.weight", "1.bias"}
    assert not small.net[0].weight.requires_grad
    # Fixed to values near the old ones, and not moved by training in between.
    assert (small.net[0].weight - net[0].weight).abs().max() < 0.3


def test_two_parameters_with_one_memory_are_refused():
    net = nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 3))
    net[1].weight.data = net[0].weight.data
    with pytest.raises(ConfigError, match="two parameters share their memory"):
        compress(net, _data(), **SETTINGS)
    net[1].weight = net[0].weight
    small = compress(net, _data(), **SETTINGS)
    assert small.net[1].weight is small.net[0].weight


def _images(num=40):
    x = torch.randn(num, 3, 6, 6, generator=torch.Generator().manual_seed(0))
    return x, x.mean(dim=(2, 3)).argmax(dim=1)


def _channels_last():
    with seeding.isolated(0, "init"):
        net = nn.Sequential(
            nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 3), nn.Flatten(), nn.Linear(16, 3)
        ).to(memory_format=torch.channels_last)
    net[4].weight = nn.Parameter(net[4].weight.detach().t().contiguous().t())
    return net


def test_weights_in_another_memory_format_go_in_and_keep_it(tmp_path):
    net, (x, y), file = _channels_last(), _images(), tmp_path / "net.npz"
    small = compress(net, (x, y), file=file, **SETTINGS)
    strides = [p.stride() for p in net.parameters()]
    assert not net[0].weight.is_contiguous()
    assert not net[4].weight.is_contiguous()
    assert [p.stride() for p in small.net.parameters()] == strides
    assert torch.equal(load(file, _channels_last()).eval()(x), small.net(x))


def _transformer():
    with seeding.isolated(0, "init"):
        return torchvision_door.load().models.VisionTransformer(
            image_size=8, patch_size=4, num_layers=1, num_heads=2, hidden_dim=8, mlp_dim=16,
            num_classes=3,
        )  # fmt: skip


def test_a_vision_transformer_of_torchvision_goes_in_and_comes_back_from_its_file(tmp_path):
    x = torch.randn(40, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    y = (x.mean(dim=(2, 3))).argmax(dim=1)
    file = tmp_path / "transformer.npz"
    small = compress(_transformer(), (x, y), file=file, **SETTINGS)
    attention = "encoder.layers.encoder_layer_0.self_attention.in_proj_weight"
    values = small.net.get_parameter(attention).unique()
    assert len(values) <= small.num_values < small.net.get_parameter(attention).numel()
    assert {"class_token", "encoder.pos_embedding"} <= small.left_out.keys()
    assert attention not in small.left_out
    again = load(file, _transformer()).eval()
    assert torch.equal(again(x), small.net(x))


def test_inputs_that_a_net_cannot_take_are_refused_before_training():
    x = torch.zeros(20, 3, 12, 12)
    with pytest.raises(ConfigError, match="Wrong image height"):
        compress(_transformer(), (x, torch.arange(20) % 3), **SETTINGS)
