"""Batching of every case: the same as running one example after the other, values and derivatives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from meintorch.core.batching import BatchTrace, is_elementwise
from meintorch.core.primitive import COMPOSITE, STRUCTURAL, Primitive, registry
from meintorch.errors import BatchError
from meintorch.func import grad, hessian, jacfwd, jacrev, value_and_grad, vjp, vmap
from tests.cases import Case, normal
from tests.cases.table import CASES, UNSQUARED
from tests.differences import outputs, weighted, weights

Array = np.ndarray[Any, Any]
SIZE = 3

# What cannot run on a batch of its first argument, because how many entries there are depends on their values.
NO_SHAPE = {
    case.id
    for case in CASES
    if (
        case.row is np.piecewise and "0-d" not in case.label
    )  # each piece is run on the entries where its condition holds
    or (case.row is np.trim_zeros and "all zero" not in case.label)  # how many entries are zero
    or (case.row is np.real_if_close and case.label in ("complex", "close"))  # whether the result is real
    or (case.row is np.extract and "own condition" in case.label)  # how many entries satisfy the condition
}

# Arguments that NumPy does not look at, so that a value traced there alone is not noticed by anyone but itself.
NOT_SEEN = {
    *[(case.id, 1) for case in CASES if case.row is np.pad and "traced constant" in case.label],
    *[(case.id, 1) for case in CASES if case.row is np.select and "default" in case.label],
    *[(case.id, 1) for case in CASES if case.label == "traced initial"],
    *[(case.id, 1) for case in CASES if case.row is np.ediff1d and "end a list" in case.label],
    *[(case.id, 1) for case in CASES if case.row is np.piecewise and "captured" in case.label],
}

every_case = pytest.mark.parametrize("case", UNSQUARED, ids=lambda case: case.id)


def batch_of(a: Array) -> Array:
    """Return slightly different points; so near to each other that no kink lies between them."""
    rng = np.random.default_rng([5, *a.shape])
    return np.stack([a * (1 + 0.01 * rng.uniform(size=a.shape)) for _ in range(SIZE)])


def example(args: Sequence[Array], batched: Sequence[bool], i: int) -> list[Array]:
    return [np.array(a[i]) if b else a for a, b in zip(args, batched, strict=True)]


def choices(case: Case) -> list[tuple[bool, ...]]:
    """All arguments batched; and each one alone."""
    n = len(case.args)
    alone = [k for k in range(n) if n > 1 and (case.id, k) not in NOT_SEEN]
    return [(True,) * n, *[tuple([j == k for j in range(n)]) for k in alone]]


def axes(batched: Sequence[bool]) -> tuple[int | None, ...]:
    return tuple([0 if b else None for b in batched])


def agrees(got: Any, want: Any) -> None:
    """Compare outputs, arrays or sequences of them, with the stacked ones of the loop."""
    assert isinstance(got, (tuple, list)) == isinstance(want[0], (tuple, list))
    if isinstance(got, (tuple, list)):
        assert type(got) is type(want[0])
    for k, x in enumerate(outputs(got)):
        w = np.stack([outputs(one)[k] for one in want])
        assert type(x) is np.ndarray
        assert x.shape == w.shape
        assert x.dtype == w.dtype
        np.testing.assert_allclose(x, w, rtol=1e-9, atol=1e-9)


@every_case
def test_vmap_is_a_loop(case: Case) -> None:
    for batched in choices(case):
        args = [batch_of(a) if b else a for a, b in zip(case.args, batched, strict=True)]
        run = vmap(case.call, axes(batched))
        if case.id in NO_SHAPE and batched[0]:
            with pytest.raises(BatchError):
                run(*args)
            continue
        agrees(run(*args), [case.call(*example(args, batched, i)) for i in range(SIZE)])


@every_case
def test_vmap_of_a_gradient_is_a_loop(case: Case) -> None:
    n = len(case.args)
    slope = grad(weighted(case.call), argnums=tuple(range(n)))
    for batched in choices(case):
        args = [batch_of(a) if b else a for a, b in zip(case.args, batched, strict=True)]
        run = vmap(slope, axes(batched))
        if case.id in NO_SHAPE and batched[0]:
            with pytest.raises(BatchError):
                run(*args)
            continue
        agrees(run(*args), [slope(*example(args, batched, i)) for i in range(SIZE)])


def weighted_examples(
    call: Callable[..., Any], batched: Sequence[bool]
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return the weighted sum of a batch's outputs, by vmap and by a loop."""

    def total(outs: Any) -> Any:
        parts = 0.0
        for k, out in enumerate(outputs(outs)):
            w = weights(np.shape(out), 3 + k)
            parts = parts + np.sum(np.real(out) * w) + np.sum(np.imag(out) * w[::-1])
        return parts

    def loop(*args: Any) -> Any:
        runs = [call(*[a[i] if b else a for a, b in zip(args, batched, strict=True)]) for i in range(SIZE)]
        first = outputs(runs[0])
        return total([np.stack([outputs(run)[k] for run in runs]) for k in range(len(first))])

    return lambda *args: total(vmap(call, axes(batched))(*args)), loop


