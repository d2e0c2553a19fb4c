"""Programs in plain NumPy, each with its derivative by hand and with inputs from a seed.

What is by hand is written as one would write it who has only NumPy and cares for speed: it keeps what it needs and
nothing else, and uses what a person sees in the formula (the gradient of a log-sum-exp is a softmax).
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.random import Generator

from meintorch.func import grad, hessian, vmap

STEP = 0.05  # in time, of the programs that have one


class Workload(NamedTuple):
    """A program, its derivative by hand, and `inputs(rng, n)`; `grows` says what n counts."""

    name: str
    grows: str
    small: int
    usual: int
    inputs: Callable[[Generator, int], tuple]
    program: Callable[..., Any]
    by_hand: Callable[..., Any]
    derive: Callable[[Callable[..., Any]], Callable[..., Any]] = grad


def pendulum(angle, speed, steps):
    for _ in range(steps):
        speed = speed - STEP * np.sin(angle)
        angle = angle + STEP * speed
    return angle * angle


def pendulum_by_hand(angle, speed, steps):
    angles = []
    for _ in range(steps):
        angles.append(angle)
        speed = speed - STEP * np.sin(angle)
        angle = angle + STEP * speed
    angle_ct, speed_ct = 2 * angle, 0.0
    for before in reversed(angles):
        speed_ct = speed_ct + STEP * angle_ct
        angle_ct = angle_ct - STEP * np.cos(before) * speed_ct
    return angle_ct, speed_ct


def network(w1, b1, w2, b2, x, y):
    hidden = np.tanh(x @ w1 + b1)
    return np.mean((hidden @ w2 + b2 - y) ** 2)


def network_by_hand(w1, b1, w2, b2, x, y):
    hidden = np.tanh(x @ w1 + b1)
    out_ct = (hidden @ w2 + b2 - y) * (2 / y.size)
    hidden_ct = (out_ct @ w2.T) * (1 - hidden * hidden)
    return x.T @ hidden_ct, np.sum(hidden_ct, axis=0), hidden.T @ out_ct, np.sum(out_ct, axis=0)


def waves(x):
    return np.sum(np.exp(-x * x) * np.sin(3 * x) / (1 + x * x))


def waves_by_hand(x):
    square = x * x
    below = 1 / (1 + square)
    envelope = np.exp(-square) * below
    return envelope * (3 * np.cos(3 * x) - 2 * x * (1 + below) * np.sin(3 * x))


def log_sum_exp(scores):
    largest = np.max(scores, axis=1, keepdims=True)
    return np.sum(largest[:, 0] + np.log(np.sum(np.exp(scores - largest), axis=1)))


def log_sum_exp_by_hand(scores):
    powers = np.exp(scores - np.max(scores, axis=1, keepdims=True))
    powers /= np.sum(powers, axis=1, keepdims=True)
    return powers


def change(u):
    """Return what one step adds inside the border: diffusion, and a reaction with two stable states."""
    inside = u[1:-1, 1:-1]
    spread = u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - 4 * inside
    return STEP * (spread + inside - inside * inside * inside)


def stencil(start, steps):
    u = np.pad(start, 1)
    for _ in range(steps):
        u = np.pad(u[1:-1, 1:-1] + change(u), 1)
    return np.sum(u * u)


def stencil_in_place(start, steps):
    u = np.zeros_like(start, shape=(len(start) + 2, len(start) + 2))
    u[1:-1, 1:-1] = start
    for _ in range(steps):
        u[1:-1, 1:-1] += change(u)
    return np.sum(u * u)


def stencil_by_hand(start, steps):
    u, kept = np.pad(start, 1), []
    for _ in range(steps):
        kept.append(u[1:-1, 1:-1].copy())
        u[1:-1, 1:-1] += change(u)
    ct = 2 * u
    for inside in reversed(kept):
        back = ct[:-2, 1:-1] + ct[2:, 1:-1] + ct[1:-1, :-2] + ct[1:-1, 2:]
        ct[1:-1, 1:-1] *= 1 - STEP * (3 + 3 * inside * inside)
        ct[1:-1, 1:-1] += STEP * back
    return ct[1:-1, 1:-1].copy()


def memory(x):
    y = np.zeros_like(x)
    y[0] = x[0]
    for i in range(1, len(x)):
        y[i] = np.tanh(0.9 * y[i - 1] + x[i])
    return y


def memory_by_hand(x):
    y, x_ct = memory(x), np.zeros_like(x)
    y_ct = 2 * y
    for i in range(len(x) - 1, 0, -1):
        x_ct[i] = y_ct[i] * (1 - y[i] * y[i])
        y_ct[i - 1] += 0.9 * x_ct[i]
    x_ct[0] = y_ct[0]
    return x_ct


def chain(matrices):
    product = matrices[0]
    for matrix in matrices[1:]:
        product = product @ matrix
    return np.sum(product * product)


def chain_by_hand(matrices):
    products = [matrices[0]]
    for matrix in matrices[1:]:
        products.append(products[-1] @ matrix)
    result = np.empty_like(matrices)
    ct = 2 * products[-1]
    for i in range(len(matrices) - 1, 0, -1):
        result[i] = products[i - 1].T @ ct
        ct = ct @ matrices[i].T
    result[0] = ct
    return result


def mixture(weights, means, log_scales, x):
    z = (x[:, None] - means) * np.exp(-log_scales)
    each = weights - np.sum(z * z / 2 + log_scales, axis=2)
    return np.sum(np.logaddexp.reduce(each, axis=1)) - len(x) * np.logaddexp.reduce(weights)


def mixture_by_hand(weights, means, log_scales, x):
    scales = np.exp(-log_scales)
    z = (x[:, None] - means) * scales
    each = weights - np.sum(z * z, axis=2) / 2 - np.sum(log_scales, axis=1)
    share = np.exp(each - np.max(each, axis=1, keepdims=True))
    share /= np.sum(share, axis=1, keepdims=True)
    prior = np.exp(weights - np.max(weights))
    counts = np.sum(share, axis=0)
    weights_ct = counts - len(x) * prior / np.sum(prior)
    z_ct = share[:, :, None] * z
    return weights_ct, np.sum(z_ct, axis=0) * scales, np.sum(z_ct * z, axis=0) - counts[:, None]


def valley(x):
    return np.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


def valley_by_hand(x):
    inner, beside = np.zeros(len(x)), -400 * x[:-1]
    inner[:-1] = 1200 * x[:-1] ** 2 - 400 * x[1:] + 2
    inner[1:] += 200
    return np.diag(inner) + np.diag(beside, 1) + np.diag(beside, -1)


def example_loss(w, v, x, y):
    return (v @ np.tanh(w @ x) - y) ** 2


def examples_by_hand(w, v, x, y):
    hidden = np.tanh(x @ w.T)
    out_ct = 2 * (hidden @ v - y)[:, None]
    return (out_ct * v * (1 - hidden * hidden))[:, :, None] * x[:, None], out_ct * hidden


def normal(*shapes):
    """Return what draws arrays of these shapes, in which "n" stands for n."""
    return lambda rng, n: tuple([rng.normal(size=[n if k == "n" else k for k in shape]) for shape in shapes])


# fmt: off
WORKLOADS = [
    Workload("scalar loop", "steps", 10, 1_000, lambda rng, n: (*rng.normal(size=2).tolist(), n),
             pendulum, pendulum_by_hand, partial(grad, argnums=(0, 1))),
    Workload("small network", "hidden units", 3, 16, normal([8, "n"], ["n"], ["n", 2], [2], [16, 8], [16, 2]),
             network, network_by_hand, partial(grad, argnums=(0, 1, 2, 3))),
    Workload("entry by entry", "entries", 20, 200_000, normal(["n"]), waves, waves_by_hand),
    Workload("log-sum-exp", "rows", 5, 5_000, normal(["n", 40]), log_sum_exp, log_sum_exp_by_hand),
    Workload("stencil", "steps", 3, 50, lambda rng, n: (rng.normal(size=(64, 64)), n), stencil, stencil_by_hand),
    Workload("stencil in place", "steps", 3, 50, lambda rng, n: (rng.normal(size=(64, 64)), n),
             stencil_in_place, stencil_by_hand),
    Workload("array filled", "entries", 10, 1_000, normal(["n"]), lambda x: np.sum(memory(x) ** 2), memory_by_hand),
    Workload("matrix chain", "matrices", 3, 100, lambda rng, n: (rng.normal(size=(n, 48, 48)) / 48**0.5,),
             chain, chain_by_hand),
    Workload("Gaussian mixture", "points", 7, 10_000, normal([5], [5, 3], [5, 3], ["n", 3]),
             mixture, mixture_by_hand, partial(grad, argnums=(0, 1, 2))),
    Workload("Hessian", "variables", 4, 30, normal(["n"]), valley, valley_by_hand, hessian),
    Workload("gradient by example", "examples", 4, 2_000, normal([16, 8], [16], ["n", 8], ["n"]), example_loss,
             examples_by_hand, lambda f: vmap(grad(f, argnums=(0, 1)), in_axes=(None, None, 0, 0))),
]
# fmt: on
