"use strict";

// The keys of classes: digits from 1, then letters.
const CLASS_KEYS = "123456789abcdefghij";
// From this number of classes on, a person types to find a class.
const FILTERED = 20;
// So many classes are shown then; a person types to see others.
const MOST_SHOWN = 40;
// The milliseconds between two looks for news of the model.
const LOOK_EVERY = 2000;
// The milliseconds after which the server counts as gone.
const PATIENCE = 20000;
const GONE =
  "No connection to encoder-cls. All labels up to here are saved: start the same command again, " +
  "and use its new page.";

const byId = (id) => document.getElementById(id);

// What the server said last.
let state = null;
// The labels that are switched on, of several labels.
let chosen = new Set();
// Whether a request is on its way. Keys are ignored meanwhile, so that no text is labelled unseen.
let isBusy = false;
// The number of actions so far. News that were asked for before the last action are out of date.
let numActions = 0;

// Let the keys belong to the page again. A button or a field that kept the focus would take Enter.
function leaveForText() {
  byId("text").focus({ preventScroll: true });
}

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

// Show what other pages or the model have changed, unless a person has done something meanwhile.
// The message of an error stays.
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
  else if (isReviewed()) label(state.text.guess.labels_now);
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
    if (document.activeElement?.matches("#asked button")) leaveForText();
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
    shown += `\n… and ${grouped(text.num_left_out)} more characters`;
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
const percent = (share) => `${Math.round(100 * share)}%`;
// A number with a comma between groups of three digits.
const grouped = (number) => number.toLocaleString("en");

// Whether there are so many classes that a person types to find one.
const hasFilter = () => state.classes.length >= FILTERED;

// Whether the label of a run is reviewed, and not one of the texts before it.
const isReviewed = () => Boolean(state.is_review && state.text && !state.back);

function showClasses() {
  byId("filter-line").hidden = !hasFilter();
  const wanted = hasFilter() ? byId("filter").value.trim().toLowerCase() : "";
  const hadFocus = document.activeElement?.dataset?.name;

  const found = [];
  for (const [number, made] of state.classes.entries()) {
    if (shownName(made).toLowerCase().includes(wanted)) found.push([made, CLASS_KEYS[number]]);
  }
  // What is chosen, or guessed by the model, comes first where not all classes can be shown.
  if (found.length > MOST_SHOWN) {
    const guess = showsGuess() ? state.text.guess : null;
    const first = [...chosen, ...(guess?.top ?? []).map(([name]) => name)];
    const place = new Map(first.map((name, number) => [name, number]));
    const placeOf = ([{ name }]) => place.get(name) ?? first.length;
    found.sort((one, other) => placeOf(one) - placeOf(other));
  }
  const buttons = found.slice(0, MOST_SHOWN).map(([made, key]) => classButton(made, key));
  const more = found.length - buttons.length;
  byId("more-classes").textContent = more > 0 ? `and ${grouped(more)} more: type to find one` : "";
  // A button that is replaced while the pointer is down would not be clicked.
  const html = buttons.map((button) => button.outerHTML).join("");
  if (html !== byId("classes").innerHTML) {
    byId("classes").replaceChildren(...buttons);
    buttons.find((button) => button.dataset.name === hadFocus)?.focus();
  }
  showActions();
}

// The name of a class, with the name beside its code behind it, if it has one.
const shownName = ({ name, beside }) => (beside ? `${name} ${beside}` : name);

// The button of a class: its name, its key, and the probability that the model's guess gives it.
function classButton(made, key) {
  const { name } = made;
  const guess = showsGuess() ? state.text.guess : null;
  const button = element("button", guess?.labels.includes(name) ? "guessed" : "");
  button.type = "button";
  button.dataset.name = name;
  button.disabled = !state.text;
  button.append(element("bdi", "", shownName(made)));

  if (key && !hasFilter() && byId("keys").checked) {
    button.append(element("kbd", "", key));
    button.setAttribute("aria-keyshortcuts", key);
  }
  const probability = new Map(guess?.top).get(name);
  if (probability !== undefined) {
    button.append(element("small", "", `model: ${percent(probability)}`));
  }
  if (state.is_multi_label || state.back) {
    button.setAttribute("aria-pressed", String(chosen.has(name)));
  }
  button.addEventListener("click", () => choose(name));
  return button;
}

