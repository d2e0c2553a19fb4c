"""Arithmetic: the operators of Python and NumPy's ufuncs for them, selection by comparison, and complex parts."""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

from meintorch.core.batching import BatchCall, elementwise_batch
from meintorch.core.memory import multiplied
from meintorch.core.primitive import composite, constant, elementwise, linear, registry, spelling, structural
from meintorch.core.shapes import dtype_of, select
from meintorch.core.trace import bind
from meintorch.errors import NoRuleError

# ---------------------------------------------------------------- operators


def _power_by_base(x1: Any, x2: Any) -> Any:
    """x2 * x1**(x2 - 1); 0 for x2 = 0, also at x1 = 0."""
    if x2.__class__ is int or x2.__class__ is float:
        if x2 == 2:
            return 2 * x1
        return x2 * x1 ** (x2 - 1) if x2 else np.zeros_like(x1)
    # Only where both are 0 is the base replaced: elsewhere the product depends on x2, also at x2 = 0.
    return x2 * np.where((x1 == 0) & (x2 == 0), 1, x1) ** (x2 - 1)


def _power_by_exponent(ans: Any, x1: Any) -> Any:
    """Ans * log(x1); 0 at x1 = 0, around which 0**x2 is constant for positive x2."""
    if x1.__class__ is int or x1.__class__ is float:
        return ans * float(np.log(x1 or 1))  # a Python number, which leaves other dtypes as they are
    return ans * np.log(np.where(x1 == 0, 1, x1))


def _reciprocal(x2: Any) -> Any:
    """1 / x2, also of a Python 0, by which a program may divide an array."""
    try:
        return 1 / x2
    except ZeroDivisionError:
        return math.copysign(math.inf, x2)


elementwise(np.add, lambda: 1, lambda: 1, dead="all")
elementwise(np.subtract, lambda: 1, lambda: -1, dead="all")
elementwise(np.multiply, lambda x2: x2, lambda x1: x1, dead="any")
elementwise(np.divide, _reciprocal, lambda ans, x2: -ans / x2, dead="any")
elementwise(np.power, _power_by_base, _power_by_exponent)
elementwise(np.float_power, _power_by_base, _power_by_exponent)
elementwise(np.remainder, lambda: 1, lambda x1, x2: -np.floor_divide(x1, x2))
elementwise(np.fmod, lambda: 1, lambda ans, x1, x2: -np.rint((x1 - ans) / x2))
elementwise(np.negative, lambda: -1, dead="any")
elementwise(np.positive, lambda: 1, dead="any")
elementwise(np.square, lambda x: 2 * x)
elementwise(np.sqrt, lambda ans: 0.5 / ans)
elementwise(np.cbrt, lambda ans: 1 / (3 * ans * ans))
elementwise(np.reciprocal, lambda ans: -ans * ans)


def _absolute_vjp(g: Any, ans: Any, x: Any) -> Any:
    """Sign of x; for a complex x the conjugate of its direction; 0 at 0."""
    if x.dtype.kind != "c":
        return np.sign(x) * g
    return g * np.conjugate(x) / np.where(ans == 0, 1, ans)


elementwise(np.absolute, _absolute_vjp)
elementwise(np.fabs, lambda x: np.sign(x))

constant(np.floor_divide, batch=elementwise_batch)
constant(np.floor, np.ceil, np.trunc, np.rint)


def real_sign(x: Any, **options: Any) -> Any:
    """The sign of real numbers, which is piecewise constant."""
    return np.sign(x, **options)


constant(real_sign, batch=elementwise_batch)


@composite(np.sign)
def _sign(x: Any, **options: Any) -> Any:
    if dtype_of(x).kind == "c":  # z / abs(z), which turns with z
        raise NoRuleError("np.sign has no derivative rule for complex numbers. Write x / np.abs(x) instead.")
    return bind(registry[real_sign], (x,), options)


constant(np.fix, np.round, np.around, batch=elementwise_batch)

for _operator, _ufunc, _symbol in (
    (operator.add, np.add, "+"),
    (operator.sub, np.subtract, "-"),
    (operator.mul, np.multiply, "*"),
    (operator.truediv, np.divide, "/"),
    (operator.floordiv, np.floor_divide, "//"),
    (operator.mod, np.remainder, "%"),
    (operator.pow, np.power, "**"),
    (operator.neg, np.negative, "-"),
    (operator.pos, np.positive, "+"),
    (operator.abs, np.absolute, "abs"),
):
    spelling(_operator, _ufunc, _symbol)
spelling(multiplied, np.multiply, "*")


