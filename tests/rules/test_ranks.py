"""Sorting, statistics and cumulative functions at ties, at NaN, at infinity and outside of their domain."""

from __future__ import annotations

from typing import Any

import mpmath
import numpy as np
import pytest

from meintorch.errors import InPlaceError, NoRuleError
from meintorch.func import grad, hessian, jacrev, jvp, vmap

NAN, INF = np.nan, np.inf


def same(got: Any, want: Any) -> None:
    np.testing.assert_allclose(got, want, rtol=1e-14)


def test_equal_entries_share_a_running_extremum_evenly() -> None:
    x = np.array([1.0, 3.0, 3.0, 2.0, 3.0, 5.0, 4.0])
    third = 1 / 3
    same(
        jacrev(np.maximum.accumulate)(x),
        [
            [1, 0, 0, 0, 0, 0, 0],
            [0, 1, 0, 0, 0, 0, 0],
            [0, 0.5, 0.5, 0, 0, 0, 0],
            [0, 0.5, 0.5, 0, 0, 0, 0],
            [0, third, third, 0, third, 0, 0],
            [0, 0, 0, 0, 0, 1, 0],
            [0, 0, 0, 0, 0, 1, 0],
        ],
    )
    t = np.arange(7.0)
    same(jvp(np.minimum.accumulate, (-x,), (t,))[1], jacrev(np.maximum.accumulate)(x) @ t)


def test_an_infinite_cotangent_stays_with_its_run() -> None:
    x = np.array([1.0, 2.0, 3.0])
    same(grad(lambda x: np.sqrt(np.sum(np.maximum.accumulate(x)[2:] - 3.0)))(x), [0, 0, INF])


@pytest.mark.parametrize("fun", [np.nansum, np.nanmean, np.nanvar, np.nanstd, np.nanmax, np.nanmin, np.nanprod])
def test_entries_that_are_nan_get_zero(fun: Any) -> None:
    x = np.array([[1.0, NAN, 3.0, 3.0], [NAN, 2.0, 5.0, NAN]])
    got = grad(lambda x: np.sum(fun(x, axis=1)))(x)
    kept = [grad(fun)(row[~np.isnan(row)]) for row in x]
    for row, there, want in zip(got, ~np.isnan(x), kept, strict=True):
        same(row[there], want)
        assert not np.any(row[~there])
    second = hessian(lambda x: fun(x) ** 2)(x)
    assert not np.any(np.isnan(second))
    assert not np.any(second[np.isnan(x)])


@pytest.mark.parametrize(
    "fun", [np.nanmedian, lambda x: np.nanquantile(x, 0.3), np.nancumsum, np.nancumprod, np.nan_to_num]
)
def test_more_entries_that_are_nan_get_zero(fun: Any) -> None:
    x = np.array([1.0, NAN, 3.0, 7.0, NAN])
    got = grad(lambda x: np.sum(fun(x)))(x)
    assert not np.any(got[np.isnan(x)])
    assert np.all(np.isfinite(got))
    assert np.any(got)


@pytest.mark.filterwarnings("ignore:.*NaN:RuntimeWarning")
def test_nothing_but_nan() -> None:
    x = np.array([[NAN, NAN], [1.0, 3.0]])
    same(grad(lambda x: np.sum(np.nanmedian(x, axis=1)[1:]))(x), [[0, 0], [0.5, 0.5]])
    same(grad(lambda x: np.nansum(np.nanmax(x, axis=1)))(x), [[0, 0], [0, 1]])


def test_medians_and_quantiles_between_entries() -> None:
    x = np.array([4.0, 1.0, 3.0, 2.0])
    same(grad(np.median)(x), [0, 0, 0.5, 0.5])
    same(grad(lambda x: np.quantile(x, 0.25))(x), [0, 0.25, 0, 0.75])
    same(grad(lambda x: np.percentile(x, 25, method="lower"))(x), [0, 1, 0, 0])
    same(grad(np.median)(np.ones(4)), [0, 0.5, 0.5, 0])
    same(grad(lambda x: np.sqrt(np.median(x)))(np.array([-1.0, 0.0, 1.0])), [0, INF, 0])


