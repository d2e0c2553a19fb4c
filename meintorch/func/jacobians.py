"""Jacobians, Hessians and their products, from pullbacks and pushforwards that run on all basis vectors at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from meintorch import tree
from meintorch._typing import PyTree
from meintorch.core.captured import Check
from meintorch.core.large import Reusing
from meintorch.core.shapes import dtype_of, shape_of
from meintorch.errors import InputError, OutputError
from meintorch.func._transform import Like, P, Selection, Transformed
from meintorch.func.batching import vmap
from meintorch.func.forward import Pushforward, jvp
from meintorch.func.reverse import grad, vjp, vjp_of

# Walks through the same graph: below this number their own cost is less than that of running every rule on a batch.
WALKS = 16


class Jacobian(Transformed[P, Any]):
    """A function that returns the Jacobian of another; made by `jacrev`, `jacfwd` and `jacobian`."""

    @property
    def _kind(self) -> str:  # type: ignore[override]
        return {"rev": "jacrev", "fwd": "jacfwd", None: "jacobian"}[self._mode]

    def __init__(self, f: Callable[..., Any], mode: str | None, **options: Any) -> None:
        self._mode = mode
        super().__init__(f, **options)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        """Return the Jacobian at the given arguments."""
        selection = Selection(self.f, args, kwargs, self.options["argnums"], self.options["argnames"])
        values = selection.values
        if self.options["holomorphic"] and any(dtype_of(x).kind != "c" for x in values):
            raise InputError(f"{self!r}: with holomorphic=True every input has to be complex")
        columns = self._forward if self._mode == "fwd" else self._backward
        with Reusing(self.f):
            blocks, out_tree, *aux = columns(selection)
        jacobian = out_tree.unflatten([selection.pack(row) for row in blocks])
        return (jacobian, *aux) if aux else jacobian

    def _backward(self, selection: Selection) -> Any:
        """Return the blocks by a pullback of all unit cotangents, or by its transpose where there are fewer inputs."""
        options, values = self.options, selection.values
        outputs, out_tree, pullback, *aux = vjp_of(
            self.f, selection, has_aux=options["has_aux"], check=options["check"]
        )
        self._check_outputs(outputs)
        mixed = any([dtype_of(x).kind == "c" for x in values]) and not options["holomorphic"]
        if self._mode is None and not mixed and values and entries(outputs) > entries(values):
            pushforward = Pushforward(pullback, out_tree.unflatten(outputs))
            return self._columns(pushforward, selection, WALKS), out_tree, *aux
        blocks = []
        for k, x in enumerate(outputs):
            shape = shape_of(x)

            def one(unit: Any, k: int = k) -> list[Any]:  # from this output alone: 0 times an infinite slope is not 0
                return pullback.leaves([unit if i == k else None for i in range(len(outputs))])

            if shape == ():
                row = one(np.ones((), dtype_of(x)))
            else:
                row = [block.reshape(*shape, *shape_of(block)[1:]) for block in self._on_basis(one, x, WALKS)]
            blocks.append(row)
        return blocks, out_tree, *aux

    def _forward(self, selection: Selection) -> Any:
        """Return the blocks by pushing all unit tangents forward, along with the function."""
        has_aux = self.options["has_aux"]
        found: list[Any] = []

        def g(*chosen: Any) -> Any:
            return selection.call(self.f, tree.leaves(chosen))

        def pushforward(*tangents: Any) -> Any:
            output, tangent, *aux = jvp(g, selection.chosen, tangents, has_aux=has_aux)
            outputs, out_tree = tree.flatten(output)
            found[:] = [[Like(shape_of(x), dtype_of(x)) for x in outputs], out_tree, *aux]
            return tangent

        if not self.options["holomorphic"] and any(dtype_of(x).kind == "c" for x in selection.values):
            raise InputError(
                f"{self!r}: an input is complex. Pass holomorphic=True for a holomorphic function, or differentiate with "
                f"respect to the real and imaginary parts."
            )
        blocks = self._columns(pushforward, selection, 1)
        if not selection.values:
            pushforward(*selection.chosen)
            blocks = [[] for _ in found[0]]
        outputs, out_tree, *aux = found
        self._check_outputs(outputs)
        return blocks, out_tree, *aux

    def _columns(self, pushforward: Callable[..., Any], selection: Selection, few: int) -> list[list[Any]]:
        """Return for each output the blocks of all inputs."""
        values = selection.values
        zeros = [np.zeros(shape_of(x), dtype_of(x)) for x in values]
        _, arg_tree = tree.flatten(selection.chosen)
        columns = []
        for k, x in enumerate(values):
            shape = shape_of(x)

            def one(unit: Any, k: int = k) -> list[Any]:
                return tree.leaves(pushforward(*arg_tree.unflatten([*zeros[:k], unit, *zeros[k + 1 :]])))

            if shape == ():
                column = one(np.ones((), dtype_of(x)))
            else:
                column = [np.moveaxis(b, 0, -1).reshape(*shape_of(b)[1:], *shape) for b in self._on_basis(one, x, few)]
            # As in reverse mode a block has its input's dtype; a complex output of a real input has been refused by then.
            columns.append([b if b.dtype.kind == "c" else b.astype(dtype_of(x), copy=False) for b in column])
        return [list(row) for row in zip(*columns, strict=True)]

    def _on_basis(self, linear: Callable[[Any], list[Any]], x: Any, few: int) -> list[Any]:
        """Run a linear map on all unit vectors of an array's space: a few one by one, else as many at once as chunk_size says."""
        n = math.prod(shape_of(x))
        if 0 < n <= few:
            rows = [linear(unit) for unit in unit_vectors(x, 0, n)]
            return [np.stack(blocks) for blocks in zip(*rows, strict=True)]
        step = n if self.options["chunk_size"] is None else max(1, int(self.options["chunk_size"]))
        parts = [vmap(linear)(unit_vectors(x, i, min(i + step, n))) for i in range(0, max(n, 1), max(step, 1))]
        return parts[0] if len(parts) == 1 else [np.concatenate(blocks) for blocks in zip(*parts, strict=True)]

    def _check_outputs(self, outputs: list[Any]) -> None:
        for x in outputs:
            kind = dtype_of(x).kind
            if kind == "c" and not self.options["holomorphic"]:
                raise OutputError(
                    f"{self!r}: an output is complex. Pass holomorphic=True for a holomorphic function, or take np.real and "
                    f"np.imag of it."
                )
            if kind not in "fc":
                raise OutputError(f"{self!r}: an output has dtype {dtype_of(x)}, which has no derivative")
            if kind != "c" and self.options["holomorphic"]:
                raise OutputError(f"{self!r}: with holomorphic=True every output has to be complex")


