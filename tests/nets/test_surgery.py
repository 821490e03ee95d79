import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from tuneparts.core.errors import ConfigError
from tuneparts.nets import MnistCnn, MobileNetV2
from tuneparts.nets.surgery import find, replace


class Marked(nn.Module):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


def mark(name: str, layer: nn.Module) -> nn.Module:
    return Marked(name)


def meta(config, in_shape=(3, 32, 32)) -> nn.Module:
    with torch.device("meta"):
        return config.build(in_shape, 10)


def test_the_forward_pass_goes_through_the_new_layers():
    net = MnistCnn(channels=(2, 2), hidden=(4, 4)).build((1, 8, 8), 3)
    seen = []

    class Spy(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            seen.append(tuple(x.shape))
            return x

    replace(net, nn.Dropout, lambda name, layer: Spy(), expected=4)
    net(torch.zeros(5, 1, 8, 8))
    assert seen == [(5, 2, 4, 4), (5, 2, 2, 2), (5, 4), (5, 4)]


def test_subclasses_are_found_too():
    class Special(nn.Linear):
        pass

    def make() -> nn.Sequential:
        return nn.Sequential(nn.Linear(1, 1), Special(1, 1))

    assert replace(make(), nn.Linear, mark) == ["0", "1"]
    assert replace(make(), Special, mark) == ["1"]


def test_a_match_inside_a_match_goes_with_it():
    net = nn.ModuleDict({"a": nn.Sequential(nn.Sequential()), "ab": nn.Sequential()})
    assert replace(net, nn.Sequential, mark) == ["a", "ab"]
    assert [type(m) for m in net.values()] == [Marked, Marked]


def test_a_shared_layer_stays_shared():
    shared = nn.ReLU()
    net = nn.ModuleDict({"a": shared, "b": nn.Sequential(shared), "c": nn.ReLU()})
    assert replace(net, nn.ReLU, mark, expected=2) == ["a", "c"]
    assert net["a"] is net["b"][0]
    assert net["a"].name == "a"
    assert net["c"] is not net["a"]


def test_new_layers_take_over_the_mode():
    net = nn.Sequential(nn.Dropout(), nn.ReLU())
    net[0].eval()
    replace(net, nn.Dropout, mark)
    replace(net, nn.ReLU, mark)
    assert [m.training for m in net] == [False, True]


def test_a_wrong_count_changes_nothing():
    net = meta(MobileNetV2())
    with pytest.raises(
        ConfigError, match=r"1 layers of type Dropout were found \(drop\), but 2 expected"
    ):
        replace(net, nn.Dropout, mark, expected=2)
    assert find(net, Marked) == {}


def test_no_match_is_refused_and_says_what_there_is():
    with pytest.raises(ConfigError, match=r"GroupNorm .*at least 1 expected .*Conv2d.*Linear"):
        replace(meta(MnistCnn(), (1, 28, 28)), nn.GroupNorm, mark)
    with pytest.raises(ConfigError, match="GroupNorm"):
        replace(meta(MnistCnn(), (1, 28, 28)), nn.GroupNorm, mark, expected=0)


def test_the_root_is_refused_with_the_cure():
    with pytest.raises(ConfigError, match=r"the net itself is a Linear.*nn\.Sequential"):
        replace(nn.Linear(1, 1), nn.Linear, mark)


def test_a_failing_make_changes_nothing():
    net = nn.Sequential(nn.ReLU(), nn.ReLU())

    def make(name: str, layer: nn.Module) -> nn.Module:
        if name == "1":
            raise RuntimeError("no")
        return Marked(name)

    with pytest.raises(RuntimeError, match="no"):
        replace(net, nn.ReLU, make)
    assert [type(m) for m in net] == [nn.ReLU, nn.ReLU]


trees = st.recursive(
    st.sampled_from([nn.ReLU, nn.Identity]),
    lambda children: st.lists(children, min_size=1, max_size=3),
    max_leaves=12,
)


def grow(tree) -> nn.Module:
    return nn.Sequential(*map(grow, tree)) if isinstance(tree, list) else tree()


def leaves(tree, prefix="") -> dict[str, type]:
    if not isinstance(tree, list):
        return {prefix.removesuffix("."): tree}
    return {k: v for i, sub in enumerate(tree) for k, v in leaves(sub, f"{prefix}{i}.").items()}


@settings(max_examples=40, deadline=None)
@given(trees.map(lambda tree: [tree, nn.ReLU]))
def test_any_tree_loses_exactly_its_matches(tree):
    net, before = grow(tree), leaves(tree)
    names = replace(net, nn.ReLU, mark)
    assert names == [name for name, kind in before.items() if kind is nn.ReLU]
    for name, kind in before.items():
        assert type(net.get_submodule(name)) is (Marked if kind is nn.ReLU else kind)
