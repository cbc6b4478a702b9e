// Classes that are codes: the codes above them, and the names that are shown beside them.

export class Codes {
  // `rule` is how a code is divided into levels: lengths of prefixes, a separator, or the code above
  // each code; null without levels. `names` are those of codes of any level.
  constructor(classes, rule, names) {
    this.rule = isMapping(rule) ? new Map(Object.entries(rule)) : rule;
    this.names = new Map(Object.entries(names));
    this.classes = classes;
    this.hasLevels = rule !== null;
    this.paths = classes.map((code) => this.codesTo(code));
  }

  // A code with its probability, and the name between them if it has one.
  named({ label, probability }) {
    const name = this.names.get(label);
    return name === undefined ? { label, probability } : { label, name, probability };
  }

  // The codes from the top to a class, each with the sum of the probabilities of its classes.
  path(label, probabilities) {
    return this.codesTo(label).map((code, level) => {
      let sum = 0;
      this.paths.forEach((path, number) => {
        // A class with fewer levels than others is itself its code at the levels below it.
        if ((path[level] ?? this.classes[number]) === code) sum += probabilities[number];
      });
      // Not more than 1 by the rounding of sums.
      return { label: code, name: this.names.get(code) ?? null, probability: Math.min(1, sum) };
    });
  }

  codesTo(code) {
    if (this.rule === null) return [code];
    if (this.rule instanceof Map) return this.codesByParents(code);
    // Prefixes that are longer than the code are the code itself.
    return [...new Set([...this.prefixes(code), code])];
  }

  codesByParents(code) {
    const codes = [code];
    while (this.rule.get(codes[0])) codes.unshift(this.rule.get(codes[0]));
    return codes;
  }

  prefixes(code) {
    if (typeof this.rule === "string") {
      const parts = code.split(this.rule);
      return parts.map((_, index) => parts.slice(0, index + 1).join(this.rule));
    }
    const characters = Array.from(code);
    return this.rule.map((length) => characters.slice(0, length).join(""));
  }
}

function isMapping(rule) {
  return typeof rule === "object" && rule !== null && !Array.isArray(rule);
}
