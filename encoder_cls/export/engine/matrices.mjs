// Matrices of float32 in a memory that they share, which is the memory of a kernel.

import { FLOAT_BYTES } from "./assembler.mjs";
import { PAGE_BYTES, PlainKernel } from "./plain_kernel.mjs";
import { PANEL_WIDTH } from "./vector_functions.mjs";
import { vectorKernel } from "./vector_kernel.mjs";

// The place of a matrix in the memory: where its numbers start, and how far one row is from the
// next. Its columns form panels of eight; `panelStep` is how far one panel is from the next. All
// are numbers of float32. The last panel is filled up by columns of zeros.
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
    this.kernel = vectorKernel() ?? new PlainKernel();
    this.numbers = new Float32Array(this.kernel.memory.buffer);
    this.numTaken = 0;
  }

  // Returns a new matrix of zeros.
  matrix(numRows, numColumns) {
    const stride = paddedColumns(numColumns);
    return new Matrix(this.take(numRows * stride), stride);
  }

  // Returns a new matrix of one row.
  row(numbers) {
    const row = this.matrix(1, numbers.length);
    this.numbers.set(numbers, row.start);
    return row;
  }

  // Returns a new matrix of weights, (inputs, outputs). Each of its panels is one piece, which a
  // product reads from its first to its last number. `transposed` is (outputs, inputs); `inputs`
  // and `outputs` are `Columns`.
  packedMatrix(transposed, inputs, outputs) {
    const panelStep = inputs.paddedCount * PANEL_WIDTH;
    const start = this.take(inputs.paddedCount * outputs.paddedCount);

    for (let output = 0; output < outputs.count; output++) {
      const place = outputs.place(output);
      const column = place % PANEL_WIDTH;
      const panel = (place - column) / PANEL_WIDTH;
      const first = start + panel * panelStep + column;
      for (let input = 0; input < inputs.count; input++) {
        const number = transposed[output * inputs.count + input];
        this.numbers[first + inputs.place(input) * PANEL_WIDTH] = number;
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
}

// The least multiple of the width of a panel that is not smaller.
export function paddedColumns(numColumns) {
  return Math.ceil(numColumns / PANEL_WIDTH) * PANEL_WIDTH;
}

// The columns of a matrix, in groups such as heads, of which each begins at a new panel. By default
// all columns are one group.
export class Columns {
  constructor(count, groupWidth = count) {
    this.count = count;
    this.groupWidth = groupWidth;
    this.paddedCount = this.place(count);
  }

  // Where a column is among the columns with those that fill up panels. Behind the last column,
  // this is their number.
  place(column) {
    const columnInGroup = column % this.groupWidth;
    const group = (column - columnInGroup) / this.groupWidth;
    return group * paddedColumns(this.groupWidth) + columnInGroup;
  }

  // A row of numbers with zeros in the columns that fill up panels.
  spread(numbers) {
    const spread = new Float32Array(this.paddedCount);
    numbers.forEach((number, column) => {
      spread[this.place(column)] = number;
    });
    return spread;
  }
}
