"""Pytrees: every container, static values, structures that differ, paths, pickling."""

from __future__ import annotations

import abc
import copy
import functools
import gc
import math
import operator
import pickle
import subprocess
import sys
import weakref
from collections import Counter, OrderedDict, defaultdict, namedtuple
from dataclasses import dataclass, field, make_dataclass
from enum import Enum
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meintorch import tree
from meintorch.errors import TreeError
from meintorch.tree import TreeDef, flatten, leaves, paths, register_pytree_node

Point = namedtuple("Point", ["x", "y"])  # noqa: PYI024  (the untyped kind, on purpose)


class Params(NamedTuple):
    weight: Any
    bias: Any = 0.0


class Swapped(Point):
    """A namedtuple whose constructor takes its arguments the other way round."""

    __slots__ = ()

    def __new__(cls, y, x):
        return super().__new__(cls, x, y)


@dataclass
class Layer:
    weight: Any
    bias: Any = 0.0
    activation: Any = "tanh"
    training: bool = True


@dataclass
class Gated(Layer):
    gate: Any = 1.0


@dataclass(frozen=True, slots=True)
class Frozen:
    a: Any
    b: Any


@dataclass
class Declared:
    weight: Any
    rate: float = field(default=0.1, metadata={"static": True})
    size: int = field(default=3, metadata={"static": False})


class Interval:
    def __init__(self, low, high, *, closed=True):
        self.low, self.high, self.closed = low, high, closed

    def __eq__(self, other):
        return (self.low, self.high, self.closed) == (other.low, other.high, other.closed)

    __hash__ = None


register_pytree_node(
    Interval,
    lambda interval: ([interval.low, interval.high], interval.closed),
    lambda closed, ends: Interval(*ends, closed=closed),
)


class ArrayLike:
    """Callable, yet an array: only its instances show it."""

    def __init__(self):
        self.dtype = np.dtype(float)

    def __call__(self):
        raise AssertionError


class Model:
    def __call__(self, x):
        return x


class Color(Enum):
    RED = 1


def structure(value):
    return flatten(value)[1]


# Leaves


@pytest.mark.parametrize(
    "leaf",
    [
        3.0,
        3,
        3j,
        True,
        "text",
        b"bytes",
        np.ones(3),
        np.float32(1),
        np.array(2.0),
        np.dtype(float),
        {1.0},
        range(3),
        Color.RED,
        Counter("aab"),  # a subclass of dict, which dict's own rules might not rebuild
        object(),
        ArrayLike(),
    ],
    ids=lambda leaf: type(leaf).__name__,
)
def test_everything_else_is_a_leaf(leaf):
    found, treedef = flatten(leaf)
    assert len(found) == 1
    assert found[0] is leaf
    assert treedef.num_leaves == 1
    assert repr(treedef) == "*"
    assert treedef.paths() == [""]
    assert treedef.unflatten([5.0]) == 5.0
    inside = flatten([leaf])
    assert inside[0][0] is leaf
    assert inside[1] == structure([0.0])


# Containers


