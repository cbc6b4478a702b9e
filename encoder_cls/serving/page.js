"use strict";
const byId = (id) => document.getElementById(id);
const MOST_LABELS = 1000;
const STRONG = 2, LEAST = 0.1; // log odds from which a word has its full colour, and any colour

function element(name, className, text) {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

// The text with its words in colours. The server counts characters, a string of JavaScript counts UTF-16 units.
function coloured(text, words) {
  const line = element("p", "words"), characters = Array.from(text);
  let end = 0;
  line.dir = "auto";
  const cut = (start, stop) => characters.slice(start, stop).join("");
  for (const word of words) {
    line.append(cut(end, word.start));
    const span = element("span", "", cut(word.start, word.end));
    const shade = Math.min(9, Math.max(1, Math.round((Math.abs(word.weight) / STRONG) * 9)));
    if (Math.abs(word.weight) >= LEAST) span.className = `${word.weight > 0 ? "for" : "against"} a${shade}`;
    span.title = (word.weight > 0 ? "+" : "") + word.weight.toFixed(2);
    line.append(span);
    end = word.end;
  }
  line.append(cut(end));
  return line;
}

function row(label, probability, isGiven) {
  const made = element("tr"), name = element("td", "", isGiven ? "✓ " : ""), bar = element("td", "bar", probability.toFixed(3));
  bar.style.setProperty("--v", probability);
  name.append(element("bdi", "", label));
  made.append(name, bar);
  return made;
}

function shown(text, result) {
  const made = element("article"), table = element("table", "full");
  made.append(coloured(text, result.explanation ?? []));
  // Of several labels those that the text is given have a mark.
  result.top.forEach(({ label, probability }) => table.append(row(label, probability, result.labels?.includes(label))));
  made.append(table);
  const notes = [];
  if (result.reason) notes.push(`no label: ${result.reason}`);
  if (result.truncated) notes.push("longer than the encoder reads");
  if (result.unknown_words) notes.push(`${result.unknown_words} unknown word${result.unknown_words > 1 ? "s" : ""}`);
  if (result.explanation_left_out) notes.push(`the last ${result.explanation_left_out} words are not explained`);
  if (notes.length) made.append(element("p", "note", notes.join("; ")));
  return made;
}

async function ask(path, options) {
  const reply = await fetch(path, options), result = await reply.json();
  if (!reply.ok) throw new Error(result.error);
  return result;
}

byId("form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const text = byId("text").value;
  byId("send").disabled = true;
  byId("error").textContent = "";
  try {
    const body = JSON.stringify({ texts: [text], top_k: 5, explain: byId("explain").checked });
    const result = await ask("predict", { method: "POST", headers: { "Content-Type": "application/json" }, body });
    byId("predictions").prepend(shown(text, result.predictions[0]));
  } catch (error) {
    byId("error").textContent = error.message;
  }
  byId("send").disabled = false;
});
byId("text").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) byId("form").requestSubmit();
});
byId("example").textContent = `curl ${new URL("predict", location)} -H "Content-Type: application/json" -d '{"texts": ["a text"]}'`;
ask("health").then(
  (result) => {
    byId("model").textContent = `${result.labels.length} labels, model ${result.model.slice(0, 12)}`;
    for (const label of result.labels.slice(0, MOST_LABELS)) byId("labels").append(element("li", "", label));
    const more = result.labels.length - MOST_LABELS;
    if (more > 0) byId("labels").append(element("li", "note", `and ${more} more`));
  },
  (error) => { byId("error").textContent = error.message; },
);