@every_case
def test_gradient_of_vmap_is_that_of_a_loop(case: Case) -> None:
    n = len(case.args)
    for batched in choices(case):
        args = [batch_of(a) if b else a for a, b in zip(case.args, batched, strict=True)]
        by_vmap, by_loop = weighted_examples(case.call, batched)
        if case.id in NO_SHAPE and batched[0]:
            with pytest.raises(BatchError):
                grad(by_vmap)(*args)
            continue
        got, want = [grad(f, argnums=tuple(range(n)))(*args) for f in (by_vmap, by_loop)]
        for x, w in zip(got, want, strict=True):
            assert x.shape == w.shape
            assert x.dtype == w.dtype
            np.testing.assert_allclose(x, w, rtol=1e-9, atol=1e-9)


# ---------------------------------------------------------------- what still runs one by one

# Rows without a batching rule: their results have shapes or forms that depend on values, or they are rarely needed.
LOOPS = {
    *("np.argwhere", "np.nonzero", "np.flatnonzero", "np.ix_", "np.histogram_bin_edges"),
    *("np.intersect1d", "np.union1d", "np.setdiff1d", "np.setxor1d"),
    *("np.allclose", "np.array_equal", "np.array_equiv", "np.unique", "np.roots"),
    *("np.logical_and.reduce", "np.logical_or.reduce", "np.logical_xor.reduce"),
    *("np.array2string", "np.array_repr", "np.array_str"),
}


def test_rows_without_a_batching_rule_are_listed() -> None:
    found = {
        prim.name
        for prim in registry.values()
        if prim.kind not in (STRUCTURAL, COMPOSITE) and prim.batch is None and not is_elementwise(prim)
        if prim.name.startswith("np.")
    }
    assert found == LOOPS


def test_no_first_case_runs_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    looped: set[str] = set()
    original = BatchTrace.one_by_one

    def spy(self: BatchTrace, prim: Primitive, args: Any, kwargs: Any) -> Any:
        looped.add(prim.name)
        return original(self, prim, args, kwargs)

    monkeypatch.setattr(BatchTrace, "one_by_one", spy)
    first: dict[str, Case] = {}
    for case in CASES:
        if case.id not in NO_SHAPE:
            first.setdefault(registry[case.row].name, case)
    for case in first.values():
        n = len(case.args)
        for batched in choices(case):
            args = [batch_of(a) if b else a for a, b in zip(case.args, batched, strict=True)]
            vmap(case.call, axes(batched))(*args)
            vmap(grad(weighted(case.call), argnums=tuple(range(n))), axes(batched))(*args)
    assert {name for name in looped if name.startswith("np.")} <= LOOPS


