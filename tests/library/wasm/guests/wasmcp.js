// A component of wasmcp's interfaces, the same source for each of their versions.
const schema = JSON.stringify({ type: "object", properties: { a: { type: "number" }, b: { type: "number" } } });
const text = (value) => ({ tag: "text", val: { text: { tag: "text", val: value } } });
const fail = (tag, code, message, data) => { throw { tag, val: { code: code, message, data } }; };
const icon = { src: "https://example.com/i.png", mimeType: "image/png", sizes: ["48x48"], theme: "dark" };

function callTool(ctx, request) {
  const given = request.arguments === undefined ? {} : JSON.parse(request.arguments);
  switch (request.name) {
    case "add":
      return { content: [text(String(given.a + given.b))], structuredContent: JSON.stringify({ sum: given.a + given.b }) };
    case "media":
      return { content: [
        { tag: "image", val: { data: { tag: "blob", val: new Uint8Array([1, 2, 255]) }, mimeType: "image/png" } },
        { tag: "audio", val: { data: { tag: "blob", val: new Uint8Array([]) }, mimeType: "audio/wav" } },
        { tag: "resource-link", val: { uri: "note://1", name: "one", options: { title: "One", size: 5 } } },
        { tag: "embedded-resource", val: { resource: { tag: "text", val: { uri: "note://1", text: { tag: "text", val: "inside" }, options: { mimeType: "text/plain" } } } } },
        { tag: "text", val: { text: { tag: "text", val: "last" }, options: { annotations: { audience: ["user"], priority: 0.5, lastModified: "2026-01-01" }, meta: JSON.stringify({ k: 1 }) } } },
      ].filter((_, index) => given.only === undefined || index === given.only), meta: JSON.stringify({ "example.com/m": [1] }) };
    case "wrong": return { content: [text("it failed")], isError: true };
    case "context": return { content: [text(JSON.stringify({ version: ctx.protocolVersion, session: ctx.session ?? null }))] };
    case "notJson": return { content: [], structuredContent: "{" };
    case "refused": return fail("invalid-params", -32602, "no such thing", JSON.stringify({ why: "test" }));
    case "trap": throw new Error("boom");
    default: return undefined;
  }
}

export const tools = {
  listTools(ctx, request) {
    if (request.cursor === "bad") return fail("invalid-params", -32602, "bad cursor");
    if (request.cursor === "2") return { tools: [{ name: "wrong", inputSchema: schema }] };
    return { nextCursor: "2", meta: JSON.stringify({ page: 1 }), tools: [
      { name: "add", inputSchema: schema, options: { title: "Add", description: "Adds two numbers.", outputSchema: JSON.stringify({ type: "object" }), annotations: { readOnlyHint: true, openWorldHint: false }, meta: JSON.stringify({ x: 1 }), icons: [icon] } },
      { name: "media", inputSchema: schema },
    ] };
  },
  callTool,
};

export const resources = {
  listResources: () => ({ resources: [{ uri: "note://1", name: "one", options: { size: 5, mimeType: "text/plain", description: "A note." } }] }),
  listResourceTemplates: () => ({ resourceTemplates: [{ uriTemplate: "note://{id}", name: "note", options: { title: "Note" } }] }),
  readResource(ctx, request) {
    if (request.uri === "note://1") return { contents: [{ tag: "text", val: { uri: request.uri, text: { tag: "text", val: "hello" }, options: { mimeType: "text/plain", meta: JSON.stringify({ v: 2 }) } } }] };
    if (request.uri === "note://blob") return { contents: [{ tag: "blob", val: { uri: request.uri, blob: { tag: "blob", val: new Uint8Array([0, 128, 255]) } } }] };
    return undefined;
  },
};

export const prompts = {
  listPrompts: () => ({ prompts: [{ name: "greet", options: { description: "Greets.", arguments: [{ name: "who", required: true, description: "Whom." }] } }] }),
  getPrompt(ctx, request) {
    if (request.name !== "greet") return undefined;
    const given = JSON.parse(request.arguments ?? "{}");
    return { description: "A greeting.", messages: [{ role: "user", content: text(`Hello ${given.who}`) }] };
  },
};

export const completions = {
  complete(ctx, request) {
    if (request.ref.tag === "prompt" && request.ref.val.name === "greet") {
      const context = request.context?.arguments ?? "none";
      return { values: [`${request.argument.name}:${request.argument.value}`, context], total: 12, hasMore: true };
    }
    if (request.ref.tag === "resource-template") return { values: [request.ref.val] };
    return undefined;
  },
};
