// The classifier: a linear model, an encoder or both, and what was measured of them.

import { Codes } from "./codes.mjs";
import { Encoder } from "./encoder.mjs";
import { explain } from "./explanation.mjs";
import { isUnfamiliar } from "./familiarity.mjs";
import { Guarantees } from "./guarantees.mjs";
import { LinearModel, indexOfLargest } from "./linear.mjs";
import { TASKS } from "./probabilities.mjs";
import { isRow, plainRow, readable } from "./rows.mjs";
import { KEPT_PER_TOKEN, Tokenizer, UNK_ID } from "./tokenizer.mjs";
import { readWeights } from "./weights.mjs";
import { Words, numWordsOf } from "./words.mjs";

export class Classifier {
  // `bytes` are those of model.safetensors, `characters` is the table of characters.
  constructor(bytes, characters) {
    const { head, tensors } = readWeights(bytes);
    const { config, parts } = head;

    this.model = head.sha256;
    this.labels = Object.values(config.id2label);
    this.noneLabel = config.none_label;
    this.codes = new Codes(this.labels, config.levels ?? null, config.code_names ?? {});
    this.isMultiLabel = config.task === "multi-label";
    this.task = TASKS[config.task];
    this.maxSeqLen = config.max_seq_len;
    this.tokenizer = new Tokenizer(JSON.parse(head.tokenizer), characters, this.maxSeqLen);
    this.words = new Words(this.tokenizer);
    this.textColumns = config.text_columns;

    if (parts.includes("encoder")) {
      this.encoder = new Encoder(tensors, config.encoder, this.labels.length);
    }
    if (parts.includes("linear")) this.linear = new LinearModel(tensors, config.linear);
    this.mixtureWeights = head.mixture_weights;
    this.gate = head.gate;
    this.thresholds = head.thresholds;
    this.familiarity = head.familiarity;
    if (head.guarantees) this.guarantees = new Guarantees(head.guarantees);
  }

  // Classifies texts, or rows as objects of the columns that the model reads, and returns for each
  // the object that `encoder-cls predict --format jsonl` prints. All options may be left out:
  // - topK: how many of the most probable classes are listed in `top` (1);
  // - threshold: the probability below which labels are withheld (none);
  // - minPrecision: the share of kept labels that must be correct, in place of a threshold; with
  //   several labels a text, it holds for each label;
  // - wholeTexts: with several labels a text, whether minPrecision is the share of kept texts of
  //   which all labels must be correct (false);
  // - coverage: the share of texts whose `set` of classes must contain the right one;
  // - explain: whether the words that speak for and against the label are listed (false);
  // - maxExplainedTokens: the most tokens that are read to explain one text.
  predict(texts, options = {}) {
    const checkedOptions = this.checkedOptions(options);
    return this.checkedTexts(texts).flatMap((chunk) => this.predictChunk(chunk, checkedOptions));
  }

  // The probabilities of all classes of each text, in the order of `labels`.
  predictProba(texts) {
    return this.checkedTexts(texts).flatMap((chunk) => {
      const tokens = chunk.map((text) => this.words.tokenize(text).tokens);
      return this.partLogits(tokens).map((parts) => {
        return Array.from(this.task.probabilities(this.combined(parts)));
      });
    });
  }

  // The words of a text as the models read them, without [CLS].
  tokens(text) {
    const { tokens } = this.words.tokenize(this.rowOf(text));
    return tokens.slice(1).map(({ spelling }) => spelling);
  }

  // The features of a text that the linear model knows, as [id, count], and the ids of its other
  // features, both increasing. It shows that two engines read a text alike.
  features(text) {
    const { tokens } = this.words.tokenize(this.rowOf(text));
    const { counter, maxTokens } = this.linear;
    counter.count(tokens, Math.min(tokens.length, maxTokens));

    const found = Array.from(counter.found.subarray(0, counter.numFound)).sort((a, b) => a - b);
    const known = found.map((index) => [counter.ids[index], counter.counts[index]]);
    const unknown = Array.from(counter.unknown).sort((a, b) => a - b);
    return { known, unknown };
  }

