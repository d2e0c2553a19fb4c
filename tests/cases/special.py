"""Cases for rules/special.py."""

import numpy as np
from scipy import special
from scipy.special import _ufuncs

from meintorch.core.primitive import find, later
from tests.cases import Case, complexes, normal, positive, unit

for _module in (special, _ufuncs):  # rows are made when a function is first met
    for _name in later[_module.__name__]:
        if hasattr(_module, _name):
            find(getattr(_module, _name))

x, p, u, z = normal(2, 3), positive(2, 3), unit(2, 3), complexes(2, 3)
share = (1 + u) / 2  # between 0.1 and 0.9
order = np.array([0.0, 1.0, 2.5])
shape = positive(3, seed=1)
LOOSE = 1e-5  # for functions that SciPy computes less exactly

CASES = [
    Case(fun, fun, (point,))
    for fun, point in (
        (special.cbrt, p),
        (special.cosdg, 40 * x),
        (special.cosm1, x),
        (special.cotdg, 40 * p),
        (special.exp2, x),
        (special.exp10, x),
        (special.expm1, x),
        (special.exprel, x),
        (special.log1p, p),
        (special.sindg, 40 * x),
        (special.tandg, 40 * u),
        (special.entr, p),
        (special.expit, 3 * x),
        (special.log_expit, 3 * x),
        (special.logit, share),
        (special.wrightomega, x),
        (special.erf, x),
        (special.erfc, x),
        (special.erfcx, x),
        (special.erfi, x),
        (special.dawsn, x),
        (special.erfinv, u),
        (special.erfcinv, 1 + u),
        (special.ndtr, x),
        (special.log_ndtr, 2 * x),
        (special.ndtri, share),
        (special.ndtri_exp, -p),
        (special.gamma, x),
        (special.gammaln, x),
        (special.loggamma, p),
        (special.rgamma, x),
        (special.psi, p),
        (special.psi, x - 3),
        (special.j0, 4 * x),
        (special.j1, 4 * x),
        (special.y0, p),
        (special.y1, p),
        (special.i0, x),
        (special.i1, x),
        (special.k0, p),
        (special.k1, p),
        (special.i0e, x),
        (special.i1e, x),
        (special.k0e, p),
        (special.k1e, p),
        (special.exp1, p),
        (special.expi, x),
        (special.airy, x),
        (special.fresnel, x),
        (special.sici, p),
        (special.shichi, p),
        (special.ellipk, u),
        (special.ellipkm1, p),
        (special.ellipe, u),
    )
]
CASES += [
    Case(fun, fun, (z,), label="complex", tolerance=LOOSE)
    for fun in (
        *(special.expm1, special.log1p, special.erf, special.erfc, special.erfcx, special.erfi, special.dawsn),
        *(special.wofz, special.ndtr, special.log_ndtr, special.exp1, special.expi),
        *(special.wrightomega, special.airy, special.fresnel, special.sici, special.shichi),
    )
]
CASES += [
    Case(fun, fun, (z,), label="complex", second=False, tolerance=LOOSE)  # SciPy knows no complex trigamma
    for fun in (special.gamma, special.loggamma, special.rgamma)
]
CASES += [
    Case(_ufuncs._lambertw, special.lambertw, (p,)),
    Case(_ufuncs._lambertw, special.lambertw, (z,), label="complex", tolerance=LOOSE),
    Case(_ufuncs._lambertw, lambda v: special.lambertw(v, -1), (-share / 3,), label="lower branch", tolerance=LOOSE),
    Case(_ufuncs._zeta, lambda v: special.zeta(order + 1.5, v), (p,)),
]

# ---------------------------------------------------------------- two and more arguments, all of them differentiated

