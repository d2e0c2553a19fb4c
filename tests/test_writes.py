"""In-place assignment, case by case: what NumPy does, and its derivatives.

A program is a function of arrays that writes into what it is given or into what it makes. Five properties are written once
and hold for all: the same value bit for bit, the gradient and the tangent by differences, second derivatives by differences
of the gradient, and vmap as a loop. `tests.test_writes_random` draws such programs at random; these can be read.
"""

from __future__ import annotations

import gc
import tracemalloc
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from meintorch import errors
from meintorch import numpy as mnp
from meintorch.core.memory import Layout
from meintorch.core.trace import is_scalar
from meintorch.func import (
    checkpoint,
    grad,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    linearize,
    value_and_grad,
    vjp,
    vmap,
)
from meintorch.tensor import Tensor
from tests.cases import Case, complexes, distinct, normal, positive
from tests.cases.table import UNSQUARED
from tests.conftest import objects_left_by
from tests.differences import directional, gradient, outputs, weighted

# ---------------------------------------------------------------- programs


@dataclass(frozen=True)
class Program:
    """A function that writes, and the point where it is looked at."""

    f: Callable[..., Any]
    args: tuple[Any, ...]
    batched: bool  # whether examples of a batch are like this point: they have axes, and lie in C order

    def __repr__(self) -> str:
        return self.f.__name__

    def point(self) -> list[Any]:
        """Return the arguments, laid out in memory as they were."""
        return [laid_like(a) for a in self.args]

    def alone(self, *args: Any) -> Any:
        """Call the function on copies, since without the library it writes into what it is given."""
        return self.f(*[laid_like(a) for a in args])


def laid_like(a: Any) -> Any:
    """Return a copy of an array with the same strides, be they negative, too; of anything else the thing itself."""
    if not isinstance(a, np.ndarray):
        return a
    copy = Layout(a).blank()
    copy[...] = a
    return copy


PROGRAMS: list[Program] = []


