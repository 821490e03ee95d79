"""Makes the recorded runs: `python tests/recorded/make.py FOLDER`, in an empty working directory.

The runs in `runs/` were made at commit 36fa799, before the package was made smaller. They are not
made again: what reads them must give what `expected/` holds, to the letter.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

import own_things as own

import tuneparts as tp
from tuneparts.core.settings import current
from tuneparts.nets import Mlp
from tuneparts.search import runs

CLIMB = {
    "config": tp.Objective(
        function=own.Climb,
        params={"x": 0.0},
        reports={"val/accuracy": "max", "test/accuracy": "max"},
        steps=8,
        interval=2,
    ),
    "space": {"params.x": tp.Uniform(low=0.0, high=1.0)},
}
SMOKE = {"scale": "smoke"}
NET = {"steps": 20, "interval": 10, "net": Mlp(widths=(4,))}
DIGITS = tp.Data(name="digits", rotated=True, num_train=200, num_val=100)


def climbed(name: str, algorithm: tp.Algorithm, **changes: object) -> tp.Search:
    """An algorithm beside random search, on a function."""
    random = tp.Arm(name="plain", algorithm=tp.RandomSearch(num_trials=4), **CLIMB)
    arms = (tp.Arm(name="adaptive", algorithm=algorithm, **CLIMB), random)
    given = {
        "name": name,
        "question": "Which climbs higher?",
        "metric": "val/accuracy",
        "scale": "smoke",
    }
    return tp.Search(**given, steps=8, seeds=(0, 1, 2), arms=arms, **changes)


def trained(name: str, *arms: tp.Arm, data: tp.Data = DIGITS) -> tp.Search:
    """Arms that train a net."""
    given = {
        "name": name,
        "question": "Which is better?",
        "metric": "val/accuracy",
        "data": data,
        "scale": "smoke",
    }
    return tp.Search(**given, **SMOKE, steps=20, seeds=(0, 1, 2), arms=arms)


def standard(**fields: object) -> tp.Standard:
    """Training at given hyperparameters."""
    return tp.Standard(**{**NET, **fields})


def searches() -> dict[str, tp.Search]:
    """What is run to its end without an accident."""
    plain = tp.Arm(name="none", config=standard())
    rates = {"optimiser.lr": tp.Uniform(low=1e-4, high=1e-1, log=True)}
    affine = {"hypers": {"affine": {}}}
    data = tp.Data(name=own.own_data, num_val=12, num_test=12)
    nets = standard(net=own.own_net, batch_size=12)
    return {
        "random": climbed("random", tp.RandomSearch(num_trials=6)),
        "optuna": climbed("optuna", tp.Tpe(num_trials=6)),
        "asha": climbed("asha", tp.Asha(num_trials=6, reduction=2, min_steps=2)),
        "halving": climbed("halving", tp.SuccessiveHalving(num_trials=4, reduction=2, min_steps=2)),
        "pbt": climbed("pbt", tp.Pbt(population=4, num_rounds=4)),
        "follower": trained(
            "follower",
            tp.Arm(
                name="searched",
                config=standard(**affine),
                algorithm=tp.RandomSearch(num_trials=3),
                space={"hypers.affine.rotation": tp.Uniform(low=0.0, high=3.0)},
            ),
            tp.Arm(name="again", config=standard(**affine, train_on="all"), follows="searched"),
        ),
        "own": trained(
            "own",
            tp.Arm(name="rates", config=nets, algorithm=tp.RandomSearch(num_trials=2), space=rates),
            tp.Arm(name="usual", config=nets),
            data=data,
        ),
        "partitioned": trained(
            "partitioned",
            tp.Arm(name="learnt", config=tp.Partitioned(**NET, **affine)),
            plain,
        ),
        "released": trained(
            "released", tp.Arm(name="learnt", config=tp.ReleasedConfig(**NET, **affine)), plain
        ),
        "superweights": trained(
            "superweights",
            tp.Arm(name="shared", config=tp.SuperWeights(steps=20, interval=10)),
            plain,
        ),
        "pwfn": trained("pwfn", tp.Arm(name="fixed", config=tp.Pwfn(**NET)), plain),
        "federated": trained(
            "federated", tp.Arm(name="clients", config=tp.Federated(**NET, **affine)), plain
        ),
    }


def in_process(name: str) -> subprocess.Popen[bytes]:
    """Start a slow search in a process of its own."""
    code = f"import make; make.slow({name!r})"
    path = f"{Path(__file__).parent}:{os.environ.get('PYTHONPATH', '')}"
    env = {**os.environ, "SLOW": "1", "PYTHONPATH": path}
    return subprocess.Popen([sys.executable, "-c", code], env=env)


def slow(name: str) -> None:
    tp.run(climbed(name, tp.RandomSearch(num_trials=6)), workers=1)


def wait_for_rows(name: str, rows: int) -> runs.Run:
    """Wait until the journal of a search has so many rows."""
    while True:
        found = [run for run in runs.listing(current().results_dir) if run.name.startswith(name)]
        path = found[0].folder / "journal.jsonl" if found else None
        if path is not None and path.exists() and path.read_text().count('"kind": "row"') >= rows:
            return found[0]
        time.sleep(0.05)


def main() -> None:
    os.environ["TUNEPARTS_RESULTS"] = str(Path(sys.argv[1]).absolute())
    for search in searches().values():
        tp.run(search, workers=1)
    tp.run(climbed("extended", tp.RandomSearch(num_trials=2)), workers=1)
    tp.extend("extended", trials=4, seeds=(3,), executor="local", workers=1)
    failing = {**CLIMB, "config": CLIMB["config"].replaced({"function": own.FailsAtFirst})}
    arm = tp.Arm(name="fails", algorithm=tp.RandomSearch(num_trials=4), **failing)
    other = tp.Arm(name="plain", algorithm=tp.RandomSearch(num_trials=4), **CLIMB)
    given = {
        "name": "retried",
        "question": "Which climbs?",
        "metric": "val/accuracy",
        "steps": 8,
        "scale": "smoke",
    }
    tp.run(tp.Search(**given, **SMOKE, seeds=(0, 1, 2), arms=(arm, other)), workers=1)
    Path("mended").touch()
    tp.resume("retried", retry_failed=True, workers=1)
    process = in_process("killed")
    wait_for_rows("killed", 42)
    process.kill()
    process.wait()
    process = in_process("stopped")
    run = wait_for_rows("stopped", 42)
    subprocess.run([sys.executable, "-m", "tuneparts", "stop", run.name], check=True)
    process.wait()


if __name__ == "__main__":
    main()
