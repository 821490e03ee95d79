"""The forms of partitioned training that `fit` offers, and settings that follow from the data.

`published` is that of Mlodozeniec et al. (2023): single weights, one partition a pass, every other
pass for the hypers. The others had better nets at the same passes on the one draw of the data that
they were compared on (`searches/partition_forms.py`): `mixed` updates all partitions in each pass
and spends a fifth of the passes on hypers, `joint` moves weights and hypers in every pass, and
`released` ends a joint run by ordinary training of all weights on all data.
"""

from collections.abc import Mapping
from typing import Any, Literal, get_args

from tuneparts.augment.affine import lila
from tuneparts.config import parse
from tuneparts.errors import ConfigError, UnknownNameError
from tuneparts.training.hyper import HypersConfig
from tuneparts.training.release import ReleaseConfig

Form = Literal["published", "mixed", "joint", "released"]
FORMS: tuple[Form, ...] = get_args(Form)
_FIELDS: Mapping[Form, Mapping[str, Any]] = {
    "published": {},
    "mixed": {"hyper_every": 4},
    "joint": {"hyper_share": 0.2},
    "released": {"hyper_share": 0.2},
}
_TRAVEL = 18.0
"""Hyper learning rate times hyper steps: how far an unconstrained hyper can travel in a run."""
_START = 0.3
"""Where ranges of motions start that are named without a value."""
_STARTS: Mapping[str, Any] = {
    "affine": dict.fromkeys(lila.NAMES, _START),
    "colour": {},
    "flip": {"kind": "flip"},
    "noise": 0.1,
    "mask": {},
    "temperature": 1.0,
    "dropout": {},
    **dict.fromkeys(lila.NAMES, _START),
}


def settings_of(form: Form, num_examples: int, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a run on so many examples; those that are given stay as they are.

    Example:
        >>> found = settings_of("joint", 1400, {"batch_size": 100})
        >>> found["passes"], found["hyper_lr"], found["hyper_share"]
        (2400, 0.0075, 0.2)
    """
    if form not in FORMS:
        raise UnknownNameError("form of partitioned training", form, FORMS)
    found = {**_FIELDS[form], **fields}
    if "hyper_every" in fields:
        found.pop("hyper_share", None)
    size = found.setdefault("batch_size", min(num_examples, 50) if num_examples < 10_000 else 128)
    if not all(isinstance(n, int) and n > 0 for n in (size, found.get("passes", 1))):
        return found  # the config refuses it, with the reason
    passes = found.setdefault("passes", min(20_000, max(2400, 20 * num_examples // size)))
    found.setdefault("interval", max(1, passes // 20))
    optimiser = found.setdefault("optimiser", {"lr": 3e-3})
    searched = passes
    if form == "released":
        late = {**_plain(optimiser), "schedule": "cosine"}
        late["lr"] = late.get("lr", 1e-3) / 2
        release = parse(ReleaseConfig, {"optimiser": late, **_plain(found.get("release", {}))})
        found["release"] = release
        searched = release.start(passes)
    every = 1 if found.get("hyper_share") else found.get("hyper_every", 1) + 1
    found.setdefault("hyper_lr", min(0.1, _TRAVEL * every / searched))
    return found


def read_hypers(given: Any) -> dict[str, Any]:
    """Hypers in any of the ways that `fit` takes them, as fields of `HypersConfig`.

    The name of a motion (`rotation`, `shear`, ...) learns that motion, and no other that is not
    named.

    Example:
        >>> read_hypers("rotation")["affine"]["rotation"]
        0.3
        >>> read_hypers({"rotation": 0.1, "samples": 2})["affine"]["shear"]
        0.0
    """
    if isinstance(given, HypersConfig):
        return {**given.model_dump(exclude_unset=True), **given.parts}
    if not isinstance(given, Mapping):
        names = [given] if isinstance(given, str) else given or ()
        for name in names:
            if name not in _STARTS:
                raise UnknownNameError("hyper", name, list(_STARTS))
        given = {name: _STARTS[name] for name in names}
    found = {name: value for name, value in given.items() if name not in lila.NAMES}
    motions = {name: value for name, value in given.items() if name in lila.NAMES}
    if motions and found.get("affine") is not None:
        raise ConfigError(
            f"`affine` beside {', '.join(motions)}: motions are named by themselves or inside "
            "`affine`. Put them into `affine`."
        )
    if motions:
        found["affine"] = {**dict.fromkeys(lila.NAMES, 0.0), **motions}
    is_random = any(name in found for name in ("affine", "colour", "flip", "noise"))
    if is_random and not {"samples", "eval_samples"} & set(found):
        found |= {"samples": 4, "eval_samples": 8}
    return found


def _plain(fields: Any) -> dict[str, Any]:
    return dict(fields) if isinstance(fields, Mapping) else fields.model_dump()
