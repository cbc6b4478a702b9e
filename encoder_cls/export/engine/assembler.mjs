// Write modules of WebAssembly, without a compiler.
//
// A module is a sequence of bytes, described in https://webassembly.github.io/spec/core/binary/.
// An expression is written as the list of its bytes: `multiply(x, add(y, z))` computes x (y + z). A
// vector is four numbers of float32, on which an instruction works at once.

export const FLOAT_BYTES = 4;
export const VECTOR_BYTES = 16;

// Types.
const I32 = 0x7f;
const V128 = 0x7b;
const FUNCTION = 0x60;
const NO_RESULT = 0x40;

// --- Expressions --------------------------------------------------------------------------------

// A local variable of a function, which is an operand wherever an expression is one.
class Local {
  constructor(number) {
    this.number = number;
  }

  // Sets the variable to the value of an expression.
  set(expression) {
    return [...code(expression), 0x21, ...leb128(this.number)];
  }
}

function code(operand) {
  return operand instanceof Local ? [0x20, ...leb128(operand.number)] : operand;
}

// Returns a function that writes an instruction after its operands.
function instruction(...bytes) {
  return (...operands) => [...operands.flatMap(code), ...bytes];
}

// Whole numbers of 32 bits, such as addresses, which are in bytes.
export const i32Const = (number) => [0x41, ...signedLeb128(number)];
export const i32Add = instruction(0x6a);
export const i32Sub = instruction(0x6b);
export const i32And = instruction(0x71);
export const i32ShiftLeft = instruction(0x74);
export const i32ShiftRight = instruction(0x76);

// Single numbers of float32.
const f32Add = instruction(0x92);
const f32Max = instruction(0x97);
const lane = (vector, number) => [...code(vector), 0xfd, 0x1f, number];

// Vectors. The memory is read and written at an address plus a constant offset.
export const loadVector = (address, offset = 0) => {
  return [...code(address), 0xfd, 0x00, 0x02, ...leb128(offset)];
};
export const storeVector = (address, vector, offset = 0) => {
  return [...code(address), ...code(vector), 0xfd, 0x0b, 0x02, ...leb128(offset)];
};
// A vector of four times the number at an address, or of four times a number.
export const loadSplat = (address) => [...code(address), 0xfd, 0x09, 0x02, 0x00];
const splat = instruction(0xfd, 0x13);
export const constant = (number) => {
  const numbers = Float32Array.of(number, number, number, number);
  return [0xfd, 0x0c, ...new Uint8Array(numbers.buffer)];
};
export const add = instruction(0xfd, 0xe4, 0x01);
export const subtract = instruction(0xfd, 0xe5, 0x01);
export const multiply = instruction(0xfd, 0xe6, 0x01);
export const divide = instruction(0xfd, 0xe7, 0x01);
export const minimum = instruction(0xfd, 0xe8, 0x01);
export const maximum = instruction(0xfd, 0xe9, 0x01);
export const absolute = instruction(0xfd, 0xe0, 0x01);
export const squareRoot = instruction(0xfd, 0xe3, 0x01);
export const nearest = instruction(0xfd, 0x6a);
export const isLess = instruction(0xfd, 0x43);
// Takes the bits of the first vector where the third one has ones, and else those of the second.
export const select = instruction(0xfd, 0x52);

// Vectors of four whole numbers, and their conversion from and to float32.
export const i32Splat = instruction(0xfd, 0x11);
export const i32VectorAdd = instruction(0xfd, 0xae, 0x01);
export const i32VectorShiftLeft = instruction(0xfd, 0xab, 0x01);
export const toI32 = instruction(0xfd, 0xf8, 0x01);
export const toFloat = instruction(0xfd, 0xfa, 0x01);

// Vectors of four times the sum, and four times the maximum, of the numbers of a vector.
export const sumOfLanes = (vector) => splat(acrossLanes(f32Add, vector));
export const maximumOfLanes = (vector) => splat(acrossLanes(f32Max, vector));

function acrossLanes(operation, vector) {
  const first = operation(lane(vector, 0), lane(vector, 1));
  const second = operation(lane(vector, 2), lane(vector, 3));
  return operation(first, second);
}

// --- Functions ----------------------------------------------------------------------------------

// A function of whole numbers without a result. What it does is written one statement after the
// other.
export class FunctionWriter {
  constructor(name, numParameters) {
    this.name = name;
    this.numParameters = numParameters;
    this.parameters = Array.from({ length: numParameters }, (_, number) => new Local(number));
    this.types = []; // of the local variables that are not parameters
    this.body = [];
  }

  // Returns a new local variable, which is a whole number.
  integer() {
    return this.local(I32);
  }

  vector() {
    return this.local(V128);
  }

  local(type) {
    this.types.push(type);
    return new Local(this.numParameters + this.types.length - 1);
  }

  write(...statements) {
    for (const statement of statements) this.body.push(...statement);
  }

  // Calls another function by its number in the module.
  call(number, ...operands) {
    this.write([...operands.flatMap(code), 0x10, number]);
  }

  // Repeats what `writeBody` writes, which may be never. The variable `count` is counted down to 0.
  repeat(count, writeBody) {
    this.write([...code(count), 0x04, NO_RESULT]); // if
    this.write([0x03, NO_RESULT]); // loop
    writeBody();
    this.write(count.set(i32Sub(count, i32Const(1))));
    this.write([...code(count), 0x0d, 0x00]); // to the start of the loop if the count is not 0
    this.write([0x0b], [0x0b]); // the ends of loop and if
  }

  get typeBytes() {
    const parameters = this.parameters.map(() => [I32]);
    return [FUNCTION, ...listBytes(parameters), ...listBytes([])];
  }

  get bytes() {
    const locals = listBytes(this.types.map((type) => [1, type]));
    const size = locals.length + this.body.length + 1;
    return [...leb128(size), ...locals, ...this.body, 0x0b];
  }
}

// The bytes of a module with a memory and some functions, all of which are exported.
export function moduleBytes(functions) {
  const emptyMemory = [0x00, 0x00];
  const exported = functions.map(({ name }, number) => [...nameBytes(name), 0x00, number]);
  return Uint8Array.from([
    ...[0x00, 0x61, 0x73, 0x6d], // "\0asm"
    ...[0x01, 0x00, 0x00, 0x00], // version 1
    ...sectionBytes(1, functions.map(({ typeBytes }) => typeBytes)),
    ...sectionBytes(3, functions.map((_, number) => [number])), // the type of each function
    ...sectionBytes(5, [emptyMemory]),
    ...sectionBytes(7, [[...nameBytes("memory"), 0x02, 0], ...exported]),
    ...sectionBytes(10, functions.map(({ bytes }) => bytes)),
  ]);
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

// A whole number that may be negative, whose sign is the seventh bit of the last byte.
function signedLeb128(number) {
  const bytes = [];
  while (number < -64 || number > 63) {
    bytes.push((number & 127) | 128);
    number >>= 7;
  }
  return [...bytes, number & 127];
}
