"""The first run, ``python -m meintorch``."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import numpy as np
import pytest

from meintorch import __main__ as first_run

COMMAND = [sys.executable, "-m", "meintorch"]
FIRST_LINE = "grad(lambda x: x*x + x)(3.0) = 7.0\n"


def test_shipped_digits():
    images, labels = first_run.load_digits()
    assert images.shape == (1150, 64)
    assert images.dtype == np.float64
    assert (images.min(), images.max()) == (0.0, 1.0)
    assert np.array_equal(images * 16, np.round(images * 16))
    assert labels.shape == (1150,)
    assert np.array_equal(np.unique(labels), np.arange(10))


def test_loss_of_equal_scores_is_log_ten():
    random = first_run.initial_weights(np.random.default_rng(0))
    weights = {name: np.zeros_like(array) for name, array in random.items()}
    images, labels = first_run.load_digits()
    assert first_run.loss(weights, images, labels) == pytest.approx(np.log(10))


def test_slopes_agree_with_differences():
    rng = np.random.default_rng(1)
    images, labels = (array[:20] for array in first_run.load_digits())
    weights = first_run.initial_weights(rng, hidden=7)
    direction = {name: rng.normal(size=array.shape) for name, array in weights.items()}

    def loss_at(t: float) -> float:
        moved = {name: weights[name] + t * direction[name] for name in weights}
        return float(first_run.loss(moved, images, labels))

    value, slopes = first_run.value_and_grad(first_run.loss)(weights, images, labels)
    along = sum(np.sum(slopes[name] * direction[name]) for name in weights)
    assert value == loss_at(0)
    assert along == pytest.approx((loss_at(1e-6) - loss_at(-1e-6)) / 2e-6, rel=1e-6)


@pytest.mark.parametrize("seed", [1, 2])
def test_a_short_training_already_reads_most_digits(seed, capsys):
    assert first_run.run(epochs=8, seed=seed) > 0.94
    assert "epoch   8/8" in capsys.readouterr().out


def test_full_run():
    done = subprocess.run(COMMAND, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.startswith(FIRST_LINE)
    assert done.stderr == ""
    last = done.stdout.splitlines()[-1]
    share, rest = last.split("%")
    assert float(share) >= 97.0
    assert rest.startswith(" of 200 digits it never saw were read rightly")
    assert "\r" not in done.stdout


@pytest.mark.skipif(os.name == "nt", reason="on Windows Ctrl-C cannot be sent to one child")
def test_ctrl_c_stops_without_a_traceback():
    # A shell may have started the tests with SIGINT ignored, which a child inherits.
    with subprocess.Popen(
        COMMAND,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 - it takes no lock
    ) as process:
        assert process.stdout.readline() == FIRST_LINE
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err == ""
    assert out.splitlines()[-1] == "Stopped."


@pytest.mark.skipif(os.name == "nt", reason="pipes break differently on Windows")
def test_a_reader_that_leaves_gets_no_traceback():
    with subprocess.Popen(COMMAND, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        process.stdout.readline()
        process.stdout.close()
        err = process.stderr.read()
    assert err == ""


@pytest.mark.skipif(os.name == "nt", reason="pseudo-terminals are a matter of Unix")
def test_progress_moves_on_a_terminal():
    import pty  # noqa: PLC0415 - Windows has none

    controller, terminal = pty.openpty()
    code = "from meintorch.__main__ import run; run(epochs=3)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=terminal, stderr=terminal) as process:
        os.close(terminal)
        shown = b""
        try:
            while chunk := os.read(controller, 4096):
                shown += chunk
        except OSError:  # Linux's way to say that the other end has closed
            pass
    os.close(controller)
    assert process.returncode == 0
    assert shown.count(b"\repoch ") == 3
    assert b"epoch   3/3" in shown
