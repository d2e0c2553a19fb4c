"""The promises that no single feature owns: composing, leaving nothing behind, linear cost."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
import time
import tracemalloc
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from meintorch import errors
from meintorch.core.captured import is_writable
from meintorch.func import checkpoint, custom_jvp, grad, root, value_and_grad, vjp
from meintorch.tensor import Tensor
from tests.conftest import objects_left_by

# ---------------------------------------------------------------- P4: inputs untouched


def test_read_only_strided_and_fortran_inputs_are_fine_and_untouched(rng: np.random.Generator) -> None:
    base = rng.normal(size=(6, 8))
    for given in (base.T, base[::2, ::-1], np.asfortranarray(base), np.broadcast_to(base[0], (3, 8)), base[:0]):
        x = given.view()
        x.flags.writeable = False
        before = x.copy()
        g = grad(lambda x: np.sum(np.sin(x) * x))(x)
        np.testing.assert_allclose(g, np.cos(x) * x + np.sin(x))
        np.testing.assert_array_equal(x, before)


# ---------------------------------------------------------------- P5: composable


def test_threads_started_inside_a_function_that_is_being_differentiated() -> None:
    """A level counted per thread would give 0 here instead of 6: both traces would be number one of their thread."""

    def f(x: Any) -> Any:
        with ThreadPoolExecutor(1) as pool:
            first = pool.submit(lambda: grad(lambda y: x * y * y)(3.0)).result()
            second = pool.submit(lambda: grad(lambda y: y * y * x)(3.0)).result()
        return first + second

    assert grad(f)(1.0) == 12.0


def test_generators_suspended_inside_transforms() -> None:
    def steps(x: Any) -> Any:
        y = x
        while True:
            y = y * x
            yield y

    def f(x: Any) -> Any:
        powers = steps(x)
        next(powers)
        inner = grad(lambda z: next(powers) * z)(2.0)  # x**3
        return inner * next(powers)  # x**7

    assert grad(f)(2.0) == 7 * 2.0**6


def test_coroutines_that_interleave() -> None:
    async def job(k: float) -> float:
        started = asyncio.Event()

        def f(x: Any) -> Any:
            return np.sin(x) * k

        started.set()
        await asyncio.sleep(0)
        first = grad(grad(f))(0.3)
        await asyncio.sleep(0)
        return float(first)

    async def main() -> list[float]:
        return list(await asyncio.gather(*[job(float(k)) for k in range(5)]))

    np.testing.assert_allclose(asyncio.run(main()), [-np.sin(0.3) * k for k in range(5)])


# ---------------------------------------------------------------- P6: nothing left behind


@pytest.mark.parametrize(
    "call",
    [
        lambda: grad(lambda x: np.sum(np.tanh(x) * x))(np.ones(5)),
        lambda: grad(lambda x: grad(lambda y: np.sum(y * x) ** 2)(x)[0])(np.ones(5)),
        lambda: value_and_grad(lambda p: np.sum(p["w"] @ p["w"]))({"w": np.eye(3)}),
        lambda: vjp(lambda x: (x * 2, x[::2]), np.ones(4))[1]((np.ones(4), np.ones(2))),
        lambda: (Tensor([1.0, 2.0]) * 3.0).sum().backward(),
        lambda: grad(lambda x: np.sum(checkpoint(lambda z: np.sin(z) * x)(x)))(np.ones(5)),
        lambda: grad(lambda a: root(lambda x, a: x * x - a, 1.0, a))(4.0),
        lambda: custom_jvp(lambda x: x).defjvp(lambda primals, tangents: (primals[0], tangents[0])),
    ],
    ids=["grad", "nested", "tree", "vjp", "objects", "checkpoint", "root", "custom_jvp"],
)
def test_no_cycles(call: Callable[[], Any], engine: str) -> None:
    assert objects_left_by(call) == 0


def test_no_cycles_after_an_exception(engine: str) -> None:
    class MyError(Exception):
        pass

    def f(x: Any) -> Any:
        y = x * 2.0
        if y.ndim:
            raise MyError
        return y

    def call() -> None:
        with contextlib.suppress(MyError):
            grad(lambda x: grad(f)(x * 2.0))(np.ones(3))

    assert objects_left_by(call) == 0
    assert grad(lambda x: x * x)(3.0) == 6.0


def test_values_are_freed_as_soon_as_the_program_drops_them() -> None:
    """What no rule keeps is gone at once, although the graph goes on."""
    seen: list[weakref.ref[Any]] = []

    def f(x: Any) -> Any:
        y = x + 1.0  # addition keeps nothing
        seen.append(weakref.ref(y.value))
        z = y + 2.0
        del y
        assert seen[0]() is None
        return np.sum(z)

    grad(f)(np.ones(3))


def test_a_graph_is_freed_with_its_pullback() -> None:
    kept = np.full(5000, 2.0)  # small ones are kept by value
    alive = weakref.ref(kept)
    out, pullback = vjp(lambda x, c=kept: np.sum(x * c), np.ones(5000))
    del kept
    gc.disable()
    try:
        assert alive() is not None  # the pullback needs it
        del pullback, out
        assert alive() is None
    finally:
        gc.enable()


@pytest.mark.usefixtures("usual_sizes")
def test_memory_is_flat_without_the_collector() -> None:
    x = np.linspace(0.0, 1.0, 50_000)
    f = lambda x: np.sum(np.exp(np.sin(x) * x) + x**2)  # noqa: E731
    grad(f)(x)
    gc.collect()
    gc.disable()
    try:
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(20):
            grad(f)(x)
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
        gc.enable()
    assert grown < 400_000  # one array is 400 kB


def test_eight_threads_at_different_depths(engine: str) -> None:
    wrong: list[Any] = []

    def job(k: int) -> None:
        f: Any = np.sin
        want = np.sin
        for _ in range(k % 4 + 1):
            f = grad(f)
        derivatives = [np.cos, lambda x: -np.sin(x), lambda x: -np.cos(x), np.sin]
        want = derivatives[k % 4]
        for n in range(30):
            x = 0.1 * n + k
            if abs(f(x) - want(x)) > 1e-12:
                wrong.append((k, n))

    threads = [threading.Thread(target=job, args=(k,)) for k in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert wrong == []


def test_threads_that_share_one_trace() -> None:
    def f(x: Any) -> Any:
        with ThreadPoolExecutor(8) as pool:
            parts = list(pool.map(lambda k: sum([x[k] * x[k] for _ in range(50)]), range(16)))
        return sum(parts)

    x = np.arange(16.0)
    for _ in range(5):
        np.testing.assert_allclose(grad(f)(x), 100 * x)


# ---------------------------------------------------------------- P7: linear cost


def test_twenty_thousand_steps_in_both_styles(engine: str) -> None:
    def f(x: Any) -> Any:
        y = x
        for _ in range(20_000):
            y = y * 0.9999
        return y

    np.testing.assert_allclose(grad(f)(2.0), 0.9999**20_000, rtol=1e-9)
    x = Tensor(2.0)
    y = x
    for _ in range(20_000):
        y = y + x
    y.backward()
    assert x.grad == 20_001.0


def test_a_million_nodes() -> None:
    def f(x: Any, steps: int) -> Any:
        y = x
        for _ in range(steps):
            y = y * 0.999999 + 1e-7
        return y

    np.testing.assert_allclose(grad(f)(1.0, 500_000), 0.999999**500_000, rtol=1e-8)
    tracemalloc.start()
    try:
        grad(f)(1.0, 25_000)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 260 * 50_000  # bytes a node


def test_a_loop_over_elements_is_linear() -> None:
    def f(x: Any) -> Any:
        total = 0.0
        for i in range(len(x)):
            total = total + x[i] * x[i]
        return total

    def seconds(n: int) -> float:
        x = np.linspace(0.0, 1.0, n)
        best = np.inf
        for _ in range(3):
            start = time.perf_counter()
            g = grad(f)(x)
            best = min(best, time.perf_counter() - start)
        np.testing.assert_allclose(g, 2 * x)
        return best

    seconds(100)
    assert seconds(16_000) < 40 * seconds(2_000)  # quadratic would be 64, and far more with arrays of this size


def test_a_loop_over_rows_keeps_one_buffer() -> None:
    """Each row's share is added into one array: no dense gradient of the whole for each row."""
    X = np.ones((2_000, 500))

    def f(X: Any) -> Any:
        total = 0.0
        for row in X:
            total = total + np.sum(row * row)
        return total

    tracemalloc.start()
    try:
        g = grad(f)(X)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    np.testing.assert_array_equal(g, 2 * X)
    assert peak < 5 * X.nbytes


