"""What a search reports besides the built-in metrics: its target's metrics and its methods'."""

from typing import TYPE_CHECKING

from tuneparts.core.schema import Metric

if TYPE_CHECKING:  # torch takes seconds to import
    from tuneparts.search.spec import Search


def declared_metrics(search: "Search") -> tuple[Metric, ...]:
    """List the metrics that the target and the methods of a search declare, each once."""
    found = list(() if search.data is None else search.data.target.reported())
    for arm in search.arms:
        found += arm.config.declared_metrics()
    return tuple(dict.fromkeys(found))
