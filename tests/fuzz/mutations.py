"""Changes that turn good input into bad, drawn from a seeded generator: fast, and repeatable."""

import copy
import random
from typing import Any

NASTY: list[Any] = [
    None, True, False, 0, -1, 1, 2**31, 2**63, -(2**70), 1e308, -0.0, float("nan"), float("inf"),
    "", " ", "\0", "..", "../../etc/passwd", "/", "a\n", "é", "\ud800", "x" * 5000, "1e999", "null",
    "${HOME}", "__class__", "s3://u:p@h", [], {}, [[]], {"": {}}, [None] * 50, {"kind": "random"},
]  # fmt: skip


def mutated_bytes(rng: random.Random, content: bytes) -> bytes:
    """One to four changes: bytes flipped, cut, doubled, inserted, or numbers made extreme."""
    body = bytearray(content)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(body) + 1)
        length = rng.choice((1, 1, 2, 4, 8, 64))
        kind = rng.randrange(6)
        if kind == 0 and body:
            body[at % len(body)] = rng.randrange(256)
        elif kind == 1:
            del body[at : at + length]
        elif kind == 2:
            body[at:at] = body[at : at + length]
        elif kind == 3:
            body[at:at] = rng.randbytes(length)
        elif kind == 4:
            body[at : at + length] = rng.choice((b"\xff", b"\x00", b"\x7f", b"\x80")) * length
        else:
            del body[at:]
    return bytes(body)


def mutated_tree(rng: random.Random, tree: Any) -> Any:
    """A copy of plain values with one to three of them replaced, removed, renamed or moved."""
    tree = copy.deepcopy(tree)
    for _ in range(rng.randint(1, 3)):
        node, key = _anywhere(rng, tree)
        kind = rng.randrange(4)
        if node is None or key is None:
            return copy.deepcopy(rng.choice(NASTY))
        if kind == 0 and isinstance(node, dict):
            del node[key]
        elif kind == 1 and isinstance(node, dict):
            node[str(rng.choice(NASTY))] = copy.deepcopy(node[key])
        elif kind == 2:
            other, there = _anywhere(rng, tree)
            node[key] = copy.deepcopy(other[there])
        else:
            node[key] = copy.deepcopy(rng.choice(NASTY))
    return tree


def _anywhere(rng: random.Random, tree: Any) -> tuple[Any, Any]:
    """A random place: the container and the key in it."""
    node, key, here = None, None, tree
    while isinstance(here, dict | list) and here:
        node = here
        key = rng.choice(list(here)) if isinstance(here, dict) else rng.randrange(len(here))
        here = here[key]
        if rng.random() < 0.25:
            break
    return node, key
