"""The transforms: functions of NumPy programs that return functions or derivatives in plain NumPy."""

from meintorch.func.batching import vmap as vmap
from meintorch.func.custom import checkpoint as checkpoint
from meintorch.func.custom import custom_jvp as custom_jvp
from meintorch.func.custom import custom_vjp as custom_vjp
from meintorch.func.custom import primitive as primitive
from meintorch.func.drawing import draw as draw
from meintorch.func.forward import jvp as jvp
from meintorch.func.forward import linearize as linearize
from meintorch.func.implicit import fixed_point as fixed_point
from meintorch.func.implicit import root as root
from meintorch.func.jacobians import gauss_newton_product as gauss_newton_product
from meintorch.func.jacobians import hessian as hessian
from meintorch.func.jacobians import hvp as hvp
from meintorch.func.jacobians import jacfwd as jacfwd
from meintorch.func.jacobians import jacobian as jacobian
from meintorch.func.jacobians import jacrev as jacrev
from meintorch.func.reverse import grad as grad
from meintorch.func.reverse import stop_gradient as stop_gradient
from meintorch.func.reverse import value_and_grad as value_and_grad
from meintorch.func.reverse import vjp as vjp
from meintorch.func.trees import ravel as ravel
from meintorch.tree import register_pytree_node as register_pytree_node

__all__ = [
    "checkpoint",
    "custom_jvp",
    "custom_vjp",
    "draw",
    "fixed_point",
    "gauss_newton_product",
    "grad",
    "hessian",
    "hvp",
    "jacfwd",
    "jacobian",
    "jacrev",
    "jvp",
    "linearize",
    "primitive",
    "ravel",
    "register_pytree_node",
    "root",
    "stop_gradient",
    "value_and_grad",
    "vjp",
    "vmap",
]
