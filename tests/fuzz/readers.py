"""Every reader of input that may come from strangers, each with good input to break.

A factory makes the good input once, and returns what one attempt does: break it, and read it.
"""

import asyncio
import copy
import hashlib
import io
import json
import random
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import nn

from tests.fuzz.mutations import NASTY, mutated_bytes, mutated_tree
from tuneparts import credentials, journal, redaction, schema
from tuneparts.config import parse
from tuneparts.data import decoding, imagenet, packed, tables, torchvision_sets
from tuneparts.data.config import DataConfig
from tuneparts.data.stored import StoredImages
from tuneparts.doorkeeper import Doorkeeper
from tuneparts.errors import CheckpointError, TunepartsError
from tuneparts.executors import logs
from tuneparts.pwfn import codefile
from tuneparts.reports.metadata import ArmMetadata, ReportMetadata
from tuneparts.search import data_record, load, locks, runs
from tuneparts.search.space import Choice, Uniform
from tuneparts.search.spec import Arm, Asha, Pbt, RandomSearch, Scale, Search
from tuneparts.search.storage import Folder
from tuneparts.testing.null import NullConfig
from tuneparts.tracking import record
from tuneparts.training import checkpoint

Attempt = Callable[[random.Random], None]
TRIAL = journal.TrialId("a", 0, 1)
NEVER_REFUSED = {"data records", "locks", "logs", "requests to a page", "texts with secrets"}
"""Readers that take anything, and make the best of it."""


