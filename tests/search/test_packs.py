"""Which trials are trained together, and what a plan makes of packs."""

import math
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor, nn

from tuneparts.baselines.posthoc import PosthocConfig
from tuneparts.baselines.standard import StandardConfig, StandardLearner
from tuneparts.baselines.validation import ValidationConfig
from tuneparts.errors import ConfigError
from tuneparts.journal import Journal
from tuneparts.pwfn.config import PwfnConfig
from tuneparts.search.check import check
from tuneparts.search.plan import Plan
from tuneparts.search.segment import Segment
from tuneparts.search.space import Choice, Uniform
from tuneparts.search.spec import Arm, RandomSearch, Search
from tuneparts.training.learner import MethodConfig
from tuneparts.training.packed.pack import exactly
from tuneparts.training.runtime import Runtime


class Branching(nn.Linear):
    """Its code depends on its input's values, which nothing can map."""

    def forward(self, x: Tensor) -> Tensor:
        h = super().forward(x.flatten(1))
        return h if float(h.detach().sum()) > 0 else -h


def branching(in_shape: tuple[int, ...], num_outputs: int) -> nn.Module:
    return nn.Sequential(Branching(math.prod(in_shape), num_outputs))


SPACE = {"optimiser.lr": Uniform(low=1e-4, high=1e-1, log=True)}


def arm(trials: int = 5, packed: int = 2, **fields: Any) -> Arm:
    values = {"space": SPACE, "algorithm": RandomSearch(num_trials=trials), **fields}
    config = StandardConfig(passes=8, interval=2, net={"name": "mlp", "widths": (4,)})
    return Arm(name="random", config=config, packed=packed, **values)


@pytest.fixture
def planned(null_search: Any, tmp_path: Path) -> Any:
    def make(one: Arm) -> Plan:
        return Plan(null_search(one, metric="val/nll"), Journal(tmp_path / "journal.jsonl"))

    return make


def taken(plan: Plan) -> list[Segment]:
    found = []
    while (segment := plan.next()) is not None:
        found.append(segment)
    return found


def indices(segment: Segment) -> list[int]:
    return [one.trial.index for one in segment.live()]


def end(plan: Plan, lane: Segment, failure: str | None = None) -> None:
    plan.report(lane, [{"val/nll": 1.0, "cost/passes": 8.0, "cost/seconds": 1.0}])
    plan.complete(lane, finished=failure is None, failure=failure)


def test_packs_are_formed_by_index(planned: Any) -> None:
    assert [indices(one) for one in taken(planned(arm()))] == [[0, 1], [2, 3], [4]]


def test_trials_that_cannot_be_lanes_of_one_model_are_in_packs_of_their_own(planned: Any) -> None:
    plan = planned(arm(8, 3, space={**SPACE, "batch_size": Choice(options=(4, 8))}))
    packs = taken(plan)
    sizes = [{lane.config["batch_size"] for lane in pack.live()} for pack in packs]
    assert all(len(one) == 1 for one in sizes)
    assert sorted(index for pack in packs for index in indices(pack)) == list(range(8))
    assert all(indices(pack) == sorted(indices(pack)) for pack in packs)


def test_a_pack_is_one_unit_of_work_and_its_trials_end_one_by_one(planned: Any) -> None:
    plan = planned(arm(4, 2, at_once=1))
    (pack,) = taken(plan)
    plan.started(pack)
    first, second = pack.live()
    end(plan, first, failure="it diverged")
    assert not plan.is_over(pack)
    assert taken(plan) == []
    end(plan, second)
    assert plan.is_over(pack)
    (after,) = taken(plan)
    assert indices(after) == [2, 3]
    outcomes = [record.end and record.end.outcome for record in plan.journal.trials.values()]
    assert outcomes == ["failed", "finished", None, None]


