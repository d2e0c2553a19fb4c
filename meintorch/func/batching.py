"""Batching: vmap runs a function of one example on many at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from meintorch import tree
from meintorch._typing import PyTree
from meintorch.core.large import Reusing
from meintorch.core.memory import clone_batch
from meintorch.core.shapes import shape_of
from meintorch.core.storage import running, settled
from meintorch.core.trace import Traced
from meintorch.errors import BatchError
from meintorch.func._transform import P, R, Transformed, explain, settled_tree
from meintorch.tensor import batch_trace


class Vmap(Transformed[P, R]):
    """A function that runs another on every example of a batch; made by `vmap`."""

    _kind = "vmap"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Return the results for all examples."""
        in_axes, out_axes = self.options["in_axes"], self.options["out_axes"]
        axis_size, chunk_size = self.options["axis_size"], self.options["chunk_size"]
        leaves, treedef = tree.flatten((args, kwargs))
        axes = leaf_axes(in_axes, args, kwargs)
        size = batch_size(leaves, axes, axis_size, (args, kwargs))
        mapped = [x if a is None else to_front(x, a) for x, a in zip(leaves, axes, strict=True)]
        if chunk_size is not None and chunk_size < 1:
            raise BatchError(f"chunk_size={chunk_size} has to be at least 1, or None for the whole batch at once")
        step = size if chunk_size is None else int(chunk_size)
        with Reusing(self.f):
            chunks = [
                self._run(treedef, mapped, axes, start, min(start + step, size), size)
                for start in range(0, max(size, 1), step or 1)
            ]
        outputs, out_tree, batched = chunks[0]
        if len(chunks) > 1:
            outputs = [
                np.concatenate(parts) if b else parts[0]
                for parts, b in zip(zip(*[c[0] for c in chunks], strict=True), batched, strict=True)
            ]
        out = out_tree.unflatten(list(range(len(outputs))))
        wanted = prefix_axes(out_axes, out, "out_axes")
        results: list[Any] = []
        for x, b, axis in zip(outputs, batched, wanted, strict=True):
            results.append(to_axis(x, axis, size, [*leaves, *results], batched=b))
        return out_tree.unflatten(results)  # type: ignore[no-any-return]

    def _run(
        self, treedef: tree.TreeDef, mapped: list[Any], axes: list[int | None], start: int, stop: int, size: int
    ) -> tuple[list[Any], tree.TreeDef, list[bool]]:
        """Run one chunk of the batch; returns the outputs, their tree, and which of them have a batch axis."""
        trace = batch_trace(stop - start)
        whole = start == 0 and stop == size
        inputs = [
            x if a is None else trace.wrap(settled(x if whole else x[start:stop]))
            for x, a in zip(mapped, axes, strict=True)
        ]
        args, kwargs = treedef.unflatten(inputs)
        token = running.set(True)
        try:
            out = settled_tree(self.f(*args, **kwargs))
        except Exception as error:
            explain(error)
            raise
        finally:
            running.reset(token)
            trace.end()
        outputs, out_tree = tree.flatten(out)
        batched = [isinstance(x, Traced) and x._trace is trace for x in outputs]
        return [x.value if b else x for x, b in zip(outputs, batched, strict=True)], out_tree, batched


def vmap(
    f: Callable[P, R],
    in_axes: Any = 0,
    out_axes: Any = 0,
    *,
    axis_size: int | None = None,
    chunk_size: int | None = None,
) -> Vmap[P, R]:
    """Return a function that runs ``f``, a function of one example, on a batch of them at once.

    Parameters
    ----------
    f : function of arrays, or trees of them
    in_axes : int, None, or a sequence with an entry for each positional argument, optional
        Which axis of each array is the batch (negative ones count from the end); None for what all examples share. An
        entry may be a tree of these, with the structure of the argument or the beginning of it. Keyword arguments are
        batched along axis 0.
    out_axes : int, None or a tree of them, optional
        Where the batch axis goes in each output.
    axis_size : int, optional
        The number of examples; needed only if nothing is mapped.
    chunk_size : int, optional
        Run at most so many examples at once, to bound memory.

    Returns
    -------
    function with the arguments of f
        Each array has one more axis, and so has each output, as plain NumPy, of the dtype that ``f`` gives.

    Raises
    ------
    BatchError
        If the sizes of the batch axes differ, an axis does not exist, or ``f`` decides (`if`, `while`) on a batched value.

    Notes
    -----
    Each NumPy function is called once for the whole batch. One that has no batching rule yet is called once an example.

    Examples
    --------
    >>> vmap(lambda x, w: x @ w, (0, None))(np.eye(2), np.array([3.0, 4.0]))
    array([3., 4.])
    """
    return Vmap(f, in_axes=in_axes, out_axes=out_axes, axis_size=axis_size, chunk_size=chunk_size)


