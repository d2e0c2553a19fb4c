"""The functions of meintorch.numpy that are not NumPy's own: those whose arguments NumPy's protocols do not look at.

While a transform runs, those that make arrays return buffers that traced values can be assigned to
(`meintorch.core.storage.constant`); outside of transforms, and for integers and booleans, plain arrays. Those that take
lists put the traced values in them together with ``np.stack``.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from meintorch.core.memory import layout_of
from meintorch.core.primitive import registry
from meintorch.core.shapes import dtype_of, shape_of
from meintorch.core.storage import constant, running, shape_only
from meintorch.core.trace import Traced, array_of, bind, here, is_scalar, top_trace
from meintorch.errors import LostDerivativeError, MeintorchError, NoRuleError

WRAPPED: dict[str, Any] = {}


def in_place_of(fun: Any, seeing: Any) -> Any:
    """Return a function that calls one of NumPy's, or while a transform runs another that sees traced values."""

    def call(*args: Any, **kwargs: Any) -> Any:
        if not running.get():
            try:
                return fun(*args, **kwargs)
            except MeintorchError:
                pass  # it holds tensors of the object style
        return seeing(*args, **kwargs)

    return named(call, fun)


def named(wrapper: Any, fun: Any) -> Any:
    """Give what takes the place of one of NumPy's functions its name and signature."""
    functools.update_wrapper(wrapper, fun, ("__name__", "__qualname__"), ())
    wrapper.__module__ = "meintorch.numpy" + fun.__module__.removeprefix("numpy")
    wrapper.__doc__ = f"Do what `{fun.__module__}.{fun.__name__}` does, also with traced values."
    return wrapper


def replaces(fun: Any) -> Callable[[Any], Any]:
    """Decorate what takes the place of one of NumPy's functions."""

    def register(seeing: Any) -> Any:
        WRAPPED[fun.__name__] = in_place_of(fun, seeing)
        return seeing

    return register


def is_traced(*xs: Any) -> bool:
    """Tell whether there are traced values among arguments, also in lists."""
    return top_trace(xs) is not None


# ---------------------------------------------------------------- making arrays


def buffered(x: Any) -> Any:
    """Return a new array as one that takes traced values, if a transform is running."""
    if running.get() and x.__class__ is np.ndarray and x.dtype.kind in "fc":
        return constant(x)
    return x


def makes_buffers(fun: Any) -> Any:
    """Wrap a function that makes a new array."""

    def make(*args: Any, **kwargs: Any) -> Any:
        made = fun(*args, **kwargs)
        return tuple([buffered(x) for x in made]) if made.__class__ is tuple else buffered(made)

    return in_place_of(fun, make)


MAKERS: tuple[Any, ...] = (
    *(np.zeros, np.ones, np.empty, np.eye, np.identity, np.tri, np.zeros_like, np.ones_like, np.empty_like),
    *(np.linspace, np.logspace, np.geomspace),
)
WRAPPED |= {fun.__name__: makes_buffers(fun) for fun in MAKERS}


def converted(t: Any, dtype: Any, order: Any, *, copy: Any, ndmin: int = 0) -> Any:
    """Return a traced array with the dtype, the order in memory and the number of axes that are asked for."""
    for kind in (t.dtype, np.dtype(dtype or t.dtype)):
        if kind.kind not in "fciub":
            raise LostDerivativeError(
                f"{here()}: an array of dtype {kind} cannot hold traced values. Keep them in a list, or make an array of "
                f"numbers."
            )
    given = t
    if dtype is not None and t.dtype != dtype:
        t = t.astype(dtype)
    if (
        (t is given and copy)
        or is_scalar(t)
        or (order in {"C", "F"} and not layout_of(t).blank().flags[f"{order}_CONTIGUOUS"])
    ):
        t = np.copy(t, order=order or "K")
    return t[(None,) * (ndmin - t.ndim)] if t.ndim < ndmin else t


def is_new(x: Any) -> bool:
    """Tell whether NumPy has to make a new array of something: other arrays it may look at."""
    return isinstance(x, (list, tuple, int, float, complex, np.generic))


@replaces(np.array)
def array(object: Any, dtype: Any = None, *, copy: Any = True, order: Any = "K", **options: Any) -> Any:  # noqa: A002
    if is_traced(object):
        options.pop("subok", None)
        return converted(array_of(object), dtype, order, copy=copy and isinstance(object, Traced), **options)
    made = np.array(object, dtype, copy=copy, order=order, **options)
    return buffered(made) if copy or is_new(object) else made


@replaces(np.copy)
def copy(a: Any, order: Any = "K", subok: Any = False) -> Any:  # noqa: FBT002
    return array(a, order=order, subok=subok)


