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

  // The row of an object, whose text columns are given; a text lacks all features.
  row(given, textColumns, number) {
    if (typeof given === "string") return given.replace(SEPARATORS, " ");

    const missing = [...textColumns, ...this.edges.keys()].find((name) => !(name in given));
    if (missing !== undefined) throw new TypeError(`texts[${number}] has no column ${missing}`);
    const features = [...this.edges.keys()].map((name) => {
      return `${RS}${cleaned(name)}${US}${featureValue(given[name])}`;
    });
    const fields = textColumns.map((name) => {
      const mark = textColumns.length > 1 ? `${RS}${cleaned(name)}${US}` : "";
      return mark + cleaned(given[name] ?? "");
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

export const isRow = (text) => text.startsWith(RS) && text.includes(US);

const cleaned = (text) => String(text).replace(SEPARATORS, " ");

function featureValue(given) {
  if (given === null || given === undefined || Number.isNaN(given)) return "";
  const name = String(given);
  const whole = WHOLE_NUMBER.test(name) ? name.split(".")[0] : name;
  const value = Array.from(cleaned(whole).trim()).slice(0, MAX_VALUE_LENGTH).join("");
  return /^(?:true|false)$/i.test(value) ? value.toLowerCase() : value;
}

function named(parts) {
  return parts.split(RS).slice(1).map((part) => cutAt(part, US));
}

// What is before the first separator, and what is after it.
function cutAt(text, separator) {
  const place = text.indexOf(separator);
  return place < 0 ? [text, ""] : [text.slice(0, place), text.slice(place + 1)];
}