@pytest.mark.parametrize(
    ("value", "expected", "shown", "where"),
    [
        ([1.0, [2.0], []], [1.0, 2.0], "[*, [*], []]", ["[0]", "[1][0]"]),
        ((1.0, (2.0,), ()), [1.0, 2.0], "(*, (*,), ())", ["[0]", "[1][0]"]),
        (Point(1.0, [2.0]), [1.0, 2.0], "Point(x=*, y=[*])", [".x", ".y[0]"]),
        (Params(1.0), [1.0, 0.0], "Params(weight=*, bias=*)", [".weight", ".bias"]),
        ({"W": 1.0, "b": [2.0, 3.0]}, [1.0, 2.0, 3.0], "{'W': *, 'b': [*, *]}", ["['W']", "['b'][0]", "['b'][1]"]),
        ({3: 1.0, (0, "{}"): 2.0}, [1.0, 2.0], "{3: *, (0, '{}'): *}", ["[3]", "[(0, '{}')]"]),
        ({}, [], "{}", []),
        (OrderedDict(b=1.0, a=2.0), [1.0, 2.0], "OrderedDict({'b': *, 'a': *})", ["['b']", "['a']"]),
        (defaultdict(list, a=[1.0]), [1.0], "defaultdict({'a': [*]})", ["['a'][0]"]),
        (
            Layer(1.0, [2.0], np.tanh),
            [1.0, 2.0],
            "Layer(weight=*, bias=[*], activation=tanh, training=True)",
            [".weight", ".bias[0]"],
        ),
        (Frozen(1.0, {"c": 2.0}), [1.0, 2.0], "Frozen(a=*, b={'c': *})", [".a", ".b['c']"]),
        (Declared(1.0), [1.0, 3], "Declared(weight=*, rate=0.1, size=*)", [".weight", ".size"]),
        (
            Interval(1.0, (2.0,), closed=False),
            [1.0, 2.0],
            "Interval(*, (*,), aux=False)",
            ["<child 0>", "<child 1>[0]"],
        ),
        (None, [], "None", []),
        ([None, 1.0, math.sin], [1.0], "[None, *, sin]", ["[1]"]),
        ({"layers": [Layer(1.0, None)]}, [1.0], None, ["['layers'][0].weight"]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_containers(value, expected, shown, where):
    found, treedef = flatten(value)
    assert found == expected
    assert leaves(value) == expected
    assert treedef.num_leaves == len(expected)
    assert shown is None or repr(treedef) == shown
    assert paths(value) == treedef.paths() == where
    again = treedef.unflatten(iter(found))
    assert again == value
    assert type(again) is type(value)
    assert flatten(again)[1] == treedef
    assert hash(flatten(again)[1]) == hash(treedef)
    assert treedef.flatten_like(value) == expected
    assert pickle.loads(pickle.dumps(treedef)) == treedef
    assert copy.deepcopy(treedef) == treedef


def test_leaves_are_the_objects_themselves_and_containers_are_new():
    array, inner = np.ones(2), [3.0]
    value = {"a": array, "b": inner}
    found, treedef = flatten(value)
    again = treedef.unflatten(found)
    assert found[0] is array
    assert again["a"] is array
    assert again is not value
    assert again["b"] is not inner
    found.append("more")
    assert inner == [3.0]


def test_unflattening_does_not_hold_or_consume_the_list_of_leaves():
    treedef = structure([0.0, 0.0])
    given_leaves = [1.0, 2.0]
    built = treedef.unflatten(given_leaves)
    built.append(3.0)
    assert given_leaves == [1.0, 2.0]


def test_structure_holds_no_leaf():
    class Leaf:
        pass

    leaf = Leaf()
    alive = weakref.ref(leaf)
    treedef = structure([leaf, {"a": (leaf,)}, Frozen(leaf, None)])
    del leaf
    assert alive() is None
    assert treedef.num_leaves == 3


def test_defaultdict_keeps_its_factory_and_gains_no_keys():
    value = defaultdict(list, a=1.0)
    again = tree.map(operator.neg, value)
    assert again == {"a": -1.0}
    assert again.default_factory is list
    with pytest.raises(TreeError, match="'a'"):
        structure(value).flatten_like(defaultdict(list, b=1.0))
    assert list(value) == ["a"]
    # The factory is part of the structure, but no value comes from it.
    assert structure(value) != structure(defaultdict(dict, a=1.0))
    assert structure(value).flatten_like(defaultdict(lambda: 0.0, a=2.0)) == [2.0]


def test_namedtuple_is_not_rebuilt_by_its_constructor():
    value = Swapped(2.0, 1.0)
    assert flatten(value)[0] == [1.0, 2.0]
    again = structure(value).unflatten([3.0, 4.0])
    assert type(again) is Swapped
    assert (again.x, again.y) == (3.0, 4.0)


# Dataclasses


def test_dataclass_subclass_keeps_its_type():
    again = tree.map(lambda x: 2 * x, Gated(1.0, 2.0, gate=3.0))
    assert type(again) is Gated
    assert again == Gated(2.0, 4.0, gate=6.0)
    assert structure(Layer(1.0)) != structure(Gated(1.0))


def test_dataclass_is_not_rebuilt_by_its_constructor():
    @dataclass(frozen=True)
    class Positive:
        value: Any
        square: Any = field(init=False)
        offset: Any = field(default=1.0, init=False)
        count: ClassVar[int] = 7

        def __post_init__(self):
            if not self.value > 0:
                raise ValueError
            object.__setattr__(self, "square", self.value**2)

    value = Positive(3.0)
    assert flatten(value)[0] == [3.0, 9.0, 1.0]
    again = structure(value).unflatten([-1.0, object, None])
    assert (again.value, again.square, again.offset, again.count) == (-1.0, object, None, 7)


def test_dataclass_field_never_set_stays_unset():
    @dataclass(slots=True)
    class Lazy:
        weight: Any
        cache: Any = field(init=False)

    value = Lazy(2.0)
    found, treedef = flatten(value)
    assert found == [2.0]
    assert not hasattr(treedef.unflatten([3.0]), "cache")
    value.cache = 5.0
    assert flatten(value)[0] == [2.0, 5.0]
    with pytest.raises(TreeError, match=r"tree\.cache: expected _Unset, found a float"):
        treedef.flatten_like(value)


def test_attributes_that_are_no_fields_are_left_behind():
    value = Layer(1.0)
    value.memo = 5.0
    assert not hasattr(tree.map(operator.neg, value), "memo")


def test_dataclass_with_bases_of_many_kinds():
    kind = TypeVar("kind")

    class Base(abc.ABC, Generic[kind]):
        @abc.abstractmethod
        def __call__(self): ...

    @dataclass
    class Scaled(Base[float]):
        scale: Any

        def __setattr__(self, name, value):
            object.__setattr__(self, name, 10 * value)

        def __call__(self):
            raise AssertionError

    value = Scaled(1.0)
    assert flatten(value)[0] == [10.0]  # a container although it is callable
    assert structure(value).unflatten([2.0]).scale == 2.0


def test_dataclass_fields_of_type_str_and_bool_are_static():
    value = Layer(1.0, [True, "leaf"], "relu", training=False)
    found, treedef = flatten(value)
    assert found == [1.0, True, "leaf"]
    again = treedef.unflatten([2.0, 3.0, 4.0])
    assert again == Layer(2.0, [3.0, 4.0], "relu", training=False)
    with pytest.raises(TreeError, match=r"^grads\[0\]\.activation: expected 'tanh', found 'relu'\."):
        structure([Layer(1.0)]).flatten_like([Layer(1.0, 0.0, "relu")], what="grads")
    with pytest.raises(TreeError, match=r"tree\.activation: expected 'tanh', found a float"):
        structure(Layer(1.0)).flatten_like(Layer(1.0, 0.0, 5.0))
    with pytest.raises(TreeError, match=r"tree\.training: expected True, found False"):
        structure(Layer(1.0)).flatten_like(Layer(1.0, training=False))


@pytest.mark.parametrize(
    "static",
    [np.arange(3), [1, 2], {"a": [np.ones(2)]}, (np.ones(2), "x"), Layer(1.0), 5, None, np.float64(2.0), math.sin],
    ids=lambda static: type(static).__name__,
)
def test_static_fields_come_back_as_they_are(static):
    value = Declared(1.0, static)
    found, treedef = flatten(value)
    assert found == [1.0, 3]
    assert treedef.unflatten(found).rate is static
    assert treedef == structure(Declared(2.0, static))
    assert treedef.flatten_like(Declared(2.0, static, 4)) == [2.0, 4]
    assert treedef != structure(Declared(1.0, object()))


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        (1, 1, True),
        (1, 1.0, False),
        (1, True, False),
        ((1, "x"), (1, "x"), True),
        ((1,), (1.0,), False),
        ((1,), (1, 2), False),
        ([1, 2], [1, 2], True),
        (np.arange(3), np.arange(3), True),
        (np.arange(3), np.array([0, 1, 3]), False),
        (np.arange(3), np.arange(3.0), False),
        (np.ones(3), np.ones(1), False),
        (np.ones(0), np.ones(0), True),
        ((np.ones(2), 1), (np.ones(2), 1), True),
        ({"a": np.ones(2)}, {"a": np.ones(2)}, False),  # cannot be compared: not taken for the same
        (np.float32(1), np.float64(1), False),
    ],
)
def test_equality_of_static_values(a, b, same):
    assert (structure(Declared(1.0, a)) == structure(Declared(2.0, b))) is same
    if same:
        assert structure(Declared(1.0, a)).flatten_like(Declared(2.0, b)) == [2.0, 3]
    else:
        with pytest.raises(
            TreeError, match=r"tree\.rate: expected .*, found .* same containers, keys and static values"
        ):
            structure(Declared(1.0, a)).flatten_like(Declared(2.0, b))


def test_hash_needs_hashable_static_values():
    assert hash(structure(Declared(1.0, (1, "x")))) == hash(structure(Declared(2.0, (1, "x"))))
    assert len({structure([1.0]), structure([2.0]), structure((1.0,)), structure(1.0)}) == 3
    with pytest.raises(TypeError, match="unhashable"):
        hash(structure(Declared(1.0, [1])))


# Static callables


@pytest.mark.parametrize(
    "function",
    [
        math.sin,
        np.tanh,
        np.dot,
        len,
        lambda x: x,
        operator.neg,
        functools.partial(max, 1),
        "text".upper,
        str.upper,
        float,
        np.float64,  # its class attributes dtype and shape do not make it an array
        np.ndarray,
        Layer,
        Color,
        Model(),
    ],
    ids=lambda c: getattr(c, "__name__", type(c).__name__),
)
def test_callables_are_static(function):
    for value in (function, [function, 1.0], {"f": function}, Layer(1.0, function)):
        found, treedef = flatten(value)
        assert all(type(leaf) is float for leaf in found)
        assert treedef == structure(value)
        assert hash(treedef) == hash(structure(value))
    again = structure({"f": function, "x": 1.0}).unflatten([2.0])
    assert again["f"] is function


def test_another_function_is_another_structure():
    one, two = (lambda x: x), (lambda x: x)
    assert structure([one]) != structure([two])
    with pytest.raises(TreeError, match=r"tree\[0\]: expected <lambda>, found another <lambda>"):
        structure([one]).flatten_like([two])


# Registered types


def test_registered_type_may_be_a_dataclass_met_before():
    @dataclass
    class Pair:
        first: Any
        second: Any

    assert flatten(Pair(1.0, 2.0))[0] == [1.0, 2.0]
    register_pytree_node(Pair, lambda p: (iter([p.second]), p.first), lambda aux, children: Pair(aux, *children))
    found, treedef = flatten(Pair(1.0, 2.0))
    assert found == [2.0]
    assert repr(treedef) == "Pair(*, aux=1.0)"
    assert treedef.unflatten([3.0]) == Pair(1.0, 3.0)
    with pytest.raises(TreeError, match=r"expected Pair\(\.\.\., aux=1\.0\), found Pair\(\.\.\., aux=5\.0\)"):
        treedef.flatten_like(Pair(5.0, 2.0))


def test_a_registered_function_gets_a_tuple_of_children():
    class Box:
        pass

    seen = []
    register_pytree_node(Box, lambda _: ([1.0, [2.0]], None), lambda *args: seen.append(args))
    structure(Box()).unflatten([3.0, 4.0])
    assert seen == [(None, (3.0, [4.0]))]


def test_subclass_of_a_registered_type_is_a_leaf():
    class Half(Interval):
        pass

    value = Half(0.0, 1.0)
    assert flatten(value)[0] == [value]


@pytest.mark.parametrize("cls", [list, dict, tuple, type(None), type(len), Interval])
def test_registering_twice_is_refused(cls):
    with pytest.raises(TreeError, match="register a type once"):
        register_pytree_node(cls, lambda x: ((x,), None), lambda _, children: children[0])
    assert flatten(Interval(1.0, 2.0))[0] == [1.0, 2.0]


def test_registering_an_instance_is_refused():
    with pytest.raises(TreeError, match=r"write register_pytree_node\(type\(obj\), flatten, unflatten\)"):
        register_pytree_node(Interval(1.0, 2.0), None, None)


@pytest.mark.parametrize("returned", [None, 5, (1.0, 2.0, 3.0)])
def test_flatten_function_must_return_a_pair(returned):
    class Wrong:
        pass

    register_pytree_node(Wrong, lambda _: returned, lambda _, children: children)
    with pytest.raises(TreeError, match=r"registered for .*Wrong returned .*: let it return a pair \(children, aux\)"):
        flatten([Wrong()])


def test_error_of_a_flatten_function_is_not_replaced():
    class Failing:
        pass

    register_pytree_node(Failing, lambda x: x.missing, lambda _, children: children)
    with pytest.raises(AttributeError, match="missing"):
        flatten([Failing()])


# Structures that differ


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        (1.0, [1.0], r"^tree: expected a leaf \(an array or a number\), found a list of length 1\."),
        ([1.0], 1.0, r"^tree: expected a list of length 1, found a float\."),
        ([1.0], (1.0,), r"^tree: expected a list of length 1, found a tuple of length 1\."),
        ({"a": [1.0, 2.0]}, {"a": [1.0]}, r"^tree\['a'\]: expected a list of length 2, found a list of length 1\."),
        (
            {"a": 1.0},
            {"b": 1.0},
            r"^tree: expected \{'a': .*\}, found \{'b': .*\} \(missing keys: \['a'\]\) \(unexpected keys: \['b'\]\)\.",
        ),
        (
            {"a": 1.0},
            {"a": 1.0, "b": 1.0},
            r"^tree: .*, found \{'a': \.\.\., 'b': \.\.\.\} \(unexpected keys: \['b'\]\)\.",
        ),
        ({"a": 1.0}, OrderedDict(a=1.0), r"^tree: expected \{'a': .*\}, found OrderedDict\(\{'a': \.\.\.\}\)\."),
        ([1.0, None], [1.0, 2.0], r"^tree\[1\]: expected None, found a float\."),
        ([1.0, 2.0], [1.0, None], r"^tree\[1\]: expected a leaf .*, found None\."),
        ([1.0, np.ones(2)], [np.ones(2), max], r"^tree\[1\]: expected a leaf .*, found max\."),
        ([[1.0], 2.0], [np.ones(1), 2.0], r"^tree\[0\]: expected a list of length 1, found a ndarray\."),
        (Point(1.0, [2.0]), Point(1.0, 2.0), r"^tree\.y: expected a list of length 1, found a float\."),
        (Point(1.0, 2.0), (1.0, 2.0), r"^tree: expected Point\(x=\.\.\., y=\.\.\.\), found a tuple of length 2\."),
        (Frozen(1.0, 2.0), Point(1.0, 2.0), r"^tree: expected Frozen\(a=.*\), found Point\(x=.*\)\."),
        ([Layer([1.0])], [Layer(1.0)], r"^tree\[0\]\.weight: expected a list of length 1, found a float\."),
        (Interval(1.0, [2.0]), Interval(1.0, 2.0), r"^tree<child 1>: expected a list of length 1, found a float\."),
    ],
)
def test_differing_structures(first, second, message):
    assert structure(first) != structure(second)
    with pytest.raises(TreeError, match=message) as caught:
        structure(first).flatten_like(second)
    assert isinstance(caught.value, ValueError)
    assert "meintorch.tree.map(f, tree) makes a second tree like the first" in str(caught.value)


