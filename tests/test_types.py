"""What a type checker, and so an editor, knows of a program that uses the library."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("typed_program.py")
ROOT = Path(__file__).parents[1]
VECTOR = "numpy.ndarray[tuple[Any, ...], numpy.dtype[numpy.float64]]"
ARRAY = "numpy.ndarray[Any, Any]"


def short(text: str) -> str:
    """Spell a type as the comments of the program do."""
    text = text.replace(VECTOR, "Vector").replace(ARRAY, "Array")
    return re.sub(r"\bmeintorch\.[\w.]*\.(\w+)", r"\1", text)


@pytest.fixture(scope="module")
def found(tmp_path_factory) -> dict[int, str]:
    """What mypy says, line by line."""
    api = pytest.importorskip("mypy.api")
    cache = tmp_path_factory.mktemp("mypy")
    options = ["--strict", "--cache-dir", str(cache), "--config-file", "", "--no-error-summary"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MYPYPATH", str(ROOT))
        output, errors, _ = api.run([*options, str(PROGRAM)])
    assert not errors
    lines: dict[int, str] = {}
    for number, message in re.findall(r"^.*?typed_program\.py:(\d+): (?:note|error): (.*)$", output, re.MULTILINE):
        lines[int(number)] = lines.get(int(number), "") + message + "\n"
    return lines


def expectations() -> list[tuple[int, str, str]]:
    program = PROGRAM.read_text(encoding="utf-8").splitlines()
    return [
        (number, *match.groups())
        for number, line in enumerate(program, 1)
        if (match := re.search(r"# ([RE]): (.*)$", line))
    ]


@pytest.mark.parametrize(("line", "kind", "expected"), expectations())
def test_mypy_finds(found, line, kind, expected):
    message = found.get(line, "nothing")
    if kind == "R":
        revealed = re.search(r'Revealed type is "(.*)"', message)
        assert revealed, message
        assert short(revealed[1]) == expected
    else:
        assert expected in message


def test_mypy_finds_nothing_else(found):
    assert sorted(found) == [line for line, _, _ in expectations()]
