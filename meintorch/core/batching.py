"""Batching: a function of one example applied to many at once.

Each traced value carries a batch axis, always the first; its shape is that of one example. A row's batching rule says how
to run the primitive once for all examples, mostly by moving an axis argument up by one. A primitive without such a rule is
run on one example after the other: slow, and right.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from meintorch.core.primitive import ELEMENTWISE, STRUCTURAL, Primitive
from meintorch.core.trace import Trace, Traced, is_many, rebuild


class BatchTrace(Trace):
    """A trace that carries a batch of ``size`` examples."""

    __slots__ = ("size",)

    tensor: type[Traced]  # the class of the values it makes; set by meintorch.tensor

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def wrap(self, value: Any) -> Traced:
        """Make a traced value of an array whose first axis is the batch."""
        t = self.tensor()
        t.value = value
        t._trace = self
        t.note = None
        return t

    def process(self, prim: Primitive, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a primitive on all examples."""
        self.check_alive()
        if prim.kind is STRUCTURAL:  # what it returns depends on shapes and dtypes, which all examples share
            return prim.fun(*self.example(args, 0), **self.example(kwargs, 0))
        rule = prim.batch or (elementwise_batch if is_elementwise(prim) else None)
        ans = rule(BatchCall(self, prim, args, kwargs)) if rule is not None else None
        if ans is None:
            ans = self.one_by_one(prim, args, kwargs)
        return rebuild(ans, [self.wrap(x) for x in ans]) if is_many(ans) else self.wrap(ans)

    def one_by_one(self, prim: Primitive, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a primitive on one example after the other, and stack what it returns."""
        if self.size == 0:
            raise ValueError(f"{prim.name} has no batching rule, so it cannot be run on an empty batch")
        results = [prim.fun(*self.example(args, i), **self.example(kwargs, i)) for i in range(self.size)]
        if is_many(results[0]):
            return rebuild(results[0], [np.stack(parts) for parts in zip(*results, strict=True)])
        return np.stack(results)

    def example(self, x: Any, i: int) -> Any:
        """Return arguments as the i-th example has them."""
        if isinstance(x, Traced):
            return x.value[i] if x._trace is self else x
        if x.__class__ is dict:
            return {k: self.example(v, i) for k, v in x.items()}
        return x.__class__([self.example(e, i) for e in x]) if x.__class__ in (list, tuple) else x


class BatchCall:
    """A call of a primitive on a batch, as batching rules see it.

    Attributes
    ----------
    size : number of examples
    args, kwargs : the arguments; those that are batched are arrays whose first axis is the batch
    """

    __slots__ = ("_batched", "_trace", "args", "kwargs", "prim", "size")

    def __init__(self, trace: BatchTrace, prim: Primitive, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.prim = prim
        self.size = trace.size
        self._trace = trace
        self._batched: set[Any] = set()
        self.args = [self._open(x, k) for k, x in enumerate(args)]
        self.kwargs = {name: self._open(x, name) for name, x in kwargs.items()}

    def _open(self, x: Any, place: Any) -> Any:
        if isinstance(x, Traced) and x._trace is self._trace:
            self._batched.add(place)
            return x.value
        if x.__class__ is list or x.__class__ is tuple:
            opened = [self._open(e, (place, i)) for i, e in enumerate(x)]
            return x.__class__(opened)
        return x

    def _place(self, name: str) -> Any:
        position = list(self.prim.signature.parameters).index(name)
        return position if position < len(self.args) else name

    def is_batched(self, name: str, element: int = -1) -> bool:
        """Tell whether a parameter, or one element of a sequence, has a batch axis."""
        place = self._place(name)
        return (place if element < 0 else (place, element)) in self._batched

    def only(self, *names: str) -> bool:
        """Tell whether nothing but the named parameters is batched, so that a rule for those can be used."""
        places = {self._place(name) for name in names}
        return all((b[0] if isinstance(b, tuple) else b) in places for b in self._batched)

    def get(self, name: str) -> Any:
        """Return an argument by its parameter's name, or its default (None where NumPy marks "not given")."""
        place = self._place(name)
        if place is name:
            if name in self.kwargs:
                return self.kwargs[name]
            default = self.prim.signature.parameters[name].default
            return None if repr(default) == "<no value>" else default
        return self.args[place]

    def set(self, name: str, value: Any) -> None:
        """Change an argument."""
        place = self._place(name)
        if place is name:
            self.kwargs[name] = value
        else:
            self.args[place] = value

    def front(self, name: str, element: int = -1) -> Any:
        """Return an array argument with a batch axis, which is added where it has none."""
        x = self.get(name) if element < 0 else self.get(name)[element]
        if self.is_batched(name, element):
            return x
        x = x if hasattr(x, "shape") else np.asarray(x)
        return np.broadcast_to(x, (self.size, *x.shape))

    def run(self) -> Any:
        """Call the primitive with the arguments as they are now."""
        return self.prim.fun(*self.args, **self.kwargs)

    # ------------------------------------------------------------ for elementwise operations

    def align(self) -> None:
        """Give the batched operands axes of length one, so that the batch axis stays in front when they broadcast."""
        batched = self._batched
        ndims = [np.ndim(x) - (k in batched) for k, x in enumerate(self.args)]
        ndims += [np.ndim(x) - 1 for name, x in self.kwargs.items() if name in batched]
        n = max(ndims)
        for place in batched:
            here: Any = self.kwargs if isinstance(place, str) else self.args
            x = here[place]
            missing = n + 1 - x.ndim
            if missing:
                here[place] = x.reshape(x.shape[0], *(1,) * missing, *x.shape[1:])


# A batching rule takes a BatchCall and returns the result, its first axis the batch; or None, and the examples are run one
# by one.


def is_elementwise(prim: Primitive) -> bool:
    """Tell whether a primitive without a batching rule works entry by entry."""
    return prim.kind is ELEMENTWISE or (hasattr(prim.fun, "nin") and prim.fun.signature is None)


def elementwise_batch(call: BatchCall) -> Any:
    """Batch a function whose array arguments broadcast against each other."""
    call.align()
    return call.run()


def axis_batch(call: BatchCall) -> Any:
    """Batch a function of one array with an ``axis``, a tuple of axes, or None for all of them."""
    array = next(iter(call.prim.signature.parameters))
    if not call.only(array):
        return None
    n = call.get(array).ndim - 1
    axis = call.get("axis")
    call.set("axis", tuple(range(1, n + 1)) if axis is None else shifted(axis, n))
    return call.run()


def flat_axis_batch(call: BatchCall) -> Any:
    """Batch a function of one array with one ``axis``, or None for the flattened array."""
    array = next(iter(call.prim.signature.parameters))
    if not call.only(array):
        return None
    x = call.get(array)
    axis = call.get("axis")
    if axis is None:
        if call.prim.signature.parameters.get("keepdims") is not None and call.get("keepdims"):
            return None
        call.set(array, x.reshape(call.size, -1) if x.ndim != 2 else x)
    call.set("axis", 1 if axis is None else shifted(axis, x.ndim - 1))
    return call.run()


def shifted(axis: Any, ndim: int) -> Any:
    """Return an axis of an example as that of the batch."""
    if axis.__class__ is tuple or axis.__class__ is list:
        return tuple([shifted(a, ndim) for a in axis])
    if not -ndim <= axis < max(ndim, 1):
        raise np.exceptions.AxisError(axis, ndim)
    return axis % ndim + 1 if ndim else 1
