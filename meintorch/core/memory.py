"""Memory: what shares it, how arrays lie in it, and copies that lie like the original.

A trace hands `clone` and `layout_of` down like any other function.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from meintorch._typing import Shape
from meintorch.core.large import copied, zeros
from meintorch.core.primitive import linear, registry, structural

ndarray = np.ndarray


def bottom(x: Any) -> Any:
    """Return the plain array or scalar inside of a value that may be traced by several levels."""
    while hasattr(x, "_trace"):
        x = x.value
    return x


def memory_of(x: Any) -> Any:
    """Return what owns the memory of an array: the same object for all views of it."""
    x = bottom(x)
    while True:
        base = getattr(x, "base", None)  # as_strided puts an object that is no array in between
        if base is None:
            return x
        x = base


# Of an array's ``flags.num``: it may be written into; NumPy warns of that, as of what np.broadcast_arrays returns, and
# already where ``flags.writeable`` is asked.
WRITEABLE, WARNS = 1 << 10, 1 << 31


def is_writeable(x: Any) -> bool:
    """Tell whether a plain array may be written into without a warning."""
    return bool(x.flags.num & (WRITEABLE | WARNS) == WRITEABLE)


def overlaps(x: Any) -> bool:
    """Tell whether entries of a plain array may share memory, as in windows and in what was broadcast."""
    if x.flags.forc or x.size == 0:
        return False
    reach = x.itemsize
    for stride, n in sorted([(abs(stride), n) for stride, n in zip(x.strides, x.shape, strict=True) if n > 1]):
        if stride < reach:
            return True
        reach += stride * (n - 1)
    return False


# The way from an array to one of its views: None, or the way to the view before with the last step, a function.
Path: TypeAlias = Any


def steps_of(path: Path) -> list[Any]:
    """Return the steps of a path, first to last."""
    steps: list[Any] = []
    while path is not None:
        path, step = path
        steps.append(step)
    return steps[::-1]


def through(path: Path, x: Any) -> Any:
    """Return the view of ``x`` at the end of a path."""
    for step in steps_of(path):
        x = step(x)
    return x


class Layout:
    """How the entries of an array lie in memory. A copy laid out alike has views where the array has them."""

    __slots__ = ("_offset", "_span", "_steps", "dtype", "shape")

    def __init__(self, x: Any) -> None:
        self.shape: Shape = x.shape
        self.dtype = x.dtype
        # The gaps that some strides leave are narrowed: what matters is only which axes lie end to end.
        steps = [0] * x.ndim  # in entries
        before, span = x.itemsize, 1
        for axis in sorted(range(x.ndim), key=lambda a: (abs(x.strides[a]), -a)):
            n, stride = x.shape[axis], abs(x.strides[axis])
            if n == 1 or x.size == 0:
                continue
            step = span if stride == before else span + 1
            steps[axis] = step if x.strides[axis] >= 0 else -step
            before, span = stride * n, step * n
        self._steps = steps
        self._span = span
        self._offset = -sum([s * (n - 1) for s, n in zip(steps, x.shape, strict=True) if s < 0])

    def blank(self, size: int | None = None, dtype: Any = None) -> Any:
        """Return zeros laid out like this; ``size`` of them, end to end, if given."""
        dtype = np.dtype(dtype or self.dtype)
        lead, steps = ((), ()) if size is None else ((size,), (self._span,))
        memory = zeros((self._span * (1 if size is None else size),), dtype)
        strides = [s * dtype.itemsize for s in (*steps, *self._steps)]
        return ndarray((*lead, *self.shape), dtype, memory, self._offset * dtype.itemsize, strides)

    def fits(self, x: Any) -> bool:
        """Tell whether a plain array is laid out like this."""
        if x.shape != self.shape or x.dtype != self.dtype:
            return False
        size = x.itemsize
        return x.size == 0 or all(
            [n == 1 or s == t * size for n, s, t in zip(x.shape, x.strides, self._steps, strict=True)]
        )


def layout_of(x: Any) -> Layout:
    """Return how an array's entries lie in memory; of a batch, those of one example."""
    if hasattr(x, "_trace"):
        layout: Layout = x._trace.process(registry[layout_of], (x,), {})
        return layout
    return Layout(np.asarray(x))


def clone(x: Any) -> Any:
    """Return a copy of an array, laid out in memory like it."""
    if hasattr(x, "_trace"):
        return x._trace.process(registry[clone], (x,), {})
    if not isinstance(x, ndarray):
        return x
    if x.__class__ is ndarray and x.flags.c_contiguous:
        return copied(x)
    copy = Layout(x).blank()
    copy[...] = x
    return copy


def multiplied(x: Any, y: Any) -> Any:
    """Return what ``x *= y`` makes of a buffer of our own: complex numbers NumPy may round in another way than ``x * y``."""
    if not isinstance(x, ndarray):
        return x * y
    before = x.copy()
    x *= y
    ans = x.copy()
    x[...] = before
    return ans


structural(layout_of)
linear(clone, dead="any", x=lambda g: g, batch=lambda call: clone_batch(call.args[0]))


def clone_batch(x: Any) -> Any:
    """Copy a batch; the examples come to lie end to end, each laid out as it was."""
    if x.shape[0] == 0 or hasattr(x, "_trace"):
        return clone(x)
    copy = Layout(x[0, ...]).blank(x.shape[0])
    copy[...] = x
    return copy
