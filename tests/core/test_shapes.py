"""Shape arithmetic, against NumPy's own functions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from meintorch.core.shapes import axes_of, contract, expand, select, unbroadcast

PAIRS = [
    ((3, 4), (4,)),
    ((3, 4), ()),
    ((50, 200), (200,)),
    ((50, 200), (50, 1)),
    ((50, 200), (1, 200)),
    ((20, 30, 40), (20, 1, 40)),
    ((20, 30, 40), (1, 1, 40)),
    ((20, 30, 40), (30, 1)),
    ((20, 30, 40), (1, 30, 1)),
    ((20, 30, 40), (1,)),
    ((5, 20, 30, 40), (20, 1, 1)),
    ((5, 20, 30, 40), (5, 1, 1, 40)),
    ((0, 3), (3,)),
]


@pytest.mark.parametrize(("have", "shape"), PAIRS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.complex128])
def test_unbroadcast_is_the_transpose_of_broadcasting(
    have: Any, shape: Any, dtype: Any, rng: np.random.Generator
) -> None:
    for g in (rng.normal(size=have).astype(dtype), rng.normal(size=have[::-1]).astype(dtype).T):
        lead = len(have) - len(shape)
        axes = tuple([i for i in range(len(have)) if i < lead or have[i] != shape[i - lead]])
        want = np.sum(g, axis=axes).reshape(shape)
        got = unbroadcast(g, shape)
        assert got.dtype == dtype
        assert got.shape == shape
        tolerance = 1e-3 if dtype == np.float32 else 1e-11
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    ("have", "shape"), [p for p in PAIRS if len(p[0]) == len(p[1])] + [((100, 60, 50), (1, 60, 1))]
)
def test_contract_is_a_product_that_is_summed(have: Any, shape: Any, rng: np.random.Generator) -> None:
    for x_shape in (have, tuple([n if m == 1 else 1 for n, m in zip(have, shape, strict=True)])):
        x, g = rng.normal(size=x_shape), rng.normal(size=have)
        want = unbroadcast(x * g, shape)
        np.testing.assert_allclose(contract(x, g, shape, g.dtype), want, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("n", [10, 30_000])
def test_select_is_where(n: int, rng: np.random.Generator) -> None:
    g = rng.normal(size=n)
    g[::7] = np.inf
    g[1::7] = np.nan
    for mask in (g > 0, np.arange(n) % 3, np.arange(n) % 3 * 1.0):
        np.testing.assert_array_equal(select(mask, g), np.where(mask, g, 0))
        np.testing.assert_array_equal(select(mask, np.abs(g[:1])), np.where(mask, np.abs(g[:1]), 0))


def test_expand_is_broadcast_to(rng: np.random.Generator) -> None:
    for x, shape in (
        (np.float64(2.0), (3, 2)),
        (rng.normal(size=(3, 1)), (2, 3, 4)),
        (rng.normal(size=(4, 6))[::2], (2, 2, 6)),
    ):
        np.testing.assert_array_equal(expand(x, shape), np.broadcast_to(x, shape))
    with pytest.raises(ValueError, match="broadcast"):
        expand(np.ones(3), (2, 4))


def test_axes_of() -> None:
    assert axes_of(None, 3) == (0, 1, 2)
    assert axes_of(-1, 3) == (2,)
    assert axes_of((0, np.int64(-1)), 3) == (0, 2)
