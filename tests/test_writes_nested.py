"""In-place assignment between levels: inner derivatives, vmap, checkpoint and rules that write into arrays from outside.

Each program has a reference beside it, the same function written without assignment and without an inner derivative.
Values, derivatives of both modes, second derivatives in all compositions and vmap of them are held against it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from meintorch import errors
from meintorch.core.captured import SMALL
from meintorch.func import (
    checkpoint,
    custom_jvp,
    custom_vjp,
    fixed_point,
    grad,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    linearize,
    root,
    stop_gradient,
    value_and_grad,
    vjp,
    vmap,
)
from tests.cases import complexes, normal, positive
from tests.differences import gradient, outputs, weighted

Function = Callable[[Any], Any]
PAIRS: list[tuple[Function, Function, Any]] = []
v, w, p, z = normal(4), normal(4, seed=1), positive(4), complexes(4)


def like(reference: Function, x: Any = v) -> Callable[[Function], Function]:
    """Register a program with its reference."""

    def register(f: Function) -> Function:
        PAIRS.append((f, reference, x))
        return f

    return register


# ---------------------------------------------------------------- inner derivatives whose functions write outside


def _(x: Any) -> Any:
    t, rest = x[2], np.sum(x[1:] ** 2)
    b = np.concatenate([4.0 + 0 * x[:1], (t + 2) * x[1:]])
    return (2 * t * x[0] + rest + 4 * x[0] + rest) * b


@like(_)
def inner_gradients_fill_an_outer_buffer(x: Any) -> Any:
    b = np.zeros_like(x)

    def g(t: Any) -> Any:
        b[0] = t * t
        b[1:] += t * x[1:]
        return np.sum(b * x)

    return (grad(g)(x[2]) + grad(g)(2.0)) * b  # the second at a plain number: only x is traced by the outer levels


def _(x: Any) -> Any:
    t = x[2]
    b = np.concatenate([(x[0] + t * t)[None], x[1:] * t])
    return b * ((np.sum(x[1:] ** 2) + 2 * t * x[0]) * x[0] * np.sum(b * x))


@like(_)
def an_inner_tangent_writes_an_outer_array(x: Any) -> Any:
    b = x * 1.0

    def g(t: Any) -> Any:
        b[1:] *= t
        b[0] += t**2
        return np.sum(b * x)

    value, slope = jvp(g, (x[2],), (x[0],))
    b *= slope
    return b * value


def _(x: Any) -> Any:
    t = x[3]
    return np.stack([x[0], 2 * t * (x[1] ** 2 + x[0] ** 2 + x[3] ** 2), t * x[0], x[3] * t]) ** 2


@like(_)
def a_view_that_is_made_inside_is_used_outside(x: Any) -> Any:
    b, kept = x * 1.0, []

    def g(t: Any) -> Any:
        part = b[1:]
        kept.append(part)
        part *= t
        b[2] = t * x[0]
        return np.sum(part * part)

    slope = grad(g)(x[3])
    kept[0][0] = slope
    return b * b


def _(x: Any) -> Any:
    t = x[1]
    change = (np.sum(x[:3] ** 2) + 5 * t**4) * 20 * t**3 * x[0]
    return np.stack([x[0], x[1], x[2] + change, t * t])


@like(_)
def a_view_of_before_is_written_two_levels_up(x: Any) -> Any:
    b = x * 1.0
    back = b[::-1]

    def g(t: Any) -> Any:
        back[0] = t * t
        return np.sum(b * b * t)

    slope, change = jvp(grad(g), (x[1],), (x[0],))
    back[1] += slope * change
    return b


def _(x: Any) -> Any:
    a, b, c, d = 2 * x[0], 2 * x[1], 2 * x[2], 2 * x[3]
    slope = np.stack([3 * a**2 * b + b * b, a**3 + a * b + c * c, b * c + d * d, c * d])
    return slope * np.stack([a * a * b, b, c, d])


@like(_)
def the_argument_of_an_inner_gradient_is_written(x: Any) -> Any:
    y = x * 2.0

    def g(t: Any) -> Any:
        t[1:] *= t[:-1]  # its own copy
        y[0] = t[1] * t[0]
        return np.sum(t * y)

    return grad(g)(y) * y


def _(x: Any) -> Any:
    q = 2 * x[1:]
    slope = 18 * np.sum(q * q) + 2 * q[0] ** 2 + 3 * q[1]
    return np.stack([2 * x[0], q[0] ** 2, 3 * q[1], 2 * x[3]]) * slope


@like(_)
def the_argument_is_a_view_of_what_is_written(x: Any) -> Any:
    y = x * 2.0
    part = y[1:]

    def g(t: Any) -> Any:
        y[1] = t[0] ** 2
        t *= 3.0
        y[2] = t[1]
        return np.sum(t * t) + np.sum(y)

    return y * jvp(g, (part,), (part,))[1]


def _(x: Any) -> Any:
    t = x[0]
    return np.stack([t, 2 * t**3, 0 * t, 0 * t]) * (10 * t**4 + 216 * t**8)


@like(_)
def a_buffer_is_lifted_twice(x: Any) -> Any:
    b = np.zeros_like(x)

    def g(t: Any) -> Any:
        b[0] = t

        def h(u: Any) -> Any:
            b[1] = u * b[0] * t
            return np.sum(b * b) * u

        return grad(h)(t * 2) * b[1]

    return b * grad(g)(x[0])


def _(x: Any) -> Any:
    return np.stack([x[0] ** 4, x[0] ** 2, x[2] ** 2, x[3] ** 2])


@like(_)
def inner_derivatives_that_raise_leave_what_was_written(x: Any) -> Any:
    y = x * x

    def g(t: Any) -> Any:
        y[1] = t * t
        raise KeyError

    for run in (grad(g), lambda t: jvp(g, (t,), (1.0,))):
        with pytest.raises(KeyError):
            run(x[0])
    y[0] *= y[1]
    return y


def _(x: Any) -> Any:
    t = x[0].real
    late = np.array([0.0, 1.0, 1.0, 1.0])
    b = t * x.imag + 1j * late * t**2
    return b * np.sum((2 * b * (x.imag + 2j * t * late) * x).real)


@like(_, z)
def real_and_imaginary_parts_of_an_outer_buffer(x: Any) -> Any:
    b = np.zeros_like(x)

    def g(t: Any) -> Any:
        b.real = t * x.imag
        b.imag[1:] = t**2
        return np.sum((b * b * x).real)

    return b * grad(g)(x[0].real)


# ---------------------------------------------------------------- vmap inside


def _(x: Any) -> Any:
    t = (x * x)[:, None]
    return np.concatenate([t + 0 * x[:1], x[1:] * t], axis=1) + x


@like(_)
def examples_fill_buffers_made_of_outer_arrays(x: Any) -> Any:
    def g(t: Any) -> Any:
        a = np.zeros_like(x)
        a[1:] = x[1:] * t
        a[0] = t
        a += x
        return a

    return vmap(g)(x * x)


def _(x: Any) -> Any:
    t = (x * x)[:, None]
    return t * x[0] * np.concatenate([t, x[1:] + 0 * t], axis=1)


@like(_)
def examples_write_copies_of_outer_arrays(x: Any) -> Any:
    def g(t: Any) -> Any:
        total = np.zeros_like(t)
        total += t * x[0]
        q = x * 1.0
        q[0] = t
        return total * q

    return vmap(g)(x * x)


def _(x: Any) -> Any:
    first = x[2] * x
    return np.stack([first, x[1] * x * first, x[2] * x * first, x[3] * x]) + x[:, None] * np.array([1.0, 0.0, 0.0, 0.0])


@like(_)
def what_vmap_returns_is_written(x: Any) -> Any:
    y = vmap(lambda t: t * x)(x)
    y[0] = x[2] * x
    y[1:3] *= y[0]
    y.T[0] += x
    return y


# ---------------------------------------------------------------- pullbacks, pushforwards and their arguments


def _(x: Any) -> Any:
    y = np.concatenate([x[1:2], (x * x)[1:]])
    first = np.stack([x[0] * y[0] + x[1] * y[2], 0 * x[0], x[2] * y[2], x[3] * y[3]])
    second = np.stack([5 * y[0] + x[1] * y[2], 0 * x[0], x[2] * y[2], x[3] * y[3]])
    out = np.stack([x[3], x[0] * y[2], x[2] * y[2], x[3] * y[3]])
    return np.concatenate([2 * first[:1], first[1:], second, out, np.stack([y[0], y[1], 7 + 0 * x[0], y[3]]) * x])


@like(_)
def writes_between_a_pullback_and_its_calls(x: Any) -> Any:
    y = x * x
    y[0] = x[1]

    def g(t: Any) -> Any:
        a = t * y
        a[1] = t[0] * y[2]
        return a

    out, pullback = vjp(g, x)
    y[2] = 7.0
    y *= x
    ct = x * 1.0
    (first,) = pullback(ct)
    ct[0] = 5.0
    out[0] = x[3]
    (second,) = pullback(ct)
    first[0] *= 2.0
    return np.concatenate([first, second, out, y])


def _(x: Any) -> Any:
    slope = x + np.cos(x) * x**2
    moved = np.concatenate([4 + 0 * x[:1], x[1:]]) * slope
    first = x * slope
    return np.concatenate([first[:1], 2 + 0 * x[:1], first[2:], moved, x * x + np.sin(x) * x**2, 3 * x])


@like(_)
def writes_between_a_pushforward_and_its_calls(x: Any) -> Any:
    y = x * 1.0
    out, push = linearize(lambda t: t * y + np.sin(t) * y**2, x)
    y *= 3.0
    t = x * 1.0
    first = push(t)
    t[0] = 4.0
    first[1] = 2.0
    return np.concatenate([first, push(t), out, y])


def _(x: Any) -> Any:
    return np.concatenate([3 + 0 * x[:1], x[1:], x[:1], x[:1], x[2:], 3 + 0 * x[:1], x[1:], x[:1], 2 * x[:1], x[2:], x])


@like(_)
def an_identity_hands_out_nothing_that_is_shared(x: Any) -> Any:
    out, pullback = vjp(lambda a: a, x)
    out[0] = 3.0
    (ct,) = pullback(x)
    ct[1] = x[0]
    value, tangent = jvp(lambda a: a, (x,), (x,))
    value[0] = 3.0
    tangent[1] = x[0] * 2.0
    return np.concatenate([out, ct, value, tangent, x])


def _(x: Any) -> Any:
    a, b = x, np.concatenate([(x[1] * x[2])[None], x[1:]])
    # sum of (a' b'), a' = [b1 a2, a1, a2, a3], b' = b a'
    first = np.stack(
        [0 * x[0], 2 * b[1] * a[1], 2 * b[2] * a[2] + 2 * b[0] * 0 + 2 * x[0] * x[1] ** 2 * x[2], 2 * b[3] * a[3]]
    )
    second = np.stack([(x[1] * x[2]) ** 2, a[1] ** 2 + 2 * x[0] * x[1] * x[2] ** 2, a[2] ** 2, a[3] ** 2])
    return first * second + x


@like(_)
def one_array_given_twice(x: Any) -> Any:
    def g(a: Any, b: Any) -> Any:
        a[0] = b[1] * a[2]
        b *= a
        return np.sum(a * b)

    first, second = grad(g, argnums=(0, 1))(x, x)
    return first * second + x


def _(x: Any) -> Any:
    b = np.concatenate([x[1:2], x[1:]])
    slope = 2 * np.concatenate([0 * x[:1], 2 * x[1:2], x[2:]])
    b = np.stack([b[0], x[0] * b[1], 2 + 0 * x[0], b[3]])
    return np.concatenate([slope, b, b[1:], np.stack([0 * x[0], x[0], 0 * x[0], 0 * x[0]])])


@like(_)
def auxiliary_outputs_are_arrays_of_their_own_family(x: Any) -> Any:
    def g(a: Any) -> Any:
        b = a * 1.0
        b[0] = a[1]
        c = np.zeros_like(a)
        c[1] = a[0]
        return np.sum(b * b), (b, c, b[1:])

    slope, (b, c, part) = grad(g, has_aux=True)(x)
    b[1] = c[1] * b[1]
    b[2] = 2.0
    return np.concatenate([slope, b, b[1:] + 0 * part, c])


# ---------------------------------------------------------------- Jacobians and Hessians of functions that write


def table(x: Any) -> Any:
    """The Jacobian of `fill` below."""
    zero = 0 * x[0]
    return np.stack(
        [
            np.stack([x[1] * x[0], x[0] * x[0], zero, zero]),
            np.stack([2 * x[0], zero, zero, zero]),
            np.stack([zero, 2 * x[1] * x[2], x[1] ** 2, zero]),
            np.stack([zero, zero, 2 * x[2], zero]),
        ]
    )


def fill(t: Any, x: Any) -> Any:
    a = np.zeros_like(t)
    a[0] = t[1] * x[0]
    a[1:] = t[:-1] ** 2
    a[::2] *= t[::2]
    return a


for jacobian in (jacrev, jacfwd):
    like(table)(lambda x, jacobian=jacobian: jacobian(lambda t: fill(t, x))(x * 1.0))


def _(x: Any) -> Any:
    a, b, c = x[0], x[1], x[0]  # f = (b b a c)**2 + (a a b)**2
    return np.stack(
        [
            np.stack([2 * b**4 * c**2 + 12 * a**2 * b**2, 8 * a * b**3 * c**2 + 8 * a**3 * b]),
            np.stack([8 * a * b**3 * c**2 + 8 * a**3 * b, 12 * a**2 * b**2 * c**2 + 2 * a**4]),
        ]
    )


@like(_, v[:2])
def a_hessian(x: Any) -> Any:
    def g(t: Any) -> Any:
        a = np.empty_like(t)
        a[0] = t[1] * x[0] * t[0]
        a[1] = t[0] ** 2
        a *= t[1]
        return np.sum(a * a)

    return hessian(g)(x)


# ---------------------------------------------------------------- checkpoint


def _(x: Any) -> Any:
    a = x * 2
    b = np.concatenate([(x[0] * a[0])[None], a[:-1] * a[1:]])
    return a * b * b


@like(_)
def a_checkpointed_function_that_writes(x: Any) -> Any:
    def g(a: Any) -> Any:
        b = np.zeros_like(a)
        b[1:] = a[:-1] * a[1:]
        b[0] += x[0] * a[0]
        a *= b
        return a * b

    return checkpoint(g)(x * 2)


def _(x: Any) -> Any:
    y = x * x
    b = np.concatenate([y[1:2], y[1:] * x[:-1]])
    c = np.stack([y[0], b[1] * b[0], y[2], b[3] * b[2]])
    r = b * c * y
    return r * np.concatenate([r[:1], y[1:]])


@like(_)
def a_checkpointed_function_that_writes_what_it_closes_over(x: Any) -> Any:
    y = x * x

    def g(a: Any) -> Any:
        b = a * 1.0
        b[0] = y[1]
        b[1:] *= x[:-1]
        c = np.zeros_like(a)
        c[::2] = y[::2]
        c[1::2] = b[1::2] * b[::2]
        return b * c * y

    r = checkpoint(g)(y)
    y[0] = r[0]
    return r * y


def _(x: Any) -> Any:
    b = np.stack([2 * x[0] * x[1], 7 * 2 * x[1], x[2] * 2 * x[2], x[3] * 2 * x[3]])
    return 3 * b * 2 * x


@like(_)
def closed_over_values_are_assigned_as_they_are(x: Any) -> Any:
    def g(a: Any) -> Any:
        b = np.zeros_like(a)
        b[:] = x
        b[0] = a[0] * x[1]
        b[1] = 7.0
        part = b[1:]
        part *= a[1:]
        c = np.zeros_like(a)
        np.add.at(c, [0, 1, 2, 3], b)
        return c * a + grad(lambda t: np.sum(b * t * t))(a)

    return checkpoint(g)(x * 2)


def _(x: Any) -> Any:
    r = np.sin(x[1:]) * x[1:]
    return np.stack([x[0], r[0], x[2] * r[1], x[3], *r])


@like(_)
def a_view_given_to_a_checkpointed_function(x: Any) -> Any:
    y = x * 1.0
    part = y[1:]
    r = checkpoint(lambda a: np.sin(a) * a)(part)
    y[1] = r[0]
    part[1] *= r[1]
    return np.concatenate([y, r])


# ---------------------------------------------------------------- rules of one's own, and implicit functions


def plain_rule(a: Any, b: Any) -> Any:
    return np.concatenate([3 * a[1:2], (a * b)[1:]])


@custom_vjp
def by_vjp(a: Any, b: Any) -> Any:
    q = a * b
    q[0] = 3 * a[1]
    return q


def _forward(a: Any, b: Any) -> Any:
    q = a * b
    q[0] = 3 * a[1]
    return q, (a, b)


def _backward(saved: Any, g: Any) -> Any:
    a, b = saved
    to_a, to_b = np.zeros_like(g), g * a
    to_a[...] = g * b
    to_a[0] = 0.0
    to_a[1] += 3 * g[0]
    to_b[0] = 0.0
    return to_a, to_b


by_vjp.defvjp(_forward, _backward)


@custom_jvp
def by_jvp(a: Any, b: Any) -> Any:
    q = a * b
    q[0] = 3 * a[1]
    return q


@by_jvp.defjvp
def _(primals: Any, tangents: Any) -> Any:
    (a, b), (da, db) = primals, tangents
    out, tangent = by_jvp(a, b), da * b + a * db
    tangent[0] = 3 * da[1]
    return out, tangent


def between_rules(rule: Callable[[Any, Any], Any], x: Any) -> Any:
    y = x * x
    r = rule(y, x)
    y = np.concatenate([y[:1], r[:1], y[2:]])
    r = np.concatenate([r[:2], 1 + 0 * r[:1], r[3:]])
    return rule(y, r) * y


def between_rules_in_place(rule: Callable[[Any, Any], Any], x: Any) -> Any:
    y = x * x
    r = rule(y, x)
    y[1] = r[0]
    r[2] = 1.0
    return rule(y, r) * y


like(lambda x: between_rules(plain_rule, x))(lambda x: between_rules_in_place(by_jvp, x))


def _(a: Any) -> Any:
    first = np.sqrt(a[0])
    second = a[1] / first
    third = a[2] / second
    return np.stack([first, second, third, a[3] / third])


@like(_, p)
def the_residual_of_a_root_fills_a_buffer(a: Any) -> Any:
    def residual(y: Any, a: Any) -> Any:
        b = np.zeros_like(y)
        b[0] = y[0] ** 2 - a[0]
        b[1:] = y[1:] * y[:-1] - a[1:]
        return b

    return root(residual, np.ones(4), a)


@like(lambda a: 2 * a / (1 + np.arange(1, 5) / 4), p)
def the_step_of_a_fixed_point_fills_a_buffer(a: Any) -> Any:
    def step(y: Any, a: Any) -> Any:
        b = np.zeros_like(y)
        b[...] = 2 * a
        for i in range(4):
            b[i] -= y[i] * (i + 1) / 4
        return b * 0.5 + y * 0.5

    return fixed_point(step, np.ones(4), a)


# ---------------------------------------------------------------- the properties


def close(got: Any, want: Any, tolerance: float = 1e-9) -> None:
    scale = max(1.0, float(np.max(np.abs(want), initial=0.0)))
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance * scale)


def along(f: Function, d: Any) -> Function:
    return lambda x: jvp(f, (x,), (d,))[1]


def sloped(f: Function, d: Any) -> Function:
    return lambda x: np.sum((grad(f)(x) * d).real)


every_pair = pytest.mark.parametrize(
    ("f", "reference", "x"),
    PAIRS,
    ids=[f.__name__.replace("<lambda>", f"lambda {k}") for k, (f, _, _) in enumerate(PAIRS)],
)


@every_pair
def test_values_and_derivatives(f: Function, reference: Function, x: Any, engine: str) -> None:
    before = x.copy()
    close(vjp(f, x)[0], reference(x))
    d = normal(*x.shape, seed=9) * (1 + 0.5j if x.dtype.kind == "c" else 1)
    close(jvp(f, (x,), (d,))[0], reference(x))
    loss, plain = weighted(f), weighted(reference)
    (slope,) = gradient(plain, [x])
    close(grad(loss)(x), slope, 1e-6)
    close(grad(loss)(x), grad(plain)(x))
    close(along(loss, d)(x), np.sum((grad(plain)(x) * d).real))
    assert np.array_equal(x, before)


@every_pair
def test_second_derivatives(f: Function, reference: Function, x: Any) -> None:
    loss, plain = weighted(f), weighted(reference)
    d = normal(*x.shape, seed=9) * (1 + 0.5j if x.dtype.kind == "c" else 1)
    want = grad(sloped(plain, d))(x)
    for second in (sloped(loss, d), along(loss, d)):
        close(grad(second)(x), want, 1e-8)
        close(along(second, d)(x), np.sum((want * d).real), 1e-8)


@every_pair
def test_batches(f: Function, reference: Function, x: Any) -> None:
    loss, plain = weighted(f), weighted(reference)
    d = normal(*x.shape, seed=9)
    batch = np.stack([x, 1.1 * x, 0.9 * x])
    close(vmap(f)(batch), np.stack([reference(a) for a in batch]))
    close(vmap(grad(loss))(batch), np.stack([grad(plain)(a) for a in batch]))
    close(vmap(along(loss, d))(batch), np.stack([along(plain, d)(a) for a in batch]))
    close(grad(lambda b: np.sum(vmap(loss)(b)))(batch), np.stack([grad(plain)(a) for a in batch]))
    close(jvp(lambda b: np.sum(vmap(loss)(b)), (batch,), (batch,))[1], np.sum((vmap(grad(plain))(batch) * batch).real))


def test_a_rule_for_reverse_mode_only() -> None:
    loss = weighted(lambda x: between_rules_in_place(by_vjp, x))
    plain = weighted(lambda x: between_rules(plain_rule, x))
    close(loss(v), plain(v))
    close(grad(loss)(v), grad(plain)(v))
    close(grad(sloped(loss, w))(v), grad(sloped(plain, w))(v))
    batch = np.stack([v, w])
    close(vmap(grad(loss))(batch), vmap(grad(plain))(batch))


# ---------------------------------------------------------------- single programs


def test_holomorphic_functions_that_write() -> None:
    def f(z: Any) -> Any:
        y = z * 1.0
        y[1:] *= y[:-1]
        y[0] = y[1] ** 2
        b = np.zeros_like(y)
        b[...] = y * y
        b[::2] += 1j * y[::2]
        return np.sum(b)

    got = grad(f, holomorphic=True)(z)
    step = 1e-6 * np.eye(4)
    close(got, [(f(z + s) - f(z - s)) / 2e-6 for s in step], 1e-7)
    close(got, [(f(z + 1j * s) - f(z - 1j * s)) / 2e-6j for s in step], 1e-7)


@pytest.mark.parametrize("n", [4, SMALL + 4])  # of captured arrays small ones are copied anyway
def test_a_constant_handed_to_a_lower_level_is_a_copy(n: int) -> None:
    """The inner argument is plain, so the inner level's buffer is a constant of the outer one, and is overwritten."""
    x, d = normal(n), normal(n, seed=1)

    def f(x: Any) -> Any:
        def g(t: Any) -> Any:
            y = t * 1.0
            y[0] = 3.0 * t[0]
            total = np.sum(y * x) * np.sum(y)  # the outer level keeps y
            y[:] = 100.0
            return total + np.sum(y * t * x)

        return np.sum(grad(g)(t))

    t, times = np.linspace(1.0, 2.0, n), np.ones(n)
    times[0] = 3.0
    y = times * t
    want = times * np.sum(y) + y * np.sum(times) + 100.0
    close(grad(f)(x), want)
    close(jvp(f, (x,), (d,))[1], want @ d)


