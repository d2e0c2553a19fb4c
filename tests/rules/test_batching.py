"""Batching of every case: the same as running one example after the other, values and derivatives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from meintorch.core.batching import BatchTrace
from meintorch.core.primitive import Primitive, registry
from meintorch.errors import BatchError
from meintorch.func import grad, hessian, jacfwd, jacrev, vjp, vmap
from tests.cases import Case, normal
from tests.cases.table import CASES
from tests.differences import outputs, weighted, weights

Array = np.ndarray[Any, Any]
SIZE = 3

# What cannot run on a batch of its first argument, because how many entries there are depends on their values.
NO_SHAPE = {
    case.id
    for case in CASES
    if (case.row is np.piecewise and "0-d" not in case.label)  # each piece is run on the entries where its condition holds
    or (case.row is np.trim_zeros and "all zero" not in case.label)  # how many entries are zero
    or (case.row is np.extract and "own condition" in case.label)  # how many entries satisfy the condition
}

# Arguments that NumPy does not look at, so that a value traced there alone is not noticed by anyone but itself.
NOT_SEEN = {
    *[(case.id, 1) for case in CASES if case.row is np.pad and "traced constant" in case.label],
    *[(case.id, 1) for case in CASES if case.row is np.select and "default" in case.label],
    *[(case.id, 1) for case in CASES if case.row is np.ediff1d and "end a list" in case.label],
    *[(case.id, 1) for case in CASES if case.row is np.piecewise and "captured" in case.label],
}

every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)


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


def weighted_examples(call: Callable[..., Any], batched: Sequence[bool]) -> tuple[Callable[..., Any], Callable[..., Any]]:
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
    *("np.unique_all", "np.unique_counts", "np.unique_inverse"),
    *("np.allclose", "np.array_equal", "np.array_equiv"),
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
    assert looped <= LOOPS


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


def loops(f: Callable[..., Any], *batches: Array) -> Array:
    return np.stack([f(*[b[i] for b in batches]) for i in range(len(batches[0]))])


def check(f: Callable[..., Any], *batches: Any) -> None:
    """Compare vmap with a loop, for a batch of each size, and so the gradient by what is of floats."""
    for size in (1, B):
        some = [b[:size] for b in batches]
        got, want = vmap(f)(*some), loops(f, *some)
        assert got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)
        floats = [k for k, b in enumerate(some) if b.dtype.kind == "f"]
        w = weights(want.shape, 4)

        def loss(*args: Any, some: Any = some, floats: Any = floats, w: Any = w, run: Any = None) -> Any:
            full = list(some)
            for k, a in zip(floats, args, strict=True):
                full[k] = a
            if run is not None:
                return np.sum(w * vmap(f)(*full))
            outs = [f(*[a[i] for a in full]) for i in range(len(full[0]))]
            return np.sum(w * np.stack(outs))

        args = [some[k] for k in floats]
        if not args:
            continue
        nums = tuple(range(len(args)))
        one = grad(lambda *a: loss(*a, run=vmap), argnums=nums)(*args)
        other = grad(lambda *a: loss(*a), argnums=nums)(*args)
        for g, h in zip(one, other, strict=True):
            np.testing.assert_allclose(g, h, rtol=1e-12, atol=1e-12)


X, I, J = normal(B, 3, 4, 3), np.array([[0, 2], [1, 1], [-1, 0]]), np.array([1, 0, -2])
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
    ("repeated", lambda x, i, j: x[i][i][:, i]),
    ("2-d", lambda x, i, j: x[:, np.stack([i, i[::-1]])]),
]


@pytest.mark.parametrize(("label", "f"), OWN_INDEX, ids=[label for label, _ in OWN_INDEX])
def test_each_example_with_its_own_index(label: str, f: Callable[..., Any]) -> None:
    check(f, X, I, J)
    Y = X[0]  # the same array for all examples
    got = vmap(lambda i, j: f(vjp(lambda x: x, Y)[0] if label == "never" else np.reshape(Y, Y.shape), i, j))
    want = loops(lambda i, j: f(Y, i, j), I, J)
    shared = vmap(lambda x, i, j: f(x, i, j), (None, 0, 0))
    slope = grad(lambda y: np.sum(weights(want.shape, 6) * shared(y, I, J)))(Y)
    by_hand = grad(lambda y: np.sum(weights(want.shape, 6) * np.stack([f(y, i, j) for i, j in zip(I, J, strict=True)])))(Y)
    np.testing.assert_allclose(slope, by_hand, rtol=1e-12, atol=1e-12)
    del got
