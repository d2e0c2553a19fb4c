"""meintorch: derivatives of programs written in plain NumPy, with nothing but NumPy."""

__version__ = "0.1.0"

from meintorch import func as func
from meintorch import rules as rules
from meintorch.func import grad as grad
from meintorch.func import stop_gradient as stop_gradient
from meintorch.func import value_and_grad as value_and_grad
from meintorch.func import vjp as vjp
from meintorch.tensor import Tensor as Tensor
from meintorch.tensor import as_tensor as as_tensor

__all__ = ["Tensor", "as_tensor", "func", "grad", "stop_gradient", "value_and_grad", "vjp"]
