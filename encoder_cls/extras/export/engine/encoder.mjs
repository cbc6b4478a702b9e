// The Transformer encoder with its head. It reads texts in batches: N tokens of D features.

import { LinearMap, Layer, Norm, Workspace } from "./layers.mjs";
import { Matrix } from "./matrices.mjs";
import { FEATURE_TOKEN } from "./rows.mjs";
import { PAIR_MULTIPLIER } from "./words.mjs";

// The id of [PAD], with which the first token makes a pair.
const PAD_ID = 0;
// The number of tokens of a batch. A longer text is a batch of its own.
const BATCH_TOKENS = 256;

const EMBEDDING = "encoder.embedding";

export class Encoder {
  // `architecture` is what the config says of the encoder.
  constructor(weights, architecture, numClasses) {
    this.architecture = architecture;
    this.numClasses = numClasses;
    this.embedding = new Embedding(weights, architecture);

    this.layers = [];
    for (let number = 0; number < architecture.num_layers; number++) {
      const name = `encoder.layers.${number}`;
      this.layers.push(new Layer(weights, name, architecture));
    }
    if (architecture.norm === "pre") {
      this.finalNorm = new Norm(weights, "encoder.final_norm");
    }
    this.head = new LinearMap(weights, "head.linear");

    const maxTokens = Math.max(BATCH_TOKENS, architecture.max_seq_len);
    this.workspace = new Workspace(architecture, maxTokens);
    this.pooled = Matrix.zeros(maxTokens, architecture.d_model); // (texts, D)
    this.classes = Matrix.zeros(maxTokens, numClasses); // (texts, classes)
  }

  // The logits of each text, (classes,), a Float32Array. A text is an array of tokens.
  logits(texts) {
    const logits = [];
    let batch = [];
    let numTokens = 0;
    for (const tokens of texts) {
      const text = tokens.slice(0, this.architecture.max_seq_len);
      if (batch.length > 0 && numTokens + text.length > BATCH_TOKENS) {
        logits.push(...this.logitsOfBatch(batch));
        batch = [];
        numTokens = 0;
      }
      batch.push(text);
      numTokens += text.length;
    }
    if (batch.length > 0) logits.push(...this.logitsOfBatch(batch));
    return logits;
  }

  logitsOfBatch(texts) {
    const { x } = this.workspace;
    const starts = [0];
    for (const tokens of texts) starts.push(starts.at(-1) + tokens.length);
    const numTokens = starts.at(-1);

    texts.forEach((tokens, text) => {
      this.embedding.write(tokens, x.from(starts[text], 0));
    });
    for (const layer of this.layers) layer.apply(this.workspace, starts);
    if (this.finalNorm) this.finalNorm.apply(x, x, numTokens);

    texts.forEach((_, text) => this.pool(starts[text], starts[text + 1], text));
    this.head.apply(this.pooled, this.classes, texts.length);
    return texts.map((_, text) => {
      const start = this.classes.start + text * this.classes.stride;
      return this.classes.numbers.slice(start, start + this.numClasses);
    });
  }

  // Writes the mean or the maximum of the vectors of a text's tokens, or the vector of [CLS].
  pool(firstToken, endToken, text) {
    const { d_model: width, pooling } = this.architecture;
    const { numbers, stride } = this.workspace.x;
    const start = firstToken * stride;
    const end = endToken * stride;
    const pooled = this.pooled.numbers.subarray(text * width, (text + 1) * width);
    if (pooling === "cls") {
      pooled.set(numbers.subarray(start, start + width));
      return;
    }

    for (let feature = 0; feature < width; feature++) {
      let sum = 0;
      let largest = -Infinity;
      for (let index = start + feature; index < end; index += stride) {
        sum += numbers[index];
        largest = Math.max(largest, numbers[index]);
      }
      pooled[feature] = pooling === "max" ? largest : sum / (endToken - firstToken);
    }
  }
}

// The vectors of tokens before the first layer.
class Embedding {
  constructor(weights, architecture) {
    this.architecture = architecture;
    this.tokens = weights.table(`${EMBEDDING}.tokens.weight`);
    if (architecture.char_ngram_buckets) {
      this.charNgrams = weights.table(`${EMBEDDING}.char_ngrams.table.weight`);
    }
    if (architecture.bigram_buckets) {
      this.bigrams = weights.table(`${EMBEDDING}.bigrams.table.weight`);
    }
    this.positions = positionsOf(weights, architecture);
  }

  // Writes the sums of the vectors of words, of pairs and of positions to the matrix x, (T, D).
  write(tokens, x) {
    const { numbers } = x;
    const { bigram_buckets: numBuckets } = this.architecture;
    let previous = PAD_ID;
    let position = 0;
    tokens.forEach((word, index) => {
      const start = x.start + index * x.stride;
      word.vector ??= this.wordVector(word);
      numbers.set(word.vector, start);
      // Features have no positions, and make no pairs.
      if (word.kind === FEATURE_TOKEN) return;

      if (this.bigrams) {
        const bucket = (previous * PAIR_MULTIPLIER + word.id) % numBuckets;
        this.bigrams.addRow(bucket, 1, numbers, start);
      }
      if (this.positions) this.positions.add(position, numbers, start);
      previous = word.id;
      position++;
    });
  }

  // The vector of a word's token plus the mean of those of its character n-grams, (D,).
  wordVector(word) {
    const { d_model: width, char_ngram_buckets: numBuckets } = this.architecture;
    const vector = new Float32Array(width);
    this.tokens.addRow(word.id, 1, vector);
    if (!this.charNgrams || word.ngrams.length === 0) return vector;

    const sums = new Float32Array(width);
    for (const hash of word.ngrams) this.charNgrams.addRow(hash % numBuckets, 1, sums);
    return vector.map((number, feature) => number + sums[feature] / word.ngrams.length);
  }
}

// The vectors of positions, which are learned, or sinusoids times a learned scale; undefined if
// there are none.
function positionsOf(weights, { positions, d_model: width }) {
  if (positions === "learned") {
    return new LearnedPositions(weights.dense(`${EMBEDDING}.positions.weight`), width);
  }
  if (positions === "sinusoidal") {
    return new SinusoidalPositions(weights.dense(`${EMBEDDING}.positions.scale`)[0], width);
  }
  return undefined;
}

class LearnedPositions {
  constructor(vectors, width) {
    this.vectors = vectors; // (max_seq_len, D)
    this.width = width;
  }

  add(position, x, start) {
    const first = position * this.width;
    for (let feature = 0; feature < this.width; feature++) {
      x[start + feature] += this.vectors[first + feature];
    }
  }
}

class SinusoidalPositions {
  constructor(scale, width) {
    this.scale = scale;
    this.width = width;
    this.vectors = []; // the vectors of the first positions, as far as they were used
  }

  add(position, x, start) {
    this.vectors[position] ??= this.vector(position);
    const vector = this.vectors[position];
    for (let feature = 0; feature < this.width; feature++) x[start + feature] += vector[feature];
  }

  // Features alternate: the sine of an angle, then its cosine. Each pair has its own frequency,
  // from 1 down to nearly 1 / 10,000.
  vector(position) {
    const vector = new Float32Array(this.width);
    for (let feature = 0; feature < this.width; feature += 2) {
      const angle = position * Math.exp((feature * -Math.log(10_000)) / this.width);
      vector[feature] = Math.fround(Math.sin(angle)) * this.scale;
      vector[feature + 1] = Math.fround(Math.cos(angle)) * this.scale;
    }
    return vector;
  }
}
