// The layers of a Transformer, on the tokens of several texts at once.
//
// A batch has N tokens of D features, in the order of its texts, without padding. One text has T of
// the tokens. Each of H heads attends to K features.

import { Matrix, addProduct, gelu, normalize, relu, softmax } from "./matrices.mjs";

// The number of tokens whose attention is computed at once, so that long texts need little memory.
const MAX_QUERIES = 64;

// The matrices in which a batch is computed.
export class Workspace {
  constructor(architecture, maxTokens) {
    const { d_model: width, d_ff: innerWidth, num_heads: numHeads } = architecture;
    this.x = Matrix.zeros(maxTokens, width); // the tokens, (N, D)
    this.normalized = Matrix.zeros(maxTokens, width); // (N, D)
    this.qkv = Matrix.zeros(maxTokens, 3 * width); // queries, keys, values, (N, 3, H, K)
    this.mixed = Matrix.zeros(maxTokens, width); // the result of attention, (N, H, K)
    this.inner = Matrix.zeros(maxTokens, innerWidth); // in the feed-forward network

    // Of a text and a head: the values, (K, T), and the scores, (queries, T).
    this.values = Matrix.zeros(width / numHeads, maxTokens);
    this.scores = Matrix.zeros(MAX_QUERIES, maxTokens);
  }
}

export class Layer {
  constructor(weights, name, architecture) {
    this.isPreNorm = architecture.norm === "pre";
    this.attention = new Attention(weights, `${name}.attention`, architecture);
    this.attentionNorm = new Norm(weights, `${name}.attention_norm`);
    this.feedForward = new FeedForward(weights, `${name}.feed_forward`, architecture);
    this.feedForwardNorm = new Norm(weights, `${name}.feed_forward_norm`);
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
  constructor(weights, name, architecture) {
    this.width = architecture.d_model;
    this.headWidth = architecture.d_model / architecture.num_heads;
    this.projection = new LinearMap(weights, `${name}.qkv_proj`);
    this.output = new LinearMap(weights, `${name}.out_proj`);
  }

  // Adds the attention to the tokens x to the tokens y.
  add(x, y, starts, workspace) {
    const { qkv, mixed } = workspace;
    const numTokens = starts.at(-1);
    this.projection.apply(x, qkv, numTokens);

    mixed.clear(numTokens);
    for (let text = 0; text + 1 < starts.length; text++) {
      const start = starts[text];
      const length = starts[text + 1] - start;
      for (let first = 0; first < this.width; first += this.headWidth) {
        this.mixHead(qkv.from(start, first), mixed.from(start, first), length, workspace);
      }
    }
    this.output.add(mixed, y, numTokens);
  }

  // Adds the mean of the values of a text's tokens, weighted for each of its tokens, to `mixed`.
  mixHead(queries, mixed, length, workspace) {
    const { headWidth } = this;
    const keys = queries.from(0, this.width);
    const values = workspace.values.withStride(length);
    const scores = workspace.scores.withStride(length);
    transpose(queries.from(0, 2 * this.width), values, length, headWidth);

    for (let first = 0; first < length; first += MAX_QUERIES) {
      const numQueries = Math.min(MAX_QUERIES, length - first);
      scores.clear(numQueries);
      addProduct(queries.from(first, 0), keys, scores, numQueries, length, headWidth);
      softmax(scores, numQueries, 1 / Math.sqrt(headWidth));
      addProduct(scores, values, mixed.from(first, 0), numQueries, headWidth, length);
    }
  }
}

function transpose(matrix, transposed, numRows, numColumns) {
  for (let row = 0; row < numRows; row++) {
    const start = matrix.start + row * matrix.stride;
    for (let column = 0; column < numColumns; column++) {
      const target = transposed.start + column * transposed.stride + row;
      transposed.numbers[target] = matrix.numbers[start + column];
    }
  }
}

class FeedForward {
  constructor(weights, name, architecture) {
    this.activate = architecture.activation === "relu" ? relu : gelu;
    this.upProjection = new LinearMap(weights, `${name}.up_proj`);
    this.downProjection = new LinearMap(weights, `${name}.down_proj`);
  }

  // Adds what the network computes of the tokens x to the tokens y.
  add(x, y, numTokens, { inner }) {
    this.upProjection.apply(x, inner, numTokens);
    this.activate(inner, numTokens);
    this.downProjection.add(inner, y, numTokens);
  }
}

// Layer normalization of each token (Ba et al., 2016).
export class Norm {
  constructor(weights, name) {
    this.weight = weights.dense(`${name}.weight`); // (D,)
    this.bias = weights.dense(`${name}.bias`); // (D,)
  }

  // Writes the normalized tokens x to y, which may be x.
  apply(x, y, numTokens) {
    normalize(x, y, this.weight, this.bias, numTokens);
  }
}

export class LinearMap {
  constructor(weights, name) {
    const numbers = weights.dense(`${name}.weight`);
    this.bias = weights.dense(`${name}.bias`); // (outputs,)
    this.numInputs = numbers.length / this.bias.length;
    this.weight = new Matrix(numbers, this.numInputs); // (outputs, inputs)
  }

  // Writes x W^T + b, (rows, outputs), to y.
  apply(x, y, numRows) {
    y.setRows(this.bias, numRows);
    addProduct(x, this.weight, y, numRows, this.bias.length, this.numInputs);
  }

  // Adds x W^T + b to y.
  add(x, y, numRows) {
    y.addToRows(this.bias, numRows);
    addProduct(x, this.weight, y, numRows, this.bias.length, this.numInputs);
  }
}
