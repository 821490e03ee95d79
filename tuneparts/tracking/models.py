"""Final nets as MLflow models: logged to the run of their trial, loaded back, registered.

`mlflow.pytorch.load_model` gives the module with its own weights. It is pickled as a whole, and the
code of this package travels with it, so a machine that has torch alone can load and serve it.
Loading runs that code: load only what you trust.
"""

import logging
import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import tuneparts
from tuneparts.tracking import store

if TYPE_CHECKING:
    from torch import nn

_PACKAGE = Path(tuneparts.__file__).parent
_NEEDED = ("torch", "numpy", "pydantic")
"""What the code of a net imports besides the standard library."""
_EXPERIMENT = "MLFLOW_EXPERIMENT_ID"
_VARIABLES = ("MLFLOW_TRACKING_URI", "MLFLOW_REGISTRY_URI", _EXPERIMENT)


def log(
    uri: str, run_id: str, module: "nn.Module", example: "np.ndarray[Any, Any]", *,
    code: Sequence[Path] = (),
) -> str:  # fmt: skip
    """Log a module as the model of a run, unless the run has one; returns the model's URI.

    Its signature is read off an `example`, a few inputs as data sets hold them. `code` are files
    and package folders with its classes, which are imported where the model is loaded.
    """
    if (found := logged(uri, run_id)) is not None:
        return found
    experiment = store.client(uri).get_run(run_id).info.experiment_id
    with _store(uri):
        # Or the model would belong to the default experiment, with its files wherever we are.
        os.environ[_EXPERIMENT] = experiment
        import mlflow.pytorch
        import torch
        from mlflow.models import Model, infer_signature

        inputs = np.asarray(example)
        if inputs.dtype != np.int64:  # whole numbers, such as tokens, stay whole
            inputs = inputs.astype(np.float32)
        outputs = module(torch.from_numpy(inputs)).numpy()
        info = Model.log(
            artifact_path=None,
            name="model",
            flavor=mlflow.pytorch,
            run_id=run_id,
            pytorch_model=module,
            signature=infer_signature(inputs, outputs),
            # Named here: MLflow would find them by loading the model in another process. Not
            # this package, which travels as code, nor torch's build, which indexes do not have.
            pip_requirements=[f"{n}=={metadata.version(n).partition('+')[0]}" for n in _NEEDED],
            code_paths=[str(_PACKAGE), *(str(path) for path in code)],
            serialization_format="pickle",
        )
    return str(info.model_uri)


def logged(uri: str, run_id: str) -> str | None:
    """The URI of a run's model; None when it has none."""
    outputs = store.client(uri).get_run(run_id).outputs
    models = outputs.model_outputs if outputs is not None else []
    return f"models:/{models[-1].model_id}" if models else None


def register(uri: str, model_uri: str, name: str) -> str:
    """Make a model a new version under a name of the registry; returns the URI of the version."""
    with _store(uri):
        import mlflow

        version = mlflow.register_model(model_uri, name)
    return f"models:/{name}/{version.version}"


@contextmanager
def _store(uri: str) -> Iterator[None]:
    """MLflow's functions for models read the store from globals; they are put back."""
    store._quieten()
    import mlflow

    variables = {name: os.environ.get(name) for name in _VARIABLES}
    before, before_registry = mlflow.get_tracking_uri(), mlflow.get_registry_uri()
    loud = {name: logging.getLogger(name).level for name in ("mlflow", "mlflow.pytorch")}
    for name in loud:
        logging.getLogger(name).setLevel(logging.ERROR)
    mlflow.set_tracking_uri(uri)
    mlflow.set_registry_uri(uri)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # MLflow warns of its own type hints and of pickles
            yield
    finally:
        mlflow.set_tracking_uri(before)
        # Unset where it only followed the store, so that it goes on to follow it.
        mlflow.set_registry_uri(None if before_registry == before else before_registry)
        for name, text in variables.items():
            os.environ.pop(name, None)
            if text is not None:
                os.environ[name] = text
        for name, level in loud.items():
            logging.getLogger(name).setLevel(level)
