"""Every method of the catalog keeps the Learner contract."""

import json
import os
from pathlib import Path

import pytest

from tuneparts.methods import catalog
from tuneparts.testing import LearnerContract

GOLDEN = Path(__file__).parent.parent / "golden"


@pytest.mark.contract
class TestCatalog(LearnerContract):
    # A cache of nets without weights, and what the last round sent.
    recomputed = frozenset({"_skeletons", "_broadcast"})

    @pytest.fixture(autouse=True, params=catalog.METHODS.known)
    def method(self, request: pytest.FixtureRequest) -> str:
        name: str = request.param
        self.config = catalog.config_class(name)()  # type: ignore[misc]
        return name

    def test_the_config_names_its_method(self, method: str) -> None:
        assert self.config.model_dump()["method"] == method

    def test_the_first_losses_are_golden(self, method: str) -> None:
        """A refactoring changes no number; `GOLDEN_WRITE=1 pytest tests/contracts` renews them."""
        path = GOLDEN / f"{method}.json"
        losses = [row["train/loss"] for row in self.uninterrupted().rows]
        if os.environ.get("GOLDEN_WRITE"):
            path.write_text(json.dumps({"train/loss": losses}, indent=2) + "\n")
        expected = json.loads(path.read_text())["train/loss"]
        # Kernels differ in the last bits between processors; a changed method differs far more.
        assert losses == pytest.approx(expected, rel=1e-4)
