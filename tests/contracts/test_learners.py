"""Every method of the catalog keeps the Learner contract."""

import json
import os
from pathlib import Path

import pytest

from tuneparts.methods import catalog
from tuneparts.methods.partitioned import Partitioned
from tuneparts.testing import LearnerContract
from tuneparts.training.config import Adam, Finetune

GOLDEN = Path(__file__).parent.parent / "golden"
CASES = {name: catalog.config_class(name)() for name in catalog.METHODS.known} | {
    "partitioned_published": Partitioned.published(),
    "partitioned_finetuned": Partitioned.published(finetune=Finetune(optimiser=Adam())),
}


@pytest.mark.contract
class TestCatalog(LearnerContract):
    # A cache of nets without weights, and what the last round sent.
    recomputed = frozenset({"_skeletons", "_broadcast"})

    @pytest.fixture(autouse=True, params=CASES)
    def case(self, request: pytest.FixtureRequest) -> str:
        name: str = request.param
        self.config = CASES[name]  # type: ignore[misc]
        return name

    def test_the_config_names_its_method(self, case: str) -> None:
        assert self.config.model_dump()["method"] == case.removesuffix("_published").removesuffix(
            "_finetuned"
        )

    def test_the_first_losses_are_golden(self, case: str) -> None:
        """A refactoring changes no number; `GOLDEN_WRITE=1 pytest tests/contracts` renews them."""
        path = GOLDEN / f"{case}.json"
        losses = [row["train/loss"] for row in self.uninterrupted().rows]
        if os.environ.get("GOLDEN_WRITE"):
            path.write_text(json.dumps({"train/loss": losses}, indent=2) + "\n")
        expected = json.loads(path.read_text())["train/loss"]
        # Kernels differ in the last bits between processors; a changed method differs far more.
        assert losses == pytest.approx(expected, rel=1e-4)
