"""Compress a net of one's own: train it, let its weights take few values, and load the file.

Run it by `python examples/compress_a_net.py`. The net has attention, and two layers that share one
weight; both are compressed, and the tie survives. Its norm stays in float and is named.
"""

from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

from tuneparts import pwfn


class Reader(nn.Module):
    """Reads the rows of an image (B, 64) as eight tokens that attend to its columns."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.second = nn.Linear(8, 32), nn.Linear(8, 32)
        self.second.weight = self.embed.weight
        self.attention = nn.MultiheadAttention(32, 4, batch_first=True)
        self.norm = nn.LayerNorm(32)
        self.hidden = nn.Linear(8 * 32, 64)
        self.head = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        """(B, 64) to logits (B, 10)."""
        image = x.view(-1, 8, 8)
        rows, columns = self.embed(image), self.second(image.transpose(1, 2))
        mixed, _ = self.attention(rows, columns, columns)
        return self.head(torch.relu(self.hidden(self.norm(rows + mixed).flatten(1))))


def main(passes: int = 1000) -> pwfn.Compressed:
    """Compress the net, print what it cost, and load the file into a new net."""
    images, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(images, dtype=torch.float32) / 16, torch.tensor(labels)
    torch.manual_seed(0)
    with TemporaryDirectory() as folder:
        file = Path(folder) / "reader.code"
        small = pwfn.compress(
            Reader(), (x[:1400], y[:1400]), (x[1400:], y[1400:]),
            file=file, passes=passes, pretrain=0.5, interval=max(1, passes // 10),
        )  # fmt: skip
        loaded = pwfn.load(file, Reader()).eval()
    assert torch.equal(loaded(x), small.net(x))
    assert loaded.second.weight is loaded.embed.weight
    print(f"accuracy {small.before['accuracy']:.3f} untrained, {small.after['accuracy']:.3f} after")
    print(f"{small.num_values} values, {small.entropy:.2f} bits each, {small.covered:.0%} covered")
    print(f"{small.num_bytes} bytes instead of {small.num_float_bytes}")
    for name, reason in small.left_out.items():
        print(f"in float: {name} {reason}")
    return small


if __name__ == "__main__":
    main()
