"""The first run: ``python -m meintorch`` teaches a small network to read handwritten digits.

The one idea: the network is a plain NumPy function of a dict of arrays, and ``value_and_grad`` of its loss is a dict
of the same shape. Everything else on this page is ordinary NumPy.
"""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterator
from importlib.resources import files
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from meintorch.func import grad, value_and_grad

Floats = NDArray[np.float64]
Digits = NDArray[np.uint8]
Weights = dict[str, Floats]

HELD_OUT = 200
EPOCHS = 60
BATCH = 32
STEP = 0.2
MOMENTUM = 0.9
VISIBLE = 0.85
INTERRUPTED = 130  # what a shell reports for a program that Ctrl-C ended


def load_digits() -> tuple[Floats, Digits]:
    """Return the 1,150 images as rows of 64 numbers between 0 and 1, and the digit that each shows."""
    with (files("meintorch") / "data" / "digits.npz").open("rb") as file, np.load(file) as data:
        images, labels = data["images"], data["labels"]
    return images.reshape(-1, 64) / 16, labels


def initial_weights(rng: np.random.Generator, hidden: int = 256) -> Weights:
    """Return a network of 64 pixels, one hidden layer and 10 scores, with small random weights."""
    return {
        "w1": rng.normal(scale=np.sqrt(2 / 64), size=(64, hidden)),
        "b1": np.zeros(hidden),
        "w2": rng.normal(scale=np.sqrt(2 / hidden), size=(hidden, 10)),
        "b2": np.zeros(10),
    }


def scores(weights: Weights, images: Floats) -> Floats:
    """Return ten scores for each image; the highest is the network's answer."""
    hidden = np.maximum(images @ weights["w1"] + weights["b1"], 0)
    return hidden @ weights["w2"] + weights["b2"]


def loss(weights: Weights, images: Floats, labels: Digits) -> np.floating[Any]:
    """Return the mean of ``-log(probability given to the right digit)``."""
    z = scores(weights, images)
    z = z - np.max(z, axis=1, keepdims=True)  # the same probabilities, and exp cannot overflow
    log_totals = np.log(np.sum(np.exp(z), axis=1))
    misses: Floats = log_totals - z[np.arange(len(labels)), labels]
    return np.mean(misses)


def accuracy(weights: Weights, images: Floats, labels: Digits) -> float:
    """Return the share of the images that the network reads rightly."""
    return float(np.mean(np.argmax(scores(weights, images), axis=1) == labels))


def train(
    weights: Weights, images: Floats, labels: Digits, *, epochs: int, rng: np.random.Generator
) -> Iterator[tuple[Weights, float]]:
    """Yield the weights and the mean loss after each pass over the images."""
    loss_and_slopes = value_and_grad(loss)
    velocity = {name: np.zeros_like(array) for name, array in weights.items()}
    for epoch in range(epochs):
        step = STEP * (1 - epoch / epochs)
        losses = []
        for batch in np.array_split(rng.permutation(len(labels)), len(labels) // BATCH):
            # Hiding a few pixels at random keeps the network from leaning on any single one.
            visible = images[batch] * (rng.random((len(batch), 64)) < VISIBLE)
            value, slopes = loss_and_slopes(weights, visible, labels[batch])
            velocity = {name: MOMENTUM * velocity[name] - step * slopes[name] for name in weights}
            weights = {name: weights[name] + velocity[name] for name in weights}
            losses.append(value)
        yield weights, float(np.mean(losses))


def show_progress(epoch: int, epochs: int, mean_loss: float, share: float) -> None:
    """Rewrite one moving line on a terminal; elsewhere print every tenth epoch on a line of its own."""
    line = f"epoch {epoch:3d}/{epochs}   loss {mean_loss:.4f}   held-out accuracy {share:6.2%}"
    if sys.stdout.isatty():
        print(f"\r{line}", end="\n" if epoch == epochs else "", flush=True)
    elif epoch == 1 or epoch % 10 == 0 or epoch == epochs:
        print(line, flush=True)


def run(epochs: int = EPOCHS, seed: int = 0) -> float:
    """Train on most of the digits and return the accuracy on the held-out rest."""
    rng = np.random.default_rng(seed)
    images, labels = load_digits()
    order = rng.permutation(len(labels))
    held_out, training = order[:HELD_OUT], order[HELD_OUT:]
    print(f"A network in plain NumPy learns from {len(training)} handwritten digits.", flush=True)

    start = time.perf_counter()
    weights, share = initial_weights(rng), 0.0
    passes = train(weights, images[training], labels[training], epochs=epochs, rng=rng)
    for epoch, (weights, mean_loss) in enumerate(passes, start=1):
        share = accuracy(weights, images[held_out], labels[held_out])
        show_progress(epoch, epochs, mean_loss, share)
    seconds = time.perf_counter() - start
    print(f"{share:.2%} of {HELD_OUT} digits it never saw were read rightly, after {seconds:.1f} s.", flush=True)
    return share


def stop(*_: object) -> NoReturn:
    """End at once, saying so in one line: what Ctrl-C asks for.

    An exception could be lost on its way, for instance in a destructor of the library that happens to be running.
    """
    with contextlib.suppress(OSError):
        os.write(1, b"\nStopped.\n" if os.isatty(1) else b"Stopped.\n")
    os._exit(INTERRUPTED)


def main() -> int:
    """Show one derivative, then train; return the exit status."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else whoever started us wants it ignored
        signal.signal(signal.SIGINT, stop)
    try:
        print(f"grad(lambda x: x*x + x)(3.0) = {grad(lambda x: x * x + x)(3.0)}", flush=True)
        run()
    except BrokenPipeError:  # the reader, such as ``head``, has left: nothing more can be printed, not even at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
