// The numeric work of the encoder by the vector instructions of WebAssembly, which compute four
// numbers at once. The plain kernel does the same in JavaScript.

import { FLOAT_BYTES, VECTOR_BYTES, moduleBytes } from "./assembler.mjs";
import { vectorFunctions } from "./vector_functions.mjs";

const VECTOR_LENGTH = VECTOR_BYTES / FLOAT_BYTES;

// Returns the kernel; undefined where it cannot run: old browsers have no vector instructions, and
// some hosts refuse all WebAssembly that is not compiled beforehand.
export function vectorKernel() {
  try {
    const module = new WebAssembly.Module(moduleBytes(vectorFunctions()));
    return new VectorKernel(new WebAssembly.Instance(module).exports);
  } catch {
    return undefined;
  }
}

// A row is a matrix of which the first row is taken.
class VectorKernel {
  constructor(functions) {
    this.functions = functions;
    this.memory = functions.memory;
  }

  // Adds the product of a, (rows, inner), and b, (inner, panels), to c, (rows, panels).
  addProduct(a, b, c, numRows, numInner, numPanels) {
    this.functions.addProduct(
      addressOf(a),
      strideOf(a),
      addressOf(b),
      strideOf(b),
      b.panelStep * FLOAT_BYTES,
      addressOf(c),
      strideOf(c),
      numRows,
      numInner,
      numPanels,
    );
  }

  // Sets each of the first rows of a matrix to `row`.
  setRows(matrix, row, numRows) {
    this.functions.setRows(
      addressOf(matrix), strideOf(matrix), addressOf(row), numRows, vectorsOf(matrix),
    );
  }

  // Adds `row` to each of the first rows of a matrix.
  addToRows(matrix, row, numRows) {
    this.functions.addToRows(
      addressOf(matrix), strideOf(matrix), addressOf(row), numRows, vectorsOf(matrix),
    );
  }

  // Writes the layer norms of the first rows of x, of which `width` columns count, to y, which has
  // the same stride, or is x. The weight and the bias are rows.
  normalize(x, y, weight, bias, numRows, width) {
    this.functions.normalize(
      addressOf(x),
      addressOf(y),
      strideOf(x),
      addressOf(weight),
      addressOf(bias),
      numRows,
      width,
      vectorsOf(x),
    );
  }

  // Makes each of the first rows of scores a probability.
  softmax(scores, numRows) {
    this.functions.softmax(addressOf(scores), strideOf(scores), numRows, vectorsOf(scores));
  }

  // Changes each number x of the first rows of a matrix to GELU(x), or to max(x, 0).
  gelu(matrix, numRows) {
    this.functions.gelu(addressOf(matrix), numRows * vectorsOf(matrix));
  }

  relu(matrix, numRows) {
    this.functions.relu(addressOf(matrix), numRows * vectorsOf(matrix));
  }
}

function addressOf(matrix) {
  return matrix.start * FLOAT_BYTES;
}

function strideOf(matrix) {
  return matrix.stride * FLOAT_BYTES;
}

// The number of vectors of a row.
function vectorsOf(matrix) {
  return matrix.stride / VECTOR_LENGTH;
}