def test_classes_of_one_name_are_told_apart():
    one, two = (make_dataclass("Same", ["x"]) for _ in range(2))
    with pytest.raises(TreeError, match=r"expected Same\(x=\.\.\.\), found another Same\(x=\.\.\.\)"):
        structure(one(1.0)).flatten_like(two(1.0))


def test_differences_are_named_below_reordered_keys():
    treedef = structure({"a": [1.0], "b": {"c": 2.0, "d": (3.0, 4.0)}})
    with pytest.raises(TreeError, match=r"^tangents\['b'\]\['d'\]: expected a tuple of length 2, found a float\."):
        treedef.flatten_like({"b": {"d": 3.0, "c": 2.0}, "a": [1.0]}, what="tangents")


@pytest.mark.parametrize("kind", [dict, OrderedDict, functools.partial(defaultdict, list)])
def test_values_are_matched_by_key(kind):
    first = kind({"a": 1.0, "b": [2.0, 3.0], "c": kind({"d": 4.0, "e": 5.0})})
    second = kind({"c": kind({"e": 50.0, "d": 40.0}), "a": 10.0, "b": [20.0, 30.0]})
    treedef = structure(first)
    assert treedef.flatten_like(second) == [10.0, 20.0, 30.0, 40.0, 50.0]
    assert list(treedef.unflatten(treedef.flatten_like(second))) == ["a", "b", "c"]
    assert treedef != structure(second)  # their lists of leaves are not interchangeable
    assert tree.map(operator.sub, second, first)["c"] == {"e": 45.0, "d": 36.0}


