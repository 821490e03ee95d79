"""Every test has a data folder and a cache of its own; real data only where it is asked for."""

import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

REAL_DATA = os.environ.get("TUNEPARTS_DATA")


@pytest.fixture(autouse=True)
def data_dir(tmp_path, monkeypatch):
    folder = tmp_path / "data"
    folder.mkdir()
    monkeypatch.setenv("TUNEPARTS_DATA", str(folder))
    monkeypatch.setenv("TUNEPARTS_CACHE", str(tmp_path / "cache"))
    return folder


@pytest.fixture
def cache_dir(tmp_path):
    return tmp_path / "cache"


@pytest.fixture
def real_data(monkeypatch):
    if not REAL_DATA:
        pytest.skip("TUNEPARTS_DATA is not set")
    monkeypatch.setenv("TUNEPARTS_DATA", REAL_DATA)
    return Path(REAL_DATA)


@pytest.fixture
def write_image():
    """Writes a PNG (lossless) or JPEG of one grey level, and returns its path."""

    def write(path, level, size=(8, 8)):
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", size, (level, level, level)).save(path)
        return path

    return write


@pytest.fixture
def write_idx():
    """Writes an IDX file, MNIST's format, from a uint8 array."""

    def write(path, array):
        path.parent.mkdir(parents=True, exist_ok=True)
        header = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes()
        path.write_bytes(header + array.astype(np.uint8).tobytes())

    return write


@pytest.fixture
def write_mnist(write_idx):
    """Writes a small MNIST in torchvision's layout and returns its arrays by file name."""

    def write(root, kind="MNIST", num_train=40, num_test=20):
        rng = np.random.default_rng(0)
        arrays = {}
        for part, num in (("train", num_train), ("t10k", num_test)):
            arrays[f"{part}-images-idx3-ubyte"] = rng.integers(0, 256, (num, 28, 28))
            arrays[f"{part}-labels-idx1-ubyte"] = np.arange(num) % 10
        for name, array in arrays.items():
            write_idx(root / kind / "raw" / name, array)
        return arrays

    return write
