// What the vector kernel does, in JavaScript, for hosts that refuse WebAssembly.

import { BLOCK_ROWS, FLOAT_BYTES, PAGE_BYTES, PANEL_WIDTH } from "./vector_kernel.mjs";

// The rows and columns of which sums are computed at once.
const TILE_ROWS = 2;
const TILE_COLUMNS = 4;

export function plainKernel() {
  let buffer = new ArrayBuffer(0);
  let numbers = new Float32Array(buffer);

  const memory = {
    get buffer() {
      return buffer;
    },

    grow(numPages) {
      const grown = new Uint8Array(buffer.byteLength + numPages * PAGE_BYTES);
      grown.set(new Uint8Array(buffer));
      buffer = grown.buffer;
      numbers = new Float32Array(buffer);
    },
  };

  // The parameters are those of the vector kernel, in bytes.
  function addFourRows(a, aStride, b, bStride, c, cStride, numInner) {
    for (let row = 0; row < BLOCK_ROWS; row += TILE_ROWS) {
      for (let column = 0; column < PANEL_WIDTH; column += TILE_COLUMNS) {
        const aStart = (a + row * aStride) / FLOAT_BYTES;
        const bStart = b / FLOAT_BYTES + column;
        const cStart = (c + row * cStride) / FLOAT_BYTES + column;
        addTile(
          numbers,
          aStart,
          aStride / FLOAT_BYTES,
          bStart,
          bStride / FLOAT_BYTES,
          cStart,
          cStride / FLOAT_BYTES,
          numInner,
        );
      }
    }
  }

  function addOneRow(a, aStride, b, bStride, c, cStride, numInner) {
    for (let column = 0; column < PANEL_WIDTH; column++) {
      const bStart = b / FLOAT_BYTES + column;
      const cStart = c / FLOAT_BYTES + column;
      addNumber(numbers, a / FLOAT_BYTES, bStart, bStride / FLOAT_BYTES, cStart, numInner);
    }
  }

  return { memory, addFourRows, addOneRow };
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
export function addNumber(numbers, a, b, bStride, c, numInner) {
  let sum = numbers[c];
  for (let inner = 0; inner < numInner; inner++) {
    sum += numbers[a + inner] * numbers[b];
    b += bStride;
  }
  numbers[c] = sum;
}
