"""The graph that reverse mode notes, and the walk that goes through it backwards.

A node is a tuple ``(serial, pull, ..., code, offset)``. Its serial number is higher than that of every node that it
depends on, because it was made later: going through the serials in descending order is a topological walk, without
recursion, visited sets or marks. ``pull(node, g, cts, nodes, owned)`` adds to the parents' cotangents what the node's own
cotangent ``g`` contributes; code and offset tell the user's line. Nodes are never written to and do not know the traced
values: a value that no rule keeps is freed as soon as the user's program drops it, a graph can be walked many times and
from several threads, and there are no cycles.

The state of a walk lives in three lists, indexed by serial: the cotangents gathered so far, the nodes they belong to, and
whether a cotangent is owned, that is, an array that nobody else holds and that may be added to in place.
"""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import MutableMapping, Sequence
from contextvars import ContextVar
from operator import getitem
from typing import Any, TypeAlias

import numpy as np

from meintorch.core.large import is_remembered, plus, untraced, zeros
from meintorch.core.memory import Layout, Path, bottom, is_writeable, overlaps, steps_of
from meintorch.core.primitive import CONSTANT, STRUCTURAL, Primitive, Step
from meintorch.core.shapes import dtype_of, fit, may_repeat, shape_of
from meintorch.core.storage import (
    Storage,
    add_at,
    constant,
    follow,
    frozen,
    last_written,
    put,
    settled,
    sign_of,
    through_writable,
)
from meintorch.core.trace import Call, Trace, Traced, caller, is_many, rebuild, top_trace
from meintorch.errors import source_line

Node: TypeAlias = tuple[Any, ...]
Slots: TypeAlias = "list[Any] | bytearray | MutableMapping[int, Any]"

ndarray, float64 = np.ndarray, np.float64


