// The layers of a Transformer, on the tokens of several texts at once.
//
// A batch has N tokens of D features, in the order of its texts, without padding. One text has T of
// the tokens. Each of H heads attends to K features.

import { Columns, paddedColumns } from "./matrices.mjs";
import { PANEL_WIDTH } from "./vector_functions.mjs";

// The number of tokens whose attention is computed at once, so that long texts need little memory.
const MAX_QUERIES = 64;
// The score of a place behind the end of a text, whose probability is nearly zero.
const MASKED = -1e30;

// The matrices in which a batch is computed.
export class Workspace {
  constructor(memory, architecture, maxTokens) {
    const { d_model: width, d_ff: innerWidth, num_heads: numHeads } = architecture;
    const headsWidth = numHeads * paddedColumns(width / numHeads);
    this.x = memory.matrix(maxTokens, width); // the tokens, (N, D)
    this.normalized = memory.matrix(maxTokens, width); // (N, D)
    this.qkv = memory.matrix(maxTokens, 3 * headsWidth); // queries, keys, values, (N, 3, H, K)
    this.mixed = memory.matrix(maxTokens, headsWidth); // the result of attention, (N, H, K)
    this.inner = memory.matrix(maxTokens, innerWidth); // in the feed-forward network

    // Of a text and a head: the keys, (K, T), the scores, (queries, T), and those before the keys
    // and queries are multiplied, (1, T).
    this.keys = memory.matrix(width / numHeads, maxTokens);
    this.scores = memory.matrix(MAX_QUERIES, maxTokens);
    this.firstScores = memory.matrix(1, maxTokens);
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
    this.numHeads = architecture.num_heads;
    this.headWidth = architecture.d_model / this.numHeads;

    // Each head begins at a new panel of columns.
    const { headWidth } = this;
    this.headStep = paddedColumns(headWidth);
    this.projection = new LinearMap(memory, weights, `${name}.qkv_proj`, {
      outputGroup: headWidth,
    });
    this.output = new LinearMap(memory, weights, `${name}.out_proj`, { inputGroup: headWidth });
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
      this.setFirstScores(workspace.firstScores, length);
      for (let head = 0; head < this.numHeads; head++) {
        const first = head * this.headStep;
        this.mixHead(qkv.from(start, first), mixed.from(start, first), length, workspace);
      }
    }
    this.output.add(mixed, y, numTokens);
  }

  // Writes 0 for each token of a text, and masks the columns that fill up the last panel.
  setFirstScores(firstScores, length) {
    const end = firstScores.start + length;
    this.memory.numbers.fill(0, firstScores.start, end);
    this.memory.numbers.fill(MASKED, end, firstScores.start + paddedColumns(length));
  }

  // Adds the mean of the values of a text's tokens, weighted for each of its tokens, to `mixed`.
  mixHead(queries, mixed, length, workspace) {
    const { memory, headWidth, headStep } = this;
    const { kernel } = memory;
    const headsWidth = this.numHeads * headStep;
    const keys = queries.from(0, headsWidth);
    const values = queries.from(0, 2 * headsWidth);

    const numColumns = paddedColumns(length);
    const transposedKeys = workspace.keys.withStride(numColumns);
    const scores = workspace.scores.withStride(numColumns);
    this.transpose(keys, transposedKeys, length);

    for (let first = 0; first < length; first += MAX_QUERIES) {
      const numQueries = Math.min(MAX_QUERIES, length - first);
      const someQueries = queries.from(first, 0);
      kernel.setRows(scores, workspace.firstScores, numQueries);
      kernel.addProduct(
        someQueries, transposedKeys, scores, numQueries, headWidth, numColumns / PANEL_WIDTH,
      );
      kernel.softmax(scores, numQueries);
      kernel.addProduct(
        scores, values, mixed.from(first, 0), numQueries, length, headStep / PANEL_WIDTH,
      );
    }
  }

  // Writes the keys of a text, (T, K), divided by sqrt(K), as columns, (K, T). Behind the last
  // column there are old numbers, whose scores are masked.
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
}

class FeedForward {
  constructor(memory, weights, name, architecture) {
    this.memory = memory;
    this.activation = architecture.activation;
    this.upProjection = new LinearMap(memory, weights, `${name}.up_proj`);
    this.downProjection = new LinearMap(memory, weights, `${name}.down_proj`);
  }

  // Adds what the network computes of the tokens x to the tokens y.
  add(x, y, numTokens, { inner }) {
    this.upProjection.apply(x, inner, numTokens);
    if (this.activation === "relu") this.memory.kernel.relu(inner, numTokens);
    else this.memory.kernel.gelu(inner, numTokens);
    this.downProjection.add(inner, y, numTokens);
  }
}

// Layer normalization of each token (Ba et al., 2016).
export class Norm {
  constructor(memory, weights, name) {
    const weight = weights.dense(`${name}.weight`); // (D,)
    this.memory = memory;
    this.width = weight.length;
    this.weight = memory.row(weight);
    this.bias = memory.row(weights.dense(`${name}.bias`));
  }

  // Writes the normalized tokens x to y, which may be x.
  apply(x, y, numTokens) {
    this.memory.kernel.normalize(x, y, this.weight, this.bias, numTokens, this.width);
  }
}

export class LinearMap {
  // Inputs and outputs may come in groups of columns, of which each begins at a new panel.
  constructor(memory, weights, name, { inputGroup, outputGroup } = {}) {
    const transposed = weights.dense(`${name}.weight`); // (outputs, inputs)
    const bias = weights.dense(`${name}.bias`); // (outputs,)
    const numOutputs = bias.length;
    const numInputs = transposed.length / numOutputs;
    const inputs = new Columns(numInputs, inputGroup);
    const outputs = new Columns(numOutputs, outputGroup);

    this.memory = memory;
    this.numInputs = inputs.paddedCount;
    this.numPanels = outputs.paddedCount / PANEL_WIDTH;
    this.weight = memory.packedMatrix(transposed, inputs, outputs);
    this.bias = memory.row(outputs.spread(bias));
  }

  // Writes x W + b, (rows, outputs), to y.
  apply(x, y, numRows) {
    this.memory.kernel.setRows(y, this.bias, numRows);
    this.addProduct(x, y, numRows);
  }

  // Adds x W + b to y.
  add(x, y, numRows) {
    this.memory.kernel.addToRows(y, this.bias, numRows);
    this.addProduct(x, y, numRows);
  }

  addProduct(x, y, numRows) {
    const { kernel } = this.memory;
    kernel.addProduct(x, this.weight, y, numRows, this.numInputs, this.numPanels);
  }
}
