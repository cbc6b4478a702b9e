"use strict";

// The keys of classes: digits from 1, then letters.
const CLASS_KEYS = "123456789abcdefghij";
// From this number of classes on, a person types to find a class.
const FILTERED = 20;
// The milliseconds between two looks for news of the model.
const LOOK_EVERY = 2000;
// The milliseconds after which the server counts as gone.
const PATIENCE = 20000;
const GONE =
  "No connection to encoder-cls. All labels up to here are saved: start the same command again, and use its new page.";

const byId = (id) => document.getElementById(id);

// What the server said last.
let state = null;
// The labels that are switched on, of several labels.
let chosen = new Set();
// Whether a request is on its way. Keys are ignored meanwhile, so that no text is labelled unseen.
let isBusy = false;
// The number of actions so far. News that were asked for before the last action are out of date.
let numActions = 0;

function element(name, className, text) {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

// The JSON of a response; throws an error with the server's message.
async function request(path, fields) {
  const options = { signal: AbortSignal.timeout(PATIENCE) };
  if (fields) {
    options.method = "POST";
    options.headers = { "Content-Type": "application/json" };
    options.body = JSON.stringify(fields);
  }

  let response;
  let result;
  try {
    response = await fetch(path, options);
    result = await response.json();
  } catch {
    throw new Error(GONE);
  }
  if (!response.ok) throw new Error(result.error);
  return result;
}

// Do something on the server, and show what it says. After a refusal, show the state as it is now.
async function act(path, fields) {
  if (isBusy) return false;
  isBusy = true;
  numActions += 1;
  let isDone = false;
  try {
    show(await request(path, fields));
    byId("error").textContent = "";
    isDone = true;
  } catch (error) {
    byId("error").textContent = error.message;
  }
  isBusy = false;
  if (!isDone) await refresh();
  return isDone;
}

// Show what other pages or the model have changed, unless a person has done something meanwhile. The
// message of an error stays.
async function refresh() {
  const numBefore = numActions;
  try {
    const newState = await request(`state?back=${state?.back ?? 0}`);
    if (numActions === numBefore) show(newState);
    if (byId("error").textContent === GONE) byId("error").textContent = "";
  } catch (error) {
    if (numActions === numBefore) byId("error").textContent = error.message;
  }
}

const look = (back) => act(`state?back=${back}`);

// Whether the guess for this text is on the page.
const showsGuess = () => Boolean(state.text?.guess) && !byId("hide").checked;

function label(labels) {
  const shown = showsGuess() ? state.text.guess.labels : [];
  return act("label", {
    key: state.text.key,
    labels,
    shown_guess: shown,
    is_change: state.back > 0,
  });
}

function choose(name) {
  if (!state.text) return;
  byId("filter").value = "";
  if (!state.is_multi_label) {
    label([name]);
    return;
  }
  if (chosen.has(name)) chosen.delete(name);
  else chosen.add(name);
  showClasses();
}

// Enter: accept the guess, save several labels, or keep the label that is reviewed.
function confirm() {
  if (!state.text) return;
  if (state.is_multi_label) label([...chosen]);
  else if (state.is_review && !state.back) label(state.text.guess.labels_now);
  else if (showsGuess()) label(state.text.guess.labels);
}

function skip(why) {
  if (state.text && !state.back) act("skip", { key: state.text.key, why });
}

function forward() {
  if (state.back) look(state.back - 1);
  else skip("skipped");
}

const undo = () => act("undo", { num_asked: state.num_asked });
const goBack = () => look(Math.min(state.back + 1, state.num_asked));

function show(newState) {
  const isNew = !state || state.text?.key !== newState.text?.key || state.back !== newState.back;
  state = newState;
  if (isNew) {
    chosen = new Set(state.text?.labels ?? state.text?.guess?.labels_now ?? []);
    showText();
  }
  showClasses();
  showGuess();
  showWords();
  showProgress();
  showLast();
  showCounts();
  showModel(state.model);
}

function showText() {
  const text = state.text;
  let shown = "Every text has been asked. Stop the program with Ctrl-C, and train.";
  if (text) shown = text.text;
  if (text?.num_left_out) {
    shown += `\n… and ${text.num_left_out.toLocaleString("en")} more characters`;
  }
  byId("text").textContent = shown;
  byId("text").scrollTop = 0;

  byId("columns").replaceChildren();
  for (const [name, value] of text?.columns ?? []) {
    const pair = element("div");
    const cell = element("dd", "", value);
    cell.dir = "auto";
    pair.append(element("dt", "", name), cell);
    byId("columns").append(pair);
  }

  byId("position").hidden = !state.back;
  byId("position").textContent = "";
  if (state.back) {
    const place = state.back === 1 ? "the last text" : `${state.back} texts back`;
    const was = text.labels ? `labelled ${named(text.labels)}` : text.why_skipped;
    byId("position").textContent = `${place}, ${was}; another label replaces it`;
  }
}

const named = (labels) => (labels.length ? labels.join(" + ") : "no label");

function showClasses() {
  const isFiltered = state.classes.length >= FILTERED;
  byId("filter-line").hidden = !isFiltered;
  const wanted = isFiltered ? byId("filter").value.trim().toLowerCase() : "";
  const probabilities = new Map(showsGuess() ? state.text.guess.top : []);
  const guessed = showsGuess() ? state.text.guess.labels : [];
  const hadFocus = document.activeElement?.dataset?.name;

  byId("classes").replaceChildren();
  for (const [number, { name }] of state.classes.entries()) {
    if (!name.toLowerCase().includes(wanted)) continue;
    const button = element("button", guessed.includes(name) ? "guessed" : "");
    button.type = "button";
    button.dataset.name = name;
    button.disabled = !state.text;
    button.append(element("bdi", "", name));

    const key = CLASS_KEYS[number];
    if (!isFiltered && key && byId("keys").checked) {
      button.append(element("kbd", "", key));
      button.setAttribute("aria-keyshortcuts", key);
    }
    if (probabilities.has(name)) {
      const percent = Math.round(100 * probabilities.get(name));
      button.append(element("small", "", `model: ${percent}%`));
    }
    if (state.is_multi_label || state.back) {
      button.setAttribute("aria-pressed", String(chosen.has(name)));
    }
    button.addEventListener("click", () => choose(name));
    byId("classes").append(button);
    if (name === hadFocus) button.focus();
  }

  byId("confirm").hidden = !state.is_multi_label && !(state.is_review && state.text && !state.back);
  byId("confirm-name").textContent = state.is_multi_label ? "Save these labels" : "Keep the label";
  byId("confirm").disabled = !state.text;
  byId("add").hidden = state.is_review;
  byId("add-form").hidden = state.is_review;
  byId("skip").firstChild.textContent = state.back ? "Forward " : "Skip ";
  byId("skip").disabled = !state.text;
  byId("no-class").disabled = !state.text || state.back > 0;
  byId("undo").disabled = !state.num_asked;
  byId("back").disabled = state.back >= state.num_asked;
}

function showGuess() {
  let line = "";
  if (!state.classes.length) {
    line = "There is no class yet: press + and name one.";
  } else if (state.text && !state.back && state.is_review) {
    const { labels, labels_now: labelsNow, top } = state.text.guess;
    const what = labelsNow.length > 1 ? "labels are" : "label is";
    const probable = top.length ? ` (${Math.round(100 * top[0][1])}% probable)` : "";
    line = `The ${what} ${named(labelsNow)}${probable}; the model's guess is ${named(labels)}.`;
  } else if (state.text && !state.back && state.model) {
    if (state.text.how === "random" && state.model.has_guesses) {
      line = "Drawn at random: the model's guess is hidden until you have labelled it.";
    } else if (showsGuess()) {
      const guess = named(state.text.guess.labels);
      line = state.is_multi_label ? `The model's guess: ${guess}` : `The model's guess: ${guess} (Enter)`;
    }
  }
  byId("guess").textContent = line;
}

// The words for and against the classes of a review.
function showWords() {
  const words = state.text && !state.back && !byId("hide").checked ? state.text.words : null;
  byId("words").hidden = !words;
  const body = byId("words").tBodies[0];
  body.replaceChildren();
  for (const { name, words_for, words_against } of words ?? []) {
    const row = element("tr");
    const cells = [name, words_for.join(", "), words_against.join(", ")];
    for (const [number, text] of cells.entries()) {
      const cell = element("td", number ? "text" : "", text);
      cell.dir = "auto";
      row.append(cell);
    }
    body.append(row);
  }
}

function showProgress() {
  const count = (number) => number.toLocaleString("en");
  const skipped = state.num_skipped ? `, ${count(state.num_skipped)} without a label` : "";
  byId("progress").textContent =
    `${count(state.num_labelled)} labelled${skipped}, of ${count(state.num_texts)} different texts; saved in ${state.file}`;
}

function showLast() {
  const last = state.last;
  let line = "";
  if (last) {
    line = last.labels ? `Saved: ${named(last.labels)}` : `Noted: ${last.why_skipped}`;
    if (last.guess) line += ` (the model's guess was ${last.guess})`;
  }
  if (byId("last").textContent !== line) byId("last").textContent = line;
}

function showCounts() {
  const body = byId("counts").tBodies[0];
  // Do not replace a field in which a person is typing.
  if (body.contains(document.activeElement)) return;

  body.replaceChildren();
  for (const { name, count } of state.classes) {
    const row = element("tr");
    const cell = element("td");
    const form = element("form");
    const field = element("input");
    field.type = "text";
    field.setAttribute("aria-label", `new name of ${name}`);
    const button = element("button", "", "Rename");
    form.append(field, button);
    form.hidden = state.is_review;
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      field.blur();
      button.blur();
      await act("rename-class", { name, new_name: field.value });
    });
    cell.append(form);
    row.append(element("td", "", name), element("td", "", String(count)), cell);
    body.append(row);
  }
}