def converts(fun: Any, layout: str | None = None, ndmin: int = 0) -> Any:
    """Wrap a function that makes an array only of what is none."""

    def convert(a: Any, dtype: Any = None, *order: Any, **options: Any) -> Any:
        if not is_traced(a):
            made = fun(a, dtype, *order, **options)
            return buffered(made) if is_new(a) else made
        options["copy"] = options.get("copy") and isinstance(a, Traced)
        options["order"] = options.get("order", order[0] if order else layout)
        return converted(array_of(a), dtype, ndmin=ndmin, **options)

    return in_place_of(fun, convert)


WRAPPED["asarray"], WRAPPED["asanyarray"] = converts(np.asarray), converts(np.asanyarray)
WRAPPED["ascontiguousarray"] = converts(np.ascontiguousarray, "C", 1)
WRAPPED["asfortranarray"] = converts(np.asfortranarray, "F")


@replaces(np.full)
def full(shape: Any, fill_value: Any, dtype: Any = None, order: Any = "C", **options: Any) -> Any:
    if is_traced(fill_value):
        return converted(np.broadcast_to(array_of(fill_value), shape), dtype, order, copy=True, **options)
    return buffered(np.full(shape, fill_value, dtype, order, **options))


@replaces(np.full_like)
def full_like(a: Any, fill_value: Any, dtype: Any = None, order: Any = "K", **options: Any) -> Any:
    if is_traced(fill_value) and not is_traced(a):
        made = np.empty_like(a, dtype, order, **options)
        return full(made.shape, fill_value, made.dtype, "F" if made.flags.fnc else "C")
    return buffered(np.full_like(a, fill_value, dtype, order, **options))


@replaces(np.arange)
def arange(*args: Any, **options: Any) -> Any:
    return ramp(*args, **options) if is_traced(*args, *options.values()) else buffered(np.arange(*args, **options))


def ramp(start: Any, stop: Any = None, step: Any = 1, dtype: Any = None) -> Any:
    """Return `numpy.arange` of traced limits; how many numbers there are is a constant."""
    if stop is None:
        start, stop = 0, start
    natural = np.arange(*[dtype_of(x).type(1) for x in (start, stop, step)]).dtype
    i = np.arange(max(math.ceil((stop - start) / step), 0))
    first, second = array_of(start).astype(natural), array_of(start + step).astype(natural)
    numbers = np.where(i == 1, second, first + i * (second - first))  # as NumPy computes them
    return buffered(numbers if dtype is None else numbers.astype(dtype))


@replaces(np.fromiter)
def fromiter(iter: Iterable[Any], dtype: Any, count: int = -1, **options: Any) -> Any:  # noqa: A002
    items = list(itertools.islice(iter, count if count >= 0 else None))
    if not is_traced(items):
        return buffered(np.fromiter(items, dtype, count, **options))
    if len(items) < count:
        raise ValueError(f"iterator too short: Expected {count} but iterator had only {len(items)} items.")
    return converted(array_of(items), dtype, None, copy=False)


# ---------------------------------------------------------------- functions of lists


def joined(x: Any) -> Any:
    """Return a list that holds traced values as an array."""
    return array_of(x) if (x.__class__ is list or x.__class__ is tuple) and is_traced(x) else x


def joined_rows(x: Any) -> Any:
    """Return a list of arrays; those that are given as lists may hold traced values."""
    return [joined(row) for row in x] if x.__class__ is list or x.__class__ is tuple else x


def takes_lists(fun: Any, change: Callable[[Any], Any] = joined) -> Any:
    """Wrap a function so that it also takes lists that hold traced values."""

    def call(*args: Any, **kwargs: Any) -> Any:
        if top_trace(args, kwargs) is None:
            return fun(*args, **kwargs)
        return fun(*[change(x) for x in args], **{name: change(x) for name, x in kwargs.items()})

    return in_place_of(fun, call)


OF_LISTS: tuple[Any, ...] = (
    *(np.sum, np.prod, np.mean, np.average, np.std, np.var, np.median, np.percentile, np.quantile, np.ptp),
    *(np.max, np.min, np.amax, np.amin, np.argmax, np.argmin, np.sort, np.argsort, np.any, np.all),
    *(np.cumsum, np.cumprod, np.diff, np.trapezoid, np.interp, np.polyval, np.convolve, np.allclose, np.array_equal),
    *(np.dot, np.vdot, np.inner, np.outer, np.kron, np.cross, np.trace, np.diag),
    *(np.reshape, np.ravel, np.transpose, np.atleast_1d, np.atleast_2d, np.tile, np.append),
)
OF_ROWS: tuple[Any, ...] = (np.concatenate, np.stack, np.vstack, np.hstack, np.dstack, np.column_stack)
WRAPPED |= {fun.__name__: takes_lists(fun) for fun in OF_LISTS}
WRAPPED |= {fun.__name__: takes_lists(fun, joined_rows) for fun in OF_ROWS}


