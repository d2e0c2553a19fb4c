"""Derivatives by central differences of plain NumPy programs: what every rule is held against."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def outputs(out: Any) -> list[Any]:
    """Return the arrays of an output that may be one array or several."""
    return list(out) if isinstance(out, (tuple, list)) else [out]


def weights(shape: tuple[int, ...], seed: int) -> Array:
    """Draw reproducible weights."""
    return np.random.default_rng([seed, *shape]).normal(size=shape)


def weighted(call: Callable[..., Any], *, seed: int = 0) -> Callable[..., Any]:
    """Return the real function that weighs all real and imaginary parts of a call's outputs and adds them up."""

    def loss(*args: Any) -> Any:
        total: Any = 0.0
        for i, out in enumerate(outputs(call(*args))):
            if np.result_type(out).kind not in "fc":
                continue
            w = weights(np.shape(out), seed + 10 * i)
            if np.iscomplexobj(out):
                v = weights(np.shape(out), seed + 10 * i + 5)
                total = total + np.sum(np.real(out) * w) + np.sum(np.imag(out) * v)
            else:
                total = total + np.sum(out * w)
        return total

    return loss


def gradient(f: Callable[..., Any], args: Sequence[Array], step: float = 1e-6) -> list[Array]:
    """Return the gradient of a real function by central differences, df/dx - i df/dy for complex arguments.

    The step is halved once and the two results are extrapolated (Richardson), which removes the error's leading term.
    """
    return [
        (4 * fine - coarse) / 3
        for fine, coarse in zip(_differences(f, args, step), _differences(f, args, 2 * step), strict=True)
    ]


def _differences(f: Callable[..., Any], args: Sequence[Array], step: float) -> list[Array]:
    results = []
    for k, arg in enumerate(args):
        out = np.zeros_like(arg)
        for index in np.ndindex(*arg.shape):
            units = (1.0, 1j) if np.iscomplexobj(arg) else (1.0,)
            for unit in units:
                plus, minus = [a.copy() for a in args], [a.copy() for a in args]
                plus[k][index] += step * unit
                minus[k][index] -= step * unit
                slope = (float(f(*plus)) - float(f(*minus))) / (2 * step)
                out[index] += slope if unit == 1.0 else -1j * slope
        results.append(out)
    return results


def directional(f: Callable[..., Any], args: Sequence[Array], direction: Sequence[Array], step: float = 1e-5) -> float:
    """Return the derivative of a real function along a direction, by extrapolated central differences."""

    def slope(h: float) -> float:
        plus = f(*[a + h * d for a, d in zip(args, direction, strict=True)])
        minus = f(*[a - h * d for a, d in zip(args, direction, strict=True)])
        return float((plus - minus) / (2 * h))

    return (4 * slope(step) - slope(2 * step)) / 3
