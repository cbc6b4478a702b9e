"""The key of a text, by which tables of labels find the rows of data with the text."""

from __future__ import annotations

import hashlib
from string import ascii_lowercase

from encoder_cls.system.row_text import plain_text, row_parts

# The column with the key in all tables of labels.
KEY = "key"

# The number of letters of a key after the first one. They encode 56 bits, so that the keys of
# millions of texts differ.
KEY_LETTERS = 12


def key_of_text(text: str) -> str:
    """Make the key of a text: k, and letters that encode its SHA-256.

    It has no digits, so that no spreadsheet takes it for a number or a date, and does not depend on
    line ends, which spreadsheets change. The features of a row are a part of its text; several text
    columns are one text.
    """
    if not row_parts(text).features:
        text = plain_text(text)
    plain = text.replace("\r\n", "\n").replace("\r", "\n")
    digest = hashlib.sha256(plain.encode("utf-8", "surrogatepass")).digest()

    number = int.from_bytes(digest[:8])
    letters = []
    for _ in range(KEY_LETTERS):
        number, letter = divmod(number, len(ascii_lowercase))
        letters.append(ascii_lowercase[letter])
    return "k" + "".join(letters)
