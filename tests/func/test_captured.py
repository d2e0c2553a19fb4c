"""Plain arrays that a function uses and that are written to before the backward pass: what is noticed, and at what cost."""

from __future__ import annotations

import functools
import pickle
import subprocess
import sys
import threading
import tracemalloc
import warnings
from array import array
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from meintorch import Tensor, errors
from meintorch.core import captured
from meintorch.func import (
    checkpoint,
    draw,
    gauss_newton_product,
    grad,
    hessian,
    hvp,
    jacobian,
    jacrev,
    linearize,
    value_and_grad,
    vjp,
)

Write = Callable[[Any], None]
noticed = functools.partial(
    pytest.raises, errors.InPlaceError, match=r"test_captured\.py line \d+, in .*written.*copy\(\)"
)


@pytest.fixture(autouse=True)
def nothing_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """No code has been differentiated before."""
    monkeypatch.setattr(captured, "seen", {})


@pytest.fixture
def fingerprints(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that grows by the size of each array whose fingerprint is taken."""
    sizes: list[int] = []
    take = captured.fingerprint

    def counted(x: Any) -> int:
        sizes.append(x.size)
        return take(x)

    monkeypatch.setattr(captured, "fingerprint", counted)
    return sizes


def one_entry(a: Any) -> None:
    a[3, 7] += 1.0


def one_row(a: Any) -> None:
    a[5] *= 2.0


def one_column(a: Any) -> None:
    a[:, 40] = -a[:, 40]


def two_rows(a: Any) -> None:
    a[[0, -2]] = a[[-2, 0]]


def nothing(a: Any) -> None:
    pass


def program(a: Any, write: Write) -> Callable[[Any], Any]:
    """Return a function that writes to an array after it has used it; all of them have the same code."""

    def f(x: Any) -> Any:
        y = np.sum(x[0] ** 3 * a)
        write(a)
        return y

    return f


def numbers(n: int) -> Any:
    return np.random.default_rng(0).normal(size=(n // 100, 100))


def not_sampled(a: Any) -> tuple[Any, ...]:
    """Return the index of an entry that no sample holds."""
    sampled = captured.samples(a.size)
    return np.unravel_index(next(k for k in range(a.size) if k not in sampled), a.shape)


x = np.array([2.0, 1.0])

# ---------------------------------------------------------------- what is noticed


@pytest.mark.parametrize("n", [100_000, 1_000_000])
@pytest.mark.parametrize("write", [one_entry, one_row, one_column, two_rows])
def test_a_write_is_noticed_the_first_times(write: Write, n: int) -> None:
    for _ in range(2):
        with noticed():
            grad(program(numbers(n), write))(x)


@pytest.mark.parametrize("n", [4_000, 10_000, 65_500])
@pytest.mark.parametrize("write", [one_entry, one_row, one_column, two_rows])
def test_up_to_65536_entries_an_array_is_kept_by_value(write: Write, n: int) -> None:
    for _ in range(5):
        gradient = grad(program(numbers(n), write))(x)
        np.testing.assert_allclose(gradient, [3 * x[0] ** 2 * np.sum(numbers(n)), 0.0], rtol=1e-12)


@pytest.mark.parametrize("write", [one_entry, one_row, one_column, two_rows])
def test_without_room_for_copies_a_write_is_always_noticed(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(captured, "ROOM", 70_000)
    for _ in range(5):
        with noticed():
            grad(program(numbers(10_000), write))(x)


def test_each_use_of_an_array_has_the_values_of_its_time() -> None:
    a = np.ones((100, 100))

    def f(x: Any) -> Any:
        total = 0.0
        for k in range(6):
            total = total + np.sum(x * a)
            if k % 2:
                a[k, k] = np.nan if k == 3 else -1.0
            if k == 4:
                a[3, 3] = 1.0
        return total

    assert np.isnan(f(1.0))
    a[:] = 1.0
    assert np.isnan(grad(f)(1.0))
    a[:] = 1.0
    assert grad(lambda x: np.sum(x * a) + [a.fill(2.0), np.sum(x * a)][1] + np.sum(x * a))(1.0) == 5e4


@pytest.mark.parametrize("kind", [memoryview, lambda a: array("d", a), deque, list])
@pytest.mark.parametrize("f", [np.dot, np.multiply, lambda x, a: np.where(x > 0, x * np.asarray(a), 0)])
def test_sequences_that_are_no_arrays_are_kept_by_value(f: Any, kind: Any) -> None:
    a = kind(np.array([1.0, 2.0, 3.0]))

    def g(x: Any) -> Any:
        total = np.sum(f(x, a))
        a[0] = 7.0
        return total

    np.testing.assert_array_equal(grad(g)(np.ones(3)), [1.0, 2.0, 3.0])


def change(a: Any, name: str, value: Any) -> None:
    """Give an array another shape or dtype in place, which NumPy advises against."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        setattr(a, name, value)


@pytest.mark.parametrize("n", [10_000, 100_000])
def test_an_array_with_another_shape_is_used_in_both(n: int) -> None:
    def f(x: Any) -> Any:
        a = np.arange(1.0, n + 1)
        total = np.sum(x * a)
        change(a, "shape", (100, -1))
        return total + np.sum(x.reshape(100, -1) * a)

    np.testing.assert_array_equal(grad(f)(np.ones(n)), 2 * np.arange(1.0, n + 1))


@pytest.mark.parametrize("n", [10_000, 100_000])
def test_an_array_with_another_dtype_was_used_in_its_first(n: int) -> None:
    def f(x: Any) -> Any:
        a = np.arange(1.0, n + 1)
        total = np.sum(x * a)
        change(a, "dtype", np.int64)
        return total

    np.testing.assert_array_equal(grad(f, check=False)(np.ones(n)), np.arange(1.0, n + 1))


def test_a_copy_does_not_stand_for_an_array_with_another_dtype() -> None:
    a = np.arange(1.0, 10_001.0)
    want = a + a.view(np.int64)

    def f(x: Any) -> Any:
        total = np.sum(x * a)
        change(a, "dtype", np.int64)
        return total + np.sum(x * a)

    np.testing.assert_array_equal(grad(f)(np.ones(10_000)), want)


def test_uses_of_an_unchanged_array_share_one_copy() -> None:
    a = np.ones(60_000)
    tracemalloc.start()
    _, pullback = vjp(lambda w: sum([w * a for _ in range(100)]), 1.0)
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 3 * a.nbytes
    np.testing.assert_array_equal(pullback(a)[0], 100 * 60_000)


@pytest.mark.parametrize("n", [100_000, 1_000_000])
def test_from_the_third_time_on_samples_are_compared(n: int, fingerprints: list[int]) -> None:
    for _ in range(2):
        grad(program(numbers(n), nothing))(x)
    assert fingerprints == [n] * 4
    grad(program(numbers(n), nothing))(x)
    assert fingerprints == [n] * 4

    def fill(a: Any) -> None:
        a[:] = 1.0

    with noticed():
        grad(program(numbers(n), fill))(x)
    a = numbers(n)
    a[not_sampled(a)] = 0.0

    def hide(a: Any) -> None:
        a[not_sampled(a)] = 1.0

    grad(program(a, hide))(x)  # this is what samples do not see
    with noticed():
        grad(program(a := numbers(n), hide), check="full")(x)


@pytest.mark.parametrize("shape", [(6, 32_768), (4, 65_536)])
def test_rows_as_long_as_the_pieces_of_a_fingerprint_are_told_apart(shape: tuple[int, int]) -> None:
    with noticed():
        grad(program(np.random.default_rng(1).normal(size=shape), two_rows))(x)


@pytest.mark.parametrize("view", [lambda a: a[::2], lambda a: a.T, lambda a: a[:, ::3], lambda a: a[::-1]])
def test_one_entry_of_a_view_of_a_large_array(view: Callable[[Any], Any]) -> None:
    a = view(numbers(400_000))
    assert a.size > captured.WHOLE
    with noticed():
        grad(program(a, one_entry))(x)


# ---------------------------------------------------------------- fingerprints


@pytest.mark.parametrize("dtype", ["f8", "f4", "f2", "g", "c16", "c8", "i8", "i4", "u1"])
def test_a_fingerprint_sees_pairs_of_changes(dtype: str, rng: np.random.Generator) -> None:
    a = (rng.normal(size=40_001) * 50).astype(dtype)
    if a.dtype.kind in "fc":
        a[:3] = np.nan, 6e4, np.inf  # beside them others must not drown
    before = captured.fingerprint(a)
    pairs = [p for p in rng.integers(3, a.size, (200, 2)) if 0 != a[p[0]] != a[p[1]] != 0]
    assert len(pairs) > 150
    for k, p in enumerate(pairs):
        b = a.copy()
        if k % 4 == 0:
            b[p] = b[p[::-1]]
        elif k % 4 == 1:
            b[p] = -b[p]
        elif k % 4 == 2:
            b[p] *= 2
        else:
            b[p[:1]] += b.dtype.type(1)
        assert captured.fingerprint(b) != before
    np.testing.assert_array_equal(captured.fingerprint(a.copy()), before)


def test_a_fingerprint_holds_no_second_array() -> None:
    for a in (np.zeros((1000, 1000)), np.zeros((1000, 2000))[:, ::2]):
        captured.fingerprint(a)
        tracemalloc.start()
        captured.fingerprint(a)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 2e6 < a.size * a.itemsize / 3


# ---------------------------------------------------------------- what it costs


def test_data_are_not_read_in_every_step_of_a_loop(fingerprints: list[int]) -> None:
    data = numbers(66_000)

    def loss(w: Any) -> Any:
        return np.sum(w * data) + w**2

    w = 0.0
    for _ in range(1000):
        w = w - 0.01 * grad(loss)(w)
    np.testing.assert_allclose(w, -np.sum(data) / 2)
    assert fingerprints == [66_000] * 4


def test_an_array_that_is_used_often_is_read_once(fingerprints: list[int]) -> None:
    data = np.ones(100_000)
    grad(lambda w: sum([np.sum(w * data) for _ in range(50)]))(1.0)
    assert fingerprints == [100_000] * 2


def test_a_pullback_does_not_read_the_data_at_every_call(fingerprints: list[int]) -> None:
    data = np.ones(100_000)
    _, pullback = vjp(lambda w: w * data, 1.0)
    for _ in range(20):
        pullback(data)
    assert fingerprints == [100_000] * 3
    data[:] = 2.0
    with noticed():
        pullback(data)


def test_nested_derivatives_are_counted_apart(fingerprints: list[int]) -> None:
    f = program(numbers(100_000), nothing)
    second = grad(lambda x: grad(f)(x)[0])
    counts = []
    for _ in range(3):
        fingerprints.clear()
        second(x)
        counts.append(len(fingerprints))
    assert counts[0] == counts[1] > 2
    assert counts[2] == 0


# ---------------------------------------------------------------- which code


def test_different_functions_are_counted_apart() -> None:
    def other(a: Any) -> Any:
        def g(x: Any) -> Any:
            y = np.sum(x[1] * a)
            one_entry(a)
            return y

        return g

    def decorated(f: Any) -> Any:
        @functools.wraps(f)
        def wrapper(*args: Any) -> Any:
            return f(*args)

        return wrapper

    class Model:
        def __init__(self, a: Any) -> None:
            self.a = a

        def loss(self, x: Any) -> Any:
            y = np.sum(x[1] * self.a)
            one_entry(self.a)
            return y

        def __call__(self, x: Any) -> Any:
            y = np.sum(x[0] * self.a)
            one_entry(self.a)
            return y

    def with_data(a: Any, x: Any) -> Any:
        y = np.sum(x[0] * a)
        one_entry(a)
        return y

    makes = [
        lambda a: program(a, one_entry),
        other,
        lambda a: functools.partial(with_data, a),
        lambda a: decorated(lambda x: with_data(a, x)),
        lambda a: decorated(lambda x: with_data(a, x) * 2),
        lambda a: Model(a).loss,
        Model,
    ]
    for transform in (grad, jacrev, lambda f: lambda x: jacobian(f)(x), lambda f: draw(f)):
        captured.seen.clear()
        for make in makes:
            for _ in range(2):
                with noticed():
                    transform(make(numbers(100_000)))(x)


def test_the_origin_of_a_function() -> None:
    f = program(numbers(100), nothing)
    code = f.__code__
    assert captured.origin_of(f) == (code, 0)
    assert captured.origin_of(grad(f)) == (code, 1)
    assert captured.origin_of(grad(functools.partial(grad(f)))) == (code, 2)
    assert captured.origin_of(np.sin) == ("sin", 0)
    assert captured.origin_of(np.dot)[0] == "dot"

    def endless() -> None: ...

    endless.__wrapped__ = endless  # type: ignore[attr-defined]
    assert captured.origin_of(endless)[0] is endless.__code__


def test_the_counts_are_bounded(fingerprints: list[int]) -> None:
    a = np.ones(70_000)
    for k in range(1500):
        names: dict[str, Any] = {"a": a}
        exec(f"def f(x): return x * {k}.5", names)
        captured.is_new(captured.origin_of(names["f"]))
    assert len(captured.seen) <= 1000
    grad(lambda x: np.sum(x * a))(1.0)
    assert len(fingerprints) == 2


def test_threads() -> None:
    failures: list[Exception] = []

    def work() -> None:
        try:
            for _ in range(5):
                np.testing.assert_allclose(grad(program(np.ones((700, 100)), nothing))(x), [12 * 70_000, 0.0])
            with noticed():
                grad(program(numbers(100_000), one_entry), check="full")(x)
        except Exception as error:  # noqa: BLE001 - it is raised in the main thread
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


# ---------------------------------------------------------------- the option


TRANSFORMS = {
    "grad": lambda f, **check: grad(f, **check)(x),
    "value_and_grad": lambda f, **check: value_and_grad(f, **check)(x),
    "vjp": lambda f, **check: vjp(f, x, **check)[1](1.0),
    "linearize": lambda f, **check: linearize(f, x, **check)[1](x),
    "jacrev": lambda f, **check: jacrev(f, **check)(x),
    "jacobian": lambda f, **check: jacobian(f, **check)(x),
    "hessian": lambda f, **check: hessian(f, **check)(x),
    "hvp": lambda f, **check: hvp(f, x, x, **check),
    "gauss_newton_product": lambda f, **check: gauss_newton_product(f, x, x, **check),
}
each = pytest.mark.parametrize("transform", TRANSFORMS.values(), ids=TRANSFORMS.keys())


@each
def test_full_notices_always(transform: Any) -> None:
    for _ in range(4):
        with noticed():
            transform(program(numbers(70_000), one_entry), check="full")


@each
def test_true_notices_the_first_times(transform: Any, fingerprints: list[int]) -> None:
    for _ in range(2):
        with noticed():
            transform(program(numbers(70_000), one_entry))
    fingerprints.clear()
    transform(program(numbers(70_000), nothing))
    assert fingerprints == []


@each
def test_false_looks_at_nothing(transform: Any, fingerprints: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(captured, "sampled", lambda a: pytest.fail("an array was looked at"))
    for n in (10_000, 70_000):
        transform(program(numbers(n), one_row), check=False)
    assert fingerprints == []


def test_false_keeps_small_arrays_by_value() -> None:
    a = np.ones((10, 10))
    np.testing.assert_array_equal(grad(program(a, one_row), check=False)(x), [1200.0, 0.0])
    assert a[5, 0] == 2.0


def test_full_compares_at_every_use() -> None:
    def f(x: Any) -> Any:
        a = numbers(100_000)
        y = np.sum(x[0] * a)
        place = not_sampled(a)
        was = a[place]
        a[place] = 9.0
        y = y + np.sum(x[0] * a)
        a[place] = was
        return y

    with noticed():
        grad(f, check="full")(x)


def test_the_option_holds_inside_checkpoints(fingerprints: list[int]) -> None:
    f = program(numbers(70_000), nothing)
    grad(lambda x: checkpoint(f)(x), check=False)(x)
    assert fingerprints == []
    for _ in range(3):
        grad(lambda x: checkpoint(f)(x), check="full")(x)
    assert len(fingerprints) == 6
    with noticed():
        grad(lambda x: checkpoint(program(numbers(70_000), one_entry))(x), check="full")(x)


@pytest.mark.parametrize("value", ["ful", None, 2, "True"])
def test_other_options_are_refused(value: Any) -> None:
    for transform in TRANSFORMS.values():
        with pytest.raises(errors.InputError, match=r'check= takes True, False or "full"'):
            transform(lambda x: x[0] ** 2, check=value)


def loss(x: Any) -> Any:
    return np.sum(x**2)


def test_repr_and_pickle() -> None:
    assert repr(grad(loss)) == repr(grad(loss, check=True)) == "grad(loss)"
    assert repr(grad(loss, check="full")) == "grad(loss, check='full')"
    assert repr(value_and_grad(loss, check=False)) == "value_and_grad(loss, check=False)"
    assert repr(jacobian(loss, check=False)) == "jacobian(loss, check=False)"
    assert repr(hessian(loss)) == "jacfwd(jacrev(loss))"
    for transform in (grad(loss, check="full"), jacrev(loss, check="full"), hessian(loss, check="full")):
        again = pickle.loads(pickle.dumps(transform))
        assert repr(again) == repr(transform)
        np.testing.assert_array_equal(again(x), transform(x))


# ---------------------------------------------------------------- elsewhere


def test_a_pushforward_notices_what_happened_after_it_was_made() -> None:
    for n in (10_000, 70_000):
        a = numbers(n)
        before = np.sum(a)
        _, pushforward = linearize(lambda x: np.sum(x[0] * a), x)  # noqa: B023
        one_entry(a)
        if n == 10_000:  # kept by value
            np.testing.assert_allclose(pushforward(x), x[0] * before, rtol=1e-12)
            continue
        with noticed():
            pushforward(x)


def test_the_object_style_counts_by_line(fingerprints: list[int]) -> None:
    v, a = Tensor(2.0), numbers(70_000)
    for _ in range(2):
        y = (v * a).sum()
        one_entry(a)
        with noticed():
            y.backward()
    fingerprints.clear()
    total = sum([(v * a).sum() for _ in range(20)], Tensor(0.0))
    total.backward()
    assert len(fingerprints) == 4
    np.testing.assert_allclose(v.grad, 20 * a.sum())


def test_words_without_order_are_those_of_splitmix64() -> None:
    want = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F, 0xF88BB8A8724C81EC]  # as published, for seed 0
    np.testing.assert_array_equal(captured.scrambled(4, 0), np.array(want, np.uint64))
    shares = captured.scrambled(100_000, 3) / 2.0**64
    np.testing.assert_allclose([shares.mean(), shares.var()], [1 / 2, 1 / 12], atol=0.005)


def test_the_first_gradient_imports_nothing_large() -> None:
    program = (
        "import sys, numpy as np; from meintorch import grad; a = np.ones((300, 300)); before = {*sys.modules}; "
        "print(grad(lambda x: np.sum(x * a))(2.0), 'numpy.random' in {*sys.modules} - before)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["90000.0", "False"]
