"""What each trial of a run drew from its arm's space, as a data frame; figures are made from it."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from tuneparts.core import redaction
from tuneparts.search import journal
from tuneparts.search.draws import at

if TYPE_CHECKING:
    from tuneparts.search.spec import Search

DRAWN_COLUMNS = ["trial", "arm", "seed", "index", "place", "name", "value", "is_log"]


def drawn(search: "Search", path: Path) -> pd.DataFrame:
    """One row per trial and thing that was decided when its values were drawn.

    A dimension that exists only under an option, `optimiser[sgd].momentum`, has no row in trials of
    other options. `place` is that of the field in the space. A choice is shown by the name of the
    option. Of a population, what a member has
    now is shown. Secrets are masked.

    Args:
        search: of the run.
        path: The file `journal.jsonl` of the run.
    """
    redactor = redaction.of_process()
    rows: list[tuple[Any, ...]] = []
    spaces = {arm.name: arm.space for arm in search.arms}
    for trial, record in sorted(journal.records(path).items()) if path.exists() else []:
        config = redactor.tree(record.config)
        for place, (field, dim) in enumerate(spaces.get(trial.arm, {}).items()):
            value = at(config, field)
            if not dim.contains(value):
                continue  # masked, or changed by the config itself
            for leaf in dim.leaves(field, value):
                shown = leaf.dimension.shown(leaf.value)
                is_log = leaf.dimension.is_log
                where = (str(trial), trial.arm, trial.seed, trial.index)
                rows.append((*where, place, leaf.name, shown, is_log))
    return pd.DataFrame(rows, columns=DRAWN_COLUMNS)
