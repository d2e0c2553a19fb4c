"""The object style: a reverse trace at the lowest level, which never ends.

Its values remember what they were made from (``_children``), so that a backward pass can start anywhere and leave its
cotangents in ``.grad`` of every tensor of the graph. The rules, the nodes and the functions that pull cotangents back are
those of every other reverse trace; only the walk gathers its nodes first, since serials here are not dense.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from types import CodeType
from typing import Any

import numpy as np

from meintorch._typing import Array
from meintorch.core.captured import Captured
from meintorch.core.dead import DeadTrace, any_entry, derivative_of, has_nan, report_nan
from meintorch.core.graph import Node, ReverseTrace, accumulate, pull_pick
from meintorch.core.trace import Traced
from meintorch.errors import NoRuleError


class Note:
    """What the object style notes about a tensor: its node, and what a learner sees as ``_children``, ``.grad``, ..."""

    __slots__ = ("backward", "captured", "children", "grad", "kept", "node", "op")

    def __init__(
        self, node: Node, children: tuple[Traced, ...], op: str, kept: bool, captured: Captured | None = None
    ) -> None:
        self.node = node
        self.captured = captured
        self.children = children
        self.op = op
        self.kept = kept  # made by an operation: its data are ours and do not change
        self.grad: Array | None = None
        self.backward: Callable[[], object] | None = None


class Cotangents(dict[int, Any]):
    """Cotangents by serial where serials are sparse: what is not there reads as None."""

    def __missing__(self, key: int) -> None:
        return None


class Pending:
    """The large arrays that the operation running in this thread keeps, until its result's note takes them over.

    The trace itself never ends: a record of its own would hold every array for ever.
    """

    def __init__(self) -> None:
        self._captured: ContextVar[Captured | None] = ContextVar("captured", default=None)

    def keep(self, x: Any, code: CodeType | None, offset: int) -> Any:
        """Remember an array, and the user's line that used it; without copies, of which each operation would have its own."""
        captured = self._captured.get()
        if captured is None:
            captured = Captured()
            self._captured.set(captured)
        captured.add(x, code, offset)
        return x

    def take(self) -> Captured | None:
        """Return the record, and start another."""
        captured = self._captured.get()
        if captured is not None:
            self._captured.set(None)
        return captured


class ObjectTrace(ReverseTrace):
    """The one trace of all tensors that users make themselves."""

    __slots__ = ("_serials",)

    def __init__(self) -> None:
        super().__init__()
        self.level = 0
        self.captured: Any = Pending()
        self._serials = itertools.count()

    def count(self) -> int:
        """Return the next serial number; safe in threads, which here share the trace."""
        return next(self._serials)

    def note(self, children: tuple[Traced, ...], op: str) -> Note:
        """Make the note of a tensor that a user makes."""
        return Note((self.count(), pull_nothing, None, 0), children, op, False)

    def wrap(self, value: Any, node: Node, parents: Sequence[Traced]) -> Traced:
        """Make the tensor of an operation's result; a subclass's operations give that subclass."""
        kind = type(parents[0])
        t = kind.__new__(kind)
        t.value = np.asarray(value, dtype=np.float64)
        t._trace = self
        recipe = node[2][4] if node[1] is pull_pick else node[4]
        t.note = Note(node, tuple(dict.fromkeys(parents)), recipe.symbol, True, self.captured.take())
        return t

    def open(self, t: Traced) -> Any:
        """Return a tensor's data; a copy where the user can change them in place before the backward pass."""
        return t.value if t.note.kept else t.value.copy()

    def node_of(self, t: Traced) -> Node:
        """Return the graph node of a tensor."""
        node: Node = t.note.node
        return node

    def settled(self, t: Traced) -> Traced:
        """Return a tensor itself: it is not written into."""
        return t

    def backward(self, root: Traced) -> None:
        """Walk back from ``root``, seeded with ones, and add to ``.grad`` of every tensor of its graph."""
        graph = gather(root)
        for t, _ in graph.values():
            if t is not None and t.note.captured is not None:
                t.note.captured.check()
        with np.errstate(all="ignore"):
            shares = Sweep(graph, root).shares()
        for serial, g in shares.items():
            t, _ = graph[serial]
            if t is not None:
                note = t.note
                note.grad = np.array(g, dtype=np.float64) if note.grad is None else np.asarray(note.grad + g)


