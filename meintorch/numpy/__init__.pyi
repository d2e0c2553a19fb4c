# To type checkers and editors the module is NumPy.
from numpy import *  # noqa: F403
