"""Strike the faults and print what they did: `make faults`, or `python -m tests.harness`."""

import argparse
import contextlib
import sys

from benchmarks.results import show
from tests.harness import faults


def main() -> None:
    """Print one row per fault, as a table or as JSON."""
    parser = argparse.ArgumentParser(prog="python -m tests.harness", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--quick", action="store_true", help="fewer repetitions, shorter absences")
    parser.add_argument("--only", metavar="FAULT", help="strike this one, such as `driver killed`")
    options = parser.parse_args()
    with contextlib.redirect_stdout(sys.stderr):  # standard output is for the result
        result = faults.run(quick=options.quick, only=options.only)
    show(result, as_json=options.json)
    if result["ratios"]["survived_over_struck"] < 1:
        sys.exit(1)


if __name__ == "__main__":
    main()
