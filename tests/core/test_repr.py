"""What a Tensor shows of itself: its values first, its shape, and the transforms that it belongs to, innermost first."""

from __future__ import annotations

import re

import numpy as np
import pytest

from meintorch import Tensor
from meintorch.func import checkpoint, grad, hessian, jacfwd, jvp, value_and_grad, vjp, vmap


def shown(transform, f, *args):
    """Return the repr of the input of ``f`` inside a transform, with the levels counted from 1, outermost first."""
    texts = []

    def spy(x):
        texts.append(repr(x))
        return f(x)

    transform(spy)(*args)
    levels = sorted({int(n) for n in re.findall(r"level (\d+)", texts[0])})
    return re.sub(r"level (\d+)", lambda m: f"level {levels.index(int(m[1])) + 1}", texts[0])


x = np.array([1.0, 2.5])


@pytest.mark.parametrize("transform", [grad, value_and_grad, lambda f: lambda x: vjp(f, x)])
def test_reverse_mode(transform):
    assert shown(transform, np.sum, x) == "Tensor([1. , 2.5], shape=(2,), reverse mode at level 1)"
    assert shown(transform, np.sin, 0.5) == "Tensor(0.5, shape=(), reverse mode at level 1)"


def test_forward_mode():
    assert shown(lambda f: lambda x: jvp(f, (x,), (x,)), np.sin, x) == (
        "Tensor([1. , 2.5], shape=(2,), forward mode at level 1)"
    )


def test_a_batch_shows_the_shape_of_one_example_and_how_many_there_are():
    assert shown(vmap, np.sin, np.ones((3, 2))) == (
        "Tensor([[1., 1.],\n        [1., 1.],\n        [1., 1.]], shape=(2,), vmap of 3 examples at level 1)"
    )


def test_transforms_of_transforms_stand_from_the_innermost_to_the_outermost():
    assert shown(lambda f: grad(grad(f)), np.sin, 0.5) == (
        "Tensor(0.5, shape=(), reverse mode at level 2, reverse mode at level 1)"
    )
    assert shown(lambda f: vmap(grad(f)), np.sum, np.ones((1, 2))) == (
        "Tensor([[1., 1.]], shape=(2,), reverse mode at level 2, vmap of 1 example at level 1)"
    )
    assert shown(lambda f: grad(lambda y: np.sum(vmap(f)(y))), np.sin, x) == (
        "Tensor([1. , 2.5], shape=(), vmap of 2 examples at level 2, reverse mode at level 1)"
    )
    assert "forward mode" in shown(jacfwd, np.sin, x)
    assert shown(hessian, np.sum, x).count("mode at level") == 2


def test_a_checkpoint():
    assert "checkpoint at level" in shown(lambda f: grad(checkpoint(f)), np.sum, x)


def test_large_arrays_are_summarised():
    text = shown(grad, np.sum, np.zeros((50, 60)))
    assert "..." in text
    assert len(text) < 500
    assert text.endswith("shape=(50, 60), reverse mode at level 1)")
    assert repr(Tensor(np.zeros((50, 60)))).endswith("shape=(50, 60))")


def test_the_object_style_shows_its_values():
    assert repr(Tensor([1.0, 2.0])) == str(Tensor([1.0, 2.0])) == "Tensor([1., 2.])"


def test_numbers_are_formatted_as_numbers():
    texts = []
    grad(lambda x: (texts.append(f"{x:.2f} {x}"), x)[1])(0.5)
    assert re.fullmatch(r"0\.50 Tensor\(0\.5, shape=\(\), reverse mode at level \d+\)", texts[0])


def test_a_value_that_has_escaped_can_still_be_looked_at():
    kept = []
    grad(lambda x: (kept.append(x), x)[1])(0.5)
    assert "Tensor(0.5" in repr(kept[0])