def program(*args: Any, batched: bool = True) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Take a function in among the programs."""

    def register(f: Callable[..., Any]) -> Callable[..., Any]:
        PROGRAMS.append(Program(f, args, batched))
        return f

    return register


v, w, p = normal(4), normal(4, seed=1), positive(4)
m, s, x3, zero_d = normal(3, 4), normal(3, 3), normal(2, 3, 2), np.array(0.7)
z, zm = complexes(4), complexes(3, 4)
mask = np.array([True, False, True, True])

# ---------------------------------------------------------------- what is a view, and what is a copy

VIEWS: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "slice": (lambda y: y[1:], v),
    "slice with a step": (lambda y: y[::2, ::-1], m),
    "negative step": (lambda y: y[::-2], v),
    "row": (lambda y: y[1], m),
    "column": (lambda y: y[:, -1], m),
    "0-d": (lambda y: y[1, 2, ...], m),
    "everything": (lambda y: y[...], m),
    "new axis": (lambda y: y[:, None, 1:], m),
    "T": (lambda y: y.T, m),
    "mT": (lambda y: y.mT, x3),
    "transpose": (lambda y: np.transpose(y, (1, 2, 0)), x3),
    "swapaxes": (lambda y: y.swapaxes(0, 1), m),
    "moveaxis": (lambda y: np.moveaxis(y, -1, 0), x3),
    "rollaxis": (lambda y: np.rollaxis(y, 2), x3),
    "reshape": (lambda y: y.reshape(2, 6), m),
    "reshape of Fortran order": (lambda y: np.reshape(y, (2, 6), order="F"), np.asfortranarray(m)),
    "ravel": (lambda y: y.ravel(), m),
    "ravel of Fortran order": (lambda y: np.ravel(y, order="F"), np.asfortranarray(m)),
    "flip": (lambda y: np.flip(y, 1), m),
    "fliplr": (np.fliplr, m),
    "rot90": (np.rot90, m),
    "einsum, diagonal": (lambda y: np.einsum("ii->i", y), s),
    "einsum, transposed": (lambda y: np.einsum("ij->ji", y), m),
    "squeeze": (lambda y: np.squeeze(y[:1]), m),
    "expand_dims": (lambda y: np.expand_dims(y, 1), m),
    "atleast_3d": (np.atleast_3d, v),
    "split": (lambda y: np.split(y, 2, axis=1)[1], m),
    "array_split": (lambda y: np.array_split(y, 3)[0], v),
    "hsplit": (lambda y: np.hsplit(y, 2)[0], m),
    "unstack": (lambda y: np.unstack(y, axis=1)[2], m),
    "view": (lambda y: y.view(), m),
    "real": (lambda y: y.real, z),
    "imag": (lambda y: y.imag, z),
    "imag of a slice": (lambda y: y[1:, ::2].T.imag, zm),
    "slice of real": (lambda y: np.real(y)[::-1, 1], zm),
    "views of views": (lambda y: y.T[1:].reshape(3, 3)[::-1].swapaxes(0, 1)[:, 1:], m.T.copy().T),
    # these return what they are given
    "real of real": (np.real, v),
    "conj of real": (lambda y: y.conj(), v),
    "squeeze of nothing": (np.squeeze, v),
    "ravel of 1-d": (np.ravel, v),
    "atleast_1d": (np.atleast_1d, v),
    "broadcast_arrays of equal shapes": (lambda y: np.broadcast_arrays(y, np.ones(4))[0], v),
    "array that is used as it is": (lambda y: y, v),
}
COPIES: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "times one": (lambda y: y * 1.0, v),
    "plus": (lambda y: +y, v),
    "copy": (lambda y: y.copy(), m),
    "np.copy": (np.copy, m),
    "flatten": (lambda y: y.flatten(), m),
    "roll": (lambda y: np.roll(y, 1), v),
    "integers": (lambda y: y[[1, 2]], m),
    "mask": (lambda y: y[mask], v),
    "take": (lambda y: np.take(y, [0, 1]), v),
    "ravel of the transposed": (lambda y: y.T.ravel(), m),
    "reshape of the transposed": (lambda y: y.T.reshape(2, 6), m),
    "ravel of Fortran order": (lambda y: y.ravel(), np.asfortranarray(m)),
    "conj of complex": (lambda y: y.conj(), z),
    "where": (lambda y: np.where(mask, y, 2.0), v),
    "concatenate": (lambda y: np.concatenate([y, y]), v),
    "astype": (lambda y: y.astype(float), v),
    "sort": (np.sort, v),
    "repeat": (lambda y: np.repeat(y, 2), v),
    "tile": (lambda y: np.tile(y, 1), v),
    "broadcast and added": (lambda y: np.broadcast_to(y, (2, 4)) + 0.0, v),
    "maximum": (lambda y: np.maximum(y, -9.0), v),
}
READ_ONLY: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "diagonal": (lambda y: y.diagonal(), s),
    "np.diagonal": (lambda y: np.diagonal(y, 1, 0, 1), s),
    "diag": (np.diag, s),
    "broadcast_to": (lambda y: np.broadcast_to(y, (2, 4)), v),
    "windows": (lambda y: np.lib.stride_tricks.sliding_window_view(y, 2), v),
    "slice of a diagonal": (lambda y: y.diagonal()[1:], s),
    "transposed broadcast_to": (lambda y: np.broadcast_to(y, (2, 4)).T[1:], v),
    "real part of windows": (lambda y: np.lib.stride_tricks.sliding_window_view(y, 2).real, z),
    "imaginary part of a diagonal": (lambda y: y.diagonal().imag, zm[:, :3]),
}


def written_both_ways(look: Callable[[Any], Any], name: str) -> Callable[[Any], Any]:
    """Make the program that writes into what ``look`` returns, and afterwards into the array."""

    def f(x: Any) -> Any:
        y = x * 1.5
        part = look(y)
        part *= 0.5 * part  # seen through y, if part is a view
        before = y * y
        y[..., 1:] += x[..., :1] * y[..., 1:]  # seen through part
        part[...] = part * np.sum(x.real)
        return before, y, part * part

    f.__name__ = name
    return f


def written_after_looking(look: Callable[[Any], Any], name: str) -> Callable[[Any], Any]:
    """Make the program that looks at an array through a read-only view, writes into the array, and looks again."""

    def f(x: Any) -> Any:
        y = x * 1.5
        part = look(y)
        before = part * part
        y[..., 1:] *= x[..., :1] * y[..., 1:]
        return before, part * part, np.sum(part[0]) * y

    f.__name__ = name
    return f


for word, table, make in (
    ("view by", VIEWS, written_both_ways),
    ("copy by", COPIES, written_both_ways),
    ("read-only view by", READ_ONLY, written_after_looking),
):
    for label, (look, at) in table.items():
        program(at, batched=at.ndim < 2 or not at.flags.fnc)(make(look, f"{word} {label}"))


# ---------------------------------------------------------------- assignment by each kind of index

ASSIGNED: dict[str, tuple[Any, Any]] = {  # an index, and the array into which it writes
    "int": (2, v),
    "negative int": (-1, m),
    "numpy int": (np.int64(1), m),
    "all ints": ((1, -2), m),
    "0-d view": ((1, 2, ...), m),
    "slice": (slice(1, 3), v),
    "slice backwards": ((slice(None, None, -2), slice(2, None)), m),
    "empty slice": (slice(2, 2), m),
    "Ellipsis": (..., m),
    "Ellipsis in the middle": ((0, ..., None, -1), x3),
    "empty tuple": ((), zero_d),
    "0-d, Ellipsis": (..., zero_d),
    "None": ((None, slice(1, None)), v),
    "mask": (m > 0.1, m),
    "mask, a list": ([True, False, False, True], v),
    "mask of rows": (np.array([True, False, True]), m),
    "mask with nothing": (np.zeros(4, bool), v),
    "mask and int": ((slice(None), mask), m),
    "True": (True, v),
    "False": (False, v),
    "ints": ([2, 0], v),
    "ints with repeats": ([0, 0, 1], v),
    "ints with repeats, negative": (np.array([[3, -1], [0, -4]]), v),
    "ints of rows, repeated": ([0, 2, 0], m),
    "ints paired": (([0, 2, 0], [1, 1, 1]), m),
    "ints broadcast": (([[0], [2]], [1, 1, 3]), m),
    "ints apart": (([1, 0, 1], slice(None), [0, 1, 0]), x3),
    "ints and None": ((None, [0, 2], 1), m),
    "ints and a slice backwards": (([0, 0], slice(None, None, -1)), m),
    "ints, none": ([], v),
    "ints, small and unsigned": (np.array([2, 1, 2], np.uint8), v),
    "range": (range(1, 3), v),
    "complex, ints with repeats": ([1, 0, 1], z),
}


def assigned(index: Any, name: str) -> Callable[..., Any]:
    """Make the program that writes by an index in all ways: traced, plain, and with operators."""

    def f(x: Any) -> Any:
        y, u = np.copy(x), np.sin(x)
        y[index] = 2.0 * u[index] * u[index]
        kept = y * x
        y[index] += u[index] * kept[index]
        y[index] *= 0.5 * x[index]
        q = np.copy(x)
        q[index] = 1.5
        q[index] -= np.cos(np.sum(x.real))
        return y, kept, q * q

    f.__name__ = name
    return f


for label, (index, at) in ASSIGNED.items():
    program(at)(assigned(index, f"assigned by {label}"))


@program(v, w)
def the_last_one_of_repeats_stays(x: Any, u: Any) -> Any:
    y = x * 1.0
    y[[0, 0, 1, 0]] = u
    return y * y


@program(v, w)
def an_operator_counts_repeats_once_and_at_every_time(x: Any, u: Any) -> Any:
    y, q = x * 1.0, x * 1.0
    y[[0, 0, 1]] += u[:3] * u[:3]
    np.add.at(q, [0, 0, 1], u[:3] * u[:3])
    return y * y, q * q


@program(v)
def values_may_have_leading_axes_of_length_one(x: Any) -> Any:
    y = x * 1.0
    y[:] = (x * x)[None, None]
    y[1:3] = (x[1:3] ** 2).reshape(1, 1, 2)
    y[[0, 3]] = np.sin(x[:2])[None]
    y[mask] = np.cos(x[:3])
    return y * y


@program(v, zero_d)
def values_broadcast(x: Any, c: Any) -> Any:
    y = np.zeros_like(x, shape=(3, 4))
    y[...] = x
    y[1] = c
    y[:, 1:3] *= x[:2]
    y[:, :1] += np.stack([x[:1], x[1:2], x[2:3]])
    y[[0, 2]] -= c * x
    return y * y


@program(v)
def lists_and_tuples_as_values(x: Any) -> Any:
    y = x * 1.0
    y[:2] = [x[3], 2.0]
    y[[0, 2]] = (x[1], x[1] * x[0])
    q = np.zeros_like(x, shape=(2, 2))
    q[...] = [[x[0], 1], [x[1] * x[1], y[0]]]
    return y * y, q * q


@program(v)
def overlapping_parts_are_read_before_they_are_written(x: Any) -> Any:
    y = x * 1.0
    y[1:] = y[:-1]
    y[:-1] += y[1:] * y[:-1]
    y[::-1] *= y
    np.multiply(y[1:], y[:-1], out=y[1:])
    np.copyto(y[:3], y[1:])
    return np.sin(y)


@program(s)
def an_array_and_its_transpose(x: Any) -> Any:
    y = x * 1.0
    y += y.T
    y[...] = y.T * x
    y.T[0] = y[1]
    y[0], y[1] = y[1] * 1.0, y[0] * 1.0
    return y * y


# ---------------------------------------------------------------- operators, scalars, 0-d


@program(v)
def operators_reach_every_alias(x: Any) -> Any:
    y = x * 1.0
    q = y
    y += x
    q *= x
    y -= 0.5
    q /= 1.5 + x * x
    y **= 2
    return y, q * x


@program(p)
def every_operator(x: Any) -> Any:
    y, q = x * 3.0, x * 1.0
    alias = y
    y %= 2.0
    alias += 2.5 * x
    y **= x
    y //= 1e9
    y += x
    q **= 0.5
    q /= x + y
    return y * q, alias


@program(s)
def the_matrix_product_in_place(x: Any) -> Any:
    y = x * 1.0
    q = y
    y @= x
    return q * x


@program(z)
def complex_operators(x: Any) -> Any:
    y = x * 1.0
    q = y
    y *= x
    y -= 1j * x
    y /= 2 + x
    y **= 2
    return q * x


@program(np.array([0.3 + 1.1j]))
def complex_products_of_one_entry_round_as_in_place(x: Any) -> Any:
    y = x * 1.0
    y *= np.array([0.1 + 0.7j])
    y *= x
    return y


@program(v)
def scalars_are_rebound(x: Any) -> Any:
    first = x[0]
    kept = first
    first += x[1]
    first *= x[2]
    total = np.sum(x)
    before = total
    total -= x[0]
    return kept * first, before * total


@program(v)
def arrays_without_axes_are_not_rebound(x: Any) -> Any:
    """What NumPy makes an array of, also where it has no axes, changes under all its names."""
    s, y = x[0], x * 1.0
    made = [
        np.where(s > 0, s, 0.5),
        np.copy(s),
        s[...],
        np.reshape(x[1:2], ()),
        np.squeeze(x[:1]),
        np.tensordot(x, y, 1),
    ]
    made += [y[2, ...], y[:1].reshape(()), np.select([s > 0, s < 0], [s, x[1]], 0.5), np.real(np.copy(s)), mnp.array(s)]
    made += [mnp.asarray(s), mnp.copy(s), mnp.full((), s), np.roll(s, 1), np.real_if_close(s), np.copy(s).T, np.i0(s)]
    for part in made:
        q = part
        q += x[1]
        q *= part * s
        part[...] = q + s
        part[()] *= x[2]
    return *made, y


@program(v)
def scalars_without_axes_are_rebound(x: Any) -> Any:
    s, y = x[0], np.copy(x[1])
    made = [np.sum(x), np.dot(x, x), np.max(x), np.linalg.norm(x), np.einsum("i,i", x, x), np.mean(x * x), x @ x]
    made += [y + 1.0, np.sin(y), -y, y[()], np.add.reduce(x), np.median(x), np.inner(x, x), np.vdot(x, x), np.std(x)]
    made += [
        s.copy(),
        np.real(s),
        np.transpose(s),
        s.reshape(()),
        np.take(x, 1),
        np.trace(np.outer(x, x)),
        np.clip(y, -9, 9),
    ]
    names = list(made)
    for k in range(len(made)):
        made[k] += x[1]
        made[k] *= s
    y += 1.0
    return *names, *made, y


@program(v)
def derivatives_are_arrays(x: Any) -> Any:
    """A gradient, a tangent and a cotangent are arrays; values are what the function makes."""
    s = x[0]
    a = grad(lambda t: t * t * x[1])(s)
    b, c = jvp(lambda t: np.where(t > 9, x[1], t * t), (s,), (x[1],))
    d, pullback = vjp(lambda t: t * t * t, s)
    e = checkpoint(lambda t: np.where(t > 9, x[1], t * t))(s)
    made = [a, b, c, d, *pullback(x[1]), e]
    for part in made:
        q = part
        q += x[1]
        q *= part
    return tuple(made)


@program(m)
def a_0_d_view_is_no_scalar(x: Any) -> Any:
    y = x * 1.0
    entry, scalar = y[1, 2, ...], y[1, 2]
    entry *= x[0, 0]
    scalar *= 5.0
    entry[...] += x[0, 1]
    return y * y, entry * scalar


@program(zero_d, batched=False)  # inside vmap an example without axes is a scalar
def a_0_d_array(x: Any) -> Any:
    y = x
    y += 1.0
    y *= x
    y[...] = y * x
    y[()] -= 2.0
    q = np.copy(y)
    q.fill(y)
    return y * y, q * 1.0


@program(v)
def a_0_d_buffer_is_written_through_a_parameter(x: Any) -> Any:
    def add(total: Any, value: Any) -> None:
        total += value

    total = np.zeros_like(x[0])
    add(total, x[0])
    add(total, x[1] * x[0])
    return total * x


@program(v, w)
def arguments_are_written_into(x: Any, u: Any) -> Any:
    x[1:] = x[:-1] * x[1:]
    u += x
    x *= u
    u[0] = 1.0
    return x * u


@program(m)
def rows_of_a_loop_are_views(x: Any) -> Any:
    y = x * 1.0
    for row in y:
        row *= row[0]  # noqa: PLW2901 - written into, not rebound
    for a, b in zip(y.T, x, strict=False):
        a[0] += b[0]
    first, *_, last = y
    last += first
    return y * y


@program(v)
def a_buffer_filled_in_a_loop(x: Any) -> Any:
    y = np.zeros_like(x)
    y[0] = x[0]
    for i in range(1, 4):
        y[i] = y[i - 1] * x[i] + np.sin(y[i - 1])
    return y


@program(v)
def a_stencil(x: Any) -> Any:
    u = np.zeros_like(x, shape=8)
    u[2:6] = x
    for _ in range(3):
        u[1:-1] += 0.2 * (u[2:] * u[:-2] - u[1:-1])
    return u


@program(v)
def buffers_of_every_kind(x: Any) -> Any:
    a, b, c, d = np.zeros_like(x), np.ones_like(x), np.empty_like(x), np.full_like(x, 2.0)
    a[1:] = x[1:]
    b *= x
    c[...] = x * x
    d[::2] -= x[::2]
    e = np.full_like(x, x[0])
    e[1] = 3.0
    wide = np.zeros_like(x, dtype=complex)
    wide[1:] = x[1:] * 1j
    wide.real = x * x
    return a * b * c * d * e, wide * wide


@program(v)
def buffers_are_copied_and_combined(x: Any) -> Any:
    b = np.zeros_like(x)
    c = b.copy()
    b[:2] = x[:2]
    total = b + c
    c += b * x
    b *= 2.0
    return total * c, b * x


# ---------------------------------------------------------------- methods and functions that write


@program(v)
def fill(x: Any) -> Any:
    y = x * 1.0
    y[1:].fill(x[0])
    q = np.empty_like(x)
    q.fill(2.0)
    return y * x, q * x


@program(distinct(3, 4))
def sort_and_partition(x: Any) -> Any:
    y = x * 1.0
    y.sort()
    y[:, 1].sort()
    y.partition(1, axis=0)
    y[::-1, 2].sort()
    return y * x


@program(m, v)
def put_and_flat(x: Any, u: Any) -> Any:
    x.put([0, -1], u[:2])
    x.flat[3] = x.flat[4] ** 2
    x.flat[[5, 6]] = u[2:]
    x.T.flat[:3] = x[0, :3] * 2.0
    x[1:].flat = u
    return x * x


@program(zm, m)
def real_and_imaginary_parts_are_set(x: Any, u: Any) -> Any:
    x.real = u
    x.imag[1:] *= u[1:]
    x[0].imag = x[1].real * 2.0
    x.T.real += x.T.imag
    x.imag[:, 0] = 1.0
    return x * x


@program(v, w)
def ufuncs_with_out(x: Any, u: Any) -> Any:
    o = np.empty_like(x)
    same = np.add(x, u, out=o)
    np.multiply(o, x, o)
    np.sin(u, out=x[:])
    np.negative(o[1:], out=o[:-1])
    return same * x, o


@program(v, w)
def ufuncs_with_where(x: Any, u: Any) -> Any:
    o = x * u
    np.exp(x, where=mask, out=o)
    np.multiply(o, u, out=o, where=[False, True, True, False])
    return o * o, np.sum(x, where=mask), np.add.reduce(x * u, where=mask)


@program(v)
def reductions_with_out(x: Any) -> Any:
    o, total = np.empty_like(x), np.empty_like(x, shape=())
    np.add.reduce(x * x, out=total)
    np.multiply.accumulate(x, out=o)
    table = np.empty_like(x, shape=(4, 4))
    np.multiply.outer(x, o, out=table)
    np.cumsum(table, axis=1, out=table)
    np.multiply.accumulate(o, out=o)
    return total * o, table


@program(m)
def functions_with_out(x: Any) -> Any:
    o = np.empty_like(x[0])
    np.sum(x, axis=0, out=o)
    kept = o * o
    np.mean(x * x, 0, out=o[:])
    np.clip(x, -0.5, 0.5, out=x)
    joined = np.empty_like(x, shape=8)
    np.concatenate([o, x[0]], out=joined)
    np.take(x[0], [0, 0, 1, 2], out=o)
    return kept * o, joined * joined


@program(v)
def two_outputs(x: Any) -> Any:
    fraction, whole = np.empty_like(x), np.empty_like(x)
    np.modf(3 * x, fraction, whole)
    again = np.modf(x * 5, out=(whole, None))
    return fraction * x, whole * again[1]


@program(positive(4), positive(4, seed=1))
def at_of_several_ufuncs(x: Any, u: Any) -> Any:
    np.add.at(x, [0, 0, 1], u[:3])
    np.multiply.at(x, [0, 0, -4], u[1:])
    np.subtract.at(x, [3, 3], u[0])
    np.divide.at(x, [1, 1], u[2])
    np.power.at(x, [2], 2.0)
    np.maximum.at(x, [2, 2], u[:2])
    np.negative.at(x, [0, 0, 1])
    np.exp.at(x, [3])
    np.sqrt.at(u, slice(1, 3))
    return x * u


@program(m)
def at_with_slices_and_tuples(x: Any) -> Any:
    np.multiply.at(x, ([0, 0], slice(1, 3)), x[1, :2])
    np.add.at(x, (slice(None), [1, 1]), x[:, :1])
    np.add.at(x, (1, 1), x[2, 2])
    np.add.at(x, [], 1.0)
    np.add.at(x.T, [3, 3], x[:, 0])
    return x * x


# ---------------------------------------------------------------- layouts (trap 1)

LAYOUTS = {
    "C": m,
    "Fortran": np.asfortranarray(m),
    "negative strides": m[::-1, ::-1],
    "every other": normal(6, 8)[::2, ::2],
    "moved axes": np.moveaxis(normal(4, 2, 3), 0, 1),
    "one long axis": normal(1, 6)[:, ::-1],
}


def reshaped_after_a_write(x: Any) -> Any:
    """Whether ravel and reshape alias depends on the layout, which the first write must not change."""
    y, n = x, x.size
    y[0] *= 2.0
    flat, table, turned = y.ravel(), y.reshape(2, n // 2), y.T.reshape(-1)
    flat[0] = flat[1] ** 2
    table[1] *= table[0]
    turned[1:3] += x[0].ravel()[0]
    return y * y, flat * flat, table, turned


for label, at in LAYOUTS.items():

    def layout(x: Any) -> Any:
        return reshaped_after_a_write(x)

    layout.__name__ = f"layout {label}"
    program(at, batched=label == "C")(layout)  # a batch of examples has a layout of its own


# ---------------------------------------------------------------- the same array in several roles


@program(v)
def written_between_uses(x: Any) -> Any:
    y = x * x
    a = y * x
    y[0] = a[1]
    b = np.sin(y) * y
    y *= b
    return a, b, y


@program(v)
def a_sum_that_shares_its_tangent(x: Any) -> Any:
    b = x * 2.0
    b[1] = x[0]
    c, d, e, turned = b + 0.7, -np.negative(b), b.astype(float), np.where(mask, b, 2.0)
    kept = np.concatenate([b]), +b, b - 0.5, np.roll(b, 0), np.real_if_close(b) * 1.0, b.conj() + 0.0
    b *= x
    c[0] = 1.0
    d[1:] += c[1:]
    e[2] = 3.0
    return b * c * d * e * turned, *[k * k for k in kept]


@program(v)
def arrays_that_swap_names(x: Any) -> Any:
    a = x * 1.0
    b = a * 1.0
    a[...] = b
    b[...] = a[::-1]
    a, b = b, a
    a *= b
    b[0] = a[0]
    return a, b


@program(v)
def returned_several_times(x: Any) -> Any:
    y = x * x
    y[0] = x[1]
    return y, y, y[1:], x


@program(normal(0, 3))
def no_entries(x: Any) -> Any:
    x[:] = x * 2.0
    x += 1.0
    x[:, 0] = 5.0
    x[...] = np.zeros_like(x)
    return x * x


@program(v)
def what_numpy_refuses_changes_nothing(x: Any) -> Any:
    y = x * x
    with pytest.raises(ValueError, match="broadcast"):
        y[0:2] = np.ones(3) * x[0]
    with pytest.raises(IndexError):
        y[7] = x[0]
    with pytest.raises(IndexError):
        y[[0, 9]] = x[:2]
    with pytest.raises(ValueError, match="broadcast"):
        y += np.ones((2, 4)) * x
    with pytest.raises(IndexError):
        np.add.at(y, [0, 9], x[:2])
    with pytest.raises(np.exceptions.ComplexWarning):
        y[0] = x[0] * 1j
    with pytest.raises(TypeError):
        y += x * 1j
    with pytest.raises(IndexError):
        y[:, 0] = x[0]
    with pytest.raises(ValueError, match="read-only"):
        np.broadcast_to(y, (2, 4))[0, 0] = x[0]
    return y * x


@program(v)
def indices_that_change_afterwards(x: Any) -> Any:
    ints, bools, several = np.array([0, 1, 1]), mask.copy(), [0, 2]
    y = x * 1.0
    q = y[ints]
    y[ints] = x[:3] ** 2
    y[bools] *= 2.0
    y[several] += x[several]
    ints[:], bools[:], several[0] = 3, True, 3
    return y, q


@program(v)
def plain_arrays_that_change_afterwards(x: Any) -> Any:
    c = np.ones(4)
    y = np.zeros_like(x)
    y[...] = c
    y *= x
    c[:] = 7.0
    y[1:] = c[1:] * x[1:]
    c[:] = 9.0
    y += c * x
    c *= 0.0
    return y * x


@program(v)
def views_that_share_entries(x: Any) -> Any:
    y = x * 1.0
    wide, grid = np.broadcast_arrays(y, np.ones((2, 1)))[0], np.meshgrid(y, np.arange(2.0), copy=False)[0]
    windows = np.lib.stride_tricks.sliding_window_view(y, 2, writeable=True)
    y[0] = y[1] * x[3]
    return wide * wide, grid * wide[1], windows * windows, wide[1, 0] * windows[0, 1]


# ---------------------------------------------------------------- the properties

every_program = pytest.mark.parametrize("p", PROGRAMS, ids=repr)


@every_program
def test_value_is_the_same_bit_for_bit(p: Program, engine: str) -> None:
    want = outputs(p.alone(*p.args))
    args = p.point()
    for got in (vjp(p.f, *args)[0], jvp(p.f, tuple(args), tuple(p.point()))[0]):
        assert len(outputs(got)) == len(want)
        for g, w in zip(outputs(got), want, strict=True):
            assert type(g) is type(w)
            assert g.dtype == w.dtype
            assert g.shape == w.shape
            assert g.tobytes() == w.tobytes()
    for a, b in zip(args, p.args, strict=True):
        assert np.array_equal(a, b)  # no input is written to


def direction(p: Program) -> list[Any]:
    rng = np.random.default_rng(3)
    return [rng.normal(size=a.shape) * (1 + 0.5j if a.dtype.kind == "c" else 1) for a in p.args]


def close(got: Any, want: Any, tolerance: float = 1e-6) -> None:
    scale = max(1.0, float(np.max(np.abs(want), initial=0.0)))
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance * scale)


@every_program
def test_gradient_and_tangent_agree_with_differences(p: Program, engine: str) -> None:
    loss, args, d = weighted(p.f), p.point(), direction(p)
    nums = tuple(range(len(args)))
    value, got = value_and_grad(loss, argnums=nums)(*args)
    assert value == weighted(p.alone)(*args)
    want = gradient(lambda *xs: weighted(p.alone)(*map(relaid, xs, p.args)), args)
    for g, slope, a in zip(got, want, args, strict=True):
        assert type(g) is np.ndarray
        assert g.dtype == a.dtype
        assert not np.shares_memory(g, a)
        close(g, slope)
    close(jvp(loss, tuple(args), tuple(d))[1], sum(np.sum((g * e).real) for g, e in zip(want, d, strict=True)))
    close(linearize(loss, *args)[1](*d), jvp(loss, tuple(args), tuple(d))[1], 1e-12)
    for a, b in zip(args, p.args, strict=True):
        assert np.array_equal(a, b)


def relaid(a: Any, like: Any) -> Any:
    """Return an array's values laid out like another's."""
    copy = Layout(like).blank(dtype=a.dtype)
    copy[...] = a
    return copy


@every_program
def test_second_derivatives_agree_with_differences(p: Program) -> None:
    loss, d, nums = weighted(p.f), direction(p), tuple(range(len(p.args)))

    def slope(*args: Any) -> Any:
        return weighted(lambda *gs: gs, seed=77)(*grad(loss, argnums=nums)(*args))

    def along(*args: Any) -> Any:
        return jvp(loss, args, tuple(d))[1]

    for f in (slope, along):
        want = directional(lambda *xs, f=f: float(f(*map(relaid, xs, p.args))), p.point(), d)
        size = max(1.0, abs(want))
        back = grad(f, argnums=nums)(*p.point())
        assert abs(sum(np.sum((g * e).real) for g, e in zip(back, d, strict=True)) - want) < 2e-5 * size
        assert abs(jvp(f, tuple(p.point()), tuple(d))[1] - want) < 2e-5 * size


@pytest.mark.parametrize("p", [p for p in PROGRAMS if p.batched], ids=repr)
def test_vmap_is_a_loop(p: Program) -> None:
    loss, d, nums = weighted(p.f), tuple(direction(p)), tuple(range(len(p.args)))
    batches = [np.stack([a * (1 + 0.01 * i) for i in range(3)]) for a in p.args]
    examples = [[b[i].copy() for b in batches] for i in range(3)]
    before = [b.copy() for b in batches]
    for k, g in enumerate(outputs(vmap(p.f)(*batches))):
        close(g, np.stack([outputs(p.alone(*e))[k] for e in examples]), 1e-12)
    runs: list[Callable[..., Any]] = [grad(loss, argnums=nums), lambda *xs: (jvp(loss, xs, d)[1],)]
    for run in runs:
        for k, g in enumerate(vmap(run)(*batches)):
            close(g, np.stack([run(*e)[k] for e in examples]), 1e-10)
    whole = grad(lambda *bs: np.sum(vmap(loss)(*bs)), argnums=nums)(*batches)
    for k, g in enumerate(whole):
        close(g, np.stack([grad(loss, argnums=nums)(*e)[k] for e in examples]), 1e-10)
    for a, b in zip(batches, before, strict=True):
        assert np.array_equal(a, b)


# ---------------------------------------------------------------- the tables of views and copies are right


@pytest.mark.parametrize("name", [*VIEWS, *COPIES, *READ_ONLY])
def test_what_is_a_view_is_one_for_numpy_and_here(name: str) -> None:
    def seen(x: Any) -> Any:
        y = x * 1.0
        part = look(y)
        before = part * 1.0
        y[...] = y + 1.0
        return before, part * 1.0

    for table, shared in ((VIEWS, True), (COPIES, False), (READ_ONLY, True)):
        if name in table:
            look, at = table[name]
            for run in (seen, lambda x: vjp(seen, x)[0], lambda x: jvp(seen, (x,), (x,))[0]):
                before, after = run(at.copy("K"))
                assert np.any(before != after) == (shared and "imag" not in name)
    if name in READ_ONLY:
        look, at = READ_ONLY[name]

        def refused(x: Any) -> Any:
            y = x * 1.0
            part = look(y)
            with pytest.raises(ValueError, match="read-only"):
                part[0] = 1.0
            with pytest.raises(ValueError, match="read-only"):
                part *= 2.0
            with pytest.raises(ValueError, match="read-only"):
                np.add.at(part, [0], y.ravel()[0])
            y[0] = y[1]
            with pytest.raises(ValueError, match="read-only"):
                np.add.at(part, [0], 1.0)  # which NumPy forgets to ask on one axis
            return np.sum((y * y).real)

        plain = at.copy("K")
        plain[0] = plain[1]
        for run in (
            lambda x: vjp(refused, x)[0],
            lambda x: jvp(refused, (x,), (x,))[0],
            lambda x: vmap(refused)(x[None])[0],
        ):
            np.testing.assert_allclose(run(at), np.sum((plain * plain).real))


# Rows that return views of plain arrays beside traced ones, which are not followed; and entries that share memory.
NOT_FOLLOWED = ("several", "some traced", "second traced", "no copy, 0-d")
ROWS = [c for c in UNSQUARED if c.row is not np.broadcast_arrays and not any(n in c.label for n in NOT_FOLLOWED)]


@pytest.mark.parametrize("case", ROWS, ids=lambda c: c.id)
def test_results_of_every_row_share_memory_as_numpy_says(case: Case) -> None:
    """Write into what a function returns, and then into what it was given: who sees it is NumPy's to say."""

    def scribble(*args: Any) -> Any:
        xs = [np.copy(a, order="K") if np.ndim(a) else np.zeros_like(a) + a for a in args]
        outs = [o for o in outputs(case.call(*xs)) if o.dtype.kind in "fc" and not is_scalar(o)]
        told = []
        for out in outs:
            try:
                out[...] = out * 2.0 + 1.0
            except ValueError as error:
                told.append(str(error))
        for x in xs:
            if not is_scalar(x):
                x[...] = x * 3.0
        said.append(told)
        return [*xs, *outs]

    said: list[list[str]] = []
    args = [a.copy() for a in case.args]
    want = scribble(*args)
    for run in (
        lambda: vjp(scribble, *args)[0],
        lambda: jvp(scribble, tuple(args), tuple([np.ones_like(a) for a in args]))[0],
    ):
        got = run()
        assert said[-1] == said[0]
        for g, w in zip(got, want, strict=True):
            np.testing.assert_array_equal(g, w)


