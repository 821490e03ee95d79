"""L_ML of a learner: what its hyper steps descend, on whole chunks, in float64."""

import copy

import pytest
import torch
from torch import nn

from tuneparts import nets
from tuneparts.core import seeding
from tuneparts.core.config import parse
from tuneparts.data.config import Data
from tuneparts.methods.partitioned import Partitioned
from tuneparts.methods.partitioned.config import PUBLISHED
from tuneparts.nets import GivenNet
from tuneparts.training import checkpoint
from tuneparts.training.learner import Context

RANDOM = {
    "affine": {"rotation": 0.5},
    "noise": 0.2,
    "mask": {"keep": 0.7},
    "dropout": {"rate": 0.3},
    "temperature": 1.5,
    "samples": 2,
    "eval_samples": 6,
}
FORMS = {
    "random": {},
    "mixed": {"scheme": "node", "mixed": True, "hyper_share": 0.25},
    "frozen": {"hypers": {**RANDOM, "frozen": ("mask", "dropout")}},
}


def _learner(task, **fields):
    fields = {
        **PUBLISHED,
        "net": nets.DigitsCnn(channels=(4, 6), hidden=10),
        "hypers": RANDOM,
        "proportions": (0.5, 0.3, 0.2),
        "batch_size": 8,
        "interval": 4,
        "steps": 8,
        **fields,
    }
    return parse(Partitioned, fields).build(Context(task=task, seed=0, device=torch.device("cpu")))


@pytest.mark.parametrize("form", FORMS)
def test_it_is_what_hyper_steps_descend(stripes, in_double, form):
    learner = _learner(stripes, **FORMS[form])
    learner.advance()
    in_double(learner)
    found = learner.evidence()
    twin = copy.deepcopy(learner)
    twin.config = twin.config.replaced({"hyper_share": 0.0, "mixed": False})
    twin._hyper_augmentation = twin.generator("evaluate lml")
    assert list(found.sums) == [2, 3]
    for k in (2, 3):
        indices = torch.from_numpy(twin.chunks.chunk(k).copy())
        twin._hyper_stream.next = lambda k=k, indices=indices: (k, indices)
        losses = [twin._hyper_move().loss.item() for _ in range(3)]  # 6 samples, 2 by 2
        assert len(set(losses)) == 3
        assert found.sums[k] == pytest.approx(-len(indices) * sum(losses) / 3, rel=1e-12)


def test_the_value_of_plain_loops_over_chunks_draws_examples_and_samples(in_double):
    task = Data(name="blobs", num_train=24, num_val=0, num_test=3).load()
    hypers = {**RANDOM, "samples": 2, "eval_samples": 4}
    del hypers["affine"], hypers["noise"]
    learner = _learner(task, net=nets.Mlp(widths=(5,), activation="relu"), hypers=hypers)
    learner.advance()
    in_double(learner)
    found = learner.evidence()
    generator = seeding.torch_generator(0, "evaluate lml")
    keep, rates = learner.hypers.mask.keep.raw.detach(), learner.hypers.dropout.rates.raw.detach()
    temperature = learner.hypers.values()["hyper/temperature"]

    def relaxed(logit, *shape):
        u = torch.rand(*shape, generator=generator, dtype=torch.float64)
        return 1 / (1 + torch.exp(-(logit + torch.log(u / (1 - u))) / 0.1))

    for k in (2, 3):
        tensors = learner.parts.view(k - 1).tensors
        w, b, v, c = (
            tensors[n].detach()
            for n in ("linear1.weight", "linear1.bias", "classifier.weight", "classifier.bias")
        )
        chunk = learner.chunks.chunk(k)
        x, y = learner.train_data.take(torch.from_numpy(chunk.copy()))
        total = 0.0
        for _ in range(2):
            kept = relaxed(keep, 2 * len(x), x.shape[1])
            dropped = relaxed(rates[0], 2 * len(x), 5)
            for i in range(len(x)):
                logits = torch.zeros(3, dtype=torch.float64)
                for s in range(2):
                    h = torch.relu(w @ (x[i] * kept[2 * i + s]) + b)
                    h = h * (1 - dropped[2 * i + s]) / (1 - torch.sigmoid(rates[0]))
                    logits += (v @ h + c) / 2
                scaled = logits / temperature
                total += float(scaled[y[i]] - torch.logsumexp(scaled, 0))
        assert found.sums[k] == pytest.approx(total / 2, rel=1e-10)


def test_it_is_the_same_in_every_call_and_after_a_resume(stripes):
    learner, resumed = _learner(stripes), _learner(stripes)
    learner.advance()
    resumed.load_state_dict(checkpoint.from_bytes(checkpoint.to_bytes(learner.state_dict())))
    before = {name: t.clone() for name, t in learner.parts.state_dict().items()}
    first = learner.evidence()
    assert learner.evidence() == first
    assert resumed.evidence() == first
    assert all(torch.equal(before[n], t) for n, t in learner.parts.state_dict().items())
    assert learner.advance() == resumed.advance()


def test_without_draws_each_example_is_predicted_once(stripes):
    learner = _learner(stripes, hypers={"temperature": 1.5, "samples": 2, "eval_samples": 6})
    assert learner.hypers.num_draws() == 1
    calls = []
    predict = learner.hypers.predict
    learner.hypers.predict = lambda *args, **kwargs: calls.append(1) or predict(*args, **kwargs)
    learner.evidence()
    assert len(calls) == 2


def test_dropout_of_the_net_itself_is_drawn():
    task = Data(name="stripes", num_train=60, num_val=0, num_test=5).load()

    def build():
        with seeding.isolated(0, "net"):
            return nn.Sequential(
                nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Dropout2d(0.5), nn.Flatten(), nn.Linear(288, 10)
            )

    fields = {"steps": 4, "interval": 4, "batch_size": 8}
    fields["hypers"] = {"temperature": 1.0, "samples": 1, "eval_samples": 2}
    config = parse(Partitioned, {**PUBLISHED, **fields, "net": GivenNet(build)})
    learner = config.build(Context(task=task, seed=0, device=torch.device("cpu")))
    learner.advance()
    drawn = learner.evidence()
    assert learner.evidence() == drawn
    learner.net.eval()
    assert learner.evidence().total != drawn.total
