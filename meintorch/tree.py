"""Pytrees: nested containers of arrays, taken apart into leaves and put together again.

A `TreeDef` is a tree without its leaves: its containers in preorder (each before its children), one node for each. Read
forwards, the nodes say where every leaf goes; read backwards, each container finds its children already built. So no
walk is recursive, and to compare, hash or pickle a structure is to do so with a flat tuple.

Containers are list, tuple, namedtuple, dict, OrderedDict, defaultdict, every dataclass, and the types given to
`register_pytree_node`; a subclass of list or dict is none. `None` is a container without leaves. Static values belong
to the structure and come back as they are: callables and, in the fields of dataclasses, str, bool and whatever
`field(metadata={"static": True})` declares. Everything else is a leaf.
"""

from __future__ import annotations

import reprlib
import sys
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice, pairwise
from types import BuiltinFunctionType, FunctionType, MethodType, NoneType
from typing import Any, TypeAlias, TypeVar

from meintorch.errors import TreeError

__all__ = ["TreeDef", "flatten", "leaves", "map", "paths", "register_pytree_node"]

_T = TypeVar("_T")
_Node: TypeAlias = "tuple[_Kind, Sequence[Any], Any]"  # kind, keys of the children, aux (class and all the rest)

_UNWATCHED = 1_000  # nodes that flatten visits before it looks for cycles: a small tree pays nothing
_MAX_DEPTH = 100_000
_MAX_TEXT = 300


class TreeDef:
    """Hold the structure of a tree: everything but its leaves.

    Equal structures have interchangeable lists of leaves. So dicts with the same keys in another order are not equal
    here, yet `flatten_like` takes one for the other. Hashable if the static values are.

    Examples
    --------
    >>> _, treedef = flatten({"W": 1.0, "b": [2.0, 3.0]})
    >>> treedef
    {'W': *, 'b': [*, *]}
    >>> treedef.unflatten("xyz")
    {'W': 'x', 'b': ['y', 'z']}
    """

    __slots__ = ("_nodes", "_num_leaves")

    def __init__(self, nodes: tuple[_Node, ...], num_leaves: int) -> None:
        self._nodes = nodes
        self._num_leaves = num_leaves

    @property
    def num_leaves(self) -> int:
        """Count the leaves."""
        return self._num_leaves

    def unflatten(self, leaves: Iterable[Any]) -> Any:
        """Build a tree of this structure, with containers of its own, from leaves in the order of `flatten`.

        Raises
        ------
        TreeError
            If there are more or fewer leaves than `num_leaves`.
        """
        values = list(leaves)
        if len(values) != self._num_leaves:
            raise TreeError(
                f"got {len(values)} leaves for a structure of {self._num_leaves}, {_cut(repr(self))}: "
                f"give one leaf for each *, in the order of treedef.paths()"
            )
        if self is _BARE:
            return values[0]
        if len(self._nodes) - self._num_leaves <= 1:  # a flat container
            kind, keys, aux = self._nodes[0]
            return kind.join(keys, aux, values)
        return self._fold(values, _join)

    def flatten_like(self, tree: Any, what: str = "tree") -> list[Any]:
        """List the leaves of another tree, which must have this structure.

        Parameters
        ----------
        tree
            The other tree. Its dicts may have their keys in any order: values are matched by key.
        what : str
            What an error calls it.

        Returns
        -------
        list
            The leaves of `tree`, in the order of this structure.

        Raises
        ------
        TreeError
            If the structures differ. It names the first path where they do, what was expected there, what was found.
        """
        leaves, treedef = flatten(tree)
        if treedef == self:
            return leaves
        leaves, stack = [], [tree]
        for i, expected in enumerate(self._nodes):
            value = stack.pop()
            node, children = _split(value)
            if node[0] is expected[0] is _LEAF:
                leaves.append(value)
            elif node == expected:
                stack.extend(reversed(children))
            elif _same_keys(node, expected):
                by_key = dict(zip(node[1], children, strict=True))
                stack.extend(by_key[key] for key in reversed(expected[1]))
            else:
                _, path = next(islice(self._walk(), i, None))
                raise TreeError(
                    f"{_cut(what + path)}: {_difference(expected, node, value)}. "
                    f"Both trees need the same containers, keys and static values: "
                    f"meintorch.tree.map(f, tree) makes a second tree like the first"
                )
        return leaves

    def paths(self) -> list[str]:
        """List the paths of the leaves, such as `['layers'][0].weight`; the path of a bare leaf is empty.

        Children of registered types have no names that a user would write: they read `<child 0>`, `<child 1>`, ...
        """
        return [path for kind, path in self._walk() if kind is _LEAF]

    def _walk(self) -> Iterator[tuple[_Kind, str]]:
        stack = [""]
        for kind, keys, _ in self._nodes:
            path = stack.pop()
            yield kind, path
            stack.extend(path + kind.step.format(key) for key in reversed(keys))

    def _fold(self, values: list[Any], join: Callable[[_Kind, Sequence[Any], Any, list[Any]], Any]) -> Any:
        built: list[Any] = []
        for kind, keys, aux in reversed(self._nodes):
            if kind is _LEAF:
                built.append(values.pop())
            else:
                start = len(built) - len(keys)
                children = built[start:]
                children.reverse()  # the first child was built last
                del built[start:]
                built.append(join(kind, keys, aux, children))
        return built[0]

    def __eq__(self, other: object) -> bool:
        return self is other or (self._nodes == other._nodes if isinstance(other, TreeDef) else NotImplemented)

    def __hash__(self) -> int:
        return hash(self._nodes)

    def __repr__(self) -> str:
        return str(self._fold(["*"] * self._num_leaves, _show))


