"""`numpy.random` under this name, for ``import meintorch.numpy.random``."""

from __future__ import annotations

from typing import Any

import numpy as np


def __getattr__(name: str) -> Any:
    return getattr(np.random, name)


def __dir__() -> list[str]:
    return dir(np.random)
