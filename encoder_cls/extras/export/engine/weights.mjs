// Read the weights file of a model, model.safetensors.

// The array that holds the values of each type of the file. A float16 is read as its bits.
const TYPES = {
  F32: Float32Array,
  F16: Uint16Array,
  I8: Int8Array,
  I32: Int32Array,
  U16: Uint16Array,
};

// The value of each of the 65,536 numbers of 16 bits, (65536,).
const HALF = valuesOfHalf();

// Returns the values in the head of a weights file, and its tensors by name.
export function readWeights(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const headLength = Number(view.getBigUint64(0, true));
  const headText = new TextDecoder().decode(bytes.subarray(8, 8 + headLength));
  const { __metadata__: metadata, ...entries } = JSON.parse(headText);

  const tensors = new Map();
  const start = bytes.byteOffset + 8 + headLength;
  for (const [name, { dtype, shape, data_offsets: [first, end] }] of Object.entries(entries)) {
    // The values are copied, because typed arrays have to begin at a multiple of their size.
    const values = new TYPES[dtype](bytes.buffer.slice(start + first, start + end));
    tensors.set(name, { dtype, shape, values });
  }
  return { head: JSON.parse(metadata["encoder-cls"]), tensors: new Weights(tensors) };
}

// The bytes of a text in base64.
export function bytesOfBase64(text) {
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let index = 0; index < binary.length; index++) bytes[index] = binary.charCodeAt(index);
  return bytes;
}

export class Weights {
  constructor(tensors) {
    this.tensors = tensors;
  }

  // A weight as float32, whatever its type in the file.
  dense(name) {
    const { dtype, values } = this.tensors.get(name);
    return dtype === "F16" ? floatsOfHalves(values) : values;
  }

  // A matrix of which single rows are read.
  table(name) {
    const columns = this.tensors.get(`${name}.columns`);
    if (columns) {
      const rowSizes = this.tensors.get(`${name}.row_sizes`);
      return new SparseTable(this.dense(name), columns.values, rowSizes.values);
    }
    const rows = this.tensors.get(`${name}.rows`);
    const scales = this.tensors.get(`${name}.scales`);
    return new RowTable(this.tensors.get(name), rows?.values, scales?.values);
  }

  // Increasing ids, which may be stored as their low halves and the count of each high half.
  ids(name) {
    const low = this.tensors.get(name).values;
    const counts = this.tensors.get(`${name}.high`)?.values;
    if (!counts) return low;

    const ids = new Int32Array(low.length);
    let index = 0;
    counts.forEach((count, high) => {
      for (const end = index + count; index < end; index++) ids[index] = high * 65536 + low[index];
    });
    return ids;
  }
}

// A matrix in the type of the file: float32, float16, or int8 with a scale for each row. Rows that
// are zero may be left out.
export class RowTable {
  constructor({ dtype, shape, values }, storedRows, scales) {
    this.values = values;
    this.numColumns = shape[1];
    this.isHalf = dtype === "F16";
    this.scales = scales && floatsOfHalves(scales);
    this.storedIndex = storedRows && indexOfRows(storedRows);
  }

  // The index of a row among the stored rows; -1 if the row is zero.
  indexOf(row) {
    if (!this.storedIndex) return row;
    return row < this.storedIndex.length ? this.storedIndex[row] : -1;
  }

  // Adds a row times a factor to numbers of `sums` from `start` on.
  addRow(row, factor, sums, start = 0) {
    const index = this.indexOf(row);
    if (index >= 0) this.addStored(index, factor, sums, start);
  }

  // Adds the first `count` of some rows, each times its factor, to `sums`.
  addRows(rows, factors, count, sums) {
    const { values, numColumns } = this;
    // `addStored` would do the same. A loop of its own meets arrays of one type only, so that its
    // code is compiled for them, and is faster.
    for (let number = 0; number < count; number++) {
      const index = this.indexOf(rows[number]);
      if (index < 0) continue;

      const first = index * numColumns;
      const factor = this.scales ? factors[number] * this.scales[index] : factors[number];
      for (let column = 0; column < numColumns; column++) {
        const value = values[first + column];
        sums[column] += factor * (this.isHalf ? HALF[value] : value);
      }
    }
  }

  addStored(index, factor, sums, start) {
    const { values, numColumns } = this;
    const first = index * numColumns;
    if (this.isHalf) {
      for (let column = 0; column < numColumns; column++) {
        sums[start + column] += factor * HALF[values[first + column]];
      }
      return;
    }
    const scaled = this.scales ? factor * this.scales[index] : factor;
    for (let column = 0; column < numColumns; column++) {
      sums[start + column] += scaled * values[first + column];
    }
  }

  // A single value.
  at(row, column) {
    const index = this.indexOf(row);
    if (index < 0) return 0;

    const value = this.values[index * this.numColumns + column];
    if (this.isHalf) return HALF[value];
    return this.scales ? value * this.scales[index] : value;
  }
}

// A matrix of which only the values that are not zero are stored, row by row, with their columns and
// the number of values of each row.
export class SparseTable {
  constructor(values, columns, rowSizes) {
    this.values = values;
    this.columns = columns;
    this.ends = new Int32Array(rowSizes);
    for (let row = 1; row < this.ends.length; row++) this.ends[row] += this.ends[row - 1];
  }

  // Adds the first `count` of some rows, each times its factor, to `sums`.
  addRows(rows, factors, count, sums) {
    for (let number = 0; number < count; number++) {
      const row = rows[number];
      for (let place = this.startOf(row); place < this.ends[row]; place++) {
        sums[this.columns[place]] += factors[number] * this.values[place];
      }
    }
  }

  // A single value.
  at(row, column) {
    for (let place = this.startOf(row); place < this.ends[row]; place++) {
      if (this.columns[place] === column) return this.values[place];
    }
    return 0;
  }

  startOf(row) {
    return row ? this.ends[row - 1] : 0;
  }
}

// The index of each row among increasing rows that are stored, (last stored row + 1,); -1 for
// others.
function indexOfRows(storedRows) {
  const numRows = storedRows.length ? storedRows[storedRows.length - 1] + 1 : 0;
  const indices = new Int32Array(numRows).fill(-1);
  storedRows.forEach((row, index) => {
    indices[row] = index;
  });
  return indices;
}

// The values of float16 numbers. `Float32Array.from` would take ten times as long as the loop.
function floatsOfHalves(halves) {
  const floats = new Float32Array(halves.length);
  for (let index = 0; index < halves.length; index++) floats[index] = HALF[halves[index]];
  return floats;
}

// A sign bit, 5 bits of the exponent and 10 bits of the fraction; numbers that are not finite are
// in no model.
function valuesOfHalf() {
  const values = new Float32Array(65536);
  for (let bits = 0; bits < 65536; bits++) {
    const exponent = (bits >> 10) & 31;
    const fraction = bits & 1023;
    const size = exponent ? 2 ** (exponent - 25) * (1024 + fraction) : 2 ** -24 * fraction;
    values[bits] = bits & 32768 ? -size : size;
  }
  return values;
}
