"""Random programs of views and writes: values bit for bit as NumPy's, derivatives as by complex step and differences.

The environment variable MEINTORCH_PROGRAMS says how many of them the tests run. More are run, and those that fail are
printed, by ``python -m tests.test_writes_random --programs 20000``.
"""

from __future__ import annotations

import argparse
import functools
import multiprocessing
import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from meintorch.errors import BatchError, InPlaceError, LostDerivativeError
from meintorch.func import grad, hvp, jvp, value_and_grad, vjp, vmap
from tests.differences import weighted, weights
from tests.programs import Array, Program, laid_like, program

COUNT = int(os.environ.get("MEINTORCH_PROGRAMS", "150"))
STEP = 1e-30  # of the complex step
EXACT, CLOSE = 1e-10, 1e-7  # relative, for derivatives by complex step and by differences


class NoReferenceError(Exception):
    """The differences are not accurate enough to tell."""


# ---------------------------------------------------------------- derivatives in plain NumPy


def along(f: Callable[[Any], Any], x: Any, direction: Any) -> tuple[Any, Any]:
    """Return the value of a real program and its derivative along a direction, by one complex step."""
    z = x + 1j * STEP * direction
    out = f(laid_like(z, x) if isinstance(x, np.ndarray) else z)
    return np.real(out), np.imag(out) / STEP


def units(x: Any) -> Iterator[Array]:
    for index in np.ndindex(np.shape(x)):
        unit = np.zeros(np.shape(x))
        unit[index] = 1.0
        yield unit


def jacobian(f: Callable[[Any], Any], x: Array) -> Array:
    """Return the derivatives of a real program, the axes of the input first."""
    columns = np.array([along(f, x, unit)[1] for unit in units(x)])
    return columns.reshape(x.shape + columns.shape[1:])


def slope(f: Callable[[Any], Any], x: Array, direction: Any, step: float = 4e-4) -> Any:
    """Return the derivative along a direction by central differences of three steps, extrapolated twice."""

    def difference(h: float) -> Any:
        ends = [f(laid_like(x + sign * h * direction, x)) for sign in (1, -1)]
        return (ends[0] - ends[1]) / (2 * h)

    coarse, middle, fine = difference(step), difference(step / 2), difference(step / 4)
    first, second = (4 * middle - coarse) / 3, (4 * fine - middle) / 3
    best = (16 * second - first) / 15
    if np.any(np.abs(best - second) > CLOSE * (1 + np.max(np.abs(best)))):
        raise NoReferenceError
    return best


def written_by(f: Any) -> tuple[Array, ...]:
    """Return the arrays of the enclosing function that an inner one may write to."""
    cells = [cell.cell_contents for cell in f.__closure__ or ()]
    return tuple(a for a in cells if isinstance(a, np.ndarray) and a.flags.writeable)


def inner_jvp(f: Any, primals: tuple[Any], tangents: tuple[Any]) -> tuple[Any, Any]:
    """Stand in for `jvp` of an inner function in a plain program whose real arrays have a complex dtype."""
    value, derivative = along(f, *primals, *tangents)
    for a in written_by(f):
        a.imag = 0.0
    return value + 0j, derivative + 0j


def inner_value_and_grad(f: Any) -> Callable[[Any], tuple[Any, Any]]:
    """Stand in for `value_and_grad` in the same way; what ``f`` writes is written once."""

    def call(y: Any) -> tuple[Any, Any]:
        before, results = [a.copy() for a in written_by(f)], []
        for unit in units(y):
            for a, b in zip(written_by(f), before, strict=True):
                a[...] = b
            results.append(inner_jvp(f, (y,), (unit[()],)))
        return results[0][0], np.reshape([r for _, r in results], np.shape(y))

    return call


REFERENCE = {
    "jvp": inner_jvp,
    "value_and_grad": inner_value_and_grad,
    "grad": lambda f: lambda y: inner_value_and_grad(f)(y)[1],
}
ENGINE = {"jvp": jvp, "value_and_grad": value_and_grad, "grad": grad}


# ---------------------------------------------------------------- comparing


