// The worker of the page, which follows the engine in the same script. It predicts texts, so that
// the page itself stays responsive.

// The characters of the texts of a table that are predicted before other messages are read. They
// take some milliseconds by the linear model, a fifth of a second by an encoder.
const SLICE_CHARACTERS = 4000;
// The most tokens that are read to explain a text: a second or two, also with an encoder.
const MAX_EXPLAINED_TOKENS = 8192;
// The number of classes that the page shows of a text.
const TOP_K = 5;

let classifier;
// The numbers of the last text and of the last table that the page has sent.
let lastText = 0;
let lastTable = 0;

const handlers = {
  load({ model, characters }) {
    classifier = new Classifier(bytesOfBase64(model), JSON.parse(characters));
    postMessage({ kind: "ready" });
  },

  // Predicts at once, and explains the prediction if no other text has come meanwhile.
  text({ number, text, threshold }) {
    lastText = number;
    const options = { topK: TOP_K, threshold };
    const [prediction] = classifier.predict([text], options);
    postMessage({ kind: "text", number, text, prediction });

    const explained = { ...options, explain: true, maxExplainedTokens: MAX_EXPLAINED_TOKENS };
    setTimeout(() => {
      if (number !== lastText || prediction.reason) return;
      const [withWords] = classifier.predict([text], explained);
      postMessage({ kind: "text", number, text, prediction: withWords });
    });
  },

  table({ number, texts, threshold }) {
    lastTable = number;
    predictFrom(0, number, texts, threshold);
  },

  stop() {
    lastTable = 0;
  },
};

function predictFrom(first, number, texts, threshold) {
  if (number !== lastTable) return;
  let next = first;
  let numCharacters = 0;
  while (next < texts.length && numCharacters <= SLICE_CHARACTERS) {
    numCharacters += JSON.stringify(texts[next]).length;
    next++;
  }
  const predictions = classifier.predict(texts.slice(first, next), { threshold });
  postMessage({ kind: "rows", number, predictions });

  if (next < texts.length) setTimeout(() => predictFrom(next, number, texts, threshold));
}

onmessage = ({ data }) => {
  try {
    handlers[data.kind](data);
  } catch (error) {
    postMessage({ kind: "error", message: error.message });
  }
};