class Joiner:
    """`numpy.r_` or `numpy.c_`."""

    def __init__(self, plain: Any) -> None:
        self._plain = plain

    def __getitem__(self, key: Any) -> Any:
        parts = key if key.__class__ is tuple else (key,)
        if not running.get():
            try:
                return self._plain[key]
            except MeintorchError:
                pass  # it holds tensors of the object style
        if not is_traced(*parts):
            return buffered(self._plain[key])
        if any([isinstance(part, str) for part in parts]):
            raise NoRuleError(
                f"{here()}: np.r_ and np.c_ take no directives such as {parts[0]!r} with traced values. Use np.concatenate or "
                f"np.stack."
            )
        # NumPy says which dtype comes of it: Python numbers do not widen that of arrays.
        alike = [shape_only(x)[()] if isinstance(x, Traced) else x for x in map(joined, parts)]
        dtype = self._plain[tuple(alike)].dtype
        rows = [np.r_[part] if isinstance(part, slice) else array_of(part) for part in parts]
        if self._plain is np.r_:
            return np.concatenate([np.atleast_1d(x).astype(dtype) for x in rows])
        return np.concatenate([(x if x.ndim > 1 else x.reshape(-1, 1)).astype(dtype) for x in rows], axis=-1)

    def __len__(self) -> int:
        return 0


WRAPPED["r_"], WRAPPED["c_"] = Joiner(np.r_), Joiner(np.c_)

# ---------------------------------------------------------------- what else may hold traced values


@replaces(np.pad)
def pad(array: Any, pad_width: Any, mode: Any = "constant", **options: Any) -> Any:
    array = joined(array)
    if is_traced(*options.values()):
        array = array if isinstance(array, Traced) else np.asarray(array)
        options = {name: array_of(x).astype(array.dtype) if is_traced(x) else x for name, x in options.items()}
        return bind(registry[np.pad], (array, pad_width, mode), options)
    return np.pad(array, pad_width, mode, **options)


# The functions that they call may return traced values, whatever they are given.
for fun in (np.piecewise, np.apply_along_axis):
    WRAPPED[fun.__name__] = in_place_of(fun, registry[fun].definition)


class vectorize(np.vectorize):  # noqa: N801 - NumPy's name
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        fun: Any = self.pyfunc
        if fun is np._NoValue or not (running.get() or is_traced(*args, *kwargs.values())):
            return super().__call__(*args, **kwargs)
        if self.signature is not None:
            raise NoRuleError(
                f"{here()}: np.vectorize with a signature takes no traced values. Use meintorch.func.vmap, or a loop."
            )
        given: dict[Any, Any] = dict(enumerate(args)) | kwargs
        varying = {k: joined(x) for k, x in given.items() if k not in self.excluded}
        varying = {k: x if isinstance(x, Traced) else np.asarray(x, object) for k, x in varying.items()}
        shape = np.broadcast_shapes(*[shape_of(x) for x in varying.values()])
        if math.prod(shape) == 0:
            return super().__call__(*[shape_only(x) for x in args], **{k: shape_only(x) for k, x in kwargs.items()})
        columns = {k: np.ravel(np.broadcast_to(x, shape)) for k, x in varying.items()}
        results = []
        for i in range(math.prod(shape)):
            row = given | {k: column[i] for k, column in columns.items()}
            results.append(fun(*[row[k] for k in range(len(args))], **{k: row[k] for k in kwargs}))
        if results[0].__class__ is tuple:
            return tuple([self._gathered(xs, shape, n) for n, xs in enumerate(zip(*results, strict=True))])
        return self._gathered(results, shape, 0)

    def _gathered(self, results: Any, shape: Any, n: int) -> Any:
        """Return one output's values as an array, of the type asked for or else that of the first, as in NumPy."""
        ans = array_of(list(results))
        dtype = np.dtype(self.otypes[n]) if self.otypes else array_of(results[0]).dtype
        if isinstance(ans, Traced) and not self.otypes and dtype.kind not in "fc":
            raise LostDerivativeError(
                f"{here()}: np.vectorize makes all results {dtype}, as the first one is, and would lose their derivative. "
                f"Return floating-point numbers (0.0 instead of 0), or pass otypes=[float]."
            )
        return buffered(ans.astype(dtype).reshape(shape))


WRAPPED["vectorize"] = named(vectorize, np.vectorize)
