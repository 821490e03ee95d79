"""Compress your own net: train it, let its weights take few values, and load the file.

Run it by `python examples/compress_a_net.py`, with a width such as 128 for a larger net. It has
attention, and two layers that share one weight; both are compressed, and the tie survives. Its norm
stays in float and is named. Float16 and int8 are given for comparison.
"""

import io
import lzma
import sys
from copy import deepcopy
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

import tuneparts as tp

pwfn = tp.methods.pwfn


class Reader(nn.Module):
    """Reads the rows of an image (B, 64) as eight tokens that attend to its columns."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.embed, self.second = nn.Linear(8, width), nn.Linear(8, width)
        self.second.weight = self.embed.weight
        self.attention = nn.MultiheadAttention(width, 4, batch_first=True)
        self.norm = nn.LayerNorm(width)
        self.hidden = nn.Linear(8 * width, 64)
        self.head = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        """(B, 64) to logits (B, 10)."""
        image = x.view(-1, 8, 8)
        rows, columns = self.embed(image), self.second(image.transpose(1, 2))
        mixed, _ = self.attention(rows, columns, columns)
        return self.head(torch.relu(self.hidden(self.norm(rows + mixed).flatten(1))))


def trained(net: nn.Module, x: Tensor, y: Tensor, steps: int) -> nn.Module:
    """Train a net with Adam on batches of 64."""
    optimiser = torch.optim.Adam(net.parameters(), lr=2e-3)
    for _ in range(steps):
        batch = torch.randint(len(x), (64,))
        loss = nn.functional.cross_entropy(net(x[batch]), y[batch])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return net


def rounded(net: nn.Module, kind: str) -> tuple[nn.Module, int]:
    """The net in float16, or its matrices in int8 with a scale each; and bytes of a file by xz."""
    other, stored = deepcopy(net), {}
    for name, value in other.named_parameters():  # a tied weight once
        stored[name] = value.detach().half().numpy()
        if kind == "int8" and value.ndim > 1:
            scale = value.detach().abs().max() / 127
            stored[f"{name}.scale"] = scale.numpy()
            stored[name] = (value.detach() / scale).round().to(torch.int8).numpy()
        value.data = torch.tensor(stored[name] * stored.get(f"{name}.scale", np.float32(1)))
    file = io.BytesIO()
    np.savez(file, **stored)
    return other, len(lzma.compress(file.getvalue()))


def main(steps: int = 1000, width: int = 32) -> tp.methods.pwfn.Compressed:
    """Train and compress the net, print what it cost, and load the file into a new net."""
    images, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(images, dtype=torch.float32) / 16, torch.tensor(labels)
    train, val = (x[:1400], y[:1400]), (x[1400:], y[1400:])
    torch.manual_seed(0)
    net = trained(Reader(width), *train, steps)
    with TemporaryDirectory() as folder:
        file = Path(folder) / "reader.npz"
        small = pwfn.compress(net, train, val, file=file, steps=steps, interval=steps)
        loaded = pwfn.load(file, Reader(width)).eval()
    assert torch.equal(loaded(x), small.net(x))
    assert loaded.second.weight is loaded.embed.weight
    print(f"{small.num_values} values, {small.entropy:.2f} bits each, {small.covered:.0%} covered")
    for name, reason in small.left_out.items():
        print(f"in float: {name} {reason}")
    print(f"float32: {small.num_float_bytes} bytes, accuracy {small.before['accuracy']:.3f}")
    with torch.no_grad():
        logits = net.eval()(val[0])
        for kind in ("float16", "int8"):
            other, num_bytes = rounded(net, kind)
            right = (other(val[0]).argmax(dim=1) == val[1]).double().mean()
            moved = (other(val[0]) - logits).abs().max()
            print(f"{kind}: {num_bytes} bytes, accuracy {right:.3f}, logits moved by {moved:.2g}")
    print(f"compressed: {small.num_bytes} bytes, accuracy {small.after['accuracy']:.3f}")
    return small


if __name__ == "__main__":
    main(width=int(sys.argv[1]) if len(sys.argv) > 1 else 32)
