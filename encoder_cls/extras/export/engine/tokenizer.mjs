// From a text to words: normalization, lower case, and where words begin and end.

import {
  ACCENT,
  EXTEND,
  FLAG,
  JOINS,
  KIND,
  NORMALIZED,
  PICTURE,
  SPACE,
  SPACING_MARK,
  UNSPACED,
  UPPER,
  bitsOfCharacters,
  lowercaseLetters,
} from "./characters.mjs";

// The number of characters that are read of a text for each token that the encoder reads of it.
const CHARACTERS_PER_TOKEN = 64;
// The number of tokens that are kept of a text for each token that the encoder reads of it.
export const KEPT_PER_TOKEN = 8;

export const UNK_ID = 1;
export const CLS_ID = 2;
export const MASK_ID = 3;

// The forms of Unicode normalization among the steps of a tokenizer.
const FORMS = ["NFC", "NFD", "NFKC"];
const ZERO_WIDTH_JOINER = 0x200d;
const ASCII = /^[\0-\x7f]*$/;
const LONE_SURROGATES = /\p{Surrogate}/gu;

export class Tokenizer {
  // `description` is the JSON of the tokenizer, `characters` the table of characters.
  constructor(description, characters, maxSeqLen) {
    this.maxSeqLen = maxSeqLen;
    this.ids = new Map(Object.entries(description.model.vocab));
    const steps = description.normalizer.normalizers;
    this.steps = steps.map((step) => step.type);
    const removal = steps.find((step) => step.type === "Replace");
    this.invisible = new RegExp(removal?.pattern.Regex ?? "(?!)", "gu");
    this.lowers = this.steps.includes("Lowercase");
    this.bits = bitsOfCharacters(characters.bits);
    this.lowercase = lowercaseLetters(characters.lowercase);
  }

  // The words of the beginning of a text, at most a number of them. They do not include [CLS].
  words(beginning, maxWords) {
    const normalized = this.normalize(beginning.replace(this.invisible, ""));

    const words = [];
    const bounds = this.split(normalized);
    for (let index = 0; index < bounds.length && words.length < maxWords; index += 2) {
      words.push(normalized.slice(bounds[index], bounds[index + 1]));
    }
    return words;
  }

  // The characters of a text that are read, and whether there are more. The limit counts
  // characters, of which some are two code units of a string.
  beginning(text) {
    const maxCharacters = CHARACTERS_PER_TOKEN * this.maxSeqLen;
    let end = text.length;
    if (text.length > maxCharacters) {
      end = 0;
      for (let count = 0; count < maxCharacters && end < text.length; count++) {
        end += sizeAt(text, end);
      }
    }
    let beginning = text.slice(0, end);
    if (!ASCII.test(beginning)) beginning = beginning.replace(LONE_SURROGATES, "\ufffd");
    return { beginning, isCut: end < text.length };
  }

  // A text that can be seen as a whole, after all steps of normalization.
  normalize(text) {
    if (ASCII.test(text)) return this.lowers ? text.toLowerCase() : text;

    for (const step of this.steps) {
      if (FORMS.includes(step)) text = this.normalizeForm(text, step);
      if (step === "StripAccents") text = this.replaceCharacters(text, ACCENT, () => "");
      if (step === "Lowercase") {
        text = this.replaceCharacters(text, UPPER, (codePoint) => this.lowercase.get(codePoint));
      }
    }
    return text;
  }

  // Only the characters that the tokenizer's version of Unicode knows are normalized.
  normalizeForm(text, form) {
    if (text.normalize(form) === text) return text;

    let normalized = "";
    let start = 0;
    while (start < text.length) {
      const end = this.endOfRun(text, start, NORMALIZED);
      if (end > start) {
        normalized += text.slice(start, end).normalize(form);
        start = end;
      } else {
        const next = start + sizeAt(text, start);
        normalized += text.slice(start, next);
        start = next;
      }
    }
    return normalized;
  }

  replaceCharacters(text, bit, replacement) {
    let replaced = "";
    let kept = 0;
    for (let index = 0; index < text.length; ) {
      const codePoint = text.codePointAt(index);
      const next = index + sizeOf(codePoint);
      if (this.bits[codePoint] & bit) {
        replaced += text.slice(kept, index) + replacement(codePoint);
        kept = next;
      }
      index = next;
    }
    return replaced + text.slice(kept);
  }

  // The place after the last of the characters from `index` on that all have a bit.
  endOfRun(text, index, bit) {
    while (index < text.length) {
      const codePoint = text.codePointAt(index);
      if (!(this.bits[codePoint] & bit)) break;
      index += sizeOf(codePoint);
    }
    return index;
  }

