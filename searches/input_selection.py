"""Does L_ML choose the inputs that a test set would choose?

Thirty inputs, of which the first fifteen know the label. Mlodozeniec et al. (2023, section I.4):
3,000 training and 1,000 test examples, an MLP of two hidden layers of 256 GELU units, Adam at 1e-3,
weight decay 3e-4, batches of 256; 8 equal chunks and 10,000 iterations for a ranking of the numbers
of inputs, also of ordinary nets by a diagonal Laplace approximation (early stopping on L_ML or
log p(D); here the best of 100 reports, of 8 at smaller scales); 4 equal chunks and 30,000
iterations for a learnt mask, hyperparameters by Adam at 1e-3. How the inputs were generated is in a
part of the paper that was not at hand: the generator is a reconstruction. At `cpu` scale all run
for 1,500 iterations, and the mask's rate is scaled with it.
"""

from typing import Any

import tuneparts as tp
from studies import after_question


def search(scale: tp.Scale) -> tp.Search:
    ranked = scale.pick(smoke=16, cpu=1500, paper=10_000)
    learnt = scale.pick(smoke=32, cpu=3000, paper=60_000)
    few, some = (5, 15, 30), (1, 5, 10, 13, 15, 17, 20, 25, 30)
    counts = scale.pick(smoke=few, cpu=some, paper=tuple(range(1, 31)))
    masks = {"hypers.mask.keep": tp.Choice([(1.0,) * n + (0.0,) * (30 - n) for n in counts])}
    shorter: dict[str, Any] = {
        "steps": ranked,
        "interval": ranked // scale.pick(smoke=8, cpu=8, paper=100),
        "select_by_lml": True,
    }
    all_kept = {"mask": {"keep": 1.0}}
    partitioned = tp.Partitioned.published(
        proportions=(1 / 8,) * 8, hypers={**all_kept, "frozen": ("mask",)}, **shorter
    )
    laplace = tp.methods.PosthocLaplace(hypers=all_kept, lml_every=1, **shorter)
    fixed: dict[str, Any] = {
        "algorithm": tp.GridSearch(),
        "space": masks,
        "budget_note": "fixed masks need no hyper steps: as many updates in fewer steps",
    }
    return tp.Search(
        notes=after_question(__doc__),
        data=tp.data.InputSelection(
            num_train=scale.pick(smoke=200, cpu=3000, paper=3000), num_test=1000
        ),
        net=tp.nets.Mlp(widths=(256, 256)),
        steps=learnt,
        interval=learnt // 8,
        batch_size=scale.pick(smoke=32, cpu=256, paper=256),
        optimiser=tp.Adam(weight_decay=3e-4),
        metric="lml/per_example",
        seeds=scale.pick(smoke=1, cpu=3, paper=3),
        arms={
            "ranked": tp.Arm(config=partitioned, **fixed),
            "ranked_laplace": tp.Arm(config=laplace, **fixed),
            "learnt_mask": tp.Partitioned.published(
                proportions=(1 / 4,) * 4, hypers={"mask": {"keep": 0.5}}, hyper_lr=60 / learnt
            ),
        },
        score_test_always=True,
        figures=(
            "sweep:hyper/num_kept,lml/per_example",
            "sweep:hyper/num_kept,test/nll",
            "hypers",
            "accuracy",
        ),
    )
