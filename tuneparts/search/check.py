"""Refuses a search that cannot run, in the driver and before anything of it is written."""

from collections.abc import Mapping
from typing import Any, cast

from tuneparts.core.errors import ConfigError, TunepartsError
from tuneparts.core.seeding import numpy_generator
from tuneparts.data.task import Task, part_digest
from tuneparts.nets import check_own_nets, own_nets
from tuneparts.search.arm import Arm, variant_name
from tuneparts.search.spec import Search
from tuneparts.training.config import SupervisedMethod
from tuneparts.training.learner import Context


def check(search: Search) -> None:
    """Ask every method whether it can run here, and try what the search brings along.

    Your own data is loaded, your nets and hyperparameters are tried once, and packs for one step.
    """
    for arm in search.arms:
        if not search.objectives or not arm.algorithm.is_adaptive:
            continue
        try:  # not every sampler takes several objectives
            next(arm.algorithm.front_proposals(arm, search.seeds_of(arm)[0], search.all_objectives))
        except (ValueError, NotImplementedError) as error:
            raise ConfigError(
                f"the algorithm of `{arm.name}` weighs several objectives, but it says: {error} "
                "Take `nsgaii` or `tpe`, or search by one metric."
            ) from error
    draw = search.data_draws()[0]
    variants = search.load_variants(draw)
    is_tried = search.data is not None and search.data.is_own
    is_tried |= any(arm.packed > 1 or _has_own(arm) for arm in search.arms)
    task = search.load_data(draw=draw) if is_tried else None
    check_data(search, task, variants)
    if task is None:
        return
    for arm in search.arms:
        if own_nets(arm.config):
            _try_nets(arm, task, seed=search.seeds_of(arm)[0])
        if arm.packed > 1:
            _try_pack(arm, task, seed=search.seeds_of(arm)[0])


def check_data(search: Search, task: Task | None, variants: Mapping[str, Task]) -> None:
    """Ask every method whether it can run here, and learn from data if it was loaded."""
    for arm in search.arms:
        arm.config.check(copies_state=arm.algorithm.replaces_failed)
        if task is not None and arm.config.needs_data:
            _check_task(arm, task)
        parts: dict[str, str] = {}
        for changes in arm.data_variants() if arm.has_variants else ():
            name = variant_name(changes)
            _check_task(arm, variants[name])
            val, test = part_digest(variants[name].val), part_digest(variants[name].test)
            parts[f"{val} {test}"] = name
        if len(parts) > 1:
            one, other, *_ = parts.values()
            raise ConfigError(
                f"trials of `{arm.name}` are compared by {search.metric} on validation and test "
                f"examples, but they differ between {one} and {other}. Vary `data.num_train`, or "
                "give each variant its own arm: `Arm(data={...})`."
            )


def _drawn(arm: Arm) -> Any:
    """A config of the arm at a draw, for it may lack what the space gives."""
    return arm.config_at(arm.sample(numpy_generator(0, "try a config")))


def _has_own(arm: Arm) -> bool:
    hypers = arm.config.hypers.own if isinstance(arm.config, SupervisedMethod) else {}
    return bool(hypers or own_nets(arm.config))


def _check_task(arm: Arm, task: Task) -> None:
    config = _drawn(arm) if _has_own(arm) else arm.config
    try:
        config.check(task)
    except ConfigError as error:
        raise ConfigError(f"arm `{arm.name}` cannot learn from `{task.name}`: {error}") from error


def _try_pack(arm: Arm, task: Task, *, seed: int) -> None:
    """Refuse to pack trials whose first step fails in a pack, or is another one there."""
    import torch

    from tuneparts.training.pack import Pack, PackableLearner

    config, context = _drawn(arm), Context(task, seed)
    try:
        with context.seeded_globals():
            packed, alone = (cast(PackableLearner, config.build(context)) for _ in range(2))
            wanted = alone.step().losses["train/loss"]
            found = Pack({0: packed}, arm.packed).step()[0]
            torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-4, equal_nan=True)
    except Exception as error:  # whatever `vmap` cannot map
        raise ConfigError(
            f"trials of `{arm.name}` cannot be packed: {error}. Leave its `packed` out."
        ) from error


def _try_nets(arm: Arm, task: Task, *, seed: int) -> None:
    config = _drawn(arm)
    nets = ", ".join(f"`{net.name}`" for net in own_nets(config))
    try:
        check_own_nets(config, task.in_shape, task.num_outputs, is_whole=task.has_tokens)
        config.build(Context(task, seed))
    except Exception as error:  # whatever somebody else's code raises
        kind = "" if isinstance(error, TunepartsError) else f"{type(error).__name__}: "
        raise ConfigError(
            f"arm `{arm.name}` cannot train {nets} on inputs of shape {task.in_shape} "
            f"with {task.num_outputs} outputs: {kind}{error}"
        ) from error
