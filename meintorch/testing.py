"""check_grads: hold the derivatives of a function, or of one's own rules, against differences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from meintorch import tree
from meintorch._typing import PyTree
from meintorch.errors import InputError
from meintorch.func import grad, jvp

__all__ = ["check_grads"]

MOST = 100  # entries of an array that are looked at; of larger arrays a reproducible sample


def check_grads(
    f: Callable[..., PyTree],
    args: Sequence[PyTree],
    *,
    order: int = 2,
    modes: Sequence[str] = ("fwd", "rev"),
    atol: float | None = None,
    rtol: float | None = None,
    eps: float | None = None,
) -> None:
    """Compare the derivatives of ``f`` up to an order with central differences.

    Parameters
    ----------
    f : function of arrays, or trees of them, that returns an array or a tree of them
    args : sequence of its arguments, all of which are differentiated
    order : int, optional
        The highest derivative to check; each is held against differences of the one before it.
    modes : sequence of "fwd" and "rev", optional
        Which modes to check, in every combination at higher orders.
    atol, rtol : float, optional
        Tolerances; the default suits the arguments' precision.
    eps : float, optional
        The step of the differences.

    Raises
    ------
    AssertionError
        If a derivative is off: it says in which mode and order, for which argument and entry, and both numbers.
    InputError
        If ``args`` is not a sequence of arguments: one argument is written ``(x,)``.

    Notes
    -----
    The outputs are combined into one real number with random weights. For complex arguments real and imaginary parts are
    changed in turn, and the gradient is df/dx - i df/dy.

    Examples
    --------
    >>> check_grads(np.tanh, (np.array([0.1, -0.7]),), order=3)
    """
    if not isinstance(args, (tuple, list)):
        raise InputError(f"check_grads takes the arguments of f in a tuple, such as (x,), not {args!r:.60}")
    args = tuple(args)
    leaves, treedef = tree.flatten(args)
    arrays = [x if hasattr(x, "dtype") else np.asarray(x, np.result_type(type(x), np.float64)) for x in leaves]
    single = any(x.dtype in (np.float32, np.complex64) for x in arrays)
    eps = (1e-3 if single else 1e-5) if eps is None else eps
    atol = (2e-2 if single else 1e-6) if atol is None else atol
    rtol = (2e-2 if single else 1e-5) if rtol is None else rtol

    def loss(*xs: Any) -> Any:
        return weigh(f(*treedef.unflatten(xs)))

    _check(loss, arrays, tree.paths(args), order, tuple(modes), atol, rtol, eps, "")


def weigh(out: PyTree) -> Any:
    """Combine all outputs into one real number, with reproducible random weights."""
    total: Any = 0.0
    for k, x in enumerate(tree.leaves(out)):
        if np.result_type(x).kind not in "fc":
            continue
        rng = np.random.default_rng(k)
        parts = (np.real(x), np.imag(x)) if np.iscomplexobj(x) else (x,)
        for part in parts:
            weights = rng.normal(size=np.shape(part))
            total = total + np.sum(part * (weights.astype(part.dtype) if hasattr(part, "dtype") else weights))
    return total


def _check(
    loss: Callable[..., Any],
    arrays: list[Any],
    paths: list[str],
    order: int,
    modes: tuple[str, ...],
    atol: float,
    rtol: float,
    eps: float,
    route: str,
) -> None:
    if order < 1:
        return
    entries = [(k, index) for k, x in enumerate(arrays) for index in sample(np.shape(x))]
    wanted = [difference(loss, arrays, k, index, eps) for k, index in entries]
    numbers = tuple(range(len(arrays)))
    for mode in modes:
        name = {"rev": "reverse mode", "fwd": "forward mode"}[mode] + (f" over {route}" if route else "")
        slopes: Callable[..., Any]
        if mode == "rev":
            gradients = grad(loss, argnums=numbers)(*arrays)
            got = [gradients[k][index] for k, index in entries]

            def slopes(*xs: Any) -> Any:
                return weigh(list(grad(loss, argnums=numbers)(*xs)))
        else:
            got = [directional(loss, arrays, k, index) for k, index in entries]
            rng = np.random.default_rng(7)
            direction = [rng.normal(size=np.shape(x)).astype(x.dtype) for x in arrays]

            def slopes(*xs: Any, direction: list[Any] = direction) -> Any:
                return jvp(loss, xs, tuple(direction))[1]

        for (k, index), g, w in zip(entries, got, wanted, strict=True):
            if not abs(g - w) <= atol + rtol * abs(w):
                place = f"argument {paths[k][1:].replace(']', '', 1)}" + (f", entry {list(index)}" if index else "")
                raise AssertionError(
                    f"{name} is wrong for {place}: it gives {g}, and differences give {w} (off by {abs(g - w):.3g}; "
                    f"allowed are {atol + rtol * abs(w):.3g})"
                )
        _check(slopes, arrays, paths, order - 1, modes, atol * 10, rtol * 10, eps * 3, name)


def sample(shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Return the indices of an array to look at."""
    every = list(np.ndindex(*shape))
    if len(every) <= MOST:
        return every
    return [every[i] for i in np.random.default_rng(0).choice(len(every), MOST, replace=False)]


def difference(loss: Callable[..., Any], arrays: list[Any], k: int, index: tuple[int, ...], eps: float) -> Any:
    """Return the derivative by one entry: central differences of two steps, extrapolated."""

    def slope(unit: complex, step: float) -> float:
        ends = []
        for sign in (1, -1):
            changed = [np.array(x) for x in arrays]
            changed[k][index] += sign * step * unit
            ends.append(float(loss(*changed)))
        return (ends[0] - ends[1]) / (2 * step)

    def extrapolated(unit: complex) -> float:
        return (4 * slope(unit, eps) - slope(unit, 2 * eps)) / 3

    if arrays[k].dtype.kind == "c":
        return extrapolated(1.0) - 1j * extrapolated(1j)
    return extrapolated(1.0)


def directional(loss: Callable[..., Any], arrays: list[Any], k: int, index: tuple[int, ...]) -> Any:
    """Return the derivative by one entry in forward mode."""

    def along(unit: complex) -> Any:
        tangents = [np.zeros(np.shape(x), x.dtype) for x in arrays]
        tangents[k][index] = unit
        return jvp(loss, tuple(arrays), tuple(tangents))[1]

    return along(1.0) - 1j * along(1j) if arrays[k].dtype.kind == "c" else along(1.0)
