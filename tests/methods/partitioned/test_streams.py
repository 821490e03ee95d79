import pytest
import torch
from scipy import stats

from tuneparts.data.chunks import Chunks
from tuneparts.methods.partitioned.steps import hyper_stream, weight_stream
from tuneparts.training import checkpoint

CHUNKS = Chunks(100, (0.8, 0.1, 0.1), seed=0)
SETTINGS = {"batch_size": 7, "seed": 0}


def _counts(stream, num):
    drawn = torch.tensor([stream.next()[0] for _ in range(num)])
    return torch.bincount(drawn, minlength=4)[1:].numpy()


def test_partitions_are_drawn_by_the_sizes_of_chunks():
    counts = _counts(weight_stream(CHUNKS, [1, 2, 3], **SETTINGS), 3000)
    assert stats.chisquare(counts, [2400, 300, 300]).pvalue > 1e-3
    counts = _counts(hyper_stream(CHUNKS, **SETTINGS), 3000)
    assert counts[0] == 0
    assert stats.chisquare(counts[1:], [1500, 1500]).pvalue > 1e-3


def test_hyper_odds_leave_out_the_first_chunk():
    uneven = Chunks(100, (0.5, 0.4, 0.1), seed=0)
    counts = _counts(hyper_stream(uneven, **SETTINGS), 3000)
    assert stats.chisquare(counts[1:], [2400, 600]).pvalue > 1e-3


def test_batches_hold_only_what_the_step_may_see():
    weights = weight_stream(CHUNKS, [1, 2, 3], batch_size=50, seed=0)
    hypers = hyper_stream(CHUNKS, **SETTINGS)
    seen = {k: set() for k in (1, 2, 3)}
    for _ in range(400):
        k, indices = weights.next()
        assert indices.shape == (50,)
        seen[k] |= set(indices.tolist())
        k, indices = hypers.next()
        assert set(indices.tolist()) <= set(CHUNKS.chunk(k).tolist())
        assert k > 1
    for k in (1, 2, 3):
        assert seen[k] == set(CHUNKS.cumulative(k).tolist())


def test_examples_of_a_mixed_batch_come_from_what_their_partition_may_see():
    stream = weight_stream(CHUNKS, [1, 2, 3], batch_size=50, seed=0)
    total = torch.zeros(4, dtype=torch.long)
    for _ in range(60):
        levels, indices = stream.next_mixed()
        assert torch.equal(levels, levels.sort().values)
        assert levels.shape == indices.shape == (50,)
        for k in (1, 2, 3):
            assert set(indices[levels == k].tolist()) <= set(CHUNKS.cumulative(k).tolist())
        total += torch.bincount(levels, minlength=4)
    assert stats.chisquare(total[1:].numpy(), [2400, 300, 300]).pvalue > 1e-3


def test_empty_partitions_and_chunks_are_never_drawn():
    assert set(_counts(weight_stream(CHUNKS, [1], **SETTINGS), 50).tolist()) == {50, 0}
    assert hyper_stream(Chunks(10, (1.0,), seed=0), **SETTINGS) is None
    assert hyper_stream(Chunks(10, (1.0, 0.0), seed=0), **SETTINGS) is None


def test_a_chunk_of_another_size_shifts_no_batch_of_the_first():
    # Both have 40 examples in D_1, and the same stream draws from them.
    short, long = Chunks(50, (0.8, 0.2), seed=0), Chunks(80, (0.5, 0.25, 0.25), seed=0)
    batches = []
    for chunks in (short, long):
        stream = weight_stream(chunks, [1], **SETTINGS)
        position = {int(index): i for i, index in enumerate(chunks.chunk(1))}
        batches.append([[position[i] for i in stream.next()[1].tolist()] for _ in range(5)])
    assert batches[0] == batches[1]


@pytest.mark.parametrize("how", ["next", "next_mixed"])
def test_a_stream_resumes_from_bytes(how):
    stream = weight_stream(CHUNKS, [1, 2, 3], **SETTINGS)
    for _ in range(5):
        getattr(stream, how)()
    state = checkpoint.from_bytes(checkpoint.to_bytes(stream.state_dict()))
    resumed = weight_stream(CHUNKS, [1, 2, 3], **SETTINGS)
    resumed.load_state_dict(state)
    for _ in range(20):
        for a, b in zip(getattr(stream, how)(), getattr(resumed, how)(), strict=True):
            assert torch.equal(torch.as_tensor(a), torch.as_tensor(b))
