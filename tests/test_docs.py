"""The documents: links lead somewhere, generated pages are up to date, commands and code run.

Docstrings describe parameters and attributes that exist.
"""

from __future__ import annotations

import ast
import re
import runpy
import shlex
import tomllib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import typer.main
from support.excel import write_excel
from support.programs import setting
from support.small_runs import WITHOUT_TECHNIQUES
from support.topics import labelled_texts, write_labelled_texts, write_tiny_config

from encoder_cls import train
from encoder_cls.classifier.classifier import Classifier
from encoder_cls.cli.app import app
from encoder_cls.config.loading import load_config
from encoder_cls.data.reading.formats import FORMATS

ROOT = Path(__file__).parent.parent
MODULES = sorted((ROOT / "encoder_cls").rglob("*.py"))
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
# The others are generated.
WRITTEN_PAGES = [page for page in PAGES if page.name not in {"cli.md", "config.md"}]

# Programs of others, whose options are not checked; those of `pip` are checked for names of extras.
OTHERS = {
    ".",
    "bash",
    "curl",
    "docker",
    "du",
    "hf",
    "lint-imports",
    "ln",
    "mv",
    "mypy",
    "npm",
    "pip",
    "pytest",
    "python3",
    "ruff",
    "systemctl",
    "tensorboard",
    "uv",
    "uvx",
}

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
COMMANDS = "init|train|tune|eval|compare|prune|predict|review|suggest|label|serve|export"
INLINE = re.compile(rf"`((?:encoder-cls )?(?:{COMMANDS}) [^`]+)`")

# Pages whose blocks are run in order in one folder. Others are run elsewhere: docs/library.md by
# tests/training/test_from_python.py, docs/tour.md by tests/test_tour.py.
RUN_PAGES = [
    "README.md",
    "docs/guide.md",
    "docs/serving.md",
    "docs/deploy.md",
    "docs/export.md",
    "docs/how_it_works.md",
]

# Commands that are only parsed, by what they contain, and why. Training on the bundled example is
# only parsed, too: it takes longest.
PARSED_ONLY = {
    "encoder-cls tune": "a search takes its whole budget",
    "encoder-cls serve": "a server does not end",
    "encoder-cls label": "a server does not end",
    "--runner ray": "needs Ray and a bucket",
    "encoder-cls audit": "it reads all files of this program: run by tests/extras/audit",
    "encoder-cls export": "its tables of characters take 2 s: run by tests/extras/export",
    "data.none_label=other": "the stand-ins have no such class: run by tests/test_none_label.py",
}

# Blocks of Python that are only compiled, by what they contain, and why. Their imports from this
# package are run.
COMPILED_ONLY = {
    "import ray": "needs Ray",
    "import duckdb": "needs DuckDB",
    "import mlflow": "needs MLflow",
    "spark.read": "needs Spark",
    "GridSearchCV": "takes a minute: test_the_search_of_the_guide_runs",
    "corpus/": "run by tests/extras/export/test_deployment_page.py",
}


# Files of other programs that docs/deploy.md shows: checked by tests/serving/test_deploying.py.
OTHER_FILES = {"compose.yaml", "kubernetes.yaml", "alerts.yaml"}

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]


def anchors(page: Path) -> set[str]:
    """What a link can name in a page: its headings and its ids."""
    text = page.read_text(encoding="utf-8")
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    slugs = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    return slugs | set(re.findall(r'id="([^"]+)"', text))


