"""The config: YAML as a person reads it, and errors that name each mistake and its place."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from encoder_cls.config.loading import config_of, load_config, parse_setting
from encoder_cls.config.schema import Config, DataConfig, ModelConfig, TrainConfig
from encoder_cls.errors import ConfigError
from encoder_cls.system.yaml import parse_yaml

CONFIGS = Path(__file__).parents[2] / "configs"
SECTIONS = {
    name: Config.model_fields[name].annotation
    for name in ("data", "tokenizer", "model", "pretrain", "train")
}


def fields_of_sections() -> Iterator[tuple[str, str]]:
    """The names of all fields, with those of their sections."""
    for section, model in SECTIONS.items():
        for field in model.model_fields:
            yield section, field


FIELDS = list(fields_of_sections())
DATA = "data: {train: a.csv}\n"
# Texts that YAML would read as something else.
UGLY = [
    "mails.csv #2",
    "#1",
    "[v1]/a.csv",
    "@team",
    "*new",
    "{a}",
    "!b",
    "%c",
    "&d e",
    "- i",
    "'j'k",
    "a: b",
]


def load(content: str | bytes, *overrides: str, name: str = "run.yaml") -> Config:
    """Load a config file with this content."""
    if isinstance(content, str):
        content = content.encode("utf-8", "surrogatepass")
    path = Path(name)
    path.write_bytes(content)
    return load_config(path, overrides)


def refusal(content: str | bytes | None, *overrides: str, name: str = "run.yaml") -> str:
    """The message that refuses a config file, or overrides of the bundled example."""
    with pytest.raises(ConfigError) as caught:
        if content is None:
            load_config(None, overrides)
        else:
            load(content, *overrides, name=name)
    return str(caught.value)


def value_of(config: Config, override: str) -> object:
    """The value that an override sets."""
    key, _, _ = override.partition("=")
    section, _, field = key.rpartition(".")
    if not section:
        return getattr(config, field)
    return getattr(getattr(config, section), field)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 0.001),
        ("1E5", 100_000.0),
        (".5", 0.5),
        ("-7", -7),
        ("010", 10),
        ("08", 8),
        ("no", "no"),
        ("Off", "Off"),
        ("12:30:45", "12:30:45"),
        ("2024-01-01", "2024-01-01"),
        ("0x10", "0x10"),
        (".inf", ".inf"),
        ("true", True),
        ("null", None),
    ],
)
def test_a_value_to_search_is_what_a_person_reads(text, value):
    """Only `true` is a truth value and only decimal numbers are numbers, `1e-3` among them."""
    (choice,) = load(f"{DATA}tune: {{model.encoder: [{text}]}}\n").tune["model.encoder"]
    assert choice == value
    assert type(choice) is type(value)


@pytest.mark.parametrize(("end", "kind"), [("3", int), ("3.0", float), ("3e0", float)])
def test_only_a_range_between_integers_is_one_of_integers(end, kind):
    search = load(f"{DATA}tune: {{train.rdrop_weight: {{low: 1, high: {end}}}}}\n").tune
    assert type(search["train.rdrop_weight"].high) is kind


def test_yaml_values_are_the_texts_that_are_written():
    parsed = parse_yaml("a: 007\nb: [no, 1e3, null]\nc: ~\nd: '~'\ne:\n", source="here")
    assert parsed == {"a": "007", "b": ["no", "1e3", "null"], "c": None, "d": "~", "e": None}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (DATA + "seed: 1\nseed: 2\n", r"run\.yaml:3: .*'seed' twice"),
        ("data:\n  train: a\n  train: b\n", r"run\.yaml:3: .*'train' twice"),
        (DATA + "seed: [1\n", r"run\.yaml:\d: not valid YAML"),
        (DATA + "? [a]\n: b\n", r"run\.yaml:2: .*unhashable key"),
        (DATA + "seed: !!python/name:os.system\n", r"run\.yaml:2: not valid YAML"),
        (DATA + "--- 2\n", r"run\.yaml:2: .*another document"),
        (b"name: caf\xe9\n", r"run\.yaml: cannot read the config: .*position 9"),
        ("name: a\0b", r"run\.yaml: not valid YAML"),
        ("seed: " + "[" * 600, r"run\.yaml: not valid YAML"),
        ("", r"run\.yaml: expected sections .* found nothing"),
        ("# only a comment\n", r"run\.yaml: expected sections"),
        ("- data\n", r"run\.yaml: expected sections .* found list"),
        ("data\n", r"run\.yaml: expected sections .* found str"),
        ("data: [a.csv]\n", r"run\.yaml: data: "),
        ("seed: 1\n", r"run\.yaml: data: is required"),
        ("data:\n", r"run\.yaml: data\.train: is required"),
        (DATA + "1: 2\n", r"run\.yaml: 1: "),
        ("data: good.csv\n", r"run\.yaml: data: must be a section"),
        (
            "data: {train: x.csv, label_names: {0: a}}\n",
            r"run\.yaml: data\.label_names: Input should be a list",
        ),
        (
            "data: {train: x.csv, text_column: []}\n",
            r"run\.yaml: data\.text_column: Input should be a list of at least one item \(found",
        ),
        (
            "name: my run\ndata: {train: x.csv}\n",
            r"run\.yaml: name: Input should be letters, digits",
        ),
        (
            DATA + "train: {class_weights: {spam: 0}}\n",
            r"run\.yaml: train\.class_weights.*greater than 0",
        ),
    ],
)
def test_a_file_that_is_no_config_is_refused_with_its_place(content, message):
    found = refusal(content)
    assert re.match(message, found)
    assert "Config " not in found


def test_data_in_place_of_a_config_is_an_error_with_the_setting_to_train_on_it():
    """Files of texts are known by their ending; a file that ends as a config is read as one."""
    message = "spam.csv: this is not a config; to train on its texts: --set data.train=spam.csv"
    assert refusal("text,label\nwin,spam\n", name="spam.csv") == message
    assert refusal(b"PAR1\xff", name="spam.parquet") == message.replace("csv", "parquet")
    assert "found str" in refusal("text,label\n", name="spam.yml")

    Path("reviews").mkdir()
    with pytest.raises(ConfigError, match=r"--set data\.train=reviews"):
        load_config(Path("reviews"))


def test_without_a_file_other_data_leaves_nothing_of_the_bundled_example():
    """Its splits and its name go, wherever among the overrides `data.train` is."""
    config = load_config(None, ["train.epochs=2", "data.train=mails/spam and ham.csv"])

    assert config == Config(
        name="spam-and-ham",
        data=DataConfig(train="mails/spam and ham.csv"),
        train=TrainConfig(epochs=2),
    )
    assert load_config(None, ["train.epochs=2"]).data == load_config().data


def test_without_a_file_errors_name_the_overrides():
    unknown = refusal(None, "data.train=a.csv", "data.tests=b.csv")
    assert unknown.startswith("--set: data.tests: unknown key")

    without_labels = refusal(None, "data.train=null")
    assert without_labels.startswith(
        "--set: data.train: name a file of labelled texts; without labels, label about 20 first"
    )


@pytest.mark.parametrize(
    "content", [b"\xef\xbb\xbf" + DATA.encode(), DATA + "model:\ntrain:\ntokenizer:\n"]
)
def test_a_byte_order_mark_and_sections_with_nothing_under_them_change_nothing(content):
    assert load(content) == load(DATA)


@pytest.mark.parametrize("key", ['"\\e[31mred"', '"\\ud800"'])
def test_an_unknown_key_of_strange_characters_is_reported_in_plain_ones(key):
    message = refusal(DATA + f"{key}: 1\n")
    assert message.replace("\n", "").isprintable()


@pytest.mark.parametrize(("section", "field"), FIELDS)
def test_a_misspelt_key_names_the_right_one(section, field):
    """A letter may be left out, doubled or swapped, or an underscore be a dash."""
    left_out = field[:1] + field[2:]
    doubled = field + field[-1]
    swapped = field[:-2] + field[-1] + field[-2]
    with_dashes = field.replace("_", "-")
    for misspelt in {left_out, doubled, swapped, with_dashes} - {field}:
        message = refusal(None, f"{section}.{misspelt}=1")
        key = f"{section}.{misspelt}"
        assert message == f"bundled example: {key}: unknown key; did you mean {field}?"


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("sed", "seed"),
        ("modle", "model"),
        ("train.lr", "train.learning_rate"),
        ("lr", "train.learning_rate"),
        ("train.naive_bayes_em", "train.naive_bayes"),
        ("train.hidden-size", "model.d_model"),
        ("train.d_modell", "model.d_model"),
        ("data.batch_sise", "train.batch_size"),
        ("random_state", "seed"),
    ],
)
def test_a_key_of_another_section_or_library_names_the_right_one(key, meant):
    message = refusal(None, f"{key}=1")
    assert message == f"bundled example: {key}: unknown key; did you mean {meant}?"


def test_a_key_in_a_wrong_section_names_its_own():
    for _, field in FIELDS:
        sections = [name for name, model in SECTIONS.items() if field in model.model_fields]
        meant = " or ".join(f"{name}.{field}" for name in sections)

        for wrong_section in SECTIONS.keys() - set(sections):
            message = refusal(None, f"{wrong_section}.{field}=1")
            assert message.endswith(f"did you mean {meant}?")

        if field not in Config.model_fields:
            assert refusal(None, f"{field}=1").endswith(f"did you mean {meant}?")


def test_an_unknown_key_of_a_search_range_lists_those_of_a_range():
    message = refusal(DATA + "tune: {train.epochs: {low: 1, high: 3, qqq: 1}}\n")
    assert message == "run.yaml: tune.train.epochs: unknown key; known: low, high, log"


def test_an_unknown_key_that_resembles_none_lists_those_known():
    message = refusal(DATA + "model: {qqq: 1}\ntrain: {epoch: 3}\n")
    assert message.splitlines() == [
        f"run.yaml: model.qqq: unknown key; known: {', '.join(ModelConfig.model_fields)}",
        "run.yaml: train.epoch: unknown key; did you mean epochs?",
    ]


OUT_OF_RANGE = {
    "name": ["a/b", "..", "''", "x" * 101],
    "seed": ["-1", "4294967296", "1.5"],
    "data.validation_fraction": ["0", "0.51"],
    "data.text_column": ["[]", "[title, title]"],
    "data.label_names": ["[a, b, a]"],
    "tokenizer.max_vocab_size": ["15", "10000001"],
    "tokenizer.lowercase": ["maybe"],
    "model.dropout": ["1", "-0.1"],
    "model.linear": ["maybe", "null"],
    "model.num_layers": ["257"],
    "pretrain.epochs": ["1000001"],
    "pretrain.time_budget": ["1e308"],
    "train.epochs": ["0", "", "long", "1000001"],
    "train.time_budget": ["0", "soon", "9000h"],
    "train.gradient_shards": ["1025", "1000000"],
    "train.max_grad_norm": ["0", "1e39"],
    "train.rdrop_weight": ["-1", "1000.5"],
    "train.learning_rate": ["0", "inf", "nan", "1" + "0" * 400],
    "train.weight_decay": ["-1e-9"],
    "train.class_weights": ["heavy", "{spam: 0}", "{spam: 1000001}"],
}


def overrides_out_of_range() -> Iterator[str]:
    """An override for each value of `OUT_OF_RANGE`."""
    for key, values in OUT_OF_RANGE.items():
        for value in values:
            yield f"{key}={value}"


@pytest.mark.parametrize("override", list(overrides_out_of_range()))
def test_a_value_out_of_range_names_the_field(override):
    message = refusal(None, override)

    field, _, _ = override.partition("=")
    assert message.startswith(f"bundled example: {field}: ")
    assert "\n" not in message


def number_schemas(schema: dict) -> Iterator[dict]:
    """The parts of a JSON schema that are about numbers."""
    if schema.get("type") in {"integer", "number"}:
        yield schema
    for part in schema.get("anyOf", ()):
        yield from number_schemas(part)
    if isinstance(schema.get("additionalProperties"), dict):
        yield from number_schemas(schema["additionalProperties"])


@pytest.mark.parametrize(("section", "field"), FIELDS)
def test_every_number_has_a_largest_value(section, field):
    """A number without one would run without end, or out of memory, and not be an error."""
    properties = SECTIONS[section].model_json_schema()["properties"]

    for schema in number_schemas(properties[field]):
        assert {"maximum", "exclusiveMaximum"} & schema.keys()


def test_a_number_that_is_too_large_is_told_the_largest():
    message = refusal(None, "train.gradient_shards=1000000")
    assert message == (
        "bundled example: train.gradient_shards: Input should be less than or equal to 1024 "
        "(found '1000000')"
    )


@pytest.mark.parametrize(
    "overrides",
    [
        ["model.num_layers=256", "model.d_model=8192", "model.d_ff=65536"],
        ["model.char_ngram_buckets=16777216", "model.d_model=512"],
        ["model.positions=learned", "model.d_model=8192", "model.bigram_buckets=1000000"],
    ],
)
def test_an_encoder_that_fits_no_machine_is_refused(overrides):
    expected = (
        r"bundled example: model: the encoder has [\d,]+ parameters, .* maximum is 4,294,967,296"
    )
    assert re.match(expected, refusal(None, *overrides))

    linear_alone = load_config(None, [*overrides, "model.encoder=false"])
    assert linear_alone.model.encoder is False


def test_values_by_dotted_key_are_a_config():
    values = {
        "name": "run",
        "data.train": "a.csv",
        "data.test": Path("b.csv"),
        "data.label_names": Path("names.txt"),
        "model.norm": "post",
        "train.class_weights": {"a": 2.0, np.int64(7): np.float64(3), True: 1, np.str_("b"): 2},
    }
    Path("names.txt").write_text("a\nb\n", "utf-8")

    config = config_of(values, source="here")

    assert config.data.train == "a.csv"
    assert config.data.test == "b.csv"
    assert config.data.label_names == ("a", "b")
    assert config.model.norm == "post"
    assert config.train.class_weights == {"a": 2.0, "7": 3.0, "True": 1.0, "b": 2.0}
    assert config.train.learning_rate == load_config().train.learning_rate


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("model.nrom", "here: model.nrom: unknown key"),
        ("model..norm", "'model..norm' is not a key"),
        (3, "3 is not a key"),
    ],
)
def test_a_wrong_dotted_key_is_named(key, message):
    values = {"name": "run", "data.train": "a.csv", key: "post"}
    with pytest.raises(ConfigError, match=message):
        config_of(values, source="here")


def test_overrides_reach_into_sections_and_later_ones_win():
    config = load(
        DATA + "name: mine\ntrain: {epochs: 3, batch_size: 8, class_weights: {ham: 2}}\n",
        "train.epochs=4",
        "train.epochs=5",
        " model.d_model = 64",
        "data.text_column=[title, body]",
        "data.train=hub:a/b?split=x=y",
        "model={num_layers: 1}",
        "train.class_weights.spam=3",
        "seed=7",
    )

    assert config.name == "mine"
    assert config.seed == 7
    assert config.data.train == "hub:a/b?split=x=y"
    assert config.train.epochs == 5
    assert config.train.batch_size == 8
    assert config.model.d_model == 64
    assert config.model.num_layers == 1
    assert config.data.text_column == ("title", "body")
    assert config.train.class_weights == {"ham": 2.0, "spam": 3.0}


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["train.epoch=5"], r"train\.epoch: unknown key; did you mean epochs\?"),
        (["trian.epochs=5"], r"trian: unknown key; did you mean train\?"),
        (["data.train.x=5"], r"data\.train: "),
        (["data.test=''"], r"data\.test: names no file or folder"),
        (["data.label_names=''"], r"data\.label_names: names no file"),
        (["from_run=''"], "from_run: names no file or folder"),
        (["train=5"], r"train: "),
        (["train.epochs=["], r"--set train\.epochs:1: not valid YAML"),
        (["data.text_column=[a, #b]"], r"--set data\.text_column:1: not valid YAML"),
        (["train={epochs: 1, epochs: 2}"], r"--set train:1: .*'epochs' twice"),
        (["model.num_heads=3"], "model: d_model 128 is not divisible by num_heads 3$"),
        (
            ["model.d_model=5", "model.num_heads=5"],
            "model: sinusoidal positions need an even d_model, not 5$",
        ),
        (
            ["model.num_heads=8", "model.max_seq_len=8193"],
            "model: max_seq_len 8,193: .* 2 GiB; with num_heads 8, the maximum is 8,192 tokens$",
        ),
        (["data.text_column=[text, label]"], "data: label_column 'label' is also in text_column"),
        (["data.label_column=text"], "data: label_column 'text' is also in text_column"),
        (["data.features=['', channel]"], "data.features: an item is empty"),
    ],
)
def test_an_override_that_cannot_be_is_refused(overrides, message):
    assert re.match(message, refusal(DATA, *overrides).removeprefix("run.yaml: "))


@pytest.mark.parametrize(
    "override", ["train.epochs", "=5", ".epochs=5", "train..epochs=5", "train.=5", ""]
)
def test_a_malformed_override_shows_how_to_write_it(override):
    message = refusal(DATA, override)
    assert message == f"--set {override}: write it as section.key=value, such as train.epochs=5"


@pytest.mark.parametrize(
    "listed",
    [
        "1.50, 1e3, 01, no, true, 0x1, null",
        "'01', 1, -0, +1, .5, 1_000, 'true'",
    ],
)
def test_class_names_stay_as_they_are_written(listed):
    written_names = listed.split(", ")
    in_lines = "".join(f"\n    - {name}" for name in written_names)
    configs = [
        load(f"data: {{train: a.csv, label_names: [{listed}]}}\n"),
        load(f"data:\n  train: a.csv\n  label_names:{in_lines}\n"),
        load(DATA, f"data.label_names=[{listed}]"),
        load(DATA, f"data={{train: a.csv, label_names: [{listed}]}}"),
    ]

    names = tuple(name.strip("'") for name in written_names)
    for config in configs:
        assert config.data.label_names == names
        assert load(config.to_yaml()) == config


@pytest.mark.parametrize(
    ("override", "value"),
    [
        ("name=1e3", "1e3"),
        ("data.train=007", "007"),
        ("data.test=1.50", "1.50"),
        ("data.label_column=true", "true"),
        ("data.text_column=01", ("01",)),
        ("data.text_column=[01, 1.0]", ("01", "1.0")),
        ("data.group_column=007", "007"),
        ("data.weight_column=007", "007"),
        ("data.label_separator=~", "~"),
        ("data.label_separator=1", "1"),
        *[(f"data.train={path}", path) for path in UGLY],
        *[(f"data.label_column={column}", column) for column in UGLY],
        *[(f"data.text_column={column}", (column,)) for column in UGLY],
        ("data.text_column=['a #b', \"c: d\"]", ("a #b", "c: d")),
        ("data.train= 'it''s' ", "it's"),
        ('data.train="a\\tb #c"', "a\tb #c"),
        ("data.train='a' #'", "'a' #'"),
        ("data.train=[v1]", "[v1]"),
        ("data.label_names=[\"a\\Nb\", '12:30', é😀]", ("a\x85b", "12:30", "é😀")),
        ("train.class_weights={01: 2, 1e3: 3, 0: 1e-3}", {"01": 2.0, "1e3": 3.0, "0": 0.001}),
        ("name=" + "x" * 100, "x" * 100),
        ("seed=4294967295", 2**32 - 1),
        ("tokenizer.max_vocab_size=3e4", 30_000),
        ("train.time_budget=30", 30.0),
        ("data.test=", None),
        ("train.patience=", None),
        ("model.dropout=0", 0.0),
        ("train.epochs=auto", "auto"),
        ("train.patience=null", None),
        ("train.learning_rate=1.2345678901234567e-300", 1.2345678901234567e-300),
    ],
)
def test_every_value_stays_as_it_is_written(override, value):
    """Texts are texts, and the written config means the same, also at the edge of a range."""
    config = load(DATA, override)
    assert value_of(config, override) == value
    assert load(config.to_yaml()) == config


def test_null_is_no_text():
    assert load(DATA, "data.label_names=null", "data.test=~").data == load(DATA).data


def test_all_settings_that_are_texts_stay_as_they_are_written():
    changed = {
        "data.text_column": "[1e3]",
        "data.label_names": "[1e3, 1e2]",
        "data.delimiter": "1e3",
    }
    keys = ["name", "from_run"]
    keys += [f"{section}.{field}" for section, field in FIELDS if is_text(SECTIONS[section], field)]

    for key in keys:
        text = changed.get(key, "1e3")
        assert parse_setting(key, text) == text, key


def is_text(section: type[BaseModel], field: str) -> bool:
    """Whether a setting may be any text, not one of a few words."""
    schema = section.model_json_schema()["properties"][field]
    for kind in (schema, *schema.get("anyOf", ())):
        if kind.get("type") == "string" and not {"enum", "const"} & kind.keys():
            return True
    return False


@pytest.mark.parametrize(
    ("stem", "name"),
    [
        ("ag_news", "ag_news"),
        ("my spam", "my-spam"),
        ("-.draft", "draft"),
        (".hidden", "hidden"),
        ("a/b\\c: (1)", "b-c-1"),
        ("tab\tand\x1b[31mred\u202e", "tab-and-31mred"),
        ("\udcff", "run"),
        ("☂", "run"),
        ("हिन्दी été_2", "हिन्दी-été_2"),
        ("x" * 150, "x" * 100),
    ],
)
def test_any_file_name_makes_a_name_for_the_run(stem, name, monkeypatch):
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: DATA)
    assert load_config(Path(f"{stem}.yaml")).name == name


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.yaml")), ids=lambda path: path.name)
def test_every_config_that_comes_with_the_project_loads(path):
    config = load_config(path)
    assert load(config.to_yaml()) == config


def test_the_example_file_lists_every_value_with_its_default():
    """`configs/example.yaml` names each field of each section, and gives what no file gives."""
    written = yaml.safe_load((CONFIGS / "example.yaml").read_text(encoding="utf-8"))

    assert list(written) == list(Config.model_fields)
    for section, model in SECTIONS.items():
        assert list(written[section]) == list(model.model_fields)
    assert load_config(CONFIGS / "example.yaml") == load_config()


FIELD_NAMES = [field for _, field in FIELDS]
WORDS = [f"{word}: " for word in ("name", "seed", *SECTIONS, *FIELD_NAMES)]
VALUES = [
    "1e-3",
    "-1",
    "08",
    "1" + "0" * 400,
    "null",
    "true",
    "no",
    "a.csv",
    "balanced",
    "'1e5'",
    '"\\ud800"',
    ".nan",
]
MARKS = ["\n", "\n  ", "\n- ", *"{}[]'\"#\t", ", ", ": ", "&a ", "*a", "!!int ", "!!bool ", "? "]
pieces = st.sampled_from(WORDS + VALUES + MARKS) | st.text(max_size=3)
yaml_like = st.lists(pieces, max_size=12).map("".join)

dotted_keys = st.sampled_from([f"{section}.{field}" for section, field in FIELDS])
key_like = dotted_keys | st.text(max_size=8)
override_like = st.builds("{}={}".format, key_like, yaml_like) | st.text(max_size=12)


@settings(max_examples=15, deadline=None, derandomize=True)
@given(
    content=yaml_like | yaml_like.map(DATA.__add__),
    overrides=st.lists(override_like, max_size=2),
)
@example(content=DATA + "seed: !!bool maybe", overrides=[])
@example(content=DATA, overrides=["\ud800=1"])
@example(content=DATA, overrides=["name='1e5'"])
def test_any_text_gives_a_config_or_a_config_error(content, overrides):
    try:
        config = load(content, *overrides)
    except ConfigError:
        return
    assert load(config.to_yaml()) == config
