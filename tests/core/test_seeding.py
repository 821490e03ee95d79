import random
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch

from tuneparts.core import seeding


def test_streams_depend_on_every_part_of_their_name() -> None:
    keys = [(0,), (1,), (0, "a"), (0, "b"), (0, "a", 1), (0, "a", "1", ""), (1, "a"), (0, "a1")]
    assert len({seeding.derive(*key) for key in keys}) == len(keys)
    assert all(0 <= seeding.derive(*key) < 2**63 for key in keys)


def test_the_numbers_behind_a_stream_never_change() -> None:
    assert seeding.derive(0, "init") == 925402481798332886


def test_streams_are_reproducible_and_independent() -> None:
    a, again, b = (seeding.torch_generator(0, name) for name in ("a", "a", "b"))
    first = torch.rand(5, generator=a)
    assert torch.equal(first, torch.rand(5, generator=again))
    assert not torch.equal(first, torch.rand(5, generator=b))
    assert seeding.numpy_generator(0, "a").random() == seeding.numpy_generator(0, "a").random()


def test_isolation_seeds_inside_and_leaves_no_trace() -> None:
    before = (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state())
    with seeding.isolated(3, "init"):
        inside = torch.rand(3)
    with seeding.isolated(3, "init"):
        assert torch.equal(inside, torch.rand(3))
    assert random.getstate() == before[0]
    assert np.random.get_state()[1].tolist() == before[1]
    assert torch.equal(torch.get_rng_state(), before[2])


def test_threads_do_not_draw_from_each_other_s_block() -> None:
    def drawn(seed: int) -> list[float]:
        with seeding.isolated(seed, "init"):
            found = []
            for _ in range(5):
                found.append(torch.rand(1).item())
                time.sleep(0.001)  # others would come in between
            return found

    one_by_one = [drawn(seed) for seed in range(6)]
    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(drawn, range(6))) == one_by_one


def test_torch_is_seeded_where_the_block_is_the_first_to_import_it() -> None:
    code = """
import sys
from tuneparts.core.seeding import seeded_globals
drawn = []
for _ in range(2):
    assert drawn or "torch" not in sys.modules
    with seeded_globals(0, "a"):
        import torch
        drawn.append(torch.rand(2).tolist())
assert drawn[0] == drawn[1], drawn
"""
    subprocess.run([sys.executable, "-c", code], check=True)
