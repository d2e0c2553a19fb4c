"""Names for types that several modules use in their signatures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray[Any, Any]
Shape: TypeAlias = "tuple[int, ...]"
Axis: TypeAlias = "int | tuple[int, ...] | None"
PyTree: TypeAlias = Any
Rule: TypeAlias = Callable[..., Any]
