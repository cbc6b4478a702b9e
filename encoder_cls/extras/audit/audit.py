"""Find what of the training texts can be read in the files of a model and of its run."""

from __future__ import annotations

import re
from collections.abc import Iterator, Set
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from tokenizers import models

from encoder_cls import Config, load_classifier, load_config, load_data, model_folder
from encoder_cls.errors import EncoderClsError
from encoder_cls.extras.audit.readable_words import WordSplitter, readable_texts
from encoder_cls.extras.audit.telling_words import TellingWords, numbers_among
from encoder_cls.system.libraries import check_training_installed
from encoder_cls.system.row_text import RS, US

# A word in fewer texts is rare, even if the model was to learn all words.
MIN_TEXTS = 2

MODEL = "model"
CONFIG_FILE = "config.yaml"
MODEL_CARD = "README.md"
DATA_IN_CARD = re.compile(r" texts of (`+) ?(.+?) ?\1")
# Charts show no texts.
CHARTS = {".png", ".svg", ".pdf"}
# The files of this program whose words may be in a model card or a report.
PROGRAM = {".py", ".md", ".html", ".js", ".css"}

Found = dict[str, list[str]]
"""The words that were found in a file, by kind, sorted."""


@dataclass(frozen=True, kw_only=True)
class Audit:
    """What can be read in the files of a model and of its run.

    Attributes:
        run: None for a model folder alone.
        min_texts: words in fewer texts are rare.
        num_texts: of the run; None if they cannot be read, as `why_no_texts` says.
        model_files: by path, what was found.
        run_files: the same, of other files of the run.
        data_path: as the model card has it.
        columns: the values of each column beside the text that are in the model.
        edges: of each column of numbers, points between them.
        cache: the folder `data.cache`, which is not searched.
    """

    model: Path
    run: Path | None
    min_texts: int
    num_texts: int | None
    why_no_texts: str
    model_files: dict[str, Found]
    run_files: dict[str, Found]
    class_names: tuple[str, ...]
    data_path: str | None
    columns: dict[str, list[str]]
    edges: dict[str, list[str]]
    cache: Path | None

    @property
    def is_readable(self) -> bool:
        """Whether anything of the training texts can be read in a file of the model folder."""
        return any(self.model_files.values())


def audit(path: Path) -> Audit:
    """Find what of the training texts can be read in each file of a model and of its run.

    Raises:
        ConfigError: there is no model at this path, or the config of the run is invalid.
        EncoderClsError: the model is damaged.
    """
    classifier = load_classifier(path)
    model = model_folder(path)
    run = model.parent if model.name == MODEL and (model.parent / CONFIG_FILE).is_file() else None
    config = load_config(run / CONFIG_FILE) if run else None
    min_texts = max(MIN_TEXTS, config.tokenizer.min_frequency) if config else MIN_TEXTS

    # An edge lies between two values, so it is not one of them, even if it begins like one.
    vocabulary = set(classifier.tokenizer.get_vocab())
    edges = {token for token in vocabulary if _is_edge(token)}
    tokens = vocabulary - edges
    splitter = WordSplitter(classifier.tokenizer)
    learned = splitter.words(token for token in tokens if not token.startswith(("[", RS)))

    # Collect the words to look for: those of the texts or, without texts, those of the model.
    telling = TellingWords(splitter, min_groups=min_texts)
    num_texts, why_no_texts = _add_texts(telling, config)
    kinds = {}
    if num_texts is None:
        for token in tokens:
            telling.add(token, 0)
    else:
        is_word_level = isinstance(classifier.tokenizer.model, models.WordLevel)
        kinds["rare_words"] = telling.rare_words(set() if is_word_level else learned)
    kinds["numbers"] = telling.numbers() | numbers_among(learned)
    kinds["words_of_addresses"] = telling.of_addresses()
    kinds["words_of_handles"] = telling.of_handles()

    # What the program writes into every model, and names that it always keeps, are no finds.
    columns = _values_of_columns(tokens)
    data_path = _path_in_card(model / MODEL_CARD)
    names = [*classifier.label_names, *classifier.text_format.columns, *columns, data_path or ""]
    if config:
        names.append(str(config.data.train))
    own_words = splitter.words(chain(names, _texts_of_program())) - learned

    model_files = {}
    run_files = {}
    for file in sorted((run or model).rglob("*")):
        if not file.is_file() or file.suffix in CHARTS:
            continue
        texts = (text for text in readable_texts(file) if text not in edges)
        words = splitter.words(texts) - own_words
        found = {kind: sorted(words & sought) for kind, sought in kinds.items() if words & sought}
        if file.is_relative_to(model):
            model_files[file.relative_to(model).as_posix()] = found
        elif run:
            run_files[file.relative_to(run).as_posix()] = found

    return Audit(
        model=model,
        run=run,
        min_texts=min_texts,
        num_texts=num_texts,
        why_no_texts=why_no_texts,
        model_files=model_files,
        run_files=run_files,
        class_names=tuple(classifier.label_names),
        data_path=data_path,
        columns=columns,
        edges={
            column: sorted(values, key=float)
            for column, values in _values_of_columns(edges).items()
        },
        cache=Path(config.data.cache) if config and config.data.cache else None,
    )


def _add_texts(telling: TellingWords, config: Config | None) -> tuple[int | None, str]:
    if config is None:
        return None, "this is a model folder without its run"
    try:
        check_training_installed()
        # An audit leaves no copy of the texts in a cache.
        uncached = config.data.model_copy(update={"cache": None})
        dataset = load_data(config.model_copy(update={"data": uncached}))
    except EncoderClsError as error:
        return None, str(error)

    held_out = [split for name, split in dataset.splits.items() if name != "train"]
    texts = chain(dataset.texts_to_learn, *(split.texts for split in held_out))
    groups = chain(dataset.groups_to_learn, *(split.split_groups for split in held_out))
    num_texts = 0
    for text, group in zip(texts, groups, strict=True):
        telling.add(text, int(group))
        num_texts += 1
    return num_texts, ""


def _is_edge(token: str) -> bool:
    """Whether a token stands for a point between two numbers of a column."""
    _, _, value = token.partition(US)
    return token.startswith(RS) and value.startswith(US) and value != US


def _values_of_columns(tokens: Set[str]) -> dict[str, list[str]]:
    """The values that have tokens, by column."""
    columns: dict[str, list[str]] = {}
    for token in tokens:
        name, separator, value = token.removeprefix(RS).partition(US)
        # Missing and rare values have tokens, too.
        if token.startswith(RS) and separator and value not in {"", US}:
            columns.setdefault(name, []).append(value.removeprefix(US))
    return {name: sorted(values) for name, values in sorted(columns.items())}


def _path_in_card(card: Path) -> str | None:
    found = DATA_IN_CARD.search(card.read_text("utf-8")) if card.is_file() else None
    return found[2] if found else None


def _texts_of_program() -> Iterator[str]:
    for file in sorted(Path(__file__).parents[2].rglob("*")):
        if file.suffix in PROGRAM:
            yield file.read_text("utf-8")