def test_a_missing_key_is_named_among_many():
    wide = {f"weight_{i}": 1.0 for i in range(1000)}
    narrow = {key: 2.0 for key in wide if key != "weight_500"}
    with pytest.raises(TreeError, match=r"\(missing keys: \['weight_500'\]\)\."):
        structure(wide).flatten_like(narrow)


def test_long_errors_are_cut():
    wide = {f"weight_{i}": 1.0 for i in range(1000)}
    for wrong in (lambda: structure(wide).unflatten([]), lambda: structure(wide).flatten_like({})):
        with pytest.raises(TreeError, match=r"weight_0.* \.\.\. .*weight_999") as caught:
            wrong()
        assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("value", [1.0, [1.0], {"a": [1.0, 2.0]}, None, []])
@pytest.mark.parametrize("change", [-1, 1])
def test_wrong_number_of_leaves(value, change):
    treedef = structure(value)
    number = treedef.num_leaves + change
    if number < 0:
        return
    with pytest.raises(TreeError, match=rf"got {number} leaves .* of {treedef.num_leaves}, .* one leaf for each \*"):
        treedef.unflatten([0.0] * number)


def test_structures_are_immutable():
    treedef = structure([1.0])
    for name in ("num_leaves", "other"):
        with pytest.raises(AttributeError):
            setattr(treedef, name, 5)
    assert treedef != "[*]"


