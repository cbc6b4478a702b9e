"""What has to hold before a release: both distributions build, and the runtime predicts where it alone is installed.

    python scripts/release_check.py MODEL [--keep FOLDER]

Builds wheel and source archive of `encoder-cls` and `encoder-cls-runtime` (each wheel from its source archive), has
`twine` check them, installs the runtime's wheel in a new virtual environment, and compares what it answers there with
what the program answers here. It prints the sizes of both installations: the runtime's in the new environment, that of
the whole here, where it has to be installed. It needs the network, for pip, and one to two minutes. Where something
fails it ends with exit code 1 and the reason.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TEXTS = ["where on earth is my parcel??", "i want my money back", "", "\u5929\u6c17 <b>\U0001f600</b>"]
FORMATS = (["--format", "jsonl", "--top-k", "3"], ["--format", "csv", "--explain"], ["--format", "html"])
MUST_BE_MISSING = ("torch", "scipy", "sklearn", "pyarrow", "pydantic", "pandas", "jinja2", "matplotlib")
# Run by the Python that is asked about: the files of a distribution and of all that it requires.
SIZES = """
import json, re, sys
from importlib import metadata
def add(name, found):
    distribution = metadata.distribution(name)
    found[name] = sum(p.stat().st_size for f in distribution.files or () if (p := f.locate()).is_file())
    for requirement in distribution.requires or ():
        needed = re.match(r"[A-Za-z0-9._-]+", requirement)[0].lower().replace("_", "-")
        if "extra ==" not in requirement and needed not in found:
            try:
                add(needed, found)
            except metadata.PackageNotFoundError:  # not for this system
                pass
found = {}
for name in sys.argv[1:]:
    add(name, found)
print(json.dumps(found))
"""


class CheckError(Exception):
    """A check that does not hold, or a command that ends with an error."""


def run(*command: object, folder: Path | None = None) -> str:
    """What a command prints.

    Raises:
        CheckError: its exit code is not 0; with the last lines of its messages.
    """
    done = subprocess.run([*map(str, command)], check=False, capture_output=True, text=True, cwd=folder)
    if done.returncode:
        last = "\n".join((done.stderr or done.stdout).strip().splitlines()[-5:])
        raise CheckError(f"{' '.join(map(str, command[:6]))} ... ended with {done.returncode}:\n{last}")
    return done.stdout


def new_environment(folder: Path, *requirements: object) -> Path:
    """A virtual environment with these requirements; its Python."""
    venv.create(folder, with_pip=True)
    python = next(path for path in (folder / "bin" / "python", folder / "Scripts" / "python.exe") if path.exists())
    constraints = ["-c", ROOT / "constraints.txt"]
    run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *constraints, *requirements)
    return python


def build(work: Path) -> list[Path]:
    """The archives of both distributions, checked by twine."""
    tools = new_environment(work / "tools", "build", "twine")
    for project in (ROOT, ROOT / "runtime"):
        run(tools, "-m", "build", "--outdir", work / "dist", project)
    archives = sorted((work / "dist").iterdir())
    if len(archives) != 4:
        raise CheckError(f"{len(archives)} archives, where two wheels and two source archives are expected")
    run(tools, "-m", "twine", "check", "--strict", *archives)
    return archives


def check_runtime(python: Path, model: Path, work: Path) -> None:
    """Compare what the runtime answers with what the program answers here.

    Raises:
        CheckError: the runtime is no runtime, or an answer differs.
    """
    found = "import importlib.util, sys; print(*[name for name in sys.argv[1:] if importlib.util.find_spec(name)])"
    present = run(python, "-c", found, *MUST_BE_MISSING, folder=work).split()
    if present:
        raise CheckError(f"the runtime's environment has {', '.join(present)}")
    for options in FORMATS:
        command = ["-m", "encoder_cls", "predict", "--model", model.resolve(), *options, *TEXTS]
        if run(python, *command, folder=work) != run(sys.executable, *command, folder=ROOT):
            raise CheckError(f"predict {' '.join(options)}: the runtime answers otherwise than the whole program")
    refused = subprocess.run(
        [python, "-m", "encoder_cls", "train"], check=False, capture_output=True, text=True, cwd=work
    )
    if refused.returncode != 2 or "needs PyTorch: pip install encoder-cls" not in refused.stderr:
        raise CheckError(f"train without PyTorch ends with {refused.returncode}: {refused.stderr.strip()}")


def size(python: Path | str, name: str) -> str:
    """How large the installation of a distribution is, and which parts of it are largest."""
    found: dict[str, int] = json.loads(run(python, "-c", SIZES, name, folder=Path(tempfile.gettempdir())))
    largest = sorted(found.items(), key=lambda item: -item[1])[:4]
    parts = ", ".join(f"{part} {number / 1e6:.0f} MB" for part, number in largest)
    return f"{name}: {sum(found.values()) / 1e6:,.0f} MB in {len(found)} distributions ({parts})"


def check(model: Path, work: Path) -> None:
    """Everything, with a line for each part."""
    began = time.monotonic()

    def tell(line: str) -> None:
        print(f"{time.monotonic() - began:5.0f} s  {line}", flush=True)

    archives = build(work)
    for archive in archives:
        tell(f"built and checked {archive.name}, {archive.stat().st_size / 1e3:,.0f} kB")
    wheel = next(path for path in archives if path.name.startswith("encoder_cls_runtime") and path.suffix == ".whl")
    python = new_environment(work / "runtime", wheel)
    tell(f"installed {wheel.name} in a new environment")
    tell(run(python, "-m", "encoder_cls", "--version", folder=work).strip())
    check_runtime(python, model, work)
    tell(f"the runtime answers as the whole program does, and names what it cannot do ({model})")
    tell(size(python, "encoder-cls-runtime"))
    tell(size(sys.executable, "encoder-cls"))


def main() -> None:
    """Check, and end with 1 and the reason where something does not hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="a run or model folder to predict with")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep what is built and installed in a new folder")
    arguments = parser.parse_args()
    try:
        if arguments.keep:
            arguments.keep.mkdir(parents=True)
            check(arguments.model, arguments.keep.resolve())
        else:
            with tempfile.TemporaryDirectory() as work:
                check(arguments.model, Path(work))
    except CheckError as error:
        sys.exit(f"error: {error}")
    except FileExistsError as error:
        sys.exit(f"error: {error.filename}: is there already; name a new folder")


if __name__ == "__main__":
    main()
