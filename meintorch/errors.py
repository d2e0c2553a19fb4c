"""Every exception that meintorch raises on purpose, and its one warning; each message carries the way out."""

from __future__ import annotations

from types import CodeType

__all__ = [
    "BatchError",
    "EscapedTensorError",
    "InPlaceError",
    "InputError",
    "LostDerivativeError",
    "MeintorchError",
    "NoRuleError",
    "OutputError",
    "RowError",
    "TreeError",
]


class MeintorchError(Exception):
    """Base class of all errors raised by meintorch itself."""


class TreeError(MeintorchError, ValueError):
    """A nested container does not have the structure that was expected."""


class InputError(MeintorchError, TypeError):
    """A value cannot be differentiated: a bool, a string, an object array, or no argument at all."""


class OutputError(MeintorchError, TypeError):
    """A function returned something that the transform cannot differentiate."""


class NoRuleError(MeintorchError, NotImplementedError, TypeError):
    """A NumPy function, or one of its options, has no derivative rule."""


class EscapedTensorError(MeintorchError, RuntimeError):
    """A traced value was used where its transform does not see it: after that had returned, or inside a custom rule."""


class LostDerivativeError(MeintorchError, TypeError):
    """An operation would have turned a traced value into a plain number, silently dropping its derivative."""


class InPlaceError(MeintorchError, TypeError):
    """A traced array was written to in a way that cannot be followed."""


class BatchError(MeintorchError, TypeError):
    """A program asked a batch of examples for a single answer, or the batch axes do not fit."""


class DrawingError(MeintorchError, ValueError):
    """A graph is too large for a picture that can be read."""


class RowError(MeintorchError, ValueError):
    """A rule was registered that does not fit its function."""


class NaNWarning(RuntimeWarning):
    """A derivative came out NaN although the value did not; the message says where that began."""


OURS = (
    __file__.removesuffix("errors.py"),
    "<meintorch: ",
)  # where the package's files are, and what it calls generated code


def source_line(code: CodeType | None, lasti: int) -> str:
    """Name the file and line of an instruction, as ``model.py line 14``.

    An outer derivative notes the operations that an inner one runs; their lines are ours and say nothing to the user.
    """
    if code is None:
        return "an unknown line"
    if code.co_filename.startswith(OURS):
        return "within an inner derivative"
    line = code.co_firstlineno
    for start, end, number in code.co_lines():
        if number is not None and start <= lasti < end:
            line = number
            break
    return f"{code.co_filename} line {line}, in {code.co_qualname}"
