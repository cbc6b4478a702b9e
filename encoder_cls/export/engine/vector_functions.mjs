// The functions of the vector kernel, in WebAssembly.
//
// Addresses and strides are in bytes; a stride is the distance from one row to the next. Rows have
// whole vectors, of which the last ones may be filled up by zeros.

import {
  FLOAT_BYTES,
  FunctionWriter,
  VECTOR_BYTES,
  absolute,
  add,
  constant,
  divide,
  i32Add,
  i32And,
  i32Const,
  i32ShiftLeft,
  i32ShiftRight,
  i32Splat,
  i32Sub,
  i32VectorAdd,
  i32VectorShiftLeft,
  isLess,
  loadSplat,
  loadVector,
  maximum,
  maximumOfLanes,
  multiply,
  nearest,
  select,
  squareRoot,
  storeVector,
  subtract,
  sumOfLanes,
  toFloat,
  toI32,
} from "./assembler.mjs";

// The columns of a panel, of which sums are computed at once: two vectors.
export const PANEL_WIDTH = 8;
const VECTORS = [0, 1];
const PANEL_BYTES = PANEL_WIDTH * FLOAT_BYTES;
// The number of rows that are computed at once. Their sums fit into the registers of a processor.
const BLOCK_ROWS = 4;
const LOG2_BLOCK_ROWS = 2;
const LOG2_VECTOR_LENGTH = 2;

// A small number that is added to a variance, which could be zero.
export const NORM_EPSILON = 1e-5;

// The error function is approximated by formula 7.1.26 of Abramowitz and Stegun, "Handbook of
// Mathematical Functions" (1964): 1 - erf(z) is a polynomial of t = 1 / (1 + p z), without a
// constant term, times exp(-z^2). The error is below 0.00000015.
export const ERROR_FUNCTION_SCALE = 0.3275911;
export const ERROR_FUNCTION_COEFFICIENTS = [
  1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592,
];

// 2^x from -0.5 to 0.5 as a polynomial, the highest power first. Its coefficients make the largest
// relative error as small as possible: 0.000000075.
const POWER_OF_TWO_COEFFICIENTS = [
  0.00132765, 0.00967554, 0.05550713, 0.2402212, 0.69314697, 1.00000007,
];
// The smallest exponent of `exp`: its result is nearly the smallest normal number of float32.
const MIN_EXPONENT = -87;
// Of the bits of a float32, those of the exponent begin at this one, and are 127 for 2^0.
const EXPONENT_BIT = 23;
const EXPONENT_BIAS = 127;

// The functions of the vector kernel.
export function vectorFunctions() {
  return [
    addRows("addFourRows", BLOCK_ROWS),
    addRows("addOneRow", 1),
    addProduct(),
    setRows(),
    addToRows(),
    normalize(),
    softmax(),
    gelu(),
    relu(),
  ];
}

// Where `vectorFunctions` has the functions that `addProduct` calls.
const ADD_FOUR_ROWS = 0;
const ADD_ONE_ROW = 1;

// Adds the product of some rows of a matrix A and of a panel of a matrix B to a panel of C.
// `numInner` is the number of columns of A and of rows of B.
function addRows(name, numRows) {
  const writer = new FunctionWriter(name, 7);
  const [a, aStride, b, bStride, c, cStride, numInner] = writer.parameters;

  const rows = Array.from({ length: numRows }, (_, row) => row);
  const addressesInA = rows.map(() => writer.integer());
  const addressesInC = rows.map(() => writer.integer());
  const sums = rows.map(() => VECTORS.map(() => writer.vector()));
  const rowOfB = VECTORS.map(() => writer.vector());
  const factor = writer.vector();

  for (const row of rows) {
    // Find where the row begins, and load its sums.
    writer.write(addressesInA[row].set(a), addressesInC[row].set(c));
    writer.write(a.set(i32Add(a, aStride)), c.set(i32Add(c, cStride)));
    for (const vector of VECTORS) {
      writer.write(sums[row][vector].set(loadVector(addressesInC[row], vector * VECTOR_BYTES)));
    }
  }

  // For each column of A, add its numbers times a row of B.
  writer.repeat(numInner, () => {
    for (const vector of VECTORS) {
      writer.write(rowOfB[vector].set(loadVector(b, vector * VECTOR_BYTES)));
    }
    for (const row of rows) {
      writer.write(factor.set(loadSplat(addressesInA[row])));
      for (const vector of VECTORS) {
        const sum = sums[row][vector];
        writer.write(sum.set(add(multiply(factor, rowOfB[vector]), sum)));
      }
      writer.write(addressesInA[row].set(i32Add(addressesInA[row], i32Const(FLOAT_BYTES))));
    }
    writer.write(b.set(i32Add(b, bStride)));
  });

  for (const row of rows) {
    for (const vector of VECTORS) {
      writer.write(storeVector(addressesInC[row], sums[row][vector], vector * VECTOR_BYTES));
    }
  }
  return writer;
}

