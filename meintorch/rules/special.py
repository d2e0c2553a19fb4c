"""SciPy's special functions: rows by name, made when a program first uses one, so that SciPy is never imported.

In a rule ``sp()`` is `scipy.special`: rules are NumPy and these ufuncs, so that higher derivatives follow. None stands for
a derivative without a known formula, mostly that with respect to an order or a shape parameter.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from meintorch._typing import Rule
from meintorch.core.batching import elementwise_batch
from meintorch.core.primitive import CONSTANT, ELEMENTWISE, GENERAL, Primitive, later, needs_of, registry
from meintorch.errors import NoRuleError

_PI, _SQRT_PI, _SQRT_2PI, _DEGREE = math.pi, math.sqrt(math.pi), math.sqrt(2 * math.pi), math.pi / 180
_LOG2, _LOG10 = math.log(2), math.log(10)


def sp() -> Any:
    """Return scipy.special, which the program that called one of its functions has imported."""
    return sys.modules["scipy.special"]


def special(name: str, *partials: Rule | None, kind: str = ELEMENTWISE) -> None:
    """Note a ufunc's row: its partial derivatives in order, or (``kind`` GENERAL) its vector-Jacobian products."""

    def make(fun: Callable[..., Any]) -> Primitive:
        nin: int = fun.nin  # type: ignore[attr-defined]
        names = ("x",) if nin == 1 else tuple([f"x{i + 1}" for i in range(nin)])
        rules = dict(zip(names, partials, strict=True)) if partials else {}
        if kind is ELEMENTWISE:
            kinds = (float,) if name.startswith("eval_") else (int, float)  # an integer degree stays one
            rules = {parameter: in_one_dtype(rule, kinds) for parameter, rule in rules.items()}
        batch = elementwise_batch if kind is GENERAL else None
        spelled = f"scipy.special.{name.lstrip('_')}"
        return registry.setdefault(fun, Primitive(fun, kind, rules, name=spelled, refused=("where",), batch=batch))

    later.setdefault("scipy.special._ufuncs" if name[0] == "_" else "scipy.special", {})[name] = make


def in_one_dtype(rule: Rule | None, kinds: tuple[type, ...]) -> Rule | None:
    """Give Python numbers among a rule's arguments the dtype of the arrays beside them, as the ufunc itself took them.

    Else what is made of such a number alone, np.log(0.5), would be a float64 and would make all else float64 too.
    """
    if rule is None or len(needs_of(rule)) < 2:
        return rule

    @functools.wraps(rule)
    def typed(*needs: Any) -> Any:
        if not any([x.__class__ in kinds for x in needs]):
            return rule(*needs)
        number = np.finfo(np.result_type(*[x.dtype for x in needs if hasattr(x, "dtype")])).dtype.type
        return rule(*[number(x) if x.__class__ in kinds else x for x in needs])

    return typed


def _double_factorials(t: Any) -> Any:
    """1 + 3 t + 15 t**2 + 105 t**3 + ..., the series in the expansions of erfcx, dawsn and wofz for large arguments."""
    total: Any = 1
    for k in (15, 13, 11, 9, 7, 5, 3):
        total = 1 + k * t * total
    return total


def _hyp2f1(a: float, b: float, c: float, x: Any) -> Any:
    """The hypergeometric function in the precision of x, which SciPy raises when a, b and c are Python numbers."""
    number = np.finfo(x.dtype).dtype.type
    return sp().hyp2f1(number(a), number(b), number(c), x)


# ---------------------------------------------------------------- elementary
# At 0 the slopes of x log(x), x log(y) and the like in x are infinite, as the mathematics says. Where x is 0 those in y are
# what they are for all other y, also at (0, 0); and there log(x / y) counts as 0, its value for x = y.


def _share(x: Any, y: Any) -> Any:
    """The quotient x / y; 0 for 0 / 0."""
    return x / np.where((x == 0) & (y == 0), 1, y)