def test_derivatives_call_each_function_once_for_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    def loop(self: BatchTrace, prim: Primitive, args: Any, kwargs: Any) -> Any:
        raise AssertionError(f"{prim.name} ran one by one")

    monkeypatch.setattr(BatchTrace, "one_by_one", loop)
    W, V = normal(5, 4), normal(4, 3, seed=1)

    def network(x: Any) -> Any:
        h = np.tanh(np.concatenate([x, x[::-1][:1]]) @ W)
        table = np.stack([h, np.roll(h, 1)]).reshape(4, 2)
        return np.einsum("ij,ik->jk", table, np.outer(h, x[[0, 2, 0]])[:, :2]) @ np.take(V, [0, 1], 0)

    x = normal(4, seed=2)
    backward, forward = jacrev(network)(x), jacfwd(network)(x)
    np.testing.assert_allclose(backward, forward, rtol=1e-10)
    second = hessian(lambda x: np.sum(network(x) ** 2))(x)
    np.testing.assert_allclose(second, second.T, rtol=1e-10)


# ---------------------------------------------------------------- reading and scattering

B = 3


def check(f: Callable[..., Any], x: Array, *indices: Array) -> None:
    """Compare vmap with a loop, value and gradient: all arguments batched, the array shared; for batches of one, too."""
    for size, shared in ((1, False), (B, False), (1, True), (B, True)):
        own = [i[:size] for i in indices]
        array = x[0] if shared else x[:size]
        run = vmap(f, (None if shared else 0, *[0] * len(own)))

        def loop(a: Any, own: Any = own, size: int = size, shared: bool = shared) -> Any:
            return np.stack([f(a if shared else a[k], *[i[k] for i in own]) for k in range(size)])

        want = loop(array)
        w = weights(want.shape, 4)
        got, slope = value_and_grad(lambda a, run=run, own=own, w=w: weigh(run(a, *own), w), has_aux=True)(array)
        assert got[1].shape == want.shape
        np.testing.assert_array_equal(got[1], want)
        expected = grad(lambda a, loop=loop, w=w: np.sum(w * loop(a)))(array)
        np.testing.assert_allclose(slope, expected, rtol=1e-12, atol=1e-12)
        if size == 1 or shared:
            continue
        columns = jacrev(lambda a, run=run, own=own: run(a, *own))(array)
        np.testing.assert_allclose(columns, jacrev(loop)(array), rtol=1e-12, atol=1e-12)


def weigh(out: Any, w: Array) -> Any:
    return np.sum(w * out), out


X, pairs, numbers = normal(B, 3, 4, 3), np.array([[0, 2], [1, 1], [-1, 0]]), np.array([1, 0, -2])
rows, two = np.array([2, 0, 2, -1]), np.array([[0, 1], [2, 1]])

OWN_INDEX: list[tuple[str, Callable[..., Any]]] = [
    ("first", lambda x, i, j: x[i]),
    ("second", lambda x, i, j: x[:, i]),
    ("last", lambda x, i, j: x[..., i]),
    ("number", lambda x, i, j: x[j]),
    ("number in the middle", lambda x, i, j: x[:, j, 1:]),
    ("number and an int", lambda x, i, j: x[0, :, j]),
    ("apart, with an int", lambda x, i, j: x[0, :, i]),
    ("apart, with an array", lambda x, i, j: x[[1, 2], :, i]),
    ("apart by an axis", lambda x, i, j: x[i, None, j]),
    ("apart by an empty Ellipsis", lambda x, i, j: x[i, j, ..., 0]),
    ("adjacent", lambda x, i, j: x[:, i, [1, 2]]),
    ("adjacent, both", lambda x, i, j: x[:, i, j]),
    ("broadcast", lambda x, i, j: x[:, two, i]),
    ("all", lambda x, i, j: x[i, 1, j]),
    ("an axis in front", lambda x, i, j: x[None, :, i]),
    ("a mask beside", lambda x, i, j: x[np.array([True, False, True]), i]),
    ("a mask of two axes beside", lambda x, i, j: x[np.eye(3, 4, 1, dtype=bool), j]),
    ("an Ellipsis in front", lambda x, i, j: x[..., i, j]),
    ("a list of numbers", lambda x, i, j: x[[j, 0, j]]),
    ("repeated", lambda x, i, j: x[i][[0, 1, 1]][:, i][:, i % 2]),
    ("2-d", lambda x, i, j: x[:, np.stack([i, i[::-1]])]),
]