def same(what: str, got: Any, want: Any) -> None:
    """Hold a value against NumPy's: the type, the dtype and every bit."""
    assert type(got) is type(want), f"{what} is of type {type(got).__name__} and not {type(want).__name__}"
    assert got.dtype == want.dtype, f"{what} is {got.dtype} and not {want.dtype}"
    assert got.shape == want.shape, f"{what} has shape {got.shape} and not {want.shape}"
    assert got.tobytes() == want.tobytes(), f"{what} is\n{got!r}\nand not\n{want!r}"


def close(what: str, got: Any, want: Any, tolerance: float = EXACT) -> None:
    """Hold a derivative against a reference, relative to its largest entry."""
    assert np.shape(got) == np.shape(want), f"{what} has shape {np.shape(got)} and not {np.shape(want)}"
    error = np.max(np.abs(got - want), initial=0.0)
    assert error <= tolerance * (1 + np.max(np.abs(want), initial=0.0)), f"{what} is\n{got!r}\nand not\n{want!r}"


@contextmanager
def untouched(*arrays: Any) -> Iterator[None]:
    """Check that nothing inside writes to what it is given."""
    before = [np.copy(a) for a in arrays]
    yield
    for a, b in zip(arrays, before, strict=True):
        assert a.tobytes() == b.tobytes(), f"an input was changed from\n{b!r}\nto\n{a!r}"


def draw(p: Program, seed: int, shape: tuple[int, ...]) -> Any:
    """Draw a direction or weights between -1 and 1."""
    return np.random.default_rng([p.seed, seed]).uniform(-1, 1, shape) * np.ones(shape)


def contracted(jacobian: Array, ct: Any) -> Any:
    """Return the cotangent of the input."""
    return np.tensordot(jacobian, ct, np.ndim(ct))


# ---------------------------------------------------------------- the checks


def check_first(p: Program) -> None:
    """Check value, gradient, pullback and tangent of a real program."""
    f, x = p.function(), p.x
    out, slopes = f(laid_like(x, x)), jacobian(f, x)
    w, d = draw(p, 1, np.shape(out)), draw(p, 2, x.shape)

    def loss(x: Any) -> Any:
        return np.sum(f(x) * w)

    with untouched(x, w, d):
        value, pullback = vjp(f, x)
        same("the value of vjp", value, out)
        (first,), (second,) = pullback(w), pullback(w)
        close("the pullback", first, contracted(slopes, w))
        same("the pullback, a second time,", second, first)
        value, tangent = jvp(f, (x,), (d,))
        same("the value of jvp", value, out)
        close("the tangent", tangent, np.tensordot(d, slopes, x.ndim))
        value, g = value_and_grad(loss)(x)
        same("the value of value_and_grad", value, loss(laid_like(x, x)))
        close("the gradient", g, contracted(slopes, w))
        assert g.dtype == x.dtype
        assert not np.shares_memory(g, x)
        single = laid_like(x.astype(np.float32), x)
        value, g = value_and_grad(loss)(single)
        same("the value in single precision", value, loss(laid_like(single, single)))
        close("the gradient in single precision", g, contracted(slopes, w), 3e-3)
        assert g.dtype == np.float32


def check_second(p: Program) -> None:
    """Check second derivatives of a real program, in all compositions of forward and reverse mode."""
    f, x = p.function(), p.x
    w, v = draw(p, 1, np.shape(f(laid_like(x, x)))), draw(p, 2, x.shape)

    def loss(x: Any) -> Any:
        return np.sum(np.sin(f(x)) * w)

    want = slope(lambda x: jacobian(loss, x), x, v)
    with untouched(x, w, v):
        close("hvp", hvp(loss, x, v), want, CLOSE)
        close("reverse over reverse", grad(lambda x: np.sum(grad(loss)(x) * v))(x), want, CLOSE)
        close("forward over reverse", jvp(grad(loss), (x,), (v,))[1], want, CLOSE)
        close("reverse over forward", grad(lambda x: jvp(loss, (x,), (v,))[1])(x), want, CLOSE)
        twice = jvp(lambda x: jvp(loss, (x,), (v,))[1], (x,), (v,))[1]
        close("forward over forward", twice, np.sum(want * v), CLOSE)


