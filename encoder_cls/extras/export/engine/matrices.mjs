// Matrices of float32, and the numeric work of the encoder on their first rows.

// A small number that is added to a variance, which could be zero.
const NORM_EPSILON = 1e-5;

// The error function is approximated by formula 7.1.26 of Abramowitz and Stegun, "Handbook of
// Mathematical Functions" (1964): 1 - erf(z) is a polynomial of t = 1 / (1 + p z), without a
// constant term, times exp(-z^2). The error is below 0.00000015.
const ERROR_FUNCTION_SCALE = 0.3275911;
const ERROR_FUNCTION_COEFFICIENTS = [
  1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592,
];

// Rows of numbers in an array: `start` is where the first row starts, `stride` how far one row is
// from the next.
export class Matrix {
  constructor(numbers, stride, start = 0) {
    this.numbers = numbers;
    this.stride = stride;
    this.start = start;
  }

  static zeros(numRows, numColumns) {
    return new Matrix(new Float32Array(numRows * numColumns), numColumns);
  }

  // The part of the matrix from a row and a column on.
  from(row, column) {
    return new Matrix(this.numbers, this.stride, this.start + row * this.stride + column);
  }

  // A matrix in the same place with shorter rows.
  withStride(stride) {
    return new Matrix(this.numbers, stride, this.start);
  }

  // Sets the first rows to zero.
  clear(numRows) {
    this.numbers.fill(0, this.start, this.start + numRows * this.stride);
  }

  // Sets each of the first rows to `row`.
  setRows(row, numRows) {
    for (let number = 0; number < numRows; number++) {
      this.numbers.set(row, this.start + number * this.stride);
    }
  }

  // Adds `row` to each of the first rows.
  addToRows(row, numRows) {
    for (let number = 0; number < numRows; number++) {
      const start = this.start + number * this.stride;
      for (let column = 0; column < row.length; column++) {
        this.numbers[start + column] += row[column];
      }
    }
  }
}

// Adds the product of a, (rows, inner), and of b transposed, (columns, inner), to c, (rows,
// columns). Two rows and four columns are computed at once: each number that is read is used several
// times.
export function addProduct(a, b, c, numRows, numColumns, numInner) {
  for (let row = 0; row < numRows; row += 2) {
    const isPair = row + 1 < numRows;
    let column = 0;
    if (isPair) {
      for (; column + 3 < numColumns; column += 4) {
        addTile(a, b, c, row, column, numInner);
      }
    }
    for (; column < numColumns; column++) {
      addNumber(a, b, c, row, column, numInner);
      if (isPair) addNumber(a, b, c, row + 1, column, numInner);
    }
  }
}

// Adds the products of two rows of a and of four rows of b.
function addTile(a, b, c, row, column, numInner) {
  const numbersOfA = a.numbers;
  const numbersOfB = b.numbers;
  let first = a.start + row * a.stride;
  let second = first + a.stride;
  let b0 = b.start + column * b.stride;
  let b1 = b0 + b.stride;
  let b2 = b1 + b.stride;
  let b3 = b2 + b.stride;

  const numbersOfC = c.numbers;
  const firstOfC = c.start + row * c.stride + column;
  const secondOfC = firstOfC + c.stride;
  let c0 = numbersOfC[firstOfC];
  let c1 = numbersOfC[firstOfC + 1];
  let c2 = numbersOfC[firstOfC + 2];
  let c3 = numbersOfC[firstOfC + 3];
  let d0 = numbersOfC[secondOfC];
  let d1 = numbersOfC[secondOfC + 1];
  let d2 = numbersOfC[secondOfC + 2];
  let d3 = numbersOfC[secondOfC + 3];

  for (let inner = 0; inner < numInner; inner++) {
    const x = numbersOfA[first + inner];
    const y = numbersOfA[second + inner];
    const w0 = numbersOfB[b0 + inner];
    const w1 = numbersOfB[b1 + inner];
    const w2 = numbersOfB[b2 + inner];
    const w3 = numbersOfB[b3 + inner];
    c0 += x * w0;
    c1 += x * w1;
    c2 += x * w2;
    c3 += x * w3;
    d0 += y * w0;
    d1 += y * w1;
    d2 += y * w2;
    d3 += y * w3;
  }

  numbersOfC[firstOfC] = c0;
  numbersOfC[firstOfC + 1] = c1;
  numbersOfC[firstOfC + 2] = c2;
  numbersOfC[firstOfC + 3] = c3;
  numbersOfC[secondOfC] = d0;
  numbersOfC[secondOfC + 1] = d1;
  numbersOfC[secondOfC + 2] = d2;
  numbersOfC[secondOfC + 3] = d3;
}

// Adds the product of a row of a and of a row of b. The sum is in the order of a tile.
function addNumber(a, b, c, row, column, numInner) {
  const startOfA = a.start + row * a.stride;
  const startOfB = b.start + column * b.stride;
  const place = c.start + row * c.stride + column;
  let sum = c.numbers[place];
  for (let inner = 0; inner < numInner; inner++) {
    sum += a.numbers[startOfA + inner] * b.numbers[startOfB + inner];
  }
  c.numbers[place] = sum;
}

// Writes the layer norms of the first rows of x to y, which may be x.
export function normalize(x, y, weight, bias, numRows) {
  const width = weight.length;
  for (let row = 0; row < numRows; row++) {
    const xStart = x.start + row * x.stride;
    const yStart = y.start + row * y.stride;

    // The variance is the mean of the squares minus the square of the mean.
    let sum = 0;
    let squares = 0;
    for (let column = 0; column < width; column++) {
      const number = x.numbers[xStart + column];
      sum += number;
      squares += number * number;
    }
    const mean = sum / width;
    const scale = 1 / Math.sqrt(squares / width - mean * mean + NORM_EPSILON);

    for (let column = 0; column < width; column++) {
      const standardized = (x.numbers[xStart + column] - mean) * scale;
      y.numbers[yStart + column] = standardized * weight[column] + bias[column];
    }
  }
}

// Makes each of the first rows of scores, times `scale`, a probability.
export function softmax(scores, numRows, scale = 1) {
  const { numbers } = scores;
  for (let row = 0; row < numRows; row++) {
    const start = scores.start + row * scores.stride;
    const end = start + scores.stride;

    let largest = -Infinity;
    for (let index = start; index < end; index++) {
      if (numbers[index] > largest) largest = numbers[index];
    }
    let sum = 0;
    for (let index = start; index < end; index++) {
      const exponential = Math.exp((numbers[index] - largest) * scale);
      numbers[index] = exponential;
      sum += exponential;
    }
    for (let index = start; index < end; index++) numbers[index] /= sum;
  }
}

// Changes each number x of the first rows of a matrix to GELU(x).
export function gelu(matrix, numRows) {
  const { numbers } = matrix;
  const end = matrix.start + numRows * matrix.stride;
  for (let index = matrix.start; index < end; index++) {
    numbers[index] *= normalProbability(numbers[index]);
  }
}

// Changes each number x of the first rows of a matrix to max(x, 0).
export function relu(matrix, numRows) {
  const { numbers } = matrix;
  const end = matrix.start + numRows * matrix.stride;
  for (let index = matrix.start; index < end; index++) {
    if (numbers[index] < 0) numbers[index] = 0;
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
