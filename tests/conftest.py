"""Fixtures for all tests."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from meintorch.core import forms, large, specialise
from meintorch.tensor import OPERATORS, BatchTensor, BufferTensor, DualTensor, GraphTensor

USUAL = {"BLOCK": large.BLOCK, "FIRST": large.FIRST}
large.LARGE, large.BLOCK, large.FIRST = 4, 5, 0  # so that the tests meet what is done for large arrays, and at once
forms.WARM = 1  # functions are generated after the first call, so that the tests meet them

GENERATED = {
    "__array_ufunc__",
    "__array_function__",
    "__getitem__",
    "__matmul__",
    "__rmatmul__",
    *[f"__{side}{name}__" for name in OPERATORS for side in ("", "r")],
}


def objects_left_by(call: Callable[[], Any]) -> int:
    """Return how many objects a call leaves that only the collector can free."""
    call()
    gc.collect()
    gc.disable()
    try:
        call()
        return gc.collect()
    finally:
        gc.enable()


@pytest.fixture
def rng() -> np.random.Generator:
    """A reproducible source of numbers."""
    return np.random.default_rng(20)


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """No call, and no exception in one, may change NumPy's error handling."""
    before = np.geterr()
    yield
    assert np.geterr() == before


@pytest.fixture
def usual_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut arrays into blocks of the usual size: with those of five entries a page would take minutes."""
    for name, value in USUAL.items():
        monkeypatch.setattr(large, name, value)


@pytest.fixture
def plain_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Turn the generated functions off, so that the plain ones that define what they must do run."""
    monkeypatch.setattr(specialise, "enabled", False)
    writing = {"__getitem__", "__setitem__"}
    for kind, generated in (
        (GraphTensor, GENERATED),
        (DualTensor, GENERATED),
        (BatchTensor, GENERATED),
        (BufferTensor, writing),
    ):
        for name in [n for n in vars(kind) if n in generated]:
            monkeypatch.delattr(kind, name)


@pytest.fixture(params=["specialised", "plain"])
def engine(request: pytest.FixtureRequest) -> str:
    """Run a test with the generated functions and with the plain ones."""
    if request.param == "plain":
        request.getfixturevalue("plain_engine")
    return str(request.param)
