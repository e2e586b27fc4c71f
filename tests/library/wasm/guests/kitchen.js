// Each function of `echo` returns its argument.
const same = (value) => value;

export const echo = {
  ofBool: same, ofU8: same, ofS8: same, ofU16: same, ofS16: same, ofU32: same, ofS32: same,
  ofU64: same, ofS64: same, ofF32: same, ofF64: same, ofChar: same, ofString: same, ofBytes: same,
  ofStrings: same, ofPair: same, ofColour: same, ofRights: same, ofPoint: same, ofShape: same,
  ofCount: same, ofMaybe: same, ofOption: same, ofTwice: same, ofNested: same,
  ofOutcome: (value) => [value],
  ofBare: (value) => [value],
};

class Counter {
  constructor(start) { this.value = start; }
  next() { this.value += 1; return this.value; }
}

export const work = {
  Counter,
  add: (a, b) => a + b,
  divide: (a, b) => {
    if (b === 0) throw "division by zero";
    return a / b;
  },
  moveBy: (start, by) => ({ x: start.x + by.x, y: start.y + by.y }),
  check: (text) => {
    if (text !== "fine") throw { x: 1, y: 2 };
  },
  note: (text) => {},
  fresh: () => new Counter(0),
};

export const shout = (text) => text.toUpperCase();
