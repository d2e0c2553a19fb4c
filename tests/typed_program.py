"""A program for type checkers, which is never run: `test_types.py` holds what mypy finds in it against the comments.

After `R` stands the type that is revealed, with `Vector` for the array type below, after `E` a part of the error.
"""

from __future__ import annotations

from typing import TypeAlias, reveal_type

import numpy as np
import numpy.typing as npt

from meintorch import Tensor, grad, stop_gradient, value_and_grad, vjp
from meintorch.func import checkpoint, custom_jvp, custom_vjp, hessian, jacfwd, jvp, linearize, primitive, ravel, vmap
from meintorch.testing import check_grads

Vector: TypeAlias = npt.NDArray[np.float64]


def energy(x: Vector, scale: float = 1.0) -> float:
    return float(np.sum(x**2) * scale)


def doubled(x: Vector) -> Vector:
    return 2 * x


@primitive(x=lambda g: 3 * g)
def tripled(x: Vector) -> Vector:
    return 3 * x


class Model:
    weight: float = 2.0

    @checkpoint
    def part(self, x: Vector) -> Vector:
        return self.weight * x


v = np.ones(3)

# What is made of a function takes its arguments, by name too.
reveal_type(grad(energy))  # R: Grad[[x: Vector, scale: float =], Any]
reveal_type(grad(grad(energy)))  # R: Grad[[x: Vector, scale: float =], Any]
reveal_type(hessian(energy))  # R: Jacobian[[x: Vector, scale: float =]]
reveal_type(vmap(doubled))  # R: Vmap[[x: Vector], Vector]
reveal_type(tripled)  # R: UserPrimitive[[x: Vector], Vector]
grad(energy)(v, scale=2.0)
grad(energy)("no array")  # E: expected "ndarray
grad(energy)(v, 1.0, 2.0)  # E: Too many arguments
grad(energy)(v, factor=2.0)  # E: Unexpected keyword argument "factor"
jacfwd(doubled)()  # E: Missing positional argument "x"
grad(energy, argnum=1)  # E: did you mean "argnums"?
grad(3.0)  # E: Argument 1 to "grad" has incompatible type "float"

# Values keep their types; a gradient is a tree like its argument, which no checker can spell.
reveal_type(value_and_grad(energy)(v))  # R: tuple[float, Any]
reveal_type(vmap(doubled)(v))  # R: Vector
reveal_type(checkpoint(doubled)(v))  # R: Vector
reveal_type(custom_vjp(doubled)(v))  # R: Vector
reveal_type(custom_jvp(doubled)(v))  # R: Vector
reveal_type(tripled(v))  # R: Vector
reveal_type(ravel({"w": v}))  # R: tuple[Any, Unravel]
check_grads(doubled, (v,), modes=("rev",), tolerance=0.1)  # E: Unexpected keyword argument "tolerance"
reveal_type(vjp(doubled, v))  # R: tuple[Vector, Pullback]
reveal_type(vjp(doubled, v)[1](v))  # R: tuple[Any, ...]
reveal_type(jvp(doubled, (v,), (v,)))  # R: tuple[Vector, Any]
reveal_type(linearize(doubled, v))  # R: tuple[Vector, Pushforward]
reveal_type(stop_gradient(doubled(v)))  # R: Vector
reveal_type(Tensor(3.0).grad)  # R: Array