# ---------------------------------------------------------------- P2: arrays that are written to after they were used


def test_small_arrays_that_are_overwritten_after_use_are_kept_by_value() -> None:
    def work_buffer(x: Any) -> Any:
        w, total = np.zeros(3), 0.0
        for k in range(3):
            w[:] = k + 1.0
            total = total + np.sum(w * x) + np.sum(x * w) + np.sum(np.multiply(w, x)) + w @ x
        return total

    np.testing.assert_array_equal(grad(work_buffer)(np.ones(3)), [24.0] * 3)

    def moving_index(x: Any) -> Any:
        i, total = np.array([0, 1]), 0.0
        for _ in range(3):
            total = total + np.sum(x[i] ** 2)
            i += 1
        return total

    np.testing.assert_array_equal(grad(moving_index)(np.ones(5)), [2.0, 4.0, 4.0, 2.0, 0.0])

    def growing_mask(x: Any) -> Any:
        mask, total = np.zeros(3, bool), 0.0
        for k in range(3):
            mask[k] = True
            total = total + np.sum(np.where(mask, x, 0.0)) + np.sum(x[mask])
        return total

    np.testing.assert_array_equal(grad(growing_mask)(np.ones(3)), [6.0, 4.0, 2.0])


@pytest.mark.parametrize(
    ("use", "want"),
    [
        (lambda x, m, c, i: np.sum(x, where=m), [1.0, 0.0]),
        (lambda x, m, c, i: np.sum(np.take(x, indices=i)), [2.0, 0.0]),
        (lambda x, m, c, i: np.dot(a=x, b=c), [2.0, 3.0]),
        (lambda x, m, c, i: np.sum(np.clip(x, a_min=0.0, a_max=c)), [1.0, 1.0]),
        (lambda x, m, c, i: np.sum(np.select(condlist=[m], choicelist=[x])), [1.0, 0.0]),
        (lambda x, m, c, i: np.linalg.multi_dot([x, np.diag(c), x]), [4.0, 6.0]),
        (lambda x, m, c, i: np.sum(np.concatenate([c, x])[i + 2]), [2.0, 0.0]),
    ],
)
def test_arrays_given_by_keyword_or_in_lists_are_kept_by_value(use: Any, want: Any) -> None:
    def f(x: Any) -> Any:
        m, c, i = np.array([True, False]), np.array([2.0, 3.0]), np.array([0, 0])
        total = use(x, m, c, i)
        m[:] = False
        c[:] = -7.0
        i[:] = 1
        return total

    np.testing.assert_array_equal(grad(f)(np.ones(2)), want)


