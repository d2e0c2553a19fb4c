"""Batching of every case: the same as running one example after the other, values and derivatives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from meintorch.core.batching import BatchTrace
from meintorch.core.primitive import Primitive, registry
from meintorch.errors import BatchError
from meintorch.func import grad, hessian, jacfwd, jacrev, vmap
from tests.cases import Case, normal
from tests.cases.table import CASES
from tests.differences import outputs, weighted, weights

Array = np.ndarray[Any, Any]
SIZE = 3

# What cannot run on a batch, because how many entries there are depends on their values.
NO_SHAPE = {
    case.id
    for case in CASES
    if (case.row is np.piecewise and "0-d" not in case.label)  # each piece is run on the entries where its condition holds
    or (case.row is np.trim_zeros and "all zero" not in case.label)  # how many entries are zero
    or (case.row is np.extract and "own condition" in case.label)  # how many entries satisfy the condition
}

every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)


def batch_of(a: Array) -> Array:
    """Return slightly different points; so near to each other that no kink lies between them."""
    rng = np.random.default_rng([5, *a.shape])
    return np.stack([a * (1 + 0.01 * rng.uniform(size=a.shape)) for _ in range(SIZE)])


def example(args: Sequence[Array], batched: Sequence[bool], i: int) -> list[Array]:
    return [np.array(a[i]) if b else a for a, b in zip(args, batched, strict=True)]


def choices(n: int) -> list[tuple[bool, ...]]:
    """All arguments batched; and each one alone."""
    return [(True,) * n, *[tuple([j == k for j in range(n)]) for k in range(n) if n > 1]]


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
    for batched in choices(len(case.args)):
        args = [batch_of(a) if b else a for a, b in zip(case.args, batched, strict=True)]
        run = vmap(case.call, axes(batched))
        if case.id in NO_SHAPE:
            with pytest.raises(BatchError):
                run(*args)
            continue
        agrees(run(*args), [case.call(*example(args, batched, i)) for i in range(SIZE)])


@every_case
def test_vmap_of_a_gradient_is_a_loop(case: Case) -> None:
    n = len(case.args)
    slope = grad(weighted(case.call), argnums=tuple(range(n)))
    for batched in choices(n):
        args = [batch_of(a) if b else a for a, b in zip(case.args, batched, strict=True)]
        run = vmap(slope, axes(batched))
        if case.id in NO_SHAPE:
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
    for batched in choices(n):
        args = [batch_of(a) if b else a for a, b in zip(case.args, batched, strict=True)]
        by_vmap, by_loop = weighted_examples(case.call, batched)
        if case.id in NO_SHAPE:
            with pytest.raises(BatchError):
                grad(by_vmap)(*args)
            continue
        got, want = [grad(f, argnums=tuple(range(n)))(*args) for f in (by_vmap, by_loop)]
        for x, w in zip(got, want, strict=True):
            assert x.shape == w.shape
            assert x.dtype == w.dtype
            np.testing.assert_allclose(x, w, rtol=1e-9, atol=1e-9)
