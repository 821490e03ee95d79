"""Configs as flat text, as MLflow keeps params, and back."""

import json
import re
from collections.abc import Mapping
from typing import Any

LONGEST_VALUE = 6000
"""Characters that MLflow keeps of a param's value."""
LONGEST_KEY = 250


def flatten(config: Mapping[str, Any]) -> dict[str, str]:
    """One entry per leaf, its path joined with dots; lists are leaves."""
    flat: dict[str, str] = {}
    for key, value in config.items():
        name = re.sub(r"[^\w.\- :/]", "_", str(key))
        if isinstance(value, Mapping) and value:
            flat.update({f"{name}.{inner}": text for inner, text in flatten(value).items()})
        else:
            flat[name] = encode(value)
    return {key[:LONGEST_KEY]: text for key, text in flat.items()}


def encode(value: Any) -> str:
    """A JSON value as text: words stay bare unless they would read as something else."""
    is_bare = isinstance(value, str) and decode(value) == value
    text = value if is_bare else json.dumps(value, default=str)
    return text if len(text) <= LONGEST_VALUE else text[: LONGEST_VALUE - 3] + "..."


def decode(text: str) -> Any:
    """The inverse of `encode`, save for what was too long."""
    try:
        return json.loads(text)
    except ValueError:
        return text