class ReverseTrace(Trace):
    """A trace that notes a graph node for each operation. ``serial`` is the next node's number."""

    __slots__ = ()
    mode = "reverse mode"
    scaled: type[Traced]  # the class of scalars without a node of their own; set by meintorch.tensor

    def leaf(self, value: Any) -> Traced:
        """Wrap an input."""
        n = self.serial
        self.serial = n + 1
        return self.wrap(value, (n, None, None, 0), ())

    def wrap(self, value: Any, node: Node, parents: Sequence[Traced]) -> Traced:
        """Make the traced value of a node. ``parents`` are the traced values that it was computed from."""
        t = self.tensor()
        t.value = value
        t._trace = self
        t.note = node
        return t

    def node_of(self, t: Traced) -> Node:
        """Return the graph node of a traced value."""
        node: Node = t.note
        return node

    def count(self) -> int:
        """Return the next serial number."""
        n = self.serial
        self.serial = n + 1  # no call between the read and the write: threads cannot come between
        return n

    def process(self, prim: Primitive, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a primitive, note its node, and wrap its output."""
        if prim.kind is STRUCTURAL or prim.kind is CONSTANT:
            self.check_alive()
            return prim.fun(*self.lower(args), **{k: self.lower(v) for k, v in kwargs.items()})
        ans = (self.read if prim.fun is getitem and can_read(self, *args) else self.operate)(prim, args, kwargs)
        if self.level:  # arrays of the object style are not written into
            follow(prim, ans, args, kwargs, self)
        return ans

    def operate(self, prim: Primitive, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a primitive on values, and note its node."""
        call = Call(self, prim, args, kwargs)
        ans = call.run()
        recipe = prim.recipe(tuple(call.traced))
        parents = tuple([self.nodes_of(found) for found in call.traced.values()])
        where = caller()
        residuals = call.kept(recipe.keep(ans, *call.args, **call.kwargs), recipe.loose, *where)
        if is_many(ans):
            outputs = tuple([(shape_of(x), dtype_of(x)) for x in ans])
            node: Node = (self.count(), pull_many, parents, residuals, recipe, outputs, *where)
            return rebuild(ans, [self._pick(node, i, x, call) for i, x in enumerate(ans)])
        return self.wrap(ans, (self.count(), pull, parents, residuals, recipe, *where), call.inputs)

    def nodes_of(self, found: Any) -> Any:
        """Return the node of a traced argument; of a sequence of arrays a list of (element, node)."""
        return [(i, self.node_of(t)) for i, t in found] if found.__class__ is list else self.node_of(found)

    def _pick(self, node: Node, i: int, value: Any, call: Call) -> Any:
        """Wrap one of several outputs; those without a derivative (integers, None, an argument itself) stay plain."""
        if dtype_of(value).kind not in "fc" or id(value) in call.plain:
            return value
        return self.wrap(value, (self.count(), pull_pick, node, i, *node[-2:]), call.inputs)

    # ------------------------------------------------------------ arrays that are written into

    def lift(self, s: Storage, value: Any) -> None:
        """Take over a buffer of a lower trace, which so far is a constant."""
        s.value = value
        s.note = (self.count(), pull_nothing, *caller())

    def write(self, s: Storage, path: Path, index: Any, value: Any, add: bool) -> None:
        """Write into the view at the end of ``path``; the whole gets a new node."""
        parent: Node | None = None
        if isinstance(value, Traced) and value._trace is self:
            parent, value = self.node_of(value), value.value
        elif isinstance(value, Traced):
            value = settled(value)
        s.value = put(s.value, path, index, value, add)
        fits = (shape_of(value), dtype_of(value))
        whole = path is None and index is Ellipsis and not add
        if parent is not None and whole and fits == (s.layout.shape, s.layout.dtype):
            s.note = parent  # nothing is left of what was there
        elif parent is not None or not add:
            s.note = (self.count(), pull_write, s.note, parent, path, index, add, fits, s.layout, *caller())

    def read(self, prim: Primitive, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Read from an array that was written into, at a cost that does not depend on the array's size."""
        self.check_alive()
        t, index = args
        ans = prim.fun(t.value, index)
        s = t.place.family.storage()
        return self.wrap(ans, (self.count(), pull_view, s.note, t.place.path, frozen(index), s.layout, *caller()), ())

    def note_of_view(self, s: Storage, path: Path, value: Any) -> Node:
        """Return a node for the view at the end of ``path``."""
        if can_add_into(value):
            return (self.count(), pull_view, s.note, path, Ellipsis, s.layout, *caller())
        before: Path = None
        steps, value = steps_of(path), s.value
        while can_add_into(view := steps[0](value)):
            before, value = (before, steps.pop(0)), view
        node: Node = s.note if before is None else self.note_of_view(s, before, value)
        for step in steps:  # from where on entries share memory: their own transposes add those up
            view = step(self.wrap(value, node, ()))
            value, node = view.value, view.note
        return node


def can_read(trace: Trace, t: Any, index: Any) -> bool:
    """Tell whether an array was written into and leads to its storage by views that can be added into."""
    if not isinstance(t, Traced) or not t.written or t._trace is not trace or top_trace((index,)) is not None:
        return False
    return can_add_into(t.value)


def can_add_into(view: Any) -> bool:
    """Tell whether entries can be added into a view like this one, each for itself."""
    x = bottom(view)
    return is_writeable(x) and not overlaps(x)


# ---------------------------------------------------------------- the backward pass


class Quietly:
    """While it lasts, NumPy's warnings are off: 1/0 in a rule is an inf to be looked at, not a warning in the user's program."""

    __slots__ = ("_state", "_token")

    def __enter__(self) -> None:
        self._state = np.errstate(all="ignore")
        self._state.__enter__()
        self._token = quiet.set(True)

    def __exit__(self, *error: object) -> None:
        quiet.reset(self._token)
        self._state.__exit__(None, None, None)


# To turn warnings off takes longer than to multiply two small arrays: forward mode within need not do it again.
quiet: ContextVar[bool] = ContextVar("quiet", default=False)
SILENCE = contextlib.nullcontext()


def walk(roots: Sequence[Node], seeds: Sequence[Any], leaves: int) -> tuple[list[Any], bytearray]:
    """Walk back from ``roots``, whose cotangents are ``seeds``, to the leaves, which have the lowest serials.

    Callers turn NumPy's warnings off, see `Quietly`.

    Returns
    -------
    cotangents : list of length ``leaves``; None for a leaf without influence
    owned : one byte a leaf, 1 where nobody else holds the cotangent
    """
    size = max(leaves, *[root[0] + 1 for root in roots]) if roots else leaves
    cts: list[Any] = [None] * size
    nodes: list[Any] = [None] * size
    owned = bytearray(size)
    for root, seed in zip(roots, seeds, strict=True):
        accumulate(cts, nodes, owned, root, seed, False)
    node: Node | None = None
    try:
        for i in range(size - 1, leaves - 1, -1):
            g = cts[i]
            if g is not None:
                node = nodes[i]
                cts[i] = nodes[i] = None  # what is passed is freed at once
                node[1](node, g, cts, nodes, owned)
    except Exception as error:
        if node is not None:
            explain(error, node)
        raise
    del cts[leaves:], owned[leaves:]
    return cts, owned


def explain(error: Exception, node: Node) -> None:
    """Say in which derivative, and from which line of the user's program, a backward pass failed."""
    error.add_note(f"in the derivative of {node_name(node)}, {source_line(node[-2], node[-1])}")


def node_name(node: Node) -> str:
    """Return the name of the primitive that made a node."""
    if node[1] is pull or node[1] is pull_many:
        name: str = node[4].name
    elif node[1] is pull_write or node[1] is pull_view:
        name = "an assignment" if node[1] is pull_write else "a view of an array that was assigned into"
    else:
        name = getattr(node[1], "__qualname__", "an operation")
    return name


def pull(node: Node, g: Any, cts: Slots, nodes: Slots, owned: Slots) -> None:
    """Pull a cotangent back through any primitive, by its rules."""
    parents, residuals, recipe = node[2:5]
    for step, parent in zip(recipe.steps, parents, strict=True):
        if step.into is not None and top_trace([residuals[k] for k in step.into_picks]) is None:
            add_into(step, residuals, parent, g, cts, nodes, owned)
            continue
        args = [residuals[k] for k in step.picks]
        if step.sequence:  # one cotangent for each of the arrays, of which those wanted are traced
            shapes, dtypes = [residuals[k] for k in step.fit]
            if step.wanted:
                args.append([i for i, _ in parent])
            parts = step.rule(g, *args)
            for i, p in parent:
                accumulate(cts, nodes, owned, p, fit(parts[i], shapes[i], dtypes[i]), False)
            continue
        h = step.rule(*args) * g if step.partial else step.rule(g, *args)
        if step.fit:
            h = fit(h, *[residuals[k] for k in step.fit])
        fresh = (
            h.__class__ is ndarray and h.base is None and sole(h)
        )  # before h is passed on, which is a reference more
        accumulate(cts, nodes, owned, parent, h, fresh)


def add_into(step: Step, residuals: Any, parent: Node, g: Any, cts: Slots, nodes: Slots, owned: Slots) -> None:
    """Add what was read from a few entries into the parent's cotangent, an array of the walk's own."""
    j = parent[0]
    c: Any = cts[j]
    traced = isinstance(g, Traced)
    if not owned[j] or c.__class__ is not ndarray or traced:
        if not (owned[j] and isinstance(c, Traced) and c.written):
            shape = residuals[step.shape]
            if traced and 4 * math.prod(shape_of(g)) >= math.prod(shape):  # no more than g itself took
                h = step.rule(g, *[residuals[k] for k in step.picks])
                accumulate(cts, nodes, owned, parent, h, False)
                return
            fresh: Any = zeros(residuals[step.shape], g.dtype)
            fresh = constant(fresh) if traced or isinstance(c, Traced) else fresh
            if c is not None:
                fresh += c
            c = fresh
        cts[j] = c
        nodes[j] = parent
        owned[j] = True
    assert step.into is not None
    step.into(c, g, *[residuals[k] for k in step.into_picks])


def pull_scaled(node: Node, g: Any, cts: Slots, nodes: Slots, owned: Slots) -> None:
    """Pull the cotangent of a scalar back that is a number times another one."""
    accumulate(cts, nodes, owned, node[2], node[3] * g, False)


def pull_many(node: Node, g: list[Any], cts: Slots, nodes: Slots, owned: Slots) -> None:
    """Pull the cotangents of several outputs back; those without influence are zeros."""
    outputs = node[5]
    full = [np.zeros(*output) if x is None else x for x, output in zip(g, outputs, strict=True)]
    pull((*node[:5], *node[-2:]), full, cts, nodes, owned)


def pull_pick(node: Node, g: Any, cts: Slots, nodes: Slots, owned: Slots) -> None:
    """Gather the cotangents of one of several outputs at the node that made them all."""
    parent = node[2]
    j = parent[0]
    if cts[j] is None:
        cts[j] = [None] * len(parent[5])  # type: ignore[list-item]
        nodes[j] = parent
    cts[j][node[3]] = g


# ---------------------------------------------------------------- through arrays that were written into
#
# The cotangent of such an array is an array of the walk's own, laid out in memory like it: so the way to a view leads to a
# view of the cotangent, too, which is added to or taken from in place. A walk through many writes hands one buffer on.


def pull_nothing(node: Node, g: Any, cts: Slots, nodes: Slots, owned: Slots) -> None:
    """Drop the cotangent of a constant."""


def pull_view(node: Node, g: Any, cts: Slots, nodes: Slots, owned: Slots) -> None:
    """Add the cotangent of a view, or of entries read from one, into that of the whole."""
    parent, path, index, layout = node[2:6]
    j = parent[0]
    c = buffer_for(cts[j], owned[j], layout, top_trace((g, index)) is not None)
    cts[j], nodes[j], owned[j] = c, parent, True
    view = through_writable(path, c)
    if view.dtype.kind != c.dtype.kind and sign_of(path) < 0:
        g = -g
    if index is Ellipsis:
        view += g
    else:
        add_at(view, index, g)


def pull_write(node: Node, g: Any, cts: Slots, nodes: Slots, owned: Slots) -> None:
    """Divide the cotangent of an array after a write into those of what was written and of the array before."""
    old, parent, path, index, add, (shape, dtype), layout = node[2:9]
    if parent is not None or not add:
        g = buffer_for(g, owned[node[0]], layout, top_trace((g, index)) is not None)
        view = through_writable(path, g)
        if parent is not None:
            h: Any = read_written(view, index)
            if not add and may_repeat(index):
                h = np.where(last_written(shape_of(view), index), h, 0)
            if view.dtype.kind != g.dtype.kind and sign_of(path) < 0:
                h = -h
            if len(shape) > len(h.shape):  # NumPy lets a value have axes of length one in front
                h = h.reshape((1,) * (len(shape) - len(h.shape)) + h.shape)
            accumulate(cts, nodes, owned, parent, fit(h, shape, dtype), False)
        if not add:
            view[index] = 0
    accumulate(cts, nodes, owned, old, g, True)


def read_written(view: Any, index: Any) -> Any:
    """Return a copy of the entries at an index; at masks that differ from example to example their sum, on one axis."""
    if isinstance(index, Traced) and dtype_of(index).kind == "b":
        shape = shape_of(index)
        mask: Any = np.reshape(index, shape + (1,) * (view.ndim - len(shape)))  # type: ignore[call-overload]
        total: Any = np.sum(np.where(mask, view, 0), axis=tuple(range(len(shape))))
        return total[None]
    return np.copy(view[index])[()]


def buffer_for(c: Any, owned: Any, layout: Layout, traced: bool) -> Any:
    """Return a cotangent as an array of the walk's own with a certain layout; one that takes ``traced`` values."""
    if owned and c is not None:
        if c.__class__ is ndarray and layout.fits(c):
            return constant(c) if traced else c
        if isinstance(c, Traced) and c.written:
            return c
    buffer = layout.blank()
    if traced or isinstance(c, Traced):
        buffer = constant(buffer)
    if c is not None:
        buffer[...] = c
    return buffer


def accumulate(cts: Slots, nodes: Slots, owned: Slots, parent: Node, h: Any, fresh: bool) -> None:
    """Add ``h`` to the cotangent of ``parent``. ``fresh``: nobody else holds ``h``."""
    j = parent[0]
    c = cts[j]
    if c is None:
        cts[j] = h
        nodes[j] = parent
        owned[j] = fresh
    else:
        add_to(cts, owned, j, c, h)


def add_to(cts: Slots, owned: Slots, j: int, c: Any, h: Any) -> None:
    """Add ``h`` to the cotangent ``c`` of serial ``j``, in place where ``c`` is an array of our own."""
    if owned[j] and c.__class__ is ndarray and h.__class__ is ndarray:
        c += h
    else:
        cts[j] = plus(c, h)
        owned[j] = True


def sole(x: Any) -> bool:
    """Tell whether the caller's variable is the only reference to an object."""
    count = sys.getrefcount(x)
    return count <= SOLE or (count == SOLE + 1 and is_remembered(x))


def _references() -> int:
    x = np.empty(1)  # held by one variable; how many references that is depends on the interpreter
    counts: list[int] = []
    count = counts.append

    def look(x: Any) -> None:
        count(sys.getrefcount(x))

    look(x)
    return counts[0]


SOLE = untraced(_references)
