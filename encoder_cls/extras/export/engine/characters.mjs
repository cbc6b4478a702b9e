// What the tokenizer needs to know of each Unicode character.
//
// The table comes with the model, because browsers know different versions of Unicode, and none of
// them is the version of the library that has tokenized the training texts.

// The kind of a character, in the lowest bits: it decides where words begin and end.
export const KIND = 7;
export const PUNCTUATION = 0;
export const SPACE = 1;
export const WORD = 2;
export const UNSPACED = 3; // a script without spaces between words
export const PICTURE = 4;
export const FLAG = 5; // one of the two letters of a flag

// Further bits: the character belongs to the grapheme cluster of the character before it.
export const EXTEND = 8;
export const SPACING_MARK = 16;

// Further bits about normalization: it may change the character, joins it to the character before
// it, removes it as an accent, or changes it to lower case.
export const NORMALIZED = 32;
export const JOINS = 64;
export const ACCENT = 128;
export const UPPER = 256;

const NUM_CODE_POINTS = 0x110000;

// The bits of each code point, (code points,), from runs of equal bits: [length, bits, ...].
export function bitsOfCharacters(runs) {
  const bits = new Uint16Array(NUM_CODE_POINTS);
  let start = 0;
  for (let index = 0; index < runs.length; index += 2) {
    const end = start + runs[index];
    bits.fill(runs[index + 1], start, end);
    start = end;
  }
  return bits;
}

// The lower case of each letter that has one, by its code point. `runs` are groups of four numbers:
// the first and the last code point, the step from one to the next, and what is added to each.
export function lowercaseLetters({ runs, others }) {
  const letters = new Map();
  for (let index = 0; index < runs.length; index += 4) {
    const [first, last, step, difference] = runs.slice(index, index + 4);
    for (let codePoint = first; codePoint <= last; codePoint += step) {
      letters.set(codePoint, String.fromCodePoint(codePoint + difference));
    }
  }
  for (const [letter, lower] of Object.entries(others)) {
    letters.set(letter.codePointAt(0), lower);
  }
  return letters;
}