# ---------------------------------------------------------------- dtypes


def test_a_single_precision_target_rounds_and_its_gradient_is_of_the_dtype_of_each_input() -> None:
    a, b = np.array([1.0, 2.0, 3.0], np.float32), np.array([0.1, 0.2, 0.3])

    def f(a: Any, b: Any) -> Any:
        y = a * a
        y[1:] = b[1:]
        y += b
        y *= 0.1
        return y

    want = f(a, b)
    assert want.dtype == np.float32
    value, pullback = vjp(f, a, b)
    assert value.tobytes() == want.tobytes()
    ga, gb = pullback(np.ones(3, np.float32))
    assert (ga.dtype, gb.dtype) == (np.float32, np.float64)
    np.testing.assert_allclose(ga, [0.2, 0.0, 0.0], rtol=1e-6)
    np.testing.assert_allclose(gb, [0.1, 0.2, 0.2], rtol=1e-6)
    assert jvp(f, (a, b), (a, b))[1].dtype == np.float32


def test_a_real_value_that_fills_a_complex_array_has_a_real_gradient() -> None:
    """The cotangent of a real value has no imaginary part that an earlier operation could take up."""
    z, w = np.array([1 + 2j, 0.5 - 1j]), np.array([0.3, 0.1 + 0.7j])

    def f(z: Any) -> Any:
        y = z * 1.0
        y[...] = np.abs(z)
        return np.real(np.sum(y * w))

    np.testing.assert_allclose(grad(f)(z), np.real(w) * np.conj(z) / np.abs(z))


