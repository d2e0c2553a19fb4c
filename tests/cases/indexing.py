"""Cases for rules/indexing.py."""

import operator

import numpy as np

from meintorch.rules.indexing import scatter
from tests.cases import complexes, normal
from tests.cases.shaping import both

v, m, x, z, scalar = normal(5), normal(3, 4), normal(3, 4, 2), complexes(3, 4), np.array(1.5)
mask = np.array([[True, False, True, True], [False, False, True, False], [False, True, False, False]])
rows, columns = np.array([2, 0, 2, -1]), np.array([[1], [-1], [0]])

INDICES = [
    ("int", v, 2),
    ("negative int", m, -1),
    ("numpy int", m, np.int64(1)),
    ("all ints", m, (1, -2)),
    ("all ints, Ellipsis", m, (1, 2, ...)),
    ("slice", v, slice(1, 4)),
    ("slice with a step", m, (slice(None, None, 2), slice(3, None, -2))),
    ("slice backwards", v, slice(None, None, -1)),
    ("empty slice", m, slice(2, 2)),
    ("None", m, (None, 1, None)),
    ("Ellipsis", x, (..., 1)),
    ("Ellipsis alone", x, ...),
    ("Ellipsis in the middle", x, (0, ..., None, -1)),
    ("empty tuple", m, ()),
    ("0-d, empty tuple", scalar, ()),
    ("0-d, Ellipsis", scalar, ...),
    ("0-d, None", scalar, None),
    ("mask", m, mask),
    ("mask of rows", m, np.array([True, False, True])),
    ("mask of columns", m, (slice(None), [True, False, True, True])),
    ("mask and slice", x, (mask, slice(1, None))),
    ("mask with nothing", m, np.zeros((3, 4), bool)),
    ("mask, a list", v, [True, False, False, True, True]),
    ("mask and ints", m, (np.array([True, False, True]), [0, -1])),
    ("True", v, True),
    ("0-d mask", scalar, np.array(1, bool)),
    ("list", m, [0, 0, 2]),
    ("empty list", v, []),
    ("range", v, range(3)),
    ("ints with repeats", v, rows),
    ("ints, small and unsigned", x, np.array([2, 1, 2], np.uint8)),
    ("ints of rows", x, rows),
    ("ints, 2-d", m, np.array([[0, 1], [-1, 0]])),
    ("ints, none", x, np.zeros((2, 0), int)),
    ("ints, 0-d", m, np.array(1)),
    ("ints of columns", m, (slice(None), rows)),
    ("ints paired", m, (rows, rows)),
    ("ints broadcast", x, (columns, rows, 0)),
    ("ints apart", x, (rows, slice(None), np.array([1, 0, 1, 1]))),
    ("ints and None", m, (None, rows, None, 1)),
    ("ints and Ellipsis", x, (..., rows, [[0], [1]])),
    ("ints and int", x, (1, rows)),
    ("complex, ints with repeats", z, (rows, slice(None, None, 2))),
    ("complex, mask", z, mask),
    ("transposed, ints", np.asfortranarray(m), rows),
    ("transposed, mask", m.T, mask.T),
]
CASES = [case for label, a, i in INDICES for case in both(operator.getitem, lambda t, i=i: t[i], a, label=label)]
CASES += [
    *both(operator.getitem, lambda a: [*a], m, label="iterated"),
    *both(operator.getitem, lambda a: a[0] * a[1] + a[::2][0] + a[[1, 1]][0], m, label="several times"),
    *both(operator.getitem, lambda a: a[[0, 0, 2]][::-1][1:], v, label="of an index"),
    *both(scatter, lambda g: scatter(g, (4, 2), [1, 1, 3]), normal(3, 2)),
    *both(np.take, lambda a: np.take(a, [0, 0, -1]), v),
    *both(np.take, lambda a: np.take(a, [[5, 5], [-1, 0]]), m, label="all axes"),
    *both(np.take, lambda a: np.take(a, rows, axis=0), x, label="axis"),
    *both(np.take, lambda a: np.take(a, np.array([[0, 1], [1, 1]]), -2), x, label="2-d, negative axis"),
    *both(np.take, lambda a: a.take(1, axis=1), z, label="int, complex"),
    *both(np.take, lambda a: np.take(a, 2), v, label="int"),
    *both(np.take, lambda a: np.take(a, [7, -9, 1], axis=1, mode="wrap"), m, label="wrap"),
    *both(np.take, lambda a: np.take(a, [70, -9, 1], mode="clip"), m, label="clip"),
    *both(np.take_along_axis, lambda a: np.take_along_axis(a, np.array([[1], [-1], [1]]), 1), m),
    *both(np.take_along_axis, lambda a: np.take_along_axis(a, np.argsort(a, axis=0), axis=0), m, label="sort"),
    *both(np.take_along_axis, lambda a: np.take_along_axis(a, np.array([3, 3, 0]), None), m, label="all axes"),
    *both(np.take_along_axis, lambda a: np.take_along_axis(a, columns[None], -2), normal(1, 3, 2), label="broadcast"),
    *both(np.take_along_axis, lambda a: np.take_along_axis(a, columns, axis=0), normal(3, 4), label="few columns"),
    *both(np.compress, lambda a: np.compress([True, False, True], a, axis=0), m),
    *both(np.compress, lambda a: np.compress([0, 1], a, axis=-1), z, label="short, complex"),
    *both(np.compress, lambda a: np.compress(np.arange(12) % 3 == 0, a), m, label="all axes"),
    *both(np.extract, lambda a: np.extract(mask, a), m),
    *both(np.extract, lambda a: np.extract(a > 0, a), x, label="own condition"),
]

