"""At which hyper rate, and with how many hyper steps, is each method at its best?

Mlodozeniec et al. (2023) print one hyper rate for their method, and other ones, from other papers,
for those that they compare with. A rate means nothing without the number of steps: on shorter runs
their product, the reach, decides what can be found. Here every method trains on 997 rotated digits
for as many steps, and its reach of 6, 18, 54 or 120 is chosen by 300 validation digits. Arms that
end in `_4` take one hyper step after four updates. Settings found here are for other seeds.
"""

import tuneparts as tp
from studies import after_question, reach
from studies.comparison import LAPLACE, on_digits


def search(scale: tp.Scale) -> tp.Search:
    setting = on_digits(scale, reports=4)
    late = setting.last_stage()
    often: dict[str, tp.Method] = {
        "partitioned": tp.Partitioned.published(train_on="train"),
        "validation": tp.ValidationSet(train_on="train"),
        "validation_finetuned": tp.ValidationSet(train_on="train", finetune=late),
        "augerino": tp.Augerino(train_on="train"),
        "laplace": tp.Laplace(train_on="train", **LAPLACE),
        "last_layer": tp.LastLayer(train_on="train"),
    }
    reaches = scale.pick(
        smoke=(6.0, 18.0), cpu=(6.0, 18.0, 54.0, 120.0), paper=(6.0, 18.0, 54.0, 120.0)
    )
    arms = {}
    for name, config in often.items():
        configs = {name: config}
        if hasattr(config, "hyper_every"):
            configs[f"{name}_4"] = config.replaced({"hyper_every": 4})
        for one, changed in configs.items():
            hyper_steps = max(1, reach.hyper_steps(setting.whole(changed)))
            rates = tp.Choice([travel / hyper_steps for travel in reaches])
            arms[one] = changed.searched_by(tp.GridSearch(), hyper_lr=rates)
    return tp.Search(
        **setting.shared,
        hypers=setting.hypers,
        notes=after_question(__doc__),
        seeds=scale.pick(smoke=1, cpu=2, paper=3),
        arms=arms,
        figures=("scores", "hypers", "projections"),
    )
