import pandas as pd
import pytest

from tuneparts.results.figures.matched import family, gains


def rows(name: str, seed: int, *points: tuple[float, float]) -> list[dict[str, object]]:
    return [
        {"family": name, "arm": f"{name}_{n}", "seed": seed, "size": size, "score": score}
        for n, (size, score) in enumerate(points)
    ]


def test_gains_are_those_of_lines_drawn_by_hand() -> None:
    points = pd.DataFrame(
        [
            *rows("ours", 0, (3.0, 0.80), (9.0, 0.9)),
            *rows("ours", 1, (3.2, 0.70), (9.0, 0.9)),
            *rows("other", 0, (4.0, 0.82), (2.0, 0.60)),  # 0.71 at 3
            *rows("other", 1, (2.0, 0.50), (4.0, 0.75)),  # 0.65 at 3.2
            *rows("small", 0, (1.0, 0.4), (2.0, 0.5)),
        ]
    )
    found = gains(points, "ours")
    # Nothing of the other families reaches 9 bits, and `small` not even 3.
    assert found["family"].tolist() == ["other"]
    row = found.iloc[0]
    assert row["at"] == pytest.approx(3.1)
    assert row["gain"] == pytest.approx((0.09 + 0.05) / 2)
    assert row["low"] < row["gain"] < row["high"]
    assert row["seeds"] == 2


@pytest.mark.parametrize(
    ("arm", "expected"),
    [
        ("learnt_cutoff_10", "learnt"),
        ("wfn_unpulled_delta_15", "wfn_unpulled"),
        ("kmeans_8", "kmeans"),
        ("int4_aware", "int4_aware"),
        ("free", "free"),
    ],
)
def test_families(arm: str, expected: str) -> None:
    assert family(arm) == expected