@pytest.mark.parametrize("write", ["y += 1j * y", "y *= 1j", "np.multiply(y, 1j, out=y)", "y[0] = 1j", "y.imag = 1.0"])
def test_complex_into_real_is_numpys_own_error(write: str) -> None:
    told = []

    def f(x: Any) -> Any:
        y = x * 1.0
        with pytest.raises(TypeError) as caught:
            exec(write, {"y": y, "np": np})
        told.append(type(caught.value).__mro__[-4:])
        return np.sum(y * y)

    f(v)
    np.testing.assert_allclose(grad(f)(v), 2 * v)
    assert jvp(f, (v,), (w,))[1] == pytest.approx(2 * v @ w)
    assert told[0] == told[1] == told[2]


# ---------------------------------------------------------------- what is refused


def test_arrays_of_the_object_style_are_not_written_into() -> None:
    t = Tensor([1.0, 2.0])
    y = t * 2.0
    for write in (
        lambda: y.__setitem__(0, 1.0),
        lambda: y.fill(1.0),
        lambda: np.put(y, [0], 1.0),
        lambda: np.add.at(y, [0], 1.0),
        lambda: np.multiply(y, y, out=y),
        lambda: y.sort(),
        lambda: grad(lambda x: np.sum(np.zeros_like(x).__setitem__(0, t[0]) or x))(v),
    ):
        with pytest.raises(errors.InPlaceError, match=r"object style.*np\.stack"):
            write()
    np.testing.assert_array_equal(y.data, [2.0, 4.0])
    z = y
    z += t  # is rebound, as always there
    z.sum().backward()
    np.testing.assert_array_equal(t.grad, [3.0, 3.0])


