"""Memory that is used again, and rules that run block by block."""

from __future__ import annotations

import contextvars
import functools
import gc
import itertools
import operator
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from meintorch import Tensor, func, grad, value_and_grad, vjp
from meintorch.core import large

F8 = np.dtype(float)


@pytest.fixture(autouse=True)
def reusing() -> Iterator[large.Memory]:
    """Let large results be put into a memory of the test."""
    memory = large.Memory()
    with large.Reusing(None, memory):
        yield memory


def test_memory_is_used_again() -> None:
    x = large.empty((100,), F8)
    where = x.ctypes.data
    del x
    assert large.empty((100,), F8).ctypes.data == where


HOLDERS: list[Callable[[Any], Any]] = [
    lambda x: x,
    lambda x: x[1:3],
    lambda x: x.reshape(10, 10).T[2],
    lambda x: memoryview(x),
    lambda x: np.lib.stride_tricks.as_strided(x, (2,), (8,)),
    lambda x: np.broadcast_to(x, (3, 100)),
    lambda x: x.flat,
    lambda x: (y for y in x),
    lambda x: x.ctypes,
    lambda x: np.array([x, None], object),
]


@pytest.mark.parametrize("holder", HOLDERS)
def test_memory_that_somebody_holds_is_left_alone(holder: Callable[[Any], Any]) -> None:
    x = large.empty((100,), F8)
    where = x.ctypes.data
    held = holder(x)
    del x
    taken = [large.empty((100,), F8) for _ in range(3)]
    assert where not in {y.ctypes.data for y in taken}
    del held
    assert large.empty((100,), F8).ctypes.data == where


def test_shapes_and_dtypes_do_not_share() -> None:
    for shape, dtype in itertools.product([(4, 6), (6, 4), (24,)], [np.float32, np.float64]):
        x = large.empty(shape, np.dtype(dtype))
        assert (x.shape, x.dtype, x.flags.c_contiguous, x.base) == (shape, dtype, True, None)


def test_no_more_is_remembered_than_the_bound(monkeypatch: pytest.MonkeyPatch, reusing: large.Memory) -> None:
    monkeypatch.setattr(large, "MOST", 10_000)
    for n in range(100, 300):
        large.empty((n,), F8)
        assert sum([x.nbytes for stock in reusing.stocks.values() for x in stock]) <= 10_000


def test_in_the_end_only_numbers_are_held(reusing: large.Memory) -> None:
    for _ in range(20):
        held = [large.empty((n,), F8) for n in (30_000, 20_000, 10_000, 20_000)]
        kept, copies = held[:2], [x.copy() for x in held[:2]]
        del held
        reusing.release()
        assert all([np.array_equal(x, y, equal_nan=True) for x, y in zip(kept, copies, strict=True)])
        assert reusing.stocks == {}
        assert reusing.size == 0
    assert 1 <= len(reusing.pins) <= 4
    assert {x.nbytes for x in reusing.pins} == {8}
    before = list(reusing.pins)
    reusing.release()  # where there was nothing large
    assert all([x is y for x, y in zip(reusing.pins, before, strict=True)])


def test_nothing_is_remembered_where_references_cannot_be_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large, "COUNTS", False)

    def run() -> None:
        with large.Reusing(None, large.Memory()):
            assert not large.is_remembered(large.empty((100,), F8))

    contextvars.Context().run(run)


# ---------------------------------------------------------------- whose memory it is


def calls_with_memory(f: Any) -> int:
    """Return how many calls (of the last four) put large results of a function into memory that is used again."""
    memory = large.memories.get(f)
    return 0 if memory is None else len(memory.pins)


def in_a_fresh_context(test: Callable[[], None]) -> None:
    """Run something as if no transform were running."""
    contextvars.Context().run(test)


def test_the_first_times_leave_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large, "FIRST", 2)

    def test() -> None:
        for _ in range(3):  # the first time functions are generated
            grad(lambda x: np.sum(np.sin(x) ** 2))(np.ones(100))

        def f(x: Any) -> Any:
            return np.sum(np.sin(x) ** 2)

        for derivative in (grad(f), value_and_grad(f)):
            derivative(np.ones(100))
            assert calls_with_memory(f) == 0
        grad(f)(np.ones(100))
        assert calls_with_memory(f) > 0

    in_a_fresh_context(test)