  // Chunks of some texts and rows, each as one string.
  checkedTexts(texts) {
    if (typeof texts === "string" || !texts?.[Symbol.iterator]) {
      throw new TypeError("predict takes several texts; put a single one in a list: predict([text])");
    }
    const given = Array.from(texts);
    this.words.form?.checkFeatures(given);
    const checked = given.map((text, number) => this.rowOf(text, number));

    const chunks = [];
    for (let start = 0; start < checked.length; start += CHUNK_TEXTS) {
      chunks.push(checked.slice(start, start + CHUNK_TEXTS));
    }
    return chunks;
  }

  // A text or row as one string.
  rowOf(text, number = 0) {
    const { form } = this.words;
    const isObject = form && typeof text === "object" && text !== null;
    if (typeof text !== "string" && !isObject) {
      throw new TypeError(`texts[${number}] is not a string`);
    }
    return form ? form.row(text, this.textColumns, number) : plainRow(text);
  }

  // The options with their defaults, and with the thresholds that the guarantees need.
  checkedOptions(options) {
    checkOptions(options, this.isMultiLabel);

    const checked = {
      topK: options.topK ?? 1,
      threshold: options.threshold ?? null,
      explains: options.explain ?? false,
      maxExplainedTokens: options.maxExplainedTokens,
      textThreshold: null,
      labelThresholds: null,
      setThreshold: null,
    };
    const { minPrecision, wholeTexts, coverage } = options;
    if (minPrecision !== undefined) this.guaranteePrecision(checked, minPrecision, wholeTexts);
    if (coverage !== undefined) {
      const option = `coverage ${coverage}`;
      checked.setThreshold = guaranteed(option, this.measured(option).coverageThreshold(coverage));
    }
    return checked;
  }

  // Sets the thresholds that guarantee a precision: that of labels or of whole texts.
  guaranteePrecision(checked, precision, wholeTexts) {
    const option = `minPrecision ${precision}`;
    const guarantees = this.measured(option);
    if (this.isMultiLabel && !wholeTexts) {
      const thresholds = guarantees.labelThresholds(precision);
      const isPossible = thresholds.some((threshold) => threshold < Infinity);
      checked.labelThresholds = guaranteed(option, isPossible ? thresholds : undefined);
      return;
    }

    const threshold = guaranteed(option, guarantees.precisionThreshold(precision));
    if (this.isMultiLabel) checked.textThreshold = threshold;
    else checked.threshold = threshold;
  }

  // The guarantees that an option needs.
  measured(option) {
    if (this.guarantees) return this.guarantees;
    throw new RangeError(
      `${option}: this model has no guarantees; an export of the linear part alone has none`,
    );
  }

  predictChunk(texts, options) {
    const tokenized = texts.map((text) => this.words.tokenize(text));
    const partsOfTexts = this.partLogits(tokenized.map(({ tokens }) => tokens));
    return texts.map((text, index) => {
      return this.prediction(text, tokenized[index], partsOfTexts[index], options);
    });
  }

  // The prediction for a text, from its tokens and from the logits of each part.
  prediction(text, { tokens, isTruncated }, parts, options) {
    const probabilities = this.task.probabilities(this.combined(parts));
    const numWords = numWordsOf(tokens, this.maxSeqLen);
    const reason = this.reason(numWords, probabilities);
    const record = this.record(probabilities, Boolean(reason), options);

    const numUnknown = this.countUnknown(tokens);
    record.truncated = this.encoder ? isTruncated : this.isTooLong(tokens);
    record.unknown_words = numUnknown;
    const answeredBy = this.answeredBy(parts);
    if (answeredBy) record.answered_by = answeredBy;
    if (this.familiarity) {
      const unknownFraction = numUnknown / Math.max(1, numWords);
      const linearFeatures = parts.linearFeatures ?? [];
      record.unfamiliar = isUnfamiliar(
        this.familiarity, linearFeatures, unknownFraction, probabilities,
      );
    }

    if (reason) record.reason = reason;
    // The places of explained words are in this text.
    if (isRow(text)) record.text = readable(text).text;
    if (options.explains) {
      this.addExplanation(record, text, probabilities, reason === "blank", options);
    }
    return record;
  }

  // Why a text gets no class; undefined if it gets one.
  reason(numWords, probabilities) {
    if (numWords === 0) return "blank";
    const best = this.labels[indexOfLargest(probabilities)];
    return best === this.noneLabel ? "none" : undefined;
  }

