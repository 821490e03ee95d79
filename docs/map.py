"""Prints the map of the project: `make map` writes it to docs/map.md, and a test keeps it true.

A room is a folder of the package, or a module beside them. Its line is the first sentence of its
docstring; its level is the one that `tests/test_architecture.py` checks.
"""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "tuneparts"
FOLDERS = {
    "benchmarks/": "What things cost beside what one would run instead: `python -m benchmarks`.",
    "searches/": "One file per question, and `studies/` that several share.",
    "examples/": "How to bring one's own; run by the tests.",
    "dashboards/": "The live dashboard (Streamlit): searches, trials, comparisons, reports.",
    "deploy/": "An image, `ray up`, KubeRay, SLURM, and an MLflow server on PostgreSQL.",
    "docs/": "The site (`make docs`): tutorial, methods, results, log, decisions.",
    "tests/": "Mirrors the package, plus `contracts/ golden/ integration/ harness/ fuzz/ browser/`",
}


def first_sentence(path: Path) -> str:
    """What a module says of itself first, on one line."""
    words = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
    paragraph = " ".join(words.split("\n\n")[0].split())
    return re.split(r"\. (?=[A-Z])", paragraph)[0].removesuffix(".") + "."


def levels() -> dict[str, int]:
    """Room -> level, from the test that enforces them."""
    tree = ast.parse((ROOT / "tests" / "test_architecture.py").read_text("utf-8"))
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "LEVELS":
            found: dict[str, int] = ast.literal_eval(node.value)
            return found
    raise LookupError("tests/test_architecture.py has no LEVELS")


def map_of_the_house() -> str:
    """The whole of docs/map.md."""
    lines = [
        "# Map",
        "",
        "Written by `make map`. Imports point down only, and rooms on one level do not know each",
        "other; `tests/test_architecture.py` checks it.",
        "",
        "| level | room | what |",
        "|---|---|---|",
    ]
    for room, level in sorted(levels().items(), key=lambda item: item[1]):  # stable within a level
        folder = PACKAGE / room
        name = f"{room}/" if folder.is_dir() else f"{room}.py"
        path = folder / "__init__.py" if folder.is_dir() else PACKAGE / name
        lines.append(f"| {level} | `tuneparts/{name}` | {first_sentence(path)} |")
    lines += [f"| - | `{name}` | {what} |" for name, what in FOLDERS.items()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(map_of_the_house(), end="")
