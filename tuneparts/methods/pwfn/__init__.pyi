from tuneparts.methods.pwfn.codefile import Compressed as Compressed
from tuneparts.methods.pwfn.codefile import compress as compress
from tuneparts.methods.pwfn.codefile import load as load