function showModel(model) {
  byId("model").hidden = !model;
  if (!model) return;
  byId("model-heading").textContent = state.is_review ? "The review so far" : "The model so far";
  byId("accuracy").textContent = model.accuracy;
  byId("outlook").textContent = model.outlook;
  byId("fitting").textContent = model.status;
  drawCurve(model.curve);
}

function svgElement(name, attributes, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

// The accuracy over the number of labels, with its interval.
function drawCurve(curve) {
  byId("curve").replaceChildren();
  if (curve.length < 2) return;

  // The size of the chart, and the width of the numbers on its left.
  const width = 420;
  const height = 170;
  const left = 48;
  const last = curve[curve.length - 1];
  const x = (labels) => left + (labels / last.labels) * (width - left - 14);
  const y = (accuracy) => 10 + (1 - accuracy) * (height - 40);
  const percent = (value) => `${Math.round(100 * value)}%`;
  const summary = `accuracy over labels: ${percent(curve[0].accuracy)} with ${curve[0].labels} labels, ${percent(last.accuracy)} with ${last.labels}`;
  const chart = svgElement("svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": summary });

  for (const level of [0, 0.25, 0.5, 0.75, 1]) {
    chart.append(svgElement("line", { class: "grid", x1: left, x2: width - 10, y1: y(level), y2: y(level) }));
    chart.append(svgElement("text", { x: left - 6, y: y(level) + 4, "text-anchor": "end" }, percent(level)));
  }
  for (const { labels, low, high } of curve) {
    chart.append(svgElement("line", { class: "axis", x1: x(labels), x2: x(labels), y1: y(low), y2: y(high) }));
  }
  const points = curve.map(({ labels, accuracy }) => `${x(labels)},${y(accuracy)}`);
  chart.append(svgElement("path", { class: "c1", d: `M${points.join("L")}` }));
  chart.append(svgElement("text", { x: x(last.labels), y: height - 10, "text-anchor": "end" }, `${last.labels} labels`));
  byId("curve").append(chart);
}

