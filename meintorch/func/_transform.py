"""What all transforms share: being an object that stands for a function, and taking inputs in and out of traces."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from types import MethodType
from typing import Any, Generic, ParamSpec, TypeVar

import numpy as np

from meintorch import tree
from meintorch._typing import PyTree
from meintorch.core.large import copied
from meintorch.core.shapes import dtype_of, shape_of
from meintorch.core.storage import constant, running, settled
from meintorch.core.trace import Trace, Traced, is_scalar
from meintorch.errors import InputError, LostDerivativeError, OutputError

P = ParamSpec("P")
R = TypeVar("R")


class Transformed(Generic[P, R]):
    """A function made from a function: pickles when that does, and keeps its name, docstring and signature."""

    __name__: str

    def __init__(self, f: Callable[..., Any], **options: Any) -> None:
        if not callable(f):
            raise InputError(f"{type(self).__name__.lower()} takes a function, not {f!r:.60}")
        self.f = f
        self.options = options
        self.__name__ = type(f).__name__
        functools.update_wrapper(self, f, updated=())

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        raise NotImplementedError

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    def __repr__(self) -> str:
        inner = repr(self.f) if isinstance(self.f, Transformed) else name_of(self.f)
        usual = {"check": (True,)}
        given = "".join([f", {k}={v!r}" for k, v in self.options.items() if v not in usual.get(k, (0, None, ()))])
        return f"{self._kind}({inner}{given})"

    _kind = "transformed"


def differentiable(x: Any) -> Any:
    """Return an input as a transform takes it in, None if it has no derivative.

    Integers and Python numbers become float64 (complex ones complex128); inexact arrays stay as they are.
    """
    kind = x.__class__
    if kind is np.ndarray:
        if x.dtype.kind in "fc":
            return x
        if x.dtype.kind in "iu":
            return x.astype(np.float64)
    elif kind is float or kind is int:
        return np.float64(x)
    elif isinstance(x, Traced):
        if x.dtype.kind in "fc":  # type: ignore[attr-defined]
            return settled(x)  # the caller's may be written into
        if x.dtype.kind in "iu":  # type: ignore[attr-defined]
            return x.astype(np.float64)  # type: ignore[attr-defined]
    elif isinstance(x, np.inexact):
        return x
    elif kind is complex:
        return np.complex128(x)
    elif isinstance(x, np.integer) or (isinstance(x, (int, float)) and not isinstance(x, bool)):
        return np.float64(x)
    return None


def undifferentiable(x: Any, path: str) -> InputError:
    """Make the error for an input without a derivative; ``path`` names it."""
    kind = x.__class__
    what = f"an array of dtype {x.dtype}" if hasattr(x, "dtype") else f"a {kind.__name__} ({x!r:.40})"
    if isinstance(x, np.ndarray) and kind is not np.ndarray:
        advice = f"pass a plain ndarray: np.asarray(x) of the {kind.__name__}"
    elif isinstance(x, (bool, np.bool_)) or getattr(getattr(x, "dtype", None), "kind", "") == "b":
        advice = "convert it to float if a derivative with respect to it is meant"
    else:
        advice = "keep it out of the differentiated arguments: close over it, or pass it as another argument"
        if hasattr(x, "__dict__") and not callable(x):
            advice += ". If it holds parameters, make it a dataclass, or register it with register_pytree_node"
    return InputError(f"{path} cannot be differentiated: it is {what}; {advice}.")


def name_of(f: Any) -> str:
    """Return what a function is called."""
    name: str = getattr(f, "__qualname__", None) or getattr(f, "__name__", None) or repr(f)
    return name


class Selection:
    """The arguments of a call with respect to which it is differentiated.

    Attributes
    ----------
    chosen : the arguments; values their leaves, ready to be traced; trees their structures
    """

    def __init__(
        self,
        f: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        argnums: int | Sequence[int] | None = None,
        argnames: str | Sequence[str] | None = None,
    ) -> None:
        self.args = args
        self.kwargs = kwargs
        self.argnums = 0 if argnums is None and argnames is None else argnums
        self.argnames = argnames
        self.places: list[Any] = [position_of(n, args, f) for n in as_tuple(self.argnums)]
        for keyword in as_tuple(argnames):
            if not isinstance(keyword, str):
                raise InputError(f"argnames has to be a string, or a tuple or list of strings; {keyword!r} is not one")
            if keyword not in kwargs:
                raise InputError(
                    f"argnames={keyword!r} asks for an argument that {short_name(f)} was not given by keyword. Pass it as "
                    f"{keyword}=..., or use argnums."
                )
            self.places.append(keyword)
        if len(self.places) > 1 and len(set(self.places)) < len(self.places):
            raise InputError(f"argnums={argnums}, argnames={argnames} name an argument twice")
        self.chosen = tuple([kwargs[p] if isinstance(p, str) else args[p] for p in self.places])
        self.values: list[Any] = []
        self.trees: list[tree.TreeDef] = []
        for place, arg in zip(self.places, self.chosen, strict=True):
            leaves, treedef = tree.flatten(arg)
            self.trees.append(treedef)
            if not leaves and (arg is None or callable(arg)):
                raise undifferentiable(arg, f"argument {place!r}")
            for k, x in enumerate(leaves):
                value = differentiable(x)
                if value is None:
                    raise undifferentiable(x, f"argument {place!r}{tree.paths(arg)[k]}")
                self.values.append(value)

    def call(self, f: Callable[..., Any], leaves: list[Any]) -> Any:
        """Call the function with other leaves."""
        args, kwargs = list(self.args), dict(self.kwargs)
        for place, arg in zip(self.places, split(self.trees, leaves), strict=True):
            if isinstance(place, str):
                kwargs[place] = arg
            else:
                args[place] = arg
        return f(*args, **kwargs)

    def pack(self, leaves: list[Any]) -> PyTree:
        """Arrange one result a leaf as argnums and argnames were given."""
        parts = split(self.trees, leaves)
        if self.argnums.__class__ is int and self.argnames is None:
            return parts[0]
        numbers = len(as_tuple(self.argnums))
        by_number = tuple(parts[:numbers]) if isinstance(self.argnums, Sequence) else parts[0] if numbers else None
        if self.argnames is None:
            return by_number
        named = parts[numbers:]
        by_name = named[0] if isinstance(self.argnames, str) else dict(zip(self.argnames, named, strict=True))
        return by_name if self.argnums is None else (by_number, by_name)


def as_tuple(x: Any) -> tuple[Any, ...]:
    """Return what argnums or argnames hold as a tuple."""
    if x is None:
        return ()
    alone = x.__class__ is int or isinstance(x, str) or not isinstance(x, Sequence)
    return (x,) if alone else tuple(x)


def short_name(f: Any) -> str:
    """Return what a function was called where it was defined."""
    return getattr(f, "__name__", repr(f))


def position_of(number: Any, args: tuple[Any, ...], f: Any) -> int:
    """Return a position that an entry of argnums names."""
    if number.__class__ is not int and not isinstance(number, np.integer):
        raise InputError(f"argnums has to be an integer, or a tuple or list of integers; {number!r} is not one")
    if not -len(args) <= number < len(args):
        raise InputError(
            f"argnums={number} asks for an argument that {short_name(f)} was not given: it was called with {len(args)} "
            f"positional argument{'s' if len(args) != 1 else ''}. Pass the argument by position, or use argnames."
        )
    return int(number) % len(args)


def split(trees: list[tree.TreeDef], leaves: list[Any]) -> list[PyTree]:
    """Return one tree for each differentiated argument."""
    if len(trees) == 1:
        return [trees[0].unflatten(leaves)]
    out = []
    start = 0
    for treedef in trees:
        out.append(treedef.unflatten(leaves[start : start + treedef.num_leaves]))
        start += treedef.num_leaves
    return out


def strip(x: PyTree, trace: Trace) -> PyTree:
    """Replace values that belong to an ended trace, anywhere in a tree, by what is inside."""
    return tree.map(lambda leaf: leaf.value if isinstance(leaf, Traced) and leaf._trace is trace else leaf, x)


def run(
    f: Callable[..., Any], selection: Selection, leaves: list[Any], trace: Trace, *, has_aux: bool
) -> tuple[PyTree, PyTree]:
    """Call a function on traced leaves, end the trace, and return the output and, as plain values, what comes beside it."""
    token = running.set(True)
    try:
        out = settled_tree(selection.call(f, leaves))
    except Exception as error:
        explain(error)
        raise
    finally:
        running.reset(token)
        trace.end()
    if not has_aux:
        return out, None
    out, aux = unpack(out, f)
    return out, strip(aux, trace)


def settled_tree(out: PyTree) -> PyTree:
    """Return what a function returned, with arrays that were written into as they are now."""
    if isinstance(out, (np.ndarray, np.generic)) or (isinstance(out, Traced) and not out.written):
        return out
    return tree.map(lambda x: settled(x) if isinstance(x, Traced) and x.written else x, out)


def unpack(out: Any, f: Any) -> tuple[Any, Any]:
    """Return the two parts of what a function with ``has_aux`` returned."""
    if not isinstance(out, tuple) or len(out) != 2:
        raise OutputError(f"with has_aux=True {f!r} has to return a pair (value, aux), not {type(out).__name__}")
    return out


def explain(error: Exception) -> None:
    """Add our advice where NumPy has replaced our error by one of its own."""
    cause = error.__cause__ or error.__context__
    if isinstance(cause, LostDerivativeError) and not isinstance(error, LostDerivativeError):
        error.add_note(
            "A traced value was put into a plain ndarray, which cannot hold a derivative. Begin with np.zeros_like(t) of a "
            "traced array t, or with zeros of meintorch.numpy, which can be assigned into; or build the array with np.stack, "
            "np.concatenate or np.where."
        )
        error.add_note(str(cause))


class Like:
    """The shape and dtype of an input, which is remembered without its values."""

    __slots__ = ("dtype", "shape")

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.shape = shape
        self.dtype = dtype


def finished(g: Any, owned: Any, like: Any) -> Any:
    """Return a leaf's cotangent as a result: an ndarray of the leaf's shape and dtype that nobody else holds."""
    if g is None:
        g = np.zeros(shape_of(like), dtype_of(like))
        return constant(g) if isinstance(like, Traced) else g  # the program around may write into it
    if isinstance(g, Traced):
        return np.copy(g) if is_scalar(g) else settled(g)  # type: ignore[call-overload]  # an array, if without axes
    dtype = dtype_of(like)
    if g.dtype.kind == "c" and dtype.kind != "c":
        g = g.real
    if g.__class__ is not np.ndarray or g.dtype != dtype:
        g = np.array(g, dtype=dtype)
    elif not owned:
        g = copied(g)
    return constant(g) if isinstance(like, Traced) else g
