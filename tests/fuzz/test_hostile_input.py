"""A hundred thousand broken configs, checkpoints, caches and code files: loaded or refused.

Nothing but our own errors may come out, nothing may be run, and a refused file changes nothing.
"""

import contextlib
import copy
import hashlib
import io
import json
import random
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tuneparts import journal
from tuneparts.bench.null import NullConfig
from tuneparts.config import parse
from tuneparts.data.config import DataConfig
from tuneparts.data.stored import StoredImages
from tuneparts.errors import CheckpointError, DataError, TunepartsError
from tuneparts.pwfn import codefile
from tuneparts.search import load
from tuneparts.search.space import Choice, Uniform
from tuneparts.search.spec import Arm, Asha, Pbt, RandomSearch, Scale, Search
from tuneparts.tracking import record
from tuneparts.training import checkpoint

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def reseal(content: bytes, magic: bytes, body: bytes) -> bytes:
    """As an attacker would: the digest is right again."""
    assert content.startswith(magic)
    return magic + hashlib.sha256(body).digest() + body


@pytest.fixture(scope="module")
def search_tree() -> dict[str, Any]:
    null = NullConfig(passes=8, interval=2)
    space = {"x": Uniform(low=0.0, high=1.0)}
    search = Search(
        name="fuzz",
        question="What if?",
        scale=Scale.SMOKE,
        data=DataConfig(name="digits", num_train=20, num_val=10, num_test=10),
        metric="val/accuracy",
        passes=8,
        seeds=(0, 1),
        arms=(
            Arm(name="a", config=null),
            Arm(name="b", config=null, algorithm=RandomSearch(num_trials=4), space=space),
            Arm(name="c", config=null, algorithm=Asha(num_trials=6, min_passes=2), space=space),
            Arm(
                name="d",
                config=null,
                algorithm=Pbt(population=4, num_rounds=2),
                space={"x": Choice(options=(0.1, 0.2))},
            ),
            Arm(name="e", config=null, follows="b", resources={"gpus": 0.5, "custom": {"x": 1}}),
        ),
    )
    tree: dict[str, Any] = search.model_dump(mode="json")
    return tree


def test_searches(search_tree, change_tree) -> None:
    rng = random.Random(1)
    assert parse(Search, search_tree)
    refused = 0
    for _ in range(15_000):
        tree = change_tree(rng, search_tree)
        try:
            parse(Search, tree)
        except TunepartsError:
            refused += 1
    assert refused > 5_000


def test_changes_on_the_command_line(search_tree) -> None:
    rng = random.Random(2)
    pieces = ["a", "data", "x", "passes", ".", "..", "=", "", "1", "null", "{", '{"a":', "é", "\0",
              "name", "config", "-1", "1e999", "[" * 2000, "__class__", " "]  # fmt: skip
    refused = 0
    for _ in range(15_000):
        change = "".join(rng.choice(pieces) for _ in range(rng.randint(0, 7)))
        tree = {"data": dict(search_tree["data"]), "arms": [{**search_tree["arms"][0]}]}
        tree["arms"][0]["config"] = dict(tree["arms"][0]["config"])
        try:
            load._apply(tree, change)
        except TunepartsError:
            refused += 1
    assert refused > 5_000


def test_journals_and_run_maps(tmp_path: Path, change_bytes, change_tree) -> None:
    rng = random.Random(3)
    trial = journal.TrialId("a", 0, 1)
    lines = [
        journal._encode(event).encode()
        for event in (
            journal.TrialStarted(trial, {"lr": 0.1, "net": {"name": "mlp"}}, 1.0),
            journal.Row(trial, 2, {"val/nll": 0.5}, 2.0),
            journal.TrialEnded(trial, "failed", 3.0, "why"),
        )
    ]
    for _ in range(14_000):
        text = change_bytes(rng, rng.choice(lines)).decode("utf-8", "replace")
        with contextlib.suppress(DataError):
            journal._decode(text, tmp_path, 1)
    made = {
        "key": "k", "start": 1.5, "ending": ["KILLED", 2.5], "answer": "a", "artifacts": ["report"],
        "tags": {str(trial): {"selected": "yes"}}, "store": "sqlite:///x", "parent": "p",
        "position": 12, "trials": {str(trial): "r"},
    }  # fmt: skip
    for _ in range(1_000):
        (tmp_path / record.FILE).write_text(json.dumps(change_tree(rng, made)))
        with contextlib.suppress(DataError):
            record.load(tmp_path)


def test_checkpoints(change_bytes) -> None:
    rng = random.Random(4)
    net = nn.Linear(3, 2)
    state = {"net": net.state_dict(), "rows": [{"a": 1.5}], "name": "x", "none": None, "n": 3}
    content = checkpoint.to_bytes(state)
    magic = content[: content.index(b"\n") + 1]
    body = content[len(magic) + 32 :]
    with zipfile.ZipFile(io.BytesIO(body)) as archive:
        records = {info.filename: archive.read(info) for info in archive.infolist()}
    refused = 0
    for number in range(25_000):
        if number % 5 == 0:  # damage without a new seal
            wrong = change_bytes(rng, content)
        elif number % 5 == 1:  # the archive itself
            wrong = reseal(content, magic, change_bytes(rng, body))
        else:  # a whole archive around a changed record
            name = rng.choice(
                [name for name in records if records[name]] + ["archive/data.pkl"] * 9
            )
            changed = records | {name: change_bytes(rng, records[name])}
            buffer = io.BytesIO()
            with zipfile.ZipFile(buffer, "w") as archive:
                for record, old in changed.items():
                    archive.writestr(record, old)
            wrong = reseal(content, magic, buffer.getvalue())
        try:
            loaded = checkpoint.from_bytes(wrong)
            repr(loaded)  # reads every value: a tensor that points elsewhere would crash here
        except CheckpointError:
            refused += 1
    assert refused > 10_000


def weights(net: nn.Module) -> bytes:
    return b"".join(value.numpy().tobytes() for value in net.state_dict().values())


def test_code_files(change_bytes, change_tree) -> None:
    rng = random.Random(5)
    net = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8))
    nn.init.normal_(net[0].weight, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        for parameter in net[0].parameters():
            parameter.copy_((parameter * 2).round())
    content = codefile.encode(net, ["0.weight", "0.bias"])
    magic = content[: content.index(b"\n") + 1]
    body = content[len(magic) + 32 :]
    length = int.from_bytes(body[:4], "little")
    header = json.loads(body[4 : 4 + length])
    plain = copy.deepcopy(net)
    refused = 0
    for number in range(25_000):
        if number % 3 == 0:
            wrong = change_bytes(rng, body)
        elif number % 3 == 1:  # past the header, where the codes lie
            wrong = body[: 4 + length] + change_bytes(rng, body[4 + length :])
        else:
            text = json.dumps(change_tree(rng, header)).encode()
            wrong = len(text).to_bytes(4, "little") + text + body[4 + length :]
        before = weights(plain)
        try:
            codefile.decode(reseal(content, magic, wrong), plain)
        except CheckpointError:
            refused += 1
            assert weights(plain) == before
    assert refused > 15_000


def test_caches(tmp_path: Path, change_bytes) -> None:
    rng = random.Random(6)
    buffer = io.BytesIO()
    np.save(buffer, np.zeros((2, 3, 2, 2), dtype=np.uint8))
    content = buffer.getvalue()
    path = tmp_path / "cache.npy"
    refused = 0
    for _ in range(5_000):
        path.write_bytes(change_bytes(rng, content))
        try:
            images = StoredImages(path)
            images[:1]
        except DataError:
            refused += 1
    assert refused > 2_000
