"""Every reader of input from elsewhere than a run's folder, each with good input to break.

A factory makes the good input once, and returns what one attempt does: break it, and read it.
"""

import asyncio
import hashlib
import io
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import nn

from tests.fuzz.mutations import mutated_bytes, mutated_tree
from tuneparts.core import access, redaction, schema
from tuneparts.core.access import TokenAuth
from tuneparts.core.config import parse
from tuneparts.core.errors import CheckpointError, TunepartsError
from tuneparts.data import _images as image_files
from tuneparts.data import _published, own
from tuneparts.data.config import Data
from tuneparts.data.task import StoredImages
from tuneparts.methods.pwfn import codefile
from tuneparts.search import load
from tuneparts.search.algorithms.base import RandomSearch
from tuneparts.search.algorithms.halving import Asha
from tuneparts.search.algorithms.pbt import Pbt
from tuneparts.search.arm import Arm
from tuneparts.search.card import ArmCard, RunCard
from tuneparts.search.space import Choice, Uniform
from tuneparts.search.spec import Scale, Search
from tuneparts.testing.null import NullConfig

Attempt = Callable[[random.Random], None]
NEVER_REFUSED = {"requests to a page", "texts with secrets"}
"""Readers that take anything, and make the best of it."""


def good_search() -> Search:
    null = NullConfig(steps=8, interval=2)
    space = {"x": Uniform(low=0.0, high=1.0)}
    return Search(
        name="fuzz",
        question="What if?",
        scale=Scale.SMOKE,
        data=Data(name="digits", num_train=20, num_val=10, num_test=10),
        metric="val/accuracy",
        steps=8,
        seeds=(0, 1),
        arms=(
            Arm(name="a", config=null),
            Arm(name="b", config=null, algorithm=RandomSearch(num_trials=4), space=space),
            Arm(name="c", config=null, algorithm=Asha(num_trials=6, min_steps=2), space=space),
            Arm(
                name="d",
                config=null,
                algorithm=Pbt(population=4, num_rounds=2),
                space={"x": Choice(options=(0.1, 0.2))},
            ),
            Arm(
                name="e",
                config=null.replaced({"hypers_from": "b"}),
                resources={"gpus": 0.5, "custom": {"x": 1}},
            ),
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
    pieces = ["a", "data", "x", "steps", ".", "..", "=", "", "1", "null", "{", '{"a":', "é", "\0",
              "name", "config", "-1", "1e999", "[" * 2000, "__class__", " "]  # fmt: skip

    def attempt(rng: random.Random) -> None:
        tree = {"data": dict(good["data"]), "arms": [{**good["arms"][0]}]}
        tree["arms"][0]["config"] = dict(tree["arms"][0]["config"])
        text = "".join(rng.choice(pieces) for _ in range(rng.randint(0, 7)))
        load._apply(tree, *load.parse_change(text))

    return attempt


def broken_json(rng: random.Random, good: Any) -> bytes:
    """Wrong values in good JSON, or JSON that is none."""
    if rng.random() < 0.7:
        return text_of(mutated_tree(rng, good)).encode()
    return mutated_bytes(rng, text_of(good).encode())


def told(_: Path) -> Attempt:
    arms = (ArmCard("a", "standard", 1, (0, 1)), ArmCard("b", "pwfn", 4, (0,), "a"))
    metric = schema.lookup("val/accuracy")
    good = json.loads(RunCard("x", "Why?", arms, figures=("curves",), metrics=(metric,)).to_json())

    def attempt(rng: random.Random) -> None:
        before = dict(schema.METRICS)
        try:
            found = RunCard.from_json(broken_json(rng, good).decode("utf-8", "replace"))
            found.to_json()
        finally:
            schema.METRICS.clear()
            schema.METRICS.update(before)

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
            _published._packed_length(path, name)
            _published._packed_array(path, name)

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
            source = _published.find_idx("MNIST", folder)
            assert source is not None
            source.read(None, None)  # type: ignore[arg-type]
        finally:
            (raw / name).write_bytes(goods[name])

    return attempt


class OneImage:
    """An image file in memory."""

    content, folder, names = b"", Path("memory"), ("image",)

    def open(self, index: int) -> io.BytesIO:
        return io.BytesIO(self.content)


def images(_: Path) -> Attempt:
    goods = []
    for kind in ("PNG", "JPEG", "BMP", "WEBP", "EPS", "GIF"):
        buffer = io.BytesIO()
        Image.effect_noise((8, 8), 50).convert("RGB").save(buffer, kind)
        goods.append(buffer.getvalue())
    one = OneImage()

    def attempt(rng: random.Random) -> None:
        one.content = mutated_bytes(rng, rng.choice(goods))
        image_files._decode_one(one, 0, 8)  # type: ignore[arg-type]

    return attempt


def label_files(folder: Path) -> Attempt:
    from scipy.io import savemat

    classes = ["n01", "n02"]
    annotations = b"val_0.JPEG\tn01\t0\t0\t62\t62\nval_1.JPEG\tn02\t0\t0\t62\t62\n"
    truth = folder / _published._GROUND_TRUTH
    truth.parent.mkdir(parents=True)
    synsets = np.zeros(2, [("ILSVRC2012_ID", object), ("WNID", object)])
    synsets["ILSVRC2012_ID"], synsets["WNID"] = [1, 2], classes
    buffer = io.BytesIO()
    savemat(buffer, {"synsets": synsets}, do_compression=True)
    meta, path = truth.with_name("meta.mat"), folder / "val_annotations.txt"

    def attempt(rng: random.Random) -> None:
        if rng.random() < 0.7:
            path.write_bytes(mutated_bytes(rng, annotations))
            _published._labels(path, classes)
        else:
            wrong = rng.random() < 0.5
            truth.write_bytes(mutated_bytes(rng, b"1\n2\n1\n") if wrong else b"1\n2\n")
            meta.write_bytes(buffer.getvalue() if wrong else mutated_bytes(rng, buffer.getvalue()))
            _published._labels(truth, classes)

    return attempt


def compressed_nets(folder: Path) -> Attempt:
    net = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8))
    with torch.no_grad():
        for parameter in net[0].parameters():
            parameter.copy_((torch.arange(parameter.numel()) % 5).view(parameter.shape))
    content, path = codefile._encode(net, ["0.weight", "0.bias"]), folder / "net.npz"
    with np.load(io.BytesIO(content)) as arrays:
        good = dict(arrays)
    layout = json.loads(good["layout"].item())

    def attempt(rng: random.Random) -> None:
        if rng.randrange(2):
            path.write_bytes(mutated_bytes(rng, content))
        else:
            np.savez(path, **good | {"layout": np.array(text_of(mutated_tree(rng, layout)))})
        before = [value.clone() for value in net.state_dict().values()]
        try:
            codefile.load(path, net)
        except CheckpointError:
            assert all(map(torch.equal, before, net.state_dict().values()))
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