  // The first keys of a prediction: the label or labels, the most probable classes, and the set.
  record(probabilities, hasReason, options) {
    const ranked = this.ranked(probabilities);
    const record = this.isMultiLabel
      ? this.multiLabelRecord(probabilities, ranked, hasReason, options)
      : this.singleLabelRecord(probabilities, ranked, hasReason, options);

    const numLabels = record.labels?.length ?? 0;
    const top = hasReason ? [] : ranked.slice(0, Math.max(options.topK, numLabels));
    record.top = top.map((answer) => this.codes.named(answer));
    if (options.setThreshold !== null) {
      record.set = hasReason ? [] : this.labelSet(ranked, options.setThreshold);
    }
    return record;
  }

  singleLabelRecord(probabilities, ranked, hasReason, { threshold }) {
    const [best] = ranked;
    const isKept = !hasReason && best.probability >= (threshold ?? 0);
    const record = isKept ? this.codes.named(best) : { label: null, probability: best.probability };
    if (hasReason) record.probability = null;
    if (this.codes.hasLevels) {
      record.path = isKept ? this.codes.path(best.label, probabilities) : [];
    }
    return record;
  }

  // If whole texts are kept or withheld, `probability` is that of all labels together. With
  // minPrecision, `withheld_labels` has the labels that are withheld.
  multiLabelRecord(probabilities, ranked, isBlank, options) {
    if (isBlank) {
      const hasWithheld = options.textThreshold !== null || options.labelThresholds !== null;
      return hasWithheld ? { labels: [], withheld_labels: [] } : { labels: [] };
    }
    const labels = this.labelsOf(probabilities, ranked, options);
    if (options.textThreshold !== null) {
      const probability = this.probabilityOfLabels(probabilities);
      const isKept = probability >= options.textThreshold;
      return { labels: isKept ? labels : null, probability, withheld_labels: isKept ? [] : labels };
    }
    if (options.labelThresholds === null) return { labels };

    const withoutGuarantee = { threshold: null, labelThresholds: null };
    const allLabels = this.labelsOf(probabilities, ranked, withoutGuarantee);
    const withheldLabels = allLabels.filter((label) => !labels.includes(label));
    return { labels, withheld_labels: withheldLabels };
  }

  // The classes with at least a probability; with one label a text, always the most probable one.
  labelSet(ranked, threshold) {
    const members = ranked.filter(({ probability }, place) => {
      return probability >= threshold || (place === 0 && !this.isMultiLabel);
    });
    return members.map(({ label }) => label);
  }

  // All classes with their probabilities, the most probable first, but for that of no answer.
  ranked(probabilities) {
    const all = this.labels.map((label, number) => {
      return { label, probability: probabilities[number] };
    });
    const ranked = all.filter(({ label }) => label !== this.noneLabel);
    return ranked.sort((a, b) => b.probability - a.probability);
  }

  // The labels that reach a threshold, or else their own thresholds, the most probable first. A
  // label whose precision is guaranteed reaches two thresholds.
  labelsOf(probabilities, ranked, { threshold, labelThresholds }) {
    const given = new Set();
    this.labels.forEach((label, number) => {
      const own = Math.max(this.thresholds[number], labelThresholds?.[number] ?? 0);
      if (probabilities[number] >= (threshold ?? own)) given.add(label);
    });
    return ranked.map(({ label }) => label).filter((label) => given.has(label));
  }

  // The probability that a text has exactly its labels, if labels are independent of each other.
  probabilityOfLabels(probabilities) {
    let product = 1;
    this.thresholds.forEach((threshold, number) => {
      const probability = probabilities[number];
      product *= probability >= threshold ? probability : 1 - probability;
    });
    return product;
  }

  addExplanation(record, text, probabilities, isBlank, { maxExplainedTokens }) {
    record.explanation = [];
    if (isBlank) return;
    const label = indexOfLargest(probabilities);
    const { explanation, leftOut } = explain(this, text, label, maxExplainedTokens);
    record.explanation = explanation;
    if (leftOut) record.explanation_left_out = leftOut;
  }

