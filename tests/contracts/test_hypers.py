"""Every built-in hyper keeps the contract of hypers."""

from tuneparts.hypers import (
    BUILT_IN,
    KINDS,
    Affine,
    BentonAffine,
    Colour,
    Dropout,
    Flip,
    LabelSmoothing,
    Mask,
    Noise,
    SchwoebelAffine,
    Temperature,
    WeightDecay,
    WeightPrior,
)
from tuneparts.testing import HyperContract


class TestLila(HyperContract):
    hyper = Affine(rotation=0.7, translate_x=0.2, scale_y=0.3)
    name = "affine"


class TestBenton(HyperContract):
    hyper = BentonAffine(rotation=0.7, stretch=0.2)
    name = "affine"


class TestSchwoebel(HyperContract):
    hyper = SchwoebelAffine()
    name = "affine"


class TestColour(HyperContract):
    hyper = Colour(brightness=0.2, contrast=0.3)
    name = "colour"


class TestFlip(HyperContract):
    hyper = Flip(probability=0.3)


class TestMask(HyperContract):
    hyper = Mask(keep=(0.3, 0.5, 0.9))
    name = "mask"
    in_shape = (3,)


class TestNoise(HyperContract):
    hyper = Noise(std=0.3)
    name = "noise"


class TestDropout(HyperContract):
    hyper = Dropout(rate=0.3)
    name = "dropout"


class TestTemperature(HyperContract):
    hyper = Temperature(value=1.7)
    name = "temperature"


class TestLabelSmoothing(HyperContract):
    hyper = LabelSmoothing(rate=0.2)


class TestWeightDecay(HyperContract):
    hyper = WeightDecay(strength=0.01)


class TestWeightPrior(HyperContract):
    hyper = WeightPrior(decay=(0.01, 0.02, 0.3, 0.04))


def test_no_built_in_hyper_is_left_out() -> None:
    tested = {type(cls.hyper) for cls in HyperContract.__subclasses__() if hasattr(cls, "hyper")}
    known = {cls for classes in BUILT_IN.values() for cls in classes}
    assert known | {KINDS.find(kind) for kind in KINDS.known} <= tested