CASES += [
    Case(special.xlogy, special.xlogy, (x, shape)),
    Case(special.xlogy, special.xlogy, (z, complexes(3, seed=2)), label="complex", tolerance=LOOSE),
    Case(special.xlog1py, special.xlog1py, (x, shape)),
    Case(special.xlog1py, special.xlog1py, (z, complexes(3, seed=2)), label="complex", tolerance=LOOSE),
    Case(special.radian, lambda d, m, s: 1e5 * special.radian(d, m, s), (x, normal(3), normal(2, 1)), tolerance=LOOSE),
    Case(special.rel_entr, special.rel_entr, (p, 0.3 + shape)),
    Case(special.rel_entr, lambda v: special.rel_entr(v, 5.0), (p,), label="far"),
    Case(special.kl_div, special.kl_div, (p, 0.3 + shape)),
    Case(special.huber, special.huber, (np.array([0.5, 1.0, 1.5]), np.array([[0.3, -1.7, 2.0], [-0.7, 0.2, -0.4]]))),
    Case(special.pseudo_huber, special.pseudo_huber, (shape, x)),
    Case(special.boxcox, special.boxcox, (p, normal(3))),
    Case(special.boxcox, special.boxcox, (p, np.array([0.0, 1e-9, 1.0])), label="near 0"),
    Case(special.boxcox1p, special.boxcox1p, (p, normal(3))),
    Case(special.boxcox1p, special.boxcox1p, (u, np.array([0.0, -1e-9, 1.0])), label="near 0"),
    Case(special.inv_boxcox, special.inv_boxcox, (u, unit(3, seed=1))),
    Case(special.inv_boxcox, special.inv_boxcox, (u, np.array([0.0, 0.1, 1.0])), label="near 0"),
    Case(special.inv_boxcox1p, special.inv_boxcox1p, (u, unit(3, seed=1))),
    Case(special.voigt_profile, special.voigt_profile, (x, p, shape), tolerance=LOOSE),
    Case(special.owens_t, special.owens_t, (x, normal(3)), tolerance=LOOSE),
    Case(special.poch, special.poch, (p, shape)),
    Case(special.binom, special.binom, (3 + p, shape)),
    Case(special.beta, special.beta, (p, shape)),
    Case(special.betaln, special.betaln, (p, shape)),
    Case(special.gdtr, lambda a, v: special.gdtr(a, 1.5, v), (p, shape)),
    Case(special.gdtrc, lambda a, v: special.gdtrc(a, 1.5, v), (p, shape)),
    Case(special.ellipkinc, lambda v: special.ellipkinc(v, 0.4), (x,)),
    Case(special.ellipeinc, lambda v: special.ellipeinc(v, 0.4), (x,)),
    Case(special.ellipj, lambda v: special.ellipj(v, 0.4), (x,)),
]

# ---------------------------------------------------------------- the last argument only


def last(fun: np.ufunc, *constants: object, at: np.ndarray, label: str = "", tolerance: float = 1e-6) -> Case:
    """Make a case of a ufunc of which all arguments but the last are constants."""
    return Case(fun, lambda v: fun(*constants, v), (at,), label=label, tolerance=tolerance)


