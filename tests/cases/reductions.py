"""Cases for rules/reductions.py and norms."""

import numpy as np

from tests.cases import Case, complexes, distinct, normal, positive

x, p, d, z = normal(2, 3, 4), positive(2, 3), distinct(2, 3, 4), complexes(2, 3)
mask = np.array([[[True], [False], [True]], [[True], [True], [False]]])
zeros = np.array([[2.0, 0.0, 3.0], [0.0, 5.0, 0.0], [1.5, 2.0, 4.0]])

CASES = []
for fun, point in (
    (np.sum, x),
    (np.mean, x),
    (np.var, x),
    (np.std, x),
    (np.prod, positive(2, 3, 4)),
    (np.max, d),
    (np.amax, d),
    (np.min, d),
    (np.amin, d),
    (np.ptp, d),
):
    CASES += [
        Case(fun, fun, (point,)),
        Case(fun, lambda a, f=fun: f(a, axis=1), (point,), label="axis"),
        Case(fun, lambda a, f=fun: f(a, -1), (point,), label="positional negative axis"),
        Case(fun, lambda a, f=fun: f(a, axis=(0, -1)), (point,), label="axes"),
        Case(fun, lambda a, f=fun: f(a, axis=(0, 2), keepdims=True), (point,), label="axes, keepdims"),
        Case(fun, lambda a, f=fun: f(a, axis=None, keepdims=True), (point,), label="all, keepdims"),
        Case(fun, fun, (np.array(1.5),), label="0-d", second=fun is not np.std),
        Case(fun, lambda a, f=fun: f(a, axis=0), (point.transpose(2, 0, 1),), label="transposed"),
    ]
    if fun is not np.ptp:
        options = (
            {"initial": -50.0 if fun in (np.max, np.amax) else 50.0} if fun.__name__[-3:] in ("max", "min") else {}
        )
        CASES.append(Case(fun, lambda a, f=fun, o=options: f(a, axis=1, where=mask, **o), (point,), label="where"))
for fun in (np.sum, np.prod, np.mean, np.var, np.std):
    CASES += [
        Case(fun, lambda a, f=fun: f(a, axis=1), (z,), label="complex", tolerance=1e-5),
        Case(fun, lambda a, f=fun: f(a, axis=0, dtype=np.float64), (p,), label="dtype="),
        Case(fun, lambda a, f=fun: getattr(a, f.__name__)(axis=1), (p,), label="method"),
    ]
for fun in (np.var, np.std):
    CASES += [
        Case(fun, lambda a, f=fun: f(a, axis=1, ddof=1), (p,), label="ddof"),
        Case(fun, lambda a, f=fun: f(a, axis=0, correction=1), (p,), label="correction"),
    ]
CASES += [
    Case(np.sum, lambda a: np.sum(a, axis=()), (x,), label="no axes"),
    Case(np.mean, lambda a: np.mean(a, axis=()), (x,), label="no axes"),
    Case(np.sum, lambda a: np.sum(a, initial=2.0), (p,), label="initial"),
    Case(np.prod, lambda a: np.prod(a, axis=1, initial=2.0), (p,), label="initial"),
    Case(np.max, lambda a: np.max(a, axis=0, initial=0.8), (d,), label="initial"),
    Case(np.sum, np.sum, (np.zeros((0, 3)),), label="size 0"),
    Case(np.prod, lambda a: np.prod(a, axis=1), (zeros,), label="zeros"),
    Case(np.prod, np.prod, (np.array([2.0, 0.0, 3.0]),), label="one zero"),
    Case(np.prod, np.prod, (np.zeros(3),), label="only zeros"),
    Case(np.prod, np.prod, (positive(7),), label="odd length"),
    Case(np.sum, lambda a, b: np.sum(a, axis=0, initial=b), (p, np.array(0.7)), label="traced initial"),
    Case(np.add.reduce, np.add.reduce, (x,)),
    Case(np.add.reduce, lambda a: np.add.reduce(a, axis=(0, 2), keepdims=True), (x,), label="axes, keepdims"),
    Case(np.add.reduce, lambda a: np.add.reduce(a, axis=None), (x,), label="all"),
    Case(np.add.reduce, lambda a, b: np.add.reduce(a, initial=b), (p, np.array(0.7)), label="traced initial"),
    Case(np.multiply.reduce, np.multiply.reduce, (p,)),
    Case(np.maximum.reduce, lambda a: np.maximum.reduce(a, axis=1), (d,)),
    Case(np.minimum.reduce, np.minimum.reduce, (d,)),
    Case(np.fmax.reduce, np.fmax.reduce, (d,)),
    Case(np.fmin.reduce, np.fmin.reduce, (d,)),
    Case(np.cumsum, np.cumsum, (p,)),
    Case(np.cumsum, lambda a: np.cumsum(a, axis=-1), (p,), label="axis"),
    Case(np.cumsum, lambda a: a.cumsum(axis=0), (z,), label="complex method"),
    Case(np.add.accumulate, np.add.accumulate, (p,)),
    Case(np.linalg.norm, np.linalg.norm, (x[0, 0],)),
    Case(np.linalg.norm, np.linalg.norm, (p,), label="matrix"),
    Case(np.linalg.norm, lambda a: np.linalg.norm(a, axis=1, keepdims=True), (p,), label="axis, keepdims"),
    Case(np.linalg.norm, lambda a: np.linalg.norm(a, "fro", axis=(0, 2)), (x,), label="fro"),
    Case(np.linalg.norm, lambda a: np.linalg.norm(a, axis=-1), (z,), label="complex"),
    *[
        Case(np.linalg.norm, lambda a, o=o: np.linalg.norm(a, o, axis=1), (distinct(3, 4),), label=f"ord={o}")
        for o in (1, 2, 3, 2.5, np.inf, -np.inf)
    ],
    Case(np.linalg.norm, lambda a: np.linalg.norm(a, 3, axis=1), (z,), label="complex, ord=3", tolerance=1e-5),
    *[
        Case(np.linalg.norm, lambda a, o=o: np.linalg.norm(a, o, axis=(2, 0), keepdims=True), (x,), label=f"matrix {o}")
        for o in (1, -1, 2, -2, np.inf, -np.inf, "nuc")
    ],
]

