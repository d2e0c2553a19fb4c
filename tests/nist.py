"""NIST's reference problems for nonlinear regression: the figures, and the models as plain NumPy functions."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

FIGURES = Path(__file__).parent / "data" / "nist_strd.json"
PROBLEMS: dict[str, dict[str, Any]] = json.loads(FIGURES.read_text(encoding="utf-8"))["problems"]


def chwirut(b: Array, x: Array) -> Array:
    return np.exp(-b[0] * x) / (b[1] + b[2] * x)


def danwood(b: Array, x: Array) -> Array:
    return b[0] * x ** b[1]


def gauss(b: Array, x: Array) -> Array:
    first = b[2] * np.exp(-((x - b[3]) ** 2) / b[4] ** 2)
    second = b[5] * np.exp(-((x - b[6]) ** 2) / b[7] ** 2)
    return b[0] * np.exp(-b[1] * x) + first + second


def kirby2(b: Array, x: Array) -> Array:
    return (b[0] + b[1] * x + b[2] * x**2) / (1 + b[3] * x + b[4] * x**2)


def lanczos(b: Array, x: Array) -> Array:
    return b[0] * np.exp(-b[1] * x) + b[2] * np.exp(-b[3] * x) + b[4] * np.exp(-b[5] * x)


def mgh09(b: Array, x: Array) -> Array:
    return b[0] * (x**2 + x * b[1]) / (x**2 + x * b[2] + b[3])


def mgh17(b: Array, x: Array) -> Array:
    return b[0] + b[1] * np.exp(-x * b[3]) + b[2] * np.exp(-x * b[4])


def misra1a(b: Array, x: Array) -> Array:
    return b[0] * (1 - np.exp(-b[1] * x))


def misra1b(b: Array, x: Array) -> Array:
    return b[0] * (1 - (1 + b[1] * x / 2) ** (-2))


def misra1c(b: Array, x: Array) -> Array:
    return b[0] * (1 - (1 + 2 * b[1] * x) ** (-0.5))


def misra1d(b: Array, x: Array) -> Array:
    return b[0] * b[1] * x * (1 + b[1] * x) ** (-1)


def nelson(b: Array, x: Array) -> Array:
    return b[0] - b[1] * x[0] * np.exp(-b[2] * x[1])  # of log(y)


def rat42(b: Array, x: Array) -> Array:
    return b[0] / (1 + np.exp(b[1] - b[2] * x))


def roszman1(b: Array, x: Array) -> Array:
    return b[0] - b[1] * x - np.arctan(b[2] / (x - b[3])) / np.pi


MODELS = {
    "Chwirut1": chwirut,
    "Chwirut2": chwirut,
    "DanWood": danwood,
    "Gauss1": gauss,
    "Gauss2": gauss,
    "Kirby2": kirby2,
    "Lanczos1": lanczos,
    "Lanczos2": lanczos,
    "Lanczos3": lanczos,
    "MGH09": mgh09,
    "MGH17": mgh17,
    "Misra1a": misra1a,
    "Misra1b": misra1b,
    "Misra1c": misra1c,
    "Misra1d": misra1d,
    "Nelson": nelson,
    "Rat42": rat42,
    "Roszman1": roszman1,
}


def residuals_of(name: str) -> Callable[[Array], Array]:
    """Return the residuals of a problem as a function of its parameters."""
    model, x, y = MODELS[name], np.array(PROBLEMS[name]["x"]), np.array(PROBLEMS[name]["y"])
    if name == "Nelson":
        y = np.log(y)
    return lambda b: model(b, x) - y


def digits(found: Any, certified: Any) -> float:
    """Return how many digits are right in the worst of some numbers; NIST certifies eleven."""
    error = np.max(np.abs(np.divide(found, certified) - 1))
    return float(-np.log10(max(error, 1e-11)))
