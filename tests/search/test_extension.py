"""A run that grows ends where one search of the final size ends, number for number."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from rich.console import Console

import tuneparts
from tests.search.playing import play
from tuneparts import executors
from tuneparts.core.errors import ConfigError, UnknownNameError
from tuneparts.executors.place import Place
from tuneparts.results.running import grow
from tuneparts.search import runs
from tuneparts.search.algorithms.base import Algorithm, GridSearch, RandomSearch, draw, whole_trial
from tuneparts.search.algorithms.halving import Asha, SuccessiveHalving
from tuneparts.search.algorithms.pbt import Pbt
from tuneparts.search.algorithms.sampler import Pruned, Tpe
from tuneparts.search.arm import Arm
from tuneparts.search.events import TrialId
from tuneparts.search.extension import check_journal, extended
from tuneparts.search.journal import Journal, records
from tuneparts.search.plan import Plan
from tuneparts.search.segment import Batch, Segment
from tuneparts.search.space import Choice, Uniform
from tuneparts.search.spec import Search
from tuneparts.search.stopping import Stop
from tuneparts.testing.null import NullConfig

CONFIG = NullConfig(steps=4, interval=2)
LOCAL = Place("local")
SPACE = {"x": Uniform(low=0.0, high=1.0)}


def arm(name: str, **fields: Any) -> Arm:
    if "algorithm" in fields:
        fields.setdefault("space", SPACE)
    return Arm(name=name, config=CONFIG, **fields)


RANDOM = arm("random", algorithm=RandomSearch(num_trials=3))
TPE = arm("tpe", algorithm=Tpe(num_trials=5, window=2, num_startup=2), seeds=(0,))
NONE = arm("none")
TAKING = Arm(name="taking", config=CONFIG.replaced({"hypers_from": "random"}))
GRID = arm("grid", algorithm=GridSearch(), space={"x": Choice(options=(0.1, 0.2))})


@pytest.fixture
def search(null_search):
    return lambda *arms, **fields: null_search(*arms, steps=4, **fields)


def begin(root: Path, search: Search) -> runs.Run:
    facts = {"command": "", "commit": "", "versions": {}, "storage": None}
    return runs.create(root, search, **facts)


def run(made: runs.Run) -> runs.Run:
    ending = executors.execute(made.search, folder=made.folder, place=Place("local", workers=1))
    assert ending == "done"
    return made


def table(made: runs.Run) -> pd.DataFrame:
    """Everything in the table but seconds, and what an arm paid before its source arm grew."""
    found = tuneparts.Results(made).table
    drop = [name for name in found if "seconds" in name or "steps" in name or name == "stopped"]
    return found.drop(columns=drop).set_index("arm").sort_index()


def test_the_table_is_that_of_one_search_of_the_final_size(search, tmp_path) -> None:
    made = run(begin(tmp_path / "a", search(RANDOM, TPE, NONE, TAKING)))
    first = records(made.folder / "journal.jsonl")
    made, news = grow(made, LOCAL, trials=8, seeds=[0, 3], arms=[GRID])
    assert news == (
        "random has 8 trials a seed instead of 3",
        "tpe has 8 trials a seed instead of 5",
        "tpe has more seeds: 3",
        "arm grid is new, with 2 trials a seed",
        "seed 3 is new",
    )
    run(made)
    whole = search(
        arm("random", algorithm=RandomSearch(num_trials=8)),
        arm("tpe", algorithm=Tpe(num_trials=8, window=2, num_startup=2), seeds=(0, 3)),
        NONE,
        TAKING,
        GRID,
        seeds=(0, 3),
    )
    assert made.search == whole
    assert made.digest == whole.digest
    pd.testing.assert_frame_equal(table(made), table(run(begin(tmp_path / "b", whole))))
    later = records(made.folder / "journal.jsonl")
    for trial, record in first.items():
        assert later[trial].rows == record.rows  # times too: nothing ran again


JUDGED: dict[str, Algorithm] = {
    "asha": Asha(num_trials=5, min_steps=2, reduction=2),
    "median": Pruned(num_trials=5, every=2, options={"n_startup_trials": 2}),
    "percentile": Pruned(
        num_trials=5,
        every=2,
        pruner="percentile",
        options={"percentile": 25.0, "n_startup_trials": 2},
    ),
}


@pytest.mark.parametrize("timing", ["deterministic", "asynchronous"])
def test_rules_that_judge_trials_by_those_before_them_can_grow(search, tmp_path, timing) -> None:
    arms = [arm(name, algorithm=own.replaced({"timing": timing})) for name, own in JUDGED.items()]
    made = run(begin(tmp_path / "a", search(*arms)))
    first = records(made.folder / "journal.jsonl")
    made, _ = grow(made, LOCAL, trials=12)
    run(made)
    later = records(made.folder / "journal.jsonl")
    assert {trial: later[trial].rows for trial in first} == {t: r.rows for t, r in first.items()}
    assert len(later) == 36
    if timing == "asynchronous":
        return  # a rerun need not be the same
    whole = search(
        *[one.model_copy(update={"algorithm": one.algorithm.with_trials(12)}) for one in arms]
    )
    assert made.digest == whole.digest
    other = records(run(begin(tmp_path / "b", whole)).folder / "journal.jsonl")
    assert {t: (list(r.rows), r.end.outcome) for t, r in later.items()} == {
        t: (list(r.rows), r.end.outcome) for t, r in other.items()
    }


def test_the_card_keeps_what_was_asked_before(search, tmp_path) -> None:
    made = run(begin(tmp_path, search(RANDOM)))
    name, digest = made.name, made.digest
    made, _ = grow(made, LOCAL, trials={"random": 4})
    made, _ = grow(made, LOCAL, seeds=[9])
    assert made.name == name
    steps = made.card["history"]
    assert [step["news"] for step in steps] == [
        ["random has 4 trials a seed instead of 3"],
        ["seed 9 is new"],
    ]
    assert steps[0]["before"]["digest"] == digest != made.digest
    assert steps[0]["before"]["search"]["arms"][0]["algorithm"]["num_trials"] == 3
    assert runs.newest_of(tmp_path, made.search) == made
    told = tuneparts.Results(made).metadata.history
    assert ["4 trials a seed" in told[0], "seed 9 is new" in told[1]] == [True, True]
    assert "Extended" in " ".join(tuneparts.Results(run(made)).tables[0].notes)


def test_a_dry_run_and_asking_again_change_nothing(search, tmp_path) -> None:
    """After a crash the same command may be given again."""
    made = begin(tmp_path, search(RANDOM))
    before = (made.folder / "run.json").read_bytes()
    assert grow(made, LOCAL, trials=4, dry_run=True)[1]
    assert (made.folder / "run.json").read_bytes() == before
    once, _ = grow(made, LOCAL, trials=4, seeds=[1], arms=[NONE])
    again, news = grow(once, LOCAL, trials=4, seeds=[1], arms=[NONE])
    assert news == ()
    assert again.card == once.card


@pytest.mark.parametrize("stop", [None, Stop(target=0.75), Stop(target=0.9)])
@pytest.mark.parametrize("die_after", range(1, 9, 2))
def test_a_crash_in_the_middle_of_an_extension(search, tmp_path, die_after: int, stop) -> None:
    """The source arm grows, so what takes from it trains again; whenever the driver dies."""
    small = search(RANDOM, TAKING, stop=stop)
    path = tmp_path / "journal.jsonl"
    play(small, path, row)
    grown = extended(small, trials=6)[0]
    play(grown, path, row, most=die_after)
    assert facts(play(grown, path, row)) == facts(play(grown, tmp_path / "at_once.jsonl", row))


def row(segment: Segment) -> dict[str, float]:
    x = segment.config["x"]
    return {"val/accuracy": 1 - abs(x - 0.7), "hyper/rotation": x}


def facts(journal: Journal) -> dict[str, Any]:
    """What selection may see."""
    return {
        f"{trial.arm}/{trial.seed}/{record.config}": {s: r.metrics for s, r in record.rows.items()}
        for trial, record in sorted(journal.trials.items())
        if record.end is not None and record.end.outcome == "finished"
    }


def test_an_arm_whose_source_arm_found_better_trains_again(search, tmp_path) -> None:
    path = tmp_path / "journal.jsonl"
    small = search(RANDOM, TAKING)
    play(small, path, row)
    former = TrialId("taking", 0, 0)
    assert records(path)[former].end.outcome == "finished"
    plan = Plan(small, Journal(path))
    best = plan.selected("random", 0)
    grown = extended(small, trials=20)[0]
    journal = play(grown, path, row)
    assert Plan(grown, journal).selected("random", 0) != best
    assert journal.trials[former].end.outcome == "stopped"
    assert "another one of them is selected" in journal.trials[former].end.message
    newest = journal.trials[TrialId("taking", 0, 1)]
    assert newest.end.outcome == "finished"
    again = play(grown, path, row)
    assert len(again.trials) == len(journal.trials)


def test_an_arm_whose_source_arm_found_nothing_better_stays(search, tmp_path) -> None:
    path = tmp_path / "journal.jsonl"
    small = search(RANDOM, TAKING)
    play(small, path, row)
    journal = Journal(path)
    plan = Plan(extended(small, trials=4)[0], journal)
    segment = plan.next()
    plan.report(segment, [{"val/accuracy": -1.0, "hyper/rotation": 0.0, "cost/steps": 4}])
    plan.complete(segment, finished=True)
    assert plan.done
    assert journal.trials[TrialId("taking", 0, 0)].end.outcome == "finished"
    assert TrialId("taking", 0, 1) not in journal.trials


HALVING = arm("halving", algorithm=SuccessiveHalving(num_trials=4, min_steps=2))
PBT = arm("pbt", algorithm=Pbt(population=4, num_rounds=2))


@pytest.mark.parametrize(
    ("asked", "error", "words"),
    [
        ({"trials": 8}, ConfigError, "would have treated the first 4 in another way. .*ARM=8"),
        ({"trials": {"grid": 8}}, ConfigError, "`grid` runs as many as its settings say"),
        ({"trials": {"random": 2}}, ConfigError, "`random` shall have 2 trials, but it has 3"),
        ({"trials": {"nothing": 2}}, UnknownNameError, "`nothing` is not a known arm"),
        (
            {"arms": [arm("none", algorithm=RandomSearch(num_trials=2))]},
            ConfigError,
            "`none` is another arm in the run. Choose another name",
        ),
    ],
)
def test_what_would_change_old_trials_is_refused(search, asked, error, words: str) -> None:
    small = search(RANDOM, NONE, HALVING, PBT, GRID)
    with pytest.raises(error, match=words):
        extended(small, **asked)
    assert extended(small, trials={"random": 8}, seeds=[4])[0].seeds == (0, 4)


class Spread(Algorithm):
    """Spreads its trials evenly, and says that it does not."""

    is_adaptive = False
    keeps_first_trials = True
    num_trials: int

    def trials_per_seed(self, space: Any) -> int:
        return self.num_trials

    def proposals(self, arm: Arm, seed: int, metric: Any) -> Any:
        values = [{"x": i / self.num_trials} for i in range(self.num_trials)]
        assert draw(arm, seed, 0)
        yield Batch(
            tuple(whole_trial(arm, seed=seed, index=i, values=v) for i, v in enumerate(values))
        )


def test_an_algorithm_that_says_what_is_not_true_is_caught(search, tmp_path) -> None:
    small = search(arm("spread", algorithm=Spread(num_trials=2)))
    play(small, tmp_path / "journal.jsonl", row)
    before = (tmp_path / "journal.jsonl").read_bytes()
    grown = extended(small, trials=4)[0]
    with pytest.raises(ConfigError, match=r"spread/seed0/00001 would have had another config"):
        check_journal(grown, tmp_path / "journal.jsonl")
    assert (tmp_path / "journal.jsonl").read_bytes() == before


FILE = """
from tuneparts import Arm, RandomSearch, Search, Uniform
from tuneparts.testing.null import NullConfig

