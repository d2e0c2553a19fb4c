"""Nothing is shown that was not executed: every Python block of the README and of the documentation runs here.

The blocks of one page share one namespace, in the order of the page. Each fence must name a language that this file
knows, so that no block can be left out by a misspelt name.
"""

from __future__ import annotations

import contextlib
import doctest
import importlib
import inspect
import io
import pydoc
import re
import textwrap
import tomllib
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import meintorch
from meintorch import errors, func, testing, tree
from meintorch.core.primitive import later, registry

pytestmark = pytest.mark.usefixtures("usual_sizes")

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
PAGES = [README, ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
SITE_PAGES = [page for page in PAGES if page.is_relative_to(ROOT / "docs")]
FENCE = re.compile(
    r"^(?P<indent>[ \t]*)(?P<ticks>`{3,})(?P<info>[^`\n]*)\n(?P<body>.*?)^(?P=indent)(?P=ticks)[ \t]*$",
    re.MULTILINE | re.DOTALL,
)
NOT_EXECUTED = {"text", "bash"}


@dataclass(frozen=True)
class Block:
    """One fenced block of a page."""

    line: int
    info: str
    body: str

    @property
    def language(self) -> str:
        return self.info.split()[0] if self.info.split() else ""


def blocks_of(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [
        Block(text.count("\n", 0, match.start()) + 1, match["info"].strip(), textwrap.dedent(match["body"]))
        for match in FENCE.finditer(text)
    ]


def execute(page: Path, block: Block, namespace: dict) -> str:
    """Run one block and return what it printed; a failure names the page and the line."""
    padding = "\n" * block.line
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(padding + block.body, str(page), "exec"), namespace)
    return printed.getvalue()


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_python_block_runs(page):
    namespace = {"__name__": "__page__"}
    for block in blocks_of(page):
        if block.language == "python":
            execute(page, block, namespace)
        else:
            assert block.language in NOT_EXECUTED, f"{name_of(page)}, line {block.line}: which language is this block?"


# What is shown on these pages runs only in a copy of the repository, and they say so.
IN_THE_REPOSITORY = {"performance.md"}


@pytest.mark.parametrize("page", [page for page in SITE_PAGES if page.name not in IN_THE_REPOSITORY], ids=name_of)
def test_what_a_page_shows_runs_by_itself(page, tmp_path, monkeypatch):
    """A reader who copies all the code of a page, in order, to a place of their own needs nothing that is hidden.

    A chapter of the course shows the code of those before it in a box.
    """
    reader = {"__name__": "__page__"}
    for block in blocks_of(page):
        if block.language != "python":
            continue
        if 'source="' in block.info:
            with monkeypatch.context() as elsewhere:
                elsewhere.chdir(tmp_path)
                execute(page, block, reader)
        elif "tests/course.py" in block.body:
            shown = re.search(r"```python\n(.*)```", execute(page, block, {}), re.DOTALL)
            execute(page, Block(block.line, "python", shown[1]), reader)


CODE_WIDTH = 64  # characters; a phone shows about 50 of them


@pytest.mark.parametrize("page", SITE_PAGES, ids=name_of)
def test_lines_of_code_are_short(page):
    """Ruff wraps what is shown; a line that is one text, such as a message, may be somewhat longer."""
    for block in blocks_of(page):
        if block.language == "python" and 'source="' in block.info:
            width = CODE_WIDTH + 17 * (page.parent.name == "tutorial")  # its class has about forty lines, none wrapped
            long = [line for line in block.body.splitlines() if len(line) > width]
            assert [line for line in long if len(line) > 81 or not re.search(r"^\W*(return )?f?\".*\"$", line)] == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_fence_is_seen(page):
    """As many fences open and close as there are blocks: none is hidden by one that never closes."""
    fences = re.findall(r"^[ \t>]*(?:```|~~~)", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(fences) == 2 * len(blocks_of(page))


@pytest.mark.parametrize("page", SITE_PAGES, ids=name_of)
def test_the_site_executes_what_it_shows(page):
    """A page of the site shows no output that was typed by hand, and its blocks share one session as they do here."""
    for block in blocks_of(page):
        where = f"{name_of(page)}, line {block.line}"
        if block.language == "python":
            assert 'exec="on"' in block.info, f"{where}: shown, yet not executed"
            assert f'session="{page.stem}"' in block.info, f"{where}: not in the page's session"
        else:
            assert block.language == "bash", f"{where}: an output typed by hand"


def test_readme_shows_the_real_outputs():
    namespace = {"__name__": "__page__"}
    checked = 0
    blocks = blocks_of(README)
    for block, after in zip(blocks, [*blocks[1:], None], strict=True):
        if block.language != "python":
            continue
        printed = execute(README, block, namespace)
        if printed:
            assert after is not None
            assert after.language == "text"
            assert after.body == printed
            checked += 1
    assert checked == sum(block.language == "text" for block in blocks) >= 2


def test_readme_and_site_say_the_same():
    """What both say has one source, or is held against it here."""
    readme = README.read_text(encoding="utf-8")
    home = ROOT / "docs" / "index.md"
    namespace: dict = {"__name__": "__page__"}
    printed = "".join([execute(home, block, namespace) for block in blocks_of(home) if block.language == "python"])
    for title in ("What is promised", "Limits of this version"):
        section = readme.partition(f"\n## {title}\n")[2].partition("\n## ")[0].strip()
        assert len(section) > 500
        assert section in printed
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    python, numpy = project["requires-python"].removeprefix(">="), project["dependencies"][0].removeprefix("numpy>=")
    started = (ROOT / "docs" / "getting-started.md").read_text(encoding="utf-8")
    assert f"Python {python} or newer" in readme
    assert f"Python {python} or newer and NumPy {numpy.removesuffix('.0')}" in started
    assert project["description"] in home.read_text(encoding="utf-8")


def test_ci_runs_what_the_readme_promises():
    """In CI pip is quiet, and the site is built strictly instead of being served."""
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8").replace("pip install --quiet", "pip install")
    script = script.replace(".[dev,docs]", ".[docs]")
    promised = [block.body for block in blocks_of(README) if block.language == "bash"]
    commands = [command.strip() for body in promised for command in body.split("&&")]
    assert "python -m pytest -n auto" in commands
    missing = [command for command in commands if command not in script]
    assert missing == ["mkdocs serve"]
    assert "mkdocs build --strict" in script


def test_every_page_is_in_the_navigation():
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[2]
    listed = set(re.findall(r"[\w/-]+\.md", navigation))
    assert listed == {page.relative_to(ROOT / "docs").as_posix() for page in SITE_PAGES}


def test_the_reference_lists_every_transform():
    page = (ROOT / "docs" / "reference" / "func.md").read_text(encoding="utf-8")
    listed = re.findall(r"^::: meintorch\.func\.(\w+)$", page, re.MULTILINE)
    assert sorted(listed) == sorted(func.__all__)


PUBLIC = {
    f"{module.__name__}.{name}": getattr(module, name)
    for module in (meintorch, func, errors, testing, tree)
    for name in module.__all__
    if not isinstance(getattr(module, name), ModuleType)
}


def test_every_public_name_is_on_a_page_of_the_reference():
    """By its own name, or by that of the module where a name of the top level is at home."""
    pages = "".join([page.read_text(encoding="utf-8") for page in SITE_PAGES if page.parent.name == "reference"])
    shown = set(re.findall(r"^::: (meintorch\.[\w.]+)$", pages, re.MULTILINE))
    for path, value in PUBLIC.items():
        name = path.rpartition(".")[2]
        homes = [f"meintorch.{home}.{name}" for home in ("func", "tensor")] if path.count(".") == 1 else []
        there = [home for home in (path, *homes) if home in shown]
        assert there, f"{path} is on no page of the reference"
        assert any([pydoc.locate(home) is value for home in there])


NEVER_RAISES = {"stop_gradient", "leaves", "paths"}


@pytest.mark.parametrize("path", sorted(PUBLIC))
def test_the_docstring_of_every_public_name_says_it_all(path):
    """Parameters, results, errors, an example: each where there is something to say."""
    value = PUBLIC[path]
    text = inspect.getdoc(value)
    if path.startswith("meintorch.errors."):
        assert issubclass(value, errors.MeintorchError)
        assert text.endswith(".")
        return
    sections = re.findall(r"^(\w+)\n-+$", text, re.MULTILINE)
    assert "Examples" in sections
    if inspect.isfunction(value):
        assert "Returns" in sections or returns_nothing(value)
        assert "Parameters" in sections or not inspect.signature(value).parameters
        assert "Raises" in sections or path.rpartition(".")[2] in NEVER_RAISES
        described = text.partition("Parameters\n----------\n")[2]
        for name in inspect.signature(value).parameters:
            assert re.search(rf"^[\w, *]*\b{name}\b[\w, *]*( :|$)", described, re.MULTILINE), name


def returns_nothing(f):
    return inspect.signature(f).return_annotation in ("None", None)


def test_every_error_has_a_program_that_raises_it_and_one_that_does_not():
    page = ROOT / "docs" / "reference" / "errors.md"
    printed: dict[str, list[str]] = {}
    namespace: dict = {"__name__": "__page__"}
    text = page.read_text(encoding="utf-8")
    for block in blocks_of(page):
        above = text[: text.index(block.body)] if block.language == "python" else ""
        under = (re.findall(r"^::: meintorch\.errors\.(\w+)$", above, re.MULTILINE) or ["the top"])[-1]
        printed.setdefault(under, []).append(execute(page, block, namespace))
    for name in set(errors.__all__) - {"MeintorchError"}:
        outcomes = [output.startswith(f"{name}: ") for output in printed[name] if output]
        assert outcomes[0], f"the first program under {name} does not raise it"
        assert not outcomes[-1], f"the last program under {name} raises it still"


# Names that a reader of the table of functions looks for.
EVERYDAY = """
np.abs np.add np.arctan2 np.argmax np.average np.clip np.concatenate np.conj np.convolve np.cov np.cross np.cumprod np.cumsum
np.diag np.diff np.divide np.dot np.einsum np.exp np.fft.fft np.fft.irfft np.fft.rfft np.floor np.gradient np.histogram
np.interp np.linalg.cholesky np.linalg.det np.linalg.eigh np.linalg.inv np.linalg.lstsq np.linalg.norm np.linalg.pinv
np.linalg.qr np.linalg.slogdet np.linalg.solve np.linalg.svd np.linspace np.log np.logaddexp np.matmul np.max np.maximum
np.mean np.median np.multiply np.outer np.pad np.percentile np.polyfit np.polyval np.power np.prod np.quantile np.reshape
np.roll np.select np.shape np.sign np.sin np.sort np.sqrt np.stack np.std np.subtract np.sum np.take np.tanh np.tensordot
np.transpose np.trapezoid np.tril np.unique np.var np.vstack np.where np.zeros_like np.add.reduce np.maximum.accumulate
scipy.special.digamma scipy.special.erf scipy.special.expit scipy.special.gammaln scipy.special.jv scipy.special.lambertw
scipy.special.log_ndtr scipy.special.ndtr scipy.special.xlogy
"""


@pytest.fixture(scope="module")
def table_of_functions() -> dict[str, list[str]]:
    """The rows of the page of supported functions: from each name to the other cells."""
    page = ROOT / "docs" / "reference" / "functions.md"
    namespace: dict = {"__name__": "__page__"}
    printed = "".join([execute(page, block, namespace) for block in blocks_of(page)])
    rows: dict[str, list[str]] = {}
    for line in printed.splitlines():
        if line.startswith("| `"):
            names, *cells = [cell.strip() for cell in line.strip("|").split("|")]
            for name in re.findall(r"`([^`]+)`", names):
                assert name not in rows, f"{name} is listed twice"
                rows[name] = cells
    assert f"**{namespace['count']} functions**" in printed
    assert sum(line.startswith("| `") for line in printed.splitlines()) == namespace["count"]
    return rows


def test_the_table_of_functions_has_every_row(table_of_functions):
    names = {prim.name for prim in registry.values()}
    names |= {f"scipy.special.{name.lstrip('_')}" for rows in later.values() for name in rows}
    hidden = {name for name in names if name not in table_of_functions}
    assert all(name.startswith(("meintorch.", "_operator.")) for name in hidden), hidden
    assert [name for name in EVERYDAY.split() if name not in table_of_functions] == []


def test_the_table_of_functions_tells_the_truth(table_of_functions):
    """Spot checks against what the functions do, not against the rows."""

    def arguments(name):
        return re.findall(r"`(\w+)`", table_of_functions[name][1])

    assert arguments("np.where") == ["x", "y"]
    assert arguments("scipy.special.gammainc") == ["x2"]
    assert table_of_functions["np.sin"][2] == "one call"
    assert table_of_functions["np.unique"][2] == "one by one"
    special = pytest.importorskip("scipy.special")
    with pytest.raises(errors.NoRuleError, match="'x1'"):
        func.grad(lambda a: special.gammainc(a, 2.0))(1.0)
    assert func.grad(lambda x: special.gammainc(1.0, x))(2.0) == pytest.approx(np.exp(-2.0))


@pytest.mark.parametrize("path", sorted((ROOT / "meintorch").rglob("*.py")), ids=name_of)
def test_examples_in_docstrings_are_real(path):
    module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    names = {"np": np} | {name: getattr(func, name) for name in func.__all__}
    failed, _ = doctest.testmod(importlib.import_module(module), extraglobs=names)
    assert failed == 0


def test_the_limits_are_those_that_the_pages_name():
    """When one of these falls: README, CHANGELOG.md and the pages of the site have to say so."""

    def assign(t):
        a = np.zeros(3)
        a[0] = t[0]
        return np.sum(a)

    def add_in_place(t):
        a = np.zeros(3)
        np.add.at(a, [0, 0, 1], t)
        return np.sum(a)

    for writes in (assign, add_in_place):
        with pytest.raises((ValueError, errors.InPlaceError)) as caught:
            func.grad(writes)(np.ones(3))
        assert "Begin with np.zeros_like(t)" in "".join([str(caught.value), *getattr(caught.value, "__notes__", [])])
    assert not hasattr(func, "compile")
    large = np.ones(1_000_000)

    def overwrite(x):
        y = np.sum(x * large)
        large[1] += 2.0  # one entry, which no sample holds
        return y

    for _ in range(2):
        with pytest.raises(errors.InPlaceError, match="written to afterwards"):
            func.grad(overwrite)(1.0)
    assert func.grad(overwrite)(1.0) == 1_000_006.0  # 1,000,004 would be right
    with pytest.raises(errors.InPlaceError, match="written to afterwards"):
        func.grad(overwrite, check="full")(1.0)
