// Tables that a person pastes or drops: CSV, TSV, or one text a line.

const SEPARATORS = [",", ";", "\t", "|"];
// What separates the fields of a table of one column: nothing.
const NONE = "";
// What a spreadsheet could take for a formula; a negative number is none.
const FORMULA = /^[=+\-@\t\r]/;
const NEGATIVE = /^-[0-9]+(\.[0-9]+)?$/;

// Reads a table: the names of its columns, its rows, and the numbers of the columns with the texts.
// `textColumns` are the columns that the model was trained on. Throws an error if there are no texts.
function readTable(content, textColumns) {
  const text = content.replace(/^\ufeff/, "");
  if (text.includes("\0")) {
    throw new Error("is not text, but perhaps an Excel or a compressed file; save it as CSV");
  }
  if (isJson(text)) throw new Error("is JSON; paste one text a line, or convert it to CSV");
  if (!text.trim()) throw new Error("has no texts");
  return tableWithColumn(text, textColumns) ?? tableOfEqualRows(text) ?? tableOfLines(text);
}

// Whether a text, or its first line, is an object of JSON.
function isJson(text) {
  if (!/^\s*[{[]/.test(text)) return false;
  const [firstLine] = text.trim().split("\n", 1);
  return isParsed(firstLine.replace(/^\[/, "").replace(/,\s*$/, "")) || isParsed(text);
}

function isParsed(json) {
  try {
    return typeof JSON.parse(json) === "object";
  } catch {
    return false;
  }
}

// The table, if its header has a column that the model was trained on with some separator.
function tableWithColumn(text, textColumns) {
  for (const separator of [...SEPARATORS, NONE]) {
    const [header = [], ...rows] = parseRows(text, separator);
    const names = header.map((name) => name.trim());
    const found = textColumns.map((name) => names.indexOf(name)).filter((column) => column >= 0);
    const isSeparated = names.length > 1 || separator === NONE;
    if (found.length && isSeparated) return tableOf(header, rows, found);
  }
  return null;
}

// The table, if some separator gives all rows the same number of fields, and more than one.
function tableOfEqualRows(text) {
  for (const separator of SEPARATORS) {
    const [header = [], ...rows] = parseRows(text, separator);
    const width = header.length;
    const areEqual = rows.length > 0 && rows.every((row) => row.length === width);
    if (width > 1 && areEqual && !isProse(header, separator)) {
      return tableOf(header, rows, [widestColumn(rows)]);
    }
  }
  return null;
}

// Whether a line is a sentence: a space follows each of its commas or semicolons.
function isProse(fields, separator) {
  const isInProse = separator === "," || separator === ";";
  return isInProse && fields.slice(1).every((field) => field.startsWith(" "));
}

// A table of one column, with a text on each line that is not blank.
function tableOfLines(text) {
  const lines = text.split(/\r\n|\n|\r/).filter((line) => line.trim());
  const rows = lines.map((line) => [line]);
  return tableOf(["text"], rows, [0]);
}

// A table, in which each column has a name and each row has all columns.
function tableOf(header, rows, textColumns) {
  if (!rows.length) throw new Error("has no texts");
  rows.forEach((row, index) => {
    if (row.slice(header.length).some((field) => field.trim())) {
      throw new Error(
        `row ${index + 2} has ${row.length} fields, but the header has ${header.length}; ` +
          "put texts with a separator between quotes",
      );
    }
  });
  const names = header.map((name, column) => name.trim() || `column ${column + 1}`);
  const complete = rows.map((row) => names.map((_, column) => row[column] ?? ""));
  return { names, rows: complete, textColumns };
}

// The column whose cells are longest.
function widestColumn(rows) {
  const lengths = rows[0].map((_, column) =>
    rows.reduce((total, row) => total + row[column].length, 0),
  );
  return lengths.indexOf(Math.max(...lengths));
}

// The rows of CSV. A quoted field may contain separators, line ends and doubled quotes.
// A row ends with a line feed, a carriage return or both; blank rows are left out.
function parseRows(text, separator) {
  const rows = [];
  let row = [];
  let field = "";
  let isQuoted = false;

  const endField = () => {
    row.push(field);
    field = "";
  };
  const endRow = () => {
    endField();
    const isBlank = row.length === 1 && !row[0].trim();
    if (!isBlank) rows.push(row);
    row = [];
  };

  for (let index = 0; index < text.length; index++) {
    const character = text[index];
    if (isQuoted && character === '"' && text[index + 1] === '"') {
      // A doubled quote stands for one quote.
      field += '"';
      index++;
    } else if (isQuoted && character === '"') {
      isQuoted = false;
    } else if (isQuoted) {
      field += character;
    } else if (character === '"' && field === "") {
      isQuoted = true;
    } else if (character === separator) {
      endField();
    } else if (character === "\n") {
      endRow();
    } else if (character === "\r") {
      // Before a line feed, the line feed ends the row.
      if (text[index + 1] !== "\n") endRow();
    } else {
      field += character;
    }
  }
  if (field || row.length) endRow();
  return rows;
}

// CSV for spreadsheets: the columns of the table, then those of the predictions. Codes have the name
// beside them if there are any names, and a column for each of their levels.
function writeTable({ names, rows }, predictions, { hasNames, numLevels }) {
  const levels = Array.from({ length: numLevels }, (_, index) => index);
  const columns = ["label"];
  if (hasNames) columns.push("name");
  columns.push("probability", ...levels.map((level) => `level_${level + 1}`));
  columns.push("unfamiliar", "reason");

  const taken = [...names];
  for (const name of columns) taken.push(freeName(name, taken));

  const lines = [taken];
  rows.forEach((row, index) => {
    const { label, labels, name, probability, path, unfamiliar, reason } = predictions[index];
    const values = [labels ? labels.join("|") : label];
    if (hasNames) values.push(name);
    values.push(probability?.toFixed(4), ...levels.map((level) => path[level]?.label));
    lines.push([...row, ...values, unfamiliar, reason]);
  });
  return "\ufeff" + lines.map((line) => line.map(cell).join(",") + "\r\n").join("");
}

function freeName(name, taken) {
  while (taken.includes(name)) name = `predicted_${name}`;
  return name;
}

function cell(value) {
  let text = String(value ?? "");
  if (FORMULA.test(text) && !NEGATIVE.test(text)) text = `'${text}`;
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

// The text of a file in UTF-8, in UTF-16 with a mark, or else in the encoding of Western Windows.
function decode(bytes) {
  const [first, second] = bytes;
  if (first === 0xff && second === 0xfe) return new TextDecoder("utf-16le").decode(bytes);
  if (first === 0xfe && second === 0xff) return new TextDecoder("utf-16be").decode(bytes);
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    return new TextDecoder("windows-1252").decode(bytes);
  }
}
