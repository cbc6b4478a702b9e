// What the vector kernel does, in JavaScript, for hosts that refuse WebAssembly.

import {
  ERROR_FUNCTION_COEFFICIENTS,
  ERROR_FUNCTION_SCALE,
  NORM_EPSILON,
  PANEL_WIDTH,
} from "./vector_functions.mjs";

export const PAGE_BYTES = 65536; // by which a memory grows

// The columns of which sums are computed at once, for two rows.
const TILE_COLUMNS = 4;

// The memory, as that of WebAssembly.
class PlainMemory {
  constructor() {
    this.buffer = new ArrayBuffer(0);
    this.numbers = new Float32Array(this.buffer);
  }

  grow(numPages) {
    const grown = new Uint8Array(this.buffer.byteLength + numPages * PAGE_BYTES);
    grown.set(new Uint8Array(this.buffer));
    this.buffer = grown.buffer;
    this.numbers = new Float32Array(this.buffer);
  }
}

export class PlainKernel {
  constructor() {
    this.memory = new PlainMemory();
  }

  addProduct(a, b, c, numRows, numInner, numPanels) {
    for (let panel = 0; panel < numPanels; panel++) {
      const panelOfB = b.start + panel * b.panelStep;
      const panelOfC = c.start + panel * PANEL_WIDTH;
      this.addPanel(a, panelOfB, b.stride, panelOfC, c.stride, numRows, numInner);
    }
  }

  // Adds the product of a and of the panel that starts at `b` to the panel that starts at `c`.
  addPanel(a, b, bStride, c, cStride, numRows, numInner) {
    const { numbers } = this.memory;
    let row = 0;
    for (; row + 1 < numRows; row += 2) {
      const rowOfA = a.start + row * a.stride;
      const rowOfC = c + row * cStride;
      for (let column = 0; column < PANEL_WIDTH; column += TILE_COLUMNS) {
        addTile(
          numbers, rowOfA, a.stride, b + column, bStride, rowOfC + column, cStride, numInner,
        );
      }
    }
    if (row === numRows) return;

    // The last row, if their number is odd.
    for (let column = 0; column < PANEL_WIDTH; column++) {
      const first = a.start + row * a.stride;
      addNumber(numbers, first, b + column, bStride, c + row * cStride + column, numInner);
    }
  }

  setRows(matrix, row, numRows) {
    const { numbers } = this.memory;
    for (let number = 0; number < numRows; number++) {
      const target = matrix.start + number * matrix.stride;
      numbers.copyWithin(target, row.start, row.start + matrix.stride);
    }
  }

  addToRows(matrix, row, numRows) {
    const { numbers } = this.memory;
    for (let number = 0; number < numRows; number++) {
      const target = matrix.start + number * matrix.stride;
      for (let column = 0; column < matrix.stride; column++) {
        numbers[target + column] += numbers[row.start + column];
      }
    }
  }

  normalize(x, y, weight, bias, numRows, width) {
    const { numbers } = this.memory;
    for (let row = 0; row < numRows; row++) {
      const xStart = x.start + row * x.stride;
      const yStart = y.start + row * y.stride;

      // The variance is the mean of the squares minus the square of the mean.
      let sum = 0;
      let squares = 0;
      for (let column = 0; column < width; column++) {
        const number = numbers[xStart + column];
        sum += number;
        squares += number * number;
      }
      const mean = sum / width;
      const scale = 1 / Math.sqrt(squares / width - mean * mean + NORM_EPSILON);

      for (let column = 0; column < width; column++) {
        const standardized = (numbers[xStart + column] - mean) * scale;
        const scaled = standardized * numbers[weight.start + column];
        numbers[yStart + column] = scaled + numbers[bias.start + column];
      }
    }
  }

  softmax(scores, numRows) {
    const { numbers } = this.memory;
    for (let row = 0; row < numRows; row++) {
      const start = scores.start + row * scores.stride;
      const end = start + scores.stride;

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

  gelu(matrix, numRows) {
    const { numbers } = this.memory;
    const end = matrix.start + numRows * matrix.stride;
    for (let index = matrix.start; index < end; index++) {
      numbers[index] *= normalProbability(numbers[index]);
    }
  }

  relu(matrix, numRows) {
    const { numbers } = this.memory;
    const end = matrix.start + numRows * matrix.stride;
    for (let index = matrix.start; index < end; index++) {
      if (numbers[index] < 0) numbers[index] = 0;
    }
  }
}

// The probability that a standard normal variable is less than x: (1 + erf(x / sqrt(2))) / 2.
function normalProbability(x) {
  const z = Math.abs(x) * Math.SQRT1_2;
  const t = 1 / (1 + ERROR_FUNCTION_SCALE * z);
  let polynomial = 0;
  for (const coefficient of ERROR_FUNCTION_COEFFICIENTS) {
    polynomial = (polynomial + coefficient) * t;
  }
  const tail = 0.5 * polynomial * Math.exp(-z * z);
  return x < 0 ? tail : 1 - tail;
}

// Adds the product of two rows of A and of four columns of B to C. Each number that is read is used
// several times. Places and strides are numbers of float32.
function addTile(numbers, a, aStride, b, bStride, c, cStride, numInner) {
  const d = c + cStride;
  let c0 = numbers[c];
  let c1 = numbers[c + 1];
  let c2 = numbers[c + 2];
  let c3 = numbers[c + 3];
  let d0 = numbers[d];
  let d1 = numbers[d + 1];
  let d2 = numbers[d + 2];
  let d3 = numbers[d + 3];

  for (let inner = 0; inner < numInner; inner++) {
    const first = numbers[a + inner];
    const second = numbers[a + aStride + inner];
    const b0 = numbers[b];
    const b1 = numbers[b + 1];
    const b2 = numbers[b + 2];
    const b3 = numbers[b + 3];
    c0 += first * b0;
    c1 += first * b1;
    c2 += first * b2;
    c3 += first * b3;
    d0 += second * b0;
    d1 += second * b1;
    d2 += second * b2;
    d3 += second * b3;
    b += bStride;
  }

  numbers[c] = c0;
  numbers[c + 1] = c1;
  numbers[c + 2] = c2;
  numbers[c + 3] = c3;
  numbers[d] = d0;
  numbers[d + 1] = d1;
  numbers[d + 2] = d2;
  numbers[d + 3] = d3;
}

// Adds the product of a row of A and of a column of B to a number of C.
function addNumber(numbers, a, b, bStride, c, numInner) {
  let sum = numbers[c];
  for (let inner = 0; inner < numInner; inner++) {
    sum += numbers[a + inner] * numbers[b];
    b += bStride;
  }
  numbers[c] = sum;
}
