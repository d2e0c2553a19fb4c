"""The package is what it says it is: NumPy alone, typed, small."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import meintorch

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "meintorch"
ALLOWED = {"numpy", "typing_extensions", "meintorch"} | set(sys.stdlib_module_names)
OTHER_LIBRARIES = {"torch", "jax", "jaxlib", "tinygrad", "autograd", "mygrad", "tensorflow"}
FENCED_PYTHON = re.compile(r"^[ \t]*```python.*?\n(.*?)^[ \t]*```", re.MULTILINE | re.DOTALL)
IMPORT_LINE = re.compile(r"^[ \t>.]*(?:import|from)[ \t]+(\w+)", re.MULTILINE)


def tracked_files(pattern: str) -> list[Path]:
    folders = [ROOT / "meintorch", ROOT / "tests", ROOT / "docs"]
    return sorted(ROOT.glob(pattern)) + sorted(path for folder in folders for path in folder.rglob(pattern))


def imported_packages(source: str) -> set[str]:
    """Top-level names of all absolute imports, at whatever depth they stand."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found.add(str(node.module).partition(".")[0])
    return found


def project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.mark.parametrize("path", tracked_files("*.py"), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_file_imports_another_differentiation_library(path):
    assert not imported_packages(path.read_text(encoding="utf-8")) & OTHER_LIBRARIES


@pytest.mark.parametrize("path", tracked_files("*.md"), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_page_imports_another_differentiation_library(path):
    blocks = FENCED_PYTHON.findall(path.read_text(encoding="utf-8"))
    assert not set(IMPORT_LINE.findall("\n".join(blocks))) & OTHER_LIBRARIES


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_the_package_imports_numpy_alone(path):
    source = path.read_text(encoding="utf-8")
    assert imported_packages(source) <= ALLOWED
    assert not re.search(r"\b(import_module|__import__)\b", source), "an import that this test cannot see"


def loaded_by(names: str) -> set[str]:
    """Top-level names of the modules that a fresh interpreter has after importing `names`."""
    code = f"import sys, {names}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    return {name.partition(".")[0] for name in done.stdout.split()}


def test_importing_meintorch_loads_nothing_but_numpy():
    assert loaded_by("meintorch") - loaded_by("numpy, typing_extensions") <= ALLOWED


def test_importing_meintorch_is_quick():
    """Nothing that takes long to import comes in beside NumPy; see the figures of `python -X importtime`."""
    assert not (loaded_by("numpy, meintorch") - loaded_by("numpy")) & {
        "typing_extensions",
        "string",
        "scipy",
        "asyncio",
        "dataclasses",
        "threading",
        "html",
    }


def test_dependencies_are_exactly_two():
    assert project()["dependencies"] == ["numpy>=2.0", "typing-extensions"]


def test_no_extra_asks_for_another_differentiation_library():
    for wanted in project()["optional-dependencies"].values():
        assert not {re.split(r"\W", requirement)[0] for requirement in wanted} & OTHER_LIBRARIES


def test_version_has_one_source():
    source = (PACKAGE / "__init__.py").read_text(encoding="utf-8")
    assert re.findall(r'^__version__ = "(\d+\.\d+\.\d+)"$', source, re.MULTILINE) == [meintorch.__version__]
    assert f"## [{meintorch.__version__}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_package_is_typed_and_small():
    assert (PACKAGE / "py.typed").is_file()
    shipped = [path for path in PACKAGE.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    assert (PACKAGE / "data" / "digits.npz").stat().st_size < 60_000
    assert sum(path.stat().st_size for path in shipped) < 1_000_000


def test_licence_of_the_digits_names_their_authors():
    text = (PACKAGE / "data" / "digits.md").read_text(encoding="utf-8")
    for needed in ("E. Alpaydin", "C. Kaynak", "Optical Recognition of Handwritten Digits", "CC BY 4.0"):
        assert needed in text