def entries(arrays: list[Any]) -> int:
    """Count the entries of several arrays."""
    return sum([math.prod(shape_of(x)) for x in arrays])


def unit_vectors(x: Any, start: int, stop: int) -> Any:
    """Return some of the unit vectors of an array's space, one along the first axis."""
    units = np.zeros((stop - start, math.prod(shape_of(x))), dtype_of(x))
    units[np.arange(stop - start), np.arange(start, stop)] = 1
    return units.reshape(stop - start, *shape_of(x))


def jacrev(
    f: Callable[P, Any],
    argnums: int | Sequence[int] | None = None,
    *,
    argnames: str | Sequence[str] | None = None,
    has_aux: bool = False,
    holomorphic: bool = False,
    chunk_size: int | None = None,
    check: Check = True,
) -> Jacobian[P]:
    """Return a function that computes the Jacobian of ``f`` in reverse mode, best where outputs are few.

    Parameters
    ----------
    f : function of arrays, or trees of them, that returns an array or a tree of them
    argnums, argnames, has_aux, check : as for `meintorch.func.grad`
    holomorphic : bool, optional
        Promise that ``f`` is holomorphic; inputs and outputs have to be complex, and the derivative is the complex one.
    chunk_size : int, optional
        Go through at most so many outputs at once, to bound memory.

    Returns
    -------
    function with the arguments of f
        It returns for each output leaf a tree like the argument, of arrays of shape ``output.shape + input.shape`` and
        the input's dtype. With ``has_aux`` a pair ``(jacobian, aux)``.

    Raises
    ------
    OutputError, InputError
        If an output or input has no derivative, or is complex without ``holomorphic``.

    Examples
    --------
    >>> jacrev(lambda x: x * x)(np.array([1.0, 2.0]))
    array([[2., 0.],
           [0., 4.]])
    """
    return Jacobian(
        f,
        "rev",
        argnums=argnums,
        argnames=argnames,
        has_aux=has_aux,
        holomorphic=holomorphic,
        chunk_size=chunk_size,
        check=check,
    )


def jacfwd(
    f: Callable[P, Any],
    argnums: int | Sequence[int] | None = None,
    *,
    argnames: str | Sequence[str] | None = None,
    has_aux: bool = False,
    holomorphic: bool = False,
    chunk_size: int | None = None,
) -> Jacobian[P]:
    """Return a function that computes the Jacobian of ``f`` in forward mode, best where inputs are few.

    Parameters
    ----------
    f, argnums, argnames, has_aux, holomorphic : as for `jacrev`; there is no ``check``, for nothing is kept
    chunk_size : int, optional
        Go through at most so many inputs at once, to bound memory.

    Returns
    -------
    function with the arguments of f
        It returns what that of `jacrev` returns.

    Raises
    ------
    OutputError, InputError
        As for `jacrev`.

    Examples
    --------
    >>> jacfwd(lambda t: np.stack([t * t, 3 * t]))(2.0)
    array([4., 3.])
    """
    return Jacobian(
        f,
        "fwd",
        argnums=argnums,
        argnames=argnames,
        has_aux=has_aux,
        holomorphic=holomorphic,
        chunk_size=chunk_size,
    )


