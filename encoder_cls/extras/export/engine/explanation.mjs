// Explain a prediction: how much the log odds of a class fall when a word is left out.

import { partsOf, readable } from "./rows.mjs";

// The smallest weight of a word that counts as one for or against the class.
const MIN_WEIGHT = 0.1;
// The most tokens that are read to explain one text, which is read once for each of its words.
const MAX_TOKENS = 1 << 22;
// The characters of scripts without spaces between words.
const UNSPACED_CHARACTER =
  /[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uff66-\uff9f]/;

// Returns the words of a text with their weights for a class, and how many words at the end have
// none, because it would take too long.
export function explain(classifier, text, label, maxTokens = MAX_TOKENS) {
  const { tokens } = classifier.words.tokenize(text);
  const { shown, places } = placesOfTokens(classifier, text);
  const words = wordsOf(places.slice(0, classifier.maxSeqLen - 1), shown);

  const numTokens = Math.min(tokens.length, classifier.maxSeqLen);
  const affordable = Math.max(1, Math.floor(maxTokens / numTokens) - 1);
  let explained = words.slice(0, affordable);

  const weightsOf = occlusion(classifier, tokens, label);
  let weights = weightsOf(explained);
  const joined = joinedWords(explained, weights);
  if (joined.length < explained.length) {
    explained = joined;
    weights = weightsOf(joined);
  }

  // Features are read before the words, and shown after them; a mark is not shown.
  const count = characterCounter(shown);
  const explanation = explained
    .map((word, index) => ({ ...word, weight: weights[index] }))
    .filter(({ start, end }) => start < end)
    .sort((a, b) => a.start - b.start)
    .map(({ start, end, weight }) => ({
      word: shown.slice(start, end),
      start: count(start),
      end: count(end),
      weight,
    }));
  return { explanation, leftOut: words.length - Math.min(words.length, affordable) };
}

// What is shown of a text or row, and the places of its tokens there, without [CLS].
function placesOfTokens({ tokenizer, words: { form } }, row) {
  if (!form) return { shown: row, places: tokenizer.placesOfWords(row) };

  const { features, fields } = partsOf(row);
  const { text: shown, starts, places: placesOfFeatures } = readable(row);
  const places = [];
  const names = [...form.edges.keys()];
  form.tokensOfFeatures(features).forEach((tokens, number) => {
    const place = placesOfFeatures.get(names[number]) ?? [0, 0];
    for (let token = 0; token < tokens.length; token++) places.push(place);
  });

  const marks = form.marks(fields);
  fields.forEach(([, text], number) => {
    const first = starts[number];
    if (marks[number]) places.push([first, first]);
    for (const [start, end] of tokenizer.placesOfWords(text)) places.push([first + start, first + end]);
  });
  return { shown, places };
}

// Returns a function that computes the weights of words. The text without a word is classified by
// the same parts as the text, so that a weight does not show the difference between two parts.
function occlusion(classifier, tokens, label) {
  const [{ skipsEncoder }] = classifier.partLogits([tokens]);
  const logOdds = (texts) => {
    const partsOfTexts = classifier.partLogits(texts, skipsEncoder);
    return partsOfTexts.map((parts) => classifier.task.logOdds(classifier.combined(parts), label));
  };
  return (words) => {
    // The token at position 0 is [CLS].
    const shortened = words.map(({ first, last }) => [
      ...tokens.slice(0, first + 1),
      ...tokens.slice(last + 2),
    ]);
    const [whole, ...others] = logOdds([tokens, ...shortened]);
    return others.map((without) => whole - without);
  };
}

// Groups tokens that share a character to words: the first and the last token, and the place.
function wordsOf(places, text) {
  const words = [];
  places.forEach(([start, end], token) => {
    const before = words.at(-1);
    if (before && before.start <= start && start < before.end) {
      before.last = token;
      before.end = Math.max(before.end, end);
    } else {
      const isUnspaced = UNSPACED_CHARACTER.test(text[start]);
      words.push({ first: token, last: token, start, end, isUnspaced });
    }
  });
  return words;
}

// Joins neighbouring words of scripts without spaces if their weights have the same sign.
function joinedWords(words, weights) {
  const joined = [];
  let signBefore = 0;
  words.forEach((word, index) => {
    const weight = weights[index];
    const sign = Math.abs(weight) < MIN_WEIGHT ? 0 : Math.sign(weight);
    const before = joined.at(-1);

    const areNeighbours = before && before.end === word.start;
    const areUnspaced = areNeighbours && before.isUnspaced && word.isUnspaced;
    if (areUnspaced && sign !== 0 && sign === signBefore) {
      joined[joined.length - 1] = { ...before, last: word.last, end: word.end };
    } else {
      joined.push(word);
    }
    signBefore = sign;
  });
  return joined;
}

// Returns a function that converts increasing indices of a string to numbers of characters, of
// which some are two code units of the string.
function characterCounter(text) {
  let index = 0;
  let characters = 0;
  return (end) => {
    while (index < end) {
      index += text.codePointAt(index) > 0xffff ? 2 : 1;
      characters++;
    }
    return characters;
  };
}
