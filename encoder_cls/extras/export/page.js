// The page of an exported classifier.

// The largest file that is read, in bytes; `encoder-cls predict` is for larger ones.
const MAX_FILE_BYTES = 100_000_000;
// The number of rows that the page shows of a table; the download has all.
const MAX_SHOWN_ROWS = 100;
const MAX_SHOWN_LENGTH = 200;
// The milliseconds without a key after which a screen reader is told the label.
const PAUSE = 700;

const dataOf = (id) => document.getElementById(id).textContent;
const settings = JSON.parse(dataOf("settings"));

const worker = new Worker(
  URL.createObjectURL(new Blob([dataOf("engine")], { type: "text/javascript" })),
);
worker.postMessage({ kind: "load", model: dataOf("model"), characters: dataOf("characters") });

let textNumber = 0;
let tableNumber = 0;
let pause;
// The table that is being predicted, with the texts of its rows and their predictions so far.
let table = null;
let texts = [];
let predictions = [];
// The columns with the texts, for each option that a person may choose.
let columnChoices = [];

// --- One text -----------------------------------------------------------------------------------

// The inputs of the columns by name, if the model reads several: the first one is that of the text.
const inputs = new Map();

function showColumns() {
  const [first, ...others] = settings.textColumns;
  inputs.set(first, byId("text"));
  byId("text-label").textContent = `${first}: the prediction appears as you type`;
  for (const name of [...others, ...settings.features]) {
    const input = element(settings.features.includes(name) ? "input" : "textarea");
    input.addEventListener("input", sendText);
    const label = element("label", "", name);
    label.append(input);
    byId("columns").append(label);
    inputs.set(name, input);
  }
}

// What the person has written: a text, or the columns of a row.
function written() {
  if (!inputs.size) return byId("text").value;
  return Object.fromEntries([...inputs].map(([name, { value }]) => [name, value]));
}

function sendText() {
  textNumber++;
  const text = written();
  const words = inputs.size ? settings.textColumns.map((name) => text[name]).join("") : text;
  if (words.trim()) {
    worker.postMessage({ kind: "text", number: textNumber, text, threshold: threshold() });
  } else {
    byId("prediction").replaceChildren();
    byId("spoken").textContent = "";
  }
}

function showText({ number, text, prediction }) {
  if (number !== textNumber) return;
  const made = shown(prediction.text ?? text, prediction);
  made.prepend(element("p", "result", resultOf(prediction)));
  if (prediction.unfamiliar) {
    const note = "unfamiliar: unlike all texts that the model was measured on";
    made.append(element("p", "note", note));
  }
  byId("prediction").replaceChildren(made);

  clearTimeout(pause);
  pause = setTimeout(() => {
    byId("spoken").textContent = resultOf(prediction);
  }, PAUSE);
}

function resultOf(prediction) {
  const { label, labels, probability, top, reason } = prediction;
  if (reason) return reason === "none" ? "None of the classes" : "No words";
  if (labels) return labels.join(", ") || "No label";
  if (label === null) return `Withheld: ${named(top[0])}, ${percent(probability)}`;
  return `${named(prediction)}, ${percent(probability)}`;
}

const percent = (share) => `${(100 * share).toFixed(share > 0.995 && share < 1 ? 1 : 0)}%`;

function threshold() {
  const value = byId("threshold").valueAsNumber;
  return value >= 0 && value <= 1 ? value : null;
}

// --- Many texts ---------------------------------------------------------------------------------

function openTable(content, name) {
  try {
    table = readTable(content, settings.textColumns);
  } catch ({ message }) {
    showError({ message: `${name}: ${message}` });
    return;
  }
  // Lines of text lack all columns but that of the text; in a table, a missing one is a mistake.
  const [missing] = missingColumns();
  if (missing !== undefined && table.names.length > 1) {
    showError({ message: `${name}: has no column ${missing}, which the model reads` });
    return;
  }
  showColumnChoices();
  predictTable();
}

// Each column is a choice. Columns that the model reads together are one more, which comes first.
function showColumnChoices() {
  const { names, textColumns } = table;
  if (isTableOfRows()) {
    byId("column-line").hidden = true;
    return;
  }
  const areJoined = textColumns.length > 1;
  columnChoices = names.map((_, column) => [column]);
  if (areJoined) columnChoices.unshift(textColumns);

  const options = columnChoices.map((columns) => {
    return element("option", "", columns.map((column) => names[column]).join(" + "));
  });
  byId("column").replaceChildren(...options);
  byId("column").selectedIndex = areJoined ? 0 : textColumns[0];
  byId("column-line").hidden = names.length < 2;
}