def flatten(tree: Any) -> tuple[list[Any], TreeDef]:
    """Take a tree apart into its leaves and its structure.

    Parameters
    ----------
    tree : any value
        What is no container is a tree of one leaf.

    Returns
    -------
    leaves : list
        The leaves from left to right: dicts in insertion order, dataclasses in the order of their fields.
    treedef : TreeDef
        The rest: `treedef.unflatten(leaves)` is the tree again.

    Raises
    ------
    TreeError
        If a container contains itself; leave the back reference out of the tree.

    Examples
    --------
    >>> flatten((1.0, None, {"b": 2.0}))
    ([1.0, 2.0], (*, None, {'b': *}))
    """
    get = _KINDS.get
    if get(type(tree)) is _LEAF:
        return [tree], _BARE
    leaves: list[Any] = []
    nodes: list[_Node] = []
    values: Iterator[Any] = iter((tree,))
    pending: list[Iterator[Any]] = []  # what is left of the containers that led here
    route: dict[int, Any] = {}  # these containers by id, but for those entered before watching began
    while True:
        for value in values:
            kind = get(type(value)) or _classify(value)
            if kind is _LEAF:
                leaves.append(value)
                nodes.append(_STAR)
                continue
            children, keys, aux = kind.split(value)
            nodes.append((kind, keys, aux))
            if children:
                if len(nodes) > _UNWATCHED:
                    if id(value) in route or len(route) == _MAX_DEPTH:
                        raise _endless(list(route.values()), value)
                    route[id(value)] = value
                pending.append(values)
                values = iter(children)
                break
        else:
            if not pending:
                return leaves, TreeDef(tuple(nodes), len(leaves))
            if route:
                route.popitem()
            values = pending.pop()


def leaves(tree: Any) -> list[Any]:
    """List the leaves of a tree, in the order of `flatten`.

    Parameters
    ----------
    tree : any value

    Returns
    -------
    list

    Examples
    --------
    >>> leaves({"w": 1.0, "b": [2.0, None]})
    [1.0, 2.0]
    """
    return flatten(tree)[0]


def paths(tree: Any) -> list[str]:
    """List the paths of the leaves of a tree, in the order of `flatten`.

    Parameters
    ----------
    tree : any value

    Returns
    -------
    list of str
        As one would write them behind the name of the tree.

    Examples
    --------
    >>> paths({"layers": [1.0, (2.0, 3.0)]})
    ["['layers'][0]", "['layers'][1][0]", "['layers'][1][1]"]
    """
    return flatten(tree)[1].paths()