def leaf_axes(in_axes: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[int | None]:
    """Return the batch axis of each leaf of the arguments."""
    if in_axes is None or isinstance(in_axes, (int, np.integer)):
        entries: Sequence[Any] = [in_axes] * len(args)
    elif isinstance(in_axes, (tuple, list)) and len(in_axes) == len(args):
        entries = in_axes
    else:
        raise BatchError(
            f"in_axes={in_axes!r} has to be an int, None, or a tuple with one entry for each of the {len(args)} positional "
            f"arguments"
        )
    axes: list[int | None] = []
    for k, (entry, arg) in enumerate(zip(entries, args, strict=True)):
        axes += prefix_axes(entry, arg, f"in_axes[{k}]")
    return axes + [0] * len(tree.leaves(kwargs))


def prefix_axes(prefix: Any, like: PyTree, where: str) -> list[int | None]:
    """Return the axis that a tree of axes gives to each leaf of ``like``; an int or None goes for all below it."""
    if prefix is None or (isinstance(prefix, (int, np.integer)) and not isinstance(prefix, bool)):
        return [None if prefix is None else int(prefix)] * len(tree.leaves(like))
    if isinstance(prefix, (list, tuple)) and isinstance(like, (list, tuple)) and len(prefix) == len(like):
        pairs = [(p, x, f"{where}[{i}]") for i, (p, x) in enumerate(zip(prefix, like, strict=True))]
    elif isinstance(prefix, dict) and isinstance(like, dict) and prefix.keys() == like.keys():
        pairs = [(prefix[k], x, f"{where}[{k!r}]") for k, x in like.items()]
    else:
        raise BatchError(
            f"{where}={prefix!r} does not fit the tree {tree.flatten(like)[1]!r}: use an int, None, or a tree of them"
        )
    return [axis for p, x, name in pairs for axis in prefix_axes(p, x, name)]


def batch_size(leaves: list[Any], axes: list[int | None], axis_size: int | None, arguments: PyTree) -> int:
    """Return the size of the batch, on which all mapped leaves have to agree."""
    sizes: dict[int, list[str]] = {}
    for k, (x, axis) in enumerate(zip(leaves, axes, strict=True)):
        if axis is None:
            continue
        if isinstance(x, np.ndarray) and x.__class__ is not np.ndarray:
            name = type(x).__name__
            raise BatchError(
                f"{leaf_name(arguments, k)} is a {name}; pass a plain ndarray: np.asarray(x) of the {name}"
            )
        shape = getattr(x, "shape", None)
        if shape is None or not -len(shape) <= axis < len(shape):
            what = f"has shape {shape}" if shape is not None else f"is a {type(x).__name__}"
            name = leaf_name(arguments, k)
            cure = "close over it instead" if name.startswith("keyword") else "pass in_axes with None for it"
            raise BatchError(f"{name} {what}, so it has no axis {axis} to map over; {cure}")
        sizes.setdefault(shape[axis], []).append(leaf_name(arguments, k))
    if axis_size is not None:
        sizes.setdefault(axis_size, []).append("axis_size")
    if len(sizes) > 1:
        told = "; ".join([f"{n} in {', '.join(names)}" for n, names in sizes.items()])
        raise BatchError(f"the batch axes differ in size: {told}")
    if not sizes:
        raise BatchError("nothing is mapped: every entry of in_axes is None. Map an argument, or pass axis_size")
    return next(iter(sizes))


def leaf_name(arguments: PyTree, k: int) -> str:
    """Spell where in the arguments a leaf lies."""
    path = tree.paths(arguments)[k]
    return f"argument {path[4:].replace(']', '', 1)}" if path.startswith("[0]") else f"keyword argument {path[3:]}"


def to_front(x: Any, axis: int) -> Any:
    """Return an array with its batch axis in front, in memory too: examples have to lie end to end."""
    if axis % len(shape_of(x)) == 0:
        return clone_batch(x) if isinstance(x, np.ndarray) and not x.flags.c_contiguous else x
    moved = np.moveaxis(x, axis, 0)
    return moved if isinstance(moved, Traced) else np.ascontiguousarray(moved)


def to_axis(x: Any, axis: int | None, size: int, others: list[Any], *, batched: bool) -> Any:
    """Return an output with its batch axis where it is wanted, sharing memory with no input or other output."""
    if not batched:
        if axis is None:
            return x.copy() if isinstance(x, np.ndarray) else x
        x = np.broadcast_to(x, (size, *np.shape(x)))
    elif axis is None:
        raise BatchError("out_axes is None for an output that differs from example to example; give it an axis")
    ndim = len(shape_of(x))
    if not -ndim <= axis < ndim:
        raise BatchError(f"out_axes={axis} does not exist in an output with {ndim - 1} axes an example")
    if axis % ndim:
        x = np.moveaxis(x, 0, axis)
    if isinstance(x, np.ndarray) and (
        x.base is not None or not x.flags.writeable or any([x is held for held in others])
    ):
        x = x.copy(order="K")  # to turn entries round in memory takes several times as long
    return x