// Adds the product of A, (rows, inner), and of B, (inner, panels), to C, (rows, panels). The panels
// of B are `panelStep` apart, those of C are neighbours.
function addProduct() {
  const writer = new FunctionWriter("addProduct", 10);
  const [a, aStride, b, bStride, panelStep, c, cStride, numRows, numInner, numPanels] =
    writer.parameters;
  const rowOfA = writer.integer();
  const rowOfC = writer.integer();
  const count = writer.integer();

  const addRowsOfPanel = (functionNumber, numRowsAtOnce) => {
    writer.repeat(count, () => {
      writer.call(functionNumber, rowOfA, aStride, b, bStride, rowOfC, cStride, numInner);
      for (let row = 0; row < numRowsAtOnce; row++) {
        writer.write(rowOfA.set(i32Add(rowOfA, aStride)), rowOfC.set(i32Add(rowOfC, cStride)));
      }
    });
  };

  writer.repeat(numPanels, () => {
    writer.write(rowOfA.set(a), rowOfC.set(c));
    writer.write(count.set(i32ShiftRight(numRows, i32Const(LOG2_BLOCK_ROWS))));
    addRowsOfPanel(ADD_FOUR_ROWS, BLOCK_ROWS);
    writer.write(count.set(i32And(numRows, i32Const(BLOCK_ROWS - 1))));
    addRowsOfPanel(ADD_ONE_ROW, 1);

    writer.write(b.set(i32Add(b, panelStep)), c.set(i32Add(c, i32Const(PANEL_BYTES))));
  });
  return writer;
}

// Sets each row of C to `row`.
function setRows() {
  const writer = new FunctionWriter("setRows", 5);
  const [c, stride, row, numRows, numVectors] = writer.parameters;
  writer.repeat(numRows, () => {
    forEachVector(writer, [c, row], numVectors, (cVector, rowVector) => {
      writer.write(storeVector(cVector, loadVector(rowVector)));
    });
    writer.write(c.set(i32Add(c, stride)));
  });
  return writer;
}

// Adds `row` to each row of C.
function addToRows() {
  const writer = new FunctionWriter("addToRows", 5);
  const [c, stride, row, numRows, numVectors] = writer.parameters;
  writer.repeat(numRows, () => {
    forEachVector(writer, [c, row], numVectors, (cVector, rowVector) => {
      writer.write(storeVector(cVector, add(loadVector(cVector), loadVector(rowVector))));
    });
    writer.write(c.set(i32Add(c, stride)));
  });
  return writer;
}

// Writes the layer norm of each row of X, of which `width` columns count, to Y, which may be X.
function normalize() {
  const writer = new FunctionWriter("normalize", 8);
  const [x, y, stride, weight, bias, numRows, width, numVectors] = writer.parameters;
  const numColumns = writer.vector();
  const numZeros = writer.vector();
  const mean = writer.vector();
  const sum = writer.vector();
  const difference = writer.vector();
  const scale = writer.vector();

  const allColumns = i32ShiftLeft(numVectors, i32Const(LOG2_VECTOR_LENGTH));
  writer.write(numColumns.set(toFloat(i32Splat(width))));
  writer.write(numZeros.set(toFloat(i32Splat(i32Sub(allColumns, width)))));

  writer.repeat(numRows, () => {
    writer.write(sum.set(constant(0)));
    forEachVector(writer, [x], numVectors, (xVector) => {
      writer.write(sum.set(add(sum, loadVector(xVector))));
    });
    writer.write(mean.set(divide(sumOfLanes(sum), numColumns)));

    // Sum the squared differences, and take away those of the zeros that fill up the row.
    writer.write(sum.set(constant(0)));
    forEachVector(writer, [x], numVectors, (xVector) => {
      writer.write(difference.set(subtract(loadVector(xVector), mean)));
      writer.write(sum.set(add(sum, multiply(difference, difference))));
    });
    const squares = subtract(sumOfLanes(sum), multiply(numZeros, multiply(mean, mean)));
    const variance = add(divide(squares, numColumns), constant(NORM_EPSILON));
    writer.write(scale.set(divide(constant(1), squareRoot(variance))));

    forEachVector(writer, [x, y, weight, bias], numVectors, (xVector, yVector, factor, term) => {
      const standardized = multiply(subtract(loadVector(xVector), mean), scale);
      const scaled = multiply(standardized, loadVector(factor));
      writer.write(storeVector(yVector, add(scaled, loadVector(term))));
    });
    writer.write(x.set(i32Add(x, stride)), y.set(i32Add(y, stride)));
  });
  return writer;
}