def test_memory_goes_with_the_function() -> None:
    def test() -> None:
        def make() -> tuple[Any, Any]:
            def f(x: Any) -> Any:
                return np.sum(np.sin(x) ** 2)

            for _ in range(3):
                grad(f)(np.ones(100))
            assert calls_with_memory(f) > 0
            return weakref.ref(f), weakref.ref(large.memories[f].pins[0])

        gc.disable()
        try:
            f, x = make()
            assert f() is None
            assert x() is None
        finally:
            gc.enable()

    in_a_fresh_context(test)


@pytest.mark.parametrize(
    "differentiate",
    [
        lambda f, x: grad(f)(x),
        lambda f, x: grad(functools.partial(f))(x),
        lambda f, x: vjp(f, x)[1](1.0),
        lambda f, x: func.jvp(f, (x,), (x,)),
        lambda f, x: func.jvp(grad(f), (x,), (x,)),
        lambda f, x: func.hessian(f)(x),
        lambda f, x: func.jacrev(grad(f))(x),
        lambda f, x: func.vmap(grad(f))(np.stack([x, x])),
    ],
)
def test_all_transforms_use_the_memory_of_the_users_function(differentiate: Callable[[Any, Any], Any]) -> None:
    def test() -> None:
        def f(x: Any) -> Any:
            return np.sum(np.sin(x) ** 2)

        for _ in range(3):  # the first time functions are generated
            differentiate(f, np.ones(10))
        assert calls_with_memory(f) > 0

    in_a_fresh_context(test)


def test_nested_transforms_use_that_of_the_outermost() -> None:
    def test() -> None:
        def inner(x: Any) -> Any:
            return np.sum(np.sin(x) ** 2)

        def outer(x: Any) -> Any:
            return np.sum(grad(inner)(x) ** 2)

        for _ in range(3):
            grad(outer)(np.ones(10))
        assert calls_with_memory(outer) > 0
        assert calls_with_memory(inner) == 0

    in_a_fresh_context(test)


def test_an_exception_ends_it() -> None:
    def test() -> None:
        def f(x: Any) -> Any:
            raise ZeroDivisionError(np.sin(x))

        for transform in (grad, func.vmap, func.jacfwd, lambda f: functools.partial(vjp, f)):
            with pytest.raises(ZeroDivisionError):
                transform(f)(np.ones(10))
            assert large.memory_now() is None

    in_a_fresh_context(test)


def test_callables_that_are_no_functions_have_none() -> None:
    class Model:
        f = np.ones(3)  # a name that wrappers use

        def __call__(self, x: Any) -> Any:
            return np.sum(np.sin(x) ** 2)

    def test() -> None:
        assert np.array_equal(grad(Model())(np.zeros(10)), np.zeros(10))
        assert np.array_equal(grad(np.sum)(np.zeros(10)), np.ones(10))

    in_a_fresh_context(test)


def layouts(rng: np.random.Generator, dtype: Any) -> list[Any]:
    """Return arrays of 6 rows and 10 columns, or that broadcast to that, in all kinds of memory layouts."""
    x = rng.uniform(0.5, 1.5, (6, 10)).astype(dtype)
    wide = rng.uniform(0.5, 1.5, (12, 30)).astype(dtype)
    return [
        x,
        np.asfortranarray(x),
        x[::-1],
        x[:, ::-1],
        wide[::2, ::3],
        wide[::2, 5:15],
        wide.T[:6, :10],
        x[:1],
        x[:, :1],
        x[0],
        np.broadcast_to(x[:, :1], (6, 10)),
        np.broadcast_to(x[0], (6, 10)),
        x[0, 0],
        2,
        2.5,
    ]


def same(x: Any, y: Any) -> bool:
    """Tell whether two results have the same bits, dtype and layout."""
    return x.dtype == y.dtype and x.strides == y.strides and x.tobytes() == y.tobytes()


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("fun", [np.add, np.multiply, np.logaddexp, np.maximum, operator.sub, operator.truediv])
def test_two_operands_give_what_numpy_gives(fun: Any, dtype: Any, rng: np.random.Generator) -> None:
    for x1, x2 in itertools.product(layouts(rng, dtype), repeat=2):
        if np.ndim(x1) or np.ndim(x2):
            assert same(large.call(fun, [x1, x2]), fun(x1, x2))
    others: list[Any] = [np.arange(1, 11), np.float64(3), True, np.ones(10, np.float32), np.float32(2)]
    for other in others if fun is np.logaddexp else [*others, np.ones(10, complex), 2j]:
        x = layouts(rng, dtype)[0]
        assert same(large.call(fun, [x, other]), fun(x, other))
        assert same(large.call(fun, [other, x]), fun(other, x))


