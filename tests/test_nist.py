"""Fits of NIST's reference problems: exact Jacobians have to lead to the certified digits, from both starting points.

The loop that fits them is the one that docs/how-to/fit-a-model.md shows.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from meintorch.func import jacfwd, jacrev, jvp, vjp
from tests.nist import MODELS, PROBLEMS, digits, residuals_of
from tests.test_docs import blocks_of

PAGE = Path(__file__).parents[1] / "docs" / "how-to" / "fit-a-model.md"
STARTS = [(name, start) for name in PROBLEMS for start in ("start1", "start2")]
MORE_CALLS = {("MGH09", "start1"), ("MGH17", "start1")}  # than the 100 for each parameter that SciPy allows by default
ROUNDING = "Lanczos1"  # its residuals are nothing but rounding


@cache
def functions_of_the_page(jacobian: Any) -> dict[str, Any]:
    """Return the functions that the page shows, by name, with another function in the place of ``jacfwd``."""
    namespace: dict[str, Any] = {"np": np, "jacfwd": jacobian}
    for block in blocks_of(PAGE):
        for part in block.body.split("\n\n\n"):
            if part.startswith("def "):
                exec(part, namespace)
    return namespace


def of_the_page(name: str, jacobian: Any = jacfwd) -> Callable[..., Any]:
    """Return a function as the page shows it."""
    found: Callable[..., Any] = functions_of_the_page(jacobian)[name]
    return found


def certified(name: str) -> np.ndarray[Any, Any]:
    return np.array(PROBLEMS[name]["certified"])


def check(name: str, found: np.ndarray[Any, Any]) -> None:
    assert digits(found, certified(name)) >= 6
    r = residuals_of(name)(found)
    if name != ROUNDING:
        assert digits(r @ r, PROBLEMS[name]["rss"]) >= 6


def test_all_problems_are_here():
    assert len(PROBLEMS) == 18
    assert PROBLEMS.keys() == MODELS.keys()


@pytest.mark.parametrize("name", PROBLEMS)
def test_figures_and_models_agree_with_the_certified_sum_of_squares(name):
    """Eleven digits of the parameters leave nine of the sum of squares, except where that lies near rounding."""
    r = residuals_of(name)(certified(name))
    if name == ROUNDING:
        assert r @ r < 1e-20
    else:
        assert digits(r @ r, PROBLEMS[name]["rss"]) >= (6 if name.startswith("Lanczos") else 9)


@pytest.mark.parametrize(("name", "start"), STARTS)
def test_the_loop_of_the_page_finds_the_certified_digits(name, start):
    """From all starting points: those far away too, from which many programs fail (MGH09, MGH17)."""
    found, _ = of_the_page("levenberg_marquardt")(residuals_of(name), PROBLEMS[name][start])
    check(name, found)


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_loop_in_reverse_mode(name):
    found, _ = of_the_page("levenberg_marquardt", jacrev)(residuals_of(name), PROBLEMS[name]["start2"])
    check(name, found)


@pytest.mark.parametrize(("name", "start"), STARTS)
def test_scipy_with_exact_jacobians(name, start):
    least_squares = pytest.importorskip("scipy.optimize").least_squares
    f, rounding = residuals_of(name), dict.fromkeys(("ftol", "xtol", "gtol"), 1e-15)

    def fit(max_nfev: int | None = None) -> Any:
        with np.errstate(over="ignore", invalid="ignore"):  # in steps that go too far
            first = PROBLEMS[name][start]
            return least_squares(f, first, jac=jacfwd(f), method="lm", x_scale="jac", max_nfev=max_nfev, **rounding)

    found = fit()
    assert found.success == ((name, start) not in MORE_CALLS)
    check(name, found.x if found.success else fit(max_nfev=2000).x)


@pytest.mark.parametrize("name", [name for name in PROBLEMS if name != ROUNDING])
def test_standard_errors_of_the_page(name):
    found, _ = of_the_page("levenberg_marquardt")(residuals_of(name), PROBLEMS[name]["start2"])
    assert digits(of_the_page("standard_errors")(residuals_of(name), found), PROBLEMS[name]["sd"]) >= 5


@pytest.mark.parametrize("name", PROBLEMS)
def test_value_and_jacobians(name):
    """The value bit for bit; the Jacobian in units of the parameters, by both modes and by central differences."""
    f, b = residuals_of(name), certified(name)
    np.testing.assert_array_equal(jvp(f, (b,), (b,))[0], f(b))
    np.testing.assert_array_equal(vjp(f, b)[0], f(b))
    forward, reverse = jacfwd(f)(b) * b, jacrev(f)(b) * b
    size = np.max(np.abs(forward), axis=0)
    np.testing.assert_allclose(reverse / size, forward / size, rtol=0, atol=1e-13)
    step = 1e-5 * np.diag(b)
    differences = np.stack([(f(b + h) - f(b - h)) / 2e-5 for h in step], axis=1)
    np.testing.assert_allclose(forward / size, differences / size, rtol=0, atol=1e-6)
