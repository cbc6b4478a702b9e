"""A case about configs that nobody foresaw: values, keys and pieces of YAML made by chance."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import yaml
from cases import Case
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from processes import fork
from pydantic import BaseModel
from samples import VARIANTS, Workspace

from encoder_cls.config import Config, load_config
from encoder_cls.errors import ConfigError

ANY_VALUE = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from(["auto", "none", "1e-3", "no", "12:30:45", "0x10", "NaN", -1, 0, 1, 2, 3, 1e-3, 1e400, 10**400]),
    lambda values: st.lists(values, max_size=3) | st.dictionaries(st.text(max_size=5), values, max_size=3),
    max_leaves=4,
)
YAML_TRAPS: dict[str, Callable[[Config], bool] | None] = {
    "train: {learning_rate: 1e-3}": lambda config: config.train.learning_rate == 0.001,
    "train: {learning_rate: .5}": lambda config: config.train.learning_rate == 0.5,
    "data: {train: x.csv, label_names: [no, yes, on, off, y, n]}": (
        lambda config: config.data.label_names == ("no", "yes", "on", "off", "y", "n")
    ),
    "data: {train: x.csv, label_column: no}": lambda config: config.data.label_column == "no",
    "name: 12:30:45": None,
    "train: {class_weights: {12:30: 2.0}}": lambda config: config.train.class_weights == {"12:30": 2.0},
    "train: {epochs: 3, epochs: 4}": None,
    "train: {epochs: 010}": lambda config: config.train.epochs == 10,
    "train: {epochs: 1_000}": lambda config: config.train.epochs == 1000,
    "train: {epochs: 0x10}": None,
    "train: {epochs: yes}": None,
    "seed: 3.0": lambda config: config.seed == 3,
    "seed: 3.5": None,
    "train:\n\tepochs: 3": None,
    "train: &a {epochs: 3}\nmodel: *a": None,
    "train: !!python/object/apply:os.system [true]": None,
    "? [a, b]\n: c": None,
    "train: {patience: ~}": lambda config: config.train.patience is None,
    "train:": lambda config: config.train == Config.model_fields["train"].default,
    "{" * 5000: None,
    "\ufeffseed: 4": lambda config: config.seed == 4,
    "seed: 1\x00": None,
    "seed: .nan": None,
    "train: {learning_rate: .inf}": None,
    "data: {train: x.csv, trian: y.csv}": None,
}


def fuzz_config(space: Workspace, draw: random.Random, number: int) -> None:
    """A config with one value, key or piece of text changed: it is read as it stands, or refused by field."""
    if number < len(YAML_TRAPS):
        _try_trap(space, *list(YAML_TRAPS.items())[number])
    elif number % 4 == 0:
        _fuzz_yaml(space, draw)
    elif number % 4 == 2:
        _fuzz_set(draw)
    else:
        _fuzz_value(space, draw, through_command=number % 25 == 1)


def _try_trap(space: Workspace, text: str, holds: Callable[[Config], bool] | None) -> None:
    path = space.new_path("trap").with_suffix(".yaml")
    path.write_text(text if "data:" in text else f"{text}\ndata: {{train: x.csv}}\n")
    try:
        config = load_config(path)
    except ConfigError as error:
        assert holds is None, f"{text!r} is refused: {error}"
        assert str(path) in str(error)
    else:
        assert holds, f"{text!r} is accepted as {config.model_dump()}"
        assert holds(config), f"{text!r} is read as {config.model_dump()}"


def _fuzz_value(space: Workspace, draw: random.Random, *, through_command: bool) -> None:
    field = draw.choice(sorted(_fields(Config)))
    value = _example(ANY_VALUE, draw)
    path = space.new_path("config").with_suffix(".yaml")
    values: dict[str, Any] = {"name": "fuzz", "data": {"train": str(space.folder / "missing.csv")}}
    section, _, key = field.rpartition(".")
    if section:
        values.setdefault(section, {})[key] = value
    else:
        values[key] = value
    try:
        path.write_text(yaml.safe_dump(values, allow_unicode=True))
    except UnicodeEncodeError:
        return  # half a surrogate pair cannot be in a file
    try:
        config = load_config(path)
    except ConfigError as error:
        assert str(path) in str(error), f"{error} does not name the file"
        named = field in str(error) or not _is_plain(value) or ":" in str(error)
        assert named, f"{field} = {value!r}: {error} does not name the field"
        assert all(line.isprintable() for line in str(error).splitlines()), repr(str(error))
    else:
        again = space.new_path("again").with_suffix(".yaml")
        again.write_text(config.to_yaml())
        assert load_config(again) == config, f"{field} = {value!r} changes when it is written and read"
    if through_command:
        ended = fork(["train", "--config", path, "--run-dir", space.new_path("run")], cwd=space.folder).end()
        assert ended.code in {2, 3}, f"{field} = {value!r}: exit {ended.code}: {ended.err}"
        assert "Traceback" not in ended.err


def _fuzz_set(draw: random.Random) -> None:
    """A path given by `--set` is read as it stands, whatever it would be in YAML."""
    begin, end = (draw.choice(["", *"[{@!%&*|>?#-'\""]) for _ in range(2))
    text = (
        f"{begin}{draw.choice(['', ' '])}a{draw.choice(['', ' #', ': ', ', '])}{_example(st.text(), draw)}{end}".strip()
    )
    try:
        found = load_config(None, [f"data.train={text}"]).data.train
    except ConfigError:
        assert begin in "'\"" or not text.isprintable(), f"--set data.train={text!r} is refused"
    else:
        assert found == text or begin in "'\"", f"--set data.train={text!r} is read as {found!r}"


def _fuzz_yaml(space: Workspace, draw: random.Random) -> None:
    content = bytearray(space.config(draw.choice(list(VARIANTS))).read_bytes())
    for _ in range(draw.randint(1, 4)):
        place = draw.randrange(len(content) + 1)
        if draw.random() < 0.5:
            content[place : place + draw.randint(0, 6)] = b""
        else:
            content[place:place] = draw.choice(
                [b"\0", b"\xff", b":", b"\t", b"- ", b"{", b"]", b"'", b"#", b"\n ", b"&a", b"!"]
            )
    path = space.new_path("config").with_suffix(".yaml")
    path.write_bytes(content)
    try:
        load_config(path)
    except ConfigError as error:
        assert str(path) in str(error), f"{error} does not name the file"


def _fields(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from _fields(field.annotation, f"{name}.")
        else:
            yield prefix + name


def _is_plain(value: Any) -> bool:
    return not isinstance(value, str | list | dict)


def _example(strategy: st.SearchStrategy[Any], draw: random.Random) -> Any:
    """One value that Hypothesis would try."""
    found: list[Any] = []

    @seed(draw.getrandbits(32))
    @settings(max_examples=8, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(strategy)
    def collect(value: Any) -> None:
        found.append(value)

    collect()
    return draw.choice(found)


CASES = {
    "config-fuzz": Case("a config is read as it stands, or refused by file and field", 2000, fuzz_config),
}
