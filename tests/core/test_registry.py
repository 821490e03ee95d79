from tuneparts.core.errors import printable
from tuneparts.core.registry import Registry


def test_a_part_is_found_by_its_name_or_its_import_path() -> None:
    shapes = Registry("shape", {"point": "fractions:Fraction"})
    assert shapes.find("point").__name__ == "Fraction"
    assert shapes.find("decimal:Decimal").__name__ == "Decimal"
    assert shapes.name_of(shapes.find("point")) == "point"
    assert shapes.name_of(shapes.find("decimal:Decimal")) == "decimal:Decimal"


def test_a_terminal_is_given_no_control_characters() -> None:
    assert printable("layer\x1b[2J\x9b \u00e4\n") == "layer\\x1b[2J\\x9b \u00e4\n"
