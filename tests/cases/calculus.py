"""Cases for rules/calculus.py."""

import numpy as np

from tests.cases import Case, complexes, distinct, normal, positive
from tests.cases.shaping import both

p, x, z, v = positive(2, 3), normal(4, 5), complexes(2, 3), normal(5)
zeros = np.array([[2.0, 0.0, 3.0, -1.0], [0.0, 5.0, 0.0, 2.0], [1.5, 2.0, 4.0, 0.0]])
holes = np.array([[False, True, False], [True, False, False]])
uneven, even, rising = np.array([0.0, 0.3, 1.0, 1.6, 2.5]), np.arange(5) * 0.5, np.cumsum(positive(4))
knots, points = np.array([0.0, 1.0, 2.5, 3.1]), np.array([0.2, 0.9, 1.7, 3.0])
wide, steps = np.array([[-0.5, 0.2], [3.4, 1.7]]), np.array([0.1, 2.0, -1.9, 7.0, 3.0])
odd = np.array([1.5, np.nan, np.inf, -np.inf])


def missing(call):
    """Put NaN into the argument."""
    return lambda a: call(np.where(holes, np.nan, a))


def endless(call):
    """Put NaN and infinities into the argument."""
    return lambda a: call(np.where(np.isfinite(odd), a, odd))


