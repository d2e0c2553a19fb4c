"""The transforms: functions of NumPy programs that return functions or derivatives in plain NumPy."""

from meintorch.func.forward import jvp as jvp
from meintorch.func.forward import linearize as linearize
from meintorch.func.reverse import grad as grad
from meintorch.func.reverse import stop_gradient as stop_gradient
from meintorch.func.reverse import value_and_grad as value_and_grad
from meintorch.func.reverse import vjp as vjp

__all__ = ["grad", "jvp", "linearize", "stop_gradient", "value_and_grad", "vjp"]
