"""Which parameters of a net become Gaussians."""

import copy

import pytest
import torch
from torch import Tensor, nn

from tuneparts.methods.pwfn._gaussian import Gaussians, Lent, cover
from tuneparts.nets import NETS

CASES = {
    "linear": (nn.Sequential(nn.Linear(4, 3)), (4,)),
    "conv1d": (nn.Sequential(nn.Conv1d(2, 3, 3), nn.Flatten()), (2, 5)),
    "conv3d": (nn.Sequential(nn.Conv3d(1, 2, 2), nn.Flatten()), (1, 3, 3, 3)),
    "transposed": (nn.Sequential(nn.ConvTranspose2d(2, 3, 2), nn.Flatten()), (2, 3, 3)),
    "transposed1d": (nn.Sequential(nn.ConvTranspose1d(2, 3, 2), nn.Flatten()), (2, 3)),
}


@pytest.mark.parametrize("name", CASES)
def test_every_layer_that_multiplies_is_covered(name: str) -> None:
    net, shape = CASES[name]
    names, left_out = cover(net, torch.randn(3, *shape))
    assert set(names) == {name for name, _ in net.named_parameters()}
    assert not left_out


class Words(nn.Module):
    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.embed, self.deep, self.head = nn.Embedding(9, 4), layer, nn.Linear(4, 9, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, x: Tensor) -> Tensor:
        out = self.deep(self.embed(x))
        return self.head((out[0] if isinstance(out, tuple) else out)[:, -1])


@pytest.mark.parametrize(
    "layer",
    [
        nn.LSTM(4, 4, batch_first=True),
        nn.GRU(4, 4, num_layers=2, batch_first=True),
        nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True),
    ],
    ids=lambda layer: type(layer).__name__,
)
def test_recurrence_attention_and_ties(layer: nn.Module) -> None:
    net = Words(layer)
    x = torch.randint(9, (3, 5), generator=torch.Generator().manual_seed(0))
    names, left_out = cover(net, x)
    norms = {n for n, _ in net.named_parameters() if "norm" in n}
    assert set(left_out) == norms
    assert "embed.weight" in names
    assert "head.weight" not in names
    gaussians = Gaussians(net, names)
    with torch.no_grad():
        gaussians.sigma.fill_(0.5)
    net.eval()
    # A draw reaches the embedding and the head alike: the same as a net that owns the drawn values.
    draw = gaussians.draw(torch.Generator().manual_seed(0))
    owner = copy.deepcopy(net)
    with torch.no_grad():
        for name, value in draw.values.items():
            owner.get_parameter(name).copy_(value)
    torch.testing.assert_close(Lent(net, draw.values)(x), owner(x))
    assert not torch.equal(owner(x), net(x))


def test_what_stays_in_float_is_named_and_counted() -> None:
    net = nn.Sequential(nn.Linear(4, 4), nn.PReLU(4), nn.LayerNorm(4), nn.Linear(4, 2).half())
    assert cover(net)[1] == {
        "1.weight": "is of a PReLU (4)",
        "2.weight": "is of a LayerNorm (4)",
        "2.bias": "is of a LayerNorm (4)",
        "3.weight": "is float16, not float32 (8)",
        "3.bias": "is float16, not float32 (2)",
    }
    padded = nn.Sequential(nn.Embedding(5, 2, padding_idx=0), nn.Flatten(), nn.Linear(4, 2))
    assert "`padding_idx`" in cover(padded)[1]["0.weight"]
    shrunk = nn.Sequential(nn.Embedding(5, 2, max_norm=1.0), nn.Flatten(), nn.Linear(4, 2))
    assert "`max_norm`" in cover(shrunk)[1]["0.weight"]


@pytest.mark.parametrize("name", ["mnist_cnn", "resnet18", "mobilenet_v2", "fixup_resnet"])
def test_nets_of_the_registry(name: str) -> None:
    sizes = {"fixup_resnet": {"depth": 8}, "resnet18": {"width": 4}}.get(name, {})
    net = NETS[name](name=name, **sizes).build((3, 32, 32), 10)
    names, _ = cover(net, torch.rand(2, 3, 32, 32))
    layers = [m for m in net.modules() if isinstance(m, nn.Linear | nn.Conv2d)]
    assert len(names) == sum(len(list(layer.parameters())) for layer in layers)
