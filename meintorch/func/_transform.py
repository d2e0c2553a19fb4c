"""What all transforms share: being an object that stands for a function, and taking inputs in and out of traces."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from types import MethodType
from typing import Any, Generic

import numpy as np
from typing_extensions import ParamSpec, TypeVar

from meintorch import tree
from meintorch._typing import PyTree
from meintorch.core.shapes import dtype_of, shape_of
from meintorch.core.trace import Trace, Traced
from meintorch.errors import InputError, LostDerivativeError

P = ParamSpec("P")
R = TypeVar("R")


class Transformed(Generic[P, R]):
    """A function made from a function: pickles when that does, and keeps its name, docstring and signature."""

    def __init__(self, f: Callable[..., Any], **options: Any) -> None:
        if not callable(f):
            raise InputError(f"{type(self).__name__.lower()} takes a function, not {f!r:.60}")
        self.f = f
        self.options = options
        functools.update_wrapper(self, f, updated=())

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        raise NotImplementedError

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    def __repr__(self) -> str:
        inner = repr(self.f) if isinstance(self.f, Transformed) else getattr(self.f, "__qualname__", repr(self.f))
        given = "".join([f", {k}={v!r}" for k, v in self.options.items() if v not in (0, False, None) or v is True])
        return f"{self._kind}({inner}{given})"

    _kind = "transformed"


def pick_arguments(f: Any, args: tuple[Any, ...], argnums: int | Sequence[int]) -> tuple[tuple[int, ...], bool]:
    """Return the positions that ``argnums`` names, and whether it named just one."""
    single = not isinstance(argnums, Sequence)
    numbers: tuple[Any, ...] = tuple(argnums) if isinstance(argnums, Sequence) else (argnums,)
    positions = []
    for number in numbers:
        if not -len(args) <= number < len(args):
            name = getattr(f, "__name__", repr(f))
            raise InputError(
                f"argnums={number} asks for an argument that {name} was not given: it was called with {len(args)} "
                f"positional argument{'s' if len(args) != 1 else ''}. Pass the argument by position, or change argnums."
            )
        positions.append(int(number) % len(args))
    if len(set(positions)) < len(positions):
        raise InputError(f"argnums={argnums} names an argument twice")
    return tuple(positions), single


def differentiable(x: Any, path: Callable[[], str]) -> Any:
    """Return an input as a transform takes it in; ``path`` names it in errors.

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
            return x
        if x.dtype.kind in "iu":  # type: ignore[attr-defined]
            return x.astype(np.float64)  # type: ignore[attr-defined]
    elif isinstance(x, np.inexact):
        return x
    elif kind is complex:
        return np.complex128(x)
    elif isinstance(x, np.integer) or (isinstance(x, (int, float)) and not isinstance(x, bool)):
        return np.float64(x)
    what = f"an array of dtype {x.dtype}" if hasattr(x, "dtype") else f"a {kind.__name__} ({x!r:.40})"
    if isinstance(x, np.ndarray) and kind is not np.ndarray:
        advice = f"pass a plain ndarray: np.asarray(x) of the {kind.__name__}"
    elif isinstance(x, (bool, np.bool_)) or getattr(getattr(x, "dtype", None), "kind", "") == "b":
        advice = "convert it to float if a derivative with respect to it is meant"
    else:
        advice = "keep it out of the differentiated arguments: close over it, or pass it as another argument"
    raise InputError(f"{path()} cannot be differentiated: it is {what}; {advice}.")


def take_in(args: tuple[Any, ...], positions: tuple[int, ...]) -> tuple[list[Any], list[tree.TreeDef]]:
    """Return the leaves of the differentiated arguments, ready to be traced, and one tree a position."""
    leaves: list[Any] = []
    trees = []
    for position in positions:
        arg = args[position]
        found, treedef = tree.flatten(arg)
        trees.append(treedef)
        if not found and (arg is None or callable(arg)):
            differentiable(arg, lambda p=position: f"argument {p}")  # type: ignore[misc]
        for k, x in enumerate(found):
            leaves.append(differentiable(x, lambda p=position, k=k: leaf_path(args[p], p, k)))  # type: ignore[misc]
    return leaves, trees


def leaf_path(arg: PyTree, position: int, k: int) -> str:
    """Spell where in the arguments a leaf lies."""
    return f"argument {position}{tree.paths(arg)[k]}"


def put_back(args: tuple[Any, ...], positions: tuple[int, ...], trees: list[tree.TreeDef], leaves: list[Any]) -> list[Any]:
    """Return the arguments with new leaves in the differentiated positions."""
    out = list(args)
    start = 0
    for position, treedef in zip(positions, trees, strict=True):
        out[position] = treedef.unflatten(leaves[start : start + treedef.num_leaves])
        start += treedef.num_leaves
    return out


def split(trees: list[tree.TreeDef], leaves: list[Any]) -> list[PyTree]:
    """Return one tree for each differentiated argument."""
    out = []
    start = 0
    for treedef in trees:
        out.append(treedef.unflatten(leaves[start : start + treedef.num_leaves]))
        start += treedef.num_leaves
    return out


def strip(x: PyTree, trace: Trace) -> PyTree:
    """Replace values that belong to an ended trace, anywhere in a tree, by what is inside."""
    return tree.map(lambda leaf: leaf.value if isinstance(leaf, Traced) and leaf._trace is trace else leaf, x)


def explain(error: Exception) -> None:
    """Add our advice where NumPy has replaced our error by one of its own."""
    cause = error.__cause__ or error.__context__
    if isinstance(cause, LostDerivativeError) and not isinstance(error, LostDerivativeError):
        error.add_note(
            "A traced value was put into a plain ndarray, which cannot hold a derivative. Build the array with np.stack, "
            "np.concatenate or np.where instead of assigning into it."
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
        return np.zeros(shape_of(like), dtype_of(like))
    if isinstance(g, Traced):
        return g
    dtype = dtype_of(like)
    if g.__class__ is np.ndarray and owned and g.dtype == dtype:
        return g
    if g.dtype.kind == "c" and dtype.kind != "c":
        g = g.real
    return np.array(g, dtype=dtype)
