// The layers of a Transformer, on the tokens of several texts at once.
//
// A batch has N tokens of D features, in the order of its texts, without padding. One text has T of
// the tokens. Each of H heads attends to K features.

import { paddedColumns } from "./matrices.mjs";

// A small number that is added to a variance, which could be zero.
const NORM_EPSILON = 1e-5;
// The number of tokens whose attention is computed at once, so that long texts need little memory.
const MAX_QUERIES = 64;

// The matrices in which a batch is computed.
export class Workspace {
  constructor(memory, architecture, maxTokens) {
    const { d_model: width, d_ff: innerWidth, num_heads: numHeads } = architecture;
    this.x = memory.matrix(maxTokens, width); // the tokens, (N, D)
    this.normalized = memory.matrix(maxTokens, width); // (N, D)
    this.qkv = memory.matrix(maxTokens, 3 * width); // queries, keys and values, (N, 3, H, K)
    this.mixed = memory.matrix(maxTokens, width); // the result of attention, (N, H, K)
    this.inner = memory.matrix(maxTokens, innerWidth); // in the feed-forward network

    // The keys of a text for one head, (K, T), and its scores, (queries, T).
    const maxColumns = paddedColumns(maxTokens);
    this.keys = memory.matrix(width / numHeads, maxColumns);
    this.scores = memory.matrix(MAX_QUERIES, maxColumns);
  }
}

export class Layer {
  constructor(memory, weights, name, architecture) {
    this.isPreNorm = architecture.norm === "pre";
    this.attention = new Attention(memory, weights, `${name}.attention`, architecture);
    this.attentionNorm = new Norm(memory, weights, `${name}.attention_norm`);
    this.feedForward = new FeedForward(memory, weights, `${name}.feed_forward`, architecture);
    this.feedForwardNorm = new Norm(memory, weights, `${name}.feed_forward_norm`);
  }

  // Changes the tokens x of the workspace. `starts` are the first tokens of the texts and the end
  // of the last one, (texts + 1,). A norm comes before each sublayer, or after the sum with it.
  apply(workspace, starts) {
    const { x, normalized } = workspace;
    const numTokens = starts.at(-1);
    if (this.isPreNorm) {
      this.attentionNorm.apply(x, normalized, numTokens);
      this.attention.add(normalized, x, starts, workspace);
      this.feedForwardNorm.apply(x, normalized, numTokens);
      this.feedForward.add(normalized, x, numTokens, workspace);
    } else {
      this.attention.add(x, x, starts, workspace);
      this.attentionNorm.apply(x, x, numTokens);
      this.feedForward.add(x, x, numTokens, workspace);
      this.feedForwardNorm.apply(x, x, numTokens);
    }
  }
}

// softmax(Q K^T / sqrt(K)) V in each head (Vaswani et al., 2017, section 3.2).
class Attention {
  constructor(memory, weights, name, architecture) {
    this.memory = memory;
    this.width = architecture.d_model;
    this.numHeads = architecture.num_heads;
    this.headWidth = this.width / this.numHeads;
    this.projection = new LinearMap(memory, weights, `${name}.qkv_proj`);
    this.output = new LinearMap(memory, weights, `${name}.out_proj`);
  }

  // Adds the attention to the tokens x to the tokens y.
  add(x, y, starts, workspace) {
    const { qkv, mixed } = workspace;
    const numTokens = starts.at(-1);
    this.projection.apply(x, qkv, numTokens);

    this.memory.clear(mixed, numTokens);
    for (let text = 0; text + 1 < starts.length; text++) {
      const start = starts[text];
      const length = starts[text + 1] - start;
      for (let head = 0; head < this.numHeads; head++) {
        const first = head * this.headWidth;
        this.mixHead(qkv.from(start, first), mixed.from(start, first), length, workspace);
      }
    }
    this.output.add(mixed, y, numTokens);
  }

  // Adds the mean of the values of a text's tokens, weighted for each of its tokens, to `mixed`.
  mixHead(queries, mixed, length, workspace) {
    const { memory, width, headWidth } = this;
    const keys = queries.from(0, width);
    const values = queries.from(0, 2 * width);

    // The last columns of an incomplete panel have old numbers, which are never read.
    const numColumns = paddedColumns(length);
    const transposedKeys = workspace.keys.withStride(numColumns);
    const scores = workspace.scores.withStride(numColumns);
    this.transpose(keys, transposedKeys, length);

    for (let first = 0; first < length; first += MAX_QUERIES) {
      const numQueries = Math.min(MAX_QUERIES, length - first);
      memory.clear(scores, numQueries);
      memory.addProduct(
        queries.from(first, 0), transposedKeys, scores, numQueries, headWidth, numColumns,
      );
      this.softmax(scores, numQueries, length);
      memory.addProduct(scores, values, mixed.from(first, 0), numQueries, length, headWidth);
    }
  }

  // Writes the keys of a text, (T, K), divided by sqrt(K), as columns, (K, T).
  transpose(keys, transposed, length) {
    const { numbers } = this.memory;
    const scale = 1 / Math.sqrt(this.headWidth);
    for (let token = 0; token < length; token++) {
      const start = keys.start + token * keys.stride;
      for (let feature = 0; feature < this.headWidth; feature++) {
        const target = transposed.start + feature * transposed.stride + token;
        numbers[target] = numbers[start + feature] * scale;
      }
    }
  }

  // Makes each row of scores a probability. The largest score is subtracted first, so that no
  // exponential overflows.
  softmax(scores, numRows, length) {
    const { numbers } = this.memory;
    for (let row = 0; row < numRows; row++) {
      const start = scores.start + row * scores.stride;
      const end = start + length;

      let largest = -Infinity;
      for (let index = start; index < end; index++) {
        if (numbers[index] > largest) largest = numbers[index];
      }
      let sum = 0;
      for (let index = start; index < end; index++) {
        const exponential = Math.exp(numbers[index] - largest);
        numbers[index] = exponential;
        sum += exponential;
      }
      const scale = 1 / sum;
      for (let index = start; index < end; index++) numbers[index] *= scale;
    }
  }
}

