"""SciPy's functions where differentiating them is delicate, against mpmath; and that SciPy is only ever the user's."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from meintorch.errors import LostDerivativeError, NoRuleError
from meintorch.func import grad, hessian, jvp, value_and_grad, vmap

special = pytest.importorskip("scipy.special")
mp = pytest.importorskip("mpmath")

Function = Callable[[Any], Any]


def second(f: Function) -> Function:
    """Return the derivative of f, to be differentiated once more."""
    return lambda x: grad(f)(x)


def erfcx(x: Any) -> Any:
    return mp.exp(x * x) * mp.erfc(x)


def dawsn(x: Any) -> Any:
    return mp.sqrt(mp.pi) / 2 * mp.exp(-x * x) * mp.erfi(x)


def hazard(x: Any) -> Any:
    """Return the derivative of log_ndtr."""
    return mp.sqrt(2 / mp.pi) / erfcx(-x / mp.sqrt(2))


def normal(x: Any) -> Any:
    return mp.exp(-x * x / 2) / mp.sqrt(2 * mp.pi)


def gamma_density(a: float) -> Function:
    return lambda x: mp.exp((mp.mpf(a) - 1) * mp.log(x) - x - mp.loggamma(mp.mpf(a)))


def beta_density(a: float, b: float) -> Function:
    a, b = mp.mpf(a), mp.mpf(b)
    return lambda x: x ** (a - 1) * (1 - x) ** (b - 1) / mp.beta(a, b)


def t_density(df: float) -> Function:
    df = mp.mpf(df)

    def density(t: Any) -> Any:
        ratio = mp.exp(mp.loggamma((df + 1) / 2) - mp.loggamma(df / 2))
        return (1 + t * t / df) ** (-(df + 1) / 2) * ratio / mp.sqrt(df * mp.pi)

    return density


def derivative(f: Function, order: int = 1) -> Function:
    return lambda x: mp.diff(f, x, order)


def boxcox_by_lmbda(base: float) -> Function:
    log = mp.log(mp.mpf(base))
    return lambda lmbda: log * log / 2 * mp.hyp1f1(2, 3, lmbda * log)


# name, function, its derivative as mpmath computes it, points
POINTS: list[tuple[str, Function, Function, list[float]]] = [
    ("erf", special.erf, lambda x: 2 / mp.sqrt(mp.pi) * mp.exp(-x * x), [0, 1e-300, 5, -26]),
    ("erfcx", special.erfcx, lambda x: 2 * x * erfcx(x) - 2 / mp.sqrt(mp.pi), [0, 1, 24.9, 25.1, 900, 1e5, 1e9, -20]),
    ("erfcx twice", second(special.erfcx), derivative(erfcx, 2), [0.5, 24.9, 25.1, 900]),
    ("dawsn", special.dawsn, lambda x: 1 - 2 * x * dawsn(x), [0, 0.5, 5, -24.9, 25.1, 90]),
    ("erfinv", special.erfinv, lambda x: mp.sqrt(mp.pi) / 2 * mp.exp(mp.erfinv(x) ** 2), [0, 1e-300, 0.5, -0.999]),
    ("ndtr", special.ndtr, normal, [0, 5, -38, 30]),
    ("log_ndtr", special.log_ndtr, hazard, [0, -1e-300, 5, 37, -5, -40, -1e3, -1e6, -1e10]),
    (
        "log_ndtr twice",
        second(special.log_ndtr),
        lambda x: -hazard(x) * (x + hazard(x)),
        [0, 5, 30, -30, -40, -1e3, -1e6],
    ),
    ("ndtri", special.ndtri, lambda p: 1 / normal(mp.sqrt(2) * mp.erfinv(2 * p - 1)), [0.5, 1e-3, 0.999, 1e-10, 1e-15]),
    ("ndtri_exp", special.ndtri_exp, lambda y: 1 / hazard(mp.sqrt(2) * mp.erfinv(2 * mp.exp(y) - 1)), [-1e-3, -1, -40]),
    ("expit", special.expit, lambda x: mp.exp(-x) / (1 + mp.exp(-x)) ** 2, [0, 50, -50, 700, -700]),
    ("expit twice", second(special.expit), derivative(lambda x: 1 / (1 + mp.exp(-x)), 2), [1, 20, -20]),
    ("log_expit", special.log_expit, lambda x: 1 / (1 + mp.exp(x)), [0, 50, -50, 700, -800]),
    ("logit", special.logit, lambda x: 1 / (x * (1 - x)), [1e-300, 0.5, 1 - 1e-15]),
    ("exprel", special.exprel, lambda x: mp.hyp1f1(2, 3, x) / 2, [0, 1e-300, 1e-5, 1, -1, -1e3, 700]),
    ("gamma", special.gamma, derivative(mp.gamma), [1e-10, 0.5, 5, 170, -0.5, -20.5]),
    ("gammaln", special.gammaln, mp.digamma, [1e-300, 1e-5, 1, 1.4616, 1e8, 1e300, -0.5, -1000.3]),
    ("gammaln twice", second(special.gammaln), lambda x: mp.psi(1, x), [1e-100, 1e-5, 1, 1e8, 1e100, -0.5, -1 + 1e-9]),
    ("gammaln thrice", second(second(special.gammaln)), lambda x: mp.psi(2, x), [1e-50, 1e-5, 1, 1e8, -0.4]),
    ("rgamma", special.rgamma, derivative(mp.rgamma), [0, 1e-300, 0.499, 0.5, -1, -5, -5 + 1e-9, -20, -50.3, 10, 170]),
    ("zeta", lambda q: special.zeta(2.5, q), lambda q: -mp.mpf(2.5) * mp.zeta(3.5, q), [1e-10, 0.5, 20, 1e6]),
    ("gammainc 0.001", lambda x: special.gammainc(1e-3, x), gamma_density(1e-3), [1e-200, 1e-5, 1, 50]),
    ("gammainc 1", lambda x: special.gammainc(1, x), lambda x: mp.exp(-x), [0, 1e-5, 700]),
    ("gammainc 20.1", lambda x: special.gammainc(20.1, x), gamma_density(20.1), [1e-3, 10, 10.1, 20, 60]),
    ("gammainc of medium order", lambda x: special.gammainc(20.1, x), gamma_density(20.1), [18, 20, 20.5, 22]),
    ("gammainc 1e6", lambda x: special.gammainc(1e6, x), gamma_density(1e6), [0.98e6, 1e6, 1e6 + 1, 1.01e6]),
    ("gammainc 1e10", lambda x: special.gammainc(1e10, x), gamma_density(1e10), [1e10, 1e10 + 1e5, 1e10 - 3e5]),
    ("betainc 0.5", lambda x: special.betainc(0.5, 0.5, x), beta_density(0.5, 0.5), [1e-300, 0.1, 1 - 1e-10]),
    ("betainc 50", lambda x: special.betainc(50, 60, x), beta_density(50, 60), [1e-3, 0.45, 0.9]),
    *[
        (f"stdtr {df:g}", lambda t, df=df: special.stdtr(df, t), t_density(df), [0, 1e-5, 1, -5, 20])
        for df in (0.5, 1.0, 100.0, 1e6, 1e9)
    ],
    ("stdtr inf", lambda t: special.stdtr(np.inf, t), normal, [0, 1, -5]),
    ("ellipk", special.ellipk, derivative(mp.ellipk), [0, 1e-300, 1e-9, 0.5, 1 - 1e-6, -0.9, -1.1, -50, -1e8]),
    ("ellipk twice", second(special.ellipk), derivative(mp.ellipk, 2), [0, 1e-9, 0.5, 1 - 1e-6, -0.9, -1.1, -50]),
    ("ellipe", special.ellipe, derivative(mp.ellipe), [0, 1e-300, 1e-9, 0.4, 0.6, 1 - 1e-6, -0.4, -1.1, -50]),
    ("ellipe twice", second(special.ellipe), derivative(mp.ellipe, 2), [0, 1e-9, 0.4, 0.6, -0.4, -1.1, -50]),
    ("ellipkm1", special.ellipkm1, lambda p: -mp.diff(mp.ellipk, 1 - p), [1, 1e-3, 1e-9, 0.4, 0.6, 1.9, 2.1, 1e5]),
    ("ellipkm1, tiny", special.ellipkm1, lambda p: -1 / (2 * p), [1e-50, 1e-300]),
    ("j1", special.j1, lambda x: (mp.besselj(0, x) - mp.besselj(2, x)) / 2, [0, 1e-300, 1e-8, -3, 100]),
    ("y1", special.y1, lambda x: (mp.bessely(0, x) - mp.bessely(2, x)) / 2, [1e-100, 1e-8, 3, 100]),
    ("k1e", special.k1e, lambda x: mp.exp(x) * (mp.besselk(1, x) * (1 - 1 / x) - mp.besselk(0, x)), [3, 100]),
    ("jv", lambda x: special.jv(0.5, x), lambda x: mp.besselj(0.5, x, 1), [1e-10, 0.5, 100]),
    ("expn 1", lambda x: special.expn(1, x), lambda x: -mp.exp(-x) / x, [1e-10, 0.5, 50]),
    ("expn 5", lambda x: special.expn(5, x), lambda x: -mp.expint(4, x), [1e-10, 0.5, 50]),
    ("expn 0 thrice", second(second(lambda x: special.expn(0, x))), derivative(lambda x: mp.exp(-x) / x, 3), [0.5, 3]),
    (
        "lambertw",
        lambda x: np.real(special.lambertw(x)),
        lambda x: mp.exp(-mp.lambertw(x)) / (1 + mp.lambertw(x)),
        [0, 1e-300, 1, 1e300, -0.36, -0.367879],
    ),
    (
        "lambertw, lower branch",
        lambda x: np.real(special.lambertw(x, -1)),
        lambda x: mp.re(mp.exp(-mp.lambertw(x, -1)) / (1 + mp.lambertw(x, -1))),
        [-1e-300, -0.1, -0.36],
    ),
    *[
        (f"boxcox {x:g}", lambda v, x=x: special.boxcox(x, v), boxcox_by_lmbda(x), [-0.5, -1e-9, 0, 1e-9, 1e-3, 1])
        for x in (1e-300, 0.5, 3.0, 1e200)
    ],
    ("boxcox 0", lambda v: special.boxcox(0.0, v), lambda lmbda: 1 / lmbda**2, [0.5, 2]),
    ("sinc thrice", second(second(special.sinc)), derivative(mp.sincpi, 3), [3e-4, -9e-4, 0.3]),
]

PRECISION = {"gammainc of medium order": 2e-15}  # where the last terms of a series can be seen


@pytest.mark.parametrize(("label", "f", "exact", "points"), POINTS, ids=[row[0] for row in POINTS])
def test_derivative_agrees_with_mpmath(label: str, f: Function, exact: Function, points: list[float]) -> None:
    with mp.workdps(40):
        for point in points:
            want = exact(mp.mpf(point))
            for got in (grad(f)(float(point)), jvp(f, (float(point),), (1.0,))[1]):
                error = abs(mp.mpf(float(got)) - want)
                assert error <= PRECISION.get(label, 1e-10) * abs(want), (point, float(got), float(want))


@pytest.mark.parametrize(
    ("fun", "point", "want"),
    [
        (special.xlogy, (0.0, 0.0), (-np.inf, 0.0)),
        (special.xlogy, (0.0, 2.0), (np.log(2.0), 0.0)),
        (special.xlogy, (2.0, 0.0), (-np.inf, np.inf)),
        (special.xlog1py, (0.0, -1.0), (-np.inf, 0.0)),
        (special.rel_entr, (0.0, 0.0), (1.0, 0.0)),
        (special.rel_entr, (0.0, 2.0), (-np.inf, 0.0)),
        (special.rel_entr, (1e-300, 1e300), (1 - 600 * np.log(10), 0.0)),
        (special.kl_div, (0.0, 0.0), (0.0, 1.0)),
        (special.kl_div, (0.0, 2.0), (-np.inf, 1.0)),
        (special.kl_div, (2.0, 2.0), (0.0, 0.0)),
        (special.kl_div, (1 + 2.0**-40, 1.0), (2.0**-40, -(2.0**-40))),
        (special.huber, (1.0, 1.0), (0.0, 1.0)),
        (special.huber, (1.0, -3.0), (2.0, -1.0)),
        (special.pseudo_huber, (0.0, 0.0), (0.0, 0.0)),
        (special.pseudo_huber, (0.0, -2.0), (2.0, 0.0)),
        (special.pseudo_huber, (1.0, 1e-100), (0.0, 1e-100)),
        (special.boxcox, (0.0, 2.0), (0.0, 0.25)),
        (special.boxcox1p, (-1.0, 1.0), (1.0, 1.0)),
    ],
)
def test_kinks_and_removable_singularities(fun: Any, point: tuple[float, float], want: tuple[float, float]) -> None:
    np.testing.assert_allclose(grad(fun, argnums=(0, 1))(*point), want, rtol=1e-11)


def test_entropy_at_0_and_logistic_tails() -> None:
    assert grad(special.entr)(0.0) == np.inf
    assert [float(grad(special.expit)(x)) for x in (800.0, -800.0, np.inf, -np.inf)] == [0.0, 0.0, 0.0, 0.0]
    assert grad(special.log_expit)(-800.0) == 1.0
    assert grad(special.i0e)(0.0) == 0.0
    assert grad(special.log_ndtr)(np.inf) == 0.0


def test_polynomials_of_degree_0_are_constant_to_any_order() -> None:
    for fun in (special.eval_legendre, special.eval_chebyt, special.eval_hermite, special.eval_laguerre):
        for n in (0, 1):
            assert grad(grad(grad(lambda x, fun=fun, n=n: fun(n, x))))(0.3) == 0.0


def test_an_argument_without_a_known_derivative_is_named() -> None:
    with pytest.raises(
        NoRuleError, match=r"scipy\.special\.gammainc has no derivative .* argument 'x1'.*stop_gradient"
    ):
        grad(lambda a: special.gammainc(a, 2.0))(1.5)
    with pytest.raises(NoRuleError, match=r"scipy\.special\.zeta has no derivative .* argument 'x1'"):
        grad(lambda s: special.zeta(s, 2.0))(1.5)


def test_where_leaves_the_other_entries_of_out() -> None:
    mask = np.array([True, False])
    value, g = value_and_grad(lambda x: np.sum(special.erf(x, where=mask, out=5.0 * x) ** 2))(np.ones(2))
    assert value == special.erf(1.0) ** 2 + 25.0
    np.testing.assert_allclose(g, [4 * special.erf(1.0) * np.exp(-1.0) / np.sqrt(np.pi), 50.0], rtol=1e-14)


def test_what_complex_numbers_lack_is_said() -> None:
    with pytest.raises(NoRuleError, match=r"Write scipy\.special\.iv\(v, z\) \* np\.exp\(-np\.abs\(z\.real\)\)"):
        grad(lambda x: np.abs(special.ive(1, x + 1j)))(0.5)
    with pytest.raises(NoRuleError, match=r"Write scipy\.special\.jv\(v, z\) \* np\.exp\(-np\.abs\(z\.imag\)\)"):
        grad(lambda x: np.abs(special.jve(1, x + 1j)))(0.5)
    with pytest.raises(NoRuleError, match="trigamma"):
        grad(lambda x: np.abs(special.digamma(x + 1j)))(0.5)


def test_python_functions_around_ufuncs_work_or_say_that_they_do_not() -> None:
    for f in (
        lambda x: special.zeta(2, x),
        lambda x: np.real(special.lambertw(x)),
        special.softplus if hasattr(special, "softplus") else special.expit,
        special.sinc,
    ):
        slope = (f(0.7 + 1e-6) - f(0.7 - 1e-6)) / 2e-6
        assert grad(f)(0.7) == pytest.approx(slope, rel=1e-8)
    for f in (
        *(special.logsumexp, lambda x: np.sum(special.softmax(x)), lambda x: np.sum(special.log_softmax(x))),
        lambda x: np.sum(special.polygamma(1, x)),
    ):
        with pytest.raises(LostDerivativeError):
            grad(f)(np.array([0.3, 0.5]))


def test_transforms_compose() -> None:
    x = np.array([0.3, 1.2, 2.5])
    slopes = special.digamma(x)
    np.testing.assert_array_equal(vmap(grad(special.gammaln))(x), slopes)
    np.testing.assert_array_equal(jvp(special.gammaln, (x,), (np.ones(3),))[1], slopes)
    np.testing.assert_allclose(vmap(grad(grad(special.gammaln)))(x), special.polygamma(1, x), rtol=1e-14)
    np.testing.assert_allclose(
        hessian(lambda v: np.sum(special.gammaln(v)))(x), np.diag(special.polygamma(1, x)), rtol=1e-14
    )
    by_order = vmap(lambda n, v: special.jv(n, v))(np.array([0.0, 1.0, 2.0]), x)  # a batched order needs no derivative
    np.testing.assert_array_equal(by_order, special.jv([0, 1, 2], x))


def test_scipy_is_imported_by_the_user_alone() -> None:
    program = """
import sys
import meintorch
from meintorch import grad
assert not [name for name in sys.modules if name.split(".")[0] == "scipy"]
from scipy import special
slope = grad(special.gammaln)(3.0)
assert slope == special.digamma(3.0)
assert grad(special.digamma)(3.0) == special.zeta(2, 3.0)
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_row_is_made_once() -> None:
    value, slope = value_and_grad(special.jn, argnums=1)(1, 0.5)
    assert (value, slope) == value_and_grad(special.jv, argnums=1)(1, 0.5)
