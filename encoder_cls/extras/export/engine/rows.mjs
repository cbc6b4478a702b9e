// Rows of several columns, each written as one string, and the tokens of their parts.
//
// RS channel US email GS RS title US one text RS body US another text

const RS = "\x1e";
const US = "\x1f";
const GS = "\x1d";
const SEPARATORS = /[\x1d-\x1f]/g;

// The characters of a value that are kept.
const MAX_VALUE_LENGTH = 100;
// The id of the first token after the special ones.
const FIRST_ID = 4;
const WHOLE_NUMBER = /^-?(?:0|[1-9][0-9]{0,14})(?:\.0+)?$/;
const NUMBER = /^[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?$/;
// What Python takes for white space.
const WHITE = "[\\t-\\r\\x1c- \\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000]";
const OUTER_SPACE = new RegExp(`^${WHITE}+|${WHITE}+$`, "g");
const LONE_SURROGATE = /\p{Surrogate}/gu;

// The kinds of tokens: words, marks before the words of a text column, and features.
export const TEXT_TOKEN = 0;
export const FIELD_TOKEN = 1;
export const FEATURE_TOKEN = 2;

// The columns of rows that a model knows: the text columns that have marks, and the edges of each
// feature that is a number by name; other features have none.
export class RowForm {
  // The form of a tokenizer, by the ids of its tokens; undefined if texts are all that it reads.
  static of(ids) {
    const tokens = [];
    for (const [token, id] of ids) if (token.startsWith(RS)) tokens[id - FIRST_ID] = token;

    const form = new RowForm();
    for (const token of tokens) {
      const [name, value] = cutAt(token?.slice(1) ?? "", US);
      const isCategory = value && !value.startsWith(US);
      if (!token || !name || isCategory) break;
      if (!token.includes(US)) form.fields.push(name);
      else if (!value) form.edges.set(name, []);
      else if (value !== US) form.edges.get(name).push([Number(value.slice(1)), token]);
    }
    return form.fields.length > 1 || form.edges.size ? form : undefined;
  }

  constructor() {
    this.fields = [];
    this.edges = new Map();
  }

  // Throws an error if rows are given as objects and none of them has one of the features.
  checkFeatures(given) {
    const rows = given.filter(isObject);
    for (const name of this.edges.keys()) {
      if (rows.length && rows.every((row) => fieldOf(row, name) === undefined)) {
        throw new TypeError(`no row has the column ${name}`);
      }
    }
  }

  // The row of an object, whose text columns are given; it may lack features, and a text lacks all.
  row(given, textColumns, number) {
    if (typeof given === "string") return given.replace(SEPARATORS, " ");

    const where = `texts[${number}]`;
    const features = [...this.edges.keys()].map((name) => {
      const value = fieldOf(given, name);
      if (isObject(value)) throw new TypeError(`${where}: ${name} is an object`);
      return `${RS}${cleaned(name)}${US}${featureValue(value)}`;
    });
    const fields = textColumns.map((name) => {
      const text = fieldOf(given, name);
      if (text === undefined) throw new TypeError(`${where} has no column ${name}`);
      if (!isMissing(text) && typeof text !== "string") {
        throw new TypeError(`${where}: ${name} is not a string`);
      }
      const mark = textColumns.length > 1 ? `${RS}${cleaned(name)}${US}` : "";
      return mark + cleaned(text || "");
    });
    return [...features, features.length ? GS : "", ...fields].join("");
  }

  // The tokens of each feature of a row, in order: a list for each.
  tokensOfFeatures(features) {
    return [...this.edges].map(([name, edges]) => {
      const value = features.get(name) ?? "";
      const isNumber = NUMBER.test(value) && Number.isFinite(Number(value));
      if (!edges.length || !isNumber) return [`${RS}${name}${US}${value}`];
      return edges.filter(([edge]) => Number(value) >= edge).map(([, token]) => token);
    });
  }

  // The mark of each field of a row, by name, or by place if other columns are as many.
  marks(fields) {
    let names = fields.map(([name]) => name);
    const areKnown = names.every((name) => this.fields.includes(name));
    if (names.length === this.fields.length && !areKnown) names = this.fields;
    return names.map((name) => (this.fields.includes(name) ? RS + name : undefined));
  }
}

// The token in place of an unknown category.
export function otherToken(token) {
  const [name] = cutAt(token, US);
  return `${name}${US}${US}`;
}

// The features of a row by name, and its texts, as [name, text].
export function partsOf(row) {
  if (!isRow(row)) return { features: new Map(), fields: [["", row]] };
  const [head, texts] = row.includes(GS) ? cutAt(row, GS) : ["", row];
  const fields = texts.startsWith(RS) ? named(texts) : [["", texts]];
  return { features: new Map(named(head)), fields };
}

// A row as a person reads it, with the places where its fields begin, and those of its features.
export function readable(row) {
  const { features, fields } = partsOf(row);
  let text = fields.map(([, words]) => words).join(" ");
  const starts = [];
  let start = 0;
  for (const [, words] of fields) {
    starts.push(start);
    start += words.length + 1;
  }

  const places = new Map();
  for (const [name, value] of features) {
    if (!value) continue;
    text += places.size ? ", " : " [";
    const shown = `${name}=${value}`;
    places.set(name, [text.length, text.length + shown.length]);
    text += shown;
  }
  return { text: places.size ? `${text}]` : text, starts, places };
}

// A text that cannot be taken for a row with features.
export const plainRow = (text) => (isRow(text) ? cleaned(text) : text);

export const isRow = (text) => text.startsWith(RS) && text.includes(US);

const cleaned = (text) => String(text).replace(SEPARATORS, " ");

const isObject = (value) => typeof value === "object" && value !== null;

const isMissing = (value) => value === null || value === undefined || Number.isNaN(value);

// The value of a column, which may be inside objects (`payload.body`), and is null inside null;
// undefined without it.
function fieldOf(row, name) {
  if (Object.hasOwn(row, name)) return row[name];
  let value = row;
  for (const part of name.split(".")) {
    if (value === null) return null;
    if (!isObject(value) || !Object.hasOwn(value, part)) return undefined;
    value = value[part];
  }
  return value;
}

// A value as Python writes it.
function featureValue(given) {
  if (isMissing(given)) return "";
  const name = typeof given === "number" ? nameOfNumber(given) : String(given);
  const whole = WHOLE_NUMBER.test(name) ? name.split(".")[0] : name;
  const stripped = cleaned(whole.replace(LONE_SURROGATE, "?")).replace(OUTER_SPACE, "");
  const value = Array.from(stripped).slice(0, MAX_VALUE_LENGTH).join("");
  return /^(?:true|false)$/i.test(value) ? value.toLowerCase() : value;
}

function nameOfNumber(number) {
  if (Number.isInteger(number)) return String(BigInt(number));
  if (Math.abs(number) >= 1e-4) return String(number);
  return number.toExponential().replace(/-([0-9])$/, "-0$1");
}

function named(parts) {
  return parts.split(RS).slice(1).map((part) => cutAt(part, US));
}

// What is before the first separator, and what is after it.
function cutAt(text, separator) {
  const place = text.indexOf(separator);
  return place < 0 ? [text, ""] : [text.slice(0, place), text.slice(place + 1)];
}