# Without the entries that are NaN, which the call puts into its argument.
holes = np.arange(24).reshape(2, 3, 4) % 7 == 1


def missing(call, where=holes):
    """Put NaN into the argument."""
    return lambda a: call(np.where(where, np.nan, a))


for fun, point in (
    (np.nanmax, d),
    (np.nanmin, d),
    (np.nansum, x),
    (np.nanprod, positive(2, 3, 4)),
    (np.nanmean, x),
    (np.nanvar, x),
    (np.nanstd, x),
):
    options = {"initial": -50.0 if fun is np.nanmax else 50.0} if fun in (np.nanmax, np.nanmin) else {}
    CASES += [
        Case(fun, missing(fun), (point,)),
        Case(fun, missing(lambda a, f=fun: f(a, axis=1)), (point,), label="axis"),
        Case(fun, missing(lambda a, f=fun: f(a, -1)), (point,), label="positional negative axis"),
        Case(fun, missing(lambda a, f=fun: f(a, axis=(0, -1), keepdims=True)), (point,), label="axes, keepdims"),
        Case(fun, missing(lambda a, f=fun: f(a, keepdims=True)), (point,), label="all, keepdims"),
        Case(fun, missing(lambda a, f=fun, o=options: f(a, axis=(1, 2), where=mask, **o)), (point,), label="where"),
        Case(fun, fun, (point,), label="no NaN"),
        Case(fun, fun, (np.array(1.5),), label="0-d", second=fun is not np.nanstd),
    ]
for fun in (np.nansum, np.nanprod, np.nanmean, np.nanvar, np.nanstd):
    CASES += [
        Case(fun, missing(lambda a, f=fun: f(a, axis=0), np.eye(2, 3) > 0), (z,), label="complex", tolerance=1e-5),
        Case(fun, missing(lambda a, f=fun: f(a, axis=1, dtype=np.float64)), (positive(2, 3, 4),), label="dtype="),
    ]
CASES += [
    Case(np.nanvar, missing(lambda a: np.nanvar(a, axis=(1, 2), ddof=1)), (x,), label="ddof"),
    Case(np.nanstd, missing(lambda a: np.nanstd(a, axis=(1, 2), correction=1)), (x,), label="correction"),
    Case(np.nansum, missing(lambda a: np.nansum(a, initial=2.0) ** 2), (x,), label="initial"),
    Case(np.nanprod, missing(lambda a: np.nanprod(a, axis=1, initial=2.0)), (x,), label="initial"),
    Case(np.nanprod, lambda a: np.nanprod(a, axis=1), (zeros,), label="zeros"),
]
for fun in (np.logaddexp.reduce, np.logaddexp2.reduce):
    CASES += [
        Case(fun, fun, (x,)),
        Case(fun, lambda a, f=fun: f(a, axis=-1, keepdims=True), (x,), label="axis, keepdims"),
        Case(fun, lambda a, f=fun: f(a, axis=1, where=mask, initial=0.3), (x,), label="where, initial"),
        Case(fun, lambda a, f=fun: f(np.where(holes, -np.inf, a), axis=1), (x,), label="-inf"),
    ]
for fun in (np.maximum.accumulate, np.minimum.accumulate):
    CASES += [
        Case(fun, lambda a, f=fun: f(a) ** 2, (distinct(7),)),
        Case(fun, lambda a, f=fun: f(a, axis=1) ** 2, (d,), label="axis"),
        Case(fun, lambda a, f=fun: f(a, -1), (distinct(3, 4),), label="positional negative axis"),
    ]
CASES += [
    Case(np.add.reduceat, lambda a: np.add.reduceat(a, [0, 2, 1, 3]) ** 2, (normal(5),)),
    Case(np.add.reduceat, lambda a: np.add.reduceat(a, np.array([0, 2]), axis=1) ** 2, (x,), label="axis"),
    Case(np.add.reduceat, lambda a: np.add.reduceat(a, [1], -1, dtype=np.float64), (p,), label="dtype="),
]
