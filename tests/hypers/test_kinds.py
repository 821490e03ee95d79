import pytest
import torch
from torch import Tensor, nn

from tuneparts.data.target import Classes
from tuneparts.hypers import Flip, Hypers, Shapes, Temperature
from tuneparts.hypers.parts import _Part


def stream(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def flip(probability: float, *, learnable: bool, tau: float = 0.1) -> _Part:
    return Flip(probability=probability, tau=tau).part(
        Shapes((1, 3, 4)), name="flip", learnable=learnable
    )


def images(count: int) -> Tensor:
    return torch.rand(count, 2, 3, 4, generator=stream(1))


def test_a_fixed_probability_mirrors_so_many_whole_images():
    x = images(4000)
    seen = flip(0.3, learnable=False)(x, stream())
    is_mirrored = (seen == x.flip(3)).flatten(1).all(1)
    is_kept = (seen == x).flatten(1).all(1)
    assert (is_mirrored ^ is_kept).all()
    assert is_mirrored.float().mean() == pytest.approx(0.3, abs=0.03)  # four standard errors


@pytest.mark.parametrize(("probability", "mirrors"), [(0.0, False), (1.0, True)])
def test_none_or_all_are_mirrored_at_the_ends(probability, mirrors):
    x = images(50)
    seen = flip(probability, learnable=False)(x, stream())
    assert torch.equal(seen, x.flip(3) if mirrors else x)


def test_a_learnt_probability_blends_in_training_by_its_relaxed_coin():
    x = images(6).double()
    seen = flip(0.3, learnable=True).double()(x, stream(), training=True)
    u = torch.rand(6, generator=stream(), dtype=torch.float64)
    for image, one, draw in zip(x, seen, u, strict=True):
        coin = torch.sigmoid((torch.tensor(0.3).double().logit() + draw.logit()) / 0.1)
        wanted = image + coin * (image.flip(2) - image)
        torch.testing.assert_close(one, wanted, rtol=0, atol=1e-6)


def test_scores_see_whole_images_under_a_learnt_probability():
    x = images(40)
    seen = flip(0.5, learnable=True)(x, stream(), training=False)
    whole = (seen == x).flatten(1).all(1) | (seen == x.flip(3)).flatten(1).all(1)
    assert whole.all()


def test_steps_that_do_not_move_it_draw_as_those_that_do():
    """Updates must see what hyper steps judge."""
    module, x = flip(0.3, learnable=True), images(6)
    moving = module(x, stream()).detach()
    for parameter in module.parameters():
        parameter.requires_grad_(False)
    assert torch.equal(module(x, stream()), moving)


@pytest.mark.parametrize("raw", [-200.0, 200.0])
def test_a_probability_at_its_end_has_a_finite_gradient(raw):
    module = flip(0.5, learnable=True)
    (parameter,) = module.parameters()
    with torch.no_grad():
        parameter.fill_(raw)
    module(images(5), stream()).square().sum().backward()
    assert torch.isfinite(parameter.grad).all()


@pytest.mark.parametrize(("is_symmetric", "low", "high"), [(True, 0.3, 0.7), (False, 0.0, 0.05)])
def test_the_likelihood_learns_whether_mirror_images_mean_the_same(is_symmetric, low, high):
    """A fixed net judges: it knows each class from one side only, or tells sides apart."""
    left = torch.zeros(200, 1, 2, 4)
    left[:, :, 0, 0] = 4.0  # class 0: above
    left[100:, :, 0, 0], left[100:, :, 1, 0] = 0.0, 4.0  # class 1: below
    y_B = torch.arange(200) // 100
    net = nn.Sequential(nn.Flatten(), nn.Linear(8, 2, bias=False))
    with torch.no_grad():
        net[1].weight.zero_()
        net[1].weight[:, [0, 4]] = torch.eye(2)
        if not is_symmetric:  # mirrored, each looks like the other
            net[1].weight[:, [7, 3]] = torch.eye(2)
    is_mirrored = (torch.arange(200) % 2 == 1) & is_symmetric
    x = torch.where(is_mirrored[:, None, None, None], left.flip(3), left)
    config = Hypers(flip=Flip(probability=0.2), samples=8)
    hypers = config.build(learnable=True, net=net, in_shape=(1, 2, 4), num_outputs=2)
    optimiser, draws = torch.optim.Adam(hypers.learnable(), lr=0.05), stream()
    for _ in range(200):
        optimiser.zero_grad()
        outputs_BK = hypers.predict(net, x, generator=draws, training=True)
        hypers.loss(outputs_BK, y_B, Classes().loss).backward()
        optimiser.step()
    assert low <= hypers.values()["hyper/flip"] <= high


def part(value: float, *, learnable: bool) -> _Part:
    return Temperature(value=value).part(Shapes(), name="temperature", learnable=learnable)


def test_logits_are_divided():
    logits = torch.tensor([[2.0, -4.0]])
    assert part(2.0, learnable=False)(logits).tolist() == [[1, -2]]
