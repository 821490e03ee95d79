"""What the faults share: a cluster, an empty store to copy, and the undisturbed table."""

import shutil
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from tests.harness.scene import Cluster, Scene


class Absent(Exception):  # noqa: N818 - not an error: the machine lacks what the fault needs
    """This machine cannot stage the fault, and why."""


@dataclass
class Stage:
    """What the faults share: a cluster, an empty store to copy, the undisturbed table."""

    folder: Path
    cluster: Cluster
    empty_store: Path
    quick: bool
    expected: tuple[pd.DataFrame, pd.DataFrame] | None = None
    scenes: int = 0
    stack: ExitStack = field(default_factory=ExitStack)
    """What the present fault set up; taken down after its audit."""

    def scene(self, **options: Any) -> Scene:
        """A search of its own, on a copy of the empty store unless a store is given."""
        self.scenes += 1
        folder = self.folder / f"scene{self.scenes}"
        folder.mkdir()
        if "uri" not in options:
            shutil.copy(self.empty_store, folder / "mlflow.db")
            options["uri"] = f"sqlite:///{folder / 'mlflow.db'}"
        scene = Scene(folder, self.cluster, **options)
        self.stack.callback(scene.close)
        return scene
