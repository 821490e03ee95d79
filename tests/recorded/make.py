"""Makes the recorded runs: `python tests/recorded/make.py FOLDER`, in an empty working directory.

The runs in `runs/` were made at commit 36fa799, before the package was made smaller. They are not
made again (names were converted once, with the steps, methods and fields of the present package):
what reads them must give what `expected/` holds, to the letter.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

import own_things as own

import tuneparts as tp
from tuneparts.core.settings import current
from tuneparts.search import runs

OBJECTIVE = tp.Objective(
    own.Climb,
    params={"x": 0.0},
    reports={"val/accuracy": "max", "test/accuracy": "max"},
    steps=8,
    interval=2,
)
X = tp.Uniform(0.0, 1.0)
NET = {"steps": 20, "interval": 10, "net": tp.nets.Mlp(widths=(4,))}
DIGITS = tp.data.Digits(rotated=True, num_train=200, num_val=100)
AFFINE = {"hypers": {"affine": {}}}


def climbed(name: str, algorithm: tp.Algorithm, **changes: object) -> tp.Search:
    """An algorithm and random search, on a function."""
    arms = {
        "adaptive": OBJECTIVE.searched_by(algorithm, x=X),
        "plain": OBJECTIVE.searched_by(tp.RandomSearch(4), x=X),
    }
    return tp.Search(
        name=name, question="Which climbs higher?", scale="smoke", arms=arms, **changes
    )


def trained(
    name: str, arms: dict[str, tp.Method | tp.Arm], data: tp.data.Data = DIGITS
) -> tp.Search:
    """Arms that train a net."""
    return tp.Search(name=name, question="Which is better?", scale="smoke", data=data, arms=arms)


def standard(**fields: object) -> tp.Standard:
    """Training at given hyperparameters."""
    return tp.Standard(**{**NET, **fields})


def searches() -> dict[str, tp.Search]:
    """What is run to its end without an accident."""
    plain = {"none": standard()}
    data = tp.data.Data(name=own.own_data, num_val=12, num_test=12)
    nets = standard(net=own.own_net, batch_size=12)
    lr, rotation = tp.Uniform(1e-4, 1e-1, log=True), tp.Uniform(0.0, 3.0)
    finetuned = tp.Partitioned.published(**NET, **AFFINE, finetune=tp.Finetune(optimiser=tp.Adam()))
    return {
        "random": climbed("random", tp.RandomSearch(6)),
        "optuna": climbed("optuna", tp.Tpe(6)),
        "asha": climbed("asha", tp.Asha(6, reduction=2, min_steps=2)),
        "halving": climbed("halving", tp.SuccessiveHalving(4, reduction=2, min_steps=2)),
        "pbt": climbed("pbt", tp.Pbt(population=4, num_rounds=4)),
        "follower": trained(
            "follower",
            {
                "searched": standard(**AFFINE).searched_by(tp.RandomSearch(3), rotation=rotation),
                "again": standard(**AFFINE, train_on="all", hypers_from="searched"),
            },
        ),
        "own": trained(
            "own", {"rates": nets.searched_by(tp.RandomSearch(2), lr=lr), "usual": nets}, data
        ),
        "partitioned": trained(
            "partitioned", {"learnt": tp.Partitioned.published(**NET, **AFFINE), **plain}
        ),
        "released": trained("released", {"learnt": finetuned, **plain}),
        "superweights": trained(
            "superweights", {"shared": tp.SuperWeights(steps=20, interval=10), **plain}
        ),
        "pwfn": trained("pwfn", {"fixed": tp.Pwfn(**NET), **plain}),
        "federated": trained("federated", {"clients": tp.Federated(**NET, **AFFINE), **plain}),
    }


def in_process(name: str) -> subprocess.Popen[bytes]:
    """Start a slow search in a process of its own."""
    code = f"import make; make.slow({name!r})"
    path = f"{Path(__file__).parent}:{os.environ.get('PYTHONPATH', '')}"
    env = {**os.environ, "SLOW": "1", "PYTHONPATH": path}
    return subprocess.Popen([sys.executable, "-c", code], env=env)


def slow(name: str) -> None:
    tp.run(climbed(name, tp.RandomSearch(6)), workers=1)


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
    tp.run(climbed("extended", tp.RandomSearch(2)), workers=1)
    tp.extend("extended", trials=4, seeds=(3,), executor="local", workers=1)
    failing = OBJECTIVE.replaced({"function": own.FailsAtFirst})
    arms = {
        "fails": failing.searched_by(tp.RandomSearch(4), x=X),
        "plain": OBJECTIVE.searched_by(tp.RandomSearch(4), x=X),
    }
    retried = tp.Search(name="retried", question="Which climbs?", scale="smoke", arms=arms)
    tp.run(retried, workers=1)
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