def _log_ratio(x: Any, y: Any) -> Any:
    """log(x / y), without overflow, and without cancellation where x and y are close."""
    near = ((0.5 * y < x) & (x < 2 * y)) | ((x == 0) & (y == 0))
    small = np.log1p(_share(np.where(near, x - y, 0), np.where(near, y, 1)))
    return np.where(near, small, np.log(np.where(near, 1, x)) - np.log(np.where(near, 1, y)))


def _boxcox_by_lmbda(log: Any, lmbda: Any) -> Any:
    """The derivative of expm1(lmbda * log) / lmbda by lmbda; log**2 / 2 at 0."""
    lowest = log == -np.inf
    finite = np.where(lowest, 0, log)
    inner = finite * finite * sp().hyp1f1(2.0, 3.0, lmbda * finite) / 2
    return np.where(lowest, 1 / np.where(lowest, lmbda, 1) ** 2, inner)


def _huber_distance(x1: Any, x2: Any) -> Any:
    """sqrt(x1**2 + x2**2); 1 at 0."""
    size = np.hypot(x1, x2)
    return np.where(size == 0, 1, size)


def _pseudo_huber_by_delta(x1: Any, x2: Any) -> Any:
    """(h - x1)**2 / h for h = hypot(x1, x2), without cancellation."""
    size = _huber_distance(x1, x2)
    gap = x2 * (x2 / (size + x1))
    return gap * (gap / size)


special("cbrt", lambda ans: 1 / (3 * ans * ans))
special("cosm1", lambda x: -np.sin(x))
special("exp2", lambda ans: ans * _LOG2)
special("exp10", lambda ans: ans * _LOG10)
special("expm1", lambda x: np.exp(x))
special("exprel", lambda x: sp().hyp1f1(2.0, 3.0, x) / 2)
special("log1p", lambda x: 1 / (1 + x))
special("xlogy", lambda x2: np.log(x2), lambda x1, x2: _share(x1, x2))
special("xlog1py", lambda x2: np.log1p(x2), lambda x1, x2: _share(x1, 1 + x2))
special("sindg", lambda x: sp().cosdg(x) * _DEGREE)
special("cosdg", lambda x: -sp().sindg(x) * _DEGREE)
special("tandg", lambda ans: (1 + ans * ans) * _DEGREE)
special("cotdg", lambda ans: -(1 + ans * ans) * _DEGREE)
special("radian", lambda: _DEGREE, lambda: _DEGREE / 60, lambda: _DEGREE / 3600)
special("entr", lambda x: -np.log(x) - 1)
special("rel_entr", lambda x1, x2: _log_ratio(x1, x2) + 1, lambda x1, x2: -_share(x1, x2))
special(
    "kl_div", lambda x1, x2: _log_ratio(x1, x2), lambda x1, x2: np.where((x1 == 0) & (x2 == 0), 1, _share(x2 - x1, x2))
)
special("expit", lambda ans, x: ans * sp().expit(-x))  # not 1 - ans, which is 0 for large x
special("log_expit", lambda x: sp().expit(-x))
special("logit", lambda x: 1 / (x * (1 - x)))
special("huber", lambda x1, x2: np.maximum(np.abs(x2) - x1, 0), lambda x1, x2: np.clip(x2, -x1, x1))
special("pseudo_huber", _pseudo_huber_by_delta, lambda x1, x2: x1 * (x2 / _huber_distance(x1, x2)))
special("boxcox", lambda x1, x2: x1 ** (x2 - 1), lambda x1, x2: _boxcox_by_lmbda(np.log(x1), x2))
special("boxcox1p", lambda x1, x2: np.exp(sp().xlog1py(x2 - 1, x1)), lambda x1, x2: _boxcox_by_lmbda(np.log1p(x1), x2))
special(
    "inv_boxcox",
    lambda ans, x2: ans ** (1 - x2),
    lambda ans, x2: -_boxcox_by_lmbda(np.log(ans), x2) * ans ** (1 - x2),
)
special(
    "inv_boxcox1p",
    lambda ans, x2: np.exp(sp().xlog1py(1 - x2, ans)),
    lambda ans, x2: -_boxcox_by_lmbda(np.log1p(ans), x2) * np.exp(sp().xlog1py(1 - x2, ans)),
)
special("_lambertw", lambda ans: np.exp(-ans) / (1 + ans), None, None)
special("wrightomega", lambda ans: ans / (1 + ans))

