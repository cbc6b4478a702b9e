// Whether a text is out of distribution: different from all texts that the model was measured on.

// The weight of low confidence in the score of a text. Each feature of rarity has the weight 1.
const CONFIDENCE_WEIGHT = 3;
// The weights of the two features of evidence.
const EVIDENCE_WEIGHTS = [6, 4];
// A feature of rarity that lies further above its mean has an additional weight.
const FAR = 4;
const FAR_WEIGHT = 2;
// Larger log odds are cut off here.
const MAX_LOG_ODDS = 30;
// The features that every model measures: the fraction of unknown tokens, and the confidence.
const NUM_COMMON_FEATURES = 2;

// Whether a text is unfamiliar. `distribution` is the one of the model file; `linearFeatures` are
// those of the linear model, or empty.
export function isUnfamiliar(distribution, linearFeatures, unknownFraction, probabilities) {
  const features = [...linearFeatures, unknownFraction, -logOddsOfBest(probabilities)];
  return score(distribution, features) >= distribution.threshold;
}

function logOddsOfBest(probabilities) {
  const best = Math.max(...probabilities);
  const logOdds = Math.log(best / Math.max(1 - best, Math.exp(-MAX_LOG_ODDS)));
  return Math.min(logOdds, MAX_LOG_ODDS);
}

// The weighted sum of the standardized features; a constant feature says nothing.
function score({ means, deviations }, features) {
  const standardized = features.map((feature, index) =>
    deviations[index] > 0 ? (feature - means[index]) / deviations[index] : 0,
  );
  const hasLinear = means.length > NUM_COMMON_FEATURES;
  const evidence = hasLinear ? standardized.slice(0, EVIDENCE_WEIGHTS.length) : [];
  const rarity = standardized.slice(evidence.length, -1);
  const lowConfidence = standardized.at(-1);

  let total = CONFIDENCE_WEIGHT * Math.max(0, lowConfidence);
  for (const number of rarity) {
    total += Math.max(0, number);
    if (hasLinear) total += FAR_WEIGHT * Math.max(0, number - FAR);
  }
  evidence.forEach((number, index) => {
    total += EVIDENCE_WEIGHTS[index] * number;
  });
  return total;
}