// The buttons that stay the same for all texts.
function showActions() {
  byId("confirm").hidden = !state.is_multi_label && !isReviewed();
  byId("confirm-name").textContent = state.is_multi_label ? "Save these labels" : "Keep the label";
  byId("confirm").disabled = !state.text;
  byId("skip-name").textContent = state.back ? "Forward" : "Skip";
  byId("skip").disabled = !state.text;
  byId("no-class").disabled = !state.text || state.back > 0;
  byId("undo").disabled = !state.num_asked;
  byId("back").disabled = state.back >= state.num_asked;

  // A review cannot add classes.
  byId("add").hidden = state.is_review;
  byId("add-form").hidden = state.is_review;
}

function showGuess() {
  byId("guess").textContent = lineOfGuess();
}

// What is said of the guess for the text; empty if there is nothing to say.
function lineOfGuess() {
  if (!state.classes.length) return "There is no class yet: press + and name one.";
  if (isReviewed()) return lineOfReview(state.text.guess);
  if (!state.text || state.back || !state.model) return "";

  if (state.text.how === "random" && state.model.has_guesses) {
    return "Drawn at random: the model's guess is hidden until you have labelled it.";
  }
  if (!showsGuess()) return "";
  const line = `The model's guess: ${named(state.text.guess.labels)}`;
  return state.is_multi_label ? line : `${line} (Enter)`;
}

// The label that a run has, with its probability, and the model's guess.
function lineOfReview({ labels, labels_now: labelsNow, top }) {
  const what = labelsNow.length > 1 ? "labels are" : "label is";
  const probable = top.length ? ` (${percent(top[0][1])} probable)` : "";
  return `The ${what} ${named(labelsNow)}${probable}; the model's guess is ${named(labels)}.`;
}

// The words for and against the classes of a review.
function showWords() {
  const isHidden = state.back || byId("hide").checked;
  const words = isHidden ? null : state.text?.words;
  byId("words").hidden = !words;

  const body = byId("words").tBodies[0];
  body.replaceChildren();
  for (const { name, words_for: wordsFor, words_against: wordsAgainst } of words ?? []) {
    const row = element("tr");
    row.append(
      element("td", "", name),
      element("td", "text", wordsFor.join(", ")),
      element("td", "text", wordsAgainst.join(", ")),
    );
    for (const cell of row.cells) cell.dir = "auto";
    body.append(row);
  }
}

function showProgress() {
  const parts = [`${grouped(state.num_labelled)} labelled`];
  if (state.num_skipped) parts.push(`${grouped(state.num_skipped)} without a label`);
  parts.push(`of ${grouped(state.num_texts)} different texts; saved in ${state.file}`);
  byId("progress").textContent = parts.join(", ");
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
    cell.append(renameForm(name));
    row.append(element("td", "", name), element("td", "", String(count)), cell);
    body.append(row);
  }
}

// The form that gives a class another name; a review cannot rename classes.
function renameForm(name) {
  const field = element("input");
  field.type = "text";
  field.setAttribute("aria-label", `new name of ${name}`);
  const button = element("button", "", "Rename");

  const form = element("form");
  form.append(field, button);
  form.hidden = state.is_review;
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    leaveForText();
    await act("rename-class", { name, new_name: field.value });
  });
  return form;
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

const svgLine = (className, x1, y1, x2, y2) => {
  return svgElement("line", { class: className, x1, y1, x2, y2 });
};
// A text that ends at a point.
const svgText = (x, y, text) => svgElement("text", { x, y, "text-anchor": "end" }, text);

// The size of the chart, and its margins: the left one has the levels, the lower one the labels.
const WIDTH = 420;
const HEIGHT = 170;
const LEFT = 48;
const RIGHT = 14;
const TOP = 10;
const BOTTOM = 30;