def test_stopped_values_are_copies_of_that_moment() -> None:
    def f(x: Any) -> Any:
        y = x * 1.0
        kept = stop_gradient(y)
        y[0] = 5.0
        return np.sum(kept * y)

    value, slope = value_and_grad(f)(v)
    close(value, 5 * v[0] + np.sum(v[1:] ** 2))
    close(slope, [0.0, *v[1:]])


def test_pullbacks_are_called_many_times_and_share_nothing() -> None:
    def f(x: Any) -> Any:
        y = x * x
        y[1:] *= y[:-1]
        return y, y[:2], np.zeros_like(x), x

    x = v.copy()
    out, pullback = vjp(f, x)
    cts = [np.ones_like(o) for o in out]
    (first,) = pullback(tuple(cts))
    kept = first.copy()
    for o in out:
        assert type(o) is np.ndarray
        assert not np.shares_memory(o, x)
        o[...] = 7.0
    first[...] = 7.0
    (second,) = pullback(tuple(cts))
    np.testing.assert_array_equal(second, kept)
    assert all([np.all(ct == 1.0) for ct in cts])
    assert np.array_equal(x, v)
    same = np.ones(4)
    (third,) = pullback((same, same[:2], same, same))
    np.testing.assert_array_equal(third, kept)
    assert np.all(same == 1.0)


