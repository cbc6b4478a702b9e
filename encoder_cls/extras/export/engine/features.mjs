// Count the n-grams of a text: words, pairs of words, templates, and character n-grams; and of a row
// its features, and pairs of a word with its field or with a feature.

import { FEATURE_TOKEN, FIELD_TOKEN, TEXT_TOKEN } from "./rows.mjs";
import { MASK_ID, UNK_ID } from "./tokenizer.mjs";
import { PAIR_MULTIPLIER } from "./words.mjs";

const HASHES = 1 << 22;
const LAST_HASH = HASHES - 1;

// The ids of features: words come first, then pairs of neighbours, pairs with one word between
// them, templates of two to six words, character n-grams, the features of rows, and pairs of a word
// with its field and with a feature.
const PAIR_IDS = HASHES;
const DISTANT_PAIR_IDS = 2 * HASHES;
export const TEMPLATE_IDS = 3 * HASHES;
export const CHAR_NGRAM_IDS = 4 * HASHES;
export const COLUMN_IDS = 5 * HASHES;
export const FIELD_PAIR_IDS = 6 * HASHES;
export const FEATURE_PAIR_IDS = 7 * HASHES;
const NUM_FEATURE_IDS = 8 * HASHES;
const SHORTEST_TEMPLATE = 2;
const LONGEST_TEMPLATE = 6;

// The kinds of features: words, pairs, templates, character n-grams, whose rarity is measured, and
// those of rows.
const KINDS = [0, 1, 1, 2, 3, 4, 5, 6];
export const NUM_RARITY_KINDS = 4;
const NUM_KINDS = 7;

// Ids are found by the feature at which each group of this many neighbouring ids begins.
const GROUP_BITS = 8;

// Counts the features of one text at a time, in arrays that are made once.
export class FeatureCounter {
  // `ids` are the ids of the features that the model knows, increasing, (features,).
  constructor(ids, frequentTokens) {
    this.ids = ids;
    this.frequentTokens = new Set(frequentTokens);
    this.groups = startsOfGroups(ids);
    this.knowsNgrams = this.indexFrom(TEMPLATE_IDS) < this.indexFrom(COLUMN_IDS);
    this.knowsFeaturePairs = this.indexFrom(FEATURE_PAIR_IDS) < ids.length;
    // The hashes of the templates that end with the last token, by their size.
    this.templates = new Int32Array(LONGEST_TEMPLATE + 1);

    // The known features of the text: their indices, and the count of each feature.
    this.found = new Int32Array(1024);
    this.numFound = 0;
    this.counts = new Int32Array(ids.length);

    // The indices of its known features that have an unknown word: such words stay unfamiliar.
    this.ofUnknownWords = new Set();

    // The ids of its unknown features.
    this.unknown = new Set();
    // How many different features of each kind are unknown, (kinds,).
    this.numUnknownOfKinds = new Int32Array(NUM_KINDS);
  }

  // Counts the features of a text or row, of which `numTokens` tokens are read.
  count(tokens, numTokens) {
    this.clear();
    if (tokens.every(({ kind }) => kind === TEXT_TOKEN)) {
      this.countText(tokens, numTokens);
      return;
    }
    const read = tokens.slice(0, numTokens);
    const text = read.filter(({ kind }) => kind !== FEATURE_TOKEN);
    this.countText(text, text.length);
    this.countColumns(read.filter(({ kind }) => kind === FEATURE_TOKEN), text);
  }

  // Counts the features of a row, and the pairs of its words with their field and with each feature.
  countColumns(features, text) {
    for (const { id } of features) this.add(COLUMN_IDS + (id & LAST_HASH));
    let field;
    for (const word of text.slice(1)) {
      if (word.kind === FIELD_TOKEN) {
        field = word;
        continue;
      }
      if (field) this.add(FIELD_PAIR_IDS + hashOfPair(field.id, word.id));
      if (!this.knowsFeaturePairs) continue;
      for (const { id } of features) this.add(FEATURE_PAIR_IDS + hashOfPair(id, word.id));
    }
  }

  countText(tokens, numTokens) {
    this.templates.fill(0);
    for (let position = 0; position < numTokens; position++) {
      const word = tokens[position];
      if (position > 0) {
        this.addWord(word);
        this.addPair(PAIR_IDS, tokens[position - 1], word);
      }
      if (position > 1) this.addPair(DISTANT_PAIR_IDS, tokens[position - 2], word);
      if (this.knowsNgrams) this.addTemplates(word.id, position);
    }
  }

