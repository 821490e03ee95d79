from tuneparts.methods.superweights.fitted import FittedEnsemble as FittedEnsemble
from tuneparts.methods.superweights.fitted import Sizes as Sizes
from tuneparts.methods.superweights.fitted import fit as fit