// The accuracy over the number of labels, with its interval.
function drawCurve(curve) {
  byId("curve").replaceChildren();
  if (curve.length < 2) return;

  const first = curve[0];
  const last = curve[curve.length - 1];
  const summary =
    `accuracy over labels: ${percent(first.accuracy)} with ${first.labels} labels, ` +
    `${percent(last.accuracy)} with ${last.labels}`;
  const chart = svgElement("svg", {
    class: "chart",
    viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
    role: "img",
    "aria-label": summary,
  });

  // Where a number of labels and an accuracy are in the chart.
  const x = (labels) => LEFT + (labels / last.labels) * (WIDTH - LEFT - RIGHT);
  const y = (accuracy) => TOP + (1 - accuracy) * (HEIGHT - TOP - BOTTOM);

  for (const level of [0, 0.25, 0.5, 0.75, 1]) {
    chart.append(svgLine("grid", LEFT, y(level), WIDTH - 10, y(level)));
    chart.append(svgText(LEFT - 6, y(level) + 4, percent(level)));
  }
  for (const { labels, low, high } of curve) {
    chart.append(svgLine("axis", x(labels), y(low), x(labels), y(high)));
  }
  const points = curve.map(({ labels, accuracy }) => `${x(labels)},${y(accuracy)}`);
  chart.append(svgElement("path", { class: "c1", d: `M${points.join("L")}` }));
  chart.append(svgText(x(last.labels), HEIGHT - 10, `${last.labels} labels`));
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
  // Keys with modifiers belong to the browser, and keys that compose a character to the input method.
  // Safari says 229 of the Enter that ends a composition.
  if (event.ctrlKey || event.altKey || event.metaKey || event.repeat || !state) return;
  if (event.isComposing || event.keyCode === 229) return;

  if (event.key === "Escape") {
    leaveField(event.target);
  } else if (event.target === byId("filter") && event.target.value) {
    // A person is typing to find a class.
    if (event.key === "Enter") chooseFirst(event);
  } else if (!belongsToElement(event)) {
    obeyKey(event);
  }
});

function leaveField(field) {
  if (field === byId("filter")) field.value = "";
  else leaveForText();
  showClasses();
}

// Choose the first class that has the letters of the filter.
function chooseFirst(event) {
  if (!byId("filter").value.trim()) return;
  const [first] = byId("classes").children;
  if (first) choose(first.dataset.name);
  event.preventDefault();
}

// Whether the element with the focus uses the key itself. An empty filter leaves keys to the page.
function belongsToElement({ key, target }) {
  if (target === byId("filter")) return false;
  if (target.matches("button, summary")) return key === "Enter" || key === " ";
  if (target.matches("input[type=checkbox]")) return key === " ";
  return target.matches("input, textarea");
}

// The character or the name of a key. A key that gives no Latin letter, digit or + counts as the
// key at its place: 1 is typed as & on a French keyboard, as ۱ on a Persian one, and a as ф on a
// Russian one.
function meaningOf({ key, code, shiftKey }) {
  if (key.length > 1 || shiftKey || /[0-9a-z+]/i.test(key)) return key;
  const [, place] = /^(?:Digit|Numpad|Key)(.)$/.exec(code) ?? [];
  return place?.toLowerCase() ?? key;
}

// Do what a key stands for, on the page as a whole.
function obeyKey(event) {
  const isCharacter = event.key.length === 1;
  if (isCharacter && !byId("keys").checked) return;

  // The characters of a class's name are typed as they are.
  const key = hasFilter() ? event.key : meaningOf(event);
  const number = isCharacter ? CLASS_KEYS.indexOf(key.toLowerCase()) : -1;
  if (!hasFilter() && number >= 0 && number < state.classes.length) {
    choose(state.classes[number].name);
    event.preventDefault();
  } else if (Object.hasOwn(COMMANDS, key)) {
    COMMANDS[key]();
    event.preventDefault();
  } else if (hasFilter() && isCharacter) {
    byId("filter").focus();
  }
}

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
    leaveForText();
  }
});

// A click leaves the focus on what was clicked, and closing a part leaves it there, but Enter belongs
// to the page. The button's own action comes after this, and may move the focus on.
document.addEventListener(
  "click",
  (event) => {
    const isOfPointer = event.detail > 0;
    if (isOfPointer && event.target.closest("button, summary")) leaveForText();
  },
  true,
);
document.addEventListener(
  "toggle",
  ({ target }) => {
    if (!target.open && target.contains(document.activeElement)) leaveForText();
  },
  true,
);

setInterval(() => {
  if (!document.hidden) refresh();
}, LOOK_EVERY);
look(0);
