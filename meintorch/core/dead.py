"""Dead branches: a second backward pass for gradients that came out NaN.

Where a program chooses (`np.where(x > 0, np.log(x), 0)`), the branch not taken contributes nothing; but its derivative may be
infinite there, and 0 * inf is NaN. This trace carries along with each cotangent a mask of its dead entries: those that no
branch taken reaches. They are zero whatever they are multiplied with. The rules need not know of it, since they say what
was not chosen with a literal 0 or a boolean factor.

A row's ``dead`` says what becomes of the mask: "any" where an output entry is dead if any operand's entry is (products),
"all" where it is dead if all that it is made of is dead (sums, and moving entries around). Elsewhere the mask is dropped:
that can leave a NaN, but never makes a wrong number.

A NaN that is left after this is honest. A third pass then finds the derivative in which it began, for a warning.
"""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from meintorch.core.graph import Node, accumulate, node_name, pull, pull_many
from meintorch.core.large import distinct
from meintorch.core.memory import Layout, Path, memory_of
from meintorch.core.primitive import CONSTANT, ELEMENTWISE, MULTILINEAR, STRUCTURAL, Primitive
from meintorch.core.shapes import dtype_of, shape_of
from meintorch.core.storage import CONSTANTS, Storage, constant, follow, put, through_writable
from meintorch.core.trace import Call, Trace, Traced, is_many, rebuild
from meintorch.errors import NaNWarning, source_line


