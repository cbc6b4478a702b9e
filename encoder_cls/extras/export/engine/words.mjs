// The words of texts, each with its id and its hashed character n-grams.

import { FEATURE_TOKEN, FIELD_TOKEN, RowForm, TEXT_TOKEN, otherToken, partsOf } from "./rows.mjs";
import { CLS_ID, KEPT_PER_TOKEN, UNK_ID } from "./tokenizer.mjs";

// The hash of several tokens is the hash of all but the last, times this prime, plus the last.
export const PAIR_MULTIPLIER = 1_000_003;

// The maximum number of characters of a word whose n-grams are hashed.
const MAX_WORD_LENGTH = 40;
// The numbers of characters of the shortest and of the longest n-grams.
const SHORTEST_NGRAM = 2;
const LONGEST_NGRAM = 5;
// The maximum number of words that are remembered; their vectors take some 16 MB.
const MAX_REMEMBERED = 20_000;

// The CRC-32 of each byte, (256,).
const CRC32_OF_BYTE = crc32OfBytes();

const encoder = new TextEncoder();

// A word that is looked up once, and remembered for the next text that has it.
class Word {
  constructor(spelling, id, ngrams, kind = TEXT_TOKEN) {
    this.spelling = spelling;
    this.id = id; // the id of the token
    this.kind = kind; // TEXT_TOKEN, FIELD_TOKEN or FEATURE_TOKEN
    this.ngrams = ngrams; // the hashes of its character n-grams, a Uint32Array
    // What the encoder and the linear model find of the word, when they first read it.
    this.vector = null;
    this.features = null;
  }
}

export class Words {
  constructor(tokenizer) {
    this.tokenizer = tokenizer;
    this.remembered = new Map();
    this.start = new Word("[CLS]", CLS_ID, new Uint32Array(0));
    // The columns of rows, if the model reads several.
    this.form = RowForm.of(tokenizer.ids);
  }

  // The tokens of a text or row, of which the first is [CLS], and whether the encoder reads fewer.
  tokenize(text) {
    const { maxSeqLen } = this.tokenizer;
    const { beginning, isCut } = this.tokenizer.beginning(text);
    const tokens = [this.start];
    if (this.form) this.addRow(beginning, tokens);
    else this.addText(beginning, tokens);

    tokens.splice(KEPT_PER_TOKEN * maxSeqLen);
    return { tokens, isTruncated: isCut || tokens.length > maxSeqLen };
  }

  addText(text, tokens) {
    const maxWords = KEPT_PER_TOKEN * this.tokenizer.maxSeqLen - tokens.length;
    for (const spelling of this.tokenizer.words(text, maxWords)) tokens.push(this.word(spelling));
  }

  // Adds the tokens of the features, then the words of each field after its mark.
  addRow(row, tokens) {
    const { features, fields } = partsOf(row);
    for (const spelling of this.form.tokensOfFeatures(features).flat()) {
      tokens.push(this.word(spelling, FEATURE_TOKEN));
    }
    const marks = this.form.marks(fields);
    fields.forEach(([, text], number) => {
      if (marks[number]) tokens.push(this.word(marks[number], FIELD_TOKEN));
      this.addText(text.replace(/[\x1d-\x1f]/g, " "), tokens);
    });
  }

  word(spelling, kind = TEXT_TOKEN) {
    let word = this.remembered.get(spelling);
    if (!word) {
      if (this.remembered.size >= MAX_REMEMBERED) this.remembered.clear();
      word = this.newWord(spelling, kind);
      this.remembered.set(spelling, word);
    }
    return word;
  }

  newWord(spelling, kind) {
    const { ids } = this.tokenizer;
    if (kind === TEXT_TOKEN) {
      return new Word(spelling, ids.get(spelling) ?? UNK_ID, hashedNgrams(spelling));
    }
    const id = ids.get(spelling) ?? ids.get(otherToken(spelling)) ?? UNK_ID;
    return new Word(spelling, id, new Uint32Array(0), kind);
  }
}

// The number of words that the encoder reads, of tokens that begin with [CLS].
export function numWordsOf(tokens, maxSeqLen) {
  const read = tokens.slice(0, maxSeqLen);
  return read.filter(({ kind }) => kind === TEXT_TOKEN).length - 1;
}

// The CRC-32 of the bytes of each n-gram of a word between "<" and ">".
function hashedNgrams(spelling) {
  const characters = ["<", ...firstCharacters(spelling), ">"];
  const bytes = characters.map((character) => encoder.encode(character));
  const numCharacters = characters.length;

  const ngrams = [];
  for (let start = 0; start < numCharacters; start++) {
    const end = Math.min(numCharacters, start + LONGEST_NGRAM);
    let hash = 0;
    for (let index = start; index < end; index++) {
      for (const byte of bytes[index]) hash = CRC32_OF_BYTE[(hash ^ byte) & 255] ^ (hash >>> 8);
      if (index - start + 1 >= SHORTEST_NGRAM) ngrams.push(hash);
    }
  }
  return Uint32Array.from(ngrams, (hash) => hash >>> 0);
}

function firstCharacters(spelling) {
  return Array.from(spelling.slice(0, 2 * MAX_WORD_LENGTH)).slice(0, MAX_WORD_LENGTH);
}

function crc32OfBytes() {
  const table = new Int32Array(256);
  for (let byte = 0; byte < 256; byte++) {
    let hash = byte ^ 255;
    for (let bit = 0; bit < 8; bit++) hash = hash & 1 ? (hash >>> 1) ^ 0xedb88320 : hash >>> 1;
    table[byte] = hash ^ 0xff000000;
  }
  return table;
}
