"""The structure and the size of the project; `python tests/test_architecture.py` prints each measure and its limit."""

from __future__ import annotations

import ast
import io
import re
import tokenize
import tomllib
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MODULES = sorted((ROOT / "encoder_cls").rglob("*.py"))
# Lower them when something goes; where a change needs more, take something out first.
LIMITS = {
    "package: lines": 20_000,
    "package: lines of code": 12_250,
    "package: modules": 115,
    "package: modules of the largest folder": 13,
    "package: own modules that a file imports": 12,
    "tests: lines": 18_000,
    "scripts: lines": 6_000,
    "documents: words": 25_000,
}
NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def module_name(path: Path) -> str:
    return path.relative_to(ROOT).with_suffix("").as_posix()


def lines(paths) -> int:
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths)


def lines_of_code(source: str) -> int:
    """Those without imports, docstrings, comments and blanks."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    code = {line for it in tokens if it.type not in NO_CODE for line in range(it.start[0], it.end[0] + 1)}
    for node in ast.walk(ast.parse(source)):
        is_docstring = isinstance(node, ast.Expr) and isinstance(getattr(node.value, "value", None), str)
        if is_docstring or isinstance(node, ast.Import | ast.ImportFrom):
            code -= {*range(node.lineno, node.end_lineno + 1)}
    return len(code)


def own_imports(path: Path) -> set[str]:
    """The modules of this package that a file imports, anywhere in it."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{it.name}" for it in node.names}
        elif isinstance(node, ast.Import):
            names |= {it.name for it in node.names}
    modules = {module_name(it).replace("/", ".").removesuffix(".__init__") for it in MODULES}
    return {name if name in modules else name.rpartition(".")[0] for name in names} & modules


def measures() -> dict[str, tuple[int, str]]:
    """Each measure, and where it was taken if it is of one place."""
    imports = {module_name(path): len(own_imports(path)) for path in MODULES}
    folders = Counter(module_name(path.parent) for path in MODULES)
    documents = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    return {
        "package: lines": (lines(MODULES), ""),
        "package: lines of code": (sum(lines_of_code(path.read_text(encoding="utf-8")) for path in MODULES), ""),
        "package: modules": (len(MODULES), ""),
        "package: modules of the largest folder": max((number, where) for where, number in folders.items()),
        "package: own modules that a file imports": max((number, where) for where, number in imports.items()),
        "tests: lines": (lines((ROOT / "tests").rglob("*.py")), ""),
        "scripts: lines": (lines((ROOT / "scripts").rglob("*.py")), ""),
        "documents: words": (sum(len(path.read_text(encoding="utf-8").split()) for path in documents), ""),
    }


def table() -> str:
    rows = (f"{name:<42} {number:>7,} of {LIMITS[name]:>7,}  {where}" for name, (number, where) in measures().items())
    return "\n".join(map(str.rstrip, rows))


def test_nothing_grows_beyond_its_limit():
    assert all(number <= LIMITS[name] for name, (number, _) in measures().items()), f"\n{table()}"


def test_imports_only_go_down(capsys):
    """import-linter's layers hold, with every module in one of them."""
    cli = pytest.importorskip("importlinter.cli")
    assert cli.lint_imports(config_filename=str(ROOT / "pyproject.toml"), no_cache=True) == 0, capsys.readouterr().out


def test_the_drawing_has_the_layers_that_are_enforced():
    drawing = (ROOT / "ARCHITECTURE.md").read_text().split("```")[1]
    drawn = [line.split("  ")[0] for line in drawing.strip().splitlines() if line[0] != " "]
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"][0]
    assert ["__main__", *(name.removesuffix(".py") for name in drawn)] == contract["layers"]


def test_nothing_unpickles_or_borrows_a_transformer():
    """The encoder is written here, and no file is read by running it."""
    borrowed = r"pickle\.|import pickle|(?<!safetensors\.)torch\.(load|save)\(|nn\.Transformer|MultiheadA"
    assert [module_name(path) for path in MODULES if re.search(borrowed, path.read_text(encoding="utf-8"))] == []


if __name__ == "__main__":
    print(table())  # noqa: T201
