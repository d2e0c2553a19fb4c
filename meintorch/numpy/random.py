"""`numpy.random` under this name, for ``import meintorch.numpy.random``."""

import sys

import numpy.random

sys.modules[__name__] = numpy.random
