"""Forward mode: Jacobian-vector products, computed along with the function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, overload

import numpy as np

from meintorch import tree
from meintorch._typing import PyTree
from meintorch.core.captured import Captured, Check
from meintorch.core.graph import walk
from meintorch.core.large import Reusing
from meintorch.core.shapes import dtype_of, shape_of
from meintorch.core.storage import as_running, settled
from meintorch.core.trace import Traced
from meintorch.errors import InputError
from meintorch.func._transform import Like, R, Selection, finished, run
from meintorch.func.reverse import S, check_outputs, own, vjp
from meintorch.tensor import forward_trace, reverse_trace


@overload
def jvp(
    f: Callable[..., R], primals: tuple[PyTree, ...], tangents: tuple[PyTree, ...], *, has_aux: Literal[False] = False
) -> tuple[R, Any]: ...
@overload
def jvp(
    f: Callable[..., tuple[R, S]], primals: tuple[PyTree, ...], tangents: tuple[PyTree, ...], *, has_aux: Literal[True]
) -> tuple[R, Any, S]: ...
@overload
def jvp(
    f: Callable[..., Any], primals: tuple[PyTree, ...], tangents: tuple[PyTree, ...], *, has_aux: bool = False
) -> Any: ...
def jvp(
    f: Callable[..., Any], primals: tuple[PyTree, ...], tangents: tuple[PyTree, ...], *, has_aux: bool = False
) -> Any:
    """Compute ``f(*primals)`` and its derivative in the direction ``tangents``.

    Parameters
    ----------
    f : function of arrays, or trees of them, that returns an array or a tree of them
    primals : tuple of the arguments, all of which are differentiated
    tangents : tuple of the same trees and shapes
    has_aux : bool, optional
        Whether ``f`` returns a pair ``(output, aux)``, of which only the output is differentiated.

    Returns
    -------
    output : what f returns, as plain NumPy
    tangent : of the output's tree, shapes and dtypes
    aux : only with has_aux

    Raises
    ------
    InputError
        If a primal holds what has no derivative, or a tangent does not fit its primal.

    Examples
    --------
    >>> jvp(lambda x, y: x * y, (2.0, 3.0), (1.0, 0.0))
    (np.float64(6.0), array(3.))
    """
    if not isinstance(primals, (tuple, list)) or not isinstance(tangents, (tuple, list)):
        raise InputError(
            "jvp takes its primals and tangents as tuples with one entry for each argument: jvp(f, (x,), (t,))"
        )
    primals = tuple(primals)
    selection = Selection(f, primals, {}, range(len(primals)))
    directions = tangents_like(selection.trees, selection.values, tuple(tangents))
    trace = forward_trace()
    duals = [trace.wrap(x, t) for x, t in zip(selection.values, directions, strict=True)]
    with Reusing(f):
        out, aux = run(f, selection, duals, trace, has_aux=has_aux)
    outputs, out_tree = tree.flatten(out)
    mine = [isinstance(x, Traced) and x._trace is trace for x in outputs]
    values_out = [x.value if m else x for x, m in zip(outputs, mine, strict=True)]
    check_outputs(values_out, "jvp")
    tangents_out = [
        finished(x.note if m else None, False, v) for x, m, v in zip(outputs, mine, values_out, strict=True)
    ]
    results = (out_tree.unflatten(own(values_out)), out_tree.unflatten(tangents_out))
    return (*results, aux) if has_aux else results


def tangents_like(trees: list[tree.TreeDef], values: list[Any], tangents: tuple[PyTree, ...]) -> list[Any]:
    """Return the leaves of tangents, each checked against its primal and given its dtype."""
    if len(tangents) != len(trees):
        raise InputError(f"{len(tangents)} tangents were given for {len(trees)} primals")
    leaves: list[Any] = []
    for k, (treedef, tangent) in enumerate(zip(trees, tangents, strict=True)):
        found = treedef.flatten_like(tangent, what=f"the tangent of argument {k}")
        where = [f"the tangent of argument {k}{path}" for path in tree.paths(tangent)] if len(found) > 1 else None
        for i, t in enumerate(found):
            like = values[len(leaves)]
            name = where[i] if where else f"the tangent of argument {k}"
            leaves.append(tangent_like(t, shape_of(like), dtype_of(like), name))
    return leaves


def tangent_like(t: Any, shape: tuple[int, ...], dtype: np.dtype[Any], name: str) -> Any:
    """Return one tangent in its primal's dtype; it has to have the primal's shape."""
    if not isinstance(t, Traced):
        t = np.asarray(t)
        if t.dtype.kind not in "fciu" or (t.dtype.kind == "c" and dtype.kind != "c"):
            raise InputError(f"{name} has dtype {t.dtype}; the primal has dtype {dtype}")
        t = t.astype(dtype) if t.dtype != dtype else t
        if t.ndim == 0:
            t = t[()]
    else:
        t = settled(t)
    if t.shape != shape:
        raise InputError(f"{name} has shape {t.shape}; the primal has shape {shape}")
    return t


class Pushforward:
    """The linear map from tangents of a function's arguments to the tangent of its output; made by `linearize`.

    It may be called many times, and from several threads.
    """

    def __init__(self, pullback: Any, output: PyTree) -> None:
        # The pullback is linear: tracing it once gives a graph whose own backward pass is the map forwards.
        outputs, self._out_tree = tree.flatten(output)
        self._outputs = [Like(shape_of(x), dtype_of(x)) for x in outputs]
        self._captured: Captured = pullback.captured
        trace = reverse_trace(Captured(how=False))  # what it keeps, the pullback has kept
        zeros = [trace.leaf(np.zeros(shape_of(x), dtype_of(x))) for x in outputs]
        with as_running():
            cotangents = pullback(self._out_tree.unflatten(zeros))
        trace.end()
        self._trees: list[tree.TreeDef] = []
        self._inputs: list[Any] = []
        self._roots: list[Any] = []
        for cotangent in cotangents:
            leaves, treedef = tree.flatten(cotangent)
            self._trees.append(treedef)
            for x in leaves:
                mine = isinstance(x, Traced) and x._trace is trace
                self._roots.append(x.note if mine else None)
                self._inputs.append(Like(shape_of(x), dtype_of(x)))

    def __call__(self, *tangents: PyTree) -> PyTree:
        """Return the tangent of the output, given one tangent for each argument."""
        self._captured.check()
        given = tangents_like(self._trees, self._inputs, tangents)
        pairs = [(root, t) for root, t in zip(self._roots, given, strict=True) if root is not None]
        with np.errstate(all="ignore"):
            cts, owned = walk([root for root, _ in pairs], [t for _, t in pairs], len(self._outputs))
        return self._out_tree.unflatten(
            [finished(ct, o, like) for ct, o, like in zip(cts, owned, self._outputs, strict=True)]
        )

    def __repr__(self) -> str:
        return f"<pushforward of a function with {len(self._trees)} arguments, output {self._out_tree!r}>"


@overload
def linearize(
    f: Callable[..., R], *primals: PyTree, has_aux: Literal[False] = False, check: Check = True
) -> tuple[R, Pushforward]: ...
@overload
def linearize(
    f: Callable[..., tuple[R, S]], *primals: PyTree, has_aux: Literal[True], check: Check = True
) -> tuple[R, Pushforward, S]: ...
@overload
def linearize(f: Callable[..., Any], *primals: PyTree, has_aux: bool = False, check: Check = True) -> Any: ...
def linearize(f: Callable[..., Any], *primals: PyTree, has_aux: bool = False, check: Check = True) -> Any:
    """Compute ``f(*primals)`` and the linear map from tangents to the output's tangent.

    Parameters
    ----------
    f, *primals, has_aux, check : as for `meintorch.func.vjp`

    Returns
    -------
    output : what f returns, as plain NumPy
    pushforward : function of one tangent for each primal, which returns the tangent of the output
        ``f`` is not run again, however often it is called.
    aux : only with has_aux

    Raises
    ------
    InputError
        If a primal holds what has no derivative, or a tangent given to the pushforward does not fit its primal.

    Examples
    --------
    >>> y, pushforward = linearize(np.sin, 0.0)
    >>> pushforward(2.0)
    array(2.)
    """
    output, pullback, *aux = vjp(f, *primals, has_aux=has_aux, check=check)
    return output, Pushforward(pullback, output), *aux
