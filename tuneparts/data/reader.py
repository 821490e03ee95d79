"""What reader processes are forked from; imported by their server alone, see `device_examples`.

A page of memory is shared with the server until somebody writes to it. What readers would import
is therefore imported here, once for all of them, and what is here is hidden from the garbage
collector, which would write to every object.
"""

import gc

from PIL import Image

from tuneparts.data import config, device_examples  # noqa: F401

Image.init()  # imports all decoders
gc.collect()
gc.freeze()