def test_what_a_checkpoint_finds_changed_is_an_error() -> None:
    def f(x: Any) -> Any:
        c = np.array([1.0, 2.0])
        y = checkpoint(lambda x: x * c)(x)
        c[:] = 0.0
        return np.sum(y)

    with pytest.raises(errors.InPlaceError, match="written to afterwards"):
        grad(f)(np.ones(2))


def test_buffers_that_were_filled_again_are_kept_by_value() -> None:
    w = np.ones(5_000)

    def f(x: Any) -> Any:
        total = np.sum(w * x)
        w[:] = 3.0
        return total + np.sum(x * w)

    np.testing.assert_array_equal(grad(f)(np.ones(5_000)), 4.0)
    w[:] = 1.0
    _, pullback = vjp(f, np.ones(5_000))
    w[:] = 7.0
    for _ in range(2):
        np.testing.assert_array_equal(pullback(1.0)[0], 4.0)


@pytest.mark.parametrize("n", [70_000, 100_000])
def test_larger_arrays_that_were_filled_again_are_an_error_that_names_the_line(n: int) -> None:
    def f(x: Any) -> Any:
        w = np.ones(n)
        total = np.sum(w * x)
        w[:] = 3.0
        return total + np.sum(x * w)

    for use in (lambda: grad(f)(np.ones(n)), lambda: vjp(f, np.ones(n))[1](1.0)):
        with pytest.raises(
            errors.InPlaceError, match=r"test_promises\.py line \d+, in .*written to afterwards.*copy\(\)"
        ):
            use()
    kept = np.ones(n)
    _, pullback = vjp(lambda x: np.sum(np.matmul(kept, x)), np.ones(n))
    np.testing.assert_array_equal(pullback(1.0)[0], kept)
    kept *= 2.0
    with pytest.raises(errors.InPlaceError, match="written to afterwards"):
        pullback(1.0)


