"""Frames that imitate the rotated-digits search, with a failed and a missing trial."""

import numpy as np
import pandas as pd
import pytest

from tuneparts.results.run_data import RunData
from tuneparts.search.card import ArmCard, RunCard
from tuneparts.search.spec import Search

SEEDS = (0, 1, 2)
FIGURES = Search.model_fields["figures"].default
STEPS, INTERVAL = 400, 40


def make_metadata(**changes) -> RunCard:
    fields = {
        "name": "rotated_digits",
        "question": "Does one partitioned run find the rotation that random trials look for?",
        "notes": "The paper used MNIST and 200 trials; this is the small version.",
        "scale": "cpu",
        "metric": "val/accuracy",
        "figures": FIGURES,
        "arms": (
            ArmCard("none", "standard", 1, SEEDS, steps=STEPS),
            ArmCard("random", "standard", 8, SEEDS, steps=STEPS),
            ArmCard("partitioned", "partitioned", 1, SEEDS, steps=STEPS),
            ArmCard(
                "retrained",
                "standard",
                1,
                SEEDS,
                source="partitioned",
                steps=STEPS,
                budget_note="runs after its source arm, so its total cost is that of two trials",
            ),
        ),
        "digest": "3f9c1a7be2d04455",
        "commit": "0123abcd",
        "parent_run_id": "9a8b7c6d5e4f",
        "command": "tuneparts search rotated_digits --scale cpu",
        "versions": {"python": "3.11", "tuneparts": "0.1.0"},
    }
    return RunCard(**{**fields, **changes})


def _score(rotation: float, arm: str, rng: np.random.Generator) -> float:
    base = 0.72 + 0.2 * np.exp(-((rotation - 2.6) ** 2) / 1.5)
    return float(base - (0.05 if arm == "partitioned" else 0) + rng.normal(0, 0.004))


def make_frames() -> tuple[pd.DataFrame, pd.DataFrame]:
    """trials and steps as `tracking.frames` gives them."""
    rng = np.random.default_rng(20)
    trials, steps = [], []
    for arm in make_metadata().arms:
        for seed in arm.seeds:
            for index in range(arm.trials_per_seed):
                if (arm.name, seed, index) == ("random", 2, 7):
                    continue  # the missing one
                fails = (arm.name, seed, index) == ("random", 1, 3)
                end = {"none": 0.0, "random": rng.uniform(0, np.pi)}.get(arm.name, 2.4)
                end += rng.normal(0, 0.05) if arm.name in {"partitioned", "retrained"} else 0
                trial = f"{arm.name}/seed{seed}/{index:05d}"
                row = {
                    "run_id": f"{len(trials):032x}",
                    "trial": trial,
                    "arm": arm.name,
                    "seed": seed,
                    "index": index,
                    "status": "FAILED" if fails else "FINISHED",
                    "outcome": "failed" if fails else "finished",
                    "error": "loss was nan at step 160; lower the learning rate" if fails else "",
                    "param.optimiser.lr": 0.001,
                }
                for step in range(INTERVAL, (160 if fails else STEPS) + 1, INTERVAL):
                    part = 1 - np.exp(-step / 120)
                    hyper = end * part if arm.name == "partitioned" else end
                    accuracy = 0.1 + (_score(hyper, arm.name, rng) - 0.1) * (1 - np.exp(-step / 60))
                    values = {
                        "train/loss": 2.3 * np.exp(-step / 200),
                        "test/accuracy": accuracy,
                        "hyper/rotation": hyper,
                        "cost/steps": step,
                        "cost/seconds": step * 0.01,
                    }
                    if arm.name == "random":
                        values["val/accuracy"] = accuracy + rng.normal(0, 0.008)
                    if arm.name == "partitioned":
                        values["lml/per_example"] = -1.5 * np.exp(-step / 100) - 0.4
                    if step == STEPS:
                        values |= {
                            "test/nll": 1.5 * (1 - accuracy),
                            "test/ece": 0.3 * (1 - accuracy),
                            "test/brier": 1.2 * (1 - accuracy),
                        }
                    keys = {"trial": trial, "arm": arm.name, "seed": seed, "index": index}
                    steps += [
                        {**keys, "metric": m, "step": step, "time": 1e9 + step, "value": float(v)}
                        for m, v in values.items()
                    ]
                    row |= {m: float(v) for m, v in values.items()}
                trials.append(row)
    return pd.DataFrame(trials), pd.DataFrame(steps)


@pytest.fixture(name="metadata", scope="session")
def _metadata() -> RunCard:
    return make_metadata()


@pytest.fixture(scope="session")
def frames() -> tuple[pd.DataFrame, pd.DataFrame]:
    return make_frames()


@pytest.fixture
def trials(frames) -> pd.DataFrame:
    return frames[0].copy()


@pytest.fixture
def steps(frames) -> pd.DataFrame:
    return frames[1].copy()


@pytest.fixture(scope="session")
def scored():
    """RunData of one trial per arm and seed, from the scores alone."""

    def make(scores, metric="test/accuracy", seeds=None, **metadata) -> RunData:
        """scores: arm -> {seed: score, or None for a failed trial}."""
        arms = tuple(
            ArmCard(arm, "m", 1, tuple(seeds or by_seed)) for arm, by_seed in scores.items()
        )
        rows = [
            {
                "run_id": "r",
                "trial": f"{arm}/seed{seed}/00000",
                "arm": arm,
                "seed": seed,
                "index": 0,
                "outcome": "failed" if score is None else "finished",
                "error": "boom" if score is None else "",
                "cost/steps": 10.0,
                metric: score,
            }
            for arm, by_seed in scores.items()
            for seed, score in by_seed.items()
        ]
        return RunData(RunCard("s", "q", arms, **metadata), pd.DataFrame(rows), pd.DataFrame())

    return make