# ---------------------------------------------------------------- error functions and the normal distribution


def _erfcx_partial(ans: Any, x: Any) -> Any:
    """2 x ans - 2 / sqrt(pi), by its series (DLMF 7.12.1) for large x, where the difference cancels."""
    far = np.real(x) > 25
    r = 1 / np.where(far, x, 1)
    return np.where(
        far, -r * r / _SQRT_PI * _double_factorials(-r * r / 2), 2 * np.where(far, 0, x) * ans - 2 / _SQRT_PI
    )


def _dawsn_partial(ans: Any, x: Any) -> Any:
    """1 - 2 x ans, by its series for large x, where the difference cancels."""
    far = np.abs(np.real(x)) - np.abs(np.imag(x)) > 25
    r = 1 / np.where(far, x, 1)
    return np.where(far, -r * r / 2 * _double_factorials(r * r / 2), 1 - 2 * np.where(far, 0, x) * ans)


def _wofz_partial(ans: Any, x: Any) -> Any:
    """2i / sqrt(pi) - 2 x ans, by its series for large x in the upper half plane, where the difference cancels."""
    far = (np.imag(x) >= 0) & (np.abs(x) > 25)
    r = 1 / np.where(far, x, 1)
    series = -1j / _SQRT_PI * r * r * _double_factorials(r * r / 2)
    return np.where(far, series, 2j / _SQRT_PI - 2 * np.where(far, 0, x) * ans)


def _wofz_vjp(g: Any, ans: Any, x: Any) -> Any:
    h = g * _wofz_partial(ans, x)
    return h if np.iscomplexobj(x) else np.real(h)


def _voigt_slope(x1: Any, x2: Any, x3: Any) -> tuple[Any, Any]:
    """The derivative of the complex Voigt profile wofz(z) / (sigma sqrt(2 pi)) by x, and z."""
    z = (x1 + 1j * x3) / (math.sqrt(2) * x2)
    return _wofz_partial(sp().wofz(z), z) / (2 * _SQRT_PI * x2 * x2), z


def _voigt_by_sigma(ans: Any, x1: Any, x2: Any, x3: Any) -> Any:
    slope, z = _voigt_slope(x1, x2, x3)
    return -ans / x2 - math.sqrt(2) * np.real(z * slope)


def _normal_density(x: Any) -> Any:
    return np.exp(-x * x / 2) / _SQRT_2PI


def _log_ndtr_partial(x: Any) -> Any:
    """The normal density over ndtr, of which both underflow for negative x: there by erfcx."""
    left = np.real(x) < 0
    below, above = np.where(left, x, 0), np.where(left, 0, x)
    return np.where(
        left,
        math.sqrt(2 / _PI) / sp().erfcx(-below / math.sqrt(2)),
        _normal_density(above) / sp().ndtr(above),
    )