@pytest.mark.parametrize(
    "write",
    [
        lambda a, t: np.put(a, [0], t),
        lambda a, t: np.place(a, a > 0, t),
        lambda a, t: np.putmask(a, a > 0, t),
        lambda a, t: np.copyto(a, t),
        lambda a, t: np.put_along_axis(a, np.array([0]), t, 0),
        lambda a, t: np.add.at(a, [0], t[:1]),
        lambda a, t: np.multiply(t, t, out=a),
    ],
)
def test_plain_arrays_do_not_take_traced_values(write: Any) -> None:
    plain = np.ones(4)
    for run in (lambda f: grad(f)(v), lambda f: jvp(f, (v,), (w,)), lambda f: vmap(f)(np.stack([v, w]))):
        with pytest.raises(errors.InPlaceError, match=r"(?s)test_writes\.py line.*np\.zeros_like\(t\)"):
            run(lambda x: (write(plain, x * 2.0), np.sum(x))[1])
    np.testing.assert_array_equal(plain, np.ones(4))


def test_scalars_take_no_assignment() -> None:
    def f(x: Any) -> Any:
        entry = x[0]
        for write in (lambda: entry.__setitem__(0, 1.0), lambda: entry.__setitem__(..., x[1])):
            with pytest.raises(
                (TypeError, AttributeError), match="object (does not support item|has no attribute '__setitem)"
            ):
                write()
        return entry * x[1]

    f(v)
    np.testing.assert_allclose(grad(f)(v), [v[1], v[0], 0.0, 0.0])