def test_a_replay_that_computes_something_else_is_an_error() -> None:
    b = np.ones(2)
    draw = np.random.default_rng(0)
    scale = [1.0]

    def loop(x: Any) -> Any:
        total = 0.0
        for k in range(3):
            total = total + np.sum(checkpoint(lambda u: u * (k + 1))(x))  # noqa: B023  the variable of the loop is the point
        return total

    def refilled(x: Any) -> Any:
        total = 0.0
        for k in range(3):
            b[:] = k + 1
            total = total + np.sum(checkpoint(lambda u: u * np.exp(b))(x))
        return total

    def state(x: Any) -> Any:
        y = checkpoint(lambda u: u * scale[0])(x)
        scale[0] += 1.0
        return np.sum(y)

    def dropout(x: Any) -> Any:
        return np.sum(checkpoint(lambda u: u * (draw.random(100) > 0.5))(x))

    def closes_over_more(x: Any) -> Any:
        extra: list[Any] = []
        y = checkpoint(lambda u: sum(extra, u * 2.0))(x)
        extra.append(x + 1.0)
        return np.sum(y)

    for f, n in ((loop, 2), (refilled, 2), (state, 2), (dropout, 100), (closes_over_more, 2)):
        with pytest.raises(errors.InPlaceError, match="another result"):
            grad(f)(np.ones(n))
        with pytest.raises(errors.InPlaceError, match="another result"):
            grad(lambda x: np.sum(grad(f)(x)))(np.ones(n))  # noqa: B023


def write_negative(a: Any) -> None:
    np.negative(a, out=a)


def write_double(a: Any) -> None:
    a *= 2


def write_sorted(a: Any) -> None:
    a.sort()


def write_reversed(a: Any) -> None:
    a[:] = a[::-1].copy()


def write_rolled(a: Any) -> None:
    a[:] = np.roll(a, 1)


def write_swapped(a: Any) -> None:
    a[[0, 1]] = a[[1, 0]]


def write_one(a: Any) -> None:
    a[5] = 7


@pytest.mark.parametrize("dtype", ["f8", "f4", "c16", "i8", "strided", "nan"])
@pytest.mark.parametrize(
    "write",
    [write_negative, write_double, write_sorted, write_reversed, write_rolled, write_swapped, write_one],
)
def test_a_write_to_a_medium_array_changes_nothing(write: Any, dtype: str) -> None:
    a = np.random.default_rng(0).normal(size=16_384) * 100
    if dtype == "strided":
        a = a[::2]
    elif dtype == "nan":
        a[3] = np.nan
    else:
        a = a.astype(dtype)

    want = np.sum(np.real(a), dtype=float)

    def f(x: Any) -> Any:
        y = np.sum(np.real(x[0] * a))
        write(a)
        return y

    np.testing.assert_allclose(grad(f)(np.ones(2)), [want, 0.0], rtol=1e-4 if dtype == "f4" else 1e-9)


def test_a_medium_array_that_was_changed_and_changed_back_is_kept_by_value() -> None:
    def f(x: Any) -> Any:
        a = np.ones(5_000)
        y = np.sum(x * a)
        a[:] = 2.0
        z = np.sum(x * a)
        a[:] = 1.0
        return y + z

    np.testing.assert_array_equal(grad(f)(np.ones(5_000)), 3.0)


@pytest.mark.parametrize("n", [70_000, 100_000])
def test_an_array_that_was_changed_and_changed_back_is_noticed(n: int) -> None:
    def f(x: Any) -> Any:
        a = np.ones(n)
        y = np.sum(x * a)
        a[:] = 2.0
        z = np.sum(x * a)
        a[:] = 1.0
        return y + z

    with pytest.raises(errors.InPlaceError, match="written to afterwards"):
        grad(f)(np.ones(n))


def broadcast_view(base: Any) -> Any:
    return np.broadcast_to(base, (100, base.size))


def sliding_view(base: Any) -> Any:
    return np.lib.stride_tricks.sliding_window_view(base, 50)


def fixed_view(base: Any) -> Any:
    view = np.ones((60, base.size))[:]
    view.base[:] = base
    view.flags.writeable = False
    return view


