// Tools of Portico's interface that reach the client while they work.
import { sendProgress, sendLog, sendResourceUpdated, listChanged } from "portico:mcp/notifications@0.1.0";
import { elicit, sample } from "portico:mcp/questions@0.1.0";
import { get, set, increment, delete as remove, keys } from "portico:mcp/session@0.1.0";

let grown = false;
const names = ["told", "asked", "sampled", "badly", "grow", "count", "kept", "all", "wrong"];
const schema = { type: "object" };
const form = { message: "Really?", requestedSchema: { type: "object", properties: {} } };
const prompt = { messages: [{ role: "user", content: { type: "text", text: "Hi" } }], maxTokens: 9 };

const functions = {
  told() {
    sendProgress(1, 2, "half");
    sendLog("warning", JSON.stringify({ what: "careful" }), "guest");
    sendLog("info", "not JSON", undefined);
    sendResourceUpdated("note:one");
    return "told";
  },
  asked: () => elicit(JSON.stringify(form)),
  sampled: () => sample(JSON.stringify(prompt)),
  badly: () => elicit("not JSON"),
  grow() {
    grown = !grown;
    listChanged("tools");
    return "grown";
  },
  count: () => increment("calls", 1),
  kept({ key, value }) {
    if (value !== undefined) set(key, JSON.stringify(value));
    return get(key);
  },
  all({ remove: key }) {
    if (key) remove(key);
    return keys();
  },
  wrong: () => listChanged("everything"),
  another: () => "another",
};

export const toolsCapability = {
  listTools: () => JSON.stringify({
    tools: [...names, ...(grown ? ["another"] : [])].map((name) => ({ name, inputSchema: schema })),
  }),
  callTool(name, args) {
    let text;
    try {
      text = functions[name](JSON.parse(args));
    } catch (error) {
      if (error.payload === undefined) throw error;
      text = `refused: ${error.payload}`;
    }
    return JSON.stringify({ content: [{ type: "text", text }] });
  },
};

export const resourcesCapability = {
  listResources: () => JSON.stringify({ resources: [{ uri: "note:one", name: "one" }] }),
  listResourceTemplates: () => JSON.stringify({ resourceTemplates: [] }),
  readResource: (uri) => (uri === "note:one" ? JSON.stringify({ contents: [{ uri, text: "one" }] }) : "null"),
};
