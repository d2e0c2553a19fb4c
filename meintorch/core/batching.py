"""Batching: a function of one example applied to many at once.

Each traced value carries a batch axis, always the first; its shape is that of one example. A row's batching rule says how
to run the primitive once for all examples, mostly by moving an axis argument up by one. A primitive without such a rule is
run on one example after the other: slow, and right.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from operator import getitem
from types import BuiltinFunctionType
from typing import Any

import numpy as np

from meintorch.core.large import call
from meintorch.core.memory import Layout, Path, bottom, clone_batch, layout_of, memory_of, through
from meintorch.core.primitive import CONSTANT, ELEMENTWISE, LINEAR, STRUCTURAL, Primitive, default_of
from meintorch.core.shapes import shape_of
from meintorch.core.storage import Storage, add_at, arrays_in, constant, follow
from meintorch.core.trace import Trace, Traced, here, is_many, is_scalar, rebuild, top_trace
from meintorch.errors import BatchError, InPlaceError


class BatchTrace(Trace):
    """A trace that carries a batch of ``size`` examples. ``note`` is True where each of them is a NumPy scalar."""

    __slots__ = ("mode", "size")

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size
        self.mode = f"vmap of {size} example{'s' * (size != 1)}"

    def wrap(self, value: Any, *, scalars: bool = True) -> Traced:
        """Make a traced value of an array whose first axis is the batch. ``scalars``: without other axes it holds scalars."""
        t = self.tensor()
        t.value = value
        t._trace = self
        t.note = scalars and value.ndim == 1
        return t

    def is_scalar(self, t: Traced) -> bool:
        """Tell whether a value stands for NumPy scalars rather than for arrays without axes."""
        return bool(t.note)

    def process(self, prim: Primitive, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a primitive on all examples."""
        self.check_alive()
        if prim.kind is ELEMENTWISE and prim.batch is None and not kwargs:
            operands = self.operands(args)
            if operands is not None:
                made = self.wrap(call(prim.fun, operands))
                self.find_arrays(prim, made, args, kwargs)
                return made
        if prim.kind is STRUCTURAL:  # what it returns depends on shapes and dtypes, which all examples share
            return prim.fun(*self.example(args, 0), **self.example(kwargs, 0))
        rule = prim.batch or (elementwise_batch if is_elementwise(prim) else None)
        ans = rule(BatchCall(self, prim, args, kwargs)) if rule is not None else None
        copied = ans is None
        if copied:
            ans = self.one_by_one(prim, args, kwargs)
        else:
            ans = rebuild(ans, [self.wrap(x) for x in ans]) if is_many(ans) else self.wrap(ans)  # type: ignore[union-attr]
            self.find_arrays(prim, ans, args, kwargs)
        if (
            prim.fun is getitem
            and not copied
            and is_scattered(ans.value)
            and memory_of(ans.value) is not memory_of(args[0])
        ):
            # Where it reads by arrays, NumPy puts the batch axis innermost: one example does not look like that.
            self.is_view(prim, ans, args, kwargs, None, copied=False)
        follow(prim, ans, args, kwargs, self, copied=copied)
        return ans

    def find_arrays(self, prim: Primitive, ans: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Note which outputs without axes are arrays for one example, and no scalars: NumPy's functions differ in that."""
        if makes_scalars(prim, args):
            return
        outputs = ans if is_many(ans) else [ans]
        if self.size and any([t.note for t in outputs]):
            one = prim.fun(*self.example(args, 0), **self.example(kwargs, 0))
            for t, x in zip(outputs, one if is_many(ans) else [one], strict=True):
                t.note = t.note and is_scalar(x)

    def operands(self, args: tuple[Any, ...]) -> list[Any] | None:
        """Return arguments as `elementwise_batch` runs a function on them; None if one is neither an array nor a number."""
        ndim = 0
        for x in args:
            kind = x.__class__
            if kind is self.tensor:
                ndim = max(ndim, x.value.ndim - 1)
            elif kind is np.ndarray:
                ndim = max(ndim, x.ndim)
            elif kind is not float and kind is not int and kind is not np.float64:
                return None
        return [lift(x.value, True, ndim) if getattr(x, "_trace", None) is self else x for x in args]

    def one_by_one(self, prim: Primitive, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a primitive on one example after the other, and stack what it returns."""
        if self.size == 0:
            raise ValueError(f"{prim.name} has no batching rule, so it cannot be run on an empty batch")
        results = [prim.fun(*self.example(args, i), **self.example(kwargs, i)) for i in range(self.size)]
        if not is_many(results[0]):
            return self.joined(prim, results)
        if len({len(parts) for parts in results}) > 1:
            raise differ(prim)
        return rebuild(results[0], [self.joined(prim, parts) for parts in zip(*results, strict=True)])

    def joined(self, prim: Primitive, results: Sequence[Any]) -> Traced:
        """Stack what the examples returned."""
        if len({np.shape(x) for x in results}) > 1:
            raise differ(prim)
        return self.wrap(np.stack(results), scalars=is_scalar(results[0]))

    def example(self, x: Any, i: int) -> Any:
        """Return arguments as the i-th example has them."""
        if isinstance(x, Traced):
            return x if x._trace is not self else x.value[i] if x.note else x.value[i, ...]
        if x.__class__ is dict:
            return {k: self.example(v, i) for k, v in x.items()}
        return x.__class__([self.example(e, i) for e in x]) if x.__class__ in (list, tuple) else x

    # ------------------------------------------------------------ arrays that are written into

    strips = False  # an array of a lower trace would have to hold what each example wrote

    def is_view(self, prim: Primitive, t: Traced, args: Any, kwargs: Any, part: int | None, *, copied: bool) -> bool:
        """Tell whether one example's result is a view; if not, make that of the batch a copy, unless it is one."""
        if self.size == 0 or prim.kind is CONSTANT:
            return False
        if t.note:
            t.value = t.value if copied else np.copy(t.value)
            return False
        first: Any = self.example(args, 0), self.example(kwargs, 0)
        ans = prim.fun(*first[0], **first[1])
        ans = ans if part is None else ans[part]
        memory = memory_of(ans)
        if any([memory_of(x) is memory for x in arrays_in(*first[0], *first[1].values())]):
            return True
        if not copied:
            t.value = self.laid_out(layout_of(ans), t.value)
        return False

    def laid_out(self, layout: Layout, content: Any) -> Any:
        """Return a batch of our own, whose examples lie end to end with a certain layout."""
        buffer = layout.blank(self.size)
        if isinstance(content, Traced):
            buffer = constant(buffer)
        buffer[...] = content
        return buffer

    def own(self, s: Storage) -> None:
        """Make the buffer a copy that nobody else holds."""
        s.layout = layout_of(self.wrap(s.value, scalars=False))
        s.value = clone_batch(s.value)

    def lift(self, s: Storage, value: Any) -> None:
        """Give each example a copy of a buffer of a lower trace."""
        s.value = self.laid_out(s.layout, value)

    def write(self, s: Storage, path: Path, index: Any, value: Any, add: bool) -> None:
        """Write into all examples; where each has an index of its own, into one after the other."""
        if not isinstance(s.value, Traced) and top_trace((self.lower(index), self.lower(value))) is not None:
            s.value = constant(s.value)
        view = self.through(path, s.value)
        parts = index if index.__class__ is tuple else (index,)
        batched = any([isinstance(part, Traced) for part in parts])
        if not bottom(view).flags.writeable:
            raise ValueError("assignment destination is read-only")
        if batched or is_apart(parts):
            for i in range(self.size):
                to, at, x = view[i, ...], self.example(index, i), self.example(value, i)
                if add:
                    np.add.at(to, at, x)
                else:
                    to[at] = x
            return
        ndim = np.broadcast_to(False, view.shape[1:])[index].ndim
        mine = isinstance(value, Traced) and value._trace is self
        x = value.value if mine else value
        extra = np.ndim(x) - mine - ndim
        if extra > 0:  # NumPy lets a value have axes of length one in front
            x = np.reshape(x, (*x.shape[:mine], *x.shape[mine + extra :]))
        if add:
            add_at(view, (slice(None), *parts), lift(x, mine, ndim))
        else:
            view[(slice(None), *parts)] = lift(x, mine, ndim)

    def note_of_view(self, s: Storage, path: Path, value: Any) -> None:
        """Note nothing."""

    def through(self, path: Path, value: Any) -> Any:
        """Return the value of the view at the end of ``path``, given that of the whole."""
        if path is None:
            return value
        view = through(path, self.wrap(value, scalars=False)).value
        if memory_of(view) is not memory_of(value):
            raise InPlaceError(
                f"{here()}: inside vmap a view of an array that is written into could not be followed. Write into the array "
                f"itself, or loop over the examples instead of vmap."
            )
        return view


def makes_scalars(prim: Primitive, args: tuple[Any, ...]) -> bool:
    """Tell whether a primitive is known to return a scalar, and no array, where the result has no axes.

    So do ufuncs, their methods and operators, and what computes with these instead of moving entries around.
    """
    if isinstance(prim.fun, (np.ufunc, BuiltinFunctionType)):
        return prim.fun is not getitem
    rule = prim.batch
    if rule is axis_batch:
        return bool(args and shape_of(args[0]))  # of a scalar some make an array, if asked for keepdims
    return rule is matrix_batch or (rule is elementwise_batch and prim.kind is not LINEAR)


def is_scattered(x: Any) -> bool:
    """Tell whether a plain array does not lie in memory in the order of its entries."""
    return isinstance(x, np.ndarray) and not x.flags.c_contiguous


def is_slicing(part: Any) -> bool:
    """Tell whether a part of an index only takes slices or adds an axis."""
    return part is None or part is Ellipsis or isinstance(part, slice)


def is_apart(parts: Sequence[Any]) -> bool:
    """Tell whether slices lie between arrays of an index: then NumPy puts their axes in front of all others."""
    there = [k for k, part in enumerate(parts) if not is_slicing(part)]
    return bool(there) and there[-1] - there[0] >= len(there)


def differ(prim: Primitive) -> BatchError:
    """Make the error for a result whose shape is not the same for all examples."""
    return BatchError(
        f"{here()}: inside vmap {prim.name} returns arrays of different shapes for different examples. Choose entries with "
        f"np.where(condition, x, 0), which keeps the shape, or loop over the examples instead of vmap."
    )


class BatchCall:
    """A call of a primitive on a batch, as batching rules see it.

    Attributes
    ----------
    size : number of examples
    args, kwargs : the arguments; those that are batched are arrays whose first axis is the batch
    batched : where those stand: positions, keywords, and pairs (place, element) inside of sequences
    """

    __slots__ = ("_trace", "args", "batched", "kwargs", "prim", "size")

    def __init__(self, trace: BatchTrace, prim: Primitive, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.prim = prim
        self.size = trace.size
        self._trace = trace
        self.batched: set[Any] = set()
        self.args = [self._open(x, k) for k, x in enumerate(args)]
        self.kwargs = {name: self._open(x, name) for name, x in kwargs.items()}

    def _open(self, x: Any, place: Any) -> Any:
        if isinstance(x, Traced):
            if x._trace is self._trace:
                self.batched.add(place)
                return x.value
            return x.value if x._trace.level < 0 else x
        if x.__class__ is list or x.__class__ is tuple:
            opened = [self._open(e, (place, i)) for i, e in enumerate(x)]
            return x.__class__(opened)
        return x

    def place(self, name: str) -> Any:
        """Return where a parameter's argument stands: a position, or the name where it is a keyword or not given."""
        parameters = self.prim.signature.parameters
        position = list(parameters).index(name)
        given = position < len(self.args) and parameters[name].kind is not inspect.Parameter.KEYWORD_ONLY
        return position if given else name

    def is_batched(self, name: str) -> bool:
        """Tell whether a parameter has a batch axis."""
        return self.place(name) in self.batched

    def only(self, *names: str) -> bool:
        """Tell whether nothing but the named parameters is batched, so that a rule for those can be used."""
        places = {self.place(name) for name in names}
        return all((b[0] if isinstance(b, tuple) else b) in places for b in self.batched)

    def get(self, name: str) -> Any:
        """Return an argument by its parameter's name, or its default (None where NumPy marks "not given")."""
        place = self.place(name)
        if place is name:
            if name in self.kwargs:
                return self.kwargs[name]
            return default_of(self.prim.signature.parameters[name])
        return self.args[place]

    def set(self, name: str, value: Any) -> None:
        """Change an argument."""
        place = self.place(name)
        if place is name:
            self.kwargs[name] = value
        else:
            self.args[place] = value

    def array(self, x: Any, place: Any) -> tuple[Any, bool]:
        """Return an argument, and whether it is batched; a list that holds batched values is joined to an array."""
        if place in self.batched:
            return x, True
        if x.__class__ is list or x.__class__ is tuple:
            parts = [self.array(e, (place, i)) for i, e in enumerate(x)]
            if any([batched for _, batched in parts]):
                return np.stack([in_front(e, batched, self.size) for e, batched in parts], axis=1), True
        return x, False

    def operand(self, name: str) -> tuple[Any, bool]:
        """Return a parameter's argument as an array, and whether it is batched."""
        x, batched = self.array(self.get(name), self.place(name))
        return (x if hasattr(x, "shape") else np.asarray(x)), batched

    def many(self, name: str) -> list[tuple[Any, bool]]:
        """Return the arrays of a parameter that takes several or a sequence, each with whether it is batched."""
        place = self.place(name)
        if self.prim.signature.parameters[name].kind is inspect.Parameter.VAR_POSITIONAL:
            return [] if place is name else [self.array(x, k) for k, x in enumerate(self.args[place:], place)]
        x = self.get(name)
        if place in self.batched:
            return [(x[:, i], True) for i in range(x.shape[1])]
        return [self.array(e, (place, i)) for i, e in enumerate(x)]

    def run(self) -> Any:
        """Call the primitive with the arguments as they are now."""
        return self.prim.fun(*self.args, **self.kwargs)

    # ------------------------------------------------------------ for elementwise operations

    def align(self) -> None:
        """Give the batched operands axes of length one, so that the batch axis stays in front when they broadcast."""
        batched = self.batched
        ndims = [np.ndim(x) - (k in batched) for k, x in enumerate(self.args)]
        ndims += [np.ndim(x) - 1 for name, x in self.kwargs.items() if name in batched]
        n = max(ndims)
        for place in batched:
            here: Any = self.kwargs if isinstance(place, str) else self.args
            here[place] = lift(here[place], True, n)


def lift(x: Any, batched: bool, ndim: int) -> Any:
    """Give a batched operand axes of length one, so that it broadcasts as an example with ``ndim`` axes does."""
    missing = ndim + 1 - x.ndim if batched else 0
    return x.reshape(x.shape[0], *(1,) * missing, *x.shape[1:]) if missing > 0 else x


def in_front(x: Any, batched: bool, size: int) -> Any:
    """Return an array with a batch axis, which is added where it has none."""
    if batched:
        return x
    x = x if hasattr(x, "shape") else np.asarray(x)
    return np.broadcast_to(x, (size, *x.shape))


# A batching rule takes a BatchCall and returns the result, its first axis the batch; or None, and the examples are run one
# by one.


def is_elementwise(prim: Primitive) -> bool:
    """Tell whether a primitive without a batching rule works entry by entry."""
    return prim.kind is ELEMENTWISE or getattr(prim.fun, "signature", ...) is None


def elementwise_batch(call: BatchCall) -> Any:
    """Batch a function whose array arguments broadcast against each other."""
    call.align()
    return call.run()


def entries_batch(call: BatchCall) -> Any:
    """Batch a function that does the same with each entry of its first array, whatever else it is given."""
    return call.run() if call.only(next(iter(call.prim.signature.parameters))) else None


def axis_batch(call: BatchCall) -> Any:
    """Batch a function of one array with an ``axis``, a tuple of axes, or None for all of them."""
    array = next(iter(call.prim.signature.parameters))
    if not call.only(array):
        return None
    n = call.get(array).ndim - 1
    axis = call.get("axis")
    if n == 0 and axis not in {None, ()}:
        return None
    call.set("axis", tuple(range(1, n + 1)) if axis is None else shifted(axis, n))
    return call.run()


def flat_axis_batch(call: BatchCall) -> Any:
    """Batch a function of one array with one ``axis``, or None for the flattened array."""
    array = next(iter(call.prim.signature.parameters))
    if not call.only(array):
        return None
    x, axis = call.get(array), call.get("axis")
    if axis is not None and x.ndim == 1:
        return None
    if axis is None:
        if call.prim.signature.parameters.get("keepdims") is not None and call.get("keepdims"):
            return None
        call.set(array, flat(x))
    call.set("axis", 1 if axis is None else shifted(axis, x.ndim - 1))
    return call.run()


def flat(x: Any) -> Any:
    """Return a batch whose examples have one axis."""
    return x if x.ndim == 2 else x.reshape(x.shape[0], math.prod(x.shape[1:]))


def axes_batch(*names: str) -> Callable[[BatchCall], Any]:
    """Make the batching rule of a function of one array whose parameters ``names`` are axes: an int, a tuple, None for all."""

    def rule(call: BatchCall) -> Any:
        array = next(iter(call.prim.signature.parameters))
        if not call.only(array):
            return None
        n = call.get(array).ndim - 1
        for name in names:
            axes = call.get(name)
            call.set(name, tuple(range(1, n + 1)) if axes is None else shifted(axes, n))
        return call.run()

    return rule


def matrix_batch(call: BatchCall) -> Any:
    """Batch a function of one matrix that takes stacks of them."""
    array = next(iter(call.prim.signature.parameters))
    return call.run() if call.only(array) and call.get(array).ndim > 2 else None


def shifted(axis: Any, ndim: int) -> Any:
    """Return an axis of an example as that of the batch."""
    if hasattr(axis, "__iter__"):
        return tuple([shifted(a, ndim) for a in axis])
    if not -ndim <= axis < ndim:
        raise np.exceptions.AxisError(axis, ndim)
    return axis % ndim + 1
