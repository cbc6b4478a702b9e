// Matrices of float32 in a memory that they share, and their products.

import { addNumber, plainKernel } from "./plain_kernel.mjs";
import {
  BLOCK_ROWS,
  FLOAT_BYTES,
  PAGE_BYTES,
  PANEL_WIDTH,
  vectorKernel,
} from "./vector_kernel.mjs";

// The place of a matrix in the memory: where its numbers start, and how far one row is from the
// next. Its columns form panels of eight; `panelStep` is how far one panel is from the next.
export class Matrix {
  constructor(start, stride, panelStep = PANEL_WIDTH) {
    this.start = start;
    this.stride = stride;
    this.panelStep = panelStep;
  }

  // The part of the matrix from a row and a column on.
  from(row, column) {
    return new Matrix(this.start + row * this.stride + column, this.stride);
  }

  // A matrix in the same place with shorter rows.
  withStride(stride) {
    return new Matrix(this.start, stride);
  }
}

export class Memory {
  constructor() {
    this.kernel = vectorKernel() ?? plainKernel();
    this.numbers = new Float32Array(this.kernel.memory.buffer);
    this.numTaken = 0;
  }

  // Returns a new matrix of zeros.
  matrix(numRows, numColumns) {
    return new Matrix(this.take(numRows * numColumns), numColumns);
  }

  // Returns a new matrix of weights, (inputs, outputs). Each of its panels is one piece, which a
  // product reads from its first to its last number. `transposed` is (outputs, inputs).
  packedMatrix(transposed, numInputs, numOutputs) {
    const panelStep = numInputs * PANEL_WIDTH;
    const start = this.take(numInputs * paddedColumns(numOutputs));

    for (let output = 0; output < numOutputs; output++) {
      const column = output % PANEL_WIDTH;
      const panel = (output - column) / PANEL_WIDTH;
      const first = start + panel * panelStep + column;
      for (let input = 0; input < numInputs; input++) {
        this.numbers[first + input * PANEL_WIDTH] = transposed[output * numInputs + input];
      }
    }
    return new Matrix(start, PANEL_WIDTH, panelStep);
  }

  // Returns where new numbers start. The memory grows if it is too small.
  take(count) {
    const start = this.numTaken;
    this.numTaken += count;

    const missing = this.numTaken - this.numbers.length;
    if (missing > 0) {
      this.kernel.memory.grow(Math.ceil((missing * FLOAT_BYTES) / PAGE_BYTES));
      this.numbers = new Float32Array(this.kernel.memory.buffer);
    }
    return start;
  }

  // Sets the first rows of a matrix to zero.
  clear(matrix, numRows) {
    this.numbers.fill(0, matrix.start, matrix.start + numRows * matrix.stride);
  }

  // Adds the product of a, (rows, inner), and b, (inner, columns), to c, (rows, columns).
  addProduct(a, b, c, numRows, numInner, numColumns) {
    const numWhole = numColumns - (numColumns % PANEL_WIDTH);
    let panel = b.start;
    for (let column = 0; column < numWhole; column += PANEL_WIDTH) {
      this.addPanel(a, panel, b.stride, c.start + column, c.stride, numRows, numInner);
      panel += b.panelStep;
    }

    // The columns of an incomplete panel.
    for (let column = numWhole; column < numColumns; column++) {
      for (let row = 0; row < numRows; row++) {
        const first = panel + column - numWhole;
        const sum = c.start + row * c.stride + column;
        addNumber(this.numbers, a.start + row * a.stride, first, b.stride, sum, numInner);
      }
    }
  }

  // Adds the product of a and of the panel that starts at `b` to the panel that starts at `c`.
  addPanel(a, b, bStride, c, cStride, numRows, numInner) {
    const { addFourRows, addOneRow } = this.kernel;
    const aStrideBytes = a.stride * FLOAT_BYTES;
    const bBytes = b * FLOAT_BYTES;
    const bStrideBytes = bStride * FLOAT_BYTES;
    const cStrideBytes = cStride * FLOAT_BYTES;

    let row = 0;
    while (row < numRows) {
      const aBytes = a.start * FLOAT_BYTES + row * aStrideBytes;
      const cBytes = c * FLOAT_BYTES + row * cStrideBytes;
      const isBlock = row + BLOCK_ROWS <= numRows;
      const addRows = isBlock ? addFourRows : addOneRow;
      addRows(aBytes, aStrideBytes, bBytes, bStrideBytes, cBytes, cStrideBytes, numInner);
      row += isBlock ? BLOCK_ROWS : 1;
    }
  }
}

// The least multiple of the width of a panel that is not smaller.
export function paddedColumns(numColumns) {
  return Math.ceil(numColumns / PANEL_WIDTH) * PANEL_WIDTH;
}