  // The logits of each part, (classes,), for each of several texts. By default, the linear model
  // decides which texts skip the encoder.
  partLogits(texts, skipsEncoder) {
    const partsOfTexts = texts.map((tokens) => this.linearParts(tokens, skipsEncoder));
    if (!this.encoder) return partsOfTexts;

    const remaining = texts.filter((_, index) => !partsOfTexts[index].skipsEncoder);
    const logits = this.encoder.logits(remaining);
    let next = 0;
    for (const parts of partsOfTexts) {
      if (!parts.skipsEncoder) parts.encoder = logits[next++];
    }
    return partsOfTexts;
  }

  linearParts(tokens, skipsEncoder) {
    if (!this.linear) return { skipsEncoder: false };
    const margins = this.linear.margins(tokens);
    const linear = this.task.marginsToLogits(margins);
    const parts = { linear, skipsEncoder: skipsEncoder ?? this.isSure(linear) };
    if (this.familiarity) parts.linearFeatures = this.linear.familiarity(margins);
    return parts;
  }

  // Whether the linear model alone predicts a text.
  isSure(linearLogits) {
    if (this.gate === null) return false;
    return this.task.confidence(this.task.probabilities(linearLogits)) >= this.gate;
  }

  // The weighted sum of the logits of both parts, (classes,).
  combined({ encoder, linear, skipsEncoder }) {
    if (skipsEncoder) return linear;
    const sums = new Float32Array(this.labels.length);
    const { encoder: encoderWeight, linear: linearWeight } = this.mixtureWeights;
    for (let number = 0; number < sums.length; number++) {
      let sum = 0;
      if (encoder) sum += encoderWeight * encoder[number];
      if (linear) sum += linearWeight * linear[number];
      sums[number] = sum;
    }
    return sums;
  }

  // Without an encoder, whether a text is longer than the linear model reads. A text of which as
  // many tokens are kept as possible may have had more.
  isTooLong(tokens) {
    const maxTokens = Math.min(this.linear.maxTokens, KEPT_PER_TOKEN * this.maxSeqLen - 1);
    return tokens.length > maxTokens;
  }

  countUnknown(tokens) {
    const numTokens = Math.min(tokens.length, this.maxSeqLen);
    let count = 0;
    for (let token = 0; token < numTokens; token++) if (tokens[token].id === UNK_ID) count++;
    return count;
  }

  // Which parts predict a text; undefined if both parts predict every text.
  answeredBy({ skipsEncoder }) {
    if (!this.encoder) return "linear";
    if (!this.linear) return "encoder";
    if (this.gate === null) return undefined;
    return skipsEncoder ? "linear" : "both";
  }
}

// The number of texts that are read at once.
const CHUNK_TEXTS = 256;
const OPTIONS = [
  "topK",
  "threshold",
  "minPrecision",
  "wholeTexts",
  "coverage",
  "explain",
  "maxExplainedTokens",
];

// Throws an error if an option is unknown, if its value is invalid, or if it excludes another one.
function checkOptions(options, isMultiLabel) {
  const unknown = Object.keys(options).filter((name) => !OPTIONS.includes(name));
  if (unknown.length) throw new TypeError(`${unknown[0]}: unknown option of predict`);

  const { topK = 1, threshold, minPrecision, wholeTexts, coverage } = options;
  if (!Number.isInteger(topK) || topK < 1) {
    throw new RangeError(`topK: invalid value ${topK} (expected a whole number from 1)`);
  }
  checkFraction("threshold", threshold);
  checkFraction("minPrecision", minPrecision);
  checkFraction("coverage", coverage);

  const hasThreshold = threshold !== undefined && threshold !== null;
  if (minPrecision !== undefined && hasThreshold) {
    throw new TypeError("threshold and minPrecision: leave out one of them");
  }
  if (wholeTexts && !isMultiLabel) {
    throw new TypeError("wholeTexts: is for models that predict several labels a text");
  }
  if (wholeTexts && minPrecision === undefined) {
    throw new TypeError("wholeTexts: needs minPrecision, which it applies to whole texts");
  }
}

// Throws an error if a value is given that is not a number from 0 to 1.
function checkFraction(name, value) {
  if (value === undefined || value === null) return;
  const isFraction = typeof value === "number" && value >= 0 && value <= 1;
  if (!isFraction) throw new RangeError(`${name}: invalid value ${value} (expected 0 to 1)`);
}

function guaranteed(option, threshold) {
  if (threshold === undefined) {
    throw new RangeError(`${option}: cannot be guaranteed by the held-out texts`);
  }
  return threshold;
}
