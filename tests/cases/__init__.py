"""The table of cases: for each row of the registry the calls that its rules are tested with.

The properties that every case has to have are written once, in tests/rules. A case is a function of arrays, with the
arrays at which it is evaluated; all of them are differentiated, unless ``constants`` names positions that are not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, eq=False)
class Case:
    """One call of one primitive."""

    row: Callable[..., Any]  # the registry's key
    call: Callable[..., Any]
    args: tuple[Any, ...]
    label: str = ""
    second: bool = True  # whether second derivatives exist at the point
    tolerance: float = 1e-6  # relative; the differences' own error sets it

    @property
    def id(self) -> str:
        """The name under which pytest shows it."""
        name = getattr(self.row, "__name__", str(self.row))
        owner = getattr(getattr(self.row, "__self__", None), "__name__", "")
        return f"{owner + '.' if owner else ''}{name}{' ' + self.label if self.label else ''}"


def normal(*shape: int, seed: int = 0) -> np.ndarray[Any, Any]:
    """Draw reproducible normal numbers; different shapes and seeds give different ones."""
    return np.random.default_rng([seed, *shape]).normal(size=shape)


def positive(*shape: int, seed: int = 0) -> np.ndarray[Any, Any]:
    """Draw reproducible numbers between 0.3 and 2."""
    return np.random.default_rng([seed, 1, *shape]).uniform(0.3, 2.0, size=shape)


def unit(*shape: int, seed: int = 0) -> np.ndarray[Any, Any]:
    """Draw reproducible numbers between -0.8 and 0.8."""
    return np.random.default_rng([seed, 2, *shape]).uniform(-0.8, 0.8, size=shape)


def distinct(*shape: int, seed: int = 0) -> np.ndarray[Any, Any]:
    """Draw reproducible numbers that are at least 0.5 apart."""
    rng = np.random.default_rng([seed, 3, *shape])
    size = int(np.prod(shape))
    return (rng.permutation(size) * 0.7 - 0.35 * size + rng.uniform(0.0, 0.2, size=size)).reshape(shape)


def complexes(*shape: int, seed: int = 0) -> np.ndarray[Any, Any]:
    """Draw reproducible complex normal numbers."""
    return normal(*shape, seed=seed) + 1j * normal(*shape, seed=seed + 100)
