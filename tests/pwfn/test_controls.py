import torch

from tuneparts.pwfn.controls import controlled

SIGMA_N = torch.arange(1.0, 101.0)
FIXED_N = torch.arange(100) % 4 == 0


def shown(control: str, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return controlled(SIGMA_N, FIXED_N, control, generator)  # type: ignore[arg-type]


def test_fixed_deviations_are_never_changed() -> None:
    for control in ("learnt", "permuted", "constant"):
        assert torch.equal(shown(control)[FIXED_N], SIGMA_N[FIXED_N])
    assert torch.equal(SIGMA_N, torch.arange(1.0, 101.0))


def test_permuted_keeps_the_histogram_and_not_the_places() -> None:
    free = shown("permuted")[~FIXED_N]
    assert torch.equal(free.sort().values, SIGMA_N[~FIXED_N])
    assert not torch.equal(free, SIGMA_N[~FIXED_N])
    assert torch.equal(shown("permuted"), shown("permuted"))
    assert not torch.equal(shown("permuted"), shown("permuted", seed=1))


def test_constant_is_the_median_of_the_free_ones() -> None:
    assert (shown("constant")[~FIXED_N] == SIGMA_N[~FIXED_N].median()).all()


def test_learnt_and_nothing_free_change_nothing() -> None:
    assert torch.equal(shown("learnt"), SIGMA_N)
    all_fixed = torch.ones(100, dtype=torch.bool)
    generator = torch.Generator().manual_seed(0)
    assert torch.equal(controlled(SIGMA_N, all_fixed, "constant", generator), SIGMA_N)
