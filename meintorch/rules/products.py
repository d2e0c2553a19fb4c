"""Products: matrix products, contractions, convolutions.

The transpose of a product is a product of the same kind, so that most rules call the function itself or a close
relative. What matters for speed is that a cotangent is one product of two matrices wherever it can be: a matrix that
met a whole stack of others gets its sum over the stack from one product of flattened arrays. `np.dot` is used for two
matrices, because it copies operands whose strides BLAS cannot take, such as a stretched cotangent's.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from meintorch.core.batching import BatchCall, flat, lift, shifted
from meintorch.core.large import matmul
from meintorch.core.primitive import composite, multilinear, spelling
from meintorch.core.shapes import dtype_of, expand, shape_of
from meintorch.core.trace import array_of
from meintorch.errors import NoRuleError


def _conj(x: Any) -> Any:
    """Return the conjugate; a real array itself, uncopied."""
    return np.conjugate(x) if dtype_of(x).kind == "c" else x


def _mT(x: Any) -> Any:  # noqa: N802 (as NumPy calls it)
    return x.swapaxes(-1, -2)


def _rows(x: Any) -> Any:
    """Return all vectors along the last axis, as the rows of one matrix."""
    return x if x.ndim == 2 else x.reshape(math.prod(x.shape[:-1]), x.shape[-1])


# ---------------------------------------------------------------- batches of products

Operand = tuple[Any, bool]  # an array, and whether it is batched


def _ndim(x: Operand) -> int:
    """Return the number of axes that an example has."""
    return int(x[0].ndim) - x[1]


def _stacked(a: Operand, b: Operand, product: Callable[..., Any], a_core: int, b_core: int) -> Any:
    """Apply a product that takes stacks; the last ``a_core`` and ``b_core`` axes are those of one matrix or vector."""
    ndim = max(_ndim(a) - a_core, _ndim(b) - b_core)
    return product(lift(*a, ndim + a_core), lift(*b, ndim + b_core))


def _contract(a: Operand, b: Operand, of_a: list[int], of_b: list[int]) -> Any:
    """Contract axes of two arrays, of which one or both are batched, by one product of matrices or of stacks."""
    m, n = _ndim(a) - len(of_a), _ndim(b) - len(of_b)
    (x, x_batched), (y, y_batched) = a, b
    left, right = [k + x_batched for k in of_a], [k + y_batched for k in of_b]
    if not y_batched:
        return np.tensordot(x, y, (left, right))
    if not x_batched:
        return np.tensordot(y, x, (right, left)) if n == 0 else np.moveaxis(np.tensordot(x, y, (left, right)), m, 0)
    free = [k for k in range(1, x.ndim) if k not in left], [k for k in range(1, y.ndim) if k not in right]
    x, y = np.transpose(x, (0, *free[0], *left)), np.transpose(y, (0, *right, *free[1]))
    rows, inner, columns = x.shape[1 : m + 1], math.prod(x.shape[m + 1 :]), y.shape[1 + len(right) :]
    size = x.shape[0]
    x, y = x.reshape(size, math.prod(rows), inner), y.reshape(size, inner, math.prod(columns))
    return np.matmul(x, y).reshape(size, *rows, *columns)


def _matmul(a: Operand, b: Operand, **options: Any) -> Any:
    """Multiply as np.matmul does."""
    m, n = _ndim(a), _ndim(b)
    x, y = a[0], b[0]
    if not m or not n:
        return None
    if not b[1] and n <= 2:  # one matrix, or vector, for all rows of all examples
        return np.matmul(_rows(x), y, **options).reshape(*x.shape[:-1], *y.shape[1:])
    if not a[1] and n == 1 and m <= 2:
        return np.matmul(y, x.T, **options)
    x, y = (x[..., None, :] if m == 1 else x), (y[..., None] if n == 1 else y)
    h = _stacked((x, a[1]), (y, b[1]), lambda x, y: np.matmul(x, y, **options), 2, 2)
    h = h[..., 0] if n == 1 else h
    return (h[..., 0] if n == 1 else h[..., 0, :]) if m == 1 else h


def _matmul_batch(call: BatchCall) -> Any:
    return _matmul(call.operand("x1"), call.operand("x2"), **call.kwargs)


def _dot_batch(call: BatchCall) -> Any:
    return _dot(call.operand("a"), call.operand("b"))


def _dot(a: Operand, b: Operand) -> Any:
    if not _ndim(a) or not _ndim(b):
        return _stacked(a, b, np.multiply, 0, 0)
    return _matmul(a, b) if _ndim(b) <= 2 else _contract(a, b, [_ndim(a) - 1], [_ndim(b) - 2])


def _inner_batch(call: BatchCall) -> Any:
    a, b = call.operand("a"), call.operand("b")
    if not _ndim(a) or not _ndim(b):
        return _stacked(a, b, np.multiply, 0, 0)
    return _contract(a, b, [_ndim(a) - 1], [_ndim(b) - 1])


def _vector(x: Operand) -> Operand:
    """Return the entries of an array as a vector."""
    return (flat(x[0]) if x[1] else x[0].reshape(-1)), x[1]


def _vdot_batch(call: BatchCall) -> Any:
    a, batched = _vector(call.operand("a"))
    return _matmul((_conj(a), batched), _vector(call.operand("b")))


def _outer_batch(call: BatchCall) -> Any:
    (a, _), b = _vector(call.operand("a")), _vector(call.operand("b"))
    return np.multiply(a[..., None], lift(*b, 2) if b[1] else b[0])


def _kron_batch(call: BatchCall) -> Any:
    """Multiply with the operands' axes alternating, and take them together in pairs."""
    a, b = call.operand("a"), call.operand("b")
    ndim = max(_ndim(a), _ndim(b))
    shapes = [(1,) * (ndim - _ndim(x)) + x[0].shape[x[1] :] for x in (a, b)]
    x = a[0].reshape([*a[0].shape[: a[1]], *[k for n in shapes[0] for k in (n, 1)]])
    y = b[0].reshape([*b[0].shape[: b[1]], *[k for n in shapes[1] for k in (1, n)]])
    return np.multiply(x, y).reshape(call.size, *[m * n for m, n in zip(*shapes, strict=True)])


