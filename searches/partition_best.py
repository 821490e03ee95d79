"""Is the best form of partitioned training as good as validation-set optimisation, on digits?

The form was fixed under other seeds by `partition_forms` before this was run. Setting and steps of
`random_vs_partitioned`. `partitioned_best` has three chunks (0.8, 0.1, 0.1) but 94 of 100 hidden
units in the first partition, mixed batches, joint steps with a fifth of the batch for the
hyperparameters, and a last quarter of ordinary training. `validation_best` has a hyper step after
every fourth update and the same last quarter. Every seed draws the data anew; the intervals of the
verdict are paired over seeds. `tuneparts extend` adds seeds.
"""

import tuneparts as tp
from studies.comparison import on_digits
from studies.forms import verdict


def search(scale: tp.Scale) -> tp.Search:
    return verdict(on_digits(scale, reports=4), __doc__, scale=scale)