def test_entries_that_share_memory_are_not_written_into_by_the_array() -> None:
    for look in (
        lambda y: np.broadcast_arrays(y, np.ones((2, 4)))[0],
        lambda y: np.meshgrid(y, np.arange(2.0), copy=False)[0],
        lambda y: np.lib.stride_tricks.sliding_window_view(y, 2, writeable=True),
    ):

        def f(x: Any, look: Any = look) -> Any:
            y = x * 1.0
            look(y)[...] = 2.0
            return np.sum(y)

        for run in (lambda f=f: grad(f)(v), lambda f=f: jvp(f, (v,), (w,)), lambda f=f: vmap(f)(np.stack([v, w]))):
            with pytest.raises(errors.InPlaceError, match="share memory.*copy"):
                run()


def test_what_vmap_cannot_write() -> None:
    batch = np.stack([v, w])

    def chosen(x: Any) -> Any:
        y = x * 1.0
        y[x > 0] = y[x > 0] * 2.0
        return y

    def from_outside(x: Any) -> Any:
        total[0] = x[0]
        return x

    with pytest.raises(errors.BatchError, match=r"np\.where"):
        vmap(chosen)(batch)
    total = np.zeros_like(v)
    with pytest.raises((ValueError, errors.LostDerivativeError)):
        vmap(from_outside)(batch)

    def outer(x: Any) -> Any:
        nonlocal total
        total = x * 1.0
        vmap(from_outside)(batch)
        return np.sum(total)

    with pytest.raises(errors.InPlaceError, match="filled inside vmap.*return them"):
        grad(outer)(v)