special("erf", lambda x: 2 / _SQRT_PI * np.exp(-x * x))
special("erfc", lambda x: -2 / _SQRT_PI * np.exp(-x * x))
special("erfcx", _erfcx_partial)
special("erfi", lambda x: 2 / _SQRT_PI * np.exp(x * x))
special("dawsn", _dawsn_partial)
special("erfinv", lambda ans: _SQRT_PI / 2 * np.exp(ans * ans))
special("erfcinv", lambda ans: -_SQRT_PI / 2 * np.exp(ans * ans))
special("wofz", _wofz_vjp, kind=GENERAL)
special(
    "voigt_profile",
    lambda x1, x2, x3: np.real(_voigt_slope(x1, x2, x3)[0]),
    _voigt_by_sigma,
    lambda x1, x2, x3: -np.imag(_voigt_slope(x1, x2, x3)[0]),
)
special("ndtr", _normal_density)
special("log_ndtr", _log_ndtr_partial)
special("ndtri", lambda ans: _SQRT_2PI * np.exp(ans * ans / 2))
special("ndtri_exp", lambda ans: 1 / _log_ndtr_partial(ans))
special(
    "owens_t",
    lambda x1, x2: -_normal_density(x1) * sp().erf(x1 * x2 / math.sqrt(2)) / 2,
    lambda x1, x2: np.exp(-x1 * x1 * (1 + x2 * x2) / 2) / (2 * _PI * (1 + x2 * x2)),
)

# ---------------------------------------------------------------- gamma and beta functions, and distributions made of them


def _trigamma(x: Any) -> Any:
    if np.iscomplexobj(x):
        raise NoRuleError(
            "scipy.special.digamma of complex numbers has no derivative, which takes a trigamma function that SciPy has for "
            "real numbers only. The first derivatives of gamma and loggamma are there."
        )
    return sp().zeta(2, x)


def _rgamma_partial(ans: Any, x: Any) -> Any:
    """-ans digamma(x), by reflection (DLMF 5.5.3) to the left of 1/2, so that it is finite at the poles of gamma."""
    left = np.real(x) < 0.5
    n = np.round(np.real(x))
    turn = _PI * (x - n)
    y = np.where(left, 1 - x, 1)
    reflected = (1 - 2 * (n % 2)) * sp().gamma(y) * (np.cos(turn) - np.sin(turn) * sp().digamma(y) / _PI)
    return np.where(left, reflected, -ans * sp().digamma(np.where(left, 1, x)))


def _gamma_density(x1: Any, x2: Any) -> Any:
    """x2**(x1 - 1) exp(-x2) / gamma(x1); by Stirling's series (DLMF 5.11.1) where large logarithms cancel."""
    large = (x1 > 20) & (2 * x2 > x1)
    a, x = np.where(large, x1, 1), np.where(large, x2, 1)
    d, r = (x - a) / a, 1 / (a * a)
    stirling = (1 / 12 - r * (1 / 360 - r * (1 / 1260 - r * (1 / 1680 - r / 1188)))) / a
    around = np.sqrt(a / (2 * _PI)) / x * np.exp(a * (np.log1p(d) - d) - stirling)
    a, x = np.where(large, 1, x1), np.where(large, 1, x2)
    return np.where(large, around, np.exp(sp().xlogy(a - 1, x) - x - sp().gammaln(a)))


def _beta_density(x1: Any, x2: Any, x3: Any) -> Any:
    """x3**(x1 - 1) (1 - x3)**(x2 - 1) / beta(x1, x2)."""
    return np.exp(sp().xlogy(x1 - 1, x3) + sp().xlog1py(x2 - 1, -x3) - sp().betaln(x1, x2))


def _t_density(x1: Any, x2: Any) -> Any:
    """The density of Student's t distribution; 1e20 degrees of freedom are as good as infinitely many."""
    df = np.minimum(x1, 1e20)
    return np.exp(-(df + 1) / 2 * np.log1p(x2 * x2 / df)) * sp().poch(df / 2, 0.5) / np.sqrt(_PI * df)


