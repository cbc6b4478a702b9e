// Count the n-grams of a text: words, pairs of words, templates, and character n-grams.

import { MASK_ID } from "./tokenizer.mjs";
import { PAIR_MULTIPLIER } from "./words.mjs";

const HASHES = 1 << 22;
const LAST_HASH = HASHES - 1;

// The ids of features: words come first, then pairs of neighbours, pairs with one word between
// them, templates of two to six words, and character n-grams.
const PAIR_IDS = HASHES;
const DISTANT_PAIR_IDS = 2 * HASHES;
export const TEMPLATE_IDS = 3 * HASHES;
export const CHAR_NGRAM_IDS = 4 * HASHES;
const NUM_FEATURE_IDS = 5 * HASHES;
const SHORTEST_TEMPLATE = 2;
const LONGEST_TEMPLATE = 6;

// The kinds of features whose rarity is measured: words, pairs, templates, character n-grams.
const KINDS = [0, 1, 1, 2, 3];
export const NUM_KINDS = 4;

// Ids are found by the feature at which each group of this many neighbouring ids begins.
const GROUP_BITS = 6;

// Counts the features of one text at a time, in arrays that are made once.
export class FeatureCounter {
  // `ids` are the ids of the features that the model knows, increasing, (features,).
  constructor(ids, frequentTokens) {
    this.ids = ids;
    this.frequentTokens = new Set(frequentTokens);
    this.knowsNgrams = ids.length > 0 && ids[ids.length - 1] >= TEMPLATE_IDS;
    this.groups = startsOfGroups(ids);

    // The known features of the text: their indices, and the count of each feature.
    this.found = new Int32Array(1024);
    this.numFound = 0;
    this.counts = new Int32Array(ids.length);

    // Its unknown features: a bit for each id, and the ids whose bits are set.
    this.unknownBits = new Uint32Array(NUM_FEATURE_IDS >>> 5);
    this.unknown = new Int32Array(1024);
    this.numUnknown = 0;
    // How many different features of each kind are unknown, (kinds,).
    this.numUnknownOfKinds = new Int32Array(NUM_KINDS);
  }

  // Counts the features of a text, of which `numTokens` tokens are read.
  count(tokens, numTokens) {
    this.clear();
    for (let position = 1; position < numTokens; position++) {
      const id = tokens[position].id;
      this.add(id & LAST_HASH);
      this.add(PAIR_IDS + hashOfPair(tokens[position - 1].id, id));
      if (position > 1) {
        this.add(DISTANT_PAIR_IDS + hashOfPair(tokens[position - 2].id, id));
      }
    }
    if (!this.knowsNgrams) return;

    for (let position = 0; position < numTokens; position++) {
      this.addTemplates(tokens, position);
      for (const hash of tokens[position].ngrams) this.add(CHAR_NGRAM_IDS + (hash & LAST_HASH));
    }
  }

  // Adds the templates that end at a position.
  addTemplates(tokens, position) {
    for (let size = SHORTEST_TEMPLATE; size <= LONGEST_TEMPLATE && size <= position + 1; size++) {
      let hash = 0;
      for (let place = position + 1 - size; place <= position; place++) {
        hash = (Math.imul(hash, PAIR_MULTIPLIER) & LAST_HASH) + this.slot(tokens[place].id, place);
      }
      this.add(TEMPLATE_IDS + (hash & LAST_HASH));
    }
  }

  // What a template keeps of a token: its id, or a wildcard if it is not frequent.
  slot(id, position) {
    return position === 0 || this.frequentTokens.has(id) ? id : MASK_ID;
  }

  add(id) {
    const index = this.find(id);
    if (index >= 0) {
      if (this.counts[index]++ > 0) return;
      if (this.numFound === this.found.length) this.found = doubled(this.found);
      this.found[this.numFound++] = index;
      return;
    }

    const bit = 1 << (id & 31);
    if (this.unknownBits[id >>> 5] & bit) return;
    this.unknownBits[id >>> 5] |= bit;
    if (this.numUnknown === this.unknown.length) this.unknown = doubled(this.unknown);
    this.unknown[this.numUnknown++] = id;
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

  clear() {
    for (let index = 0; index < this.numFound; index++) this.counts[this.found[index]] = 0;
    for (let index = 0; index < this.numUnknown; index++) {
      this.unknownBits[this.unknown[index] >>> 5] = 0;
    }
    this.numFound = 0;
    this.numUnknown = 0;
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
