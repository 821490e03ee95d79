"""The words of the glossary: each is one sentence, and a step is not an epoch."""

import re
from pathlib import Path

import pytest

from tuneparts.core.glossary import GLOSSARY, STEP_IN_SHORT, define


def test_the_words_are_few() -> None:
    assert set(GLOSSARY) == {
        "search", "arm", "seed", "step", "source arm", "chunk", "partition", "scale",
    }  # fmt: skip


@pytest.mark.parametrize("word", sorted(GLOSSARY))
def test_a_definition_is_one_sentence(word: str) -> None:
    text = GLOSSARY[word]
    assert text[0].isupper()
    assert text.endswith(".")
    assert ". " not in text
    assert define(word) == f"{word}: {text}"


def test_a_step_is_not_an_epoch() -> None:
    assert "not an epoch" in STEP_IN_SHORT
    assert "not an epoch" in GLOSSARY["step"]


def test_the_page_of_the_docs_says_the_same() -> None:
    page = (Path(__file__).parents[2] / "docs" / "glossary.md").read_text("utf-8")
    entries = re.findall(r"^\*\*([\w ]+)\*\*\n: (.+)$", page, re.MULTILINE)
    assert dict(entries) == GLOSSARY