def _multi_dot_batch(call: BatchCall) -> Any:
    operands = [(x if hasattr(x, "shape") else np.asarray(x), batched) for x, batched in call.many("arrays")]
    if len(operands) == 2:
        return _dot(*operands)
    letters = [_LETTERS[k : k + 2] for k in range(1, len(operands) + 1)]
    if _ndim(operands[0]) == 1:
        letters[0] = letters[0][1:]
    if _ndim(operands[-1]) == 1:
        letters[-1] = letters[-1][:1]
    out = letters[0][:-1] + letters[-1][1:]
    subscripts = ",".join([_LETTERS[0] * x[1] + names for x, names in zip(operands, letters, strict=True)])
    return np.einsum(f"{subscripts}->{_LETTERS[0]}{out}", *[x for x, _ in operands], optimize=True)


def _vecdot_batch(call: BatchCall) -> Any:
    options = dict(call.kwargs)
    axis, keepdims = options.pop("axis", -1), options.pop("keepdims", False)
    pair = [call.operand("x1"), call.operand("x2")]
    if axis != -1:
        pair = [(np.moveaxis(x, shifted(axis, x.ndim - 1) if b else axis, -1), b) for x, b in pair]
    h = _stacked(pair[0], pair[1], lambda x, y: np.vecdot(x, y, **options), 1, 1)
    return np.expand_dims(h, shifted(axis, h.ndim)) if keepdims else h


def _matvec_batch(call: BatchCall) -> Any:
    x1, x2 = call.operand("x1"), call.operand("x2")
    if not x1[1] and x1[0].ndim == 2:
        return _matmul(x2, (x1[0].T, False), **call.kwargs)
    return _stacked(x1, x2, lambda x, y: np.matvec(x, y, **call.kwargs), 2, 1)


def _vecmat_batch(call: BatchCall) -> Any:
    x1, x2 = call.operand("x1"), call.operand("x2")
    if not x2[1] and x2[0].ndim == 2:
        return _matmul((_conj(x1[0]), x1[1]), x2, **call.kwargs)
    return _stacked(x1, x2, lambda x, y: np.vecmat(x, y, **call.kwargs), 1, 2)


