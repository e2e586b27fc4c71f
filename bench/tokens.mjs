// Counts tokens as GPT-4o's tokenizer does: a JSON list of texts in, a JSON list of numbers out.
// It runs with the packages of `.tools`, which ESM would not find from here.
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";

const require = createRequire(new URL("../.tools/package.json", import.meta.url));
const { countTokens } = require("gpt-tokenizer/encoding/o200k_base");

// What looks like a special token is plain text here, and no reason to fail.
const plain = { disallowedSpecial: new Set() };
const texts = JSON.parse(readFileSync(0, "utf8"));
process.stdout.write(JSON.stringify(texts.map((text) => countTokens(text, plain))));