class Mine(NullConfig):
    method: str = "mine:Mine"

def search(scale):
    space = {"x": Uniform(low=0.0, high=1.0)}
    arms = (
        Arm(name="mine", config=Mine(steps=4, interval=2)),
        Arm(name="more", config=Mine(steps=4), algorithm=RandomSearch(num_trials=2), space=space),
    )
    return Search(name="mine", question="?", scale=scale, metric="val/accuracy", steps=4,
                  seeds=(0,), arms=arms, data={"name": "digits", "num_val": 10})
"""


def test_new_arms_bring_their_code(search, tmp_path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(FILE)
    made = run(begin(tmp_path / "runs", search(RANDOM)))
    made, news = grow(made, LOCAL, arms=["mine"], search=file)
    assert news == ("arm mine is new, with 1 trial a seed",)
    assert (made.folder / "code" / "mine.py").read_text() == FILE
    assert made.card["code"] == made.code.digest != ""
    assert set(tuneparts.Results(run(made)).trials["arm"]) == {"random", "mine"}
    file.write_text(FILE + "# edited")
    with pytest.raises(ConfigError, match=r"mine.py is not what the run began with"):
        grow(made, LOCAL, arms=["more"], search=file)


@pytest.mark.mlflow
def test_what_mlflow_shows_grows_too(search, results) -> None:
    from mlflow import MlflowClient

    small = search(RANDOM, TAKING, figures=())
    first = tuneparts.run(small, workers=1, console=Console(quiet=True))
    again = tuneparts.extend(
        first.run.name, trials=20, arms=[NONE], workers=1, console=Console(quiet=True)
    )
    assert again.parent_run_id == first.parent_run_id
    client = MlflowClient(f"sqlite:///{results / 'mlflow.db'}")
    parent = client.get_run(again.parent_run_id)
    assert parent.info.status == "FINISHED"
    assert parent.data.params["arms"] == '["random", "taking"]'  # MLflow changes none
    assert parent.data.params["arm.none.method"] == NONE.config.method
    assert "20 trials a seed instead of 3" in parent.data.tags["extended"]
    assert parent.data.tags["digest"] == again.run.digest
    assert parent.data.metrics["trials/finished"] == 20 + 1 + 1
    assert parent.data.metrics["trials/stopped"] == 1
    runs_of = {str(trial): client.get_run(run_id) for trial, run_id in again.run_ids.items()}
    former, newest = runs_of["taking/seed0/00000"], runs_of["taking/seed0/00001"]
    assert (former.data.tags["outcome"], former.data.tags["selected"]) == ("stopped", "no")
    assert former.info.end_time <= newest.info.start_time
    assert newest.data.tags["selected"] == "yes"
    assert len([r for r in runs_of.values() if r.data.tags.get("selected") == "yes"]) == 3
    assert again.table.set_index("arm")["stopped"].to_dict() == {
        "random": 0, "taking": 1, "none": 0,
    }  # fmt: skip