special("gamma", lambda ans, x: ans * sp().digamma(x))
special("gammaln", lambda x: sp().digamma(x))
special("loggamma", lambda x: sp().digamma(x))
special("rgamma", _rgamma_partial)
special("gammasgn", kind=CONSTANT)
special("psi", _trigamma)  # digamma is the same ufunc
special("_zeta", None, lambda x1, x2: -x1 * sp().zeta(x1 + 1, x2))
special(
    "poch",
    lambda ans, x1, x2: ans * (sp().digamma(x1 + x2) - sp().digamma(x1)),
    lambda ans, x1, x2: ans * sp().digamma(x1 + x2),
)
special(
    "binom",
    lambda ans, x1, x2: ans * (sp().digamma(x1 + 1) - sp().digamma(x1 - x2 + 1)),
    lambda ans, x1, x2: ans * (sp().digamma(x1 - x2 + 1) - sp().digamma(x2 + 1)),
)
special(
    "beta",
    lambda ans, x1, x2: ans * (sp().digamma(x1) - sp().digamma(x1 + x2)),
    lambda ans, x1, x2: ans * (sp().digamma(x2) - sp().digamma(x1 + x2)),
)
special(
    "betaln",
    lambda x1, x2: sp().digamma(x1) - sp().digamma(x1 + x2),
    lambda x1, x2: sp().digamma(x2) - sp().digamma(x1 + x2),
)
special("gammainc", None, _gamma_density)
special("gammaincc", None, lambda x1, x2: -_gamma_density(x1, x2))
special("gammaincinv", None, lambda ans, x1: 1 / _gamma_density(x1, ans))
special("gammainccinv", None, lambda ans, x1: -1 / _gamma_density(x1, ans))
special("betainc", None, None, _beta_density)
special("betaincc", None, None, lambda x1, x2, x3: -_beta_density(x1, x2, x3))
special("betaincinv", None, None, lambda ans, x1, x2: 1 / _beta_density(x1, x2, ans))
special("betainccinv", None, None, lambda ans, x1, x2: -1 / _beta_density(x1, x2, ans))
special("bdtr", None, None, lambda x1, x2, x3: -_beta_density(np.floor(x1) + 1, x2 - np.floor(x1), x3))
special("bdtrc", None, None, lambda x1, x2, x3: _beta_density(np.floor(x1) + 1, x2 - np.floor(x1), x3))
special("pdtr", None, lambda x1, x2: -_gamma_density(np.floor(x1) + 1, x2))
special("pdtrc", None, lambda x1, x2: _gamma_density(np.floor(x1) + 1, x2))
special("chdtr", None, lambda x1, x2: _gamma_density(x1 / 2, x2 / 2) / 2)
special("chdtrc", None, lambda x1, x2: -_gamma_density(x1 / 2, x2 / 2) / 2)
special("chdtri", None, lambda ans, x1: -2 / _gamma_density(x1 / 2, ans / 2))
special(
    "gdtr",
    lambda x1, x2, x3: x3 * _gamma_density(x2, x1 * x3),
    None,
    lambda x1, x2, x3: x1 * _gamma_density(x2, x1 * x3),
)
special(
    "gdtrc",
    lambda x1, x2, x3: -x3 * _gamma_density(x2, x1 * x3),
    None,
    lambda x1, x2, x3: -x1 * _gamma_density(x2, x1 * x3),
)
special("stdtr", None, _t_density)
special("stdtrit", None, lambda ans, x1: 1 / _t_density(x1, ans))

# ---------------------------------------------------------------- Bessel and related functions
# By the orders next to it (DLMF 10.6.1, 10.29.1), which is right at 0 as well.


def _sign(x: Any, name: str, kernel: str, part: str) -> Any:
    """The sign of x, by which the derivative of exp(-abs(x)) enters; a complex x has none."""
    if np.iscomplexobj(x):
        raise NoRuleError(
            f"scipy.special.{name} has no derivative for complex numbers: its factor exp(-abs(z.{part})) is not holomorphic. "
            f"Write scipy.special.{kernel}(v, z) * np.exp(-np.abs(z.{part}))."
        )
    return np.sign(x) if part == "real" else 0


def _expn_partial(ans: Any, x1: Any, x2: Any) -> Any:
    """-expn(x1 - 1, x2); for x1 = 0 by recurrence (DLMF 8.19.12), since SciPy knows no negative orders."""
    zero = x1 == 0
    safe = np.where(zero, x2, 1)
    return -np.where(zero, (np.exp(-safe) + ans) / safe, sp().expn(np.where(zero, 1, x1) - 1, x2))


