"""Pictures: the graph of a call, with its values and its gradients, as an SVG that needs nothing else to be shown."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, overload

from meintorch._typing import PyTree
from meintorch.core.objects import OBJECTS
from meintorch.errors import InputError
from meintorch.func._transform import P, Selection, Transformed, name_of
from meintorch.tensor import Tensor

MAX_NODES = 60


class Drawing(str):
    """A picture: the text of an SVG, which notebooks show, and which can be saved or written into a page as it is."""

    __slots__ = ()

    def _repr_svg_(self) -> str:
        return str(self)

    def __repr__(self) -> str:
        nodes, edges = [self.count(f'<g class="{kind}') for kind in ("node", "edge")]
        return f"<Drawing: {nodes} nodes, {edges} edges>"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the picture to a file, which a browser can open."""
        from pathlib import Path  # noqa: PLC0415 - at the top it would slow down every import of meintorch

        Path(path).write_text(f'<?xml version="1.0" encoding="UTF-8"?>\n{self}\n', encoding="utf-8")


class Draw(Transformed[P, Drawing]):
    """A function that draws the graph of calling another; made by `draw`."""

    _kind = "draw"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Drawing:
        """Return the picture of a call with the given arguments."""
        from meintorch.func import _picture  # noqa: PLC0415 - at the top it would slow down every import of meintorch

        selection = Selection(self.f, args, kwargs, self.options["argnums"], self.options["argnames"])
        graph = _picture.graph_of_call(self.f, selection)
        values, max_nodes = self.options["values"], self.options["max_nodes"]
        return _picture.picture(graph, f"The graph of {name_of(self.f)}", values=values, max_nodes=max_nodes)

    def __repr__(self) -> str:
        usual = {"argnums": None, "argnames": None, "values": True, "max_nodes": MAX_NODES}
        given = "".join([f", {k}={v!r}" for k, v in self.options.items() if v != usual[k]])
        return f"draw({self.f!r}{given})" if isinstance(self.f, Transformed) else f"draw({name_of(self.f)}{given})"


@overload
def draw(
    f: Tensor, *, names: dict[str, PyTree] | None = None, values: bool = True, max_nodes: int = ...
) -> Drawing: ...
@overload
def draw(
    f: Callable[P, Any],
    argnums: int | Sequence[int] | None = None,
    *,
    argnames: str | Sequence[str] | None = None,
    values: bool = True,
    max_nodes: int = ...,
) -> Draw[P]: ...
def draw(
    f: Any,
    argnums: int | Sequence[int] | None = None,
    *,
    argnames: str | Sequence[str] | None = None,
    names: dict[str, PyTree] | None = None,
    values: bool = True,
    max_nodes: int = MAX_NODES,
) -> Any:
    """Return a function that draws the graph of a call of ``f``: its operations, with their values and gradients.

    Parameters
    ----------
    f : function of arrays, or trees of them, that returns an array or a tree of them; or a Tensor of the object style
    argnums, argnames : optional
        The arguments to draw, chosen as for `grad`: the first if nothing is said. What depends on none of them is a
        constant.
    names : dict, optional
        For a Tensor: from names to tensors, or trees of them, which are then drawn with these names.
    values : bool, optional
        Whether to show values and gradients: numbers and small arrays as they are, rounded to four digits, larger arrays by
        dtype and shape.
    max_nodes : int, optional
        How many nodes a picture may have; more than 60 are hard to read.

    Returns
    -------
    function with the arguments of f
        It returns a ``Drawing``: a string, the text of an SVG. Notebooks show it, ``.save(path)`` writes it to a file,
        and written into a web page it follows the page's light or dark colours. Of a Tensor the drawing itself.

    Raises
    ------
    DrawingError
        If the graph has more than ``max_nodes`` nodes.
    OutputError
        If no output depends on the arguments.
    InputError
        If an argument to draw is missing or holds what has no derivative.

    Notes
    -----
    Inputs stand above, outputs below. The edges enter an operation in the order of its operands, which a label spells ``_``
    where others of them are constants: ``3 - _``. The gradients are those of the sum of all outputs, as those of
    ``backward()`` are; of a Tensor they are what its ``grad`` holds. Pointing at a node shows the line of the program, the
    expression where its source can be read, and the numbers with more digits; pointing at an edge shows how much of the
    gradient comes along it.

    Examples
    --------
    >>> picture = draw(lambda x: x * x + x)(3.0)
    >>> picture
    <Drawing: 3 nodes, 4 edges>
    """
    if isinstance(f, Tensor) and f._trace is OBJECTS:
        if argnums is not None or argnames is not None:
            raise InputError(
                "argnums and argnames choose arguments of a function; a Tensor is drawn with all of its graph"
            )
        from meintorch.func import _picture  # noqa: PLC0415 - as above

        graph = _picture.graph_of_tensor(f, names or {})
        return _picture.picture(graph, "The graph of a Tensor", values=values, max_nodes=max_nodes)
    if names is not None:
        raise InputError("names= is for drawing a Tensor; the arguments of a function have names")
    return Draw(f, argnums=argnums, argnames=argnames, values=values, max_nodes=max_nodes)
