// A component of Portico's interfaces.
const schema = { type: "object", properties: { a: { type: "number" }, b: { type: "number" } } };
const text = (value) => ({ type: "text", text: value });

export const toolsCapability = {
  listTools: () => JSON.stringify({ tools: [
    { name: "add", description: "Adds.", inputSchema: schema },
    { name: "fail", inputSchema: schema },
  ] }),
  callTool(name, args) {
    const given = JSON.parse(args);
    if (name === "add") return JSON.stringify({ content: [text(String(given.a + given.b))], structuredContent: { sum: given.a + given.b } });
    if (name === "fail") throw "it failed";
    if (name === "refuse") throw JSON.stringify({ code: -32602, message: "refused", data: { why: "test" } });
    if (name === "trap") throw new Error("boom");
    if (name === "notJson") return "{";
    if (name === "loop") for (;;);
    return "null";
  },
};

export const resourcesCapability = {
  listResources: () => JSON.stringify({ resources: [{ uri: "note://1", name: "one" }] }),
  listResourceTemplates: () => JSON.stringify({ resourceTemplates: [{ uriTemplate: "note://{id}", name: "note" }] }),
  readResource: (uri) => JSON.stringify(uri === "note://1" ? { contents: [{ uri, text: "hello" }] } : null),
};

export const promptsCapability = {
  listPrompts: () => JSON.stringify({ prompts: [{ name: "greet", arguments: [{ name: "who" }] }] }),
  getPrompt(name, args) {
    if (name !== "greet") return "null";
    return JSON.stringify({ messages: [{ role: "user", content: text(`Hello ${JSON.parse(args).who}`) }] });
  },
};

export const completionsCapability = {
  complete: (params) => JSON.stringify({ completion: { values: [JSON.parse(params).argument.value + "da"] } }),
};