def logins(folder: Path) -> Attempt:
    path = folder / "login"
    path.touch(mode=0o600)

    def attempt(rng: random.Random) -> None:
        path.write_bytes(mutated_bytes(rng, b"me:word\n"))
        text = access._secret(path, "TUNEPARTS_TRACKING_LOGIN")
        if ":" not in text:
            raise TunepartsError("no login")

    return attempt


def tables_of_strangers(_: Path) -> Attempt:
    good: dict[str, Any] = {"a": [1, 2, 3], "b": [0.5, 1.5, 2.5], "price": [1.0, 2.0, 3.0]}

    def attempt(rng: random.Random) -> None:
        own._to_arrays(mutated_tree(rng, good), rng.choice(["price", "a", ["a", "b"], ""]))

    return attempt


def page_requests(_: Path) -> Attempt:
    async def inside(*_: Any) -> None:
        raise AssertionError("somebody without the token got in")

    async def send(_: Any) -> None:
        return

    door = TokenAuth(inside, "the-right-token-1")
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
    "compressed nets": compressed_nets,
    "images": images,
    "label files": label_files,
    "logins": logins,
    "MNIST files": mnist_files,
    "packed images": packed_images,
    "requests to a page": page_requests,
    "searches": searches,
    "stored images": stored_images,
    "tables": tables_of_strangers,
    "texts with secrets": texts_with_secrets,
    "what reports tell": told,
}