def test_shapes_that_do_not_fit_are_numpys_error() -> None:
    with pytest.raises(ValueError, match=r"could not be broadcast together with shapes \(10,\) \(11,\)"):
        large.call(np.add, [np.ones(10), np.ones(11)])
    with pytest.raises(ValueError, match=r"mismatch in its core dimension"):
        large.matmul(np.ones((10, 10)), np.ones((11, 10)))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("fun", [np.exp, np.sqrt, np.negative, np.absolute, operator.neg, np.isnan, np.frexp])
def test_one_operand_gives_what_numpy_gives(fun: Any, dtype: Any, rng: np.random.Generator) -> None:
    for x in layouts(rng, dtype)[:-3]:
        ours, plain = large.call(fun, [x]), fun(x)
        assert all([same(a, b) for a, b in zip(ours, plain, strict=True)]) if fun is np.frexp else same(ours, plain)


def test_products_of_matrices(rng: np.random.Generator) -> None:
    a, b = rng.normal(size=(7, 5)), rng.normal(size=(5, 6))
    stack_a, stack_b = rng.normal(size=(3, 7, 5)), rng.normal(size=(6, 5, 3)).T
    for x, y in [(a, b), (b.T, a.T), (stack_a, stack_b.swapaxes(1, 2)[:, :5]), (stack_a, b), (a, b[:, 0]), (a[0], b)]:
        if x.shape[-1] == y.shape[-2 if y.ndim > 1 else 0]:
            assert same(large.matmul(x, y), np.matmul(x, y))


@pytest.mark.parametrize("size", [1, 4, 5, 6, 23])
@pytest.mark.parametrize("owned", [False, True])
def test_blocks_give_what_the_whole_gives(size: int, owned: bool, rng: np.random.Generator) -> None:
    x, g = rng.normal(size=(2, size)), rng.normal(size=(2, size))
    expected = 3 * x**2 * g
    h = large.by_blocks(lambda x, n: n * x**2, (x, 3), g, owned, False)
    assert np.array_equal(h, expected)
    assert (h is g) == owned
    constant = np.broadcast_to(2.0, (2, size))
    assert np.array_equal(large.by_blocks(lambda x: x**2, (x,), constant, owned, False), x**2 * 2)
    assert np.array_equal(large.by_blocks(lambda g, x: g * x**2, (x,), constant, owned, True), x**2 * 2)
    assert np.array_equal(large.by_blocks(lambda x: x, (x.T.copy(),), constant.T, owned, False), 2 * x.T)
    assert np.array_equal(large.by_blocks(lambda x: x, (x[0],), np.ones((2, size)), owned, False), np.stack([x[0]] * 2))


def smooth(x: Any) -> Any:
    """A function whose gradient makes many arrays."""
    y = np.tanh(x) * np.exp(-x * x) + np.sin(x) / (1 + x**2)
    return np.sum(np.maximum(y, 0.1 * x) ** 2)


def smooth_slope(x: Any) -> Any:
    """Its derivative, by complex step; a branch of the maximum is that of the real part."""
    z = x + 1e-30j
    y = np.tanh(z) * np.exp(-z * z) + np.sin(z) / (1 + z**2)
    return np.imag(np.where(y.real > 0.1 * x, y, 0.1 * z) ** 2) / 1e-30


def test_results_stay_what_they_are(rng: np.random.Generator) -> None:
    f = value_and_grad(smooth)
    points = [rng.normal(size=50) for _ in range(20)]
    gradients = [f(x)[1] for x in points]
    for x, g in zip(points, gradients, strict=True):
        assert np.allclose(g, smooth_slope(x), rtol=1e-12)


def test_a_graph_keeps_its_values(rng: np.random.Generator) -> None:
    pullbacks = [(x, vjp(smooth, x)[1]) for x in rng.normal(size=(10, 50))]
    for x, pullback in pullbacks * 2:
        (g,) = pullback(1.0)
        assert np.allclose(g, smooth_slope(x), rtol=1e-12)


