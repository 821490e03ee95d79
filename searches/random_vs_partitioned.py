"""How many random-search trials does one run that learns its augmentation replace, on digits?

Search algorithms with many trials against methods that learn the same six ranges in one, at the
same steps a trial. Mlodozeniec et al. (2023, Figure 9 and appendix G) train 200 nets on 60,000
rotated MNIST images at random augmentation ranges (rotation up to pi, the five others up to 3),
average 20 augmentation samples, and compare the test accuracies with paths and end points of
partitioned runs and with standard nets retrained there. Here: 1,297 scikit-learn digits of 8 x 8
pixels, a net of 13,706 weights, 4 samples in training and 8 in scoring, a hyper rate scaled to the
shorter run. Trials are selected on 300 validation digits that random search does not train on; the
paper shows test accuracies of all trials. Added: ranges that a practitioner would choose (up to
0.5), TPE, ASHA and PBT on them, validation-set optimisation with and without fine-tuning, Augerino,
Laplace with Kronecker factors, last-layer marginal likelihood, the oracle, and a partitioned run
whose last quarter trains all weights on all data (`released`). Learnt ranges start at 0.3, and all
learners have the same reach. Every seed draws the data anew, for all arms the same.
"""

import tuneparts as tp
from studies.comparison import on_digits


def search(scale: tp.Scale) -> tp.Search:
    return on_digits(scale, reports=10).search(__doc__, scale=scale)
