// The Transformer encoder with its head. It reads one text at a time: T tokens of D features, which
// H heads of K features attend to. Matrices are flat arrays, row after row.

import { PAIR_MULTIPLIER } from "./words.mjs";

// The id of [PAD], with which the first token makes a pair.
const PAD_ID = 0;
// A small number that is added to a variance, which could be zero.
const NORM_EPSILON = 1e-5;

// The error function is approximated by formula 7.1.26 of Abramowitz and Stegun, "Handbook of
// Mathematical Functions" (1964).
const ERROR_FUNCTION_SCALE = 0.3275911;
const ERROR_FUNCTION_COEFFICIENTS = [1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592];

const EMBEDDING = "encoder.embedding";

export class Encoder {
  // `architecture` is what the config says of the encoder.
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

    this.layers = [];
    for (let number = 0; number < architecture.num_layers; number++) {
      this.layers.push(new Layer(weights, `encoder.layers.${number}`, architecture));
    }
    if (architecture.norm === "pre") this.finalNorm = new Norm(weights, "encoder.final_norm");
    this.head = new LinearMap(weights, "head.linear");
  }

  // The logits of a text, (classes,), a Float32Array.
  logits(tokens) {
    const numTokens = Math.min(tokens.length, this.architecture.max_seq_len);
    let x = this.embed(tokens, numTokens);
    for (const layer of this.layers) x = layer.apply(x, numTokens);
    if (this.finalNorm) x = this.finalNorm.apply(x, numTokens);

    const pooled = this.pool(x, numTokens);
    return this.head.apply(pooled, 1);
  }

  // The sum of the vectors of tokens, of their n-grams, of pairs and of positions, (T, D).
  embed(tokens, numTokens) {
    const { d_model: width, bigram_buckets: numBuckets } = this.architecture;
    const x = new Float32Array(numTokens * width);

    let previous = PAD_ID;
    for (let token = 0; token < numTokens; token++) {
      const start = token * width;
      const word = tokens[token];
      this.tokens.addRow(word.id, 1, x, start);

      if (this.charNgrams) {
        const vector = this.wordVector(word);
        for (let feature = 0; feature < width; feature++) x[start + feature] += vector[feature];
      }
      if (this.bigrams) {
        const bucket = (previous * PAIR_MULTIPLIER + word.id) % numBuckets;
        this.bigrams.addRow(bucket, 1, x, start);
      }
      if (this.positions) this.positions.add(token, x, start);
      previous = word.id;
    }
    return x;
  }

  // The mean of the vectors of a word's character n-grams, (D,); 0 if it has none.
  wordVector(word) {
    if (word.vector) return word.vector;

    const { d_model: width, char_ngram_buckets: numBuckets } = this.architecture;
    const sums = new Float64Array(width);
    for (const hash of word.ngrams) this.charNgrams.addRow(hash % numBuckets, 1, sums);

    const count = Math.max(1, word.ngrams.length);
    word.vector = Float32Array.from(sums, (sum) => sum / count);
    return word.vector;
  }

  // The mean or the maximum of the vectors of all tokens, or the vector of [CLS], (D,).
  pool(x, numTokens) {
    const { d_model: width, pooling } = this.architecture;
    const pooled = x.slice(0, width);
    if (pooling === "cls") return pooled;

    for (let feature = 0; feature < width; feature++) {
      let sum = 0;
      let largest = -Infinity;
      for (let token = 0; token < numTokens; token++) {
        const value = x[token * width + feature];
        sum += value;
        largest = Math.max(largest, value);
      }
      pooled[feature] = pooling === "max" ? largest : sum / numTokens;
    }
    return pooled;
  }
}

class Layer {
  constructor(weights, name, architecture) {
    this.isPreNorm = architecture.norm === "pre";
    this.activation = architecture.activation === "relu" ? relu : gelu;
    this.attention = new Attention(weights, `${name}.attention`, architecture);
    this.attentionNorm = new Norm(weights, `${name}.attention_norm`);
    this.upProjection = new LinearMap(weights, `${name}.feed_forward.up_proj`);
    this.downProjection = new LinearMap(weights, `${name}.feed_forward.down_proj`);
    this.feedForwardNorm = new Norm(weights, `${name}.feed_forward_norm`);
  }