def outside_array(x: Any) -> Any:
    y = x * 1.0

    def g(a: Any) -> Any:
        y[0] = a[0]
        return a * y

    return np.sum(checkpoint(g)(x))


def outside_buffer(x: Any) -> Any:
    y = np.zeros_like(x)

    def g(a: Any) -> Any:
        y[0] = a[0]
        return a * y

    return np.sum(checkpoint(g)(x))


def outside_view(x: Any) -> Any:
    y = x * 1.0
    part = y[1:]
    y[2] = 0.0

    def g(a: Any) -> Any:
        part[0] += 1.0
        return a * y

    return np.sum(checkpoint(g)(x))


def outside_argument(x: Any) -> Any:
    def g(a: Any) -> Any:
        x[...] *= 2.0
        return a * x

    return np.sum(checkpoint(g)(x * 2))


def outside_of_an_inner_one(x: Any) -> Any:
    def g(a: Any) -> Any:
        b = a * 1.0

        def h(t: Any) -> Any:
            b[0] = t[0]
            return t * b

        return checkpoint(h)(a)

    return np.sum(checkpoint(g)(x))


@pytest.mark.parametrize(
    "f",
    [outside_array, outside_buffer, outside_view, outside_argument, outside_of_an_inner_one],
    ids=lambda f: f.__name__,
)
def test_a_checkpointed_function_does_not_write_outside(f: Function) -> None:
    for run in (grad(f), grad(lambda x: np.sum(grad(f)(x))), jacrev(grad(f)), lambda x: vmap(grad(f))(x[None])):
        with pytest.raises(errors.InPlaceError, match=r"test_writes_nested\.py line.*comes from outside.*return it"):
            run(v)
    assert grad(lambda x: np.sum(checkpoint(lambda a: a * 1.0)(x)))(v)[0] == 1.0  # nothing is left of it


def test_what_vmap_fills_outside_is_lost_and_says_so() -> None:
    def f(x: Any) -> Any:
        total = x * 1.0
        copy = total * 1.0

        def g(t: Any) -> Any:
            total[0] = t
            return total * t

        out = vmap(g)(x)
        with pytest.raises(errors.InPlaceError, match="filled inside vmap.*return them"):
            total * 2.0
        with pytest.raises(errors.InPlaceError, match="filled inside vmap"):
            total[0] = 1.0
        return np.sum(out) * np.sum(copy)

    def same(x: Any) -> Any:
        return (np.sum(x * x) + np.sum(x[1:]) * np.sum(x)) * np.sum(x)

    close(grad(f)(v), grad(same)(v))


def test_outputs_that_are_equal_are_one_array_for_each() -> None:
    def f(x: Any) -> Any:
        y = x * x
        y[0] = 1.0
        return y, y

    first, second = vjp(f, v)[0]
    assert first is not second
    first[...] = 0.0
    np.testing.assert_array_equal(second, [1.0, *(v * v)[1:]])
    _, tangents = jvp(f, (v,), (w,))
    for t in outputs(tangents):
        close(t, [0.0, *(2 * v * w)[1:]])
