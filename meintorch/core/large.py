"""What large arrays are spared: fresh memory, which costs page faults, and temporary arrays of their size.

Where a user's function is differentiated again and again, large results are put into arrays that were made for it before and
that nobody else holds, which the number of references tells: each view, node and variable is one, of other threads, too.

The rule of an elementwise operation is run block by block, so that what it computes in between stays in the cache.
"""

from __future__ import annotations

import functools
import math
import operator
import sys
from collections import deque
from collections.abc import Callable, Sequence
from contextvars import ContextVar, Token
from types import FunctionType
from typing import Any, Self
from weakref import WeakKeyDictionary, getweakrefcount

import numpy as np

from meintorch._typing import Shape

ndarray = np.ndarray
DTYPES = {np.dtype(np.float64), np.dtype(np.float32)}
LARGE = 8192  # entries
BLOCK = 16384  # entries
MOST = 64 << 20  # bytes that are remembered
NEAR = 1 << 30  # bytes; what is further away is not in the same part of memory
FIRST = 2  # times that a function is differentiated without
CHECKS = (
    16  # of so many times in which the arrays took as much, one looks where they lie, which takes a microsecond each
)
AROUND = (0, -1, 1, -2, 2, -3, 3)  # where to look for a free array: they become free like plates of a stack


