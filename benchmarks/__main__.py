"""Measures what tuneparts costs, as ratios to what one would run instead.

The sides of a comparison take turns, so that a busy minute hits all of them, and steps are timed
in CPU seconds on one thread. Run it from the root of the repository, on an idle machine.
"""

import argparse
import contextlib
import importlib
import sys
from collections.abc import Sequence

from benchmarks.results import show

NAMES = {
    "data": "images read from disk against torchvision's ImageFolder in a DataLoader (30 s)",
    "packed": "random search of packed standard trials against single ones (1 min)",
    "partition": "a partitioned weight, hyper, mixed and joint step against a standard one (4 min)",
    "pwfn": "a round of fixing against its literal form; a step with Gaussian weights (2 min)",
    "search": "trials, barriers and the start of a search against stock Ray Tune (5 min)",
    "step": "a training step against one written by hand and a matrix product (1 min)",
    "superweights": "a step with composed weights against ordinary ones (1 min)",
    "timing": "wall clock of adaptive searches on 8 and 32 slots against stock Ray Tune (6 min)",
    "tracking": "a point through our MLflow tracker and Ray's MLflow callback (1 min)",
}


def main(words: Sequence[str] | None = None) -> None:
    """Run one benchmark, or print what there is."""
    lines = [f"{name:14}{what}" for name, what in NAMES.items()]
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        epilog="names:\n  " + "\n  ".join(lines) + "\n\nexample: python -m benchmarks step --json",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", nargs="?", choices=NAMES, metavar="NAME", help="none: this help")
    parser.add_argument("--json", action="store_true", help="print ratios and rows as one object")
    parser.add_argument("--quick", action="store_true", help="small sizes, which say little")
    options = parser.parse_args(words)
    if options.name is None:
        parser.print_help()
        return
    run = importlib.import_module(f"benchmarks.{options.name}").run
    with contextlib.redirect_stdout(sys.stderr):  # standard output is for the result
        result = run(quick=options.quick)
    show(result, as_json=options.json)


if __name__ == "__main__":
    main()