def test_threads_do_not_take_each_others_memory(rng: np.random.Generator) -> None:
    wrong: list[Any] = []

    def run(x: Any) -> None:
        expected = smooth_slope(x)
        for _ in range(40):
            g = grad(smooth)(x)
            if not np.allclose(g, expected, rtol=1e-12):
                wrong.append(x)

    threads = [threading.Thread(target=run, args=(x,)) for x in rng.normal(size=(6, 500))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_result_can_be_added_to(rng: np.random.Generator) -> None:
    x = rng.normal(size=50)

    def f(y: Any) -> Any:
        acc = grad(smooth)(x)  # a plain array, which nobody else has seen
        acc += y
        return np.sum(acc**2)

    assert np.allclose(grad(f)(np.zeros(50)), 2 * smooth_slope(x), rtol=1e-12)


# ---------------------------------------------------------------- what users do with results


def freeze(y: Any) -> None:
    y.flags.writeable = False


def reshape(y: Any) -> None:
    y.shape = (5, 20)


def swap(y: Any) -> None:
    y.dtype = y.dtype.newbyteorder()


def reinterpret(y: Any) -> None:
    y.dtype = np.int64


def resize(y: Any) -> None:
    y.resize(7, refcheck=False)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("change", [freeze, reshape, swap, reinterpret, resize])
def test_an_array_that_was_changed_in_place_is_not_used_again(change: Callable[[Any], None]) -> None:
    for _ in range(5):
        x = large.empty((100,), F8)
        change(x)
        del x
    for _ in range(5):
        x = large.empty((100,), F8)
        assert (x.shape, x.dtype, x.flags.carray, x.nbytes) == ((100,), F8, True, 800)
        x.fill(1.0)


def test_an_array_that_is_weakly_referred_to_is_not_used_again() -> None:
    x = large.empty((100,), F8)
    reference = weakref.ref(x)
    del x
    assert large.empty((100,), F8) is not reference()


def test_to_look_at_the_data_of_a_tensor_changes_nothing(rng: np.random.Generator) -> None:
    few = np.arange(60)

    def f(y: Any) -> Any:
        return np.sum(np.take(y, few, axis=0) ** 2)

    x = rng.normal(size=100)
    expected = np.where(np.arange(100) < 60, 2 * x, 0)
    for _ in range(3):
        g = grad(f)(Tensor(x))
        assert np.allclose(g.data, expected)
        del g
        assert np.allclose(grad(f)(x), expected)


def test_outputs_beside_keep_their_class() -> None:
    masked: Any = np.ma.masked_array(np.arange(100.0), mask=np.arange(100) % 2)
    _, _, aux = vjp(lambda x: (np.sum(x * x), masked), np.ones(30), has_aux=True)
    assert isinstance(aux, np.ma.MaskedArray)
    assert np.array_equal(aux.mask, masked.mask)


@pytest.mark.parametrize("name", ["eval_chebyt", "eval_legendre", "expn", "yn", "kn"])
def test_integer_orders_make_double_precision_where_scipy_does(name: str) -> None:
    fun = getattr(pytest.importorskip("scipy.special"), name)
    x = np.linspace(0.1, 1.0, 30, dtype=np.float32)
    value = func.vmap(lambda x: fun(3, x))(x.reshape(3, 10))
    assert value.dtype == fun(3, x).dtype
    assert np.array_equal(value.reshape(-1), fun(3, x))


def test_a_wider_derivative_is_not_rounded(rng: np.random.Generator) -> None:
    xlogy = pytest.importorskip("scipy.special").xlogy
    x = np.linspace(0.1, 1.0, 30, dtype=np.float32)
    for _ in range(3):
        _, tangent = func.jvp(lambda x: xlogy(x, 1.5), (x,), (np.ones_like(x),))
        assert tangent.dtype == xlogy(x, 1.5).dtype
        assert np.allclose(
            tangent, np.log(1.5), rtol=4 * np.finfo(tangent.dtype).eps
        )  # which depends on the version of SciPy


def test_a_tracer_that_holds_variables_at_import_does_no_harm() -> None:
    program = """
import sys, numpy as np
def look(frame, event, arg):
    frame.f_locals
    return look
sys.settrace(look)
import meintorch
sys.settrace(None)
from meintorch.core import graph, large
with large.Reusing(None, large.Memory()):
    x = large.empty((100,), np.dtype(float))
    held = [x]
    del x
    assert large.empty((100,), np.dtype(float)) is not held[0]
x = np.ones(1)
held = [x]
assert not graph.sole(x)
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
