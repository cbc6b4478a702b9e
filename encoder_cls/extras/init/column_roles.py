"""Choose the columns with the text and with the label, by what is in them, and say why."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from encoder_cls import several_labels
from encoder_cls.extras.init.column_profile import ColumnProfile
from encoder_cls.extras.init.label_predictability import (
    LabelPredictability,
    label_predictability,
)
from encoder_cls.system.display import counted

# Words in the names of columns that usually hold texts, labels, or something else, in languages
# that people have sent data in.
_TEXT_NAMES = """
    text texts texte texto testo tekst message messages nachricht nachrichten mensaje body content
    inhalt review comment comments kommentar commentaire description beschreibung sentence satz
    question frage query utterance tweet post abstract document email mail ticket anfrage anliegen
    verwendungszweck transcript feedback answer headline article
"""
_LABEL_NAMES = """
    label labels class classes klasse classe category categories kategorie categorie categoria
    target intent intents topic topics thema sentiment polarity emotion emotions rating stars score
    tag tags type typ tipo art spam genre queue department abteilung reason grund annotation gold
"""
_OTHER_NAMES = """
    id ids nr no number nummer key uuid guid index row zeile date datum time zeit timestamp year
    jahr month monat day created updated user username author autor name customer kunde kunden
    kundennummer agent bearbeiter language lang sprache locale country land split set fold source
    quelle channel kanal status priority prio url link version confidence probability count length
    thread session conversation
"""
# Words in the names of columns whose rows with one value belong together.
_GROUP_NAMES = """
    user username author autor customer kunde kunden kundennummer thread session conversation
    dialog dialogue patient account konto