def page_name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_links_lead_somewhere(page):
    """A link names a file of the repository, and a heading or an id in it."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        assert found.exists(), target
        assert not anchor or anchor in anchors(found), target


def test_generated_references_are_up_to_date():
    """They follow from the schema and the commands: run `python scripts/reference.py`."""
    references = runpy.run_path(str(ROOT / "scripts" / "reference.py"))["REFERENCES"]
    for path, reference in references.items():
        assert (ROOT / path).read_text(encoding="utf-8") == reference().rstrip() + "\n"


@pytest.mark.parametrize("file_format", FORMATS, ids=[known.ending for known in FORMATS])
def test_the_guide_and_the_help_of_predict_name_every_format(file_format):
    guide = (ROOT / "docs" / "guide.md").read_text(encoding="utf-8")
    table = guide.split("| data | example |")[1].split("\n\n")[0]
    whole_ending = rf"{re.escape(file_format.ending)}\b"

    assert re.search(rf"{whole_ending}`", table)
    assert re.search(whole_ending, own_command("predict").help)


# ---------------------------------------------------------------- docstrings name what is there


def described_names(node: ast.ClassDef | ast.FunctionDef, section: str) -> list[str]:
    """The names that a section of a docstring, `Args` or `Attributes`, describes."""
    docstring = ast.get_docstring(node) or ""
    _, _, lines = docstring.partition(f"\n{section}:\n")
    section_text = re.split(r"^\S", lines, maxsplit=1, flags=re.MULTILINE)[0]
    return re.findall(r"^ {4}(\w+):", section_text, re.MULTILINE)


def attributes_of(class_definition: ast.ClassDef) -> set[str]:
    """The names in the body of a class, and those that its methods set on `self`."""
    names = set()
    for statement in class_definition.body:
        if isinstance(statement, ast.AnnAssign):
            names.add(ast.unparse(statement.target))
        elif isinstance(statement, ast.Assign):
            names.update(ast.unparse(target) for target in statement.targets)
        elif isinstance(statement, ast.FunctionDef):
            names.add(statement.name)

    for node in ast.walk(class_definition):
        is_set = isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
        if is_set and ast.unparse(node.value) == "self":
            names.add(node.attr)
    return names


def parameters_of(node: ast.ClassDef | ast.FunctionDef) -> set[str]:
    """The parameters of a function; those of a class are of its `__init__`."""
    if isinstance(node, ast.FunctionDef):
        return {argument.arg for argument in ast.walk(node.args) if isinstance(argument, ast.arg)}

    for statement in node.body:
        if isinstance(statement, ast.FunctionDef) and statement.name == "__init__":
            return parameters_of(statement)
    return set()


def test_docstrings_describe_parameters_and_attributes_that_exist():
    """Names under `Args:` are parameters, and those under `Attributes:` are in the class."""
    for module in MODULES:
        for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef | ast.FunctionDef):
                described = set(described_names(node, "Args"))
                if described:
                    assert described <= parameters_of(node), f"{module}: Args of {node.name}"

            if isinstance(node, ast.ClassDef):
                described = set(described_names(node, "Attributes"))
                if described:
                    assert described <= attributes_of(node), f"{module}: {node.name}"


# ---------------------------------------------------------------- commands are accepted


def commands_of(block: str) -> Iterator[list[str]]:
    """The words of each command of a block of shell."""
    for line in block.replace("\\\n", " ").splitlines():
        words: list[str] = []
        for word in shlex.split(line, comments=True):
            if word in {"&&", "|", ";", ">"}:
                yield words
                words = []
            else:
                words.append(word)
        if words:
            yield words


def check_named_command(command: str) -> None:
    """Check a command in a sentence or a table.

    It is a whole command with the name of the program, or the name of a command and some options.
    """
    if command.startswith("encoder-cls "):
        check_own_command(shlex.split(command)[1:])
        return

    name, *words = shlex.split(command)
    known = set()
    for parameter in own_command(name).params:
        known.update(parameter.opts)
        known.update(parameter.secondary_opts)
    for word in words:
        assert not word.startswith("--") or word.partition("=")[0] in known, command
    check_settings(words)


def own_command(name: str) -> Any:
    return typer.main.get_command(app).commands[name]


def check_own_command(words: list[str]) -> None:
    """Check a command of this program by its parser, and its settings by a config."""
    name, *arguments = words
    given = own_command(name).make_context(name, list(arguments)).params
    config = given.get("config_file") or given.get("config")
    if config is not None and Path(config).parts[0] == "configs":
        assert (ROOT / config).is_file()
    check_settings(arguments)


def check_settings(words: list[str]) -> None:
    """Check that a config has the keys of `--set`, and takes the values."""
    settings = [value for option, value in pairwise(words) if option == "--set"]
    load_config(None, [setting.replace("=PATH", "=a.csv") for setting in settings])


def check_script(words: list[str]) -> None:
    """Check that a script exists, and that it or what it shares with others has the options."""
    script = ROOT / words[0]
    source = script.read_text(encoding="utf-8")
    for path in script.parent.glob("shared/*.py"):
        source += path.read_text(encoding="utf-8")

    for option in words[1:]:
        if option.startswith("--"):
            assert f'"{option}"' in source, words


@pytest.mark.parametrize("page", WRITTEN_PAGES, ids=page_name)
def test_commands_are_accepted(page):
    """The parser of this program, its config, or the script that they name takes them."""
    text = page.read_text(encoding="utf-8")
    for command in INLINE.findall(BLOCK.sub("", text)):
        check_named_command(command.replace("\n", " "))
    for kind, block in BLOCK.findall(text):
        if kind == "sh":
            for words in commands_of(block):
                check_command(words)


def check_command(words: list[str]) -> None:
    """Check a command of a block of shell, which may set environment variables first."""
    while re.fullmatch(r"[A-Z_]+=\S*", words[0]):
        words = words[1:]

    program, *arguments = words
    if program == "encoder-cls":
        check_own_command(arguments)
    elif program == "torchrun":
        check_own_command(arguments[arguments.index("encoder_cls") + 1 :])
    elif program == "python":
        check_script(arguments)
    else:
        assert program in OTHERS, words

    for extra in re.findall(r"(?:encoder-cls|\.)\[(\w+)\]", " ".join(arguments)):
        assert extra in EXTRAS, words


# ---------------------------------------------------------------- pages are run


def labelled(texts_per_class: int, *, seed: int) -> list[tuple[str, str]]:
    """Texts of six words with their labels."""
    return labelled_texts(texts_per_class, seed=seed, fillers_per_text=3)


@pytest.fixture(scope="module")
def documented_run(tmp_path_factory) -> Path:
    """A finished run whose held-out texts are enough for guarantees; its config is beside it."""
    folder = tmp_path_factory.mktemp("documented")
    write_labelled_texts(folder / "train.csv", labelled(30, seed=0))
    write_labelled_texts(folder / "validation.csv", labelled(60, seed=1))
    write_labelled_texts(folder / "test.csv", labelled(10, seed=2))
    config = folder / "spam.yaml"
    write_tiny_config(config)
    train(config, run_dir=folder / "run", device="cpu")
    return folder / "run"


def write_stand_ins(page: str, folder: Path, run: Path) -> None:
    """Write small files under the names in a page, and link finished runs under theirs."""
    tables = (
        "data/messages.csv",
        "data/messages-test.csv",
        "data/june.csv",
        "messages.csv",
        "june.csv",
    )
    for seed, name in enumerate(tables, start=3):
        write_labelled_texts(folder / name, labelled(8, seed=seed))
    for number in range(2):
        write_labelled_texts(folder / "parts" / f"part-{number}.csv", labelled(8, seed=number))
    write_excel(folder / "tickets.xlsx", ["text"], *([text] for text, _ in labelled(8, seed=3)))
    write_excel(folder / "complaints.xlsx", ["Message", "Topic"], *labelled(20, seed=4))
    for name in ("pool.csv", "unlabelled.csv"):
        lines = [f"{text}\n" for text, _ in labelled(20, seed=4)]
        (folder / name).write_text("text\n" + "".join(lines), encoding="utf-8")

    (folder / "june.yaml").write_text("data: {train: data/june.csv}\n")
    (folder / "runs").mkdir()
    names = ["example"]
    if page != "README.md":  # where they are made
        names.append("spam")
        (folder / "spam.yaml").write_bytes((run.parent / "spam.yaml").read_bytes())
    for name in names:
        (folder / "runs" / name).symlink_to(run, target_is_directory=True)


def is_run(words: list[str]) -> bool:
    """Whether a command of a block is run, not only parsed."""
    command = " ".join(words)
    if words[0] != "encoder-cls" or any(part in command for part in PARSED_ONLY):
        return False
    names_data = ".yaml" in command or "data.train=" in command
    return words[1] != "train" or names_data


def run_command(cli, words: list[str]) -> None:
    """Run a command; where it trains, without an encoder, in half a second."""
    arguments = words[1:]
    if arguments[0] == "train":
        arguments = [*arguments, *setting("model.encoder=false", *WITHOUT_TECHNIQUES)]
    outcome = cli(*arguments)
    assert outcome.code == 0, (words, outcome)


def run_python(block: str, namespace: dict[str, object]) -> None:
    """Run a block in the namespace of those before it, or only compile it and run its imports."""
    if any(part in block for part in COMPILED_ONLY):
        compile(block, "block", "exec")
        for imported in re.findall(r"^from encoder_cls\S* import .*$", block, re.MULTILINE):
            exec(imported, {})
        return
    exec(block, namespace)


def write_config(block: str, folder: Path) -> None:
    """Write a config under the name in its first line, or check its keys."""
    named = re.match(r"# (\S+\.yaml)\n", block)
    if named and named[1] in OTHER_FILES:
        return
    path = folder / (named[1] if named else "block.yaml")
    path.write_text(block, encoding="utf-8")
    if "data:" not in block:  # a section alone
        path.write_text(f"data: {{train: data/messages.csv}}\n{block}", encoding="utf-8")
    load_config(path)


@pytest.mark.usefixtures("blank_plots", "usual_c")
@pytest.mark.parametrize("page", RUN_PAGES)
def test_the_blocks_of_a_page_run(page, cli, documented_run, tmp_path):
    """They run in order, in one folder with small files under the names that the page has."""
    write_stand_ins(page, tmp_path, documented_run)
    namespace: dict[str, object] = {}
    for kind, block in BLOCK.findall((ROOT / page).read_text(encoding="utf-8")):
        if kind == "yaml":
            write_config(block, tmp_path)
        elif kind == "python":
            run_python(block, namespace)
        elif kind == "sh":
            for words in commands_of(block):
                if is_run(words):
                    run_command(cli, words)


@pytest.mark.slow
def test_the_search_of_the_guide_runs():
    """A search of scikit-learn finds values that learn something."""
    text = (ROOT / "docs" / "guide.md").read_text(encoding="utf-8")
    (block,) = [block for _, block in BLOCK.findall(text) if "GridSearchCV" in block]
    rows = labelled(8, seed=5)
    namespace: dict[str, Any] = {
        "texts": [text for text, _ in rows],
        "labels": [label for _, label in rows],
    }
    exec(block, namespace)
    assert namespace["search"].best_score_ > 0.5


def test_the_guide_names_what_a_classifier_has(classifier):
    """Its table has methods of a classifier, and attributes of a prediction."""
    text = (ROOT / "docs" / "guide.md").read_text(encoding="utf-8")
    table = text.split("| method | value |")[1].split("\n\n")[0]
    for name in re.findall(r"^\|(.*?)\|", table, re.MULTILINE):
        for path in re.findall(r"`([a-z_.]+)\(", name):
            value: object = classifier
            for attribute in path.split("."):
                value = getattr(value, attribute)
            assert callable(value)

    assert isinstance(classifier, Classifier)
    prediction = classifier.predict(["rain"])[0]
    attributes = table.split("`Prediction`: ")[1].partition("|")[0]
    for name in re.findall(r"`([a-z_]+)(?:\([^`]*\))?`", attributes):
        assert hasattr(prediction, name)
