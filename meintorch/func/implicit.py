"""Implicit differentiation: roots and fixed points, whose derivatives come from the equation and not from the solver."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from meintorch import tree
from meintorch._typing import PyTree
from meintorch.core.trace import Traced
from meintorch.errors import LostDerivativeError
from meintorch.func._transform import settled_tree
from meintorch.func.custom import custom_jvp
from meintorch.func.forward import jvp
from meintorch.func.jacobians import jacfwd
from meintorch.func.trees import ravel

Solver = Callable[[Callable[[Any], Any], Any], Any]


def root(
    f: Callable[[PyTree, PyTree], PyTree],
    x0: PyTree,
    params: PyTree,
    *,
    solver: Solver | None = None,
    tol: float = 1e-12,
    max_iterations: int = 50,
) -> PyTree:
    """Return the x with ``f(x, params) = 0``, as a differentiable function of ``params``.

    Parameters
    ----------
    f : function of (x, params) that returns a tree of the shapes of x
    x0 : array, or tree of arrays: where the search starts; nothing is differentiated with respect to it
    params : array, or tree of arrays
    solver : function of (residual, x0), optional
        Finds the root of a function of one plain vector, such as ``lambda r, x: scipy.optimize.root(r, x).x``. Newton's
        method without it.
    tol, max_iterations : for Newton's method: it stops once a step is smaller than tol * (1 + norm(x))

    Returns
    -------
    array or tree like x0

    Raises
    ------
    LostDerivativeError
        If ``f`` closes over a traced value, which has to be a part of ``params``.
    RuntimeError
        If Newton's method does not converge.

    Notes
    -----
    By the implicit function theorem dx = -(df/dx)^-1 (df/dparams) dparams, in both modes and to any order. The solver's
    own steps are never differentiated.

    Examples
    --------
    >>> sqrt = lambda a: root(lambda x, a: x * x - a, 1.0, a)
    >>> grad(sqrt)(4.0)
    array(0.25)
    """
    start, unravel = ravel(tree.map(plain_start, x0))

    def residual(x: Any, p: PyTree) -> Any:
        return ravel(settled_tree(f(unravel(x), p)))[0]

    def find(p: PyTree) -> Any:
        def at(x: Any) -> Any:
            return residual(x, p)

        without_closure(at(start), "root")
        if solver is not None:
            return np.asarray(solver(at, start), dtype=start.dtype)
        return newton(at, start, tol, max_iterations)

    return unravel(implicit(find, residual)(params))


def fixed_point(
    f: Callable[[PyTree, PyTree], PyTree],
    x0: PyTree,
    params: PyTree,
    *,
    tol: float = 1e-12,
    max_iterations: int = 10_000,
) -> PyTree:
    """Return the x with ``x = f(x, params)``, by iteration, as a differentiable function of ``params``.

    Parameters
    ----------
    f : function of (x, params) that returns a tree of the shapes of x, and contracts near the solution
    x0, params : as for `root`
    tol, max_iterations : the iteration stops once a step is smaller than tol * (1 + norm(x))

    Returns
    -------
    array or tree like x0

    Raises
    ------
    LostDerivativeError
        If ``f`` closes over a traced value, which has to be a part of ``params``.
    RuntimeError
        If the iteration does not converge.

    Notes
    -----
    By the implicit function theorem dx = (1 - df/dx)^-1 (df/dparams) dparams; the iteration is not differentiated.

    Examples
    --------
    >>> cosine = lambda a: fixed_point(lambda x, a: np.cos(a * x), 0.5, a)
    >>> bool(abs(cosine(1.0) - 0.7390851332151607) < 1e-12)
    True
    """
    start, unravel = ravel(tree.map(plain_start, x0))

    def residual(x: Any, p: PyTree) -> Any:
        return ravel(settled_tree(f(unravel(x), p)))[0] - x

    def find(p: PyTree) -> Any:
        x = start
        for _ in range(max_iterations):
            step = without_closure(residual(x, p), "fixed_point")
            x = x + step
            if np.linalg.norm(step) <= tol * (1 + np.linalg.norm(x)):
                return x
        raise RuntimeError(f"fixed_point did not converge in {max_iterations} iterations (the last step was {step})")

    return unravel(implicit(find, residual)(params))


def implicit(find: Callable[[PyTree], Any], residual: Callable[[Any, PyTree], Any]) -> Callable[[PyTree], Any]:
    """Return ``find`` with the derivative that the equation ``residual(find(p), p) = 0`` implies."""
    solution = custom_jvp(find)
    itself = weakref.ref(solution)  # the rule is a part of it: naming it there would be a cycle

    @solution.defjvp
    def rule(primals: tuple[PyTree, ...], tangents: tuple[PyTree, ...]) -> tuple[Any, Any]:
        (p,), (p_dot,) = primals, tangents
        again = itself()
        assert again is not None  # the call whose derivative this is holds it
        x = again(p)
        matrix = jacfwd(lambda x: residual(x, p))(x)
        _, moved = jvp(residual, (x, p), (0 * x, p_dot))  # x is traced, too: f may fill np.zeros_like(x)
        return x, -np.linalg.solve(matrix, moved)

    return solution


def newton(f: Callable[[Any], Any], x: Any, tol: float, max_iterations: int) -> Any:
    """Return a root by Newton's method; a step that does not reduce the residual is halved."""
    value = f(x)
    for _ in range(max_iterations):
        try:
            step = np.linalg.solve(jacfwd(f)(x), value)
        except np.linalg.LinAlgError as error:
            raise RuntimeError(f"root did not converge: the Jacobian is singular at {x}, where f is {value}") from error
        scale = 1.0
        while scale > 1e-4 and not np.linalg.norm(new := f(x - scale * step)) <= np.linalg.norm(value):
            scale /= 2
        x, value = x - scale * step, new
        if np.linalg.norm(step) <= tol * (1 + np.linalg.norm(x)):
            return x
    raise RuntimeError(f"root did not converge in {max_iterations} iterations; the residual is {value}")


def plain_start(x: Any) -> Any:
    """Return the plain number or array of a starting point, in a dtype that has derivatives."""
    while isinstance(x, Traced):
        x = x.value
    return np.asarray(x, dtype=None if np.result_type(x).kind in "fc" else np.float64)


def without_closure(value: Any, name: str) -> Any:
    """Refuse a residual that is traced although all it was given is plain: its derivative would be lost."""
    if isinstance(value, Traced):
        raise LostDerivativeError(
            f"the function given to {name} uses a traced value that is not a part of params, so the derivative with respect "
            f"to it would be lost. Pass it in params."
        )
    return value
