"""`tuneparts doctor`: is everything there that a search needs?"""

import importlib
import tempfile
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from tuneparts import provenance, settings
from tuneparts.cpus import usable_cpus
from tuneparts.redaction import redact
from tuneparts.reports.rendering import Table, show


def doctor() -> None:
    """Run every check; exit with 1 when one fails."""
    checks: list[tuple[str, Callable[[], str]]] = [
        ("packages", _packages),
        ("torchvision", _torchvision),
        ("devices", _devices),
        ("results folder", _results),
        ("MLflow store", _store),
        ("data", _data),
        ("searches", _searches),
    ]
    rows = []
    is_well = True
    for name, check in checks:
        try:
            rows.append([name, "ok", redact(check())])
        except Exception as error:  # a doctor reports whatever is wrong
            is_well = False
            rows.append([name, "FAILED", redact(f"{type(error).__name__}: {error}")])
    headers = ["check", "state", "what was found"]
    show(Console(), Table.of_rows(headers, rows, prose=["what was found"]))
    if not is_well:
        raise SystemExit(1)


def _packages() -> str:
    for name in ("torch", "ray.tune", "mlflow", "optuna"):
        importlib.import_module(name)
    return ", ".join(f"{name} {version}" for name, version in provenance.versions().items())


def _torchvision() -> str:
    from tuneparts import torchvision_door

    return str(torchvision_door.load().__version__)


def _devices() -> str:
    import torch

    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return f"{usable_cpus()} CPUs, " + (", ".join(gpus) or "no GPU: trials run on CPUs")


def _results() -> str:
    folder = settings.current().results_dir
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    with tempfile.NamedTemporaryFile(dir=existing):
        pass
    return f"{folder} (writable)"


def _store() -> str:
    from tuneparts.tracking import store

    uri = store.resolve(settings.current().tracking_uri)
    if not store.is_server(uri) and not store.exists(uri):
        return f"{uri} (made by the first search)"
    problem = store.unreachable(uri)
    if problem:
        raise ConnectionError(f"{uri}: {problem}")
    return f"{uri} (answers)"


def _data() -> str:
    from tuneparts.data import sets

    found = [row.name for row in sets.inventory() if row.where is not None]
    return ", ".join(found) + f" (TUNEPARTS_DATA={settings.current().data_dir or 'unset'})"


def _searches() -> str:
    from tuneparts.search import load

    files = load.available()
    if not files:
        raise FileNotFoundError(f"no search files in {[str(p) for p in load.folders()]}")
    return f"{len(files)} in {', '.join(str(Path(p).absolute()) for p in load.folders())}"
