"use strict";

// How pages show a prediction: the text with its words in colours, the classes, and notes.

// The log odds from which a word has the full colour.
const STRONG = 2;
// The log odds from which a word has a colour.
const MIN_WEIGHT = 0.1;
// The number of shades of a colour.
const SHADES = 9;

const byId = (id) => document.getElementById(id);

function element(name, className, text) {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

// The class of a word in colour: blue for the label, orange against it.
function colourOf(weight) {
  if (Math.abs(weight) < MIN_WEIGHT) return "";
  const shade = Math.round((Math.abs(weight) / STRONG) * SHADES);
  const side = weight > 0 ? "for" : "against";
  return `${side} a${Math.min(SHADES, Math.max(1, shade))}`;
}

// The text with its words in colours.
function coloured(text, words) {
  // Places count characters, and a string of JavaScript counts UTF-16 units.
  const characters = Array.from(text);
  const cut = (start, stop) => characters.slice(start, stop).join("");

  const line = element("p", "words");
  line.dir = "auto";
  let end = 0;
  for (const word of words) {
    const span = element("span", colourOf(word.weight), cut(word.start, word.end));
    const sign = word.weight > 0 ? "+" : "";
    span.title = sign + word.weight.toFixed(2);

    line.append(cut(end, word.start), span);
    end = word.end;
  }
  line.append(cut(end));
  return line;
}

// A row of the table of classes; of several labels, those that the text is given have a mark.
function row(label, probability, isGiven) {
  const name = element("td", "", isGiven ? "✓ " : "");
  name.append(element("bdi", "", label));

  const bar = element("td", "bar", probability.toFixed(3));
  bar.style.setProperty("--v", probability);

  const made = element("tr");
  made.append(name, bar);
  return made;
}

// A label with the name beside it, if it is a code that has one.
const named = ({ label, name }) => (name ? `${label} ${name}` : label);

function notesOn(prediction) {
  const notes = [];
  const path = (prediction.path ?? []).map((code) => `${named(code)} ${code.probability.toFixed(3)}`);
  if (path.length) notes.push(path.join(" › "));
  if (prediction.reason) notes.push(`no label: ${prediction.reason}`);
  if (prediction.truncated) notes.push("longer than the encoder reads");

  const unknown = prediction.unknown_words;
  if (unknown) notes.push(`${unknown} unknown word${unknown > 1 ? "s" : ""}`);

  const leftOut = prediction.explanation_left_out;
  if (leftOut) notes.push(`the last ${leftOut} words are not explained`);
  return notes;
}

// A text with its prediction.
function shown(text, prediction) {
  const table = element("table", "full");
  for (const code of prediction.top) {
    table.append(row(named(code), code.probability, prediction.labels?.includes(code.label)));
  }

  const made = element("article");
  made.append(coloured(text, prediction.explanation ?? []), table);
  const notes = notesOn(prediction);
  if (notes.length) made.append(element("p", "note", notes.join("; ")));
  return made;
}

