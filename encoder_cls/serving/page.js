// The maximum number of labels that the page lists.
const MAX_LABELS = 1000;

// The JSON of a response; throws an error with the server's message.
async function request(path, options) {
  const response = await fetch(path, options);
  const result = await response.json();
  if (!response.ok) throw new Error(result.error);
  return result;
}

// The inputs of the columns by name, if the model reads several.
const columns = new Map();

async function predict() {
  const fields = { top_k: 5, explain: byId("explain").checked };
  if (columns.size) {
    fields.rows = [Object.fromEntries([...columns].map(([name, { value }]) => [name, value]))];
  } else {
    fields.texts = [byId("text").value];
  }
  const result = await request("predict", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(fields),
  });
  return result.predictions[0];
}

// How a program sends what the page does.
function showExample(fields) {
  byId("example").textContent =
    `curl ${new URL("predict", location)} -H "Content-Type: application/json"` +
    ` -d '${JSON.stringify(fields)}'`;
}

function showColumns(textColumns, features) {
  for (const name of [...textColumns, ...features]) {
    const input = element(features.includes(name) ? "input" : "textarea", "");
    const label = element("label", "note", name);
    label.append(input);
    byId("columns").append(label);
    columns.set(name, input);
  }
  byId("one-text").remove();
  showExample({ rows: [Object.fromEntries([...columns.keys()].map((name) => [name, "..."]))] });
}

function showModel({ labels, model, text_columns: textColumns, features }) {
  if (textColumns) showColumns(textColumns, features);
  byId("model").textContent = `${labels.length} labels, model ${model.slice(0, 12)}`;
  for (const label of labels.slice(0, MAX_LABELS)) {
    byId("labels").append(element("li", "", label));
  }

  const more = labels.length - MAX_LABELS;
  if (more > 0) byId("labels").append(element("li", "note", `and ${more} more`));
}

function showError(error) {
  byId("error").textContent = error.message;
}

byId("form").addEventListener("submit", async (event) => {
  event.preventDefault();
  byId("send").disabled = true;
  byId("error").textContent = "";

  try {
    const prediction = await predict();
    byId("predictions").prepend(shown(prediction.text ?? byId("text").value, prediction));
  } catch (error) {
    showError(error);
  }
  byId("send").disabled = false;
});

byId("form").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) byId("form").requestSubmit();
});

showExample({ texts: ["a text"] });
request("health").then(showModel, showError);
