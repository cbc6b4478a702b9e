"""A classifier as a JavaScript module: Node predicts what the NumPy engine predicts."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from support.classifiers import linear_model, new_classifier, with_linear
from support.node import ask_node, features_of, needs_node, run_node
from support.tiny_encoder import tiny_model_config
from support.tokenizer import train_tokenizer

from encoder_cls import load_classifier, save_linear_part
from encoder_cls.classifier.classifier import Classifier
from encoder_cls.classifier.familiarity import Familiarity, measure_familiarity
from encoder_cls.classifier.guarantees import Guarantees
from encoder_cls.classifier.model_folder import WEIGHTS_FILE, save_classifier
from encoder_cls.classifier.prediction_json import prediction_json
from encoder_cls.classifier.withholding import Withholding
from encoder_cls.config.schema import TokenizerConfig
from encoder_cls.data.codes import Codes
from encoder_cls.encoder.torch_encoder import TorchEncoder
from encoder_cls.encoder.transformer import EncoderClassifier
from encoder_cls.errors import ConfigError
from encoder_cls.extras.export import model_file
from encoder_cls.extras.export.javascript import javascript_module
from encoder_cls.extras.export.model_file import exported_model
from encoder_cls.metrics.row_groups import RowGroups
from encoder_cls.metrics.tasks import MULTI_LABEL
from encoder_cls.text.tokenizer import token_reader
from encoder_cls.text.tokens import UNK_ID
from encoder_cls.weights import SparseTable

pytestmark = needs_node

# The largest difference of probabilities.
TOLERANCE = 1e-5
LABELS = ["a", "b", "c"]
# The number of features of familiarity of a classifier with a linear model.
NUM_FAMILIARITY_FEATURES = 12

# Pieces of odd texts, in scripts with and without spaces, with marks, pictures and flags.
ODD_WORDS = """
rain soup ball goal the a snow, today! big-team 3.14 [PAD] [CLS] zzz
Küche ÉCOLE e\u0301té İstanbul ΣΊΣΥΦΟΣ ﬁne ½ ﷺ 𝒜𝒷 ǅ straße Å
我爱北京 カタカナ ｶﾞｷﾞ がぎ 가나다 \u1100\u1161\u11a8 ภาษาไทยน้ำ ພາສາລາວ ភាសាខ្មែរ မြန်မာ
😀 👩🏽\u200d💻 👨\u200d👩\u200d👧 🇩🇪🇫🇷🇺 ❤\ufe0f\u200d🔥 ©® 1\ufe0f\u20e3 हिन्दी עִבְרִית العَرَبِيَّة
🏴\U000e0067\U000e0062\U000e007f می\u200cخواهم क्\u200dष pass\u00adword so\u200bup
=\u0338 \u0301 a\u0345\u0334b \u0600 _ ' \ud800 \udfff x\udc00y
"""
# Spaces and characters that cannot be seen.
INVISIBLE = " \t\n\u3000\xa0\0\x01\x1f\x7f\x85\xad\u200b\u200c\u200d\u200f\u2028\ufe0f\ufeff\ufffd"
PIECES = [*ODD_WORDS.split(), *INVISIBLE]


def odd_texts(number: int) -> list[str]:
    """Texts of odd pieces, with spaces or without, and some that are very short or very long."""
    draw = random.Random(0)
    texts = ["", " ", "\n\t", "x", "\ud83d", "rain " * 40, "word " * 10_000, "我爱" * 600]
    texts += ["a" * 3000, "rain snow soup " * 60]
    while len(texts) < number:
        pieces = draw.choices(PIECES, k=draw.randint(1, 12))
        texts.append(draw.choice(["", " "]).join(pieces))
    # JSON joins the halves of a surrogate pair, so that both engines get the same characters.
    return json.loads(json.dumps(texts))


def multi_label() -> Classifier:
    """A classifier of several labels with both parts."""
    classifier = with_linear(LABELS)
    classifier.task = MULTI_LABEL
    # Without biases, some probabilities are large and others small.
    biases = np.zeros(len(LABELS), dtype=np.float32)
    classifier.linear = replace(classifier.linear, task=MULTI_LABEL, biases=biases)
    classifier.thresholds = (0.2, 0.5, 0.7)

    # Labels that are right more often the larger their probability is.
    draw = np.random.default_rng(0)
    probabilities = draw.beta(0.1, 0.1, size=(300, 3))
    labels = (draw.random(size=(300, 3)) < probabilities).astype(np.int64)
    classifier.guarantees = Guarantees.of(
        probabilities, labels, classifier.thresholds, groups=RowGroups.single(len(labels))
    )
    return classifier


def two_classes() -> Classifier:
    """A classifier of two classes, in a cascade."""
    classifier = with_linear(LABELS[:2])
    classifier.gate = 0.9
    return classifier


def of_three_classes() -> Classifier:
    """A classifier of both parts, with measured familiarity and guarantees."""
    classifier = with_linear(LABELS)
    deviations = np.full(NUM_FAMILIARITY_FEATURES, 0.5)
    means = np.linspace(-1, 1, NUM_FAMILIARITY_FEATURES)
    classifier.familiarity = Familiarity(means=means, deviations=deviations, threshold=30.0)

    draw = np.random.default_rng(0)
    probabilities = draw.dirichlet([0.1, 0.1, 0.1], size=300)
    labels = np.array([draw.choice(3, p=row) for row in probabilities])
    classifier.guarantees = Guarantees.of(
        probabilities, labels, groups=RowGroups.single(len(labels))
    )
    return classifier


def of_none() -> Classifier:
    """A classifier whose second class stands for none of the others."""
    return replace(of_three_classes(), none_label=LABELS[1])


def linear_alone() -> Classifier:
    """A linear model without an encoder."""
    return replace(of_three_classes(), encoder=None, mixture=with_linear(LABELS).mixture)


def of_unknown_words() -> Classifier:
    """A linear model that has learned from unknown words, too.

    A text of unknown words alone is just unfamiliar enough to be flagged.
    """
    classifier = linear_alone()
    texts = [f"{text} zebra lion" for text in ("rain", "soup", "ball", "rain", "soup", "ball")]
    classifier.linear = linear_model(classifier, texts)

    unknown = classifier.tokenize(["zebra lion"])
    probabilities = classifier.predict_proba(["zebra lion"])
    _, linear_features = classifier.part_logits_and_familiarity(unknown)
    features = measure_familiarity(probabilities, unknown, linear_features)
    distribution = Familiarity(
        means=np.zeros(NUM_FAMILIARITY_FEATURES),
        deviations=np.ones(NUM_FAMILIARITY_FEATURES),
        threshold=np.inf,
    )
    (score,) = distribution.scores(features)
    return replace(classifier, familiarity=replace(distribution, threshold=score - 1e-4))


def of_codes() -> Classifier:
    """A linear model of codes, of which two have one above them, and two have names."""
    codes = Codes(LABELS, {"a": "x", "b": "x", "c": "", "x": ""}, {"x": "Letters", "a": "First"})
    return replace(linear_alone(), codes=codes)


def very_many_classes() -> Classifier:
    """A linear model with sparse weights, in which a feature has none, some or all of them."""
    classifier = linear_alone()
    weights = sp.csr_matrix(np.maximum(0, classifier.linear.weights.dense()))
    table = SparseTable(
        values=weights.data,
        columns=weights.indices,
        row_sizes=np.diff(weights.indptr),
        num_columns=weights.shape[1],
    )
    return replace(classifier, linear=replace(classifier.linear, weights=table))


def of_encoder(**settings: Any) -> Callable[[], Classifier]:
    """A function that makes an encoder with these settings of its config, and no linear model."""

    def make() -> Classifier:
        torch.manual_seed(1)
        classifier = new_classifier(LABELS, texts=["rain soup ball", "我爱 Küche 😀"])
        config = tiny_model_config(max_seq_len=32, **settings)
        vocab_size = classifier.tokenizer.get_vocab_size()
        model = EncoderClassifier(config, vocab_size=vocab_size, num_classes=len(LABELS))
        classifier.encoder = TorchEncoder(model, config)
        classifier.max_seq_len = config.max_seq_len
        return classifier

    return make


def of_tokenizer(**settings: Any) -> Callable[[], Classifier]:
    """A function that makes a classifier whose tokenizer has these settings."""

    def make() -> Classifier:
        classifier = with_linear(LABELS)
        texts = ["rain soup ball", "Rain Küche kuche 我爱 😀 été ½ ﬁne"]
        config = TokenizerConfig(**settings)
        tokenizer = train_tokenizer(texts, config)
        # The encoder has vectors for the words of its own tokenizer only.
        return replace(classifier, encoder=None, tokenizer=tokenizer)

    return make


MODELS: dict[str, tuple[Callable[[], Classifier], str]] = {
    "both parts": (of_three_classes, "int8"),
    "linear alone": (linear_alone, "float16"),
    "unknown words": (of_unknown_words, "float32"),
    "codes": (of_codes, "float32"),
    "very many classes": (very_many_classes, "int8"),
    "several labels": (multi_label, "int8"),
    "two classes": (two_classes, "float32"),
    "post-norm": (
        of_encoder(norm="post", positions="learned", activation="relu", pooling="max"),
        "float16",
    ),
    "few tables": (
        of_encoder(positions="none", pooling="cls", char_ngram_buckets=0, bigram_buckets=0),
        "int8",
    ),
    "none of these": (of_none, "float32"),
    # Neither the columns of a token nor those of a head are a multiple of four.
    "uneven widths": (of_encoder(d_model=12, num_heads=4, d_ff=10, num_layers=2), "float16"),
    "no accents": (of_tokenizer(strip_accents=True, normalization="nfc"), "float32"),
    "case counts": (of_tokenizer(lowercase=False, normalization="nfc"), "float32"),
    "nothing is normalized": (of_tokenizer(lowercase=False, normalization="none"), "float32"),
}


@pytest.fixture(scope="module")
def exported(tmp_path_factory) -> Callable[[str], tuple[Classifier, Path]]:
    """A function that returns one of the `MODELS` in NumPy, and its JavaScript module."""
    folder = tmp_path_factory.mktemp("exported")
    made: dict[str, tuple[Classifier, Path]] = {}

    def export(name: str) -> tuple[Classifier, Path]:
        if name not in made:
            make, dtype = MODELS[name]
            classifier = make()
            dtypes = dict.fromkeys(classifier.parts, dtype)
            save_classifier(classifier, folder / name, dtypes=dtypes)

            module = folder / f"{name}.mjs"
            content = javascript_module(exported_model(folder / name))
            module.write_text(content, encoding="utf-8")
            made[name] = (load_classifier(folder / name, engine="numpy"), module)
        return made[name]

    return export


def check_equal(name: str, classifier: Classifier, module: Path, texts: list[str]) -> None:
    """Check that tokens, features and predictions for some texts are those of the NumPy engine."""
    found = ask_node(module, texts, topK=3)

    read = token_reader(classifier.tokenizer)
    for text, tokens in zip(texts, found["tokens"], strict=True):
        beginning = text[: 64 * classifier.max_seq_len]
        chunk = read([beginning], 8 * classifier.max_seq_len)
        assert tokens == [chunk.distinct[index] for index in chunk.indices[1:]], (name, text)

    if classifier.linear:
        assert found["features"] == features_of(classifier, texts)

    expected_probabilities = classifier.predict_proba(texts)
    np.testing.assert_allclose(found["probabilities"], expected_probabilities, atol=TOLERANCE)

    predictions = classifier.predict(texts)
    for text, prediction, given in zip(texts, predictions, found["predictions"], strict=True):
        record = prediction_json(prediction, top_k=3)
        assert list(given) == list(record), (name, text)
        assert without_numbers(given) == without_numbers(record), (name, text)
        assert numbers_of_path(given) == pytest.approx(numbers_of_path(record), abs=TOLERANCE)


def without_numbers(record: dict[str, Any]) -> dict[str, Any]:
    """A prediction with the labels and names in `top` and `path`, and without probabilities."""
    without = {**record, "probability": None}
    for key in ("top", "path"):
        if key in record:
            without[key] = [{**code, "probability": None} for code in record[key]]
    without["top"].sort(key=lambda code: code["label"])
    return without


def numbers_of_path(record: dict[str, Any]) -> list[float]:
    return [code["probability"] for code in record.get("path", [])]


@pytest.mark.parametrize(
    "name",
    [
        "linear alone",
        "codes",
        "very many classes",
        "both parts",
        "several labels",
        "none of these",
        "uneven widths",
        "no accents",
    ],
)
def test_node_predicts_what_numpy_predicts(exported, name):
    """Tokens and features are equal, and probabilities within 0.00001."""
    classifier, module = exported(name)
    check_equal(name, classifier, module, odd_texts(60))


def test_unknown_words_are_unfamiliar_to_a_model_that_has_learned_from_some(exported):
    """`[UNK]` and its pairs count as the rarest features, in JavaScript as in Python."""
    classifier, module = exported("unknown words")
    texts = ["zebra lion", "rain zebra lion", "rain"]
    found = ask_node(module, texts)

    assert UNK_ID in dict(found["features"][0]["known"])
    unfamiliar = [prediction["unfamiliar"] for prediction in found["predictions"]]
    assert unfamiliar == [prediction.unfamiliar for prediction in classifier.predict(texts)]
    assert unfamiliar == [True, False, False]


def test_levels_are_those_of_python(exported):
    """Of prefixes, a separator and a table; a prefix counts characters."""
    _, module = exported("codes")
    rules = [[1, 2, 4], ".", {"2512": "25", "25": "2", "2": ""}, None]
    codes = ["2512", "25", "C.10.5", "\U0001f600bc"]
    program = f"""
    import {{ load }} from "{module.as_uri()}";
    const Codes = (await load()).codes.constructor;
    const codes = {json.dumps(codes)};
    const paths = {json.dumps(rules)}.map((rule) => new Codes(codes, rule, {{}}).paths);
    process.stdout.write(JSON.stringify(paths));
    """
    for rule, paths in zip(rules, json.loads(run_node(program)), strict=True):
        of_python = Codes(codes, tuple(rule) if isinstance(rule, list) else rule)
        assert [tuple(path) for path in paths] == [of_python.path(code) for code in codes]


@pytest.mark.parametrize("name", ["post-norm", "uneven widths"])
def test_a_probability_does_not_depend_on_the_texts_beside(exported, name):
    """Texts are computed in batches, to the bit as one by one."""
    _, module = exported(name)
    code = f"""
    import {{ load }} from "{module.as_uri()}";
    const classifier = await load();
    const texts = {json.dumps(odd_texts(40))};
    const together = classifier.predictProba(texts);
    const singly = texts.map((text) => classifier.predictProba([text])[0]);
    process.stdout.write(JSON.stringify([together, singly]));
    """
    together, singly = json.loads(run_node(code))
    assert together == singly


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_node_predicts_what_numpy_predicts_for_10_000_texts(exported, name):
    classifier, module = exported(name)
    check_equal(name, classifier, module, odd_texts(10_000))


# All characters but the ideographs beyond the first plane, which are all alike, and the halves of
# surrogate pairs, which are no characters.
CODE_POINTS = (range(0xD800), range(0xE000, 0x20000), range(0xE0000, 0xE0200))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["both parts", "no accents", "nothing is normalized"])
def test_all_characters_make_the_words_that_the_library_makes(exported, name):
    """Each character of Unicode, among letters, ideographs and marks."""
    classifier, module = exported(name)
    texts = []
    for code_point in itertools.chain(*CODE_POINTS):
        character = chr(code_point)
        texts.append(
            f"a{character}b {character} 爱{character}爱 é{character}\u0301 \u1100{character}"
        )

    read = token_reader(classifier.tokenizer)
    code = """
    import fs from "node:fs";
    const { module, texts } = JSON.parse(fs.readFileSync(0, "utf8"));
    const classifier = await (await import(module)).load();
    process.stdout.write(JSON.stringify(texts.map((text) => classifier.tokens(text))));
    """
    for first in range(0, len(texts), 100_000):
        part = texts[first : first + 100_000]
        request = json.dumps({"module": module.as_uri(), "texts": part})
        for text, words in zip(part, json.loads(run_node(code, request)), strict=True):
            chunk = read([text], 8 * classifier.max_seq_len)
            assert words == [chunk.distinct[index] for index in chunk.indices[1:]], ascii(text)


def test_guaranteed_thresholds_are_those_of_python(exported):
    """Of any precision and coverage; what held-out texts do not show is refused."""
    classifier, module = exported("both parts")
    shares = [0.5, 0.8, 0.85, 0.9, 0.93, 0.95, 0.97, 0.99]
    code = f"""
    import {{ load }} from "{module.as_uri()}";
    const {{ guarantees }} = await load();
    const precision = {shares}.map((share) => guarantees.precisionThreshold(share) ?? null);
    const coverage = {shares}.map((share) => guarantees.coverageThreshold(share) ?? null);
    process.stdout.write(JSON.stringify([precision, coverage]));
    """
    precision, coverage = json.loads(run_node(code))

    guarantees = classifier.guarantees
    expected_precision = [guarantees.precision_threshold(share) for share in shares]
    expected_coverage = [guarantees.coverage_threshold(share) for share in shares]
    assert None in expected_precision
    assert len(set(expected_precision)) > 2
    are_equal = np.isclose(
        np.array([precision, coverage], dtype=float),
        np.array([expected_precision, expected_coverage], dtype=float),
        equal_nan=True,
    )
    assert are_equal.all()


def test_options_are_those_of_the_command(exported):
    """A threshold withholds labels, and a coverage adds the set."""
    classifier, module = exported("both parts")
    texts = ["rain", "rain soup", "zzz"]
    found = ask_node(module, texts, topK=2, threshold=0.6, coverage=0.9)["predictions"]

    set_threshold = classifier.guarantees.coverage_threshold(0.9)
    withholding = Withholding(threshold=0.6, set_threshold=set_threshold)
    for prediction, given in zip(classifier.predict(texts), found, strict=True):
        record = prediction_json(prediction, top_k=2, withholding=withholding)
        assert list(given) == list(record)
        assert without_numbers(given) == without_numbers(record)
    assert {given["label"] for given in found} > {None}


def test_guarantees_of_several_labels_are_those_of_python(exported):
    """The precision of each label or of whole texts, and the coverage."""
    classifier, module = exported("several labels")
    texts = odd_texts(60)
    predictions = classifier.predict(texts)
    guarantees = classifier.guarantees

    label_thresholds = {}
    for name, counts in zip(classifier.label_names, guarantees.labels, strict=True):
        threshold = counts.precision_threshold(0.95)
        if threshold is not None:
            label_thresholds[name] = threshold
    text_threshold = guarantees.precision_threshold(0.8)
    set_threshold = guarantees.coverage_threshold(0.9)
    assert None not in (text_threshold, set_threshold)

    cases = [
        ({"minPrecision": 0.95}, Withholding(label_thresholds=label_thresholds)),
        ({"minPrecision": 0.8, "wholeTexts": True}, Withholding(text_threshold=text_threshold)),
        ({"coverage": 0.9}, Withholding(set_threshold=set_threshold)),
    ]
    for options, withholding in cases:
        found = ask_node(module, texts, topK=1, **options)["predictions"]
        for prediction, given in zip(predictions, found, strict=True):
            record = prediction_json(prediction, top_k=1, withholding=withholding)
            assert list(given) == list(record), options
            assert without_numbers(given) == without_numbers(record), options


def test_a_precision_that_no_label_is_guaranteed_is_refused(exported):
    _, module = exported("several labels")
    code = f"""
    import {{ load }} from "{module.as_uri()}";
    const classifier = await load();
    try {{
      classifier.predict(["rain"], {{ minPrecision: 0.9999 }});
    }} catch (error) {{
      process.stdout.write(error.message);
    }}
    """
    assert "minPrecision 0.9999: cannot be guaranteed" in run_node(code)


@pytest.mark.parametrize("make", [pytest.param(two_classes, marks=pytest.mark.slow), multi_label])
def test_the_linear_part_is_exported_alone(make, tmp_path):
    """It predicts what it predicts in a report, and has nothing that was measured on both parts."""
    whole = make()
    shares = {"encoder": 0.25, "linear": 0.75}
    whole.mixture = replace(whole.mixture, shares=shares)
    save_classifier(whole, tmp_path, dtypes=dict.fromkeys(whole.parts, "int8"))
    whole = load_classifier(tmp_path, engine="numpy")

    save_linear_part(tmp_path, tmp_path / "linear")
    classifier = load_classifier(tmp_path / "linear")
    model = exported_model(tmp_path, linear_only=True)
    assert model.content == (tmp_path / "linear" / WEIGHTS_FILE).read_bytes()

    texts = odd_texts(60)
    alone = whole.mixture.parts_alone(whole.part_logits(whole.tokenize(texts)))["linear"]
    expected = whole.task.probabilities(alone)
    np.testing.assert_allclose(classifier.predict_proba(texts), expected, atol=1e-6)

    module = tmp_path / "linear.mjs"
    module.write_text(javascript_module(model), encoding="utf-8")
    assert "its linear part alone" in module.read_text(encoding="utf-8")[:500]
    check_equal("linear part", classifier, module, texts)
    for option in ("minPrecision", "coverage"):
        code = f"""
        import {{ load }} from "{module.as_uri()}";
        try {{ (await load()).predict(["rain"], {{ {option}: 0.5 }}); }}
        catch (error) {{ process.stdout.write(error.message); }}
        """
        assert f"{option} 0.5: this model has no guarantees" in run_node(code)


def test_a_linear_model_is_exported_whole(tmp_path):
    """With its guarantees, as without the option; an encoder has no linear part to export."""
    save_classifier(linear_alone(), tmp_path / "linear")
    model = exported_model(tmp_path / "linear", linear_only=True)
    assert model.content == (tmp_path / "linear" / WEIGHTS_FILE).read_bytes()
    assert not model.is_linear_part

    save_classifier(of_encoder()(), tmp_path / "encoder")
    with pytest.raises(ConfigError, match="without a linear part; leave out --linear-only"):
        exported_model(tmp_path / "encoder", linear_only=True)


@pytest.mark.parametrize("name", ["both parts", "two classes", "several labels"])
def test_explanations_are_those_of_python(exported, name):
    """Words, their places in characters, and weights; in scripts without spaces, joined words."""
    classifier, module = exported(name)
    texts = [
        "😀 rain and zebra",
        "",
        "É e\u0301t ﬁne soup",
        "ball 我爱rain北京 soup",
        "𝒜 ball x\ud800",
        "ﾊﾟｿｺﾝ မြန်မာ ball\xa0\u0301 น้ำ",
        "\u200fra\u00adin\u200f ba\ufe0fll\u034f 👩\u200d💻 می\u200cخو \u200b soup",
    ]
    found = ask_node(module, texts, explain=True)["predictions"]

    for words, given in zip(classifier.explain(texts), found, strict=True):
        assert len(words) == len(given["explanation"])
        for word, given_word in zip(words, given["explanation"], strict=True):
            assert (given_word["start"], given_word["end"]) == (word.start, word.end)
            assert abs(given_word["weight"] - word.weight) < 10 * TOLERANCE


def test_an_explanation_that_takes_too_long_leaves_words_out(exported):
    _, module = exported("both parts")
    options = {"explain": True, "maxExplainedTokens": 25}
    [prediction] = ask_node(module, ["rain soup ball snow the"], **options)["predictions"]
    assert len(prediction["explanation"]) == 3
    assert prediction["explanation_left_out"] == 2


WRONG_CALLS = {
    'predict("a text")': "put a single one in a list",
    "predict([1])": "texts[0] is not a string",
    "predict([], { topK: 0 })": "topK: invalid value 0",
    "predict([], { threshold: 2 })": "threshold: invalid value 2",
    "predict([], { minPrecision: 0.999 })": "cannot be guaranteed",
    "predict([], { threshold: 0.5, minPrecision: 0.5 })": "leave out one",
    "predict([], { minPrecision: 0.5, wholeTexts: true })": "several labels a text",
    "predict([], { top_k: 1 })": "top_k: unknown option",
}


def test_a_wrong_argument_is_named(exported):
    _, module = exported("both parts")
    calls = [f"() => classifier.{call}" for call in WRONG_CALLS]
    code = f"""
    import {{ load }} from "{module.as_uri()}";
    const classifier = await load();
    const messages = [{", ".join(calls)}].map((call) => {{
      try {{ return call(); }} catch (error) {{ return error.message; }}
    }});
    process.stdout.write(JSON.stringify(messages));
    """
    messages = json.loads(run_node(code))
    for message, expected in zip(messages, WRONG_CALLS.values(), strict=True):
        assert expected in message


def test_a_module_is_exported_by_the_command(cli, trained_run, classifier, tmp_path):
    """It has the model's hash and labels, and predicts as `predict --format jsonl` prints."""
    module = tmp_path / "model.mjs"
    outcome = cli("export", trained_run.path, "--output", module)
    assert outcome.code == 0, outcome.err
    assert "wrote" in outcome.err

    texts = ["rain and snow", "ball goal team"]
    printed = cli("predict", "--model", trained_run.path, "--format", "jsonl", *texts)
    expected = [json.loads(line) for line in printed.out.splitlines()]
    for record, given in zip(expected, ask_node(module, texts)["predictions"], strict=True):
        assert list(given) == list(record)
        assert without_numbers(given) == without_numbers(record)

    code = f'import {{ load }} from "{module.as_uri()}"; const {{ model, labels }} = await load();'
    shown = run_node(f"{code} process.stdout.write(JSON.stringify([model, labels]));")
    assert json.loads(shown) == [classifier.sha256, list(classifier.label_names)]