@pytest.mark.parametrize(("label", "f"), OWN_INDEX, ids=[label for label, _ in OWN_INDEX])
def test_each_example_with_its_own_index(label: str, f: Callable[..., Any]) -> None:
    check(f, X, pairs, numbers)


TAKING: list[tuple[str, Callable[..., Any]]] = [
    ("take, all axes", lambda x, i, j: np.take(x, i)),
    ("take, first axis", lambda x, i, j: np.take(x, i, 0)),
    ("take, negative axis", lambda x, i, j: np.take(x, np.stack([i, i[::-1]]), axis=-2)),
    ("take, number", lambda x, i, j: np.take(x, j, axis=1)),
    ("take, wrap", lambda x, i, j: np.take(x, 5 * i, axis=1, mode="wrap")),
    ("take, clip", lambda x, i, j: np.take(x, 5 * i, axis=-1, mode="clip")),
    ("take_along_axis", lambda x, i, j: np.take_along_axis(x, np.reshape(i, (1, 2, 1)), 1)),
    ("take_along_axis, flat", lambda x, i, j: np.take_along_axis(x, i, None)),
    ("take_along_axis, sorted", lambda x, i, j: np.take_along_axis(x, np.argsort(x * j, axis=-1), axis=-1)),
    ("choose", lambda x, i, j: np.choose(np.reshape(i % 2, (2, 1)), [x[0, :2], x[1, :1, :]])),
    ("largest", lambda x, i, j: x[np.argmax(x[:, 0, 0]), np.argmin(x[0, :, 1])]),
]


@pytest.mark.parametrize(("label", "f"), TAKING, ids=[label for label, _ in TAKING])
def test_taking_with_an_index_of_ones_own(label: str, f: Callable[..., Any]) -> None:
    check(f, X, pairs, numbers)


def test_an_array_outside_is_read_along_an_axis() -> None:
    W = normal(4, 2)
    got = vmap(lambda i: np.take_along_axis(W, i[:, None], axis=0))(pairs)
    np.testing.assert_array_equal(got, W[pairs])


def test_a_shape_that_fits_by_chance_is_not_enough() -> None:
    x = np.arange(2 * 2 * 2 * 2.0).reshape(2, 2, 2, 2)
    np.testing.assert_array_equal(vmap(lambda a: a[0, :, [1, 0]])(x), np.stack([a[0, :, [1, 0]] for a in x]))
    np.testing.assert_array_equal(
        vmap(lambda a: a[[0, 1], None, [1, 0]])(x), np.stack([a[[0, 1], None, [1, 0]] for a in x])
    )
    g = vmap(grad(lambda a: np.sum(a[0, :, [1, 0]] * np.array([[1.0, 2.0], [3.0, 4.0]]))))(x[..., :1] * np.ones(2))
    np.testing.assert_array_equal(g, [[[[3.0, 1.0], [4.0, 2.0]], [[0.0, 0.0], [0.0, 0.0]]]] * 2)


@pytest.mark.parametrize(
    "f",
    [
        lambda x: x[x > 0],
        lambda x: np.sum(x[:2, x[0] > 0]),
        lambda x: np.compress(x[0] > 0, x),
        lambda x: np.extract(x > 0, x),
        lambda x: np.piecewise(x, [x > 0], [np.sin, np.cos]),
        lambda x: x[np.nonzero(x > 0)],
    ],
)
def test_a_mask_of_ones_own_is_refused_with_advice(f: Callable[..., Any]) -> None:
    for run in (vmap(f), vmap(lambda x: vjp(f, x)[0])):
        with pytest.raises(BatchError, match="np.where"):
            run(normal(B, 3, 3))


