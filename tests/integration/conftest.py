import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.scene import python_path

NULL_SEARCH = '''
"""Does the driver survive?"""

from tests.harness.faulty import FaultyConfig
from tuneparts.data.config import Data
from tuneparts.search.space import Uniform
from tuneparts.search.spec import Search
from tuneparts.search.arm import Arm
from tuneparts.search.algorithms.halving import Asha
from tuneparts.search.algorithms.pbt import Pbt
from tuneparts.search.algorithms.base import RandomSearch
from tuneparts.search.spec import Scale
from tuneparts.search.algorithms.sampler import Tpe

SECONDS = {seconds}


def search(scale: Scale) -> Search:
    space = {{"x": Uniform(low=0.0, high=1.0)}}
    tpe = Tpe(num_trials=4, window=2, num_startup=2)
    asha = Asha(num_trials=6, min_steps=2, reduction=4)
    null = FaultyConfig(steps=8, interval=2, seconds=SECONDS)
    return Search(
        name="null",
        question="Does the driver survive?",
        scale=scale,
        data=Data(name="digits", num_train=20, num_val=10, num_test=10),
        metric="val/accuracy",
        steps=8,
        seeds=(0,),
        arms=(
            Arm(name="fixed", config=null),
            Arm(name="broken", config=null.replaced({{"fault": "raise"}})),
            Arm(name="random", config=null, algorithm=RandomSearch(num_trials=4), space=space),
            Arm(name="tpe", config=null, algorithm=tpe, space=space),
            Arm(name="asha", config=null, algorithm=asha, space=space),
            Arm(name="pbt", config=null, algorithm=Pbt(population=4, num_rounds=2), space=space),
            Arm(name="again", config=null.replaced({{"hypers_from": "random"}})),
        ),
    )
'''


@pytest.fixture(scope="session", autouse=True)
def workers_find_the_harness() -> Iterator[None]:
    """Drivers in processes of their own, and Ray's workers, import the faulty learner."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", python_path())
        yield


@pytest.fixture(scope="session")
def null_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A search file whose learners sleep a little, with an arm of each kind."""
    path = tmp_path_factory.mktemp("searches") / "null.py"
    path.write_text(NULL_SEARCH.format(seconds=0.15))
    return path


@pytest.fixture
def unused_tcp_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte; it can be filled for real."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if shutil.which("mount") is None or os.geteuid() != 0:
        pytest.skip("a small file system is mounted by root only")
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip("this machine mounts no file systems")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)
