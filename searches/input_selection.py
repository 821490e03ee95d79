"""Does L_ML choose the inputs that a test set would choose?

Thirty inputs, of which the first fifteen know the label. One partitioned net per number of inputs,
ranked by L_ML without held-out data; ordinary nets ranked by Laplace's marginal likelihood; and one
partitioned net that learns which inputs to keep.
"""

from tuneparts.data.config import Data
from tuneparts.methods.baselines.config import PosthocLaplace
from tuneparts.methods.partitioned import Partitioned
from tuneparts.nets import Mlp
from tuneparts.search.algorithms.base import GridSearch
from tuneparts.search.arm import Arm
from tuneparts.search.space import Choice
from tuneparts.search.spec import Scale, Search

NUM_INPUTS = 30
FIXED = "fixed masks need no hyper steps: as many updates in fewer steps"
NOTES = """
Mlodozeniec et al. (2023, section I.4): 3,000 training and 1,000 test examples, an MLP of two hidden
layers of 256 GELU units, Adam at 1e-3, weight decay 3e-4, batches of 256; 8 equal chunks and 10,000
iterations for the ranking, also of ordinary nets by a diagonal Laplace approximation (early
stopping on L_ML or log p(D); here the best of 100 reports, of 8 at smaller scales), 4 equal chunks
and 30,000 iterations for the learnt mask, hypers by Adam at 1e-3. How the inputs were generated is
described in a part of the paper that was not at hand: the generator here is a reconstruction.
At `cpu` scale all run for 1,500 iterations, and the mask's rate is scaled accordingly.
"""


def search(scale: Scale) -> Search:
    """A grid over the number of inputs, and a learnt mask."""
    ranked = scale.pick(smoke=16, cpu=1500, paper=10_000)
    learnt = scale.pick(smoke=32, cpu=3000, paper=60_000)
    counts = scale.pick(
        smoke=(5, 15, 30), cpu=(1, 5, 10, 13, 15, 17, 20, 25, 30), paper=tuple(range(1, 31))
    )
    masks = Choice(options=tuple((1.0,) * n + (0.0,) * (NUM_INPUTS - n) for n in counts))
    reports = scale.pick(smoke=8, cpu=8, paper=100)
    shared = {
        "net": Mlp(widths=(256, 256)),
        "optimiser": {"weight_decay": 3e-4},
        "batch_size": scale.pick(smoke=32, cpu=256, paper=256),
    }
    return Search(
        name="input_selection",
        question="Does L_ML choose the inputs that a test set would choose?",
        notes=NOTES,
        scale=scale,
        data=Data(
            name="input_selection",
            num_train=scale.pick(smoke=200, cpu=3000, paper=3000),
            num_test=1000,
        ),
        metric="lml/per_example",
        steps=learnt,
        seeds=scale.pick(smoke=(0,), cpu=(0, 1, 2), paper=(0, 1, 2)),
        arms=(
            Arm(
                name="ranked",
                config=Partitioned(
                    **shared,
                    steps=ranked,
                    interval=ranked // reports,
                    proportions=(1 / 8,) * 8,
                    hypers={"mask": {"keep": 1.0}, "frozen": ("mask",)},
                    select_by_lml=True,
                ),
                algorithm=GridSearch(),
                space={"hypers.mask.keep": masks},
                budget_note=FIXED,
            ),
            Arm(
                name="ranked_laplace",
                config=PosthocLaplace(
                    **shared,
                    steps=ranked,
                    interval=ranked // reports,
                    hypers={"mask": {"keep": 1.0}},
                    select_by_lml=True,
                    lml_every=1,
                ),
                algorithm=GridSearch(),
                space={"hypers.mask.keep": masks},
                budget_note=FIXED,
            ),
            Arm(
                name="learnt_mask",
                config=Partitioned(
                    **shared,
                    steps=learnt,
                    interval=learnt // 8,
                    proportions=(1 / 4,) * 4,
                    hypers={"mask": {"keep": 0.5}},
                    hyper_lr=60 / learnt,
                ),
            ),
        ),
        score_test_always=True,
        figures=(
            "sweep:hyper/num_kept,lml/per_example",
            "sweep:hyper/num_kept,test/nll",
            "hypers",
            "accuracy",
        ),
    )