def map(f: Callable[..., Any], tree: Any, *rest: Any) -> Any:
    """Apply a function to every leaf of a tree, or to the leaves in the same place of several trees.

    Parameters
    ----------
    f : function of as many leaves as there are trees
    tree : any value
    *rest : trees of the same structure

    Returns
    -------
    tree
        The structure of `tree`, with the results as leaves.

    Raises
    ------
    TreeError
        If one of `rest` has another structure than `tree`; the path where they differ is named.

    Examples
    --------
    >>> map(lambda w, g: w - 0.5 * g, {"W": 1.0, "b": 2.0}, {"b": 2.0, "W": 4.0})
    {'W': -1.0, 'b': 1.0}
    """
    first, treedef = flatten(tree)
    others = [treedef.flatten_like(other, what=f"rest[{i}]") for i, other in enumerate(rest)]
    return treedef.unflatten([f(*args) for args in zip(first, *others, strict=True)])


def register_pytree_node(
    cls: type[_T],
    flatten: Callable[[_T], tuple[Iterable[Any], Any]],
    unflatten: Callable[[Any, tuple[Any, ...]], _T],
) -> None:
    """Make a type a container.

    Parameters
    ----------
    cls : type
        This very type, not its subclasses. A dataclass or namedtuple may be registered: that goes before its fields.
    flatten : callable
        `flatten(obj)` gives `(children, aux)`: an iterable of subtrees, and the rest, which is static.
    unflatten : callable
        `unflatten(aux, children)` gives the object again; `children` is a tuple of whatever the leaves became.

    Raises
    ------
    TreeError
        If `cls` is no type, or is a container already: register each type once, where it is defined.

    Examples
    --------
    >>> class Interval:
    ...     def __init__(self, low, high):
    ...         self.low, self.high = low, high
    >>> register_pytree_node(Interval, lambda i: ((i.low, i.high), None), lambda aux, ends: Interval(*ends))
    >>> flatten(Interval(0.0, 1.0))
    ([0.0, 1.0], Interval(*, *))
    """
    if not isinstance(cls, type):
        raise TreeError(f"{cls!r} is not a type: write register_pytree_node(type(obj), flatten, unflatten)")
    if _KINDS.get(cls, _LEAF) not in (_LEAF, _NAMEDTUPLE, _DATACLASS):
        raise TreeError(
            f"{cls.__qualname__} is a container or static already: register a type once, with its definition"
        )
    _REGISTRY[cls] = (flatten, unflatten)
    _KINDS[cls] = _REGISTERED