def check_complex(p: Program) -> None:
    """Check value, gradient and second derivative of a complex program: the gradient is df/dx - i df/dy."""
    f, x = p.function(), p.x
    out = f(laid_like(x, x))
    loss = weighted(f)
    w = weights(np.shape(out), 0) - (1j * weights(np.shape(out), 5) if np.iscomplexobj(out) else 0)
    d = draw(p, 1, x.shape) + 1j * draw(p, 2, x.shape)
    want = np.reshape([slope(loss, x, unit) - 1j * slope(loss, x, 1j * unit) for unit in units(x)], x.shape)
    with untouched(x, w, d):
        value, pullback = vjp(f, x)
        same("the value of vjp", value, out)
        close("the pullback", pullback(w)[0], want, CLOSE)
        value, g = value_and_grad(loss)(x)
        same("the value of value_and_grad", value, loss(laid_like(x, x)))
        close("the gradient", g, want, CLOSE)
        close("the tangent", jvp(loss, (x,), (d,))[1], np.sum((want * d).real), CLOSE)
        want = slope(grad(loss), x, d)
        close("forward over reverse", jvp(grad(loss), (x,), (d,))[1], want, CLOSE)
        close("reverse over reverse", grad(lambda x: np.sum((grad(loss)(x) * d).real))(x), want, CLOSE)


def check_nested(p: Program) -> None:
    """Check a program that differentiates an inner function, which writes into the program's arrays."""
    f, reference, x = p.function(**ENGINE), p.function(**REFERENCE), p.x

    def plain(x: Array) -> Any:
        return np.real(reference(laid_like(x.astype(complex), x)))

    out = plain(x)
    w, d = draw(p, 1, np.shape(out)), draw(p, 2, x.shape)

    def loss(x: Any) -> Any:
        return np.sum(f(x) * w)

    slopes = np.array([slope(plain, x, unit) for unit in units(x)])
    want = contracted(slopes.reshape(x.shape + np.shape(out)), w)
    with untouched(x, w, d):
        value, pullback = vjp(f, x)
        close("the value of vjp", value, out)
        close("the pullback", pullback(w)[0], want, CLOSE)
        value, tangent = jvp(f, (x,), (d,))
        close("the value of jvp", value, out)
        close("the tangent", tangent, slope(plain, x, d), CLOSE)
        want = slope(grad(loss), x, d)
        close("forward over reverse", jvp(grad(loss), (x,), (d,))[1], want, CLOSE)
        close("reverse over forward", grad(lambda x: jvp(loss, (x,), (d,))[1])(x), want, CLOSE)


def check_vmap(p: Program) -> None:
    """Check vmap of a program, of its gradient and of its tangent against a loop."""
    f = p.function()
    w = draw(p, 5, np.shape(f(laid_like(p.x, p.x))))

    def loss(x: Any) -> Any:
        return np.sum(f(x) * w)

    for axis, order in [(0, "C"), (0, "F"), (1, "C")]:
        xs = np.stack([p.x + 0.1 * k * draw(p, k, p.x.shape) for k in range(3)], axis).copy(order)
        ds = draw(p, 4, xs.shape)
        with untouched(xs, ds, w):
            value = vmap(f, in_axes=axis)(xs)
            g = vmap(grad(loss), in_axes=axis)(xs)
            tangent = vmap(lambda x, d: jvp(f, (x,), (d,))[1], in_axes=axis)(xs, ds)
        # An example may not be contiguous in the batch. Whether it is for f, which decides what ravel and reshape copy,
        # is not promised; but it is one of the two throughout.
        examples, ds = list(np.moveaxis(xs, axis, 0)), np.moveaxis(ds, axis, 0)
        try:
            against_loop(f, [x.copy() for x in examples], ds, w, (value, g, tangent))
        except AssertionError:
            if examples[0].flags.c_contiguous:
                raise
            against_loop(f, examples, ds, w, (value, g, tangent))


def against_loop(f: Callable[[Any], Any], xs: list[Array], ds: Array, w: Any, results: tuple[Any, Any, Any]) -> None:
    slopes = [jacobian(f, x) for x in xs]
    value, g, tangent = results
    close("vmap of f", value, np.stack([f(laid_like(x, x)) for x in xs]))
    close("vmap of the gradient", g, np.stack([contracted(s, w) for s in slopes]))
    close(
        "vmap of the tangent", tangent, np.stack([np.tensordot(d, s, d.ndim) for d, s in zip(ds, slopes, strict=True)])
    )


def check_all(p: Program) -> None:
    for check in (check_first, check_second, check_vmap):
        check(p)


