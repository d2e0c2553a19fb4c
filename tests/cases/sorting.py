"""Cases for rules/sorting.py."""

import numpy as np

from tests.cases import Case, complexes, distinct, normal, positive
from tests.cases.shaping import both

d, m, long, n = distinct(5), distinct(3, 4), distinct(7), distinct(2, 3, 4)
p, x, z = positive(2, 5), normal(2, 5), complexes(2, 5)
holes = np.array([[False, True, False, False], [False, False, False, False], [True, False, False, True]])
all_holes = holes | np.array([[True], [False], [False]])
first, second = np.array([0.1, 0.5, 0.6, 0.9, 1.0]), np.array([0.2, 0.3, 0.9, 0.8, 0.1])
counts, shares = np.array([1, 3, 2, 1, 2]), positive(5, seed=2)

METHODS = [
    "inverted_cdf",
    "averaged_inverted_cdf",
    "closest_observation",
    "interpolated_inverted_cdf",
    "hazen",
    "weibull",
]
METHODS += ["linear", "median_unbiased", "normal_unbiased", "lower", "higher", "midpoint", "nearest"]


def missing(call, where=holes):
    """Put NaN into the argument."""
    return lambda a: call(np.where(where, np.nan, a))


CASES = [
    # sorting
    *both(np.sort, np.sort, d),
    *both(np.sort, np.sort, m, label="rows"),
    *both(np.sort, lambda a: np.sort(a, axis=0), m, label="axis"),
    *both(np.sort, lambda a: np.sort(a, axis=None), m, label="flattened"),
    *both(np.sort, lambda a: np.sort(a, -2, "heapsort"), n, label="positional negative axis, kind"),
    *both(np.sort, lambda a: np.sort(a, stable=True), d, label="stable"),
    *both(np.sort, np.sort, complexes(5), label="complex"),
    *both(np.sort, np.sort, np.zeros((2, 0)), label="size 0"),
    *both(np.partition, lambda a: np.partition(a, 2), long),
    *both(np.partition, lambda a: np.partition(a, (1, -1), axis=0), distinct(5, 3), label="several, axis"),
    *both(np.partition, lambda a: np.partition(a, 3, axis=None), m, label="flattened"),
    *both(np.sort_complex, np.sort_complex, d),
    *both(np.sort_complex, np.sort_complex, complexes(2, 3), label="complex"),
    *both(np.unique, np.unique, d),
    *both(np.unique_all, lambda a: np.unique_all(a).values, d),
    *both(np.unique_counts, lambda a: np.unique_counts(a).values, d),
    *both(np.unique_inverse, lambda a: np.unique_inverse(a).values, m),
    *both(np.unique_values, np.unique_values, m),
    *both(np.unique, np.unique, m, label="matrix"),
    *both(np.unique, lambda a: np.unique(a, axis=0), m, label="rows"),
    *both(np.unique, lambda a: np.unique(a, axis=-1), m, label="columns"),
    *both(np.unique, lambda a: np.unique(a, True, True, True), d, label="all that it returns"),
    # order statistics
    *[
        case
        for fun in (np.median, np.nanmedian)
        for case in (
            *both(fun, fun, d),
            *both(fun, fun, m, label="even"),
            *both(fun, lambda a, f=fun: f(a, axis=1), m, label="axis"),
            *both(fun, lambda a, f=fun: f(a, -3), n, label="positional negative axis"),
            *both(fun, lambda a, f=fun: f(a, axis=(0, -1)), n, label="axes"),
            *both(fun, lambda a, f=fun: f(a, axis=(2, 0), keepdims=True), n, label="axes, keepdims"),
            *both(fun, lambda a, f=fun: f(a, keepdims=True), m, label="all, keepdims"),
            *both(fun, fun, np.array(1.5), label="0-d"),
        )
    ],
    *[
        case
        for fun, unit in (
            (np.quantile, 1.0),
            (np.nanquantile, 1.0),
            (np.percentile, 100.0),
            (np.nanpercentile, 100.0),
        )
        for case in (
            *both(fun, lambda a, f=fun, u=unit: f(a, 0.3 * u), d),
            *both(fun, lambda a, f=fun, u=unit: f(a, np.array([0.1, 0.5, 1.0]) * u), d, label="three"),
            *both(fun, lambda a, f=fun, u=unit: f(a, [0.25 * u, 0.6 * u], axis=1), m, label="list, axis"),
            *both(
                fun,
                lambda a, f=fun, u=unit: f(a, np.array([0.25, 0.6]) * u, axis=(0, 2), keepdims=True),
                n,
                label="two, axes, keepdims",
            ),
            *both(fun, lambda a, f=fun, u=unit: f(a, 0.7 * u, axis=-2, keepdims=True), n, label="keepdims"),
            *both(fun, lambda a, f=fun: f(a, 0), d, label="smallest"),
        )
    ],
    *both(np.quantile, lambda a: np.quantile(a, [[0.25, 0.6], [0.1, 0.9]], axis=(0, 2)), n, label="matrix, axes"),
    *[
        Case(np.quantile, lambda a, k=k: np.quantile(a, [0.0, 0.1, 0.3, 0.77, 1.0], method=k), (long,), label=k)
        for k in METHODS
    ],
    *[
        Case(
            np.nanquantile,
            missing(lambda a, k=k: np.nanquantile(a, [0.1, 0.3, 1.0], 1, method=k)),
            (m,),
            label=f"NaN, {k}",
        )
        for k in METHODS
    ],
    *both(np.nanmedian, missing(np.nanmedian), m, label="NaN"),
    *both(np.nanmedian, missing(lambda a: np.nanmedian(a, axis=1)), m, label="NaN, axis"),
    *both(np.nanmedian, missing(lambda a: np.nanmedian(a, axis=0, keepdims=True)), m, label="NaN, keepdims"),
    *both(np.nanpercentile, missing(lambda a: np.nanpercentile(a, [20, 60], axis=0)), m, label="NaN, two, axis"),
    # averages and correlation
    *both(np.average, lambda a, w: np.average(a, axis=1, weights=w), x, p[0]),
    *both(np.average, np.average, x, label="plain"),
    *both(np.average, lambda a: np.average(a, -1, keepdims=True), x, label="plain, keepdims"),
    *both(np.average, lambda a: np.average(a, axis=0, returned=True), x, label="plain, returned"),
    *both(np.average, lambda a, w: np.average(a, weights=w), x, p, label="all"),
    *both(np.average, lambda a, w: np.average(a, 0, w, True), x, p[:, 0], label="returned"),
    *both(np.average, lambda a, w: np.average(a, (2, 0), weights=w), n, positive(4, 2), label="axes"),
    *both(np.average, lambda w: np.average(x, axis=1, weights=w, keepdims=True), p[0], label="weights alone, keepdims"),
    *both(np.average, lambda a: np.average(a, axis=1, weights=[1, 2, 3, 4, 5]), z, label="complex, plain weights"),
    *both(np.cov, np.cov, x),
    *both(np.cov, np.cov, x[0], label="one variable"),
    *both(np.cov, np.cov, x, normal(3, 5, seed=4), label="two matrices"),
    *both(np.cov, lambda a, b: np.cov(a, b, False), x.T, x[0], label="two, columns"),
    *both(np.cov, lambda a: np.cov(a, rowvar=False, bias=True), x.T, label="columns, bias"),
    *both(np.cov, lambda a: np.cov(a, ddof=2, dtype=np.float64), x, label="ddof, dtype"),
    *both(np.cov, lambda a: np.cov(a, fweights=counts), x, label="fweights"),
    *both(np.cov, lambda a, w: np.cov(a, aweights=w), x, shares, label="aweights"),
    *both(np.cov, lambda a, w: np.cov(a, fweights=counts, aweights=w, ddof=0), x, shares, label="both weights"),
    *both(np.cov, np.cov, z, label="complex"),
    *both(np.corrcoef, np.corrcoef, x),
    *both(np.corrcoef, np.corrcoef, x, normal(3, 5, seed=4), label="two matrices"),
    *both(np.corrcoef, lambda a: np.corrcoef(a, rowvar=False), normal(5, 3, seed=4), label="columns"),
    *both(np.corrcoef, np.corrcoef, x[0], label="one variable"),
    *both(np.corrcoef, np.corrcoef, z, label="complex"),
    # histograms
    *both(np.bincount, lambda w: np.bincount([0, 2, 1, 2, 0], weights=w), x[0]),
    *both(np.bincount, lambda w: np.bincount(counts, w, 6), x[0], label="minlength"),
    *both(np.histogram, lambda w: np.histogram(first, bins=3, weights=w)[0], x[0]),
    *both(np.histogram, lambda w: np.histogram(first, [0.2, 0.55, 0.9], weights=w), x[0], label="edges"),
    *both(np.histogram, lambda w: np.histogram(first, 4, (0.0, 0.9), weights=w)[0], z[0], label="range, complex"),
    *both(np.histogram, lambda w: np.histogram(first, 2, density=True, weights=w)[0], shares, label="density"),
    *both(
        np.histogram,
        lambda w: np.histogram(first, [0.2, 0.55, 0.7, 1.0], density=True, weights=w)[0],
        shares,
        label="density, edges",
    ),
    *both(np.histogram, lambda w: np.histogram(x, 4, weights=w)[0], normal(2, 5, seed=9), label="matrix"),
    *both(np.histogram2d, lambda w: np.histogram2d(first, second, 2, weights=w)[0], x[0]),
    *both(
        np.histogram2d,
        lambda w: np.histogram2d(first, second, [2, [0.2, 0.5, 0.9]], density=True, weights=w)[0],
        shares,
        label="mixed, density",
    ),
    *both(
        np.histogram2d, lambda w: np.histogram2d(first, second, [0, 0.3, 0.5, 1], weights=w)[0], shares, label="edges"
    ),
    *both(np.histogramdd, lambda w: np.histogramdd([first, second], (2, 3), weights=w)[0], x[0]),
    *both(
        np.histogramdd,
        lambda w: np.histogramdd(np.stack([first, second], 1), 2, [(0, 0.9), (0, 1)], True, w)[0],
        shares,
        label="array, range, density",
    ),
]