class DeadTrace(Trace):
    """A trace that carries masks: ``note`` is True where an entry is dead; the value is 0 there."""

    __slots__ = ()
    mode = "second walk"

    def wrap(self, value: Any, mask: Any) -> Traced:
        """Make a value with a mask."""
        return self.moved(np.where(mask, 0, value), mask)

    def moved(self, value: Any, mask: Any) -> Traced:
        """Make a value with a mask, which is 0 where that is True already; it may be a view."""
        t = self.tensor()
        t.value = value
        t._trace = self
        t.note = mask
        return t

    def living(self, value: Any) -> Traced:
        """Make a value none of whose entries is dead."""
        return self.wrap(value, np.zeros(shape_of(value), bool))

    def process(self, prim: Primitive, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a primitive, and say which entries of the output are dead."""
        ans = self.operate(prim, args, kwargs)
        follow(prim, ans, args, kwargs, self)
        return ans

    def operate(self, prim: Primitive, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a primitive on values and masks."""
        lowered = self.lower(args), {k: self.lower(v) for k, v in kwargs.items()}
        if prim.kind is STRUCTURAL or prim.kind is CONSTANT or prim.dead is None:
            return prim.fun(*lowered[0], **lowered[1])
        call = Call(self, prim, args, kwargs)
        if prim.kind is ELEMENTWISE:
            masks = [mask_of(x, self, prim.dead == "all") for x in args]
            combine = np.logical_or if prim.dead == "any" else np.logical_and
            mask = masks[0]
            for other in masks[1:]:
                mask = combine(mask, other)
            return self.wrap(prim.fun(*lowered[0], **lowered[1]), mask)
        if prim.dead == "any":  # a linear function of one array, entry by entry
            return self.moved(call.run(), next(iter(call.traced.values())).note)
        if prim.kind is MULTILINEAR:
            return self.product(call)
        lived = call.with_every(lambda x: living(x, self), offsets=0)
        ans, counts = call.run(), prim.fun(*lived[0], **lived[1])
        memories = [memory_of(t.value) for t in call.inputs]

        def wrap(x: Any, count: Any) -> Traced:
            memory = memory_of(x)
            return (self.moved if any([m is memory for m in memories]) else self.wrap)(x, count == 0)

        if is_many(ans):
            return rebuild(ans, [wrap(x, n) for x, n in zip(ans, counts, strict=True)])
        return wrap(ans, counts)

    # ------------------------------------------------------------ cotangents that are written into

    def own(self, s: Storage) -> None:
        """Make value and mask copies that nobody else holds, laid out alike."""
        super().own(s)
        s.note = self._laid_out(s.layout, s.note)

    def lift(self, s: Storage, value: Any) -> None:
        """Take over a buffer of the walk's own: what is 0 in it comes of nothing."""
        s.value, s.note = value, self._laid_out(s.layout, value == 0)

    def _laid_out(self, layout: Layout, mask: Any) -> Any:
        if isinstance(mask, Traced):
            return mask
        buffer = layout.blank(dtype=bool)
        buffer[...] = mask
        return buffer

    def write(self, s: Storage, path: Path, index: Any, value: Any, add: bool) -> None:
        """Write a value and its mask; a literal 0 is dead, and so is the sum of what is dead."""
        mine = is_mine(value, self)
        mask = value.note if mine else is_literal_zero(value)
        s.value = put(s.value, path, index, value.value if mine else value, add)
        if add:
            if isinstance(mask, Traced) and not isinstance(s.note, Traced):
                s.note = constant(s.note)
            np.logical_and.at(through_writable(path, s.note), index, mask)
        else:
            s.note = put(s.note, path, index, mask, False)

    def settled(self, t: Traced) -> Traced:
        """Return a value as it is now."""
        still: Traced = super().settled(t)
        if t.written:
            still.note = still.note.copy()
        return still

    def product(self, call: Call) -> Any:
        """Run a product. What is infinite in a plain operand and meets dead entries only counts as 0."""
        if len(call.inputs) > 1:
            return call.run()
        fun = call.prim.fun

        def count(entries: Any) -> Any:  # how many living entries meet one of the plain operand's that is marked
            args, kwargs = call.with_every(lambda x: living(x, self) if is_mine(x, self) else entries(x), offsets=0)
            return fun(*args, **kwargs)

        args, kwargs = call.with_every(
            lambda x: x.value if is_mine(x, self) else np.where(np.isfinite(x), x, 0), offsets=0
        )
        clean = fun(*args, **kwargs)
        bad = count(lambda x: np.where(np.isfinite(x), 0.0, 1.0)) > 0
        return self.wrap(np.where(bad, call.run(), clean), count(lambda x: np.ones(shape_of(x))) == 0)


def is_mine(x: Any, trace: Trace) -> bool:
    """Tell whether a value belongs to a trace."""
    return isinstance(x, Traced) and x._trace is trace


def is_literal_zero(x: Any) -> bool:
    """Tell whether an operand is the 0 that a rule writes; a computed 0 is an np.float64."""
    return (x.__class__ is int or x.__class__ is float) and x == 0


def mask_of(x: Any, trace: Trace, summed: bool) -> Any:
    """Return where an operand is dead: a factor where it is a boolean False, a summand where it is a literal 0."""
    if is_mine(x, trace):
        return x.note
    if summed:  # so is a 0 in a buffer of the walk's own, as in `DeadTrace.lift`
        return x.value == 0 if isinstance(x, Traced) and x._trace is CONSTANTS else is_literal_zero(x)
    return np.logical_not(x) if dtype_of(x).kind == "b" else False


def living(x: Any, trace: Trace) -> Any:
    """Return 1 where an array's entries live and 0 where they are dead; a literal 0 is dead."""
    if is_mine(x, trace):
        return np.where(x.note, 0.0, 1.0)
    return x if x is None else 0.0 if is_literal_zero(x) else np.ones(shape_of(x))


def has_nan(ct: Any) -> bool:
    """Tell whether a cotangent holds a NaN; one pass over the data."""
    if ct.__class__ is np.float64:
        return bool(ct != ct)  # noqa: PLR0124 - the fastest way to ask
    while isinstance(ct, Traced):
        ct = ct.value
    if ct is None:
        return False
    if ct.__class__ is np.ndarray and ct.size > 1 and ct.flags.c_contiguous and ct.dtype.kind == "f":
        flat = ct.reshape(-1)
        # A sum of squares is NaN only if an entry is, and faster than a sum. Of more than 10,000 entries the product would
        # wake the threads of BLAS, for which a busy machine may wait a hundred times longer than the sum takes.
        total = np.dot(flat, flat) if ct.size <= 8192 else np.minimum.reduce(flat)
    else:
        total = np.add.reduce(distinct(ct) if ct.__class__ is np.ndarray else ct, axis=None)
    return bool(np.isnan(total))


# ---------------------------------------------------------------- the report


def derivative_of(node: Node) -> str:
    """Say which derivative a node stands for."""
    return f"the derivative of {node_name(node)}, {source_line(node[-2], node[-1])}"


def report_nan(
    roots: Sequence[Node],
    seeds: Sequence[Any],
    serials: Iterable[int],
    step: Callable[..., None] = lambda node, *walk: node[1](node, *walk),
    describe: Callable[[Node], str] = derivative_of,
) -> None:
    """Walk back once more, and warn of the derivative that makes the first NaN out of numbers, if there is one.

    Parameters
    ----------
    roots, seeds : where the walk begins
    serials : the nodes that it may meet, latest first
    step : pulls a cotangent back through one node
    describe : names a node
    """
    found = source = None
    with contextlib.suppress(Exception), np.errstate(all="ignore"):  # a report is no reason to fail
        found, source = first_nan(roots, seeds, serials, step)
    if found is None:
        return
    because = f" The first infinity came from {describe(source)}." if source is not None and source is not found else ""
    frame: Any = sys._getframe(1)
    level = 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("meintorch."):
        frame = frame.f_back
        level += 1
    warnings.warn(
        f"a gradient is NaN though the value is not. The first NaN came from {describe(found)}.{because} Mostly an infinite "
        f"slope (of a root, a logarithm or a quotient at 0) was multiplied by 0: keep such points away from it with "
        f"np.where, or use a function that knows them (np.abs, np.hypot, np.linalg.norm).",
        NaNWarning,
        stacklevel=level,
    )


def first_nan(
    roots: Sequence[Node], seeds: Sequence[Any], serials: Iterable[int], step: Callable[..., None]
) -> tuple[Node | None, Node | None]:
    """Return the node that makes the first NaN, and the one that made the first infinity if that has led to it."""
    cts, nodes, owned = Gathered(), Gathered(), Unowned()
    for root, seed in zip(roots, seeds, strict=True):
        accumulate(cts, nodes, owned, root, seed, False)
    source: Node | None = None
    for i in serials:
        g = cts.pop(i, None)
        if g is None:
            continue
        node = nodes[i]
        cts.touched.clear()
        step(node, g, cts, nodes, owned)
        made = [cts[j] for j in cts.touched]
        if any_entry(np.isnan, made):
            if any_entry(np.isnan, [g, kept_by(node)]):
                break  # it came with a seed or a value
            return node, source if any_entry(np.isinf, g) else None
        if source is None and any_entry(np.isinf, made):
            source = node
    return None, None


def kept_by(node: Node) -> Any:
    """Return the values that a node keeps for its derivative."""
    return node[3] if node[1] is pull or node[1] is pull_many else [x for x in node[2:-2] if x.__class__ is not tuple]


class Gathered(dict[int, Any]):
    """What a walk gathers, by serial: what is not there reads as None, what is set is remembered."""

    def __init__(self) -> None:
        super().__init__()
        self.touched: set[int] = set()

    def __missing__(self, key: int) -> None:
        return None

    def __setitem__(self, key: int, value: Any) -> None:
        super().__setitem__(key, value)
        self.touched.add(key)


class Unowned(dict[int, Any]):
    """Whether a walk may write to its cotangents: never, so that all that is added to one is set and seen."""

    def __missing__(self, key: int) -> bool:
        return False

    def __setitem__(self, key: int, value: Any) -> None:
        pass


def any_entry(test: Callable[[Any], Any], x: Any) -> bool:
    """Tell whether a number, or any in arrays and lists of them, passes a test."""
    while isinstance(x, Traced):
        x = x.value
    if isinstance(x, (list, tuple)):
        return any([any_entry(test, e) for e in x])
    return isinstance(x, (np.ndarray, np.inexact, float)) and dtype_of(x).kind in "fc" and bool(np.any(test(x)))
