"""Cases for rules/elementwise.py."""

import numpy as np

from tests.cases import Case, complexes, normal, positive, unit

x, p, u, z = normal(2, 3), positive(2, 3), unit(2, 3), complexes(2, 3)

CASES = [
    Case(fun, fun, (point,))
    for fun, point in (
        (np.sin, x),
        (np.cos, x),
        (np.tan, u),
        (np.arcsin, u),
        (np.arccos, u),
        (np.arctan, x),
        (np.degrees, x),
        (np.rad2deg, x),
        (np.radians, x),
        (np.deg2rad, x),
        (np.sinc, x),
        (np.sinh, x),
        (np.cosh, x),
        (np.tanh, x),
        (np.arcsinh, x),
        (np.arccosh, 1.1 + p),
        (np.arctanh, u),
        (np.exp, x),
        (np.exp2, x),
        (np.expm1, x),
        (np.log, p),
        (np.log2, p),
        (np.log10, p),
        (np.log1p, p),
    )
]
CASES += [
    Case(fun, fun, (z,), label="complex", tolerance=1e-5)
    for fun in (np.sin, np.cos, np.tan, np.sinh, np.cosh, np.tanh, np.exp, np.exp2, np.log, np.log1p, np.expm1)
]
CASES += [
    Case(fun, fun, (complexes(2, 3, seed=3),), label="complex", tolerance=1e-5)
    for fun in (np.arcsin, np.arccos, np.arctan, np.arcsinh, np.arccosh, np.arctanh, np.log2, np.log10)
]
CASES += [
    Case(np.exp, lambda v: np.exp(v, dtype=np.float64), (x,), label="dtype="),
    Case(np.sin, np.sin, (np.array(0.3),), label="0-d"),
    Case(np.sin, np.sin, (np.zeros((0, 2)),), label="size 0"),
    Case(np.sin, np.sin, (x.T[::-1],), label="strided"),
    Case(np.sinc, np.sinc, (np.array([0.0, 1e-4, -5e-4, 2e-3]),), label="near 0"),
    Case(np.hypot, np.hypot, (x, normal(3, seed=1))),
    Case(np.arctan2, np.arctan2, (x, normal(3, seed=1))),
    Case(np.arctan2, lambda v: np.arctan2(v, 0.5), (x,), label="constant"),
    Case(np.logaddexp, np.logaddexp, (x, normal(3, seed=1))),
    Case(np.logaddexp, lambda v: np.logaddexp(0.0, v), (x,), label="softplus"),
    Case(np.logaddexp2, np.logaddexp2, (x, normal(3, seed=1))),
    Case(np.copysign, np.copysign, (x, normal(3, seed=1))),
    Case(np.heaviside, lambda v: np.heaviside(np.array([0.0, 1.0, -1.0]), v), (normal(3),)),
    Case(np.nextafter, lambda v: np.nextafter(v, 9.0), (x,), tolerance=1e-5),
    Case(np.heaviside, np.heaviside, (np.array([0.5, -1.0, 2.0]), normal(3))),
    Case(np.nextafter, np.nextafter, (x, normal(3)), label="both", tolerance=1e-5),
    Case(np.ldexp, lambda v: np.ldexp(v, np.array([1, -2, 3])), (x,)),
    Case(np.frexp, lambda v: np.frexp(v)[0] * v, (5 * p,)),
    Case(np.modf, lambda v: np.modf(v)[0] * v, (5 * p,)),
    Case(np.modf, lambda v: np.modf(v)[0] + np.modf(v)[1], (-5 * p,), label="both parts"),
    Case(np.real_if_close, np.real_if_close, (x,)),
    Case(np.real_if_close, np.real_if_close, (z,), label="complex"),
    Case(np.real_if_close, lambda v: np.real_if_close(v + 1e-18j), (x,), label="close"),
]