# map


def test_map():
    assert tree.map(lambda x: x + 1, 1.0) == 2.0
    assert tree.map(lambda x: x + 1, {"a": (1.0, None), "b": []}) == {"a": (2.0, None), "b": []}
    assert tree.map(lambda *xs: xs, [1, 2], [3, 4], [5, 6]) == [(1, 3, 5), (2, 4, 6)]
    assert tree.map(lambda _: None, [1.0]) == [None]


def test_map_names_the_tree_that_differs():
    with pytest.raises(TreeError, match=r"^rest\[1\]\['a'\]: expected a leaf .*, found None"):
        tree.map(max, {"a": 1.0}, {"a": 2.0}, {"a": None})


# Depth and cycles


def chain(depth):
    value = [1.0]
    for _ in range(depth):
        value = [value]
    return value


def test_nesting_deeper_than_the_recursion_limit():
    depth = 5 * sys.getrecursionlimit()
    found, treedef = flatten(chain(depth))
    assert found == [1.0]
    again = treedef.unflatten([2.0])
    assert treedef == structure(again)
    assert hash(treedef) == hash(structure(again))
    assert treedef.flatten_like(again) == [2.0]
    assert treedef.paths() == ["[0]" * (depth + 1)]
    assert len(repr(treedef)) == 2 * (depth + 1) + 1
    assert pickle.loads(pickle.dumps(treedef)) == treedef
    with pytest.raises(TreeError, match=r"\.\.\. .*: expected a list of length 1, found a float"):
        treedef.flatten_like(chain(depth - 1))


