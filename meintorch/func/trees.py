"""ravel: a tree of arrays as one vector."""

from __future__ import annotations

from typing import Any

import numpy as np

from meintorch import tree
from meintorch._typing import PyTree, Shape
from meintorch.core.shapes import dtype_of, shape_of
from meintorch.errors import TreeError


class Unravel:
    """The inverse of `ravel`: takes a vector apart into the tree that it was made from."""

    def __init__(self, treedef: tree.TreeDef, shapes: list[Shape], dtypes: list[np.dtype[Any]]) -> None:
        self._treedef = treedef
        self._shapes = shapes
        self._dtypes = dtypes
        self._ends = np.cumsum([0, *[int(np.prod(s)) for s in shapes]]).tolist()

    def __call__(self, vector: Any) -> PyTree:
        """Return the tree with the entries of a vector, each leaf in its own dtype."""
        if shape_of(vector) != (self._ends[-1],):
            raise TreeError(f"a vector of shape {shape_of(vector)} was given for a tree with {self._ends[-1]} entries")
        leaves = []
        for k, (shape, dtype) in enumerate(zip(self._shapes, self._dtypes, strict=True)):
            part = vector[self._ends[k] : self._ends[k + 1]].reshape(shape)
            if part.dtype != dtype and dtype.kind in "fc":
                part = (np.real(part) if dtype.kind != "c" else part).astype(dtype)
            leaves.append(part)
        return self._treedef.unflatten(leaves)

    def __repr__(self) -> str:
        return f"<unravel {self._ends[-1]} entries into {self._treedef!r}>"


def ravel(x: PyTree) -> tuple[Any, Unravel]:
    """Return all entries of a tree of arrays as one vector, and the function that takes such a vector apart again.

    Parameters
    ----------
    x : tree of arrays and numbers

    Returns
    -------
    vector : array with one axis, of the common dtype (float64 for an empty tree)
    unravel : function of a vector that returns a tree like x
        Each leaf has the shape that it had, and the dtype if that is a float or complex one.

    Raises
    ------
    TreeError
        When ``unravel`` is given a vector of another length.

    Examples
    --------
    >>> vector, unravel = ravel({"w": np.eye(2), "b": 3.0})
    >>> vector
    array([1., 0., 0., 1., 3.])
    >>> unravel(2 * vector)["b"]
    array(6.)
    """
    leaves, treedef = tree.flatten(x)
    shapes = [shape_of(leaf) for leaf in leaves]
    dtypes = [dtype_of(leaf) for leaf in leaves]
    if not leaves:
        return np.zeros(0), Unravel(treedef, shapes, dtypes)
    return np.concatenate([np.ravel(leaf) for leaf in leaves]), Unravel(treedef, shapes, dtypes)
