"""Elementary functions: NumPy's ufuncs of one variable, and the few of two."""

from __future__ import annotations

from typing import Any

import numpy as np

from meintorch.core.batching import elementwise_batch
from meintorch.core.memory import bottom
from meintorch.core.primitive import composite, constant, elementwise, general

# ---------------------------------------------------------------- trigonometric

elementwise(np.sin, lambda x: np.cos(x))
elementwise(np.cos, lambda x: -np.sin(x))
elementwise(np.tan, lambda ans: 1 + ans * ans)
elementwise(np.arcsin, lambda x: 1 / np.sqrt((1 - x) * (1 + x)))
elementwise(np.arccos, lambda x: -1 / np.sqrt((1 - x) * (1 + x)))
elementwise(np.arctan, lambda x: 1 / (1 + x * x))
elementwise(np.degrees, lambda: 180 / np.pi)
elementwise(np.rad2deg, lambda: 180 / np.pi)
elementwise(np.radians, lambda: np.pi / 180)
elementwise(np.deg2rad, lambda: np.pi / 180)


def _nonzero(x: Any) -> Any:
    """The denominator of a derivative that counts as 0 where it is 0/0."""
    return np.where(x == 0, 1, x)


elementwise(np.hypot, lambda ans, x1: x1 / _nonzero(ans), lambda ans, x2: x2 / _nonzero(ans))
elementwise(
    np.arctan2,
    lambda x1, x2: x2 / _nonzero(x1 * x1 + x2 * x2),
    lambda x1, x2: -x1 / _nonzero(x1 * x1 + x2 * x2),
)


def _sinc_partial(x: Any) -> Any:
    """(cos(pi x) - sinc(x)) / x, by its series near 0, where the difference cancels."""
    small = np.abs(x) < 1e-3
    safe = np.where(small, 1, x)
    series = x * (-(np.pi**2) / 3 + x * x * (np.pi**4 / 30 - x * x * np.pi**6 / 840))
    return np.where(small, series, (np.cos(np.pi * safe) - np.sinc(safe)) / safe)


elementwise(np.sinc, x=lambda x: _sinc_partial(x))

# ---------------------------------------------------------------- hyperbolic

elementwise(np.sinh, lambda x: np.cosh(x))
elementwise(np.cosh, lambda x: np.sinh(x))
elementwise(np.tanh, lambda ans: 1 - ans * ans)
elementwise(np.arcsinh, lambda x: 1 / np.sqrt(x * x + 1))
elementwise(np.arccosh, lambda x: 1 / (np.sqrt(x - 1) * np.sqrt(x + 1)))
elementwise(np.arctanh, lambda x: 1 / ((1 - x) * (1 + x)))

# ---------------------------------------------------------------- exponential and logarithmic

_LOG2, _LOG10 = float(np.log(2)), float(np.log(10))

elementwise(np.exp, lambda ans: ans)
elementwise(np.exp2, lambda ans: ans * _LOG2)
elementwise(np.expm1, lambda x: np.exp(x))
elementwise(np.log, lambda x: 1 / x)
elementwise(np.log2, lambda x: 1 / (x * _LOG2))
elementwise(np.log10, lambda x: 1 / (x * _LOG10))
elementwise(np.log1p, lambda x: 1 / (1 + x))


def _softmax_of_two(ans: Any, x: Any) -> Any:
    """exp(x - ans), the share of x in logaddexp; one half each where both are -inf."""
    plain = bottom(ans)
    if plain.__class__ is np.ndarray and not (plain == -np.inf).any():
        return np.exp(x - ans)  # to choose takes longer than to subtract
    return np.exp(np.where(ans == -np.inf, -_LOG2, x - ans))


elementwise(np.logaddexp, lambda ans, x1: _softmax_of_two(ans, x1), lambda ans, x2: _softmax_of_two(ans, x2))
elementwise(
    np.logaddexp2,
    lambda ans, x1: _softmax_of_two(ans * _LOG2, x1 * _LOG2),
    lambda ans, x2: _softmax_of_two(ans * _LOG2, x2 * _LOG2),
)

# ---------------------------------------------------------------- floating point

elementwise(
    np.copysign,
    lambda g, ans, x1: np.where(np.signbit(ans) == np.signbit(x1), g, -g),
    lambda: 0,
)
elementwise(np.heaviside, lambda: 0, lambda x1: x1 == 0)
elementwise(np.nextafter, lambda: 1, lambda: 0)

elementwise(np.ldexp, lambda g, x2: np.ldexp(g, x2), None)


def _mantissa_vjp(g: Any, x: Any) -> Any:
    """Of frexp's mantissa x / 2**exponent; the exponent is a constant."""
    return np.ldexp(g[0], -np.frexp(x)[1])


def _modf_vjp(g: Any) -> Any:
    """Of modf's fraction; the whole part is a constant."""
    return g[0]


general(np.frexp, x=_mantissa_vjp)
general(np.modf, x=_modf_vjp)


@composite(np.real_if_close)
def _real_if_close(a: Any, tol: Any = 100) -> Any:
    a = a if a.shape else a[...]  # a scalar NumPy makes an array
    if a.dtype.kind != "c":
        return a
    if tol > 1:
        tol = np.finfo(a.dtype).eps * tol
    return np.real(a) if bool(np.all(np.abs(np.imag(a)) < tol)) else a


constant(np.signbit, np.spacing, np.isfinite, np.isinf, np.isnan)
constant(np.isposinf, np.isneginf, batch=elementwise_batch)
