// Products of matrices by the vector instructions of WebAssembly, which compute four numbers at
// once.
//
// A module of WebAssembly is a sequence of bytes. It is short enough to be written here, from
// instructions with the names of its text format, so that nothing has to be compiled beforehand.
// The codes are those of https://webassembly.github.io/spec/core/binary/.

// The number of columns that are computed at once: two vectors of four numbers.
export const PANEL_WIDTH = 8;
const VECTORS = [0, 1];
const VECTOR_BYTES = 16;
export const FLOAT_BYTES = 4;
export const PAGE_BYTES = 65536; // by which a memory grows

// The number of rows that are computed at once. Their sums fit into the registers of a processor.
export const BLOCK_ROWS = 4;

// The parameters of the functions, by their numbers. Addresses and strides are in bytes; a stride
// is the distance from one row to the next.
const A = 0;
const A_STRIDE = 1;
const B = 2;
const B_STRIDE = 3;
const C = 4;
const C_STRIDE = 5;
const NUM_INNER = 6; // the number of columns of A and of rows of B, at least one
const NUM_PARAMETERS = 7;

// Types.
const I32 = 0x7f;
const V128 = 0x7b;
const FUNCTION = 0x60;
const NO_RESULT = 0x40;

// Instructions take their operands from a stack, and put their result on it.
const localGet = (number) => [0x20, ...leb128(number)];
const localSet = (number) => [0x21, ...leb128(number)];
const localTee = (number) => [0x22, ...leb128(number)]; // sets, and leaves the value on the stack
const i32Const = (number) => [0x41, number]; // for 0 to 63
const i32Add = [0x6a];
const i32Sub = [0x6b];
const v128Load = (offset) => [0xfd, 0x00, 0x02, ...leb128(offset)];
const v128Store = (offset) => [0xfd, 0x0b, 0x02, ...leb128(offset)];
const v128Load32Splat = [0xfd, 0x09, 0x02, 0x00]; // a vector of four times the same number
const f32x4Add = [0xfd, 0xe4, 0x01];
const f32x4Mul = [0xfd, 0xe6, 0x01];
const loop = [0x03, NO_RESULT];
const brIfLoop = [0x0d, 0x00]; // to the start of the loop, if the operand is not 0
const end = [0x0b];

// Returns a memory, and two functions on it: `addFourRows` and `addOneRow` add the product of four
// rows or one row of a matrix A and of eight columns of a matrix B to a matrix C. Returns undefined
// where they cannot run: old browsers have no vector instructions, and some hosts refuse all
// WebAssembly that is not compiled beforehand.
export function vectorKernel() {
  try {
    const module = new WebAssembly.Module(moduleBytes());
    return new WebAssembly.Instance(module).exports;
  } catch {
    return undefined;
  }
}

function moduleBytes() {
  const parameters = Array(NUM_PARAMETERS).fill([I32]);
  const type = [FUNCTION, ...listBytes(parameters), ...listBytes([])];
  const emptyMemory = [0x00, 0x00];
  const exported = [
    [...nameBytes("memory"), 0x02, 0],
    [...nameBytes("addFourRows"), 0x00, 0],
    [...nameBytes("addOneRow"), 0x00, 1],
  ];
  return Uint8Array.from([
    ...[0x00, 0x61, 0x73, 0x6d], // "\0asm"
    ...[0x01, 0x00, 0x00, 0x00], // version 1
    ...sectionBytes(1, [type]),
    ...sectionBytes(3, [[0], [0]]), // both functions have the first type
    ...sectionBytes(5, [emptyMemory]),
    ...sectionBytes(7, exported),
    ...sectionBytes(10, [addRowsFunction(BLOCK_ROWS), addRowsFunction(1)]),
  ]);
}

// The function that adds the products of so many rows.
function addRowsFunction(numRows) {
  const rows = Array.from({ length: numRows }, (_, row) => row);

  // Local variables: the address in each row of A, the address of each row of C, then vectors.
  let numLocals = NUM_PARAMETERS;
  const addressesInA = rows.map(() => numLocals++);
  const addressesInC = rows.map(() => numLocals++);
  const numAddresses = numLocals - NUM_PARAMETERS;
  const sums = rows.map(() => VECTORS.map(() => numLocals++));
  const rowOfB = VECTORS.map(() => numLocals++);
  const factor = numLocals++;
  const numVectors = numLocals - NUM_PARAMETERS - numAddresses;

  const code = [];
  const write = (...instructions) => code.push(...instructions.flat());

  // Find where each row begins.
  for (const row of rows) {
    write(localGet(A), localSet(addressesInA[row]));
    write(localGet(C), localSet(addressesInC[row]));
    write(localGet(A), localGet(A_STRIDE), i32Add, localSet(A));
    write(localGet(C), localGet(C_STRIDE), i32Add, localSet(C));
  }

  // Load the rows of C.
  for (const row of rows) {
    for (const vector of VECTORS) {
      write(localGet(addressesInC[row]), v128Load(vector * VECTOR_BYTES));
      write(localSet(sums[row][vector]));
    }
  }

  // For each column of A, add its numbers times a row of B.
  write(loop);
  for (const vector of VECTORS) {
    write(localGet(B), v128Load(vector * VECTOR_BYTES), localSet(rowOfB[vector]));
  }
  for (const row of rows) {
    write(localGet(addressesInA[row]), v128Load32Splat, localSet(factor));
    for (const vector of VECTORS) {
      write(localGet(factor), localGet(rowOfB[vector]), f32x4Mul);
      write(localGet(sums[row][vector]), f32x4Add, localSet(sums[row][vector]));
    }
    write(localGet(addressesInA[row]), i32Const(FLOAT_BYTES), i32Add);
    write(localSet(addressesInA[row]));
  }
  write(localGet(B), localGet(B_STRIDE), i32Add, localSet(B));
  write(localGet(NUM_INNER), i32Const(1), i32Sub, localTee(NUM_INNER), brIfLoop);
  write(end);

  // Store the rows of C.
  for (const row of rows) {
    for (const vector of VECTORS) {
      write(localGet(addressesInC[row]), localGet(sums[row][vector]));
      write(v128Store(vector * VECTOR_BYTES));
    }
  }
  write(end);

  const locals = listBytes([
    [...leb128(numAddresses), I32],
    [...leb128(numVectors), V128],
  ]);
  return [...leb128(locals.length + code.length), ...locals, ...code];
}

// A part of a module: its number, its size in bytes, and its items.
function sectionBytes(number, items) {
  const content = listBytes(items);
  return [number, ...leb128(content.length), ...content];
}

function listBytes(items) {
  return [...leb128(items.length), ...items.flat()];
}

function nameBytes(text) {
  return listBytes(Array.from(text, (character) => [character.charCodeAt(0)]));
}

// A whole number from 0 in LEB128: seven bits a byte, the lowest ones first; the highest bit of a
// byte tells that another byte follows.
function leb128(number) {
  const bytes = [];
  while (number > 127) {
    bytes.push((number & 127) | 128);
    number >>>= 7;
  }
  return [...bytes, number];
}