  // The norm of a sublayer comes before it, or after the sum with its input.
  apply(x, numTokens) {
    if (this.isPreNorm) {
      add(x, this.attention.apply(this.attentionNorm.apply(x, numTokens), numTokens));
      add(x, this.feedForward(this.feedForwardNorm.apply(x, numTokens), numTokens));
      return x;
    }
    add(x, this.attention.apply(x, numTokens));
    x = this.attentionNorm.apply(x, numTokens);
    add(x, this.feedForward(x, numTokens));
    return this.feedForwardNorm.apply(x, numTokens);
  }

  feedForward(x, numTokens) {
    const inner = this.upProjection.apply(x, numTokens);
    this.activation(inner);
    return this.downProjection.apply(inner, numTokens);
  }
}

// softmax(Q K^T / sqrt(K)) V in each head (Vaswani et al., 2017, section 3.2).
class Attention {
  constructor(weights, name, architecture) {
    this.width = architecture.d_model;
    this.numHeads = architecture.num_heads;
    this.projection = new LinearMap(weights, `${name}.qkv_proj`);
    this.output = new LinearMap(weights, `${name}.out_proj`);
  }

  apply(x, numTokens) {
    // The queries, keys and values of a token are side by side, (T, 3, H, K).
    const qkv = this.projection.apply(x, numTokens);
    const mixed = new Float32Array(numTokens * this.width);
    const scores = new Float64Array(numTokens);

    const headWidth = this.width / this.numHeads;
    for (let head = 0; head < this.numHeads; head++) {
      for (let token = 0; token < numTokens; token++) {
        this.score(qkv, token, head * headWidth, headWidth, scores);
        softmaxInPlace(scores);
        this.mix(qkv, scores, token, head * headWidth, headWidth, mixed);
      }
    }
    return this.output.apply(mixed, numTokens);
  }

  // Computes the scores of all tokens for the query of one token, (T,).
  score(qkv, token, firstFeature, headWidth, scores) {
    const rowWidth = 3 * this.width;
    const query = token * rowWidth + firstFeature;
    const scale = 1 / Math.sqrt(headWidth);

    for (let other = 0; other < scores.length; other++) {
      const key = other * rowWidth + this.width + firstFeature;
      let sum = 0;
      for (let feature = 0; feature < headWidth; feature++) {
        sum += qkv[query + feature] * qkv[key + feature];
      }
      scores[other] = sum * scale;
    }
  }

  // Computes the weighted mean of the values of all tokens.
  mix(qkv, weights, token, firstFeature, headWidth, mixed) {
    const rowWidth = 3 * this.width;
    const target = token * this.width + firstFeature;

    for (let other = 0; other < weights.length; other++) {
      const weight = weights[other];
      const value = other * rowWidth + 2 * this.width + firstFeature;
      for (let feature = 0; feature < headWidth; feature++) {
        mixed[target + feature] += weight * qkv[value + feature];
      }
    }
  }
}

// Layer normalization of each token (Ba et al., 2016).
class Norm {
  constructor(weights, name) {
    this.weight = weights.dense(`${name}.weight`);
    this.bias = weights.dense(`${name}.bias`);
  }

  apply(x, numTokens) {
    const { weight, bias } = this;
    const width = weight.length;
    const normalized = new Float32Array(x.length);

    for (let start = 0; start < numTokens * width; start += width) {
      let sum = 0;
      for (let feature = 0; feature < width; feature++) sum += x[start + feature];
      const mean = sum / width;

      let squares = 0;
      for (let feature = 0; feature < width; feature++) squares += (x[start + feature] - mean) ** 2;
      const scale = 1 / Math.sqrt(squares / width + NORM_EPSILON);

      for (let feature = 0; feature < width; feature++) {
        const standardized = (x[start + feature] - mean) * scale;
        normalized[start + feature] = standardized * weight[feature] + bias[feature];
      }
    }
    return normalized;
  }
}

class LinearMap {
  constructor(weights, name) {
    this.weight = weights.dense(`${name}.weight`); // (outputs, inputs)
    this.bias = weights.dense(`${name}.bias`); // (outputs,)
  }