// Makes each row of scores a probability. The largest score is subtracted first, so that no
// exponential overflows.
function softmax() {
  const writer = new FunctionWriter("softmax", 4);
  const [scores, stride, numRows, numVectors] = writer.parameters;
  const largest = writer.vector();
  const sum = writer.vector();
  const exponential = writer.vector();
  const scale = writer.vector();

  writer.repeat(numRows, () => {
    writer.write(largest.set(loadVector(scores)));
    forEachVector(writer, [scores], numVectors, (vector) => {
      writer.write(largest.set(maximum(largest, loadVector(vector))));
    });
    writer.write(largest.set(maximumOfLanes(largest)));

    writer.write(sum.set(constant(0)));
    forEachVector(writer, [scores], numVectors, (vector) => {
      writer.write(exponential.set(exp(writer, subtract(loadVector(vector), largest))));
      writer.write(storeVector(vector, exponential));
      writer.write(sum.set(add(sum, exponential)));
    });

    writer.write(scale.set(divide(constant(1), sumOfLanes(sum))));
    forEachVector(writer, [scores], numVectors, (vector) => {
      writer.write(storeVector(vector, multiply(loadVector(vector), scale)));
    });
    writer.write(scores.set(i32Add(scores, stride)));
  });
  return writer;
}

// x times the probability that a standard normal variable is less than x (Hendrycks and Gimpel,
// 2016), which is (1 + erf(x / sqrt(2))) / 2.
function gelu() {
  const writer = new FunctionWriter("gelu", 2);
  const [numbers, numVectors] = writer.parameters;
  const x = writer.vector();
  const z = writer.vector();
  const t = writer.vector();
  const tail = writer.vector();

  forEachVector(writer, [numbers], numVectors, (vector) => {
    writer.write(x.set(loadVector(vector)));
    writer.write(z.set(multiply(absolute(x), constant(Math.SQRT1_2))));
    const divisor = add(multiply(z, constant(ERROR_FUNCTION_SCALE)), constant(1));
    writer.write(t.set(divide(constant(1), divisor)));

    // The probability beyond |x|.
    const halves = ERROR_FUNCTION_COEFFICIENTS.map((coefficient) => 0.5 * coefficient);
    const power = exp(writer, subtract(constant(0), multiply(z, z)));
    writer.write(tail.set(multiply(multiply(polynomial(halves, t), t), power)));

    const isNegative = isLess(x, constant(0));
    const probability = select(tail, subtract(constant(1), tail), isNegative);
    writer.write(storeVector(vector, multiply(x, probability)));
  });
  return writer;
}

function relu() {
  const writer = new FunctionWriter("relu", 2);
  const [numbers, numVectors] = writer.parameters;
  forEachVector(writer, [numbers], numVectors, (vector) => {
    writer.write(storeVector(vector, maximum(loadVector(vector), constant(0))));
  });
  return writer;
}

// Repeats what `writeBody` writes for each vector of some rows, from their first addresses on.
function forEachVector(writer, rows, numVectors, writeBody) {
  const addresses = rows.map(() => writer.integer());
  const count = writer.integer();
  rows.forEach((row, number) => writer.write(addresses[number].set(row)));
  writer.write(count.set(numVectors));

  writer.repeat(count, () => {
    writeBody(...addresses);
    for (const address of addresses) {
      writer.write(address.set(i32Add(address, i32Const(VECTOR_BYTES))));
    }
  });
}

// An expression for the exponential of numbers up to 0. It is 2^n 2^f, of which n is a whole number
// and f is from -0.5 to 0.5. A float32 is 2^n if its bits of the exponent are n.
function exp(writer, exponent) {
  const power = writer.vector();
  const whole = writer.vector();
  const limited = maximum(exponent, constant(MIN_EXPONENT));
  writer.write(power.set(multiply(limited, constant(Math.LOG2E))));
  writer.write(whole.set(nearest(power)));
  writer.write(power.set(subtract(power, whole)));

  const biased = i32VectorAdd(toI32(whole), i32Splat(i32Const(EXPONENT_BIAS)));
  const scale = i32VectorShiftLeft(biased, i32Const(EXPONENT_BIT));
  return multiply(polynomial(POWER_OF_TWO_COEFFICIENTS, power), scale);
}

// An expression for a polynomial of x, by Horner's method.
function polynomial([highest, ...others], x) {
  return others.reduce(
    (value, coefficient) => add(multiply(value, x), constant(coefficient)),
    constant(highest),
  );
}
