"""The arms of one federated comparison: hyperparameters learnt by clients, or given.

All arms ask the same clients for the same number of rounds.
"""

from collections.abc import Mapping
from typing import Any

import tuneparts as tp
from studies import after_question, on_gpus
from studies.comparison import TIGHT_RANGE, rotation_only, space

MORE_STEPS = (
    "as many rounds as the others; a client trains each partition from its chunk on, and judges"
)
DROPOUT = 0.1
"""Where rates start, and where they stay when they are not learnt."""


def federation(
    scale: tp.Scale,
    docstring: str | None,
    *,
    num_batches: int,
    exchange: Mapping[str, Any],
    num_samples: int,
    start: float,
    learning: Mapping[str, Any],
    gpus: float,
    **fields: Any,
) -> tp.Search:
    """Learnt hyperparameters; fixed, searched and oracle ones; averaging at learnt ones.

    All arms have the rounds, clients and server of `exchange`; one that learns also has `learning`,
    and its six ranges start at `start`. The batches of one client fix how many steps a round takes.
    """
    rounds, per_report = exchange["rounds"], exchange["rounds_per_report"]
    # Each client that is asked goes through its data once.
    steps = rounds * exchange["clients_per_round"] * num_batches
    # A client of the first chunk trains every partition, and no client has more to do.
    most = len(learning["proportions"]) * steps
    samples = {"samples": num_samples, "eval_samples": num_samples}
    given = {"dropout": {"rate": DROPOUT}, **samples}
    learnt = {**given, "affine": dict.fromkeys(tp.Affine.NAMES, start)}
    ranges = {**space(TIGHT_RANGE), "hypers.dropout.rate": tp.Uniform(0.0, 0.5)}
    averaging = tp.FedAvg(**exchange, hypers={**given, "affine": {}})
    federated = tp.Federated(
        **exchange,
        **learning,
        hypers=learnt,
        steps=most,
        interval=most // rounds * per_report,
    )
    trials = tp.RandomSearch(scale.pick(smoke=2, cpu=4, paper=50))
    arms: dict[str, tp.Method | tp.Arm] = {
        "federated": tp.Arm(config=federated, budget_note=MORE_STEPS),
        "fedavg": tp.FedAvg(**exchange, hypers=given),
        "random": averaging.searched_by(trials, ranges),
        "oracle": tp.FedAvg(**exchange, hypers={**given, **rotation_only(samples)}),
        "retrained": averaging.replaced({"hypers_from": "federated"}),
    }
    is_long = scale is tp.Scale.PAPER  # the paper averages ten scores along its curves
    return tp.Search(
        **fields,
        notes=after_question(docstring),
        steps=steps,
        interval=steps // rounds * per_report,
        compare=("federated", "fedavg"),
        references=("oracle",),
        seeds=scale.pick(smoke=1, cpu=5, paper=3),
        arms=on_gpus(scale, gpus, arms),
        figures=(
            "communication:val/accuracy,10" if is_long else "communication",
            *("hypers", "accuracy:val/accuracy", "projections"),
        ),
    )