function predictTable() {
  tableNumber++;
  predictions = [];
  texts = isTableOfRows() ? table.rows.map(objectOf) : table.rows.map(textOf);

  byId("error").textContent = "";
  byId("rows").replaceChildren();
  byId("table").hidden = true;
  byId("download").hidden = true;
  byId("progress").max = texts.length;
  byId("progress").value = 0;
  byId("progress-line").hidden = false;
  worker.postMessage({ kind: "table", number: tableNumber, texts, threshold: threshold() });
}

// Whether the table has all columns that the model reads, where it reads several.
function isTableOfRows() {
  return settings.readsRows && missingColumns().length === 0;
}

// The columns that the table lacks, where the model reads several.
function missingColumns() {
  if (!settings.readsRows) return [];
  const wanted = [...settings.textColumns, ...settings.features];
  return wanted.filter((name) => !table.names.includes(name));
}

function objectOf(row) {
  return Object.fromEntries(table.names.map((name, column) => [name, row[column]]));
}

function textOf(row) {
  const columns = columnChoices[byId("column").selectedIndex];
  return columns.map((column) => row[column]).join(" ");
}

function showRows({ number, predictions: more }) {
  if (number !== tableNumber) return;
  for (const prediction of more) {
    const text = prediction.text ?? texts[predictions.length];
    if (predictions.length < MAX_SHOWN_ROWS) byId("rows").append(tableRow(text, prediction));
    predictions.push(prediction);
  }
  byId("table").hidden = false;

  const total = texts.length;
  byId("progress").value = predictions.length;
  byId("count").textContent = `${grouped(predictions.length)} of ${grouped(total)}`;
  if (predictions.length === total) endTable(total);
}

function endTable(total) {
  byId("progress-line").hidden = true;
  byId("download").hidden = false;
  const rest = total > MAX_SHOWN_ROWS ? `; the first ${MAX_SHOWN_ROWS} are shown` : "";
  byId("done").textContent = `${grouped(total)} texts are classified${rest}.`;
}

// A number with a comma between groups of three digits.
const grouped = (number) => number.toLocaleString("en");

function tableRow(text, prediction) {
  const label = element("td");
  const single = prediction.label ? named(prediction) : "—";
  label.append(element("bdi", "", prediction.labels?.join(", ") ?? single));
  const probability = prediction.probability ?? prediction.top[0]?.probability;
  const number = element("td", "", probability?.toFixed(3) ?? "");

  const cut = text.length > MAX_SHOWN_LENGTH ? `${text.slice(0, MAX_SHOWN_LENGTH)}…` : text;
  const shownText = element("td", "text", cut);
  shownText.dir = "auto";
  const note = prediction.reason ?? (prediction.unfamiliar ? "unfamiliar" : "");

  const made = element("tr");
  made.append(label, number, shownText, element("td", "text note", note));
  return made;
}

function stopTable() {
  worker.postMessage({ kind: "stop" });
  tableNumber++;
  byId("progress-line").hidden = true;
  byId("done").textContent = `Stopped after ${grouped(predictions.length)} texts.`;
}

function download() {
  const link = element("a");
  link.href = URL.createObjectURL(
    new Blob([writeTable(table, predictions, settings)], { type: "text/csv" }),
  );
  link.download = "predictions.csv";
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href));
}

async function openFiles(files) {
  if (!files.length) return;
  if (files.length > 1) {
    showError({ message: `${files.length} files were dropped; drop one at a time` });
    return;
  }
  const [file] = files;
  if (file.size > MAX_FILE_BYTES) {
    const limit = `${MAX_FILE_BYTES / 1e6} MB`;
    showError({ message: `${file.name}: is larger than ${limit}; use encoder-cls predict for it` });
    return;
  }
  openTable(decode(new Uint8Array(await file.arrayBuffer())), file.name);
}

// --- Events -------------------------------------------------------------------------------------

function showError({ message }) {
  byId("error").textContent = message;
}

const received = {
  ready() {
    for (const id of ["text", "many", "file", "classify"]) byId(id).disabled = false;
    byId("loading").textContent = "";
    byId("text").focus({ preventScroll: true });
    sendText();
  },
  text: showText,
  rows: showRows,
  error: showError,
};

worker.onmessage = ({ data }) => received[data.kind](data);
worker.onerror = showError;

if (settings.readsRows) showColumns();
byId("text").addEventListener("input", sendText);
byId("threshold").addEventListener("input", sendText);
byId("classify").addEventListener("click", () => openTable(byId("many").value, "the text field"));
byId("column").addEventListener("change", predictTable);
byId("stop").addEventListener("click", stopTable);
byId("download").addEventListener("click", download);
byId("file").addEventListener("change", (event) => openFiles(event.target.files));

// A file may be dropped anywhere on the page.
addEventListener("dragover", (event) => event.preventDefault());
addEventListener("drop", (event) => {
  event.preventDefault();
  openFiles(event.dataTransfer.files);
});