@composite(np.divmod)
def _divmod(x1: Any, x2: Any) -> Any:
    return np.floor_divide(x1, x2), np.remainder(x1, x2)


# ---------------------------------------------------------------- selection
# The choice is written with np.where and a literal 0: an entry that was not chosen contributes nothing, whatever g is.


def _shared(g: Any, wins: Any, ties: Any) -> Any:
    """The cotangent of one of two competitors: all of it if it wins, one half if they are equal."""
    chosen = select(wins, g)
    if ties.__class__ is np.ndarray and not ties.any():
        return chosen
    return np.where(ties, 0.5 * g, chosen)


for _larger in (np.maximum, np.fmax):
    elementwise(
        _larger,
        lambda g, x1, x2: _shared(g, x1 > x2, x1 == x2),
        lambda g, x1, x2: _shared(g, x2 > x1, x1 == x2),
    )
for _smaller in (np.minimum, np.fmin):
    elementwise(
        _smaller,
        lambda g, x1, x2: _shared(g, x1 < x2, x1 == x2),
        lambda g, x1, x2: _shared(g, x2 < x1, x1 == x2),
    )


def _where_batch(call: BatchCall) -> Any:
    # np.where(condition) alone is np.nonzero: places, and how many there are is another matter for each example
    return elementwise_batch(call) if len(call.args) > 1 else None


linear(
    np.where,
    batch=_where_batch,
    dead="all",
    signature="condition, x=None, y=None, /",
    x=lambda g, condition: select(condition, g),
    y=lambda g, condition: np.where(condition, 0, g),
)


def _bounds(a_min: Any, a_max: Any, min: Any, max: Any) -> tuple[Any, Any]:
    """The bounds of np.clip under either of their names; infinite where not given."""
    low = min if a_min is None else a_min
    high = max if a_max is None else a_max
    return -np.inf if low is None else low, np.inf if high is None else high


def _clip_a(g: Any, a: Any, a_min: Any, a_max: Any, min: Any, max: Any) -> Any:
    low, high = _bounds(a_min, a_max, min, max)
    return np.where((low <= a) & (a <= high), g, 0)


def _clip_low(g: Any, a: Any, a_min: Any, a_max: Any, min: Any, max: Any) -> Any:
    low, high = _bounds(a_min, a_max, min, max)
    return np.where((a < low) & (low <= high), g, 0)


def _clip_high(g: Any, a: Any, a_min: Any, a_max: Any, min: Any, max: Any) -> Any:
    low, high = _bounds(a_min, a_max, min, max)
    return np.where((a > high) | (low > high), g, 0)


_clip_names: dict[str, Any] = {}
if np.lib.NumpyVersion(np.__version__) >= "2.1.0":  # which gave the bounds their second names
    _clip_names = {"min": _clip_low, "max": _clip_high}
elementwise(
    np.clip,
    signature="a, a_min=None, a_max=None, out=None, *, min=None, max=None, **kwargs",
    a=_clip_a,
    a_min=_clip_low,
    a_max=_clip_high,
    **_clip_names,
)

# ---------------------------------------------------------------- complex numbers
# A vector-Jacobian product is the plain transpose: grad of a real function of z = x + iy is df/dx - i df/dy.


def _angle_vjp(g: Any, z: Any, deg: Any) -> Any:
    """Im(conj(z) dz) / abs(z)**2; 0 at 0."""
    scale = 180 / np.pi if deg else 1
    if z_is_real(z):
        return g * 0
    size = np.real(z) ** 2 + np.imag(z) ** 2
    return g * (-1j * scale) * np.conjugate(z) / np.where(size == 0, 1, size)


def z_is_real(z: Any) -> bool:
    """Tell whether an array's dtype is real."""
    return bool(z.dtype.kind != "c")


def _real_vjp(g: Any, val_dtype: Any) -> Any:
    return g.astype(val_dtype)


def _imag_vjp(g: Any, val_dtype: Any) -> Any:
    # g on the left: a Python complex times an np.float64 is a Python complex, without a dtype
    return (g * -1j).astype(val_dtype) if val_dtype.kind == "c" else g * 0


linear(np.conjugate, dead="any", batch=elementwise_batch, x=lambda g: np.conjugate(g))
linear(np.real, dead="any", batch=elementwise_batch, val=_real_vjp)
linear(np.imag, dead="any", batch=elementwise_batch, val=_imag_vjp)
elementwise(np.angle, z=_angle_vjp)
constant(np.isreal, np.iscomplex, batch=elementwise_batch)
structural(np.iscomplexobj, np.isrealobj)
