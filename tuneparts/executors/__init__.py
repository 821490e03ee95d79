"""Executors of a search: this process, a pool of processes on this machine, or Ray.

`execute` is the one entry. What an executor needs (torch, Ray) is imported only when it runs.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

from tuneparts.core import schema
from tuneparts.executors.place import Place
from tuneparts.search import code as search_code
from tuneparts.search.cleaning import Cleaner
from tuneparts.search.code import Code
from tuneparts.search.events import Observer
from tuneparts.search.journal import Journal
from tuneparts.search.locks import lock
from tuneparts.search.plan import Plan
from tuneparts.search.runs import default_storage
from tuneparts.search.spec import Search

__all__ = ["Place", "execute", "lock"]


def execute(
    search: Search,
    *,
    folder: Path,
    place: Place | None = None,
    observers: Sequence[Observer] = (),
    storage: str | None = None,
    code: Code | None = None,
    watch: Callable[[Callable[[], Mapping[str, int]]], None] | None = None,
) -> Literal["done", "interrupted"]:
    """Run every trial of a search that the journal in `folder` does not hold yet.

    The journal is the same, apart from times and the order of its lines, whichever executor is
    chosen and however often the driver was killed. The lock of `folder` is held meanwhile;
    `storage` is inside of it when not given. Observers get every event, past ones first. `watch` is
    called once with a function that returns how many trials of each arm workers have.
    """
    status: Literal["done", "interrupted"] = "done"
    place = (place or Place()).settled(search)
    with lock(folder), schema.using(*search.declared_metrics()):
        code = code or search_code.keep(search, folder / "code")
        storage = storage or default_storage(folder)
        cleaner = None if search.keep_checkpoints else Cleaner(storage)
        journal = Journal(folder / "journal.jsonl")
        try:
            forget = cleaner.forget if cleaner else None
            plan = Plan(search, journal, observers, forget=forget, folder=folder)
            if watch is not None:
                watch(plan.queue.at_work)
            if plan.done:
                pass
            elif place.executor == "local":
                from tuneparts.executors import _local

                _local.run(plan, storage, place, code)
            else:
                from tuneparts.executors import ray

                ray._run(plan, storage, place, code)
        except KeyboardInterrupt:
            status = "interrupted"
        finally:
            journal.close()
            if cleaner is not None:
                cleaner.close()
    return status