def good_search() -> Search:
    null = NullConfig(passes=8, interval=2)
    space = {"x": Uniform(low=0.0, high=1.0)}
    return Search(
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


def text_of(tree: Any) -> str:
    return json.dumps(tree)


def reseal(content: bytes, body: bytes) -> bytes:
    """As an attacker would: the digest is right again."""
    magic = content[: content.index(b"\n") + 1]
    return magic + hashlib.sha256(body).digest() + body


def searches(_: Path) -> Attempt:
    tree = good_search().model_dump(mode="json")
    return lambda rng: void(parse(Search, mutated_tree(rng, tree)))


def changes(_: Path) -> Attempt:
    good = good_search().model_dump(mode="json")
    pieces = ["a", "data", "x", "passes", ".", "..", "=", "", "1", "null", "{", '{"a":', "é", "\0",
              "name", "config", "-1", "1e999", "[" * 2000, "__class__", " "]  # fmt: skip

    def attempt(rng: random.Random) -> None:
        tree = {"data": dict(good["data"]), "arms": [{**good["arms"][0]}]}
        tree["arms"][0]["config"] = dict(tree["arms"][0]["config"])
        load._apply(tree, "".join(rng.choice(pieces) for _ in range(rng.randint(0, 7))))

    return attempt


def journals(folder: Path) -> Attempt:
    events = (
        journal.TrialStarted(TRIAL, {"lr": 0.1, "net": {"name": "mlp"}}, 1.0),
        journal.TrialRunning(TRIAL, 1.5),
        journal.Row(TRIAL, 2, {"val/nll": 0.5}, 2.0),
        journal.RoundFailed(TRIAL, 2, "why", 2.5),
        journal.TrialEnded(TRIAL, "failed", 3.0, "why"),
        journal.TrialRetried(TRIAL, 4.0),
    )
    lines = [journal.encode(event) for event in events]
    trees = [json.loads(line) for line in lines]
    path = folder / "journal.jsonl"

    def attempt(rng: random.Random) -> None:
        if rng.random() < 0.5:
            content = mutated_bytes(rng, ("\n".join(lines) + "\n").encode())
        else:
            position = rng.randrange(len(lines))
            wrong = text_of(mutated_tree(rng, trees[position]))
            content = "\n".join([*lines[:position], wrong, *lines[position + 1 :], ""]).encode()
        path.write_bytes(content)
        found = journal.records(path)
        for one in found.values():
            _ = one.config, one.configs, one.last, one.start, one.at(1)

    return attempt


def run_maps(folder: Path) -> Attempt:
    good = {
        "key": "k", "start": 1.5, "ending": ["KILLED", 2.5], "answer": "a", "artifacts": ["report"],
        "tags": {str(TRIAL): {"selected": "yes"}}, "store": "sqlite:///x", "parent": "p",
        "experiment": "3", "position": 12, "trials": {str(TRIAL): "r"},
    }  # fmt: skip

    def attempt(rng: random.Random) -> None:
        (folder / record.FILE).write_bytes(broken_json(rng, good))
        record.load(folder)

    return attempt


def broken_json(rng: random.Random, good: Any) -> bytes:
    """Wrong values in good JSON, or JSON that is none."""
    if rng.random() < 0.7:
        return text_of(mutated_tree(rng, good)).encode()
    return mutated_bytes(rng, text_of(good).encode())


def run_cards(folder: Path) -> Attempt:
    made = runs.create(folder, good_search(), command="c", commit="1", versions={"a": "1"})
    path = made.folder / "run.json"
    good = json.loads(path.read_text())
    del good["search"]["arms"][1:]

    def attempt(rng: random.Random) -> None:
        path.write_bytes(broken_json(rng, good))
        (found,) = runs.listing(folder)
        _ = found.created, found.storage, found.search

    return attempt


def told(_: Path) -> Attempt:
    arms = (ArmMetadata("a", "standard", 1, (0, 1)), ArmMetadata("b", "pwfn", 4, (0,), "a"))
    metric = schema.lookup("val/accuracy")
    good = json.loads(
        ReportMetadata("x", "Why?", arms, figures=("curves",), metrics=(metric,)).to_json()
    )

    def attempt(rng: random.Random) -> None:
        before = dict(schema.METRICS)
        try:
            found = ReportMetadata.from_json(broken_json(rng, good).decode("utf-8", "replace"))
            found.to_json()
        finally:
            schema.METRICS.clear()
            schema.METRICS.update(before)

    return attempt


def trial_logs(folder: Path) -> Attempt:
    storage = Folder(str(folder))
    place = storage.child(*str(TRIAL).split("/"), "log")

    def attempt(rng: random.Random) -> None:
        place.write("log.txt", mutated_bytes(rng, b"10:00:00 caf\xc3\xa9 said\n" * 3))
        logs.read(storage, TRIAL)
        log = logs.TrialLog(storage, TRIAL)
        log.add(str(rng.choice(NASTY)))
        log.keep()

    return attempt


def packed_images(folder: Path) -> Attempt:
    path = folder / "set_jpeg_train.npz"
    arrays = {"jpeg": np.zeros(9, np.uint8), "offsets": np.arange(4), "labels": np.arange(3),
              "classes": np.array(["a", "b", "c"])}  # fmt: skip
    goods = []
    for save in (np.savez, np.savez_compressed):
        buffer = io.BytesIO()
        save(buffer, **arrays)
        goods.append(buffer.getvalue())

    def attempt(rng: random.Random) -> None:
        path.write_bytes(mutated_bytes(rng, rng.choice(goods)))
        for name in arrays:
            packed._length(path, name)
            packed._array(path, name)

    return attempt


def mnist_files(folder: Path) -> Attempt:
    raw = folder / "MNIST" / "raw"
    raw.mkdir(parents=True)
    goods = {}
    for part, num in (("train", 3), ("t10k", 2)):
        images = np.array([num, 4, 4], ">u4").tobytes() + bytes(16 * num)
        goods[f"{part}-images-idx3-ubyte"] = b"\0\0\x08\x03" + images
        goods[f"{part}-labels-idx1-ubyte"] = b"\0\0\x08\x01" + np.array([num], ">u4").tobytes()
        goods[f"{part}-labels-idx1-ubyte"] += bytes(num)
    for name, content in goods.items():
        (raw / name).write_bytes(content)

    def attempt(rng: random.Random) -> None:
        name = rng.choice(list(goods))
        (raw / name).write_bytes(mutated_bytes(rng, goods[name]))
        try:
            source = torchvision_sets.find_idx("MNIST", folder)
            assert source is not None
            source.read(None)  # type: ignore[arg-type]
        finally:
            (raw / name).write_bytes(goods[name])

    return attempt


class OneImage:
    """An image file in memory."""

    content = b""

    def __len__(self) -> int:
        return 1

    def name(self, index: int) -> str:
        return f"image {index}"

    def open(self, index: int) -> io.BytesIO:
        return io.BytesIO(self.content)

    def fingerprint(self) -> list[str]:
        return []


def images(_: Path) -> Attempt:
    goods = []
    for kind in ("PNG", "JPEG", "BMP", "WEBP", "EPS", "GIF"):
        buffer = io.BytesIO()
        Image.effect_noise((8, 8), 50).convert("RGB").save(buffer, kind)
        goods.append(buffer.getvalue())
    one = OneImage()

    def attempt(rng: random.Random) -> None:
        one.content = mutated_bytes(rng, rng.choice(goods))
        decoding._decode_one(one, 0, 8)  # type: ignore[arg-type]

    return attempt


def label_files(folder: Path) -> Attempt:
    from scipy.io import savemat

    classes = ["n01", "n02"]
    annotations = b"val_0.JPEG\tn01\t0\t0\t62\t62\nval_1.JPEG\tn02\t0\t0\t62\t62\n"
    truth = folder / imagenet._GROUND_TRUTH
    truth.parent.mkdir(parents=True)
    synsets = np.zeros(2, [("ILSVRC2012_ID", object), ("WNID", object)])
    synsets["ILSVRC2012_ID"], synsets["WNID"] = [1, 2], classes
    buffer = io.BytesIO()
    savemat(buffer, {"synsets": synsets}, do_compression=True)
    meta, path = truth.with_name("meta.mat"), folder / "val_annotations.txt"

    def attempt(rng: random.Random) -> None:
        if rng.random() < 0.7:
            path.write_bytes(mutated_bytes(rng, annotations))
            imagenet._label_file(path, classes)
        else:
            wrong = rng.random() < 0.5
            truth.write_bytes(mutated_bytes(rng, b"1\n2\n1\n") if wrong else b"1\n2\n")
            meta.write_bytes(buffer.getvalue() if wrong else mutated_bytes(rng, buffer.getvalue()))
            imagenet._devkit(folder, classes)

    return attempt


def checkpoints(_: Path) -> Attempt:
    state = {"net": nn.Linear(3, 2).state_dict(), "rows": [{"a": 1.5}], "name": "x", "n": 3}
    content = checkpoint.to_bytes(state)
    body = content[content.index(b"\n") + 33 :]
    with zipfile.ZipFile(io.BytesIO(body)) as archive:
        records = {info.filename: archive.read(info) for info in archive.infolist()}
    names = [name for name in records if records[name]] + ["archive/data.pkl"] * 9

    def attempt(rng: random.Random) -> None:
        kind = rng.randrange(5)
        if kind == 0:  # damage without a new seal
            wrong = mutated_bytes(rng, content)
        elif kind == 1:  # the archive itself
            wrong = reseal(content, mutated_bytes(rng, body))
        else:  # a whole archive around a changed record
            name = rng.choice(names)
            buffer = io.BytesIO()
            with zipfile.ZipFile(buffer, "w") as archive:
                for one, old in (records | {name: mutated_bytes(rng, records[name])}).items():
                    archive.writestr(one, old)
            wrong = reseal(content, buffer.getvalue())
        for tensor in checkpoint.from_bytes(wrong).values():
            if isinstance(tensor, torch.Tensor):
                tensor.sum()  # reads every value: one that lies elsewhere would crash here

    return attempt


def code_files(_: Path) -> Attempt:
    net = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8))
    nn.init.normal_(net[0].weight, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        for parameter in net[0].parameters():
            parameter.copy_((parameter * 2).round())
    content = codefile.encode(net, ["0.weight", "0.bias"])
    body = content[content.index(b"\n") + 33 :]
    length = int.from_bytes(body[:4], "little")
    header = json.loads(body[4 : 4 + length])
    plain = copy.deepcopy(net)

    def weights() -> bytes:
        return b"".join(value.numpy().tobytes() for value in plain.state_dict().values())

    def attempt(rng: random.Random) -> None:
        kind = rng.randrange(3)
        if kind == 0:
            wrong = mutated_bytes(rng, body)
        elif kind == 1:  # past the header, where the codes lie
            wrong = body[: 4 + length] + mutated_bytes(rng, body[4 + length :])
        else:
            text = text_of(mutated_tree(rng, header)).encode()
            wrong = len(text).to_bytes(4, "little") + text + body[4 + length :]
        before = weights()
        try:
            codefile.decode(reseal(content, wrong), plain)
        except CheckpointError:
            assert weights() == before
            raise

    return attempt


def stored_images(folder: Path) -> Attempt:
    buffer = io.BytesIO()
    np.save(buffer, np.zeros((2, 3, 2, 2), dtype=np.uint8))
    path = folder / "cache.npy"

    def attempt(rng: random.Random) -> None:
        path.write_bytes(mutated_bytes(rng, buffer.getvalue()))
        _ = StoredImages(path)[:1]

    return attempt


def lock_files(folder: Path) -> Attempt:
    path = folder / "lock.holder"
    good = {**locks._myself(), "key": "1"}

    def attempt(rng: random.Random) -> None:
        path.write_bytes(broken_json(rng, good))
        holder = locks._read(path)
        assert holder is not None
        locks._is_alive(holder, path)
        str(locks._busy(folder, holder))

    return attempt


def data_records(folder: Path) -> Attempt:
    good = {"name": "digits", "in_shape": [1, 8, 8], "digest": "x"}

    def attempt(rng: random.Random) -> None:
        (folder / data_record.FILE).write_bytes(broken_json(rng, good))
        data_record.read(folder)

    return attempt


def logins(folder: Path) -> Attempt:
    path = folder / "login"
    path.touch(mode=0o600)

    def attempt(rng: random.Random) -> None:
        path.write_bytes(mutated_bytes(rng, b"me:word\n"))
        text = credentials._secret(path, "TUNEPARTS_TRACKING_LOGIN")
        if ":" not in text:
            raise TunepartsError("no login")

    return attempt


def tables_of_strangers(_: Path) -> Attempt:
    good: dict[str, Any] = {"a": [1, 2, 3], "b": [0.5, 1.5, 2.5], "price": [1.0, 2.0, 3.0]}

    def attempt(rng: random.Random) -> None:
        tables.to_arrays(mutated_tree(rng, good), rng.choice(["price", "a", ["a", "b"], ""]))

    return attempt


def page_requests(_: Path) -> Attempt:
    async def inside(*_: Any) -> None:
        raise AssertionError("somebody without the token got in")

    async def send(_: Any) -> None:
        return

    door = Doorkeeper(inside, "the-right-token-1")
    headers = [(b"cookie", b"tuneparts-80=the-right-token-2; a=b"), (b"authorization", b"Bearer x"),
               (b"authorization", b"Basic bWU6dGhlLXJpZ2h0LXRva2Vu")]  # fmt: skip

    def attempt(rng: random.Random) -> None:
        scope = {
            "type": rng.choice(["http", "websocket"]),
            "path": mutated_bytes(rng, b"/a/b").decode("latin-1"),
            "query_string": mutated_bytes(rng, b"token=the-right-token-2&x=1"),
            "headers": [(name, mutated_bytes(rng, value)) for name, value in headers],
            "server": ("127.0.0.1", 80),
        }
        asyncio.run(door(scope, inside, send))  # type: ignore[arg-type]

    return attempt


def texts_with_secrets(_: Path) -> Attempt:
    redactor = redaction.Redactor(["planted-secret-1"])
    good = (
        b'Authorization: Bearer planted-secret-1 postgres://u:planted-secret-1@h --token "x y" '
        b"{'api_key': b'planted-secret-1'} ----- AKIA0123456789ABCDEF password: x"
    )

    def attempt(rng: random.Random) -> None:
        text = mutated_bytes(rng, good * rng.choice((1, 1, 20))).decode("utf-8", "surrogateescape")
        assert "planted-secret-1" not in redactor.text(text)

    return attempt


def void(_: object) -> None:
    """Drop a value."""


READERS: dict[str, Callable[[Path], Attempt]] = {
    "changes on the command line": changes,
    "checkpoints": checkpoints,
    "code files": code_files,
    "data records": data_records,
    "images": images,
    "journals": journals,
    "label files": label_files,
    "locks": lock_files,
    "logins": logins,
    "logs": trial_logs,
    "maps of MLflow runs": run_maps,
    "MNIST files": mnist_files,
    "packed images": packed_images,
    "requests to a page": page_requests,
    "run cards": run_cards,
    "searches": searches,
    "stored images": stored_images,
    "tables": tables_of_strangers,
    "texts with secrets": texts_with_secrets,
    "what reports tell": told,
}
