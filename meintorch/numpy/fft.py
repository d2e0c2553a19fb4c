"""`numpy.fft` under this name, for ``import meintorch.numpy.fft``."""

import sys

import numpy.fft

sys.modules[__name__] = numpy.fft
