// Misbehaves in every way that needs no WASI.
const text = (value) => JSON.stringify({ content: [{ type: "text", text: String(value) }] });
let calls = 0;

const tools = {
  add: ({ a, b }) => text(a + b),
  count: () => text(++calls),
  loop: () => { for (;;); },
  spin: ({ turns }) => { let sum = 0; for (let i = 0; i < turns; i++) sum += i; return text(sum); },
  recurse: () => { const deeper = (n) => 1 + deeper(n + 1); return text(deeper(0)); },
  grow: () => { const kept = []; for (;;) kept.push(new Uint8Array(1 << 20).fill(1)); },
  huge: ({ bytes }) => text("x".repeat(bytes)),
  broken: () => "{",
  list: () => "[1]",
  refuse: () => { throw JSON.stringify({ code: -32602, message: "refused", data: { why: "test" } }); },
};

export const toolsCapability = {
  listTools: () => JSON.stringify({
    tools: Object.keys(tools).map((name) => ({ name, inputSchema: { type: "object" } })),
  }),
  callTool: (name, args) => (name in tools ? tools[name](JSON.parse(args)) : "null"),
};
