"""The documents: links lead somewhere, and neither they nor the code speak a language of their own."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
CODE = sorted(
    path
    for folder in ("encoder_cls", "scripts", "configs")
    for path in (ROOT / folder).rglob("*")
    if path.suffix in {".py", ".yaml", ".html"}
)
# Words that were coined here, and the field's own for them. Old results and the changelog may quote them.
COINED = {
    r"lessons?\b": "objective",
    r"hide_words|hidden words|masked_fraction": "masked tokens",
    r"spellings?\b|\bspelt\b": "character n-grams",
    r"words_only|\breach\b(?! a repository)": "use_char_ngrams, max_tokens",
    r"ALL_NAMES|CHAR_NAMES": "feature ids",
    r"least surprised|\bsurprise\b": "negative log-likelihood",
    r"learn(t|ed) by heart": "overfitting",
    r"two readings|second readings?|read twice": "two dropout passes",
    r"torture|contestants?\b": "fault injection, systems",
    r"showcase|\bdoubts\b": "TensorBoard summary, data checks",
    r"GrowingArray|_Lexicon": "disk-backed arrays, token index",
    r"without_memory|products_in|mixed_seed": "meta model, autocast, derive_seed",
    r"are added up|scores added up|linear_part\b": "a weighted sum of logits",
    r"train\.consistency": "train.rdrop_weight",
}
QUOTING = {"CHANGELOG.md", "accuracy.md"}


def anchors(page: Path) -> set[str]:
    """What a link into a page can name: its headings, and marks in it."""
    text = page.read_text(encoding="utf-8")
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    slugs = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    return slugs | set(re.findall(r'id="([^"]+)"', text))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page):
    """To a file of the repository, and to a heading or a mark in it."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        assert found.exists(), target
        assert not anchor or anchor in anchors(found), target


@pytest.mark.parametrize("word", COINED)
def test_no_coined_word_is_left(word):
    """In names, comments, config keys, messages and pages: each has a word that a reader knows."""
    pages = [page for page in PAGES if page.name not in QUOTING]
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in [*CODE, *pages]
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if re.search(word, line, re.IGNORECASE if word[0] != "_" else 0)
    ]
    assert not found, f"{COINED[word]}: {found[:5]}"


def test_generated_references_are_up_to_date():
    """`python scripts/reference.py` was run after the last change of the schema or of a command."""
    pages = runpy.run_path(str(ROOT / "scripts" / "reference.py"))["PAGES"]
    for name, page in pages.items():
        assert (ROOT / "docs" / name).read_text(encoding="utf-8") == page().rstrip() + "\n"