"""
TEXT_NAMES = frozenset(_TEXT_NAMES.split())
LABEL_NAMES = frozenset(_LABEL_NAMES.split())
OTHER_NAMES = frozenset(_OTHER_NAMES.split())
GROUP_NAMES = frozenset(_GROUP_NAMES.split())


class TextColumn(NamedTuple):
    """The column with the text; `others` hold texts, too.

    Attributes:
        distinct_share: of the texts.
    """

    name: str
    mean_words: float
    distinct_share: float
    others: tuple[str, ...]


class LabelColumn(NamedTuple):
    """The column with the label.

    Attributes:
        test: how well words tell it; None if labels are lists, or too many.
        separator: between several labels in a cell; None for one.
        others: the next best columns.
    """

    name: str
    num_labels: int
    test: LabelPredictability | None
    separator: str | None
    others: tuple[str, ...]


# The smallest score of a text column: below, cells are names and codes.
MIN_TEXT_SCORE = 0.3
# From this mean number of words on, longer texts are no better texts.
MANY_WORDS = 20
# The smallest mean number of words of a further column that could be read as text, too.
MIN_WORDS_OF_OTHERS = 3
# How much the name of a column counts.
RIGHT_NAME = 3.0
WRONG_NAME = 0.3


def text_column(profiles: Sequence[ColumnProfile]) -> TextColumn | None:
    """The column with the longest and most different texts, if any."""
    scores = {profile.name: _text_score(profile) for profile in profiles}
    by_score = sorted(profiles, key=lambda profile: -scores[profile.name])
    texts = [profile for profile in by_score if scores[profile.name] >= MIN_TEXT_SCORE]
    if not texts:
        return None

    best, *others = texts
    has_sentences = [
        profile.name for profile in others if profile.mean_words >= MIN_WORDS_OF_OTHERS
    ]
    return TextColumn(best.name, best.mean_words, best.distinct_share, tuple(has_sentences))


def _text_score(profile: ColumnProfile) -> float:
    if profile.kind != "text":
        return 0.0
    text_share = profile.kinds["text"] / max(1, len(profile.cells))
    words = min(profile.mean_words, MANY_WORDS)
    score = words * profile.distinct_share * text_share
    return score * _name_factor(profile.name, TEXT_NAMES, LABEL_NAMES | OTHER_NAMES)


# The largest number of labels, as a share of the rows: labels must occur again.
MAX_LABEL_SHARE = 0.35
# The largest number of different labels that are tested by words.
MAX_TESTED_LABELS = 500
# The largest mean number of words of a label.
MAX_LABEL_WORDS = 8
# The score of a label that words do not tell at all, and that of a number or a truth value, as a
# share of the score of a name.
UNTOLD = 0.05
NOT_A_NAME = 0.6
# The number of other columns that could be the label, too, that are named.
MAX_OTHERS = 3
# The smallest score of a label column. A column that words do not tell needs a fitting name.
MIN_LABEL_SCORE = 0.06


def label_column(profiles: Sequence[ColumnProfile], text: ColumnProfile) -> LabelColumn | None:
    """The column whose values occur again and are predicted best from the text."""
    candidates = []
    scores: dict[str, float] = {}
    for profile in profiles:
        if profile.name == text.name:
            continue
        candidate = _candidate(profile, text)
        if candidate:
            candidates.append(candidate)
            scores[profile.name] = _label_score(profile, candidate)

    candidates.sort(key=lambda candidate: -scores[candidate.name])
    likely = [candidate for candidate in candidates if scores[candidate.name] >= MIN_LABEL_SCORE]
    if not likely:
        return None
    best, *others = likely
    return best._replace(others=tuple(candidate.name for candidate in others[:MAX_OTHERS]))


def describe_label_column(profile: ColumnProfile, text: ColumnProfile) -> LabelColumn:
    """Describe a column that a person has named, as `label_column` does."""
    candidate = _candidate(profile, text)
    if candidate:
        return candidate
    return LabelColumn(profile.name, len(profile.counts), None, None, ())


def _candidate(profile: ColumnProfile, text: ColumnProfile) -> LabelColumn | None:
    if profile.kind not in {"text", "code", "number", "truth value", "list"}:
        return None

    several = None
    if profile.kind in {"text", "code", "number"}:
        several = several_labels(profile.counts)
    num_labels = len(several.names) if several else len(profile.counts)
    separator = several.separator if several else None
    max_labels = max(2, MAX_LABEL_SHARE * profile.num_filled)
    if not 2 <= num_labels <= max_labels or profile.mean_words > MAX_LABEL_WORDS:
        return None

    test = None
    if profile.kind != "list" and num_labels <= MAX_TESTED_LABELS:
        test = _tested(profile, text, separator)
    return LabelColumn(profile.name, num_labels, test, separator, ())


def _tested(
    profile: ColumnProfile, text: ColumnProfile, separator: str | None
) -> LabelPredictability:
    """Test how well the words of the text tell a label; of several, the first one."""
    texts = []
    labels = []
    for text_cell, cell in zip(text.cells, profile.cells, strict=True):
        if isinstance(text_cell, str) and isinstance(cell, str):
            texts.append(text_cell)
            labels.append(cell.split(separator)[0].strip() if separator else cell)
    return label_predictability(texts, labels)


def _label_score(profile: ColumnProfile, candidate: LabelColumn) -> float:
    gain = 0.5
    if candidate.test:
        gain = candidate.test.gain
    score = UNTOLD + gain
    if profile.kind in {"number", "truth value"}:
        score *= NOT_A_NAME
    filled_share = profile.num_filled / max(1, len(profile.cells))
    return score * filled_share * _name_factor(profile.name, LABEL_NAMES, OTHER_NAMES | TEXT_NAMES)


# The largest number of different values of a group column, as a share of its rows.
MAX_GROUP_SHARE = 0.9


def group_column(profiles: Sequence[ColumnProfile], used: Sequence[str]) -> str | None:
    """An unused column such as a customer, by its name and repeated values."""
    for profile in profiles:
        max_groups = MAX_GROUP_SHARE * profile.num_filled
        occurs_again = 2 <= len(profile.counts) < max_groups
        is_named_so = bool(_name_words(profile.name) & GROUP_NAMES)
        if profile.name not in used and occurs_again and is_named_so:
            return profile.name
    return None


def _name_factor(name: str, right: frozenset[str], wrong: frozenset[str]) -> float:
    words = _name_words(name)
    if words & right:
        return RIGHT_NAME
    if words & wrong:
        return WRONG_NAME
    return 1.0


def _name_words(name: str) -> set[str]:
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name)
    return set(re.findall(r"[^\W\d_]+", spaced.lower()))


def reason_for_text(text: TextColumn) -> str:
    """Say why a column is the text."""
    words = counted(round(text.mean_words), "word")
    return f"{words} on average, {text.distinct_share:.0%} of the cells differ"


def reason_for_label(label: LabelColumn) -> str:
    """Say why a column is the label."""
    reason = f"{label.num_labels:,} different values"
    if label.separator:
        reason += f", several in a cell, separated by {label.separator!r}"
    if label.test is None:
        return reason
    return (
        f"{reason}; a quick test on the words of the text is right on {label.test.accuracy:.0%}, "
        f"always the most frequent value on {label.test.without_words:.0%}"
    )


# The largest number of words of a column's name.
MAX_NAME_WORDS = 8


def header_is_a_row(profiles: Sequence[ColumnProfile]) -> bool:
    """Whether the names of columns look like a row, as without a header.

    They do if one is a number, long, or a frequent value of its own column.
    """
    for profile in profiles:
        is_number = bool(re.fullmatch(r"-?[0-9]+(?:\.[0-9]+)?", profile.name))
        is_frequent = profile.counts[profile.name] > 1
        is_long = len(profile.name.split()) > MAX_NAME_WORDS
        if is_number or is_frequent or is_long:
            return True
    return False
