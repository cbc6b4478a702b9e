// The linear model: the sum of a weight for each word and n-gram of a text.

import {
  CHAR_NGRAM_IDS,
  COLUMN_IDS,
  FEATURE_PAIR_IDS,
  FIELD_PAIR_IDS,
  FeatureCounter,
  NUM_RARITY_KINDS,
  TEMPLATE_IDS,
  kindOf,
} from "./features.mjs";

// The norms to which the values of words and pairs, of templates, of character n-grams, of the
// features of rows, and of pairs with fields and with features are scaled.
const GROUP_NORMS = [1, 0.4, 1, 0.2, 0.5, 1];
// The ids at which all groups but the first begin.
const GROUP_IDS = [TEMPLATE_IDS, CHAR_NGRAM_IDS, COLUMN_IDS, FIELD_PAIR_IDS, FEATURE_PAIR_IDS];
// Added to a sum of effects, so that its logarithm is finite.
const MIN_EVIDENCE = 0.01;

export class LinearModel {
  // `description` is what the config says of the model.
  constructor(weights, description) {
    this.maxTokens = description.max_tokens;
    this.counter = new FeatureCounter(
      weights.ids("linear.feature_ids"),
      weights.dense("linear.frequent_token_ids"),
    );
    this.firstOfGroups = GROUP_IDS.map((id) => this.counter.indexFrom(id));
    this.idf = weights.dense("linear.idf"); // (features,)
    this.rarest = this.idf.reduce((largest, idf) => Math.max(largest, idf), 0);
    this.weights = weights.table("linear.weights"); // (features, machines)
    this.biases = weights.dense("linear.biases"); // (machines,)
    this.values = new Float32Array(1024);
  }

  // The margins of a text, (machines,), a Float32Array.
  margins(tokens) {
    this.counter.count(tokens, Math.min(tokens.length, this.maxTokens));
    this.computeValues();

    const sums = new Float64Array(this.biases);
    const { found, numFound } = this.counter;
    this.weights.addRows(found, this.values, numFound, sums);
    return new Float32Array(sums);
  }

  // Weights the features of the text that was counted by (1 + ln count) * idf, and scales each
  // group of features to its norm.
  computeValues() {
    const { found, numFound, counts } = this.counter;
    if (this.values.length < numFound) this.values = new Float32Array(2 * numFound);
    const { values } = this;

    const squares = GROUP_NORMS.map(() => 0);
    for (let number = 0; number < numFound; number++) {
      const index = found[number];
      const count = counts[index];
      values[number] = count === 1 ? this.idf[index] : (1 + Math.log(count)) * this.idf[index];
      squares[this.groupOf(index)] += values[number] ** 2;
    }

    const scales = GROUP_NORMS.map((norm, group) => norm / Math.sqrt(squares[group] || 1));
    for (let number = 0; number < numFound; number++) {
      values[number] *= scales[this.groupOf(found[number])];
    }
  }

  // Which of the `GROUP_NORMS` is that of a feature.
  groupOf(index) {
    const { firstOfGroups } = this;
    let group = 0;
    while (group < firstOfGroups.length && index >= firstOfGroups[group]) group++;
    return group;
  }

  // What shows how familiar the text is whose margins were computed last: its evidence, two
  // numbers, and its rarity, eight numbers.
  familiarity(margins) {
    return [...this.evidence(margins), ...this.rarity()];
  }

  // How little speaks for the best class: minus the logarithm of the sum of the positive effects,
  // and minus the share of the features with a positive effect.
  evidence(margins) {
    const { found, numFound } = this.counter;
    const best = indexOfLargest(margins);
    const sign = margins.length === 1 && margins[0] < 0 ? -1 : 1;

    let effects = 0;
    let squares = 0;
    let positiveSquares = 0;
    for (let number = 0; number < numFound; number++) {
      const value = this.values[number];
      const effect = sign * value * this.weights.at(found[number], best);
      squares += value * value;
      if (effect > 0) {
        effects += effect;
        positiveSquares += value * value;
      }
    }
    return [-Math.log(MIN_EVIDENCE + effects), -positiveSquares / Math.max(squares, 1e-9)];
  }

  // The mean inverse document frequency of each kind of features, and the share of each kind that
  // is unknown, or has an unknown word.
  rarity() {
    const { found, numFound, ids, numUnknownOfKinds, ofUnknownWords } = this.counter;
    const unknown = Array.from(numUnknownOfKinds);
    const total = unknown.slice();
    const sums = unknown.map((count) => count * this.rarest);

    for (let number = 0; number < numFound; number++) {
      const index = found[number];
      const kind = kindOf(ids[index]);
      const idf = this.idf[index];
      total[kind]++;
      const isUnfamiliar = idf === 0 || ofUnknownWords.has(index);
      sums[kind] += isUnfamiliar ? this.rarest : idf;
      if (isUnfamiliar) unknown[kind]++;
    }

    const numbers = new Array(2 * NUM_RARITY_KINDS).fill(0);
    for (let kind = 0; kind < NUM_RARITY_KINDS; kind++) {
      numbers[kind] = sums[kind] / Math.max(1, total[kind]);
      numbers[NUM_RARITY_KINDS + kind] = unknown[kind] / Math.max(1, total[kind]);
    }
    return numbers;
  }
}

export function indexOfLargest(numbers) {
  let best = 0;
  for (let index = 1; index < numbers.length; index++) {
    if (numbers[index] > numbers[best]) best = index;
  }
  return best;
}