CASES += [
    last(special.gammainc, order + 0.7, at=p),
    last(special.gammainc, 30.0, at=28 + 3 * x, label="large"),
    last(special.gammaincc, order + 0.7, at=p),
    last(special.gammaincinv, order + 0.7, at=share, tolerance=LOOSE),
    last(special.gammainccinv, order + 0.7, at=share, tolerance=LOOSE),
    last(special.betainc, order + 0.7, 1.3, at=share),
    last(special.betaincc, order + 0.7, 1.3, at=share),
    last(special.betaincinv, order + 0.7, 1.3, at=share, tolerance=LOOSE),
    last(special.betainccinv, order + 0.7, 1.3, at=share, tolerance=LOOSE),
    last(special.bdtr, np.array([0, 1, 4]), 7, at=share),
    last(special.bdtrc, np.array([0, 1, 4]), 7, at=share),
    last(special.pdtr, np.array([0, 1, 4]), at=p),
    last(special.pdtrc, np.array([0, 1, 4]), at=p),
    last(special.chdtr, order + 0.7, at=p),
    last(special.chdtrc, order + 0.7, at=p),
    last(special.chdtri, order + 0.7, at=share, tolerance=LOOSE),
    last(special.stdtr, order + 0.7, at=x),
    last(special.stdtrit, order + 0.7, at=share, tolerance=LOOSE),
    last(special.jv, order, at=p),
    last(special.jv, order, at=z, label="complex", tolerance=LOOSE),
    last(special.jve, order, at=p),
    last(special.yv, order, at=p),
    last(special.yv, order, at=z, label="complex", tolerance=LOOSE),
    last(special.yn, np.array([0, 1, 2]), at=p),
    last(special.iv, order, at=p),
    last(special.iv, order, at=z, label="complex", tolerance=LOOSE),
    last(special.ive, order, at=p),
    last(special.kv, order, at=p),
    last(special.kv, order, at=z, label="complex", tolerance=LOOSE),
    last(special.kn, np.array([0, 1, 2]), at=p),
    last(special.kve, order, at=p),
    last(special.kve, order, at=z, label="complex", tolerance=LOOSE),
    last(special.expn, np.array([0, 1, 3]), at=p),
    last(special.hyp0f1, order + 0.7, at=x),
    last(special.hyp0f1, order + 0.7, at=z, label="complex", tolerance=LOOSE),
    last(special.hyp1f1, 0.6, order + 0.7, at=x),
    last(special.hyp1f1, 0.6, order + 0.7, at=z, label="complex", tolerance=LOOSE),
    last(special.hyp2f1, 0.6, 1.3, order + 0.7, at=u),
    last(special.hyp2f1, 0.6, 1.3, order + 0.7, at=z / 5, label="complex", tolerance=LOOSE),
    last(special.hyperu, 0.6, order + 0.7, at=p, tolerance=LOOSE),
    last(special.eval_chebyt, np.array([0, 1, 4]), at=u),
    last(special.eval_chebyu, np.array([0, 1, 4]), at=u),
    last(special.eval_gegenbauer, np.array([0, 1, 4]), 1.5, at=u),
    last(special.eval_hermite, np.array([0, 1, 4]), at=u),
    last(special.eval_hermitenorm, np.array([0, 1, 4]), at=u),
    last(special.eval_laguerre, np.array([0, 1, 4]), at=u),
    last(special.eval_genlaguerre, np.array([0, 1, 4]), 1.5, at=u),
    last(special.eval_legendre, np.array([0, 1, 4]), at=u),
    last(special.eval_legendre, order + 0.5, at=u, label="real degree"),
    last(special.eval_jacobi, np.array([0, 1, 4]), 1.5, 0.5, at=u),
]

# ---------------------------------------------------------------- where a rule takes another formula

CASES += [
    Case(special.psi, special.psi, (np.array(2.5),), label="0-d"),
    Case(special.erf, special.erf, (np.zeros((0, 2)),), label="size 0"),
    Case(special.rgamma, special.rgamma, (np.array([0.0, -1.0, -2.0, 0.5]),), label="poles of gamma"),
    Case(special.exprel, special.exprel, (np.array([0.0, 1e-9, -1e-9]),), label="0"),
    Case(special.expit, special.expit, (np.array([0.0, 30.0, -30.0]),), label="tails"),
    Case(special.ellipk, special.ellipk, (np.array([0.0, 1e-9, 0.95, -5.0]),), label="0, 1, negative"),
    Case(special.ellipe, special.ellipe, (np.array([0.0, 1e-9, 0.95, -5.0]),), label="0, 1, negative"),
    Case(special.ellipkm1, special.ellipkm1, (np.array([1.0, 0.05, 6.0]),), label="1, small, large"),
    Case(special.j1, special.j1, (np.zeros(2),), label="0"),
    Case(special.i1, special.i1, (np.zeros(2),), label="0"),
    Case(special.wofz, special.wofz, (x,), label="real"),
    Case(special.wofz, lambda v: special.wofz(np.real(v)), (z,), label="real part"),
    Case(special.wofz, special.wofz, (np.array([30.0 + 1j, -26.0 + 2j]),), label="far", tolerance=LOOSE),
    Case(special.dawsn, special.dawsn, (np.array([15.0 + 15j, 15.0 - 14j]),), label="diagonal", tolerance=LOOSE),
    Case(special.log_ndtr, special.log_ndtr, (np.array([-40.0, -5.0, 0.0, 6.0]),), label="tails"),
]