# ---------------------------------------------------------------- axes and shapes


def test_negative_axes_do_not_meet_the_batch() -> None:
    x = normal(B, 2, 4)
    for f, want in (
        (lambda a: np.swapaxes(a, -2, -1), x.transpose(0, 2, 1)),
        (lambda a: np.moveaxis(a, -1, -2), x.transpose(0, 2, 1)),
        (lambda a: np.rollaxis(a, -1), x.transpose(0, 2, 1)),
        (lambda a: np.expand_dims(a, -3), x[:, None]),
        (lambda a: np.flip(a, -2), x[:, ::-1]),
        (lambda a: np.roll(a, 1, -2), x[:, ::-1]),
        (lambda a: np.concatenate([a, a], -2), np.concatenate([x, x], 1)),
        (lambda a: np.stack([a, a], -3), np.stack([x, x], 1)),
        (lambda a: np.repeat(a, 2, -2), np.repeat(x, 2, 1)),
        (lambda a: np.rot90(a, 1, (-2, -1)), np.rot90(x, 1, (1, 2))),
        (lambda a: np.diff(a, axis=-2), x[:, 1:] - x[:, :1]),
        (lambda a: np.linalg.norm(a, axis=-2), np.sqrt(np.sum(x * x, 1))),
        (lambda a: np.take(a, 1, -2), x[:, 1]),
        (lambda a: np.trace(a, axis1=-1, axis2=-2), x[:, 0, 0] + x[:, 1, 1]),
        (lambda a: np.split(a, 2, -2)[1], x[:, 1:]),
        (lambda a: np.sum(a, -2), x.sum(1)),
    ):
        np.testing.assert_allclose(vmap(f)(x), want, rtol=1e-14)
    for f in (
        lambda a: np.flip(a, -3),
        lambda a: np.roll(a, 1, 2),
        lambda a: np.concatenate([a, a], -3),
        lambda a: np.sum(a, 2),
    ):
        with pytest.raises(np.exceptions.AxisError):
            vmap(f)(x)


def test_a_batch_of_one_keeps_its_axis() -> None:
    x = normal(1, 1, 1)
    assert vmap(np.squeeze)(x).shape == (1,)
    assert vmap(lambda a: np.squeeze(a, 0))(x).shape == (1, 1)
    assert vmap(np.ravel)(x).shape == (1, 1)
    assert vmap(lambda a: a @ a)(x).shape == (1, 1, 1)
    assert vmap(lambda a: np.broadcast_to(a, (2, 3)))(x).shape == (1, 2, 3)
    assert vmap(grad(lambda a: np.squeeze(a) ** 2))(x).shape == (1, 1, 1)
    for short in (normal(B, 1), normal(1, B), normal(B, B)):
        want = np.stack([np.outer(s, s) for s in short])
        np.testing.assert_allclose(vmap(lambda s: np.outer(s, s))(short), want)


def test_examples_that_are_numbers() -> None:
    t = normal(B)
    for f, want in (
        (np.ravel, t[:, None]),
        (np.atleast_2d, t[:, None, None]),
        (lambda a: np.reshape(a, (1, -1)), t[:, None, None]),
        (lambda a: np.broadcast_to(a, (2,)), np.stack([t, t], 1)),
        (lambda a: np.stack([a, 2.0, a]), np.stack([t, np.full(B, 2.0), t], 1)),
        (lambda a: np.concatenate([a[None], np.zeros(1)]), np.stack([t, np.zeros(B)], 1)),
        (lambda a: a[...], t),
        (lambda a: a[None, ...], t[:, None]),
        (np.transpose, t),
        (lambda a: np.tile(a, 2), np.stack([t, t], 1)),
        (lambda a: np.dot(a, 3.0), 3 * t),
        (lambda a: np.dot(np.ones(2), a), np.stack([t, t], 1)),
        (lambda a: np.outer(a, [1.0, 2.0]), np.stack([t, 2 * t], 1)[:, None]),
        (np.linalg.norm, abs(t)),
        (lambda a: np.max(np.append(a, 0.0)), np.maximum(t, 0)),
    ):
        np.testing.assert_allclose(vmap(f)(t), want, rtol=1e-14)
        slope = vmap(grad(lambda a, f=f: np.sum(f(a) ** 2)))(t)
        step = [np.sum(np.asarray(f(s + 1e-6)) ** 2 - np.asarray(f(s - 1e-6)) ** 2) / 2e-6 for s in t]
        np.testing.assert_allclose(slope, step, rtol=1e-6)


