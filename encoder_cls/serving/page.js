// The maximum number of labels that the page lists.
const MAX_LABELS = 1000;

// The JSON of a response; throws an error with the server's message.
async function request(path, options) {
  const response = await fetch(path, options);
  const result = await response.json();
  if (!response.ok) throw new Error(result.error);
  return result;
}

async function predict(text) {
  const fields = { texts: [text], top_k: 5, explain: byId("explain").checked };
  const result = await request("predict", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(fields),
  });
  return result.predictions[0];
}

function showModel({ labels, model }) {
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
  const text = byId("text").value;
  byId("send").disabled = true;
  byId("error").textContent = "";

  try {
    byId("predictions").prepend(shown(text, await predict(text)));
  } catch (error) {
    showError(error);
  }
  byId("send").disabled = false;
});

byId("text").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) byId("form").requestSubmit();
});

byId("example").textContent =
  `curl ${new URL("predict", location)} -H "Content-Type: application/json"` +
  ` -d '{"texts": ["a text"]}'`;

request("health").then(showModel, showError);
