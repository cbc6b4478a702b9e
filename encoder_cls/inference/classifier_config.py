"""What `config.json` of a model folder says: written from a classifier, and read with every value checked."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from encoder_cls.inference.classifier import Classifier
from encoder_cls.inference.encoder.architecture import EncoderArchitecture
from encoder_cls.inference.linear import PREFIX
from encoder_cls.inference.task import SINGLE_LABEL, TASKS, Task
from encoder_cls.system.encodings import UTF8, delimiter_named, encoding_named
from encoder_cls.text.ngrams import MOST_FREQUENT, NUM_FEATURE_IDS
from encoder_cls.text.tokens import KEPT_PER_TOKEN

FORMAT, FORMAT_VERSION = "encoder-cls", 9
READABLE_VERSIONS = (8, FORMAT_VERSION)

Shapes = dict[str, tuple[int, ...]]
"""Of weights, by name."""


@dataclass(frozen=True, kw_only=True)
class ClassifierConfig:
    """What a classifier is, without its weights.

    Attributes:
        text_columns: the columns in which the texts of training were.
        label_names: the classes, in the order of the logits.
        max_seq_len: tokens of a text that the encoder reads.
        encoder: the encoder's shape; none: no encoder is described.
        linear: `max_tokens`, `frequent_tokens` and `features` of the linear classifier; none: there is none.
        task: what it answers.
        delimiter: what separated the fields of the files of training, if that was named.
        encoding: of the files of training.
    """

    text_columns: tuple[str, ...]
    label_names: tuple[str, ...]
    max_seq_len: int
    encoder: EncoderArchitecture | None
    linear: dict[str, int] | None
    delimiter: str | None = None
    encoding: str = UTF8
    task: Task = SINGLE_LABEL

    @classmethod
    def of(cls, classifier: Classifier) -> ClassifierConfig:
        """That of a classifier."""
        linear = None
        if classifier.linear:
            linear = {
                "max_tokens": classifier.linear.max_tokens,
                "frequent_tokens": len(classifier.linear.frequent_token_ids),
                "features": len(classifier.linear.feature_ids),
            }
        return cls(
            text_columns=classifier.text_columns,
            label_names=classifier.label_names,
            max_seq_len=classifier.max_seq_len,
            encoder=classifier.encoder.architecture if classifier.encoder else classifier.encoder_architecture,
            linear=linear,
            delimiter=classifier.delimiter,
            encoding=classifier.encoding,
            task=classifier.task,
        )

    def to_json(self) -> dict[str, Any]:
        """The values of the file."""
        return {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "task": self.task.name,
            "text_columns": self.text_columns,
            # What is usual is not said: so a run that an older version began goes on with the same bytes.
            **({"delimiter": self.delimiter} if self.delimiter else {}),
            **({} if self.encoding == UTF8 else {"encoding": self.encoding}),
            "id2label": dict(enumerate(self.label_names)),
            "max_seq_len": self.max_seq_len,
            "encoder": self.encoder and asdict(self.encoder),
            "linear": self.linear,
        }

    @classmethod
    def from_json(cls, values: Any) -> ClassifierConfig:
        """What the values of a file say.

        Raises:
            ValueError: they are of another program or version, or none that a classifier can have.
            KeyError: one is missing.
            TypeError: one is of another type.
        """
        if not isinstance(values, dict) or values.get("format") != FORMAT:
            raise ValueError("config.json is of another program")
        if values["format_version"] not in READABLE_VERSIONS:
            known = " and ".join(map(str, READABLE_VERSIONS))
            raise ValueError(f"format version {values['format_version']}; this program reads {known}")
        task = TASKS.get(values["task"])
        if task is None:
            raise ValueError(f"task {values['task']!r}, which only a newer version of encoder-cls knows")
        names = tuple(values["id2label"][str(number)] for number in range(len(values["id2label"])))
        fewest = task.fewest_classes
        if len(set(names)) < max(fewest, len(names)) or not all(isinstance(name, str) for name in names):
            raise ValueError(f"config.json: id2label needs {'two' if fewest > 1 else 'one'} or more different names")
        columns = tuple(values["text_columns"])
        if not columns or not all(isinstance(name, str) for name in columns):
            raise ValueError("config.json: text_columns needs names of columns")
        delimiter = delimiter_named(values["delimiter"]) if "delimiter" in values else None
        encoding = encoding_named(values.get("encoding", UTF8))
        encoder = None if values["encoder"] is None else EncoderArchitecture(**values["encoder"])
        max_seq_len = values["max_seq_len"]
        if type(max_seq_len) is not int or max_seq_len < 1 or (encoder and encoder.max_seq_len != max_seq_len):
            raise ValueError(f"config.json: max_seq_len is {max_seq_len!r}")
        if values["linear"] is not None:
            _check_linear(values["linear"], max_seq_len)
        return cls(
            text_columns=columns,
            label_names=names,
            max_seq_len=max_seq_len,
            encoder=encoder,
            linear=values["linear"],
            delimiter=delimiter,
            encoding=encoding,
            task=task,
        )

    def weight_shapes(self, *, vocab_size: int) -> dict[str, Shapes]:
        """The shapes of the weights of each part, `encoder` and `linear`."""
        num_classes = len(self.label_names)
        shapes: dict[str, Shapes] = {}
        if self.encoder:
            shapes["encoder"] = self.encoder.weight_shapes(vocab_size=vocab_size, num_classes=num_classes)
        if self.linear is not None:
            features, margins = self.linear["features"], self.task.num_one_vs_rest(num_classes)
            of_linear: Shapes = {
                "frequent_token_ids": (self.linear["frequent_tokens"],),
                "feature_ids": (features,),
                "idf": (features,),
                "weights": (features, margins),
                "biases": (margins,),
            }
            shapes["linear"] = {f"{PREFIX}{name}": shape for name, shape in of_linear.items()}
        return shapes


def _check_linear(linear: Any, max_seq_len: int) -> None:
    """Make sure that numbers of a linear classifier are some, and within what there can be."""
    limits = {
        "max_tokens": (1, KEPT_PER_TOKEN * max_seq_len),
        "frequent_tokens": (0, MOST_FREQUENT),
        "features": (0, NUM_FEATURE_IDS),
    }
    if linear.keys() != limits.keys():
        raise ValueError(f"config.json: a linear classifier is described by {', '.join(limits)}")
    for name, (least, most) in limits.items():
        if type(linear[name]) is not int or not least <= linear[name] <= most:
            raise ValueError(f"config.json: {name} of the linear classifier is {linear[name]!r}")
