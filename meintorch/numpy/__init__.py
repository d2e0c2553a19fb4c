"""NumPy, with functions that traced values can be given to where NumPy's protocols cannot see them.

``import meintorch.numpy as np`` in place of ``import numpy as np``: every name is NumPy's own, but for those of
`meintorch.numpy._wrapped`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from meintorch.numpy import linalg as linalg
from meintorch.numpy._wrapped import WRAPPED

__all__ = list(np.__all__)


def __getattr__(name: str) -> Any:
    found = WRAPPED[name] if name in WRAPPED else getattr(np, name)
    globals()[name] = found  # where it is found at once the next time
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *dir(np)})
