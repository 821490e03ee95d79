"""Draws the figures of docs/results.md from its own tables: `python docs/plots.py`.

An image `images/results/NAME.svg` there shows the table that follows it: a row per arm, a dot at
its score, a bar of one standard error where there is one. So a table and its figure cannot differ;
a test compares them.
"""

import re
from html import escape
from pathlib import Path

PAGE = Path(__file__).parent / "results.md"
IMAGE = re.compile(r"!\[[^\]]*\]\(images/results/(\w+)\.svg\)\n\n((?:\|.*\n)+)")
SCORE = re.compile(r"\**(\d\.\d+)(?: ± (\d\.\d+))?\**")
WIDTH, LABELS, RIGHT, ROW, TOP, BOTTOM = 900, 440, 30, 26, 14, 46


def rows_of(table: str) -> tuple[str, list[tuple[str, float, float]]]:
    """The name of the second column, and arm, score and standard error of each row that has one."""
    lines = [[cell.strip() for cell in line.strip("|\n ").split("|")] for line in table.split("\n")]
    header, _, *body = [cells for cells in lines if len(cells) > 1]
    number = next(i for i, name in enumerate(header) if name == "test accuracy")
    found = []
    for cells in body:
        if match := SCORE.fullmatch(cells[number]):
            found.append((cells[0], float(match[1]), float(match[2] or 0)))
    return header[number], found


def ticks(low: float, high: float) -> list[float]:
    """Round numbers between two scores."""
    step = next(step for step in (0.01, 0.02, 0.05, 0.1, 0.2) if (high - low) / step <= 7)
    first = int(low / step) + 1
    return [round(i * step, 2) for i in range(first, int(high / step) + 1)]


def drawn(table: str) -> str:
    """The figure of a table, as SVG."""
    name, rows = rows_of(table)
    low = min(score - error for _, score, error in rows) - 0.01
    high = max(score + error for _, score, error in rows) + 0.01

    def at(score: float) -> float:
        return round(LABELS + (score - low) / (high - low) * (WIDTH - LABELS - RIGHT), 1)

    height = TOP + ROW * len(rows) + BOTTOM
    floor = height - BOTTOM + 4
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'font-family="system-ui, sans-serif" font-size="14">',
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
    ]
    for tick in ticks(low, high):
        parts.append(f'<path d="M{at(tick)} {TOP}V{floor}" stroke="#d8dce0"/>')
        parts.append(
            f'<text x="{at(tick)}" y="{floor + 16}" text-anchor="middle" fill="#50575e">'
            f"{tick:.2f}</text>"
        )
    middle = (LABELS + WIDTH - RIGHT) / 2
    parts.append(
        f'<text x="{middle}" y="{height - 8}" text-anchor="middle" fill="#1f2328">{name}</text>'
    )
    for i, (arm, score, error) in enumerate(rows):
        y = TOP + ROW * i + ROW // 2
        parts.append(
            f'<text x="{LABELS - 12}" y="{y + 5}" text-anchor="end" fill="#1f2328">'
            f"{escape(arm)}</text>"
        )
        if error:
            left, right = at(score - error), at(score + error)
            parts.append(f'<path d="M{left} {y}H{right}" stroke="#0072b2" stroke-width="3"/>')
        fill = "#0072b2" if error else "#ffffff"  # hollow: one seed, no uncertainty
        parts.append(
            f'<circle cx="{at(score)}" cy="{y}" r="5" fill="{fill}" stroke="#0072b2" '
            'stroke-width="2"/>'
        )
    return "\n".join([*parts, "</svg>"]) + "\n"


def figures() -> dict[Path, str]:
    """Every figure of the page: where it lies, and what it must be."""
    folder = PAGE.parent / "images" / "results"
    page = PAGE.read_text("utf-8")
    return {folder / f"{name}.svg": drawn(table) for name, table in IMAGE.findall(page)}


if __name__ == "__main__":
    for path, figure in figures().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(figure, "utf-8")
