"""`numpy.linalg`; det, inv, norm and solve take lists that hold traced values, too."""

from __future__ import annotations

from typing import Any

import numpy as np

from meintorch.numpy._wrapped import takes_lists

__all__ = list(np.linalg.__all__)

det, inv, norm, solve = [takes_lists(f) for f in (np.linalg.det, np.linalg.inv, np.linalg.norm, np.linalg.solve)]


def __getattr__(name: str) -> Any:
    return getattr(np.linalg, name)


def __dir__() -> list[str]:
    return dir(np.linalg)