def test_an_export_is_little_larger_than_the_model(exported):
    """Base64 takes 4/3 of the file; the engine and its tables are of one size."""
    classifier, module = exported("both parts")
    weights = Path(classifier.folder) / "model.safetensors"
    engine_bytes = 145_000
    assert module.stat().st_size < 1.34 * weights.stat().st_size + engine_bytes


@pytest.mark.parametrize("kind", ["word_piece", "bpe", "unigram"])
def test_a_subword_tokenizer_is_refused_by_name(cli, tmp_path, kind):
    classifier = new_classifier(LABELS, kind=kind)
    save_classifier(classifier, tmp_path / "model")
    outcome = cli("export", tmp_path / "model", "--output", tmp_path / "model.mjs")
    assert outcome.code == 2
    assert "sub-words" in outcome.err
    assert "tokenizer.type=word_level" in outcome.err
    assert not (tmp_path / "model.mjs").exists()


def test_a_model_too_large_for_browsers_is_refused(cli, trained_run, tmp_path, monkeypatch):
    monkeypatch.setattr(model_file, "MAX_MODEL_BYTES", 1000)
    outcome = cli("export", trained_run.path, "--output", tmp_path / "model.mjs")
    assert outcome.code == 2
    assert "at most" in outcome.err
    assert not (tmp_path / "model.mjs").exists()


@pytest.mark.parametrize("name", ["model.js", "model", "model.mjs.txt"])
def test_the_ending_says_what_is_exported(cli, trained_run, tmp_path, name):
    outcome = cli("export", trained_run.path, "--output", tmp_path / name)
    assert outcome.code == 2
    assert "must end with" in outcome.err


def test_an_export_replaces_no_file_of_the_model(cli, run_copy):
    """Another file is replaced, as by other commands."""
    outcome = cli("export", run_copy.path, "--output", run_copy.path / "model" / "x.mjs")
    assert outcome.code == 2