CASES = [
    # cumulative products and sums
    Case(np.cumprod, np.cumprod, (p,)),
    Case(np.cumprod, lambda a: np.cumprod(a, axis=0), (zeros,), label="zeros, axis"),
    Case(np.cumprod, lambda a: a.cumprod(-1), (zeros,), label="zeros, method"),
    Case(np.cumprod, np.cumprod, (np.array([2.0, 0.0, 3.0, 4.0, 5.0]),), label="one zero"),
    Case(np.cumprod, np.cumprod, (np.array([2.0, 0.0, 0.0, 4.0, 0.0, 5.0, 3.0]),), label="zeros, odd length"),
    Case(np.cumprod, lambda a: np.cumprod(a, 1), (z,), label="complex"),
    Case(np.cumprod, lambda a: np.cumprod(a, 1, dtype=np.float64), (p,), label="dtype="),
    Case(np.cumprod, np.cumprod, (np.array(1.5),), label="0-d"),
    Case(np.cumprod, np.cumprod, (np.zeros((2, 0)),), label="size 0"),
    Case(np.multiply.accumulate, np.multiply.accumulate, (p,)),
    Case(np.multiply.accumulate, lambda a: np.multiply.accumulate(a, axis=1), (zeros,), label="zeros, axis"),
    *both(np.nancumsum, missing(np.nancumsum), p),
    *both(np.nancumsum, missing(lambda a: np.nancumsum(a, axis=1, dtype=np.float64)), p, label="axis, dtype="),
    Case(np.nancumprod, missing(np.nancumprod), (p,)),
    Case(np.nancumprod, missing(lambda a: np.nancumprod(a, axis=-1)), (p,), label="axis"),
    # differences and integrals
    *both(np.gradient, np.gradient, v),
    *both(np.gradient, np.gradient, x, label="matrix"),
    *both(np.gradient, lambda a: np.gradient(a, edge_order=2), x, label="matrix, edge_order"),
    *both(np.gradient, lambda a: np.gradient(a, axis=-1), x, label="axis"),
    *both(np.gradient, lambda a: np.gradient(a, 2, axis=(1, 0)), x, label="number, axes"),
    *both(np.gradient, lambda a, h: np.gradient(a, h), v, np.array(0.7), label="step"),
    *both(
        np.gradient, lambda a, h: np.gradient(a, h, 0.5, edge_order=2), x, np.array(0.7), label="two steps, edge_order"
    ),
    *both(np.gradient, lambda a, h: np.gradient(a, h), v, uneven, label="coordinates"),
    *both(np.gradient, lambda a, h: np.gradient(a, h, edge_order=2), v, uneven, label="coordinates, edge_order"),
    *both(np.gradient, lambda a, h: np.gradient(a, h), v, even, label="even coordinates"),
    *both(np.gradient, lambda h: np.gradient(v, h, edge_order=2), even, label="even coordinates alone, edge_order"),
    *both(np.gradient, lambda a: np.gradient(a, even, axis=1, edge_order=2), x, label="plain even coordinates"),
    *both(np.gradient, lambda a, h: np.gradient(a, 2.0, h), x, uneven, label="step and coordinates"),
    *both(np.gradient, lambda a: np.gradient(a, [0, 1, 3, 4, 6]), complexes(5), label="complex, list of coordinates"),
    *both(np.gradient, np.gradient, np.asfortranarray(x), label="from Fortran order"),
    *both(np.gradient, np.gradient, v[:2], label="two entries"),
    *both(np.trapezoid, np.trapezoid, x[0]),
    *both(np.trapezoid, lambda y, x: np.trapezoid(y, x), v[:4], rising, label="coordinates"),
    *both(np.trapezoid, lambda y, x: np.trapezoid(y, x, axis=0), x, rising, label="coordinates, axis"),
    *both(np.trapezoid, lambda y, x: np.trapezoid(y, x), x, np.cumsum(positive(4, 5), 1), label="matrices"),
    *both(np.trapezoid, lambda y, h: np.trapezoid(y, dx=h, axis=-2), x, np.array(0.3), label="dx, axis"),
    *both(np.trapezoid, lambda x: np.trapezoid([1.0, 3.0, 2.0, 5.0], x), rising, label="coordinates alone"),
    # interpolation
    *both(np.interp, lambda x, fp: np.interp(x, knots, fp), points, v[:4]),
    *both(np.interp, lambda x, xp, fp: np.interp(x, xp, fp), points, knots, v[:4], label="all"),
    *both(np.interp, lambda x, xp, fp: np.interp(x, xp, fp), wide, knots, v[:4], label="matrix, beyond the ends"),
    *both(np.interp, lambda x, fp: np.interp(x, knots, fp, 2.0, -1.0), wide, v[:4], label="ends given"),
    *both(np.interp, lambda x: np.interp(x, knots, v[:4], left=x[0, 0], right=x[1, 1]), wide, label="ends traced"),
    *both(
        np.interp,
        lambda x, xp, fp: np.interp(x, xp, fp, period=3.0),
        np.array([-5.2, 0.2, 4.4, 1.9]),
        np.array([1.0, 0.3, 5.1, -4.4]),
        v[:4],
        label="period",
    ),
    *both(np.interp, lambda x, xp, fp: np.interp(x, xp, fp), np.array(0.4), knots, complexes(4), label="0-d, complex"),
    *both(np.interp, lambda fp: np.interp([0.0, 1.0, 3.1], knots, fp), v[:4], label="at the knots"),
    *both(np.interp, lambda x, fp: np.interp(x, [1.0], fp), wide, np.array([2.0]), label="one knot"),
    *both(np.unwrap, np.unwrap, steps),
    *both(np.unwrap, lambda a: np.unwrap(a, 4.0, 0), 3 * x, label="discont, axis"),
    *both(np.unwrap, lambda a: np.unwrap(a, axis=-2, period=3.0), x, label="period, axis"),
    # numbers
    *both(np.nan_to_num, np.nan_to_num, v),
    *both(np.nan_to_num, endless(lambda a: np.nan_to_num(a, posinf=2.0, neginf=-2.0)), v[:4], label="infinities"),
    *both(np.nan_to_num, endless(lambda a: np.nan_to_num(a, nan=1.0, posinf=2.0, neginf=3.0)), v[:4], label="options"),
    *both(np.nan_to_num, lambda a: np.nan_to_num(a, copy=True), np.array(0.3), label="0-d"),
    *both(
        np.nan_to_num,
        lambda a: np.nan_to_num(np.where([True, False, False], a, [0, complex(np.nan, 1.0), complex(2.0, np.nan)])),
        complexes(3),
        label="complex",
    ),
    Case(np.i0, np.i0, (v,)),
    Case(np.i0, np.i0, (np.array([[9.0, -12.0], [0.0, 8.0]]),), label="large, zero", tolerance=1e-5),
    # polynomials
    *both(np.polyadd, np.polyadd, v, v[:3]),
    *both(np.polyadd, np.polyadd, v[:2], x[1], label="longer"),
    *both(np.polyadd, lambda a: np.polyadd(a, [1, 2, 3]), v[:3], label="list"),
    *both(np.polysub, np.polysub, v, v[:3]),
    *both(np.polysub, np.polysub, v[:2], x[1], label="longer"),
    *both(np.polymul, np.polymul, v, v[:3]),
    *both(np.polymul, lambda a: np.polymul([0, 2, 1], a), z[0], label="leading zero, complex"),
    *both(np.polydiv, np.polydiv, v, p[0]),
    *both(np.polydiv, np.polydiv, v[:2], p[0], label="shorter"),
    *both(np.polydiv, np.polydiv, v, p[0, :1], label="by a number"),
    *both(np.polyder, np.polyder, v),
    *both(np.polyder, lambda a: np.polyder(a, 2), v, label="twice"),
    *both(np.polyder, lambda a: np.polyder(a, 0), v, label="not at all"),
    *both(np.polyint, np.polyint, v),
    *both(np.polyint, lambda a: np.polyint(a, 2, k=[3, 4]), v, label="twice, constants"),
    *both(np.polyint, lambda a: np.polyint(a, 2, a[1]), v, label="twice, traced constant"),
    *both(np.polyfit, lambda y: np.polyfit(knots, y, 2), v[:4]),
    *both(np.polyfit, lambda x, y: np.polyfit(x, y, 2), points, v[:4], label="x and y"),
    *both(np.polyfit, lambda x, y, w: np.polyfit(x, y, 1, w=w), points, v[:4], positive(4), label="weights"),
    *both(np.polyfit, lambda x, y: np.polyfit(x, y, 1), points, x, label="columns"),
    *both(np.polyfit, lambda x, y, w: np.polyfit(x, y, 2, w=w), points, x, positive(4), label="columns, weights"),
    *both(np.polyfit, lambda y: np.polyfit(knots, y, 1, w=[1, 2, 1, 3]), complexes(4), label="complex data"),
    *both(np.polyfit, lambda x, y: np.polyfit(x, y, 1, full=True)[:2], points, v[:4], label="full"),
    *both(np.polyfit, lambda x, y: np.polyfit(x, y, 1, cov=True), points, v[:4], label="cov"),
    *both(np.polyfit, lambda x, y: np.polyfit(x, y, 1, cov="unscaled"), points, x, label="columns, cov"),
    *both(np.poly, np.poly, v[:3]),
    *both(np.poly, np.poly, z[0], label="complex"),
    *both(np.poly, np.poly, normal(3, 3), label="matrix"),
    Case(np.roots, lambda a: np.abs(np.roots(a)) ** 2, (np.array([1.0, -6.0, 11.0, -6.3]),)),
    Case(np.roots, np.roots, (np.array([2.0, 1.0, 3.0]),), label="complex roots"),
    Case(
        np.roots,
        lambda a: np.roots(np.concatenate([[0.0], a])),
        (np.array([1.0, -6.0, 11.0, -6.0]),),
        label="leading zero",
    ),
    Case(np.roots, np.roots, (complexes(4),), label="complex", tolerance=1e-5),
    *both(np.vander, lambda a: np.vander(a, 4), v),
    *both(np.vander, np.vander, v[:3], label="square"),
    *both(np.vander, lambda a: np.vander(a, N=3, increasing=True), z[0], label="increasing, complex"),
    *both(np.vander, lambda a: np.vander(a, 1), v, label="ones"),
    # sequences between two ends
    *both(np.linspace, lambda a, b: np.linspace(a, b, 5), np.array(0.3), np.array(1.7)),
    *both(np.linspace, lambda a, b: np.linspace(a, b, 4, False), np.array(0.3), np.array(1.7), label="no end"),
    *both(np.linspace, lambda a, b: np.linspace(a, b, 4, retstep=True), v[:3], p[0], label="retstep"),
    *both(np.linspace, lambda a, b: np.linspace(a, b, num=3, axis=-1), p, v[:3], label="broadcast, last axis"),
    *both(np.linspace, lambda a, b: np.linspace(a, b, num=3, axis=1), p, v[:3], label="broadcast, axis"),
    *both(np.linspace, lambda a: np.linspace(0, a, 6), z, label="one end, complex"),
    *both(np.linspace, lambda a: np.linspace(a, 2.0, 1), v[:2], label="one point"),
    *both(np.linspace, lambda a: np.linspace(a, 2.0, 3, dtype=np.float64), v[:2], label="dtype="),
    *both(np.logspace, lambda a, b: np.logspace(a, b, 5), np.array(0.3), np.array(0.7)),
    *both(np.logspace, lambda a, b: np.logspace(a, b, 3, base=2.0, axis=1), v[:2], p[0, :2], label="base, axis"),
    *both(np.logspace, lambda a, b: np.logspace(a, 1.0, 3, False, base=b), v[:2], p[0, :2], label="traced bases"),
    *both(np.geomspace, lambda a, b: np.geomspace(a, b, 5), np.array(0.3), np.array(0.7)),
    *both(np.geomspace, lambda a, b: np.geomspace(-a, -b, 4, axis=-1), p, p[0], label="negative, axis"),
    *both(np.geomspace, lambda a, b: np.geomspace(a, b, 4, endpoint=False), p, p[0], label="no end"),
    *both(np.geomspace, lambda a, b: np.geomspace(a, b, 1), p, p[0], label="one point"),
    *both(np.apply_over_axes, lambda a: np.apply_over_axes(np.sum, a, (0, -1)), normal(2, 3, 4)),
    *both(np.apply_over_axes, lambda a: np.apply_over_axes(np.max, a, 1), distinct(2, 3), label="one axis"),
]
if hasattr(np, "cumulative_sum"):  # since NumPy 2.1
    CASES += [
        *both(np.cumulative_sum, np.cumulative_sum, v),
        *both(np.cumulative_sum, lambda a: np.cumulative_sum(a, axis=-1, include_initial=True), x, label="initial"),
        Case(np.cumulative_prod, np.cumulative_prod, (v,)),
        Case(
            np.cumulative_prod, lambda a: np.cumulative_prod(a, axis=0, include_initial=True), (zeros,), label="initial"
        ),
    ]