  addPair(firstId, first, second) {
    const id = firstId + hashOfPair(first.id, second.id);
    this.add(id);
    if (first.id === UNK_ID || second.id === UNK_ID) this.markUnknownWord(id);
  }

  // Remembers that a feature has an unknown word.
  markUnknownWord(id) {
    const index = this.find(id);
    if (index >= 0) this.ofUnknownWords.add(index);
  }

  // Adds the templates that end with the token at a position. A template is one that ends with the
  // token before, and this token.
  addTemplates(id, position) {
    const { templates } = this;
    const slot = this.slot(id, position);
    for (let size = Math.min(LONGEST_TEMPLATE, position + 1); size >= 1; size--) {
      const shorter = size > 1 ? templates[size - 1] : 0;
      templates[size] = (Math.imul(shorter, PAIR_MULTIPLIER) & LAST_HASH) + slot;
      if (size >= SHORTEST_TEMPLATE) this.add(TEMPLATE_IDS + (templates[size] & LAST_HASH));
    }
  }

  // What a template keeps of a token: its id, or a wildcard if it is not frequent.
  slot(id, position) {
    return position === 0 || this.frequentTokens.has(id) ? id : MASK_ID;
  }

  // Adds a word and its character n-grams. They are looked up when the word is first counted.
  addWord(word) {
    word.features ??= this.featuresOf(word);
    const { known, unknown } = word.features;
    for (let number = 0; number < known.length; number++) this.addKnown(known[number]);
    for (let number = 0; number < unknown.length; number++) this.addUnknown(unknown[number]);
    if (word.id === UNK_ID) this.markUnknownWord(UNK_ID);
  }

  // The features of a word by itself: the indices of those that the model knows, and the ids of the
  // others.
  featuresOf(word) {
    const ids = [word.id & LAST_HASH];
    if (this.knowsNgrams) {
      for (const hash of word.ngrams) ids.push(CHAR_NGRAM_IDS + (hash & LAST_HASH));
    }
    const known = ids.map((id) => this.find(id)).filter((index) => index >= 0);
    const unknown = ids.filter((id) => this.find(id) < 0);
    return { known: Int32Array.from(known), unknown: Int32Array.from(unknown) };
  }

  add(id) {
    const index = this.find(id);
    if (index >= 0) this.addKnown(index);
    else this.addUnknown(id);
  }

  addKnown(index) {
    this.counts[index]++;
    if (this.counts[index] > 1) return;
    if (this.numFound === this.found.length) this.found = doubled(this.found);
    this.found[this.numFound++] = index;
  }

  addUnknown(id) {
    if (this.unknown.has(id)) return;
    this.unknown.add(id);
    this.numUnknownOfKinds[kindOf(id)]++;
  }

  // The index of a feature that the model knows, by its id; -1 if it knows no such feature.
  find(id) {
    const { ids, groups } = this;
    const end = groups[(id >>> GROUP_BITS) + 1];
    for (let index = groups[id >>> GROUP_BITS]; index < end; index++) {
      if (ids[index] === id) return index;
    }
    return -1;
  }

  // The index of the first feature whose id is not smaller, for an id at which a group begins.
  indexFrom(id) {
    return this.groups[id >>> GROUP_BITS];
  }

  clear() {
    for (let number = 0; number < this.numFound; number++) this.counts[this.found[number]] = 0;
    this.numFound = 0;
    this.ofUnknownWords.clear();
    this.unknown.clear();
    this.numUnknownOfKinds.fill(0);
  }
}

export function kindOf(id) {
  return KINDS[id >>> 22];
}

function hashOfPair(first, second) {
  return (Math.imul(first, PAIR_MULTIPLIER) + second) & LAST_HASH;
}

// The index of the first feature whose id is in each group or a later one, (groups + 1,).
function startsOfGroups(ids) {
  const numGroups = NUM_FEATURE_IDS >>> GROUP_BITS;
  const starts = new Int32Array(numGroups + 1);
  let index = 0;
  for (let group = 0; group <= numGroups; group++) {
    while (index < ids.length && ids[index] >>> GROUP_BITS < group) index++;
    starts[group] = index;
  }
  return starts;
}

function doubled(numbers) {
  const larger = new Int32Array(2 * numbers.length);
  larger.set(numbers);
  return larger;
}