def cyclic_list():
    value = [1.0, {"a": (2.0,)}]
    value[1]["b"] = [value]
    return value


def cyclic_dataclass():
    value = Layer(1.0)
    value.bias = {"parent": value}
    return [None, value]


def cyclic_registered():
    value = Interval(1.0, [])
    value.high.append(value)
    return {"interval": value}


def twice():
    value = [1.0]
    value += [value, value]
    return value


@pytest.mark.parametrize(
    ("make", "loop"),
    [
        (cyclic_list, r"(list x in it x(\[1\]\['b'\]\[0\]|\[0\]\[1\]\['b'\])|dict x in it x\['b'\]\[0\]\[1\]) is x"),
        (cyclic_dataclass, r"(Layer x in it x\.bias\['parent'\]|dict x in it x\['parent'\]\.bias) is x"),
        (cyclic_registered, r"(Interval x in it x<child 1>\[0\]|list x in it x\[0\]<child 1>) is x"),
        (twice, r"list x in it x\[1\] is x"),
    ],
)
def test_a_container_that_contains_itself(make, loop):
    for use in (flatten, leaves, paths, structure([1.0]).flatten_like, lambda value: tree.map(abs, value)):
        with pytest.raises(TreeError, match=rf"must not contain itself, but for some {loop}: leave that reference out"):
            use(make())


