"""Hyperparameters: what a prediction depends on besides the net, learnt or given. Without torch.

`hyper` says what a hyperparameter is, `kinds` has ours, `config` puts them together; `hypers`
predicts with a net under them.
"""

from tuneparts.core import lazy

__getattr__, __all__ = lazy.attach(__file__, __name__)