def jacobian(
    f: Callable[P, Any],
    argnums: int | Sequence[int] | None = None,
    *,
    argnames: str | Sequence[str] | None = None,
    has_aux: bool = False,
    holomorphic: bool = False,
    chunk_size: int | None = None,
    check: Check = True,
) -> Jacobian[P]:
    """Return a function that computes the Jacobian of ``f`` in the mode that has fewer vectors to go through.

    Parameters
    ----------
    f, argnums, argnames, has_aux, holomorphic, check : as for `jacrev`
    chunk_size : int, optional
        Go through at most so many inputs or outputs at once, to bound memory.

    Returns
    -------
    function with the arguments of f
        It returns what that of `jacrev` returns.

    Raises
    ------
    OutputError, InputError
        As for `jacrev`.

    Examples
    --------
    >>> jacobian(np.sin)(np.zeros(2))
    array([[1., 0.],
           [0., 1.]])
    """
    return Jacobian(
        f,
        None,
        argnums=argnums,
        argnames=argnames,
        has_aux=has_aux,
        holomorphic=holomorphic,
        chunk_size=chunk_size,
        check=check,
    )


def hessian(
    f: Callable[P, Any],
    argnums: int | Sequence[int] | None = None,
    *,
    argnames: str | Sequence[str] | None = None,
    has_aux: bool = False,
    holomorphic: bool = False,
    chunk_size: int | None = None,
    check: Check = True,
) -> Jacobian[P]:
    """Return a function that computes the Hessian of ``f``: forward mode over reverse mode.

    Parameters
    ----------
    f, argnums, argnames, has_aux, holomorphic, chunk_size, check : as for `jacrev`

    Returns
    -------
    function with the arguments of f
        For one array argument of shape ``s`` and a scalar output an array of shape ``s + s``, of the argument's dtype; for
        trees a tree of trees: ``h[row][column]``. An output of shape ``o`` gives blocks of shape ``o + s + s``.

    Raises
    ------
    OutputError, InputError
        As for `jacrev`.

    Examples
    --------
    >>> hessian(lambda x: x[0] ** 2 * x[1])(np.array([1.0, 2.0]))
    array([[4., 2.],
           [2., 0.]])
    """
    options = {"argnums": argnums, "argnames": argnames, "has_aux": has_aux, "holomorphic": holomorphic}
    return jacfwd(jacrev(f, chunk_size=chunk_size, check=check, **options), chunk_size=chunk_size, **options)  # type: ignore[arg-type]


def hvp(f: Callable[[Any], Any], x: PyTree, v: PyTree, *, check: Check = True) -> PyTree:
    """Return the product of the Hessian of ``f`` at ``x`` with ``v``, at the cost of a few gradients.

    Parameters
    ----------
    f : function of one argument that returns a scalar
    x, v : array, or trees of the same structure and shapes
    check : bool or "full", optional
        As for `grad`.

    Returns
    -------
    array or tree like x
        Each leaf with the shape and dtype of that of ``x``.

    Raises
    ------
    OutputError
        If ``f`` does not return a real scalar.
    InputError, TreeError
        If ``v`` does not have the tree and the shapes of ``x``.

    Examples
    --------
    >>> hvp(lambda x: np.sum(x**3), np.array([1.0, 2.0]), np.array([1.0, 0.0]))
    array([6., 0.])
    """
    return jvp(grad(f, check=check), (x,), (v,))[1]


def gauss_newton_product(f: Callable[[Any], Any], x: PyTree, v: PyTree, *, check: Check = True) -> PyTree:
    """Return ``J.T @ (J @ v)`` for the Jacobian J of ``f`` at ``x``, without forming it.

    Parameters
    ----------
    f : function of one argument that returns an array, or a tree of them: the residuals
    x, v : array, or trees of the same structure and shapes
    check : bool or "full", optional
        As for `grad`.

    Returns
    -------
    array or tree like x
        Each leaf with the shape and dtype of that of ``x``.

    Raises
    ------
    InputError, TreeError
        If ``v`` does not have the tree and the shapes of ``x``.

    Examples
    --------
    >>> gauss_newton_product(lambda x: x * x, np.array([1.0, 2.0]), np.array([1.0, 1.0]))
    array([ 4., 16.])
    """
    output, pullback = vjp(f, x, check=check)
    (product,) = pullback(Pushforward(pullback, output)(v))
    return product