def test_a_cycle_is_found_after_many_good_nodes():
    many = [[float(i)] for i in range(2000)]
    with pytest.raises(TreeError, match=r"list x in it x\[1\] is x"):
        flatten([many, {"a": many}, twice()])


def test_one_container_in_many_places_is_no_cycle():
    shared = {"w": [1.0, None]}
    value = [[shared, (shared,)] for _ in range(2000)] + [()] * 2000
    found, treedef = flatten(value)
    assert found == [1.0] * 4000
    assert treedef.unflatten(found) == value


def test_a_flatten_function_that_never_ends():
    class Turtle:
        pass

    register_pytree_node(Turtle, lambda _: ([Turtle()], None), lambda _, children: children)
    with pytest.raises(TreeError, match="nested more than 100000 deep"):
        flatten(Turtle())


# What stays behind


def test_classes_made_inside_functions_die():
    def use():
        classes = [
            make_dataclass("Local", ["x"]),
            namedtuple("Local", ["x"]),  # noqa: PYI024
            type("Local", (float,), {}),
        ]
        for cls in classes:
            tree.map(abs, [cls(1.0)])
        return [weakref.ref(cls) for cls in classes]

    alive = use()
    gc.collect()
    assert [ref() for ref in alive] == [None] * 3


def test_flatten_leaves_no_cycle_behind():
    class Leaf:
        pass

    gc.disable()
    try:
        leaf = Leaf()
        alive = weakref.ref(leaf)
        value = [leaf, {"a": leaf}]
        found, treedef = flatten(value)
        again = treedef.unflatten(found)
        del leaf, value, found, again
        assert alive() is None
    finally:
        gc.enable()