def test_an_example_of_vmap_may_be_written_by_a_mask_of_its_own() -> None:
    batch = np.stack([v, w, -v])

    def f(x: Any) -> Any:
        y = x * x
        y[x > 0] = 0.5
        y[x < -0.5] = 2.0 * np.sum(x)
        np.putmask(y, x > 0.8, x)
        np.copyto(y, np.sin(x), where=(x > -0.2) & (x < 0))
        y[np.argmax(x)] = x[0] * x[1]
        y[np.argsort(x)[:2]] *= x[2:]
        return y

    np.testing.assert_allclose(vmap(f)(batch), [f(x.copy()) for x in batch])
    slope, push = grad(weighted(f)), lambda x: jvp(f, (x,), (w,))[1]
    np.testing.assert_allclose(vmap(slope)(batch), [slope(x) for x in batch])
    np.testing.assert_allclose(vmap(push)(batch), [push(x) for x in batch])
    np.testing.assert_allclose(vmap(jacrev(f))(batch), [jacrev(f)(x) for x in batch])
    np.testing.assert_allclose(vmap(jacfwd(f))(batch), [jacrev(f)(x) for x in batch])
    whole = grad(lambda b: np.sum(vmap(weighted(f))(b)))(batch)
    np.testing.assert_allclose(whole, [slope(x) for x in batch])


def test_a_plain_index_and_one_of_each_example() -> None:
    rows, batch = np.array([2, 0, 3]), normal(3, 4, seed=7)

    def f(x: Any, i: Any) -> Any:
        y = np.zeros_like(x)
        y[i] = x[0] * x[i]
        y[[1, i]] += x[:2]
        np.add.at(y, np.stack([i, i, i * 0]), x[1:])
        return y

    want = [f(x.copy(), int(i)) if i else None for x, i in zip(batch, rows, strict=True)]
    got = vmap(f)(batch, rows)
    for g, one, x, i in zip(got, want, batch, rows, strict=True):
        np.testing.assert_allclose(g, one if one is not None else f(x.copy(), int(i)))
    slope = lambda x, i: grad(lambda x: np.sum(np.sin(f(x, i))))(x)  # noqa: E731
    np.testing.assert_allclose(vmap(slope)(batch, rows), [slope(x, int(i)) for x, i in zip(batch, rows, strict=True)])


# ---------------------------------------------------------------- dead branches

x_bad = np.array([-1.0, 2.0, 0.0, 3.0])


def logarithm(x: Any) -> Any:
    with np.errstate(all="ignore"):
        y = np.log(x)
    y[x <= 0] = 0.0
    return np.sum(y * y)


def root_through_a_view(x: Any) -> Any:
    with np.errstate(all="ignore"):
        y = np.sqrt(x)
    part = y[::-1]
    part[[1, 3]] = 2.0
    part *= 3.0
    return np.sum(part * y[::-1])


def quotient_and_copyto(x: Any) -> Any:
    with np.errstate(all="ignore"):
        y = np.log(x) / x
    np.copyto(y, x, where=x <= 0)
    return np.sum(y)


def overwritten_and_read_backwards(x: Any) -> Any:
    with np.errstate(all="ignore"):
        y = np.log(x)
    y[1] *= 1.0
    back = y[::-1]
    return np.sum(np.where(x[::-1] > 0, back, 0.0)) + y[3]


@pytest.mark.parametrize(
    ("f", "want"),
    [
        (logarithm, lambda x: np.where(x > 0, 2 * np.log(np.abs(x) + (x == 0)) / np.where(x > 0, x, 1), 0)),
        (root_through_a_view, lambda x: np.where(x > 0, 9.0, 0.0)),
        (
            quotient_and_copyto,
            lambda x: np.where(x > 0, (1 - np.log(np.abs(x) + (x == 0))) / np.where(x > 0, x * x, 1), 1),
        ),
        (overwritten_and_read_backwards, lambda x: np.where(x > 0, (1 + (x == 3)) / np.where(x > 0, x, 1), 0)),
    ],
)
def test_what_is_overwritten_contributes_nothing(f: Any, want: Any) -> None:
    np.testing.assert_allclose(grad(f)(x_bad), want(x_bad), atol=1e-14)
    batch = np.stack([x_bad, x_bad[::-1], np.abs(x_bad) + 1])
    if f is not root_through_a_view and f is not overwritten_and_read_backwards:
        np.testing.assert_allclose(vmap(grad(f))(batch), want(batch), atol=1e-14)
        np.testing.assert_allclose(grad(lambda b: np.sum(vmap(f)(b)))(batch), want(batch), atol=1e-14)
    ok = x_bad > 0
    second = hessian(f)(x_bad)
    assert np.all(second[~ok] == 0)
    assert np.all(second[:, ~ok] == 0)
    smooth = np.where(ok, x_bad, 1.0)
    step = (want(smooth + 1e-6) - want(smooth - 1e-6)) / 2e-6
    if f is not overwritten_and_read_backwards:
        np.testing.assert_allclose(np.diag(second)[ok], step[ok], rtol=1e-6, atol=1e-8)


def test_what_is_not_overwritten_stays_honest() -> None:
    def f(x: Any) -> Any:
        y = np.sqrt(x)
        y[1] = 1.0
        return np.sum(y * y)

    with pytest.warns(errors.NaNWarning):
        got = grad(f)(np.zeros(2))
    assert np.isnan(got[0])
    assert got[1] == 0.0


# ---------------------------------------------------------------- P6: nothing left behind


def writes_everywhere(x: Any) -> Any:
    y = x * x
    part, back = y[1:], y[::-1]
    part *= x[1:]
    back[0] = y[1]
    buffer = np.zeros_like(x)

    def inner(t: Any) -> Any:
        buffer[...] = t * y
        part[0] = t[0]
        return np.sum(buffer * y)

    y += grad(inner)(x * 2.0)
    y[:2] += jvp(inner, (y,), (x,))[1]
    return np.sum(y * buffer)


@pytest.mark.parametrize(
    "call",
    [
        lambda: grad(writes_everywhere)(v),
        lambda: jvp(writes_everywhere, (v,), (w,)),
        lambda: hessian(writes_everywhere)(v),
        lambda: vmap(grad(lambda x: np.sum(np.sin(written_both_ways(lambda y: y.T, "")(x)[1]))))(x3),
        lambda: grad(lambda x: checkpoint(lambda a: written_both_ways(lambda y: y[::-1], "")(a)[2])(x)[0])(v),
        lambda: vjp(lambda x: [np.zeros_like(x), written_both_ways(lambda y: y[1:], "")(x)], v)[1],
        lambda: grad(logarithm)(x_bad),
    ],
    ids=["grad", "jvp", "hessian", "vmap", "checkpoint", "pullback", "dead branches"],
)
def test_no_cycles_after_writes(call: Callable[[], Any], engine: str) -> None:
    assert objects_left_by(call) == 0


def test_no_cycles_after_a_write_that_fails() -> None:
    def f(x: Any) -> Any:
        y = x * 1.0
        part = y[1:]
        part[0] = x[0]
        y[17] = 1.0
        return part

    def call() -> None:
        for run in (lambda: grad(f)(v), lambda: grad(lambda x: grad(f)(x * 2.0)[0])(v)):
            try:
                run()
            except IndexError:
                continue
            raise AssertionError

    assert objects_left_by(call) == 0