def _cross_batch(call: BatchCall) -> Any:
    axis = call.get("axis")
    axes = [call.get(name) if axis is None else axis for name in ("axisa", "axisb", "axisc")]
    pair = [
        (np.moveaxis(x, shifted(k, x.ndim - 1) if batched else k, -1), batched)
        for (x, batched), k in zip((call.operand("a"), call.operand("b")), axes, strict=False)
    ]
    h = _stacked(pair[0], pair[1], np.cross, 1, 1)
    return h if pair[0][0].shape[-1] == pair[1][0].shape[-1] == 2 else np.moveaxis(h, -1, shifted(axes[2], h.ndim - 1))


def _tensordot_batch(call: BatchCall) -> Any:
    a, b = call.operand("a"), call.operand("b")
    return _contract(a, b, *_contracted(call.get("axes"), _ndim(a), _ndim(b)))


def _einsum_batch(call: BatchCall) -> Any:
    """Give the batch a letter that is not in use, as the first one."""
    operands, flags = zip(*call.many("operands"), strict=True)
    arrays, subs, out = _subscripts(operands, flags)
    letter = next((c for c in _LETTERS if c not in "".join([*subs, out])), None)
    if letter is None:
        return None
    batched = flags[1:] if isinstance(operands[0], str) else flags[::2]
    subs = [letter * flag + sub for sub, flag in zip(subs, batched, strict=False)]
    return np.einsum(f"{','.join(subs)}->{letter}{out}", *arrays, **call.kwargs)