class FeedForward {
  constructor(memory, weights, name, architecture) {
    this.memory = memory;
    this.innerWidth = architecture.d_ff;
    this.activation = architecture.activation === "relu" ? relu : gelu;
    this.upProjection = new LinearMap(memory, weights, `${name}.up_proj`);
    this.downProjection = new LinearMap(memory, weights, `${name}.down_proj`);
  }

  // Adds what the network computes of the tokens x to the tokens y.
  add(x, y, numTokens, { inner }) {
    this.upProjection.apply(x, inner, numTokens);
    this.activation(this.memory.numbers, inner.start, inner.start + numTokens * this.innerWidth);
    this.downProjection.add(inner, y, numTokens);
  }
}

// Layer normalization of each token (Ba et al., 2016).
export class Norm {
  constructor(memory, weights, name) {
    this.memory = memory;
    this.weight = weights.dense(`${name}.weight`); // (D,)
    this.bias = weights.dense(`${name}.bias`); // (D,)
  }

  // Writes the normalized tokens x to y, which may be x.
  apply(x, y, numTokens) {
    const { weight, bias } = this;
    const { numbers } = this.memory;
    const width = weight.length;

    for (let token = 0; token < numTokens; token++) {
      const xStart = x.start + token * width;
      const yStart = y.start + token * width;

      // The variance is the mean of the squares minus the square of the mean.
      let sum = 0;
      let squares = 0;
      for (let feature = 0; feature < width; feature++) {
        const number = numbers[xStart + feature];
        sum += number;
        squares += number * number;
      }
      const mean = sum / width;
      const scale = 1 / Math.sqrt(squares / width - mean * mean + NORM_EPSILON);

      for (let feature = 0; feature < width; feature++) {
        const standardized = (numbers[xStart + feature] - mean) * scale;
        numbers[yStart + feature] = standardized * weight[feature] + bias[feature];
      }
    }
  }
}

export class LinearMap {
  constructor(memory, weights, name) {
    this.memory = memory;
    this.bias = weights.dense(`${name}.bias`); // (outputs,)
    this.numOutputs = this.bias.length;

    const transposed = weights.dense(`${name}.weight`); // (outputs, inputs)
    this.numInputs = transposed.length / this.numOutputs;
    this.weight = memory.packedMatrix(transposed, this.numInputs, this.numOutputs);
  }

  // Writes x W + b, (rows, outputs), to y.
  apply(x, y, numRows) {
    for (let row = 0; row < numRows; row++) {
      this.memory.numbers.set(this.bias, y.start + row * y.stride);
    }
    this.addProduct(x, y, numRows);
  }

  // Adds x W + b to y.
  add(x, y, numRows) {
    const { numbers } = this.memory;
    for (let row = 0; row < numRows; row++) {
      const start = y.start + row * y.stride;
      for (let output = 0; output < this.numOutputs; output++) {
        numbers[start + output] += this.bias[output];
      }
    }
    this.addProduct(x, y, numRows);
  }

  addProduct(x, y, numRows) {
    this.memory.addProduct(x, this.weight, y, numRows, this.numInputs, this.numOutputs);
  }
}

function relu(numbers, start, end) {
  for (let index = start; index < end; index++) {
    if (numbers[index] < 0) numbers[index] = 0;
  }
}

// The error function is approximated by formula 7.1.26 of Abramowitz and Stegun, "Handbook of
// Mathematical Functions" (1964): 1 - erf(z) is a polynomial of 1 / (1 + p z), times exp(-z^2).
const ERROR_FUNCTION_SCALE = 0.3275911;
const ERROR_FUNCTION_COEFFICIENTS = [1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592];

// GELU is read from a table of its values from -6 to 6, between which it is interpolated: the error
// is below 0.0000005, and no exponential has to be computed.
const GELU_RANGE = 6;
const GELU_STEPS = 512; // in a distance of 1
const GELU_VALUES = valuesOfGelu();

function gelu(numbers, start, end) {
  for (let index = start; index < end; index++) {
    const x = numbers[index];
    // Beyond the table, GELU is x or 0.
    if (x >= GELU_RANGE) continue;
    if (x <= -GELU_RANGE) {
      numbers[index] = 0;
      continue;
    }
    const place = (x + GELU_RANGE) * GELU_STEPS;
    const step = place | 0;
    const value = GELU_VALUES[step];
    numbers[index] = value + (place - step) * (GELU_VALUES[step + 1] - value);
  }
}

// x times the probability that a standard normal variable is less than x (Hendrycks and Gimpel,
// 2016), at each step of the table.
function valuesOfGelu() {
  const numSteps = 2 * GELU_RANGE * GELU_STEPS;
  const values = new Float32Array(numSteps + 1);
  for (let step = 0; step <= numSteps; step++) {
    const x = step / GELU_STEPS - GELU_RANGE;
    values[step] = x * normalProbability(x);
  }
  return values;
}

// The probability that a standard normal variable is less than x: (1 + erf(x / sqrt(2))) / 2.
function normalProbability(x) {
  const z = Math.abs(x) * Math.SQRT1_2;
  const t = 1 / (1 + ERROR_FUNCTION_SCALE * z);
  const polynomial = ERROR_FUNCTION_COEFFICIENTS.reduce((sum, factor) => (sum + factor) * t, 0);
  const tail = 0.5 * polynomial * Math.exp(-z * z);
  return x < 0 ? tail : 1 - tail;
}
