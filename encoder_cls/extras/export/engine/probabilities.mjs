// From logits to probabilities, in single-label and multi-label tasks.

// In a single-label task, each text has one of the classes, and their probabilities sum to 1.
const SINGLE_LABEL = {
  marginsToLogits(margins) {
    if (margins.length === 1) return Float32Array.of(-margins[0], margins[0]);
    return margins.map((margin) => -log1pExp(-margin));
  },

  probabilities(logits) {
    const largest = Math.max(...logits);
    const exponentials = Float64Array.from(logits, (logit) => Math.exp(logit - largest));
    const sum = exponentials.reduce((total, exponential) => total + exponential, 0);
    return exponentials.map((exponential) => exponential / sum);
  },

  confidence(probabilities) {
    return Math.max(...probabilities);
  },

  // ln(p / (1 - p)) of the probability p of a class.
  logOdds(logits, label) {
    const others = Array.from(logits).filter((_, number) => number !== label);
    const largest = Math.max(...others);
    const sum = others.reduce((total, logit) => total + Math.exp(logit - largest), 0);
    return logits[label] - (largest + Math.log(sum));
  },
};

// In a multi-label task, each label is a question of its own; a margin is the log odds of a label.
const MULTI_LABEL = {
  marginsToLogits(margins) {
    return margins;
  },

  probabilities(logits) {
    return Float64Array.from(logits, (logit) => Math.exp(-log1pExp(-logit)));
  },

  // The probability of the least sure decision.
  confidence(probabilities) {
    return Math.min(...probabilities.map((probability) => Math.max(probability, 1 - probability)));
  },

  logOdds(logits, label) {
    return logits[label];
  },
};

export const TASKS = { "single-label": SINGLE_LABEL, "multi-label": MULTI_LABEL };

// ln(1 + exp(x)), without overflow.
function log1pExp(x) {
  return Math.max(x, 0) + Math.log1p(Math.exp(-Math.abs(x)));
}
