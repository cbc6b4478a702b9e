"""The codes that classes are: the levels above them, and their names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from encoder_cls.errors import ConfigError
from encoder_cls.system.display import listed, shown

if TYPE_CHECKING:
    # Predicting imports this module, and needs no configs.
    from encoder_cls.config.schema import DataConfig

Rule = tuple[int, ...] | str | Mapping[str, str]
"""How a code is divided into levels: the value of `data.levels`, whose file is read."""

MAX_LISTED = 5


@dataclass(frozen=True, eq=False)
class Level:
    """The codes of one level, in the order of the classes, and which of them each class belongs to.

    Attributes:
        numbers: of the code of each class, (classes,).
    """

    codes: tuple[str, ...]
    numbers: NDArray[np.int64]

    def probabilities(self, of_classes: NDArray[np.float64]) -> NDArray[np.float64]:
        """Sum the probabilities of the first classes, (texts, classes), by code, (texts, codes)."""
        numbers = self.numbers[: of_classes.shape[1]]
        order = np.argsort(numbers, kind="stable")
        starts = np.searchsorted(numbers[order], np.arange(numbers.max() + 1))
        sums: NDArray[np.float64] = np.add.reduceat(of_classes[:, order], starts, axis=1)
        return sums

    def labels(self, of_classes: NDArray[Any]) -> NDArray[np.int64]:
        """The number of the code of each class number, (texts,).

        Unknown labels become the number of codes.
        """
        with_unknown = np.append(self.numbers, len(self.codes))
        return np.asarray(with_unknown[np.minimum(of_classes, len(self.numbers))])


@dataclass(frozen=True, eq=False)
class Codes:
    """Classes that are codes, with levels above them and names.

    A class with fewer levels than others is itself its code below its last one, so that the last
    level is that of the classes.

    Attributes:
        rule: of `data.levels`, with the code above each code ("" at the top) if it is a file; None
            with one level.
        names: the names of codes of any level.
        most_levels: how many are kept, from the top; None keeps all.
    """

    classes: Sequence[str]
    rule: Rule | None = None
    names: Mapping[str, str] = field(default_factory=dict)
    most_levels: int | None = None

    def path(self, code: str) -> tuple[str, ...]:
        """The codes from the top down to a code of any level."""
        if self.rule is None:
            return (code,)
        if isinstance(self.rule, Mapping):
            path = [code]
            while self.rule.get(path[-1]):
                path.append(self.rule[path[-1]])
                if len(path) > len(self.rule) + 1:
                    raise ValueError(f"the code {code!r} is above itself")
            return tuple(reversed(path))

        if isinstance(self.rule, str):
            parts = code.split(self.rule)
            path = [self.rule.join(parts[:length]) for length in range(1, len(parts) + 1)]
        else:
            path = [code[:length] for length in self.rule] + [code]
        # Prefixes that are longer than the code are the code itself.
        return tuple(dict.fromkeys(path))

    @cached_property
    def _paths(self) -> list[tuple[str, ...]]:
        paths = [self.path(code) for code in self.classes]
        num_levels = self.most_levels or max(len(path) for path in paths)
        full_paths = []
        for code, path in zip(self.classes, paths, strict=True):
            above = path[: num_levels - 1]
            full_paths.append(above + (code,) * (num_levels - len(above)))
        return full_paths

    @property
    def num_levels(self) -> int:
        """The number of levels, with that of the classes."""
        return len(self._paths[0])

    @property
    def has_levels(self) -> bool:
        """Whether classes have codes above them."""
        return self.rule is not None

    @cached_property
    def levels(self) -> tuple[Level, ...]:
        """All levels, from the top."""
        levels = []
        for codes_of_classes in zip(*self._paths, strict=True):
            numbers: dict[str, int] = {}
            for code in codes_of_classes:
                numbers.setdefault(code, len(numbers))
            of_classes = np.array([numbers[code] for code in codes_of_classes], dtype=np.int64)
            levels.append(Level(tuple(numbers), of_classes))
        return tuple(levels)

    @cached_property
    def members(self) -> list[dict[str, list[str]]]:
        """For each level, the classes that belong to each of its codes."""
        members: list[dict[str, list[str]]] = [{} for _ in range(self.num_levels)]
        for name, path in zip(self.classes, self._paths, strict=True):
            for codes, code in zip(members, path, strict=True):
                codes.setdefault(code, []).append(name)
        return members

    @cached_property
    def depths(self) -> NDArray[np.int64]:
        """How many different codes the path of each class has, (classes,)."""
        return np.array([len(set(path)) for path in self._paths], dtype=np.int64)

    @cached_property
    def at_level(self) -> dict[int, Codes]:
        """The codes of each level, from 1 on, as classes of their own."""
        codes = {}
        for number, level in enumerate(self.levels, start=1):
            codes[number] = replace(self, classes=level.codes, most_levels=number)
        return codes

    def of_classes(self, classes: Sequence[str]) -> Codes:
        """Other classes with the same levels and names."""
        return replace(self, classes=classes, most_levels=self.num_levels)

    def shown(self, code: str) -> str:
        """A code with its name behind it, if it has one."""
        name = self.names.get(code)
        return f"{code} {name}" if name else code


def codes_of(config: DataConfig, classes: Sequence[str]) -> Codes | None:
    """The codes of classes, if the config has levels or names of codes."""
    if config.levels is None and not config.code_names:
        return None
    return Codes(classes, config.levels, config.code_names or {})


def check_codes(config: DataConfig, classes: Sequence[str], *, is_multi_label: bool) -> None:
    """Raise a `ConfigError` if the classes have no levels as the config says."""
    if config.levels is None:
        return
    if is_multi_label:
        raise ConfigError(
            "data.levels: is for data in which a text has one label, and here it may have several; "
            "leave the key out"
        )
    if isinstance(config.levels, dict):
        _check_in_file(config.levels, classes)
    if isinstance(config.levels, str):
        broken = [code for code in classes if "" in code.split(config.levels)]
        if broken:
            raise ConfigError(
                f"data.levels: codes with nothing before or after a separator "
                f"{shown(config.levels)}: {len(broken):,} ({listed(broken, most=MAX_LISTED)}); "
                "correct them, or name a file with the columns code and parent"
            )

    codes = codes_of(config, classes)
    assert codes
    if codes.num_levels == 1:
        raise ConfigError(
            "data.levels: no class has a code above it, such as "
            f"{listed(list(classes), most=MAX_LISTED)}; leave the key out, or see docs/codes.md"
        )


def _check_in_file(parents: Mapping[str, str], classes: Sequence[str]) -> None:
    unknown = [code for code in classes if code not in parents]
    if not unknown:
        return

    hint = "add them to the file and name it by data.levels, or correct the labels"
    in_file = {code.lstrip("0"): code for code in parents}
    shortened = next((code for code in unknown if code.lstrip("0") in in_file), None)
    if shortened is not None:
        hint = (
            f"{shown(shortened)} is {shown(in_file[shortened.lstrip('0')])} there: cells of "
            "numbers have lost leading zeros, so keep codes as text"
        )
    raise ConfigError(
        "data.levels: classes that are not in the column `code` of the file: "
        f"{len(unknown):,} ({listed(unknown, most=MAX_LISTED)}); {hint}"
    )


def code_warnings(config: DataConfig, classes: Sequence[str]) -> Iterator[str]:
    """Warn of codes that may lack leading zeros, of parents without a row, of missing names."""
    if isinstance(config.levels, tuple):
        longest = max(map(len, classes))
        short = [code for code in classes if code.isdigit() and len(code) < longest]
        if short:
            yield (
                f"codes with fewer than {longest} digits: {len(short):,} "
                f"({listed(short, most=MAX_LISTED)}); data.levels counts digits from the left, so "
                "if a spreadsheet has removed leading zeros, write them again"
            )

    if isinstance(config.levels, dict):
        without_row = sorted(set(config.levels.values()) - {"", *config.levels})
        if without_row:
            yield (
                f"codes above others that have no row in the file of data.levels: "
                f"{len(without_row):,} ({listed(without_row, most=MAX_LISTED)}); they are taken "
                "for codes of the top"
            )

    if config.code_names:
        nameless = [code for code in classes if code not in config.code_names]
        if nameless:
            yield (
                f"codes without a name in data.code_names: {len(nameless):,} "
                f"({listed(nameless, most=MAX_LISTED)})"
            )