CHECKS: dict[str, tuple[str, int, Callable[[Program], None]]] = {  # the programs, one in how many, the check
    "first": ("real", 1, check_first),
    "second": ("real", 2, check_second),
    "complex": ("complex", 2, check_complex),
    "nested": ("nested", 3, check_nested),
    "vmap": ("real", 2, check_vmap),
    "views": ("views", 5, check_all),
}


def outcome(seed: int, *, name: str) -> tuple[str, str, Program]:
    """Run one check on one program, and say whether they agree, and if not what is different or was refused."""
    kind, _, check = CHECKS[name]
    p = program(seed, kind=kind)
    try:
        check(p)
    except NoReferenceError:
        return "no reference", "", p
    except (InPlaceError, BatchError) as error:
        # Inside vmap entries cannot be chosen by values: how many there are would differ from example to example.
        chosen = isinstance(error, BatchError) and " > " in p.source
        return "chosen by values" if chosen else "refused", str(error), p
    except Exception as error:  # noqa: BLE001 - whatever else it is, it is a difference
        # What an inner grad gives at a plain point is a plain array, into which traced values cannot be written.
        if kind == "nested" and isinstance(error.__cause__ or error, LostDerivativeError):
            return "refused", str(error), p
        return "different", f"{type(error).__name__}: {error}", p
    return "agree", "", p


# ---------------------------------------------------------------- the tests


def test_the_programs_are_right_without_the_library() -> None:
    mix: Counter[str] = Counter()
    for seed in range(max(COUNT, 100)):
        p = program(seed)
        assert str(p) == str(program(seed))
        f, d = p.function(), draw(p, 1, p.x.shape)
        value, derivative = along(f, p.x, d)
        np.testing.assert_allclose(value, f(laid_like(p.x, p.x)), 1e-13, 1e-13)
        close("the complex step", derivative, slope(f, p.x, d), CLOSE)
        mix.update(p.statements)
    assert len(mix) == 16
    assert mix["view"] < sum(mix.values()) / 2


@pytest.mark.parametrize("name", CHECKS)
def test_programs(name: str) -> None:
    results = [outcome(seed, name=name) for seed in range(0, COUNT, CHECKS[name][1])]
    different = [f"{text}\nin {p}" for status, text, p in results if status == "different"]
    assert not different, f"{len(different)} of {len(results)}, the first:\n{different[0]}"
    statuses = Counter(status for status, _, _ in results)
    chosen = statuses["chosen by values"]
    assert statuses["agree"] >= 0.9 * (len(results) - chosen), [statuses, *[text for _, text, _ in results if text][:5]]
    assert chosen <= 0.2 * len(results), statuses


@pytest.mark.usefixtures("plain_engine")
def test_programs_without_generated_functions() -> None:
    for name in ("first", "second", "complex"):
        for seed in range(COUNT, COUNT + COUNT // 10):
            status, text, p = outcome(seed, name=name)
            assert status != "different", f"{text}\nin {p}"


def main() -> None:
    """Run many programs, print those that fail, and how often each outcome and each kind of statement occurred."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--programs", type=int, default=1000)
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--check", choices=CHECKS, action="append", help="may be repeated; all by default")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--show", type=int, default=3, help="how many failing programs to print for each check")
    options = parser.parse_args()
    seeds = range(options.start, options.start + options.programs)
    for name in options.check or CHECKS:
        statuses, texts, mix, failing = Counter[str](), Counter[str](), Counter[str](), list[int]()
        with multiprocessing.Pool(options.processes) as pool:
            for status, text, p in pool.imap(functools.partial(outcome, name=name), seeds, chunksize=20):
                statuses[status] += 1
                mix.update(p.statements)
                if status in {"refused", "chosen by values"}:
                    texts[text.split(": ", 1)[-1]] += 1
                if status == "different":
                    failing.append(p.seed)
                    if len(failing) <= options.show:
                        print(f"{name}: {text}\nin {p}")
        print(f"{name}: {dict(statuses)}", *[f"  refused {n} times: {t}" for t, n in texts.most_common(5)], sep="\n")
        print(
            f"  statements: {dict(mix.most_common())}", *[f"  failing: {failing}"] * bool(failing), sep="\n", flush=True
        )


if __name__ == "__main__":
    main()
