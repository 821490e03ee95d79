"""Refuses a search that cannot run, in the driver and before anything of it is written."""

import torch

from tuneparts.data.task import Task
from tuneparts.errors import ConfigError, TunepartsError
from tuneparts.models import check_own_nets, own_nets
from tuneparts.search.spec import Arm, Search
from tuneparts.seeding import numpy_generator
from tuneparts.training.learner import Context


def check(search: Search, task: Task | None = None) -> None:
    """Ask every method whether it can run here, and try what the search brings along.

    Data of one's own is loaded. A net of one's own is built once and tried on two examples, and a
    learner of its arm is built with it and trained not at all.

    Args:
        search: the resolved search.
        task: its data; read here when not given, and only if something is to be tried with it.

    Raises:
        ConfigError: An arm cannot run, with its name, the reason and the cure.
        DataError: Data of one's own cannot be learnt from.

    Example:
        >>> from tuneparts.search import load
        >>> check(load.load("rotated_digits", scale="smoke"))
    """
    for arm in search.arms:
        arm.config.check_runnable(copies_state=arm.algorithm.kind == "pbt")
    if task is None and _brings_something(search):
        task = search.load_data()
    if task is None:
        return
    for arm in search.arms:
        if arm.config.needs_data:
            _check_task(arm, task)
        if own_nets(arm.config):
            _try_nets(arm, task, seed=search.seeds_of(arm)[0])


def _brings_something(search: Search) -> bool:
    """Whether there is anything that only a look at the data can judge."""
    has_net = any(own_nets(arm.config) for arm in search.arms)
    return has_net or (search.data is not None and search.data.is_own)


def _check_task(arm: Arm, task: Task) -> None:
    try:
        arm.config.check_task(task)
    except ConfigError as error:
        raise ConfigError(f"arm `{arm.name}` cannot learn from `{task.name}`: {error}") from error


def _try_nets(arm: Arm, task: Task, *, seed: int) -> None:
    rng = numpy_generator(0, "try a net")  # a draw, for the config may lack what the space gives
    config = arm.config.replaced({path: dim.sample(rng) for path, dim in arm.space.items()})
    nets = ", ".join(f"`{net.name}`" for net in own_nets(config))
    where = (
        f"arm `{arm.name}` cannot train {nets} on inputs of shape {task.in_shape} with "
        f"{task.num_outputs} outputs"
    )
    try:
        check_own_nets(config, task.in_shape, task.num_outputs, is_whole=task.has_tokens)
        config.build(Context(task=task, seed=seed, device=torch.device("cpu")))
    except TunepartsError as error:
        raise ConfigError(f"{where}: {error}") from error
    except Exception as error:  # whatever somebody else's code raises
        raise ConfigError(
            f"{where}: {type(error).__name__}: {error}. Change the net, or give the arm another "
            "method."
        ) from error
