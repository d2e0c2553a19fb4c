"""Cases for rules/writing.py: each writes into a copy of its first argument and returns that."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from meintorch.core.memory import clone
from tests.cases import complexes, normal
from tests.cases.shaping import both

v, m, x, z, scalar = normal(5), normal(3, 4), normal(3, 4, 2), complexes(3, 4), np.array(1.5)
square, tall, cube, fortran = normal(3, 3), normal(7, 3), normal(3, 3, 3), np.asfortranarray(m)
mask = np.array([[True, False, True, True], [False, False, True, False], [False, True, False, False]])
few = normal(2, seed=1)


def into(write: Callable[..., Any]) -> Callable[..., Any]:
    """Make the function of an array and values that writes into a copy of the array, which is traced if any of them is."""

    def call(a: Any, *values: Any) -> Any:
        t = np.copy(a, order="K")
        for value in values:
            t = t + 0 * np.sum(value)
        write(t, *values)
        return t

    return call


def filled(like: Callable[..., Any], *args: Any, **options: Any) -> Callable[..., Any]:
    """Make the function that fills a part of a new buffer."""

    def call(a: Any) -> Any:
        buffer = like(a, *args, **options)
        buffer[..., 1:] = np.sin(a[..., 1:])
        buffer[..., :1] += a[..., -1:] * 2
        return buffer

    return call


def over(like: Callable[..., Any], *args: Any) -> Callable[..., Any]:
    """Make the function that fills the whole of a new buffer."""

    def call(a: Any) -> Any:
        buffer = like(a, *args)
        buffer[...] = np.sin(a)
        return buffer

    return call


CASES = [
    *both(clone, clone, m),
    *both(clone, clone, fortran[::-1], label="Fortran order, backwards"),
    *both(clone, lambda a: clone(a[:, 1:].T).reshape(-1), z, label="of a view, complex"),
    # buffers
    *both(np.zeros_like, filled(np.zeros_like), m),
    *both(np.zeros_like, filled(np.zeros_like), fortran, label="Fortran order"),
    *both(np.zeros_like, filled(np.zeros_like), z, label="complex"),
    *both(np.zeros_like, filled(np.zeros_like, dtype=complex), v, label="complex of a real one"),
    *both(np.zeros_like, filled(np.zeros_like, shape=(2, 3, 4)), m, label="shape"),
    *both(np.ones_like, filled(np.ones_like), m),
    *both(np.empty_like, over(np.empty_like), m),
    *both(np.empty_like, over(np.empty_like), scalar, label="0-d"),
    *both(np.full_like, filled(np.full_like, 3.0), m),
    *both(np.full_like, lambda a, b: np.full_like(a + b, b), m, scalar, label="traced value"),
    *both(np.full_like, lambda a, b: np.full_like(a + 0 * b[0], b), m, normal(4), label="traced row"),
    # writing
    *both(np.put, into(lambda t, u: np.put(t, [0, -1, 5], u)), m, normal(3)),
    *both(np.put, into(lambda t, u: np.put(t, [[2, 0], [1, 4]], u)), v, few, label="values repeated"),
    *both(np.put, into(lambda t, u: np.put(t, [1, 0, 1], u)), v, normal(3), label="the last one stays"),
    *both(np.put, into(lambda t, u: np.put(t, [7, -9], u, mode="wrap")), m.T, few, label="wrap, transposed"),
    *both(np.put, into(lambda t, u: np.put(t, [70, -9], u, "clip")), fortran, few, label="clip, Fortran order"),
    *both(np.put, into(lambda t: t.put(1, 2.0)), z, label="method, number, complex"),
    *both(np.put, into(lambda t: np.put(t, 0, t * t)), scalar, label="0-d"),
    *both(np.put, into(lambda t: np.put(t, [], 1.0)), v, label="nothing"),
    *both(np.place, into(lambda t, u: np.place(t, mask, u)), m, few),
    *both(np.place, into(lambda t, u: np.place(t, mask.T, u)), m.T, normal(9), label="too many values, transposed"),
    *both(np.place, into(lambda t: np.place(t, mask, [1.0, 2j])), z, label="numbers, complex"),
    *both(np.place, into(lambda t: np.place(t, np.zeros((3, 4)), [])), m, label="nothing"),
    *both(np.putmask, into(lambda t, u: np.putmask(t, mask, u)), m, normal(3, 4, seed=1)),
    *both(np.putmask, into(lambda t, u: np.putmask(t, mask, u)), m, few, label="values repeated"),
    *both(np.putmask, into(lambda t: np.putmask(t, t > 0, -1.0)), x, label="own mask, number"),
    *both(np.putmask, into(lambda t, u: np.putmask(t, mask, u)), z, m, label="real into complex"),
    *both(np.copyto, into(np.copyto), m, normal(4)),
    *both(np.copyto, into(lambda t, u: np.copyto(t, u, where=mask)), m, normal(3, 4, seed=1), label="where"),
    *both(np.copyto, into(lambda t, u: np.copyto(t, u, where=mask[0])), m, scalar, label="where of rows, 0-d"),
    *both(np.copyto, into(lambda t, u: np.copyto(t[1:], u, "same_kind", mask[1:])), m, normal(4), label="into a view"),
    *both(np.copyto, into(lambda t: np.copyto(t, 2, where=t > 0)), m, label="own mask, integer"),
    *both(np.copyto, into(lambda t, u: np.copyto(t, u)), z, m, label="real into complex"),
    *both(np.copyto, into(lambda t, u: np.copyto(t, u, casting="unsafe")), m, z.real.copy(), label="casting"),
    *both(
        np.put_along_axis,
        into(lambda t, u: np.put_along_axis(t, np.array([[1], [-1], [1]]), u, 1)),
        m,
        normal(3, 1, seed=1),
    ),
    *both(
        np.put_along_axis,
        into(lambda t, u: np.put_along_axis(t, np.argsort(t, axis=0), u, axis=0)),
        m,
        normal(3, 4, seed=1),
        label="own order",
    ),
    *both(
        np.put_along_axis,
        into(lambda t, u: np.put_along_axis(t, np.array([[[0, 0, 3]]]), u, axis=-1)),
        normal(2, 1, 4),
        scalar,
        label="repeats, broadcast, 0-d",
    ),
    *both(np.put_along_axis, into(lambda t, u: np.put_along_axis(t, np.array([4, 1]), u, None)), z, few, label="all axes"),
    *both(np.fill_diagonal, into(np.fill_diagonal), square, scalar),
    *both(np.fill_diagonal, into(np.fill_diagonal), m, normal(3, seed=1), label="values, wide"),
    *both(np.fill_diagonal, into(np.fill_diagonal), tall, few, label="values repeated, tall"),
    *both(np.fill_diagonal, into(lambda t, u: np.fill_diagonal(t, u, wrap=True)), tall, few, label="wrap"),
    *both(np.fill_diagonal, into(np.fill_diagonal), cube, normal(3), label="3-d"),
    *both(np.fill_diagonal, into(lambda t: np.fill_diagonal(t.T, 1j)), z, label="transposed, complex"),
]  # fmt: skip
