"""Reverse mode: gradients and vector-Jacobian products, by one walk backwards over the graph of a call."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar, overload

import numpy as np

from meintorch import tree
from meintorch._typing import PyTree
from meintorch.core.batching import entries_batch
from meintorch.core.captured import Captured, Check, origin_of
from meintorch.core.dead import DeadTrace, any_entry, has_nan, report_nan
from meintorch.core.graph import Node, Quietly, walk
from meintorch.core.large import Memory, Reusing, copied, memory_now
from meintorch.core.memory import clone
from meintorch.core.primitive import constant, registry
from meintorch.core.shapes import dtype_of, shape_of
from meintorch.core.storage import as_running, settled
from meintorch.core.trace import Traced, bind
from meintorch.errors import InputError, OutputError
from meintorch.func._transform import (
    Like,
    P,
    R,
    Selection,
    Transformed,
    finished,
    run,
    split,
)
from meintorch.tensor import reverse_trace

S = TypeVar("S")


class ValueAndGrad(Transformed[P, R]):
    """A function that returns the value and the gradient of another; made by `value_and_grad`."""

    _kind = "value_and_grad"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Return the value and the gradient at the given arguments."""
        return self._value_and_grad(args, kwargs)  # type: ignore[no-any-return]

    def _value_and_grad(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        has_aux = self.options["has_aux"]
        selection = Selection(self.f, args, kwargs, self.options["argnums"], self.options["argnames"])
        values = selection.values
        holomorphic = self.options["holomorphic"]
        if holomorphic and any([dtype_of(x).kind != "c" for x in values]):
            raise InputError(f"{self!r}: with holomorphic=True every input has to be complex")
        trace = reverse_trace(Captured(origin_of(self.f), self.options["check"]))
        with Reusing(self.f):
            leaves = [trace.leaf(x) for x in values]
            out, aux = run(self.f, selection, leaves, trace, has_aux=has_aux)
            if isinstance(out, Traced) and out._trace is trace:
                root: tuple[Node, ...] = (out.note,)
                out = out.value
            else:
                root = ()
            check_scalar(out, self, holomorphic=holomorphic)
            cts, owned = pull_back(root, (dtype_of(out).type(1),) * len(root), len(values), trace.captured, out)
        gradient = selection.pack([finished(g, o, x) for g, o, x in zip(cts, owned, values, strict=True)])
        return ((out, aux) if has_aux else out), gradient


class Grad(ValueAndGrad[P, R]):
    """A function that returns the gradient of another; made by `grad`."""

    _kind = "grad"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Return the gradient at the given arguments."""
        value, gradient = self._value_and_grad(args, kwargs)
        return (gradient, value[1]) if self.options["has_aux"] else gradient  # type: ignore[return-value]


def grad(
    f: Callable[P, Any],
    argnums: int | Sequence[int] | None = None,
    *,
    argnames: str | Sequence[str] | None = None,
    has_aux: bool = False,
    holomorphic: bool = False,
    check: Check = True,
) -> Grad[P, Any]:
    """Return a function that computes the gradient of ``f``.

    Parameters
    ----------
    f : function that returns a scalar (shape ())
    argnums : int or sequence of int, optional
        The positional arguments to differentiate with respect to, the first if nothing is said; negative numbers count
        from the end. Each may be a number, an array, or a tree of them (list, tuple, namedtuple, dict, dataclass).
    argnames : str or sequence of str, optional
        Keyword arguments to differentiate with respect to, instead of positional ones or beside them.
    has_aux : bool, optional
        Whether ``f`` returns a pair ``(value, aux)``, of which only the value is differentiated.
    holomorphic : bool, optional
        Promise that ``f`` is holomorphic: inputs and output have to be complex, and the result is the complex derivative.
    check : bool or "full", optional
        How to find out that a plain array that ``f`` uses was written to before the backward pass, which raises an error.
        It concerns arrays of more than 65,536 entries: smaller ones are kept by value, up to 8 MB in all (what is beyond is
        compared, always). Of large arrays all entries are compared the first two times that ``f`` is differentiated, then
        256 of them. "full" compares all entries always, False none, and keeps by value up to 4,096 entries only: for
        programs that are known to leave their arrays alone.

    Returns
    -------
    function with the arguments of f
        It returns the gradient, a tree like the argument: an ndarray for each leaf, with the leaf's shape and dtype
        (0-d for a number; float64 for Python numbers and integers). A tuple of gradients if ``argnums`` is a sequence, a
        dict of them if ``argnames`` is one, and a pair of both if both are given. With ``has_aux`` a pair
        ``(gradient, aux)``.

    Raises
    ------
    OutputError
        If ``f`` does not return a real scalar.
    InputError
        If an argument to differentiate is missing or holds what has no derivative (bool, string, object).
    InPlaceError
        If a write cannot be followed, or an array that the backward pass needs was written to.

    Notes
    -----
    For a complex argument z = x + iy the gradient is df/dx - i df/dy.

    Examples
    --------
    >>> grad(lambda x: x * x + x)(3.0)
    array(7.)
    """
    return Grad(f, argnums=argnums, argnames=argnames, has_aux=has_aux, holomorphic=holomorphic, check=check)


def value_and_grad(
    f: Callable[P, R],
    argnums: int | Sequence[int] | None = None,
    *,
    argnames: str | Sequence[str] | None = None,
    has_aux: bool = False,
    holomorphic: bool = False,
    check: Check = True,
) -> ValueAndGrad[P, tuple[R, Any]]:
    """Return a function that computes the value of ``f`` and its gradient, at the cost of one gradient.

    Parameters
    ----------
    f, argnums, argnames, has_aux, holomorphic, check : as for `grad`

    Returns
    -------
    function with the arguments of f
        It returns ``(value, gradient)``, with ``has_aux`` ``((value, aux), gradient)``. The value equals that of ``f``
        bit for bit; the gradient has the shapes and dtypes of the arguments.

    Raises
    ------
    OutputError, InputError, InPlaceError
        As for `grad`.

    Examples
    --------
    >>> value_and_grad(np.sum)(np.array([1.0, 2.0]))
    (np.float64(3.0), array([1., 1.]))
    """
    return ValueAndGrad(f, argnums=argnums, argnames=argnames, has_aux=has_aux, holomorphic=holomorphic, check=check)


def pull_back(
    roots: Sequence[Node], seeds: Sequence[Any], leaves: int, captured: Captured, value: Any = None
) -> tuple[list[Any], Any]:
    """Walk back; if NaN comes out, walk again to see whether it comes from branches that were not taken.

    If it does not, warn, except under an outer trace, or where the ``value`` is NaN already.
    """
    captured.check()
    with Quietly():
        cts, owned = walk(roots, seeds, leaves)
        if not any([has_nan(ct) for ct in cts]):
            return cts, owned
    trace = DeadTrace()
    masked = [trace.living(seed) for seed in seeds]
    # A rule that cannot run on masks leaves the first result, which is honest.
    with contextlib.suppress(Exception), as_running(), Quietly():
        cts, owned = walk(roots, masked, leaves)
        cts, owned, seeds = [trace.lower(ct) for ct in cts], bytearray(leaves), masked
    if not any([isinstance(ct, Traced) for ct in cts]) and any_entry(np.isnan, cts) and not any_entry(np.isnan, value):
        report_nan(roots, seeds, range(max([root[0] for root in roots]), leaves - 1, -1))
    return cts, owned


class Pullback:
    """The linear map from cotangents of a function's output to cotangents of its arguments; made by `vjp`.

    It may be called many times, and from several threads.
    """

    def __init__(
        self,
        roots: list[Node | None],
        outputs: list[Any],
        out_tree: tree.TreeDef,
        inputs: list[Any],
        trees: list[tree.TreeDef],
        captured: Captured,
        memory: Memory | None,
    ) -> None:
        self._roots = roots
        self._memory = memory
        self.captured = captured
        self._outputs = [Like(shape_of(x), dtype_of(x)) for x in outputs]
        self._out_tree = out_tree
        self._inputs = [Like(shape_of(x), dtype_of(x)) for x in inputs]
        self._trees = trees

    def __call__(self, cotangent: PyTree) -> tuple[PyTree, ...]:
        """Return one cotangent for each argument, given one like the output.

        Raises
        ------
        OutputError
            If the cotangent's tree, shape or dtype is not that of the output.
        """
        with Reusing(None, self._memory):
            leaves = self.leaves(self._out_tree.flatten_like(cotangent, what="the cotangent"))
        return tuple(split(self._trees, leaves))

    def leaves(self, given: list[Any]) -> list[Any]:
        """Return the leaves of the arguments' cotangents, given those of the output's; None for an output that is left out."""
        roots, seeds = [], []
        for root, ct, like in zip(self._roots, given, self._outputs, strict=True):
            if ct is None:
                continue
            seed = as_cotangent(ct, like.shape, like.dtype)
            if root is not None:
                roots.append(root)
                seeds.append(seed)
        cts, owned = pull_back(roots, seeds, len(self._inputs), self.captured)
        return [finished(g, o, x) for g, o, x in zip(cts, owned, self._inputs, strict=True)]

    def __repr__(self) -> str:
        return f"<pullback of a function with {len(self._trees)} arguments, output {self._out_tree!r}>"


@overload
def vjp(
    f: Callable[..., R], *primals: PyTree, has_aux: Literal[False] = False, check: Check = True
) -> tuple[R, Pullback]: ...
@overload
def vjp(
    f: Callable[..., tuple[R, S]], *primals: PyTree, has_aux: Literal[True], check: Check = True
) -> tuple[R, Pullback, S]: ...
@overload
def vjp(f: Callable[..., Any], *primals: PyTree, has_aux: bool = False, check: Check = True) -> Any: ...
def vjp(f: Callable[..., Any], *primals: PyTree, has_aux: bool = False, check: Check = True) -> Any:
    """Compute ``f(*primals)`` and the map from cotangents of the output to cotangents of the primals.

    Parameters
    ----------
    f : function of arrays, or trees of them, that returns an array or a tree of them
    *primals : the arguments, all of which are differentiated
    has_aux : bool, optional
        Whether ``f`` returns a pair ``(output, aux)``, of which only the output is differentiated.
    check : bool or "full", optional
        As for `grad`; the arrays are compared at each call of the pullback.

    Returns
    -------
    output : what f returns, as plain NumPy
    pullback : function of one cotangent like the output
        It returns a tuple with one cotangent for each primal, of the primal's tree, shapes and dtypes.
    aux : only with has_aux

    Raises
    ------
    InputError
        If a primal holds what has no derivative.
    OutputError
        If an output, or a cotangent given to the pullback, does not fit.

    Examples
    --------
    >>> y, pullback = vjp(np.sin, np.array([0.0, np.pi]))
    >>> pullback(np.ones(2))
    (array([ 1., -1.]),)
    """
    selection = Selection(f, primals, {}, range(len(primals)))
    with Reusing(f):
        outputs, out_tree, pullback, *aux = vjp_of(f, selection, has_aux=has_aux, check=check)
    return out_tree.unflatten(own(outputs)), pullback, *aux


def vjp_of(
    f: Callable[..., Any], selection: Selection, *, has_aux: bool, check: Check
) -> tuple[list[Any], tree.TreeDef, Pullback, *tuple[Any, ...]]:
    """Do what `vjp` does for chosen arguments; return the leaves of the output, which the graph may keep, and its tree."""
    values = [clone(x) if x.__class__ is np.ndarray else x for x in selection.values]  # the pullback outlives this call
    trace = reverse_trace(Captured(origin_of(f), check))
    leaves = [trace.leaf(x) for x in values]
    out, aux = run(f, selection, leaves, trace, has_aux=has_aux)
    outputs, out_tree = tree.flatten(out)
    roots = [x.note if isinstance(x, Traced) and x._trace is trace else None for x in outputs]
    outputs = [x if root is None else x.value for x, root in zip(outputs, roots, strict=True)]
    check_outputs(outputs, "vjp")
    pullback = Pullback(roots, outputs, out_tree, values, selection.trees, trace.captured, memory_now())
    return (outputs, out_tree, pullback, tree.map(own, aux)) if has_aux else (outputs, out_tree, pullback)


def own(x: Any) -> Any:
    """Return copies of arrays that a graph may keep, alone or in a list, for the user to change as they please."""
    if x.__class__ is list:
        return [own(e) for e in x]
    return copied(x) if isinstance(x, np.ndarray) else settled(x)


def check_outputs(outputs: list[Any], name: str) -> None:
    """Refuse outputs that are no numbers."""
    for x in outputs:
        kind = getattr(getattr(x, "dtype", None), "kind", "O")
        if kind not in "fciub" and not isinstance(x, (int, float, complex)):
            what = f"an array of dtype {x.dtype}" if hasattr(x, "dtype") else f"a {type(x).__name__}"
            raise OutputError(f"the function given to {name} returned {what}: outputs must be arrays or numbers")


def as_cotangent(ct: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    """Return a cotangent in the output's dtype; its shape has to be that of the output."""
    if not isinstance(ct, Traced):
        ct = np.asarray(ct)
        if ct.dtype.kind not in "fciu" or (ct.dtype.kind == "c" and dtype.kind != "c"):
            raise OutputError(f"a cotangent of dtype {ct.dtype} was given for an output of dtype {dtype}")
        if ct.dtype != dtype and dtype.kind in "fc":
            ct = ct.astype(dtype)
    else:
        ct = settled(ct)
    if ct.shape != shape:
        raise OutputError(f"a cotangent of shape {ct.shape} was given for an output of shape {shape}")
    return ct


def check_scalar(out: Any, transform: Transformed[Any, Any], *, holomorphic: bool) -> None:
    """Refuse an output that has no gradient, and say what to do."""
    dtype = getattr(out, "dtype", None)
    if dtype is None and isinstance(out, (int, float)) and not isinstance(out, bool):
        return
    if dtype is not None and shape_of(out) == () and dtype.kind == ("c" if holomorphic else "f"):
        return
    name = repr(transform)
    if dtype is None:
        raise OutputError(
            f"{name}: the function returned {'nothing' if out is None else f'a {type(out).__name__}'}; a gradient needs a "
            f"scalar output. To return more than the value, return (value, aux) and pass has_aux=True."
        )
    if shape_of(out) != ():
        raise OutputError(
            f"{name}: the function returned an array of shape {shape_of(out)}; a gradient needs a scalar output (shape ()). "
            f"Reduce it with np.sum or np.mean{' or index it with [0]' if shape_of(out) == (1,) else ''}, or take all "
            f"derivatives with jacrev, or a weighted combination of them with vjp."
        )
    if dtype.kind == "c" and not holomorphic:
        raise OutputError(
            f"{name}: the function returned a complex number; a gradient needs a real output. Take np.real(...), "
            f"np.imag(...) or np.abs(...) of it, pass holomorphic=True if the function is holomorphic, or use vjp."
        )
    if holomorphic and dtype.kind != "c":
        raise OutputError(f"{name}: with holomorphic=True the output has to be complex; it has dtype {dtype}.")
    if dtype.kind not in "fc":
        raise OutputError(f"{name}: the function returned a scalar of dtype {dtype}; a gradient needs a real one.")


def stop_gradient(x: S) -> S:
    """Return the values of ``x``, a tree of arrays, as constants: plain NumPy without a derivative.

    Parameters
    ----------
    x : array or number, traced or not, or a tree of them

    Returns
    -------
    tree like x
        Each leaf has the shape and dtype that it had; an array is a copy. Every transform around takes it as a constant.

    Examples
    --------
    >>> grad(lambda x: x * stop_gradient(x))(3.0)
    array(3.)
    """
    stopped: S = tree.map(_stop, x)
    return stopped


def _stop(x: Any) -> Any:
    if isinstance(x, Traced):
        return bind(registry[_stop], (x,), {})
    return clone(x) if isinstance(x, np.ndarray) else x


constant(_stop, batch=entries_batch)
