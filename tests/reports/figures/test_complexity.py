import pandas as pd

from tuneparts.reports.figures.complexity import complexity

ROWS = pd.DataFrame(
    [
        {"net": "mlp", "width": 8, "weights": 100, "method": "standard", "ms": 1.0, "MB": 2.0},
        {"net": "mlp", "width": 16, "weights": 200, "method": "standard", "ms": 3.0, "MB": 4.0},
        {"net": "mlp", "width": 8, "weights": 100, "method": "laplace_hypers", "ms": 9, "MB": 50},
        {"net": "mlp", "width": 16, "weights": 200, "method": "laplace_hypers", "note": "no room"},
    ]
)


def test_a_line_per_method_in_each_panel() -> None:
    drawing = complexity(ROWS)
    lines = {(trace.name, trace.xaxis): trace for trace in drawing.figure.data}
    assert set(lines) == {(m, x) for m in ("standard", "laplace_hypers") for x in ("x", "x2")}
    assert list(lines["standard", "x"].x) == [100, 200]
    assert list(lines["standard", "x"].y) == [1.0, 3.0]
    assert list(lines["standard", "x2"].y) == [2.0, 4.0]
    assert [trace.showlegend for trace in drawing.figure.data] == [True, True, False, False]


def test_what_was_refused_is_named_and_not_drawn() -> None:
    drawing = complexity(ROWS)
    assert "laplace_hypers at mlp of width 16" in drawing.caption
    assert all(len(t.x) == 1 for t in drawing.figure.data if t.name == "laplace_hypers")
    assert "Refused" not in complexity(ROWS.iloc[:2]).caption