view = np.lib.stride_tricks.sliding_window_view
first, second = np.array([True, False, True]), np.array([[True], [False]])
which = np.array([[0, 1, 2, 1], [2, 2, 0, 0]])
CASES += [
    *both(view, lambda a: view(a, 3), v),
    *both(view, lambda a: view(a, (2, 3)), z, label="2-d, complex"),
    *both(view, lambda a: view(a, 2, axis=-1), x, label="axis"),
    *both(view, lambda a: view(a, (2, 2), axis=(0, 0)), m, label="an axis twice"),
    *both(np.choose, lambda a, b, c: np.choose(which, [a, b, c]), normal(2, 4), normal(4), scalar),
    *both(np.choose, lambda a: np.choose(which, (np.ones(4), a, 2.0)), z[:2], label="some traced, complex"),
    *both(np.choose, lambda a, b: np.choose([-1, 5, 1], [a, b], mode="wrap"), normal(3), scalar, label="wrap"),
    *both(np.choose, lambda a, b: np.choose([-1, 5, 0], [a, b], mode="clip"), normal(3), scalar, label="clip"),
    *both(np.select, lambda a, b: np.select([first, second], [a, b]), normal(3), normal(2, 3)),
    *both(
        np.select, lambda a, d: np.select([first, second] * 2, [1.0, a, a, a], d), normal(2, 1), scalar, label="default"
    ),
    *both(np.select, lambda a: np.select([a > 1, a > 0], [a * a, 3 * a], -a), v, label="own conditions"),
    *both(np.select, lambda a, b: np.select([True, first], [a, b]), z[0, :3], normal(3), label="real and complex"),
    *both(np.select, lambda a: np.select([np.array(0, bool)], [a], 0.5), scalar, label="0-d"),
    *both(np.piecewise, lambda a: np.piecewise(a, [a < 0, a > 0.5], [np.square, lambda t: 3 * t]), v),
    *both(np.piecewise, lambda a: np.piecewise(a, [a < 0], [lambda t: t * t, lambda t: t**3]), m, label="else"),
    *both(np.piecewise, lambda a: np.piecewise(a, [a < 1, a < 0], [np.sin, 2.0, np.exp]), x, label="overlap, number"),
    *both(
        np.piecewise,
        lambda a: np.piecewise(a, [a > 9], [np.sin, lambda t, k, e: k * t + e], 2, e=1),
        z,
        label="arguments",
    ),
    *both(np.piecewise, lambda a: np.piecewise(a, [True], [np.sin]), scalar, label="0-d"),
    *both(np.piecewise, lambda a, b: np.piecewise(a, [a < 0], [b, lambda t: t * b]), v, scalar, label="captured"),
    *both(np.apply_along_axis, lambda a: np.apply_along_axis(np.sum, 0, a), m),
    *both(np.apply_along_axis, lambda a: np.apply_along_axis(lambda t: t * t[0], 1, a), x, label="vectors"),
    *both(np.apply_along_axis, lambda a: np.apply_along_axis(np.diag, -1, a), m, label="matrices"),
    *both(np.apply_along_axis, lambda a: np.apply_along_axis(np.sum, 0, a), v, label="1-d"),
    *both(np.apply_along_axis, lambda a: np.apply_along_axis(lambda t, k: [t[0], k], 1, a, k=2.0), z, label="lists"),
]