def test_tree_needs_no_numpy():
    code = (
        "import sys, types, importlib.util as u\n"
        "sys.modules['numpy'] = None\n"
        "package, errors = types.ModuleType('meintorch'), types.ModuleType('meintorch.errors')\n"
        "errors.TreeError = ValueError\n"
        "sys.modules |= {'meintorch': package, 'meintorch.errors': errors}\n"
        f"spec = u.spec_from_file_location('meintorch.tree', {tree.__file__!r})\n"
        "sys.modules['meintorch.tree'] = tree = u.module_from_spec(spec)\n"
        "spec.loader.exec_module(tree)\n"
        "print(tree.map(abs, {'a': [-1.0, None]}))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "{'a': [1.0, None]}\n"


# Pickling


def test_pickled_structures_are_the_same_and_work():
    value = {"a": Layer(1.0, [Interval(2.0, None)], np.tanh), "b": defaultdict(list, c=Params(3.0))}
    treedef = structure(value)
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        again = pickle.loads(pickle.dumps(treedef, protocol))
        assert again == treedef
        assert hash(again) == hash(treedef)
        assert repr(again) == repr(treedef)
        assert again.unflatten([1.0, 2.0, 3.0, 0.0]) == value
        assert again.flatten_like(value) == treedef.flatten_like(value)
        assert again.paths() == treedef.paths()


def test_structures_with_functions_pickle():
    treedef = structure([len, test_map, np.tanh, "text".upper, functools.partial(max, 1), float, None])
    assert pickle.loads(pickle.dumps(treedef)).unflatten([])[:3] == [len, test_map, np.tanh]


class Unregistered:
    pass


def test_unpickling_where_the_type_is_not_registered(monkeypatch):
    monkeypatch.setattr(tree, "_KINDS", dict(tree._KINDS))
    monkeypatch.setattr(tree, "_REGISTRY", dict(tree._REGISTRY))
    register_pytree_node(Unregistered, lambda _: ([1.0], None), lambda _, children: children)
    data = pickle.dumps(structure(Unregistered()))
    del tree._REGISTRY[Unregistered]
    with pytest.raises(TreeError, match="call register_pytree_node in the module that defines it"):
        pickle.loads(data).unflatten([1.0])


# Round trips


def containers(children):
    few = st.lists(children, max_size=3)
    keys = st.one_of(st.text("ab'{}", max_size=3), st.integers(), st.tuples(st.booleans()))
    dicts = st.dictionaries(keys, children, max_size=3)
    return st.one_of(
        few,
        few.map(tuple),
        dicts,
        dicts.map(OrderedDict),
        dicts.map(lambda items: defaultdict(list, items)),
        st.builds(Point, children, children),
        st.builds(Params, children, children),
        st.builds(Layer, children, children, st.sampled_from(["relu", None, math.exp]), st.booleans()),
        st.builds(Frozen, children, children),
        st.builds(Declared, children, st.floats(allow_nan=False)),
        st.builds(Interval, children, children, closed=st.booleans()),
    )


scalars = st.one_of(st.floats(allow_nan=False), st.integers(), st.text("ab.", max_size=2), st.none(), st.just(math.cos))
trees = st.recursive(scalars, containers, max_leaves=20)


@settings(deadline=None)
@given(trees)
def test_round_trip(value):
    found, treedef = flatten(value)
    assert isinstance(treedef, TreeDef)
    assert treedef.unflatten(found) == value
    assert treedef.num_leaves == len(found) == len(paths(value)) == repr(treedef).count("*")
    assert treedef.flatten_like(value) == found
    assert pickle.loads(pickle.dumps(treedef)) == treedef
    numbers = list(range(len(found)))
    assert flatten(treedef.unflatten(numbers)) == (numbers, treedef)


@settings(deadline=None)
@given(trees, trees)
def test_flatten_like_agrees_with_equality(first, second):
    treedef = structure(first)
    if treedef == structure(second):
        assert hash(treedef) == hash(structure(second))
        assert treedef.flatten_like(second) == leaves(second)
    else:
        try:
            found = treedef.flatten_like(second)
        except TreeError:
            return
        assert Counter(map(repr, found)) == Counter(map(repr, leaves(second)))  # in another order of keys


@settings(deadline=None)
@given(st.dictionaries(st.text(max_size=3), trees, max_size=5), st.randoms())
def test_order_of_keys_does_not_matter(value, random):
    keys = list(value)
    random.shuffle(keys)
    shuffled = {key: value[key] for key in keys}
    assert structure(value).flatten_like(shuffled) == leaves(value)
