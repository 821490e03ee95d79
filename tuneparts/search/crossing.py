"""Arms crossed with variants of the data.

Each variant is an arm of its own. So a trial is selected among those of one variant, and scores on
different examples are never compared.
"""

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any

from tuneparts.search.spec import Arm


def crossed(arms: Sequence[Arm], *, data: Mapping[str, Sequence[Any]]) -> tuple[Arm, ...]:
    """Give every arm a twin for each combination of values of the data.

    Args:
        arms: as they are for the search's own data. An arm follows the twin of its leader.
        data: dotted path into the search's data -> its values.

    Example:
        >>> from tuneparts.bench.null import NullConfig
        >>> sizes = crossed([Arm(name="null", config=NullConfig())], data={"num_train": (50, 100)})
        >>> [(arm.name, arm.data) for arm in sizes]
        [('null_num_train_50', {'num_train': 50}), ('null_num_train_100', {'num_train': 100})]
    """
    found = []
    for values in itertools.product(*data.values()):
        changes = dict(zip(data, values, strict=True))
        suffix = "".join(f"_{_slug(path)}_{_slug(value)}" for path, value in changes.items())
        for arm in arms:
            fields: dict[str, Any] = {"name": arm.name + suffix, "data": {**arm.data, **changes}}
            if arm.follows is not None:
                fields["follows"] = arm.follows + suffix
            found.append(arm.replaced(fields))
    return tuple(found)


def _slug(value: Any) -> str:
    """A value as a part of a name."""
    return re.sub(r"[^a-z0-9]+", "_", str(value).lower()).strip("_")