special("j0", lambda x: -sp().j1(x))
special("j1", lambda x: (sp().j0(x) - sp().jv(2, x)) / 2)
special("y0", lambda x: -sp().y1(x))
special("y1", lambda ans, x: sp().y0(x) - ans / x)
special("i0", lambda x: sp().i1(x))
special("i1", lambda x: (sp().i0(x) + sp().iv(2, x)) / 2)
special("k0", lambda x: -sp().k1(x))
special("k1", lambda ans, x: -sp().k0(x) - ans / x)
special("i0e", lambda ans, x: sp().i1e(x) - np.sign(x) * ans)
special("i1e", lambda ans, x: (sp().i0e(x) + sp().ive(2, x)) / 2 - np.sign(x) * ans)
special("k0e", lambda ans, x: ans - sp().k1e(x))
special("k1e", lambda ans, x: ans - sp().k0e(x) - ans / x)
special("jv", None, lambda x1, x2: (sp().jv(x1 - 1, x2) - sp().jv(x1 + 1, x2)) / 2)  # jn is the same ufunc
special("yv", None, lambda x1, x2: (sp().yv(x1 - 1, x2) - sp().yv(x1 + 1, x2)) / 2)
special("yn", None, lambda x1, x2: (sp().yv(x1 - 1, x2) - sp().yv(x1 + 1, x2)) / 2)
special("iv", None, lambda x1, x2: (sp().iv(x1 - 1, x2) + sp().iv(x1 + 1, x2)) / 2)
special("kv", None, lambda x1, x2: -(sp().kv(x1 - 1, x2) + sp().kv(x1 + 1, x2)) / 2)
special("kn", None, lambda x1, x2: -(sp().kv(x1 - 1, x2) + sp().kv(x1 + 1, x2)) / 2)
special(
    "jve",
    None,
    lambda x1, x2: (sp().jve(x1 - 1, x2) - sp().jve(x1 + 1, x2)) / 2 - _sign(x2, "jve", "jv", "imag"),
)
special(
    "ive",
    None,
    lambda ans, x1, x2: (sp().ive(x1 - 1, x2) + sp().ive(x1 + 1, x2)) / 2 - _sign(x2, "ive", "iv", "real") * ans,
)
special("kve", None, lambda ans, x1, x2: ans - (sp().kve(x1 - 1, x2) + sp().kve(x1 + 1, x2)) / 2)
special("airy", lambda g, ans, x: g[0] * ans[1] + g[1] * x * ans[0] + g[2] * ans[3] + g[3] * x * ans[2], kind=GENERAL)
special("exp1", lambda x: -np.exp(-x) / x)
special("expi", lambda x: np.exp(x) / x)
special("expn", None, _expn_partial)
special("fresnel", lambda g, x: g[0] * np.sin(_PI / 2 * x * x) + g[1] * np.cos(_PI / 2 * x * x), kind=GENERAL)
special("sici", lambda g, x: g[0] * np.sinc(x / _PI) + g[1] * np.cos(x) / x, kind=GENERAL)
special("shichi", lambda g, x: g[0] * sp().hyp0f1(1.5, x * x / 4) + g[1] * np.cosh(x) / x, kind=GENERAL)

# ---------------------------------------------------------------- elliptic integrals


def _ellipk_partial(x: Any) -> Any:
    """(ellipe(x) / (1 - x) - ellipk(x)) / (2 x); as a hypergeometric function for x > -1, where the difference may cancel."""
    near = x > -1
    far = np.where(near, -1, x)
    direct = (sp().ellipe(far) / (1 - far) - sp().ellipk(far)) / (2 * far)
    return np.where(near, _PI / 8 * _hyp2f1(1.5, 1.5, 2, np.where(near, x, 0)), direct)