def test_no_elements() -> None:
    x = np.zeros((B, 0, 4))
    assert vmap(lambda a: np.reshape(a, (-1, 2)))(x).shape == (B, 0, 2)
    assert vmap(lambda a: a @ np.zeros((4, 5)))(x).shape == (B, 0, 5)
    assert vmap(lambda a: a.T @ a)(x).shape == (B, 4, 4)
    assert vmap(np.ravel)(np.zeros((0, 2, 3))).shape == (0, 6)
    assert vmap(lambda a: np.reshape(a, (3, -1)) @ np.ones(2))(np.zeros((0, 2, 3))).shape == (0, 3)
    assert vmap(lambda a: a[[0, 1, 1], 0])(np.zeros((0, 2, 3))).shape == (0, 3)


def test_fortran_order_is_that_of_one_example() -> None:
    x = normal(B, 2, 3)
    want = x.transpose(0, 2, 1).reshape(B, 6)
    np.testing.assert_array_equal(vmap(lambda a: np.ravel(a, order="F"))(x), want)
    np.testing.assert_array_equal(vmap(lambda a: np.reshape(a, 6, order="F"))(x), want)


def test_the_batch_along_another_axis() -> None:
    x, w = normal(4, B, 2), normal(4, 2, seed=1)
    moved = np.moveaxis(x, 1, 0)
    np.testing.assert_allclose(vmap(lambda a: a.T @ w, 1)(x), moved.transpose(0, 2, 1) @ w)
    np.testing.assert_allclose(vmap(lambda a: a[[0, 0, 3], 1], 1, out_axes=1)(x), x[[0, 0, 3], :, 1])
    np.testing.assert_allclose(vmap(np.ravel, in_axes=1, out_axes=-1)(x), moved.reshape(B, 8).T)
    g = vmap(grad(lambda a, b: np.sum((a * b) @ np.ones(2)) ** 2), in_axes=(1, None), out_axes=1)(x, w)
    np.testing.assert_allclose(g, 2 * np.einsum("ibj,ij->b", x, w)[None, :, None] * w[:, None])


# ---------------------------------------------------------------- nested, and in derivatives


def test_nested_indexing() -> None:
    table, index = normal(2, 5, 3), np.array([[0, 4, 4], [1, -1, 2], [3, 3, 0], [2, 0, 1]])
    # inner over tables, outer over indices, and the other way round
    one = vmap(lambda i: vmap(lambda t: t[i])(table))(index)
    np.testing.assert_array_equal(one, table[:, index].transpose(1, 0, 2, 3))
    two = vmap(lambda t: vmap(lambda i: t[i])(index))(table)
    np.testing.assert_array_equal(two, table[:, index])
    three = vmap(lambda t: vmap(lambda i: t[i, 0])(index[0]))(table)
    np.testing.assert_array_equal(three, table[:, index[0], 0])
    both = vmap(vmap(lambda t, i: t[i], (None, 0)), (0, None))(table, index)
    np.testing.assert_array_equal(both, table[:, index])
    slope = grad(lambda t: np.sum(vmap(lambda i: vmap(lambda u: u[i])(t))(index) ** 2))(table)
    counts = np.bincount(index.ravel() % 5, minlength=5)
    np.testing.assert_allclose(slope, 2 * table * counts[:, None])
    inner = vmap(grad(lambda t: np.sum(vmap(lambda i: t[i])(index) ** 2)))(table)
    np.testing.assert_allclose(inner, 2 * table * counts[:, None])


