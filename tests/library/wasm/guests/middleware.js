// Middleware of Portico's interface; what it does depends on the tool that is called.
import { handle as next } from "portico:mcp/handler@0.1.0";
import { sendProgress, sendLog, sendResourceUpdated } from "portico:mcp/notifications@0.1.0";
import { elicit, sample } from "portico:mcp/questions@0.1.0";
import { get, set, increment } from "portico:mcp/session@0.1.0";

const added = ["triple", "count", "told", "asked", "sampled", "kept", "trap", "loop", "text", "other", "spin"];
const tool = (name) => ({ name, description: "Added.", inputSchema: { type: "object" } });
const result = (id, text) => JSON.stringify({ jsonrpc: "2.0", id, result: { content: [{ type: "text", text }] } });
const failed = (error) => (error && error.payload !== undefined ? error.payload : String(error));

function call(request, name, args) {
  const params = { ...request.params, name, arguments: args };
  const answer = JSON.parse(next(JSON.stringify({ ...request, params })));
  return answer.error ? `error ${answer.error.message}` : answer.result.content[0].text;
}

function listed(request) {
  const answer = JSON.parse(next(JSON.stringify(request)));
  if (!answer.result) return JSON.stringify(answer);
  const tools = answer.result.tools.filter((one) => !one.name.endsWith("secret"));
  answer.result.tools = [...tools, ...added.map(tool)];
  return JSON.stringify(answer);
}

export const handler = {
  handle(text) {
    const request = JSON.parse(text);
    const { id, method, params } = request;
    if (method === "tools/list") return listed(request);
    if (method !== "tools/call") return next(text);
    const name = params.name, args = params.arguments || {};
    if (name === "triple") return result(id, [1, 2, 3].map((n) => call(request, args.tool, { text: String(n) })).join(" "));
    if (name === "count") return result(id, increment("calls", 1));
    if (name === "kept") {
      set("name", JSON.stringify(args.value));
      return result(id, get("name"));
    }
    if (name === "told") {
      sendProgress(1, 2, "half");
      sendLog("warning", JSON.stringify({ what: "careful" }), "guest");
      sendResourceUpdated("note:one");
      return result(id, "told");
    }
    if (name === "asked" || name === "sampled") {
      try {
        const form = { message: "Really?", requestedSchema: { type: "object", properties: {} } };
        const prompt = { messages: [{ role: "user", content: { type: "text", text: "Hi" } }], maxTokens: 9 };
        return result(id, name === "asked" ? elicit(JSON.stringify(form)) : sample(JSON.stringify(prompt)));
      } catch (error) {
        return result(id, `refused: ${failed(error)}`);
      }
    }
    if (name === "trap") return 42;
    if (name === "loop") for (;;);
    if (name === "text") return "not JSON";
    if (name === "other") return result("another", "hi");
    if (name === "spin") {
      const end = Date.now() + 0;
      next(JSON.stringify({ ...request, params: { ...params, name: args.tool } }));
      return result(id, String(end >= 0));
    }
    if (name === "refused" || (args.text || args.prompt || "") === "refuse") throw JSON.stringify({ code: -31000, message: "refused" });
    return next(text);
  },
};