@pytest.mark.parametrize(
    "use",
    [
        lambda x, a: np.concatenate([x, a]),
        lambda x, a: np.stack([a, x]),
        lambda x, a: np.append(x, a),
        lambda x, a: np.where(np.arange(10_000) % 2 == 0, x, a),
    ],
)
def test_an_array_that_no_derivative_needs_may_be_written_to(use: Any) -> None:
    def f(x: Any) -> Any:
        a = np.ones(10_000)
        y = np.sum(use(x, a))
        a[:] = -1.0
        return y

    assert np.sum(grad(f)(np.ones(10_000))) in (5_000.0, 10_000.0)


@pytest.mark.parametrize("n", [150, 1500])
@pytest.mark.parametrize("look", [broadcast_view, sliding_view, fixed_view])
def test_read_only_views_of_writable_memory_are_kept_or_checked(look: Any, n: int) -> None:
    base = np.random.default_rng(0).normal(size=n)
    view = look(base)
    owner = view.base if look is fixed_view else base

    def f(x: Any) -> Any:
        y = np.sum(x * view)
        owner[:] = 0.0
        return y

    if n == 150:
        want = np.sum(view)
        np.testing.assert_allclose(grad(f)(np.ones(())), want)
        return
    with pytest.raises(errors.InPlaceError, match="written to afterwards"):
        grad(f)(np.ones(()))


def test_memory_that_nobody_can_write_to_is_not_checked() -> None:
    constant = np.frombuffer(np.ones(5_000).tobytes())
    assert not is_writable(constant)
    assert grad(lambda x: np.sum(x * constant))(2.0) == 5_000.0


def test_subclasses_and_memory_maps_are_kept_by_value(tmp_path: Any) -> None:
    class Sub(np.ndarray):
        pass

    for n in (5, 5_000, 70_000):
        for a in (np.memmap(tmp_path / f"a{n}", dtype=float, mode="w+", shape=(n,)), np.ones(n).view(Sub)):
            a[:] = 3.0

            def f(x: Any) -> Any:
                y = np.sum(x * a)  # noqa: B023
                a[:] = 0.0  # noqa: B023
                return y

            if n < 70_000:
                np.testing.assert_array_equal(grad(f)(np.ones(n)), 3.0)
            else:
                with pytest.raises(errors.InPlaceError, match="written to afterwards"):
                    grad(f)(np.ones(n))


def test_the_line_is_the_users_where_derivatives_are_nested() -> None:
    a = np.ones(70_000)

    def f(x: Any) -> Any:
        inner = grad(lambda u: np.sum(u * u * a))(x)
        a[:] = 2.0
        return np.sum(inner)

    with pytest.raises(errors.InPlaceError, match=r"test_promises\.py line \d+, in"):
        grad(f)(np.ones(70_000))
    a[:] = 1.0
    with pytest.raises(errors.InPlaceError, match=r"test_promises\.py line \d+, in"):
        grad(lambda x: np.sum(np.sin(grad(lambda u: np.sum(a * u * u))(x) * x) * [write_double(a), 1.0][1]))(
            np.ones(70_000)
        )


@pytest.mark.parametrize("n", [5_000, 100_000])
def test_the_object_style_checks_large_arrays_too(n: int) -> None:
    v, a = Tensor(np.ones(n)), np.ones(n)
    y = (v * a).sum()
    a[:] = 7.0
    with pytest.raises(errors.InPlaceError, match=r"test_promises\.py line \d+, in .*written to afterwards"):
        y.backward()
    for step in range(3):  # a buffer that is filled again for each graph
        a[:] = step
        v.zero_grad()
        (v * a).sum().backward()
        np.testing.assert_array_equal(v.grad, step)


def test_one_entry_of_a_medium_array_changes_nothing() -> None:
    def f(x: Any) -> Any:
        w = np.ones(20_000)
        total = np.sum(x[0] * w)
        w[777] = 3.0
        return total

    np.testing.assert_array_equal(grad(f)(np.ones(2)), [20_000.0, 0.0])


def test_a_pullback_keeps_the_inputs_by_value() -> None:
    x = np.array([1.0, 2.0])
    _, pullback = vjp(lambda x: x * x, x)
    x += 5.0
    np.testing.assert_array_equal(pullback(np.ones(2))[0], [2.0, 4.0])