class Sweep:
    """One backward pass, which walks through the graph again if NaN comes out; a learner's closure runs only once."""

    def __init__(self, graph: dict[int, tuple[Traced | None, Node]], root: Traced) -> None:
        self.graph = graph
        self.root = root
        self.order = sorted(graph, reverse=True)
        self.added: dict[int, list[tuple[Traced, Array]]] = {}  # by the closures that have run

    def shares(self) -> dict[int, Any]:
        """Return each tensor's own cotangent by serial."""
        seed: Any = np.ones(np.shape(self.root.value))
        shares = self.walk(seed, stop=True)
        if not any([has_nan(g) for g in shares.values()]):
            return shares
        masks = DeadTrace()
        living = masks.living(seed)
        try:
            again = self.walk(living, masks)
        except Exception:  # noqa: BLE001 - what cannot be run on masks leaves a result without them, which is honest
            shares = self.walk(seed)
        else:
            seed, shares = living, {serial: masks.lower(g) for serial, g in again.items()}
        if any_entry(np.isnan, list(shares.values())) and not any_entry(np.isnan, self.root.value):
            report_nan([self.root.note.node], [seed], self.order, self.step, self.describe)
        return shares

    def walk(self, seed: Any, masks: DeadTrace | None = None, *, stop: bool = False) -> dict[int, Any]:
        """Walk back, latest first; ``stop``: not further than to a closure that would be handed a NaN."""
        cts, nodes, owned = Cotangents(), Cotangents(), Cotangents()
        cts[self.root.note.node[0]] = seed
        shares: dict[int, Any] = {}
        for serial in self.order:
            g = cts.pop(serial, None)
            if g is None:
                continue
            t, node = self.graph[serial]
            try:
                if t is not None:
                    shares[serial] = g if isinstance(g, Traced) else np.array(g, dtype=np.float64)
                    require_backward(t.note)
                    if stop and t.note.backward is not None and has_nan(g):
                        break
                self.step(node, g, cts, nodes, owned, masks)
            except Exception as error:
                error.add_note(f"in {self.describe(node)}")
                raise
        return shares

    def step(self, node: Node, g: Any, cts: Any, nodes: Any, owned: Any, masks: DeadTrace | None = None) -> None:
        """Pull a cotangent back through one operation; a learner's by its closure."""
        t, _ = self.graph[node[0]]
        if t is None or t.note.backward is None:
            node[1](node, g, cts, nodes, owned)
            return
        if node[0] not in self.added:
            self.added[node[0]] = run_closure(t, np.asarray(g.value if isinstance(g, Traced) else g, dtype=np.float64))
        for child, share in self.added[node[0]]:
            h = share if masks is None else masks.living(share)
            accumulate(cts, nodes, owned, child.note.node, h, False)

    def describe(self, node: Node) -> str:
        """Name an operation in errors."""
        t, _ = self.graph[node[0]]
        if t is not None and (t.note.backward is not None or node[1] is pull_nothing):
            return f"the _backward of the operation {t.note.op!r}"
        return derivative_of(node)


def pull_nothing(*walk: Any) -> None:
    """End here: a tensor that a user made has no built-in operation behind it."""


def require_backward(note: Note) -> None:
    """Refuse an operation of a learner's own that would lose its parents' gradients."""
    if note.children and note.node[1] is pull_nothing and note.backward is None:
        raise NoRuleError(
            f"the operation {note.op!r} was made from other tensors and has no _backward, so their gradients would be lost. "
            f"Assign to out._backward a function that adds to their .grad."
        )


def gather(root: Traced) -> dict[int, tuple[Traced | None, Node]]:
    """Return by serial all that ``root`` was computed from: tensors with their nodes, and operations with many outputs."""
    graph: dict[int, tuple[Traced | None, Node]] = {}
    stack = [root]
    while stack:
        t = stack.pop()
        node = t.note.node
        if node[0] not in graph:
            graph[node[0]] = (t, node)
            if node[1] is pull_pick:
                graph[node[2][0]] = (None, node[2])
            stack.extend(t.note.children)
    return graph


def run_closure(t: Traced, g: Array) -> list[tuple[Traced, Array]]:
    """Run a learner's ``_backward``, which reads ``out.grad`` and adds to its children's ``.grad``; return what it added.

    For the time of the call these hold just this walk's share, so that earlier passes are not counted again.
    """
    children = tuple(dict.fromkeys(t.note.children))
    notes = [t.note, *[c.note for c in children]]
    saved = [note.grad for note in notes]
    try:
        for note in notes:
            note.grad = None
        t.note.grad = g.copy()
        t.note.backward()
        return [(c, c.note.grad) for c in children if c.note.grad is not None]
    finally:
        for note, grad in zip(notes, saved, strict=True):
            note.grad = grad


OBJECTS = ObjectTrace()