def test_buffers_are_freed_when_the_program_drops_them() -> None:
    """A trace holds no array that was lifted into it, nor do views that are gone."""
    refs: list[weakref.ref[Any]] = []

    def f(x: Any) -> Any:
        for _ in range(3):
            buffer = np.zeros_like(x)
            buffer[0] = x[0]  # lifted
            refs.append(weakref.ref(buffer))
            refs.append(weakref.ref(buffer[1:]))
        del buffer
        assert all([ref() is None for ref in refs])
        return np.sum(x)

    gc.disable()
    try:
        grad(f)(v)
        jvp(f, (v,), (w,))
    finally:
        gc.enable()
    assert len(refs) == 12


def test_written_values_that_outlive_their_trace() -> None:
    kept: list[Any] = []

    def f(x: Any) -> Any:
        y = x * 1.0
        y[0] = x[1]
        kept.extend([y, y[1:]])
        return np.sum(y)

    grad(f)(v)
    for t in kept:
        for use in (lambda t: t * 2.0, lambda t: t[0], lambda t: t.__setitem__(0, 1.0), np.sum, lambda t: t.fill(0.0)):
            with pytest.raises(errors.EscapedTensorError, match="has_aux=True"):
                use(t)


def test_a_buffer_that_outlives_its_trace_holds_its_values() -> None:
    kept: list[Any] = []

    def f(x: Any) -> Any:
        buffer = np.zeros_like(x)
        kept.append(buffer)
        buffer[1] = 3.0
        return np.sum(x * buffer)

    grad(f)(v)
    np.testing.assert_array_equal(np.asarray(kept[0]), [0.0, 3.0, 0.0, 0.0])
    assert kept[0][1] * 2.0 == 6.0


def test_threads_write_into_their_own_arrays() -> None:
    def f(x: Any, k: int) -> Any:
        y = np.zeros_like(x)
        for i in range(50):
            y[i % 4] += np.sin(x[i % 4]) * k
        return np.sum(y * y)

    with ThreadPoolExecutor(4) as pool:
        got = list(pool.map(lambda k: grad(f)(v, k), range(1, 9)))
    for k, g in enumerate(got, 1):
        np.testing.assert_array_equal(g, grad(f)(v, k))


def test_threads_that_write_into_one_traced_array() -> None:
    def f(x: Any) -> Any:
        y = np.zeros_like(x)
        y *= x

        def job(i: int) -> None:
            y[i] = x[i] ** 2 * grad(lambda t: t * t)(x[i])

        with ThreadPoolExecutor(1) as pool:
            list(pool.map(job, range(4)))
        return np.sum(y)

    np.testing.assert_allclose(grad(f)(v), 6 * v**2)


# ---------------------------------------------------------------- P7: linear cost


def filling(x: Any) -> Any:
    y = np.zeros_like(x)
    y[0] = x[0]
    for i in range(1, len(x)):
        y[i] = y[i - 1] * 0.5 + x[i] * x[i - 1]
    return np.sum(y)


def rows(x: Any) -> Any:
    table = np.zeros_like(x, shape=(len(x), 64))
    views = list(table)
    for i, row in enumerate(views):
        row += x[i]  # noqa: PLW2901
    return np.sum(table * table)


def stencil(x: Any) -> Any:
    u = x * 1.0
    inner = u[1:-1]
    for _ in range(len(x) // 20):
        inner += 0.1 * (u[2:10] - u[1:9]).sum()
    return np.sum(u * u)


def peak(run: Callable[[], Any]) -> int:
    """Return the most bytes that were held at one time."""
    run()
    gc.collect()
    tracemalloc.start()
    try:
        run()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("f", [filling, rows])
def test_memory_grows_linearly(f: Callable[[Any], Any]) -> None:
    for run in (grad(f), lambda x: jvp(f, (x,), (x,))):
        small, large = [peak(lambda n=n, run=run: run(np.linspace(0.0, 1.0, n))) for n in (500, 1000)]
        assert large < 2.5 * small


@pytest.mark.parametrize("f", [filling, rows, stencil])
def test_the_backward_pass_makes_one_buffer_for_many_writes(
    f: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []
    blank = Layout.blank

    def counting(self: Layout, size: int | None = None, dtype: Any = None) -> Any:
        buffer = blank(self, size, dtype)
        made.append(buffer.size)
        return buffer

    monkeypatch.setattr(Layout, "blank", counting)
    counts = []
    for n in (40, 400):
        made.clear()
        grad(f)(np.linspace(0.0, 1.0, n))
        counts.append(len(made))
    assert counts[1] == counts[0] <= 6


def test_notes_grow_linearly_with_writes_and_live_views() -> None:
    notes = []

    def f(x: Any, n: int) -> Any:
        table = np.zeros_like(x, shape=(n, 3))
        views = list(table)
        for row in views:
            row += x  # noqa: PLW2901
        for row in views:
            row *= 2.0  # noqa: PLW2901
        notes.append(table._trace.serial)
        return np.sum(table)

    for n in (100, 200, 400):
        np.testing.assert_allclose(grad(f)(v[:3], n), 2.0 * n * np.ones(3))
    assert notes[2] - notes[1] == 2 * (notes[1] - notes[0])


def test_views_of_views_thousands_deep() -> None:
    def f(x: Any) -> Any:
        y = x * 1.0
        part, wide = y, np.broadcast_to(y, (2, 4))
        for _ in range(3001):
            part, wide = part[::-1], wide[:, ::-1]
        y[0] = y[1] ** 2
        part[0] = part[2] * 3.0
        return np.sum(part * part) + np.sum(wide * wide)

    def same(x: Any) -> Any:
        return 3.0 * (x[1] ** 4 + x[1] ** 2 + x[2] ** 2 + 9.0 * x[1] ** 2)

    np.testing.assert_allclose(grad(f)(v), grad(same)(v))
    np.testing.assert_allclose(jvp(f, (v,), (w,))[1], jvp(same, (v,), (w,))[1])
    np.testing.assert_allclose(vmap(f)(np.stack([v, w])), [same(v), same(w)])


def test_a_long_loop_of_writes_needs_no_recursion() -> None:
    def f(x: Any) -> Any:
        y = np.zeros_like(x)
        for i in range(5000):
            y[i % 4] = y[(i + 1) % 4] + x[i % 4]
        return np.sum(y)

    g = grad(f)(v)
    np.testing.assert_array_equal(g, jacfwd(f)(v))
    assert np.sum(g) > 4000


@pytest.mark.parametrize("derivative", [grad, lambda f: lambda x: jvp(f, (x,), (np.ones(2),))[1] * np.ones(2) / 2])
def test_a_plain_array_that_a_function_hands_back_stays_what_it_was(derivative: Any) -> None:
    def f(x: Any) -> Any:
        const = np.ones(2)
        a, c = np.atleast_1d(x, const)
        c[:] = 5.0
        return np.sum(a * const)

    np.testing.assert_array_equal(derivative(f)(np.array([1.0, 2.0])), [5.0, 5.0])