class _Static:
    """A value that belongs to the structure: equal only if of the same type (1 is not 1.0), and as arrays are."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Static) and _same(self.value, other.value)

    def __hash__(self) -> int:
        return hash(self.value)


class _Unset:
    """Stands for a field that was never set (a class, hence static)."""


def _split_dataclass(obj: Any) -> tuple[Sequence[Any], Sequence[Any], Any]:
    import dataclasses  # noqa: PLC0415 - at the top it would slow down every import of meintorch

    names, children = [], []
    for field in dataclasses.fields(obj):
        value = getattr(obj, field.name, _Unset)
        static = isinstance(value, (str, bool)) or field.metadata.get("static")
        names.append(field.name)
        children.append(_Static(value) if static else value)
    return children, tuple(names), type(obj)


def _join_dataclass(names: Sequence[Any], cls: Any, children: list[Any]) -> Any:
    # Not by __init__, which may take other arguments and compute with leaves that are no numbers.
    obj: Any = object.__new__(cls)
    for name, value in zip(names, children, strict=True):
        if value is not _Unset:
            object.__setattr__(obj, name, value)
    return obj


def _split_registered(obj: Any) -> tuple[Sequence[Any], Sequence[Any], Any]:
    match _REGISTRY[type(obj)][0](obj):
        case (children, aux):
            children = tuple(children)
            return children, range(len(children)), (type(obj), _Static(aux))
        case other:
            raise TreeError(
                f"the flatten function registered for {type(obj).__qualname__} returned {reprlib.repr(other)}: "
                f"let it return a pair (children, aux)"
            )


def _join_registered(_: Sequence[Any], aux: Any, children: list[Any]) -> Any:
    cls, static = aux
    if cls not in _REGISTRY:
        raise TreeError(
            f"{cls.__qualname__} was unpickled but is not registered in this process: "
            f"call register_pytree_node in the module that defines it"
        )
    return _REGISTRY[cls][1](static.value, tuple(children))


class _Kind:
    __slots__ = ("join", "name", "split", "step")

    def __init__(
        self,
        name: str,
        split: Callable[[Any], tuple[Sequence[Any], Sequence[Any], Any]],  # obj -> children, keys, aux
        join: Callable[[Sequence[Any], Any, list[Any]], Any],  # keys, aux, children -> obj
        step: str = "",  # how a path goes on to a child
    ) -> None:
        self.name = name
        self.split = split
        self.join = join
        self.step = step

    def __reduce__(self) -> str:
        return self.name  # one of a kind, also when unpickled


_LEAF = _Kind(
    "_LEAF",
    lambda _: ((), (), None),
    lambda _keys, _aux, values: values[0],
)
_CONSTANT = _Kind(
    "_CONSTANT",
    lambda x: ((), (), x if type(x) is _Static else _Static(x)),
    lambda _keys, aux, _children: aux.value,
)
_LIST = _Kind(
    "_LIST",
    lambda x: (x, range(len(x)), None),
    lambda _keys, _aux, children: children,
    "[{}]",
)
_TUPLE = _Kind(
    "_TUPLE",
    lambda x: (x, range(len(x)), None),
    lambda _keys, _aux, children: tuple(children),
    "[{}]",
)
_NAMEDTUPLE = _Kind(
    "_NAMEDTUPLE",
    lambda x: (x, x._fields, type(x)),
    lambda _keys, cls, children: cls._make(children),  # passes by a __new__ with other arguments
    ".{}",
)
_DATACLASS = _Kind("_DATACLASS", _split_dataclass, _join_dataclass, ".{}")
_DICT = _Kind(
    "_DICT",
    lambda x: (list(x.values()), tuple(x), type(x)),
    lambda keys, cls, children: cls(zip(keys, children, strict=True)),
    "[{!r}]",
)
_DEFAULTDICT = _Kind(
    "_DEFAULTDICT",
    lambda x: (list(x.values()), tuple(x), x.default_factory),
    lambda keys, factory, children: defaultdict(factory, zip(keys, children, strict=True)),
    "[{!r}]",
)
_REGISTERED = _Kind("_REGISTERED", _split_registered, _join_registered, "<child {}>")

_STAR: _Node = (_LEAF, (), None)
_BARE = TreeDef((_STAR,), 1)
_REGISTRY: dict[type, tuple[Callable[[Any], Any], Callable[[Any, tuple[Any, ...]], Any]]] = {}
_KINDS: dict[type, _Kind] = {
    **dict.fromkeys((float, int, complex, str, bool), _LEAF),
    **dict.fromkeys((NoneType, FunctionType, BuiltinFunctionType, MethodType, partial, type, _Static), _CONSTANT),
    list: _LIST,
    tuple: _TUPLE,
    dict: _DICT,
    OrderedDict: _DICT,
    defaultdict: _DEFAULTDICT,
}


def _classify(value: Any) -> _Kind:
    cls = type(value)
    if issubclass(cls, type):
        kind = _CONSTANT  # array classes, too, have attributes named dtype and shape
    elif issubclass(cls, tuple) and hasattr(cls, "_fields"):
        kind = _NAMEDTUPLE
    elif hasattr(cls, "__dataclass_fields__"):
        kind = _DATACLASS
    elif callable(value):  # not remembered, since the instance decides
        return _LEAF if hasattr(value, "dtype") or hasattr(value, "shape") else _CONSTANT
    else:
        kind = _LEAF
    # Only what its module keeps alive anyway is remembered: a class made inside a function must be free to die.
    if getattr(sys.modules.get(cls.__module__), "__dict__", {}).get(cls.__qualname__) is cls:
        return _KINDS.setdefault(cls, kind)  # never over a registration in another thread
    return kind


def _split(value: Any) -> tuple[_Node, Sequence[Any]]:
    kind = _KINDS.get(type(value)) or _classify(value)
    children, keys, aux = kind.split(value)
    return (kind, keys, aux), children


def _join(kind: _Kind, keys: Sequence[Any], aux: Any, children: list[Any]) -> Any:
    return kind.join(keys, aux, children)


def _same_keys(one: _Node, two: _Node) -> bool:
    # In any order; and no value comes from a default factory, so that may differ.
    (kind, keys, aux), (other_kind, other_keys, other_aux) = one, two
    same = kind is other_kind and (kind is _DEFAULTDICT or (kind is _DICT and aux is other_aux))
    return same and set(keys) == set(other_keys)


def _same(a: Any, b: Any) -> bool:
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if isinstance(a, tuple):
        return len(a) == len(b) and all(_same(x, y) for x, y in zip(a, b, strict=True))
    try:
        if any(getattr(a, name, None) != getattr(b, name, None) for name in ("shape", "dtype")):
            return False
        equal = a == b
        return bool(equal.all() if hasattr(equal, "all") else equal)
    except ValueError:  # arrays somewhere inside: what cannot be compared is not taken for the same
        return False


def _endless(route: list[Any], value: Any) -> TreeError:
    start = next((i for i, container in enumerate(route) if container is value), None)
    if start is None:
        return TreeError(f"the tree is nested more than {_MAX_DEPTH} deep: does a flatten function make new children?")
    loop = ""
    for parent, child in pairwise([*route[start:], value]):
        (kind, keys, _), children = _split(parent)
        loop += next((kind.step.format(key) for key, x in zip(keys, children, strict=True) if x is child), "...")
    return TreeError(
        f"a tree must not contain itself, but for some {type(value).__name__} x in it x{_cut(loop)} is x: "
        f"leave that reference out of the tree (a class of your own can, by register_pytree_node)"
    )


def _show(kind: _Kind, keys: Sequence[Any], aux: Any, pieces: list[str]) -> str:
    if kind is _CONSTANT:
        name = getattr(aux.value, "__name__", None)
        return name if isinstance(name, str) else reprlib.repr(aux.value)
    if kind is _LIST:
        return f"[{', '.join(pieces)}]"
    if kind is _TUPLE:
        return f"({', '.join(pieces)}{',' * (len(pieces) == 1)})"
    if kind in (_DICT, _DEFAULTDICT):
        items = "{" + ", ".join(f"{key!r}: {piece}" for key, piece in zip(keys, pieces, strict=True)) + "}"
        return items if aux is dict else f"{'defaultdict' if kind is _DEFAULTDICT else aux.__name__}({items})"
    if kind is _REGISTERED:
        aux, static = aux
        pieces = pieces if static.value is None else [*pieces, f"aux={reprlib.repr(static.value)}"]
    else:
        pieces = [f"{name}={piece}" for name, piece in zip(keys, pieces, strict=True)]
    return f"{aux.__name__}({', '.join(pieces)})"


def _difference(expected: _Node, found: _Node, value: Any) -> str:
    wanted, got = _describe(expected, "a leaf (an array or a number)"), _describe(found, f"a {type(value).__name__}")
    text = f"expected {wanted}, found {'another ' if got == wanted else ''}{got}"
    if expected[0] is found[0] and expected[0] in (_DICT, _DEFAULTDICT):  # a long list of keys would not show it
        for label, keys, others in (("missing", expected[1], found[1]), ("unexpected", found[1], expected[1])):
            differing = [key for key in keys if key not in others]
            text += f" ({label} keys: {reprlib.repr(differing)})" if differing else ""
    return text


def _describe(node: _Node, leaf: str) -> str:
    kind, keys, aux = node
    if kind is _LEAF:
        return leaf
    if kind in (_LIST, _TUPLE):
        return f"a {'list' if kind is _LIST else 'tuple'} of length {len(keys)}"
    return _cut(_show(kind, keys, aux, ["..."] * len(keys)))


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_TEXT else f"{text[:200]} ... {text[-80:]}"