def test_nested_products() -> None:
    a, b = normal(3, 2, 4), normal(5, 4, 2, seed=1)
    every = vmap(lambda x: vmap(lambda y: x @ y)(b))(a)
    np.testing.assert_allclose(every, np.einsum("aij,bjk->abik", a, b))
    np.testing.assert_allclose(
        vmap(lambda x: vmap(lambda y: np.einsum("ij,jk->ki", x, y))(b))(a), every.swapaxes(-1, -2)
    )
    np.testing.assert_allclose(vmap(vmap(np.dot, (None, 0)), (0, None))(a, b), every)
    np.testing.assert_allclose(
        vmap(lambda x: vmap(lambda y: np.tensordot(y, x, ([0], [1])))(b))(a), every.swapaxes(-1, -2)
    )
    gram = vmap(vmap(np.inner, (None, 0)), (0, None))(a[:, 0], a[:, 1])
    np.testing.assert_allclose(gram, a[:, 0] @ a[:, 1].T)
    slope = grad(lambda x: np.sum(vmap(lambda u: vmap(lambda y: u @ y)(b))(x) ** 2))(a)
    np.testing.assert_allclose(slope, 2 * np.einsum("abik,bjk->aij", every, b))


def test_einsum_with_all_names_in_use() -> None:
    letters = "abcdefghijklmnopqrstuvwxyz"
    x = normal(B, *[1] * 26, 2)
    subscripts = letters + "Z->" + letters
    want = np.sum(x, -1)
    np.testing.assert_allclose(vmap(lambda a: np.einsum(subscripts, a))(x), want)
    np.testing.assert_allclose(vmap(lambda a: np.einsum("...A,A", a, [1.0, 1.0]))(x), want)


def test_curvature_of_a_fit() -> None:
    """Hessians and Jacobians of many small problems at once, in closed form."""
    design, params, data = normal(6, 3), normal(B, 3, seed=1), normal(B, 6, seed=2)

    def loss(p: Any, y: Any) -> Any:
        return np.linalg.norm(design @ p - y) ** 2 / 2

    residual = params @ design.T - data
    np.testing.assert_allclose(vmap(grad(loss))(params, data), residual @ design, rtol=1e-10)
    np.testing.assert_allclose(vmap(hessian(loss))(params, data), np.stack([design.T @ design] * B), rtol=1e-9)
    jacobian = vmap(jacfwd(lambda p: np.outer(p, p)[np.triu_indices(3)]))(params)
    assert jacobian.shape == (B, 6, 3)
    np.testing.assert_allclose(jacobian, vmap(jacrev(lambda p: np.outer(p, p)[np.triu_indices(3)]))(params))
    np.testing.assert_allclose(jacobian[:, 0, 0], 2 * params[:, 0])
    np.testing.assert_allclose(jacobian[:, 4, 1], params[:, 2])


def test_one_product_serves_all_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    """What meets one matrix is one product of matrices, not a stack of them."""
    shapes = []
    original = np.matmul

    def spy(a: Any, b: Any, **options: Any) -> Any:
        shapes.append((np.ndim(a), np.ndim(b)))
        return original(a, b, **options)

    monkeypatch.setattr(np, "matmul", spy)
    x, w, m = normal(B, 4), normal(4, 2), normal(B, 5, 4)
    np.testing.assert_allclose(vmap(lambda a: a @ w)(x), x @ w)
    np.testing.assert_allclose(vmap(lambda a: w.T @ a)(x), x @ w)
    np.testing.assert_allclose(vmap(lambda a: a @ w)(m), m @ w)
    np.testing.assert_allclose(vmap(lambda a: a @ w[:, 0])(m), m @ w[:, 0])
    assert shapes == [(2, 2), (2, 2), (2, 2), (2, 1)]