  // The bounds of the words of a normalized text: the start of each, and the end of each. A word is
  // a grapheme cluster of a script without spaces, a picture, a flag, a run of letters and digits,
  // or a run of punctuation.
  split(text) {
    const bounds = [];
    let index = 0;
    while (index < text.length) {
      const codePoint = text.codePointAt(index);
      const kind = this.bits[codePoint] & KIND;
      const start = index;

      index += sizeOf(codePoint);
      if (kind === SPACE) continue;
      if (kind === UNSPACED) index = this.endOfStack(text, start);
      else if (kind === PICTURE) index = this.endOfCluster(text, start);
      else if (kind === FLAG) index = this.isKind(text, index, FLAG) ? index + 2 : index;
      else index = this.endOfKind(text, index, kind);
      bounds.push(start, index);
    }
    return bounds;
  }

  isKind(text, index, kind) {
    return index < text.length && (this.bits[text.codePointAt(index)] & KIND) === kind;
  }

  endOfKind(text, index, kind) {
    while (this.isKind(text, index, kind)) index += sizeAt(text, index);
    return index;
  }

  // The end of the grapheme clusters that belong together: U+17D2 and U+1039 stack the consonant
  // after them, and normalization has separated the halves of a Thai or Lao AM.
  endOfStack(text, start) {
    let end = this.endOfCluster(text, start);
    while (this.isStacked(text, end)) end = this.endOfCluster(text, end);
    return end;
  }

  isStacked(text, index) {
    const before = text[index - 1];
    const next = text[index];
    if (before === "\u17d2" || before === "\u1039") return this.isKind(text, index, UNSPACED);
    if (before === "\u0e4d" || before === "\u0ecd") return next === "\u0e32" || next === "\u0eb2";
    return false;
  }

  // The end of the grapheme cluster that begins with a picture or a character of a script without
  // spaces. U+200D joins a picture, with the characters that extend it, to another picture.
  endOfCluster(text, start) {
    let index = start + sizeAt(text, start);
    let endsWithPicture = this.isKind(text, start, PICTURE);
    let endsWithJoiner = false;

    while (index < text.length) {
      const codePoint = text.codePointAt(index);
      const bits = this.bits[codePoint];
      const isJoinedPicture = endsWithJoiner && (bits & KIND) === PICTURE;
      if (!isJoinedPicture && !(bits & (EXTEND | SPACING_MARK))) break;

      endsWithJoiner = endsWithPicture && codePoint === ZERO_WIDTH_JOINER;
      endsWithPicture = isJoinedPicture || (endsWithPicture && (bits & EXTEND) !== 0);
      index += sizeOf(codePoint);
    }
    return index;
  }

  // How many code units can be seen before each place of a text and before its end.
  visibleBefore(text) {
    const isInvisible = new Uint8Array(text.length);
    for (const { 0: found, index } of text.matchAll(this.invisible)) {
      isInvisible.fill(1, index, index + found.length);
    }
    const counts = [0];
    isInvisible.forEach((number, place) => counts.push(counts[place] + 1 - number));
    return counts;
  }

  // The places of the words in a text, as [start, end]. A place covers whole characters, with their
  // accents.
  placesOfWords(text) {
    const { beginning } = this.beginning(text);
    const visible = beginning.replace(this.invisible, "");
    const visibleBefore = this.visibleBefore(beginning);

    // Normalize the text piece by piece: a character, and those that join it.
    let normalized = "";
    const pieces = []; // [place in the normalized text, start, end] of each piece
    for (let start = 0; start < beginning.length; ) {
      const end = this.endOfRun(beginning, start + sizeAt(beginning, start), JOINS);
      pieces.push([normalized.length, start, end]);
      normalized += this.normalize(visible.slice(visibleBefore[start], visibleBefore[end]));
      start = end;
    }

    // Find the first and the last piece of each word.
    const places = [];
    let piece = 0;
    const bounds = this.split(normalized);
    for (let index = 0; index < bounds.length; index += 2) {
      const start = bounds[index];
      const end = bounds[index + 1];
      while (piece + 1 < pieces.length && pieces[piece + 1][0] <= start) piece++;
      let last = piece;
      while (last + 1 < pieces.length && pieces[last + 1][0] < end) last++;
      places.push([pieces[piece][1], pieces[last][2]]);
    }
    return places;
  }
}

function sizeOf(codePoint) {
  return codePoint > 0xffff ? 2 : 1;
}

function sizeAt(text, index) {
  return sizeOf(text.codePointAt(index));
}