def _ellipkm1_partial(x: Any) -> Any:
    """The same as a function of x = 1 - m, which may be tiny."""
    near = (x > 0.5) & (x < 2)
    far = np.where(near, 0.5, x)
    direct = (sp().ellipkm1(far) - sp().ellipe(1 - far) / far) / (2 * (1 - far))
    return np.where(near, -_PI / 8 * _hyp2f1(1.5, 1.5, 2, np.where(near, 1 - x, 0)), direct)


def _ellipe_partial(x: Any) -> Any:
    """(ellipe(x) - ellipk(x)) / (2 x); as a hypergeometric function near 0, where the difference cancels."""
    near = np.abs(x) < 0.5
    far = np.where(near, 0.5, x)
    direct = (sp().ellipe(far) - sp().ellipk(far)) / (2 * far)
    return np.where(near, -_PI / 8 * _hyp2f1(0.5, 1.5, 2, np.where(near, x, 0)), direct)


def _ellipj_vjp(g: Any, ans: Any, x2: Any) -> Any:
    sn, cn, dn, _ = ans
    return g[0] * cn * dn - g[1] * sn * dn - x2 * g[2] * sn * cn + g[3] * dn


special("ellipk", _ellipk_partial)
special("ellipkm1", _ellipkm1_partial)
special("ellipe", _ellipe_partial)
special("ellipkinc", lambda x1, x2: 1 / np.sqrt(1 - x2 * np.sin(x1) ** 2), None)
special("ellipeinc", lambda x1, x2: np.sqrt(1 - x2 * np.sin(x1) ** 2), None)
special("ellipj", _ellipj_vjp, None, kind=GENERAL)
# ---------------------------------------------------------------- hypergeometric functions and orthogonal polynomials


def _lower(n: Any) -> Any:
    """The degree n - 1; 0 for n = 0, where the factor beside it is 0: SciPy's polynomials of negative degree may be NaN."""
    return np.where(n == 0, 0, n - 1)


special("hyp0f1", None, lambda x1, x2: sp().hyp0f1(x1 + 1, x2) / x1)
special("hyp1f1", None, None, lambda x1, x2, x3: x1 / x2 * sp().hyp1f1(x1 + 1, x2 + 1, x3))
special("hyp2f1", None, None, None, lambda x1, x2, x3, x4: x1 * x2 / x3 * sp().hyp2f1(x1 + 1, x2 + 1, x3 + 1, x4))
special("hyperu", None, None, lambda x1, x2, x3: -x1 * sp().hyperu(x1 + 1, x2 + 1, x3))
special("eval_chebyt", None, lambda x1, x2: x1 * sp().eval_chebyu(_lower(x1), x2))
special("eval_chebyu", None, lambda x1, x2: (x1 != 0) * (2 * sp().eval_gegenbauer(_lower(x1), 2.0, x2)))
special(
    "eval_gegenbauer",
    None,
    None,
    lambda x1, x2, x3: (x1 != 0) * (2 * x2 * sp().eval_gegenbauer(_lower(x1), x2 + 1, x3)),
)
special("eval_hermite", None, lambda x1, x2: 2 * x1 * sp().eval_hermite(_lower(x1), x2))
special("eval_hermitenorm", None, lambda x1, x2: x1 * sp().eval_hermitenorm(_lower(x1), x2))
special("eval_laguerre", None, lambda x1, x2: (x1 != 0) * -sp().eval_genlaguerre(_lower(x1), 1.0, x2))
special("eval_genlaguerre", None, None, lambda x1, x2, x3: (x1 != 0) * -sp().eval_genlaguerre(_lower(x1), x2 + 1, x3))
special("eval_legendre", None, lambda x1, x2: (x1 != 0) * sp().eval_gegenbauer(_lower(x1), 1.5, x2))
special(
    "eval_jacobi",
    None,
    None,
    None,
    lambda x1, x2, x3, x4: (x1 != 0) * (x1 + x2 + x3 + 1) / 2 * sp().eval_jacobi(_lower(x1), x2 + 1, x3 + 1, x4),
)
