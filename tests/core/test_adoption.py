"""Plain arrays to which traced values are added: `meintorch.core.adoption`.

Each program adds to an array; if nobody else can see the array it goes on as a traced one, else there is an error.
"""

import operator
import sys
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from meintorch.core import adoption
from meintorch.errors import InPlaceError
from meintorch.func import grad, hessian, jacfwd, value_and_grad, vmap

x = np.array([1.0, -2.0, 0.5])


def a_name(t: Any) -> Any:
    acc = np.ones(3)
    acc += t
    return acc


def an_attribute(t: Any) -> Any:
    it = SimpleNamespace(acc=np.ones(3))
    it.acc += t
    return it.acc


def an_item(t: Any) -> Any:
    items = {"acc": np.ones(3)}
    items["acc"] += t
    return items["acc"]


def an_element(t: Any) -> Any:
    items = [np.ones(3)]
    items[0] += t
    return items[0]


def a_cell(t: Any) -> Any:
    acc = np.ones(3)

    def add() -> None:
        nonlocal acc
        acc += t

    add()
    return acc


def a_generator(t: Any) -> Any:
    def sums() -> Iterator[Any]:
        acc = np.ones(3)
        acc += t
        yield acc

    return next(sums())


def a_global(t: Any) -> Any:
    names = {"np": np, "t": t}
    exec("acc = np.ones(3)\nacc += t", names)
    return names["acc"]


def a_view_of_what_nobody_holds(t: Any) -> Any:
    acc = np.ones((3, 1)).reshape(3)
    acc += t
    return acc


def no_name(t: Any) -> Any:
    return np.add(t, 1.0, out=np.zeros(3))


def no_name_and_a_mask(t: Any) -> Any:
    return np.add(t, 1.0, out=np.zeros(3), where=np.array([True, True, False])) + np.array([0.0, 0.0, 1.0]) * (t + 1.0)


def a_thread(t: Any) -> Any:
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(a_name(t)))
    thread.start()
    thread.join()
    return results[0]


def a_loop(t: Any) -> Any:
    acc = np.zeros(3)
    for k in range(3):
        acc += (k / 3) * t
    acc -= -1.0
    acc *= np.ones(3)
    return acc


SEEN = [a_name, an_attribute, an_item, an_element, a_cell, a_generator, a_global]
SEEN += [a_view_of_what_nobody_holds, no_name, no_name_and_a_mask, a_thread, a_loop]


@pytest.mark.parametrize("program", SEEN)
def test_an_array_that_nobody_else_holds_goes_on_as_a_traced_one(program: Callable[[Any], Any]) -> None:
    def loss(t: Any) -> Any:
        return np.sum(np.sin(program(t)))

    value, g = value_and_grad(loss)(x)
    assert value == loss(x)
    np.testing.assert_allclose(g, np.cos(x + 1.0), rtol=1e-14)
    np.testing.assert_allclose(jacfwd(loss)(x), np.cos(x + 1.0), rtol=1e-14)
    np.testing.assert_allclose(hessian(loss)(x), np.diag(-np.sin(x + 1.0)), rtol=1e-14)
    np.testing.assert_allclose(vmap(grad(loss))(np.stack([x, 2 * x])), np.cos(np.stack([x, 2 * x]) + 1.0), rtol=1e-14)


def another_name(t: Any) -> None:
    acc = np.ones(3)
    other = acc
    acc += t
    del other


def a_list(t: Any) -> None:
    acc = np.ones(3)
    items = [acc]
    acc += t
    del items


def another_item(t: Any) -> None:
    items = {"acc": np.ones(3)}
    other = items["acc"]
    items["acc"] += t
    del other


def a_slice(t: Any) -> None:
    acc = np.ones(6)
    acc[:3] += t


def a_row(t: Any) -> None:
    rows = np.ones((2, 3))
    row = rows[0]
    row += t


def each_row(t: Any) -> None:
    rows = np.ones((2, 3))
    for row in rows:
        row += t  # noqa: PLW2901 - what is in question


def the_caller(t: Any) -> None:
    acc = np.ones(3)

    def add(to: Any) -> None:
        to += t

    add(acc)


def a_default(t: Any, acc: Any = np.ones(3)) -> None:  # noqa: B008 - what is in question
    acc += t


def a_memory_view(t: Any) -> None:
    acc = np.ones(3)
    view = memoryview(acc)
    acc += t
    del view


def an_iterator(t: Any) -> None:
    acc = np.ones(3)
    entries = iter(acc)
    acc += t
    del entries


def a_result_that_is_dropped(t: Any) -> None:
    acc = np.ones(3)
    np.add(acc, t, out=acc)


def memory_of_another_library(t: Any) -> None:
    acc = np.frombuffer(bytearray(24))
    acc += t


def a_function_instead_of_the_operator(t: Any) -> None:
    acc = np.ones(3)
    acc = operator.iadd(acc, t)


HELD = [another_name, a_list, another_item, a_slice, a_row, each_row, the_caller, a_default, a_memory_view, an_iterator]
HELD += [a_result_that_is_dropped, memory_of_another_library, a_function_instead_of_the_operator]


@pytest.mark.parametrize("program", HELD)
def test_an_array_that_others_hold_is_refused(program: Callable[[Any], None]) -> None:
    with pytest.raises(InPlaceError, match=r"np\.zeros_like"):
        grad(lambda t: (program(t), np.sum(t))[1])(x)


def test_what_numpy_refuses_stays_an_error() -> None:
    def integers(t: Any) -> Any:
        acc = np.zeros(3, int)
        acc += t
        return np.sum(acc)

    def too_small(t: Any) -> Any:
        acc = np.zeros(1)
        acc += t
        return np.sum(acc)

    with pytest.raises(TypeError, match="same_kind"):
        grad(integers)(x)
    with pytest.raises(ValueError, match="non-broadcastable"):
        grad(too_small)(x)


def test_a_tracer_that_looks_at_local_names_hides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adoption, "counts", {})

    def tracer(frame: Any, event: str, arg: object) -> Any:
        assert frame.f_locals is not None, (event, arg)
        return tracer

    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        for program in HELD:
            with pytest.raises(InPlaceError):
                grad(lambda t, program=program: (program(t), np.sum(t))[1])(x)
    finally:
        sys.settrace(before)
    for program in HELD:
        with pytest.raises(InPlaceError):
            grad(lambda t, program=program: (program(t), np.sum(t))[1])(x)


def test_where_counts_cannot_be_trusted_all_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adoption, "TRUSTED", False)
    with pytest.raises(InPlaceError, match=r"a = a \+ t"):
        grad(lambda t: np.sum(a_name(t)))(x)