  // The product with each of some rows, (rows, outputs).
  apply(x, numRows) {
    const numOutputs = this.bias.length;
    const y = new Float32Array(numRows * numOutputs);

    // Two rows and four outputs at a time, so that each number that is read is used several times.
    let row = 0;
    for (; row + 2 <= numRows; row += 2) {
      let output = 0;
      for (; output + 4 <= numOutputs; output += 4) this.applyBlock(x, row, output, y);
      for (; output < numOutputs; output++) {
        this.applySingle(x, row, output, y);
        this.applySingle(x, row + 1, output, y);
      }
    }
    for (; row < numRows; row++) {
      for (let output = 0; output < numOutputs; output++) this.applySingle(x, row, output, y);
    }
    return y;
  }

  applySingle(x, row, output, y) {
    const { weight, bias } = this;
    const numOutputs = bias.length;
    const numInputs = weight.length / numOutputs;
    const xStart = row * numInputs;
    const weightStart = output * numInputs;

    let sum = bias[output];
    for (let input = 0; input < numInputs; input++) {
      sum += x[xStart + input] * weight[weightStart + input];
    }
    y[row * numOutputs + output] = sum;
  }

  // Two rows, "a" and "b", of four outputs.
  applyBlock(x, row, output, y) {
    const { weight, bias } = this;
    const numOutputs = bias.length;
    const numInputs = weight.length / numOutputs;
    const aStart = row * numInputs;
    const bStart = aStart + numInputs;
    const start0 = output * numInputs;
    const start1 = start0 + numInputs;
    const start2 = start1 + numInputs;
    const start3 = start2 + numInputs;

    let a0 = bias[output];
    let a1 = bias[output + 1];
    let a2 = bias[output + 2];
    let a3 = bias[output + 3];
    let b0 = a0;
    let b1 = a1;
    let b2 = a2;
    let b3 = a3;
    for (let input = 0; input < numInputs; input++) {
      const a = x[aStart + input];
      const b = x[bStart + input];
      const weight0 = weight[start0 + input];
      const weight1 = weight[start1 + input];
      const weight2 = weight[start2 + input];
      const weight3 = weight[start3 + input];
      a0 += a * weight0;
      a1 += a * weight1;
      a2 += a * weight2;
      a3 += a * weight3;
      b0 += b * weight0;
      b1 += b * weight1;
      b2 += b * weight2;
      b3 += b * weight3;
    }

    const aOutput = row * numOutputs + output;
    y[aOutput] = a0;
    y[aOutput + 1] = a1;
    y[aOutput + 2] = a2;
    y[aOutput + 3] = a3;
    const bOutput = aOutput + numOutputs;
    y[bOutput] = b0;
    y[bOutput + 1] = b1;
    y[bOutput + 2] = b2;
    y[bOutput + 3] = b3;
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

function add(x, y) {
  for (let index = 0; index < x.length; index++) x[index] += y[index];
}

// The largest score is subtracted, so that no exponential overflows.
function softmaxInPlace(scores) {
  let largest = -Infinity;
  for (let index = 0; index < scores.length; index++) largest = Math.max(largest, scores[index]);

  let sum = 0;
  for (let index = 0; index < scores.length; index++) {
    scores[index] = Math.exp(scores[index] - largest);
    sum += scores[index];
  }
  for (let index = 0; index < scores.length; index++) scores[index] /= sum;
}

function relu(x) {
  for (let index = 0; index < x.length; index++) x[index] = Math.max(0, x[index]);
}

// x times the probability that a standard normal variable is less than x (Hendrycks and Gimpel,
// 2016), which is (1 + erf(x / sqrt(2))) / 2.
function gelu(x) {
  const [c0, c1, c2, c3, c4] = ERROR_FUNCTION_COEFFICIENTS;
  for (let index = 0; index < x.length; index++) {
    const value = x[index];
    const z = Math.abs(value) * Math.SQRT1_2;

    // 1 - erf(z) is a polynomial of 1 / (1 + p z), times exp(-z^2).
    const t = 1 / (1 + ERROR_FUNCTION_SCALE * z);
    const polynomial = ((((c0 * t + c1) * t + c2) * t + c3) * t + c4) * t;
    const complement = polynomial * Math.exp(-z * z);
    x[index] = 0.5 * value + Math.abs(value) * (0.5 - 0.5 * complement);
  }
}