def test_a_restarted_plan_makes_the_same_packs_with_the_ended_lanes_marked(
    planned: Any, null_search: Any, tmp_path: Path
) -> None:
    plan = planned(arm(4, 4))
    (pack,) = taken(plan)
    end(plan, pack.live()[1], failure="it diverged")
    plan.journal.close()
    (again,) = taken(Plan(plan.search, Journal(tmp_path / "journal.jsonl")))
    assert len(again.lanes) == 4
    assert indices(again) == [0, 2, 3]
    assert Segment.from_json(again.to_json()) == again


def test_a_lost_pack_is_run_again_and_opened_when_that_does_not_help(planned: Any) -> None:
    plan = planned(arm(3, 3, max_failures=1))
    (pack,) = taken(plan)
    end(plan, pack.live()[0], failure="it diverged")
    assert plan.lost(pack)
    (again,) = taken(plan)
    assert indices(again) == [1, 2]
    assert plan.lost(again)
    singles = taken(plan)
    assert [(indices(one), one.lanes) for one in singles] == [([1], ()), ([2], ())]
    assert plan.lost(singles[0])
    assert plan.lost(taken(plan)[0]) is False  # now it is to blame itself
    end(plan, singles[1])
    assert plan.done


@pytest.mark.parametrize(
    "config",
    [
        PwfnConfig(),
        PosthocConfig(),  # has the config of `standard`, and another learner
        ValidationConfig(through_step=True, optimiser={"kind": "sgd"}),
    ],
    ids=["pwfn", "posthoc", "validation"],
)
def test_a_method_that_trains_alone_is_refused_by_name(config: MethodConfig) -> None:
    method = config.model_dump()["method"]
    with pytest.raises(ValueError, match=rf"`{method}`.*leave its `packed` out"):
        Arm(name="alone", config=config, packed=4)


def test_a_learner_whose_step_may_be_another_is_refused_by_name() -> None:
    class Other(StandardLearner):
        pass

    with pytest.raises(ConfigError, match=r"but got Other"):
        exactly([object.__new__(Other)], StandardLearner)


def test_a_net_that_cannot_be_packed_is_refused_before_anything_runs(null_search: Any) -> None:
    net = {"name": "tests.search.test_packs:branching"}
    config = StandardConfig(passes=8, interval=2, batch_size=10, net=net)
    one = Arm(
        name="own", config=config, packed=2, space=SPACE, algorithm=RandomSearch(num_trials=2)
    )
    with pytest.raises(ConfigError, match=r"`own` cannot be packed.*packed=1"):
        check(null_search(one, metric="val/nll"))


def test_unpacked_searches_keep_their_digest(null_search: Any) -> None:
    def digest(**fields: Any) -> str:
        made: Search = null_search(arm(**fields), metric="val/nll")
        return made.digest

    assert "packed" not in arm(packed=1).model_dump(mode="json")
    assert digest(packed=1) != digest(packed=2)


def test_more_trials_fill_the_last_pack_and_leave_what_has_ended(
    planned: Any, null_search: Any, tmp_path: Path
) -> None:
    plan = planned(arm(4, 3))
    for pack in taken(plan):
        for lane in pack.live():
            end(plan, lane)
    assert plan.done
    plan.journal.close()
    more = null_search(arm(6, 3), metric="val/nll")
    (pack,) = taken(Plan(more, Journal(tmp_path / "journal.jsonl")))
    assert [lane.trial.index for lane in pack.lanes] == [3, 4, 5]
    assert indices(pack) == [4, 5]


def test_a_pack_has_no_runtime_of_its_own_or_of_the_search(null_search: Any) -> None:
    config = arm().config.replaced({"runtime": {"precision": "bf16"}})
    with pytest.raises(ValueError, match="`random` has a `runtime`"):
        Arm(**{**dict(arm()), "config": config})
    with pytest.raises(ValueError, match="`random` has a `runtime`"):
        null_search(arm(), metric="val/nll", runtime=Runtime(precision="bf16"))
