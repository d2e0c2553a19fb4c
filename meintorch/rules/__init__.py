"""The rows: what the derivative of each NumPy function is, in plain NumPy, one family a file."""

from meintorch.rules import arithmetic as arithmetic
from meintorch.rules import calculus as calculus
from meintorch.rules import elementwise as elementwise
from meintorch.rules import factorisations as factorisations
from meintorch.rules import fft as fft
from meintorch.rules import indexing as indexing
from meintorch.rules import matrices as matrices
from meintorch.rules import products as products
from meintorch.rules import reductions as reductions
from meintorch.rules import shaping as shaping
from meintorch.rules import sorting as sorting
from meintorch.rules import special as special
from meintorch.rules import structural as structural
from meintorch.rules import writing as writing
