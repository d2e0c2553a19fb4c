"""Cases for rules/arithmetic.py."""

import operator

import numpy as np

from tests.cases import Case, complexes, normal, positive

x, y, row, column = normal(2, 3), normal(2, 3, seed=1), normal(3, seed=2), normal(2, 1, seed=3)
p, q = positive(2, 3), positive(3, seed=1)
z, w = complexes(2, 3), complexes(3, seed=1)
mask = np.array([[True, False, True], [False, False, True]])

CASES = []

for symbol, fun, ufunc, a, b in (
    ("+", operator.add, np.add, x, row),
    ("-", operator.sub, np.subtract, x, row),
    ("*", operator.mul, np.multiply, x, row),
    ("/", operator.truediv, np.divide, x, q),
    ("**", operator.pow, np.power, p, row),
    ("%", operator.mod, np.remainder, 5 * p, q),
):
    CASES += [
        Case(fun, fun, (a, b), label="row"),
        Case(fun, fun, (abs(b) + 0.1, a), label="row on the left"),
        Case(fun, fun, (a, positive(2, 1, seed=5)), label="column"),
        Case(fun, fun, (a, positive(2, 3, seed=6)), label="same shape"),
        Case(fun, fun, (np.array(1.3), np.array(0.7)), label="0-d"),
        Case(fun, fun, (np.array(1.3), a), label="0-d and array"),
        Case(fun, lambda u, f=fun: f(f(u, 1.25), np.array(0.75)), (a,), label="constants on the right"),
        Case(fun, lambda u, f=fun: f(1.25, f(np.float64(0.75), u)), (abs(b) + 0.3,), label="constants on the left"),
        Case(fun, lambda u, f=fun: f(np.array([2.0, 0.5, 1.5]), u), (abs(a),), label="array on the left"),
        Case(fun, lambda u, f=fun: f(u, u), (abs(a) + 0.2,), label="with itself", tolerance=1e-5),
        Case(fun, fun, (np.zeros((0, 3)), b), label="size 0"),
        Case(ufunc, ufunc, (a, b), label="ufunc"),
        Case(ufunc, lambda u, f=ufunc: f(1.25, u), (abs(b) + 0.3,), label="ufunc, constant on the left"),
        Case(ufunc, lambda u, f=ufunc: f(u, np.array([2.0, 0.5, 1.5])), (a,), label="ufunc, array on the right"),
        Case(ufunc, lambda u, v, f=ufunc: f(u, v, dtype=np.float64), (a, b), label="dtype="),
    ]
    if symbol != "%":
        c, d = complexes(2, 3, seed=1) + 2, complexes(3, seed=2) + 2
        CASES += [
            Case(fun, fun, (c, d), label="complex", tolerance=1e-5),
            Case(fun, fun, (abs(c), d), label="real and complex", tolerance=1e-5),
            Case(fun, lambda u, f=fun: f(u, 1.5 + 0.5j), (abs(d),), label="complex constant", tolerance=1e-5),
        ]

CASES += [
    Case(operator.pow, lambda u: u**2, (x,), label="square"),
    Case(operator.pow, lambda u: u**3, (x,), label="cube"),
    Case(operator.pow, lambda u: u**-2, (p,), label="negative"),
    Case(operator.pow, lambda u: u**0, (x,), label="zero"),
    Case(operator.pow, lambda u: u**0.5, (p,), label="root"),
    Case(operator.pow, lambda u: u ** np.array([0, 1, 2]), (x,), label="integer array"),
    Case(operator.pow, lambda u: 2.0**u, (x,), label="base 2"),
    Case(operator.pow, lambda u: u**2, (z,), label="complex square"),
    Case(np.float_power, np.float_power, (p, row)),
    Case(np.fmod, np.fmod, (5 * p, q)),
    Case(np.fmod, np.fmod, (-5 * p, q), label="negative"),
    Case(np.remainder, np.remainder, (-5 * p, q), label="negative"),
    Case(np.divmod, np.divmod, (5 * p, q)),
    Case(np.divmod, lambda u: divmod(u, 0.7), (5 * p,), label="operator"),
    Case(operator.neg, operator.neg, (x,)),
    Case(operator.pos, operator.pos, (x,)),
    Case(operator.abs, abs, (x,)),
    Case(np.negative, np.negative, (x,)),
    Case(np.positive, np.positive, (x,)),
    Case(np.square, np.square, (x,)),
    Case(np.square, np.square, (z,), label="complex"),
    Case(np.sqrt, np.sqrt, (p,)),
    Case(np.sqrt, np.sqrt, (z,), label="complex"),
    Case(np.cbrt, np.cbrt, (x,)),
    Case(np.reciprocal, np.reciprocal, (p,)),
    Case(np.absolute, np.abs, (x,)),
    Case(np.absolute, np.abs, (z,), label="complex"),
    Case(np.fabs, np.fabs, (x,)),
    Case(np.sign, lambda u: np.sign(u) * u, (x,)),
    Case(np.maximum, np.maximum, (x, row)),
    Case(np.maximum, lambda u: np.maximum(u, 0.0), (x,), label="constant"),
    Case(np.minimum, np.minimum, (x, column)),
    Case(np.minimum, lambda u: np.minimum(0.0, u), (x,), label="constant"),
    Case(np.fmax, np.fmax, (x, row)),
    Case(np.fmin, np.fmin, (x, row)),
    Case(np.where, lambda u, v: np.where(mask, u, v), (x, y)),
    Case(np.where, lambda u, v: np.where(mask, u, v), (row, column), label="broadcast"),
    Case(np.where, lambda u: np.where(u > 0, u * u, 3.0), (x,), label="constant branch"),
    Case(np.where, lambda u: np.where([True, False, True], 1.0, u), (row,), label="list condition"),
    Case(np.where, lambda u, v: np.where(mask, u, v), (x, z), label="real and complex"),
    Case(np.clip, lambda u: np.clip(u, -0.5, 0.5), (x,)),
    Case(np.clip, np.clip, (x, -0.4 * q, 0.4 * positive(2, 1)), label="traced bounds"),
    Case(np.clip, lambda u: np.clip(u, None, 0.3), (x,), label="upper only"),
    Case(np.clip, lambda u: u.clip(-0.2), (x,), label="method, lower only"),
    Case(np.clip, lambda u: np.clip(np.zeros((2, 3)), u, 2.0), (row,), label="traced lower bound"),
    Case(np.clip, lambda u: np.clip(np.ones((2, 3)), -2.0, u), (row,), label="traced upper bound"),
    Case(np.real, np.real, (z,), label="complex"),
    Case(np.real, lambda u: u.real * u, (x,), label="of real"),
    Case(np.imag, np.imag, (z,), label="complex"),
    Case(np.conjugate, np.conj, (z,)),
    Case(np.conjugate, lambda u: u.conj() * w, (x,), label="of real"),
    Case(np.angle, np.angle, (z,)),
    Case(np.angle, lambda u: np.angle(u, deg=True), (z,), label="degrees", tolerance=1e-5),
]
if np.lib.NumpyVersion(np.__version__) >= "2.1.0":
    CASES += [
        Case(np.clip, lambda u: np.clip(u, min=-0.1, max=0.4), (x,), label="min=, max="),
        Case(np.clip, lambda u, v, w: np.clip(u, min=v, max=w), (x, -0.4 * q, 0.3 * q), label="traced min=, max="),
    ]