def test_sorting_equal_entries_moves_each_cotangent_once() -> None:
    x, w = np.array([2.0, 1.0, 2.0, 1.0]), np.array([1.0, 2.0, 3.0, 4.0])
    for fun in (np.sort, lambda x: np.partition(x, 2)):
        got = grad(lambda x, fun=fun: np.sum(fun(x) * w))(x)
        assert sorted(got[x == 1]) == [1, 2]
        assert sorted(got[x == 2]) == [3, 4]


def test_unique_values_come_from_their_first_occurrence() -> None:
    w = np.array([1.0, 10.0, 100.0])
    same(grad(lambda x: np.sum(np.unique(x) * w))(np.array([2.0, 1.0, 2.0, 3.0, 1.0])), [10, 1, 0, 100, 0])


def test_logarithms_of_sums_of_infinite_powers() -> None:
    same(grad(np.logaddexp.reduce)(np.array([-INF, -INF])), [0.5, 0.5])
    same(grad(np.logaddexp.reduce)(np.array([1.0, INF, INF, -INF])), [0, 0.5, 0.5, 0])
    same(hessian(np.logaddexp.reduce)(np.array([-INF, 0.0, 0.0])), [[0, 0, 0], [0, 0.25, -0.25], [0, -0.25, 0.25]])


def test_interpolation_at_and_beyond_the_ends() -> None:
    xp, fp = np.array([0.0, 1.0, 3.0]), np.array([1.0, 2.0, 6.0])
    slope = vmap(grad(lambda x: np.interp(x, xp, fp)))
    same(slope(np.array([-1.0, 0.0, 0.5, 1.0, 3.0, 4.0])), [0, 1, 1, 2, 2, 0])
    got = jacrev(lambda fp: np.interp([-1.0, 1.0, 3.0, 4.0], xp, fp))(fp)
    same(got, [[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 1]])
    got = jacrev(lambda fp: np.interp([-1.0, 4.0], xp, fp, left=0.0))(fp)
    same(got, [[0, 0, 0], [0, 0, 1]])


def test_i0_against_mpmath() -> None:
    xs = np.array([0.0, 1e-8, 0.5, 7.9, 8.1, 50.0, 300.0, 700.0])
    want = [float(mpmath.besseli(1, x)) for x in xs]
    np.testing.assert_allclose(vmap(grad(np.i0))(xs), want, rtol=1e-13)
    np.testing.assert_allclose(vmap(grad(np.i0))(-xs), np.negative(want), rtol=1e-13)


def test_even_coordinates_that_are_traced() -> None:
    """At even steps NumPy's formula reads the first step only; the derivative is that of all coordinates."""
    f, x = np.array([1.0, 4.0, 2.0, 7.0]), np.array([0.0, 0.5, 1.0, 1.5])
    got = jacrev(lambda x: np.gradient(f, x))(x)
    same(np.sum(got, axis=1), np.zeros(4))  # moving all coordinates changes nothing
    same(got @ x, -np.gradient(f, x))  # stretching them scales the slopes
    assert got[3, 3] != 0


def test_refusals_name_the_way_out() -> None:
    x = np.array([1.0, 2.0, 3.0])
    for fun in (
        lambda x: np.quantile(x, 0.5, method="inverted_cdf", weights=np.ones(3)),
        lambda x: np.median(x, overwrite_input=True),
        lambda x: np.sum(np.linspace(0, x, 3, dtype=int)),
        lambda x: np.sum(np.geomspace(x, 2j, 3)),
        lambda x: np.sum(np.polyadd(np.poly1d([1, 2]), x)),
        lambda x: np.sum(np.histogramdd([x, x])[0]),
    ):
        with pytest.raises(NoRuleError):
            grad(lambda x, fun=fun: np.sum(fun(x)))(x)
    with pytest.raises(NoRuleError, match="stop_gradient"):
        grad(lambda x: np.sum(np.histogram(x)[0]))(x)
    with pytest.raises(InPlaceError, match=r"x = np\.nan_to_num"):
        grad(lambda x: np.sum(np.nan_to_num(x, copy=False)))(x)
    with pytest.raises(NoRuleError, match="more than one axis"):
        grad(lambda x: np.sum(np.nanquantile(x, [[0.1], [0.2]])))(x)
