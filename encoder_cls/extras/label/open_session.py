"""Open a session: read the pool and the labels that there are."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from encoder_cls.errors import ConfigError, DataError
from encoder_cls.extras.label.class_list import ClassList
from encoder_cls.extras.label.label_table import LABEL, LabelTable
from encoder_cls.extras.label.pool import PoolOptions, PoolText, read_pool, without_near_duplicates
from encoder_cls.extras.label.session import Session
from encoder_cls.extras.label.session_memory import SessionMemory, files_of_session, skipped_file
from encoder_cls.extras.label.text_queue import TextQueue
from encoder_cls.system.display import counted


class OpenedSession(NamedTuple):
    """A session, with its queue, the texts of its pool, and notes."""

    session: Session
    queue: TextQueue
    texts: Sequence[PoolText]
    notes: Sequence[str]


def open_session(
    options: PoolOptions, output: Path, class_names: Sequence[str], *, is_multi_label: bool
) -> OpenedSession:
    """Open a session on a pool, and continue the labels of its output.

    `class_names` come before those that only the table has.

    Raises:
        ConfigError: the name of a class is not valid.
        DataError: the pool or a table is malformed.
        EncoderClsError: a table cannot be written.
    """
    memory = SessionMemory(output)
    is_multi_label = is_multi_label or memory.now.is_multi_label
    classes = _classes(class_names, memory, is_multi_label=is_multi_label)

    pool = read_pool(
        options,
        label_column=None if LABEL in options.text_columns else LABEL,
        left_out=files_of_session(output),
    )
    notes = list(pool.notes)
    labels = LabelTable(
        output,
        pool.columns,
        pool.form,
        text_columns=options.text_columns,
        features=options.features,
        needs_label=not is_multi_label,
    )
    skipped = LabelTable(
        skipped_file(output),
        pool.columns,
        pool.form,
        text_columns=options.text_columns,
        features=options.features,
    )
    for table in (labels, skipped):
        notes += table.read(options.reading.encoding, pool.texts)
    labels.create()
    if labels.blank_rows:
        notes.append(
            f"{output}: {counted(len(labels.blank_rows), 'row')} without a label: they are kept, "
            "and asked again if the texts have them"
        )
    _add_classes_of(labels, classes)
    memory.keep(classes=list(classes.names), is_multi_label=is_multi_label)

    known_texts = {row.key: row.text for row in (*labels.rows, *skipped.rows)}
    texts = without_near_duplicates(pool.texts, known_texts)
    queue = TextQueue(texts)
    index_of = {text.key: index for index, text in enumerate(texts)}
    queue.suggestions = [index_of[key] for key in memory.now.suggested if key in index_of]
    session = Session(queue, texts, classes, labels, skipped, memory=memory)
    return OpenedSession(session, queue, texts, notes)


def _classes(names: Sequence[str], memory: SessionMemory, *, is_multi_label: bool) -> ClassList:
    """The session's classes by their keys, and then new ones."""
    try:
        given = ClassList(names, is_multi_label=is_multi_label)
        classes = ClassList(memory.now.classes, is_multi_label=is_multi_label)
        for name in given.names:
            today = memory.name_today(name)
            if today not in classes.names:
                classes.add(today)
    except ValueError as error:
        raise ConfigError(f"--labels: {error}") from None
    return classes


def _add_classes_of(labels: LabelTable, classes: ClassList) -> None:
    """Add classes of the table in the order of their first rows."""
    for row in labels.rows:
        for label in classes.labels_in(row.label):
            if label in classes.names:
                continue
            try:
                classes.add(label)
            except ValueError as error:
                hint = "correct the column label, or name another --output"
                raise DataError(labels.path, str(error), hint) from None