function addClass() {
  byId("manage").open = true;
  byId("new-class").focus();
}

// What each key does, besides those of the classes.
const COMMANDS = {
  Enter: confirm,
  ArrowRight: forward,
  ArrowLeft: goBack,
  Backspace: undo,
  0: () => skip("no class fits"),
  "+": () => {
    if (!state.is_review) addClass();
  },
};

document.addEventListener("keydown", (event) => {
  // Keys with modifiers belong to the browser.
  if (event.ctrlKey || event.altKey || event.metaKey || event.repeat || !state) return;
  const target = event.target;
  if (event.key === "Escape") {
    if (target === byId("filter")) target.value = "";
    else target.blur();
    showClasses();
    return;
  }

  const isFilter = target === byId("filter");
  const isField = target.matches("input, textarea, summary");
  if (isFilter && event.key === "Enter" && target.value.trim()) {
    const [first] = byId("classes").children;
    if (first) choose(first.dataset.name);
    event.preventDefault();
    return;
  }
  if (isField && !(isFilter && !target.value)) return;
  // Enter on a button presses the button.
  if (event.key === "Enter" && target.matches("button")) return;
  if (!byId("keys").checked && event.key.length === 1) return;

  const isFiltered = state.classes.length >= FILTERED;
  const number = CLASS_KEYS.indexOf(event.key.toLowerCase());
  if (!isFiltered && event.key.length === 1 && number >= 0 && number < state.classes.length) {
    choose(state.classes[number].name);
    event.preventDefault();
  } else if (Object.hasOwn(COMMANDS, event.key)) {
    COMMANDS[event.key]();
    event.preventDefault();
  } else if (isFiltered && event.key.length === 1 && !isFilter) {
    byId("filter").focus();
  }
});

byId("filter").addEventListener("input", showClasses);
byId("confirm").addEventListener("click", confirm);
byId("skip").addEventListener("click", forward);
byId("add").addEventListener("click", addClass);
byId("no-class").addEventListener("click", () => skip("no class fits"));
byId("undo").addEventListener("click", undo);
byId("back").addEventListener("click", goBack);
byId("keys").addEventListener("change", showClasses);
byId("hide").addEventListener("change", () => show(state));

byId("add-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const field = byId("new-class");
  if (await act("add-class", { name: field.value })) {
    field.value = "";
    field.blur();
  }
});

setInterval(() => {
  if (!document.hidden) refresh();
}, LOOK_EVERY);
look(0);
