import pytest

from tuneparts.training.learner import to_csv


def test_a_table_as_text() -> None:
    text = to_csv({"layer": ["a,b", 'say "c"'], "mu": [0.1, -1 / 3], "count": [1, 20]})
    assert text == 'layer,mu,count\n"a,b",0.1,1\n"say ""c""",-0.333333,20\n'


def test_columns_have_one_length() -> None:
    with pytest.raises(ValueError, match="shorter"):
        to_csv({"a": [1.0, 2.0], "b": [1.0]})