class Memory:
    """The arrays that large results were put into while a user's function is differentiated, and how often it was."""

    __slots__ = ("last", "pinned", "pins", "size", "stocks", "times")

    def __init__(self) -> None:
        self.stocks: dict[tuple[Shape, Any], list[Any]] = {}  # by shape and dtype
        self.last: dict[tuple[Shape, Any], int] = {}  # which was taken last
        self.size = 0  # in bytes; threads may at worst miscount
        self.times = 0
        self.pinned = (0, 0)
        self.pins: deque[Any] = deque(maxlen=4)

    def empty(self, shape: Shape, dtype: Any) -> Any:
        """Return an array that nobody else holds, with any entries in it."""
        key = shape, dtype
        stock = self.stocks.setdefault(key, [])
        if stock:
            last = self.last.get(key, 0)
            for step in AROUND:
                k = (last + step) % len(stock)
                x = stock[k]
                if sys.getrefcount(x) == FREE and not getweakrefcount(x):
                    self.last[key] = k
                    if x.shape != shape or x.dtype is not dtype or not x.flags.carray:  # a user has changed it in place
                        x = stock[k] = np.empty(shape, dtype)
                    return x
        x = np.empty(shape, dtype)
        self.size += x.nbytes
        if self.size > MOST:  # forget all, which frees those that nobody holds
            self.stocks, self.size = {}, 0
        else:
            self.last[key] = len(stock)
            stock.append(x)
        return x

    def release(self) -> None:
        """Forget the arrays, and hold a number that lies above most: below it the C library keeps memory for the next time."""
        now = (self.size, self.times // CHECKS)
        arrays = self.arrays() if now != self.pinned else []
        self.pinned = now
        end = max([x.ctypes.data for x in arrays], default=0)
        if arrays and not any([0 < pin.ctypes.data - end < NEAR for pin in self.pins]):
            free = [x for x in arrays if sys.getrefcount(x) == FREE + 1 and not getweakrefcount(x)]
            free.append(np.empty(max([x.size for x in arrays])))  # beside all the others there is room only at the end
            highest = max(free, key=lambda x: x.ctypes.data)
            highest.resize(1, refcheck=False)
            self.pins.append(highest)
        self.stocks, self.size = {}, 0

    def holds(self, x: Any) -> bool:
        """Tell whether an array is one of those."""
        return any([x is y for y in self.arrays()])

    def arrays(self) -> list[Any]:
        """Return all of them. Another thread may add to them meanwhile."""
        return [x for stock in list(self.stocks.values()) for x in list(stock)]


def untraced(count: Callable[[], int]) -> int:
    """Count references where no debugger holds some."""
    tracers = sys.gettrace(), sys.getprofile()
    sys.settrace(None)
    sys.setprofile(None)
    try:
        return count()
    finally:
        sys.settrace(tracers[0])
        sys.setprofile(tracers[1])


def free_count() -> int:
    """Return the number of references to an array that only a stock holds, as `Memory.empty` sees it."""
    arrays = [np.empty(1)]
    x = arrays[0]
    return sys.getrefcount(x)


# Counts are only exact with a global lock. The list, the variable and the argument are three references at most.
EXACT = hasattr(sys, "getrefcount") and getattr(sys, "_is_gil_enabled", lambda: True)()
FREE = untraced(free_count) if EXACT else 0
COUNTS = 1 < FREE <= 3


def unwrapped(f: Any) -> tuple[Any, int]:
    """Return the function inside of partials, methods and wrappers such as transforms, and how many wrappers there are."""
    depth = 0
    while True:
        if isinstance(f, functools.partial):
            f = f.func
        elif hasattr(f, "__wrapped__") and depth < 100:
            f, depth = f.__wrapped__, depth + 1
        elif hasattr(f, "__func__"):
            f = f.__func__
        else:
            return f, depth


memories: WeakKeyDictionary[FunctionType, Memory] = WeakKeyDictionary()


def memory_of(f: Any) -> Memory | None:
    """Return the memory of the user's function inside; None the first times, and for what is no function."""
    f, _ = unwrapped(f)
    if f.__class__ is not FunctionType:
        return None
    known = memories.get(f)
    if known is None:
        known = memories[f] = Memory()
    known.times += 1
    return known if known.times > FIRST else None


class Reusing:
    """While it lasts, large results are put into memory of a user's function, of the one outside if they are nested."""

    __slots__ = ("_f", "_memory", "_token")

    def __init__(self, f: Any, known: Memory | None = None) -> None:
        self._f = f
        self._memory = known
        self._token: Token[Reusing | None] | None = None

    def __enter__(self) -> Self:
        if COUNTS and reusing.get() is None:
            self._token = reusing.set(self)
        return self

    def __exit__(self, *error: object) -> None:
        if self._token is not None:
            reusing.reset(self._token)
            if self._memory is not None:
                self._memory.release()

    def memory(self) -> Memory | None:
        """Return the memory; it is looked for when the first large result comes."""
        if self._memory is None and self._f is not None:
            self._memory, self._f = memory_of(self._f), None
        return self._memory


reusing: ContextVar[Reusing | None] = ContextVar("reusing", default=None)


def memory_now() -> Memory | None:
    """Return the memory that large results are put into now."""
    now = reusing.get()
    return None if now is None else now.memory()


def empty(shape: Shape, dtype: Any) -> Any:
    """Return an array that nobody else holds, with any entries in it."""
    known = memory_now()
    return np.empty(shape, dtype) if known is None else known.empty(shape, dtype)


def is_remembered(x: Any) -> bool:
    """Tell whether a memory holds an array, which is a reference more."""
    known = memory_now() if x.size >= LARGE else None
    return known is not None and known.holds(x)


def zeros(shape: Shape, dtype: Any) -> Any:
    """Return zeros, in memory that was used before if they are many."""
    if math.prod(shape) < LARGE or dtype not in DTYPES:
        return np.zeros(shape, dtype)
    x = empty(shape, dtype)
    x.fill(0)
    return x


# ---------------------------------------------------------------- operations


class Pooled(dict[Any, Any]):
    """The ufunc to call for a function whose result can be put somewhere; None for all others."""

    def __missing__(self, fun: Any) -> Any:
        found = None
        if isinstance(fun, np.ufunc) and fun.signature is None and fun.nout == 1 and fun.nin <= 2:
            single, double = [f"{c * fun.nin}->{c}" for c in "fd"]
            # NumPy takes the first that fits, and SciPy lists some the other way round
            keeps = {single, double} <= set(fun.types) and fun.types.index(single) < fun.types.index(double)
            # SciPy's integer orders, as in ld->d, make double precision of a single one
            mixed = [t for t in fun.types if t[-1] in "fd" and len(set(t[:-3])) > 1]
            found = fun if keeps and not mixed else None
        self[fun] = found
        return found


ufuncs = Pooled(
    {
        operator.add: np.add,
        operator.sub: np.subtract,
        operator.mul: np.multiply,
        operator.truediv: np.divide,
        operator.neg: np.negative,
    }
)


def unary(ufunc: Any, x: Any) -> Any:
    """Return ``ufunc(x)`` of a large array."""
    if x.dtype not in DTYPES or not is_ordered(x):
        return ufunc(x)
    return ufunc(x, out=empty(x.shape, x.dtype))


def binary(ufunc: Any, x1: Any, x2: Any) -> Any:
    """Return ``ufunc(x1, x2)`` of operands of which one may be large."""
    array, other = (x1, x2) if x1.__class__ is ndarray else (x2, x1)
    kind = other.__class__
    if array.__class__ is not ndarray or array.dtype not in DTYPES or not is_ordered(array):
        return ufunc(x1, x2)
    shape = array.shape
    if kind is ndarray:
        if other.dtype is not array.dtype or not is_ordered(other):
            return ufunc(x1, x2)
        if other.shape != shape:
            try:
                shape = np.broadcast(x1, x2).shape
            except ValueError:
                return ufunc(x1, x2)  # which says what is wrong
    elif not (kind is float or kind is int or (kind is np.float64 and array.dtype.char == "d")):
        return ufunc(x1, x2)
    return ufunc(x1, x2, out=empty(shape, array.dtype))


def call(fun: Any, operands: Sequence[Any]) -> Any:
    """Return ``fun(*operands)``."""
    for x in operands:
        if x.__class__ is ndarray and x.size >= LARGE:
            ufunc = ufuncs[fun]
            break
    else:
        ufunc = None
    if ufunc is None:
        return fun(*operands)
    return unary(ufunc, *operands) if len(operands) == 1 else binary(ufunc, *operands)


def matmul(x1: Any, x2: Any) -> Any:
    """Return ``np.matmul(x1, x2)`` of matrices or stacks of them."""
    if x1.__class__ is ndarray and x2.__class__ is ndarray and x1.dtype is x2.dtype and x1.dtype in DTYPES:
        rows, columns = x1.shape, x2.shape
        if 2 <= len(rows) == len(columns) <= 3 and rows[:-2] == columns[:-2] and rows[-1] == columns[-2]:
            shape = (*rows[:-1], columns[-1])
            if math.prod(shape) >= LARGE:
                return np.matmul(x1, x2, empty(shape, x1.dtype))
    return np.matmul(x1, x2)


def copied(x: Any) -> Any:
    """Return a copy of an array, whose entries lie end to end; one of a subclass stays that."""
    if x.size < LARGE or x.dtype not in DTYPES or x.__class__ is not ndarray:
        return x.copy()
    copy = empty(x.shape, x.dtype)
    copy[...] = x
    return copy


def plus(a: Any, b: Any) -> Any:
    """Return ``a + b``."""
    return a + b if b.__class__ is not ndarray or b.size < LARGE else binary(np.add, a, b)


def minus(a: Any, b: Any) -> Any:
    """Return ``a - b``."""
    return a - b if b.__class__ is not ndarray or b.size < LARGE else binary(np.subtract, a, b)


def is_ordered(x: Any) -> bool:
    """Tell whether an array's entries follow each other in memory in the order of its axes, so that those of a result do."""
    if x.flags.c_contiguous:
        return True
    last = sys.maxsize
    for n, stride in zip(x.shape, x.strides, strict=True):
        if n > 1 and stride != 0:
            if not 0 < stride <= last:
                return False
            last = stride
    return True


def distinct(x: Any) -> Any:
    """Return an array as a plain one, without the axes that only repeat it."""
    x = np.asarray(x)
    return x[tuple([slice(1 if stride == 0 else None) for stride in x.strides])] if 0 in x.strides else x


def product(x: Any, g: Any) -> Any:
    """Return ``x * g``."""
    return x * g if g.__class__ is not ndarray or g.size < LARGE else binary(np.multiply, x, g)


def by_blocks(rule: Callable[..., Any], residuals: Sequence[Any], g: Any, owned: Any, given: bool) -> Any:
    """Run the rule of an elementwise operation: ``rule(g, *residuals)`` if it is ``given`` g, else ``rule(*residuals) * g``.

    The result takes the place of ``g`` if that is ``owned``, an array of the walk's own.
    """
    dtype, shape, whole = g.dtype, g.shape, g.flags.c_contiguous
    if (
        dtype not in DTYPES
        or not (whole or not any(g.strides))
        or not all(
            [fits(r, shape, dtype) if r.__class__ is ndarray else r.__class__ in {float, int} for r in residuals]
        )
    ):
        return rule(g, *residuals) if given else rule(*residuals) * g
    whole_g, out = g, g if owned and whole else empty(shape, dtype)
    flat = out.reshape(-1)
    g = g.reshape(-1) if whole else np.broadcast_to(g[(0,) * g.ndim], flat.shape)  # a sum's is one number
    parts = [r.reshape(-1) if r.__class__ is ndarray else r for r in residuals]
    for start in range(0, flat.size, BLOCK):
        block = slice(start, start + BLOCK)
        taken = [r[block] if r.__class__ is ndarray else r for r in parts]
        h = rule(g[block], *taken) if given else rule(*taken)
        if start == 0 and getattr(h, "dtype", dtype) != dtype:  # wider than the cotangent
            return rule(whole_g, *residuals) if given else rule(*residuals) * whole_g
        if given:
            flat[block] = h
        else:
            np.multiply(h, g[block], flat[block])
    return out


def fits(r: Any, shape: Shape, dtype: Any) -> bool:
    """Tell whether an array can be cut into the same blocks as another."""
    same: bool = r.shape == shape and r.dtype is dtype and r.flags.c_contiguous
    return same
