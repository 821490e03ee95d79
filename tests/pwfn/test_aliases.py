import pytest
import torch
from torch import Tensor, nn

from tuneparts.errors import ConfigError
from tuneparts.pwfn import codefile, compress, load
from tuneparts.pwfn.aliases import refuse_aliases


class Two(nn.Module):
    """Two square layers, one after the other."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(B, 4) to logits (B, 4)."""
        logits: Tensor = self.head(torch.relu(self.embed(x)))
        return logits


def tied_by_data() -> Two:
    net = Two()
    net.head.weight.data = net.embed.weight.data
    return net


def with_weights(embed: Tensor, head: Tensor) -> Two:
    net = Two()
    net.embed.weight, net.head.weight = nn.Parameter(embed), nn.Parameter(head)
    return net


def test_a_tie_by_data_is_refused_before_training_with_the_way_to_tie() -> None:
    x = torch.randn(20, 4, generator=torch.Generator().manual_seed(0))
    with pytest.raises(ConfigError, match=r"`embed.weight` .* `head.weight` .* Tie them as one"):
        compress(tied_by_data(), (x, x.argmax(dim=1)), passes=4)


def test_a_file_is_not_loaded_into_a_net_that_is_tied_by_data(tmp_path) -> None:
    codefile.write(tmp_path / "net.code", Two(), ["embed.weight", "head.weight"])
    net = tied_by_data()
    before = net.embed.weight.detach().clone()
    with pytest.raises(ConfigError, match="share theirs"):
        load(tmp_path / "net.code", net)
    assert torch.equal(net.embed.weight, before)


@pytest.mark.parametrize("part", ["slice", "transposed", "one number"])
def test_parameters_that_overlap_otherwise_are_to_be_copied(part: str) -> None:
    whole = torch.randn(32)
    square = whole[:16].view(4, 4)
    other = {"slice": square[:2], "transposed": square.t(), "one number": whole[15:31].view(4, 4)}
    with pytest.raises(ConfigError, match=r"Copy one: `head.weight.data"):
        refuse_aliases(with_weights(square, other[part]))


def test_parts_of_one_tensor_that_share_no_number_are_taken() -> None:
    whole = torch.randn(4, 8)
    refuse_aliases(with_weights(whole[:, ::2], whole[:, 1::2]))
    refuse_aliases(with_weights(whole[:, :4], whole[:, 4:]))


def test_a_buffer_may_share_memory_with_buffers_but_not_with_a_parameter() -> None:
    net, mask = Two(), torch.ones(4, 4)
    net.embed.register_buffer("mask", mask)
    net.head.register_buffer("mask", mask[:2])
    refuse_aliases(net)
    net.register_buffer("weight", net.embed.weight.data)
    with pytest.raises(ConfigError, match=r"Copy one"):
        refuse_aliases(net)


def test_one_parameter_under_two_names_is_a_tie() -> None:
    net = Two()
    net.head.weight = net.embed.weight
    refuse_aliases(net)


def test_nets_without_shapes_or_memory_are_left_to_others() -> None:
    refuse_aliases(nn.Sequential(nn.LazyLinear(3), nn.LazyBatchNorm1d()))
    with torch.device("meta"):
        refuse_aliases(Two())
