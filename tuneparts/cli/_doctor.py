"""The verb doctor: is everything there that a search needs, and what comes next?"""

import importlib
import importlib.util
import logging
import shutil
import tempfile
from importlib import metadata
from pathlib import Path

import typer

from tuneparts.cli import _options
from tuneparts.cli._output import Form, put, terminal
from tuneparts.core import provenance, settings
from tuneparts.core.redaction import redact
from tuneparts.search import load, runs
from tuneparts.tracking import store

app = typer.Typer()
LEAST_SPACE = 1e9
"""Bytes below which a disk is called too full: checkpoints of many trials lie side by side."""


class _AbsentError(Exception):
    """Something that a search can do without is not there; the message says how to get it."""


@app.command()
def doctor(as_json: _options.Json = False, as_csv: _options.Csv = False) -> None:
    """Check the installation: versions, devices, Ray, store, data, disk; say what to do next."""
    form = Form.of(as_json=as_json, as_csv=as_csv)
    checks = {
        "packages": _packages,
        "torchvision": _torchvision,
        "devices": _devices,
        "Ray": _ray,
        "results folder": _results,
        "disk space": _space,
        "MLflow store": _store,
        "data": _data,
        "searches": _searches,
        "dashboard": _dashboard,
        "Chromium": _chromium,
    }
    rows = []
    for name, check in checks.items():
        with terminal(form).status(f"looking at: {name}"):
            try:
                state, found = "ok", check()
            except _AbsentError as error:
                state, found = "absent", str(error)
            except Exception as error:  # whatever is wrong is reported
                state, found = "FAILED", f"{type(error).__name__}: {error}"
        rows.append({"check": name, "state": state, "what was found": redact(found)})
    is_well = all(row["state"] != "FAILED" for row in rows)
    newest = runs.listing(settings.current().results_dir)[-3:]
    if not is_well:
        advice = "mend what FAILED, then: tuneparts doctor"
    elif any(run.has_begun for run in newest):
        advice = "tuneparts report --open, or tuneparts search NAME"
    else:
        advice = "tuneparts search rotated_digits --scale smoke"
    put(form, "checks", rows, f"Next: {advice}", prose=["what was found"], next=advice)
    if not is_well:
        raise SystemExit(1)


def _packages() -> str:
    for name in ("torch", "ray.tune", "mlflow", "optuna"):
        importlib.import_module(name)
    return ", ".join(f"{name} {version}" for name, version in provenance.versions().items())


def _torchvision() -> str:
    from tuneparts.core import _torchvision

    return str(_torchvision.load().__version__)


def _devices() -> str:
    import torch

    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return f"{provenance.usable_cpus()} CPUs, " + (", ".join(gpus) or "no GPU: trials run on CPUs")


def _ray() -> str:
    """Start a Ray of our own and let it answer: what only imports may still not start."""
    from tuneparts.executors.ray import cluster

    logging.getLogger("ray").handlers = [logging.NullHandler()]
    with cluster.joined_once(None, cpus=1):
        import ray

        version: str = ray.__version__
        assert ray.get(ray.put(version), timeout=60) == version
    return f"Ray {version} starts and answers here"


def _existing(folder: Path) -> Path:
    return next(path for path in (folder, *folder.parents) if path.exists())


def _results() -> str:
    folder = settings.current().results_dir
    with tempfile.NamedTemporaryFile(dir=_existing(folder)):
        return f"{folder} (writable)"


def _space() -> str:
    folder = settings.current().results_dir
    free = shutil.disk_usage(_existing(folder)).free
    if free < LEAST_SPACE:
        raise OSError(f"{free / 1e9:.1f} GB are free for {folder}; make space")
    return f"{free / 1e9:,.1f} GB are free for results"


def _store() -> str:
    uri = store.resolve(settings.current().tracking_uri)
    if not store.is_server(uri) and not store.exists(uri):
        return f"{uri} (made by the first search)"
    problem = store.unreachable(uri)
    if problem:
        raise ConnectionError(f"{uri}: {problem}")
    return f"{uri} (answers)"


def _data() -> str:
    from tuneparts.data import sets

    found = [name for name, source, _ in sets.inventory() if source is not None]
    return ", ".join(found) + f" (TUNEPARTS_DATA={settings.current().data_dir or 'unset'})"


def _searches() -> str:
    files = load.available()
    folders = dict.fromkeys(str(Path(place).resolve()) for place in load.folders())
    if not files:
        raise FileNotFoundError(f"no search files in {', '.join(folders)}")
    return f"{len(files)} in {', '.join(folders)}"


def _dashboard() -> str:
    if importlib.util.find_spec("streamlit") is None:
        raise _AbsentError("`tuneparts dashboard` needs: pip install 'tuneparts[dashboard]'")
    return f"streamlit {metadata.version('streamlit')}: tuneparts dashboard --open"


def _chromium() -> str:
    from tuneparts.results.page import browser

    if (found := browser()) is None:
        raise _AbsentError("reports lack figures as .svg; install Chromium or Chrome for them")
    return found
