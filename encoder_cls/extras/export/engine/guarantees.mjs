// Thresholds that guarantee a precision or a coverage, from counts of held-out texts.

// The probability that a guaranteed precision holds.
const CONFIDENCE = 0.9;
// The thresholds that can be chosen: the probability 0, then those at equal steps of the log odds.
const LOWEST_LOG_ODDS = -12;
const STEP = 0.1;
// The number of sequences of tests, and where in its part of the texts each begins.
const MAX_STARTS = 4;
const START_WITHIN_PART = 0.25;

// Counts of predictions at each threshold, which guarantee a precision.
class PrecisionCounts {
  // The counts of predictions with at least the probability of each threshold, and of those of them
  // that are correct, (thresholds,), as the model file has them.
  constructor({ num_confident: confident, num_correct: correct }) {
    this.numConfident = confident;
    this.numCorrect = correct;
    this.numTexts = confident[0];

    this.logFactorials = [0];
    for (let number = 1; number <= this.numTexts; number++) {
      this.logFactorials.push(this.logFactorials[number - 1] + Math.log(number));
    }
  }

  // The lowest threshold from which predictions are guaranteed to have a precision; undefined if it
  // cannot be guaranteed. Thresholds are tested from the highest one down, in several sequences,
  // until one fails an exact binomial test.
  precisionThreshold(precision) {
    if (precision <= 0) return 0;

    const starts = this.sequenceStarts(precision);
    let lowest = Infinity;
    for (const start of starts) {
      const error = (1 - CONFIDENCE) / starts.length;
      for (let index = this.numConfident.length - 1; index >= 0; index--) {
        if (this.numConfident[index] < start) continue;
        if (!this.hasPrecision(index, precision, error)) break;
        lowest = Math.min(lowest, index);
      }
    }
    return lowest < Infinity ? thresholdAt(lowest) : undefined;
  }

  // For each sequence of tests, the number of most confident texts that its first test is about.
  sequenceStarts(precision) {
    if (precision >= 1) return [];

    const error = 1 - CONFIDENCE;
    const affordable = Math.floor(this.numTexts / (2 * minTexts(precision, error)));
    const numStarts = Math.max(1, Math.min(MAX_STARTS, affordable));
    const earliest = minTexts(precision, error / numStarts);

    const starts = new Set();
    for (let part = 0; part < numStarts; part++) {
      const start = Math.floor((this.numTexts * (part + START_WITHIN_PART)) / numStarts);
      starts.add(Math.max(earliest, start));
    }
    return [...starts];
  }

  hasPrecision(index, precision, error) {
    const numTexts = this.numConfident[index];
    const numCorrect = this.numCorrect[index];
    if (numCorrect <= numTexts * precision) return false;
    return this.binomialTail(numCorrect, numTexts, precision) <= error;
  }

  // The probability of at least `numCorrect` successes in `numTexts` trials.
  binomialTail(numCorrect, numTexts, precision) {
    const logFactorials = this.logFactorials;
    let tail = 0;
    for (let k = numCorrect; k <= numTexts; k++) {
      const logWays = logFactorials[numTexts] - logFactorials[k] - logFactorials[numTexts - k];
      const logSuccesses = k * Math.log(precision) + (numTexts - k) * Math.log1p(-precision);
      tail += Math.exp(logWays + logSuccesses);
    }
    return tail;
  }
}

export class Guarantees extends PrecisionCounts {
  // Further counts: texts whose label has at least the probability of each threshold; with several
  // labels a text, the predictions of each label.
  constructor({ num_covered: covered, labels = [], ...counts }) {
    super(counts);
    this.numCovered = covered;
    this.labels = labels.map((countsOfLabel) => new PrecisionCounts(countsOfLabel));
  }

  // The highest threshold from which classes form sets that are guaranteed to have a coverage;
  // undefined if it cannot be guaranteed.
  coverageThreshold(coverage) {
    const numWanted = Math.ceil(rounded((this.numTexts + 1) * coverage));
    for (let index = this.numCovered.length - 1; index >= 0; index--) {
      if (this.numCovered[index] >= numWanted) return thresholdAt(index);
    }
    return undefined;
  }

  // With several labels a text, the threshold of each label from which it is guaranteed to have a
  // precision, in the order of the labels; infinite if that cannot be guaranteed.
  labelThresholds(precision) {
    return this.labels.map((counts) => counts.precisionThreshold(precision) ?? Infinity);
  }
}

// The smallest number of texts that show a precision if all predictions are correct.
function minTexts(precision, error) {
  return Math.ceil(rounded(Math.log(error) / Math.log(precision)));
}

// Rounds to 9 digits, so that an error of floating point does not add a text.
function rounded(number) {
  return Math.round(number * 1e9) / 1e9;
}

function thresholdAt(index) {
  if (index === 0) return 0;
  const logOdds = LOWEST_LOG_ODDS + (index - 1) * STEP;
  return 1 / (1 + Math.exp(-logOdds));
}