def _convolve(a: Operand, v: Operand, mode: Any, *, correlate: bool) -> Any:
    """Multiply windows of the longer array, reversed or not, with the shorter one."""
    m, n = [x[0].shape[-1] for x in (a, v)]
    kind = "vsf".index(mode[0].lower()) if isinstance(mode, str) else mode
    if not m or not n or m * n > 1 << 16:  # for arrays so long nothing is gained, and windows would take much memory
        return None
    if correlate:
        v = (_conj(v[0])[..., ::-1], v[1])
    long, short, start = (v, a, min(m, n) // 2) if m < n else (a, v, (min(m, n) - 1) // 2)
    k, length = min(m, n), max(m, n)
    if not correlate:
        start = (k - 1) // 2
    start, count = [(k - 1, length - k + 1), (start, length), (0, length + k - 1)][kind]
    zeros = np.zeros((*long[0].shape[:-1], k - 1), long[0].dtype)
    windows = sliding_window_view(np.concatenate([zeros, long[0], zeros], -1), k, -1)[..., start : start + count, :]
    subscripts = f"{'b' * long[1]}tk,{'b' * short[1]}k->bt"
    return np.einsum(subscripts, windows, short[0][..., ::-1])


def _convolve_batch(call: BatchCall) -> Any:
    a, v = _vector(call.operand("a")), _vector(call.operand("v"))
    return _convolve(a, v, call.get("mode"), correlate=False)


def _correlate_batch(call: BatchCall) -> Any:
    a, v = call.operand("a"), call.operand("v")
    return _convolve(a, v, call.get("mode"), correlate=True) if _ndim(a) == _ndim(v) == 1 else None


# ---------------------------------------------------------------- matmul and dot


def _matmul_x1(g: Any, x1_ndim: int, x2: Any) -> Any:
    if x2.ndim == 2:
        if x1_ndim == 2:
            return matmul(g, x2.T)
        return np.dot(x2, g) if x1_ndim == 1 else np.dot(_rows(g), x2.T).reshape(*g.shape[:-1], x2.shape[0])
    if x2.ndim == 1:
        return g * x2 if x1_ndim == 1 else g[..., None] * x2
    if x1_ndim <= 2:
        stack = tuple(range(x2.ndim - 2))
        return np.tensordot(g, x2, ((*stack, -1), (*stack, -1)))
    return matmul(g, _mT(x2))


def _matmul_x2(g: Any, x1: Any, x2_ndim: int) -> Any:
    if x2_ndim == 2:
        if x1.ndim == 2:
            return matmul(x1.T, g)
        return x1[:, None] * g if x1.ndim == 1 else np.dot(_rows(x1).T, _rows(g))
    if x2_ndim == 1:
        return g * x1 if x1.ndim == 1 else np.dot(g.reshape(-1), _rows(x1))
    return x1[:, None] * g[..., None, :] if x1.ndim == 1 else matmul(_mT(x1), g)


multilinear(
    np.matmul,
    dead="all",
    refused=("axes", "axis", "keepdims", "casting"),
    x1=_matmul_x1,
    x2=_matmul_x2,
    batch=_matmul_batch,
)
spelling(operator.matmul, np.matmul, "@")


def _dot_a(g: Any, a_ndim: int, b: Any, b_ndim: int) -> Any:
    if a_ndim == 0 or b_ndim == 0:
        return g * b
    if b_ndim <= 2:
        return _matmul_x1(g, a_ndim, b)
    return np.tensordot(g, b, (range(a_ndim - 1, g.ndim), (*range(b_ndim - 2), -1)))


def _dot_b(g: Any, a: Any, a_ndim: int, b_ndim: int) -> Any:
    if a_ndim == 0 or b_ndim == 0:
        return g * a
    if b_ndim <= 2:
        return _matmul_x2(g, a, b_ndim)
    lead = range(a_ndim - 1)
    return np.moveaxis(np.tensordot(a, g, (lead, lead)), 0, -2)


multilinear(np.dot, dead="all", signature="a, b, out=None", a=_dot_a, b=_dot_b, batch=_dot_batch)


def _multi_dot_vjp(g: Any, arrays: Sequence[Any], wanted: list[int]) -> list[Any]:
    """Multiply the cotangent by the transposes of the factors before and after."""
    first, last = arrays[0], arrays[-1]
    m, n = len(shape_of(first)), len(shape_of(last))
    if len(arrays) == 2:
        return [_dot_a(g, m, last, n), _dot_b(g, first, m, n)]
    factors = list(arrays)
    if m == 1:
        factors[0] = np.reshape(first, (1, -1))
    if n == 1:
        factors[-1] = np.reshape(last, (-1, 1))
    g = g.reshape(shape_of(factors[0])[0], shape_of(factors[-1])[1])
    cts: list[Any] = [None] * len(factors)
    for i in wanted:
        before, after = factors[:i], factors[i + 1 :]
        chain = [*map(np.transpose, reversed(before)), g, *map(np.transpose, reversed(after))]
        cts[i] = np.linalg.multi_dot(chain).reshape(shape_of(arrays[i]))
    return cts


multilinear(np.linalg.multi_dot, arrays_=_multi_dot_vjp, batch=_multi_dot_batch)

# ---------------------------------------------------------------- vectors along one axis


multilinear(
    np.vdot,
    batch=_vdot_batch,
    signature="a, b, /",
    a=lambda g, a_shape, b: _conj(g * np.reshape(b, a_shape)),
    b=lambda g, a, b_shape: g * np.reshape(_conj(a), b_shape),
)
multilinear(
    np.inner,
    dead="all",
    batch=_inner_batch,
    signature="a, b, /",
    a=lambda g, a_ndim, b, b_ndim: np.tensordot(g, b, b_ndim - 1) if a_ndim and b_ndim else g * b,
    b=lambda g, a, a_ndim, b_ndim: (
        np.tensordot(g, a, (range(a_ndim - 1), range(a_ndim - 1))) if a_ndim and b_ndim else g * a
    ),
)
multilinear(
    np.outer,
    dead="all",
    batch=_outer_batch,
    a=lambda g, a_shape, b: np.dot(g, np.ravel(b)).reshape(a_shape),
    b=lambda g, a, b_shape: np.dot(np.ravel(a), g).reshape(b_shape),
)


def _vecdot_share(g: Any, other: Any, ndim: int, options: dict[str, Any]) -> Any:
    """Multiply the cotangent by the other operand's vectors; ``ndim`` is the number of axes of the operand."""
    axis = options.get("axis", -1)
    if axis == -1:
        return (g if options.get("keepdims") else g[..., None]) * other
    g = np.moveaxis(g, axis, -1) if options.get("keepdims") else g[..., None]
    h = g * np.moveaxis(other, axis, -1)
    return np.moveaxis(h, -1, axis if axis < 0 else axis - ndim)  # from the end: h may have more axes


multilinear(
    np.vecdot,
    batch=_vecdot_batch,
    refused=("axes", "casting"),
    x1=lambda g, x1_ndim, x2, options: _conj(_vecdot_share(g, x2, x1_ndim, options)),
    x2=lambda g, x1, x2_ndim, options: _vecdot_share(g, _conj(x1), x2_ndim, options),
)


def _apply(x: Any, v: Any) -> Any:
    """Multiply a matrix, or each of a stack, by vectors."""
    return np.matmul(v, x.T) if x.ndim == 2 else np.matmul(x, v[..., None])[..., 0]


def _pairs(u: Any, v: Any, ndim: int) -> Any:
    """Return the outer products of vectors; their sum if the operand is one matrix (``ndim`` is 2)."""
    return np.dot(_rows(u).T, _rows(v)) if ndim == 2 else u[..., :, None] * v[..., None, :]


if hasattr(np, "matvec"):  # NumPy 2.2
    multilinear(
        np.matvec,
        batch=_matvec_batch,
        refused=("axes", "axis", "keepdims", "casting"),
        x1=lambda g, x1_ndim, x2: _pairs(g, x2, x1_ndim),
        x2=lambda g, x1: _apply(_mT(x1), g),
    )
    multilinear(
        np.vecmat,
        batch=_vecmat_batch,
        refused=("axes", "axis", "keepdims", "casting"),
        x1=lambda g, x2: _conj(_apply(x2, g)),
        x2=lambda g, x1, x2_ndim: _pairs(_conj(x1), g, x2_ndim),
    )


def _cross_share(
    g: Any, shape: Any, other: Any, axes: tuple[int, int, int], axis: int | None, product: Callable[..., Any]
) -> Any:
    """Apply ``product`` to the other factor and the cotangent. Vectors of length two have a third component, 0."""
    mine, others, result = axes if axis is None else (axis, axis, axis)
    size, other = shape[mine], np.moveaxis(other, others, -1)
    third = size == other.shape[-1] == 2  # the result is the third component alone
    g = _lengthen(_lengthen(g[..., None], 0), 0) if third else np.moveaxis(g, result, -1)
    h = product(_lengthen(other, -1) if other.shape[-1] == 2 else other, g)[..., :size]
    return np.moveaxis(h, -1, mine if mine < 0 else mine - len(shape))


def _lengthen(x: Any, end: int) -> Any:
    """Add an entry, 0, to vectors: in front (``end`` is 0) or behind."""
    zero = np.zeros_like(x[..., :1])
    return np.concatenate([x, zero] if end else [zero, x], axis=-1)


def _cross_a(g: Any, a_shape: Any, b: Any, axisa: int, axisb: int, axisc: int, axis: int | None) -> Any:
    return _cross_share(g, a_shape, b, (axisa, axisb, axisc), axis, np.cross)


def _cross_b(g: Any, a: Any, b_shape: Any, axisa: int, axisb: int, axisc: int, axis: int | None) -> Any:
    return _cross_share(g, b_shape, a, (axisb, axisa, axisc), axis, lambda a, g: np.cross(g, a))


multilinear(np.cross, a=_cross_a, b=_cross_b, batch=_cross_batch)

# ---------------------------------------------------------------- contractions


def _contracted(axes: Any, a_ndim: int, b_ndim: int) -> tuple[list[int], list[int]]:
    """Return the axes of both operands that are summed over, counted from the front."""
    pair = axes if hasattr(axes, "__iter__") else (range(-axes, 0), range(axes))
    of_a, of_b = [np.atleast_1d(k) for k in pair]
    return [int(k) % a_ndim for k in of_a], [int(k) % b_ndim for k in of_b]


def _tensordot_share(g: Any, other: Any, mine: list[int], others: list[int], along: range) -> Any:
    """Contract the axes ``along`` of the cotangent with those of the other operand that they came from."""
    h = np.tensordot(g, other, (along, [k for k in range(len(shape_of(other))) if k not in others]))
    order = [k for k in range(h.ndim) if k not in mine] + [mine[others.index(k)] for k in sorted(others)]
    return np.transpose(h, np.argsort(order))


def _tensordot_a(g: Any, a_ndim: int, b: Any, b_ndim: int, axes: Any) -> Any:
    of_a, of_b = _contracted(axes, a_ndim, b_ndim)
    return _tensordot_share(g, b, of_a, of_b, range(a_ndim - len(of_a), g.ndim))


def _tensordot_b(g: Any, a: Any, a_ndim: int, b_ndim: int, axes: Any) -> Any:
    of_a, of_b = _contracted(axes, a_ndim, b_ndim)
    return _tensordot_share(g, a, of_b, of_a, range(a_ndim - len(of_a)))


multilinear(np.tensordot, dead="all", a=_tensordot_a, b=_tensordot_b, batch=_tensordot_batch)


def _kron_share(g: Any, shape: Any, other: Any, parity: int) -> Any:
    """Cut the cotangent into blocks and contract it with the other operand: its axes are the even or the odd ones."""
    ndim = max(len(shape), len(shape_of(other)))
    mine, others = [(1,) * (ndim - len(s)) + s for s in (shape, shape_of(other))]
    pairs = zip(others, mine, strict=True) if parity == 0 else zip(mine, others, strict=True)
    blocks = g.reshape([n for pair in pairs for n in pair])
    h = np.tensordot(blocks, np.reshape(other, others), (range(parity, 2 * ndim, 2), range(ndim)))
    return h.reshape(shape)


multilinear(
    np.kron,
    dead="all",
    batch=_kron_batch,
    a=lambda g, a_shape, b: _kron_share(g, a_shape, b, 1),
    b=lambda g, a, b_shape: _kron_share(g, b_shape, a, 0),
)

_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"  # NumPy's order of labels given as numbers


def _subscripts(operands: Sequence[Any], flags: Sequence[bool] = ()) -> tuple[Sequence[Any], list[str], str]:
    """Return the arrays of an einsum call, the letters of their axes and of the output; ellipses are spelt out.

    ``flags`` tell which operands have a batch axis, to which no letter belongs.
    """
    named = isinstance(operands[0], str)
    extra = flags[1:] if named else flags[::2]
    if named:
        arrays, text = operands[1:], operands[0].replace(" ", "")
    else:
        pairs, odd = divmod(len(operands), 2)
        arrays, labels = operands[: 2 * pairs : 2], [*operands[1::2], *operands[2 * pairs :]]
        spelt = ["".join(["..." if k is Ellipsis else _LETTERS[k] for k in sub]) for sub in labels]
        text = ",".join(spelt[:pairs]) + ("->" + spelt[-1] if odd else "")
    inputs, arrow, out = text.partition("->")
    subs = inputs.split(",")
    ndims = [len(shape_of(x)) - (bool(flags) and extra[k]) for k, x in enumerate(arrays)]
    hidden = [n - len(s) + 3 if "..." in s else 0 for n, s in zip(ndims, subs, strict=True)]
    most = max(hidden)
    dots = "".join([c for c in _LETTERS if c not in text][:most])
    if not arrow:
        out = "..." + "".join([c for c in sorted(set(inputs) - {",", "."}) if inputs.count(c) == 1])
    subs = [s.replace("...", dots[most - n :]) for s, n in zip(subs, hidden, strict=True)]
    return arrays, subs, out.replace("...", dots)


def _einsum_vjp(g: Any, operands: Sequence[Any], optimize: Any, wanted: list[int]) -> list[Any]:
    arrays, subs, out = _subscripts(operands)
    named = isinstance(operands[0], str)
    cts: list[Any] = [None] * len(operands)
    for position in wanted:
        k = position - 1 if named else position // 2
        others, letters = [g, *arrays[:k], *arrays[k + 1 :]], [out, *subs[:k], *subs[k + 1 :]]
        cts[position] = _einsum_share(others, letters, shape_of(arrays[k]), subs[k], optimize=optimize is not False)
    return cts


def _einsum_share(others: list[Any], letters: list[str], shape: Any, sub: str, *, optimize: bool) -> Any:
    """Contract the output's cotangent and the other operands to the axes ``sub`` of the operand left out."""
    sizes: dict[str, int] = {}
    for x, names in zip(others, letters, strict=True):
        for c, n in zip(names, shape_of(x), strict=True):
            if sizes.get(c, 1) == 1:
                sizes[c] = n
    # An axis of length one that was stretched is summed over. One that nobody else has is stretched afterwards.
    kept = [c for c, n in dict(zip(sub, shape, strict=True)).items() if c in sizes and (n != 1 or sizes[c] == 1)]
    h = np.einsum(",".join(letters) + "->" + "".join(kept), *others, optimize=optimize)
    first = [sub.index(c) for c in sub]
    h = h.reshape([sizes[c] if c in kept and k == first[k] else 1 for k, c in enumerate(sub)])
    for k, j in enumerate(first):
        if k != j:  # a repeated letter reads the diagonal
            along = np.arange(shape[k])
            on_k, on_j = [along.reshape([-1 if a == axis else 1 for a in range(len(sub))]) for axis in (k, j)]
            h = np.where(on_k == on_j, h, 0)
    return expand(h, shape)


multilinear(np.einsum, refused=("casting",), operands_=_einsum_vjp, batch=_einsum_batch)

# ---------------------------------------------------------------- convolutions and polynomials


def _full(g: Any, a_size: int, v_size: int, mode: Any, *, reverse: bool = False) -> Any:
    """Put the cotangent of a part of the full convolution into its place among zeros.

    NumPy's correlation of a short array with a longer one is that of the longer with the shorter, in reverse.
    """
    kind = "vsf".index(mode[0].lower()) if isinstance(mode, str) else mode
    if kind == 2:
        return g
    total, short = a_size + v_size - 1, min(a_size, v_size)
    start = (short - 1, short // 2 if reverse else (short - 1) // 2)[kind]
    after = total - start - g.shape[0]
    return np.concatenate([np.zeros(start, g.dtype), g, np.zeros(after, g.dtype)])


def _convolve_a(g: Any, a_shape: Any, v: Any, mode: Any) -> Any:
    v = np.ravel(v)
    return np.convolve(_full(g, math.prod(a_shape), v.size, mode), v[::-1], "valid").reshape(a_shape)


multilinear(
    np.convolve, batch=_convolve_batch, a=_convolve_a, v=lambda g, a, v_shape, mode: _convolve_a(g, v_shape, a, mode)
)


def _correlate_a(g: Any, a_shape: Any, v: Any, mode: Any) -> Any:
    m, n = a_shape[0], shape_of(v)[0]
    return np.convolve(_full(g, m, n, mode, reverse=m < n), _conj(v), "valid")


def _correlate_v(g: Any, a: Any, v_shape: Any, mode: Any) -> Any:
    m, n = shape_of(a)[0], v_shape[0]
    return _conj(np.convolve(_full(g, m, n, mode, reverse=m < n), a[::-1], "valid")[::-1])


multilinear(np.correlate, batch=_correlate_batch, a=_correlate_a, v=_correlate_v)


@composite(np.polyval)
def _polyval(p: Any, x: Any) -> Any:
    if isinstance(x, np.poly1d):
        raise NoRuleError("np.polyval has no derivative rule for a polynomial of a polynomial (x is a poly1d)")
    p, x = array_of(p), array_of(x)
    y = np.zeros_like(x)
    for coefficient in p:
        y = y * x + coefficient
    return y


# ---------------------------------------------------------------- the names of the array API standard


composite(np.linalg.matmul)(np.matmul)
composite(np.linalg.tensordot)(np.tensordot)
composite(np.linalg.vecdot)(np.vecdot)
composite(np.linalg.matrix_transpose)(np.matrix_transpose)
composite(np.linalg.trace)(lambda x, /, **options: np.trace(x, axis1=-2, axis2=-1, **options))
composite(np.linalg.diagonal)(lambda x, /, **options: np.diagonal(x, axis1=-2, axis2=-1, **options))


@composite(np.linalg.outer)
def _linalg_outer(x1: Any, x2: Any, /) -> Any:
    if np.ndim(x1) != 1 or np.ndim(x2) != 1:
        raise ValueError(f"np.linalg.outer takes one-dimensional arrays, not {np.ndim(x1)}- and {np.ndim(x2)}-d")
    return np.outer(x1, x2)


@composite(np.linalg.cross)
def _linalg_cross(x1: Any, x2: Any, /, *, axis: int = -1) -> Any:
    if np.shape(x1)[axis] != 3 or np.shape(x2)[axis] != 3:
        raise ValueError(f"np.linalg.cross takes 3-dimensional vectors along axis {axis}")
    return np.cross(x1, x2, axis=axis)
