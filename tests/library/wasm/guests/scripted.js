// Middleware of Portico's interface that adds a tool `run`, which does what its argument `code` says.
import { handle as next } from "portico:mcp/handler@0.1.0";
import { sendProgress, sendLog, sendResourceUpdated } from "portico:mcp/notifications@0.1.0";
import { elicit, sample } from "portico:mcp/questions@0.1.0";
import { get, set, increment } from "portico:mcp/session@0.1.0";

const host = { next, sendProgress, sendLog, sendResourceUpdated, elicit, sample, get, set, increment };

function run(request, text) {
  const id = JSON.stringify(request.id);
  const responds = (members) => `{"jsonrpc":"2.0","id":${id},${members}}`;
  const says = (text) => responds(`"result":${JSON.stringify({ content: [{ type: "text", text }] })}`);
  const calls = (name, args) =>
    host.next(JSON.stringify({ ...request, params: { ...request.params, name, arguments: args } }));
  const given = { ...host, id, text, responds, says, calls, request };
  try {
    return new Function(...Object.keys(given), request.params.arguments.code)(...Object.values(given));
  } catch (error) {
    return says(`refused: ${error.payload === undefined ? error : error.payload}`);
  }
}

export const handler = {
  handle(text) {
    const request = JSON.parse(text);
    if (request.method === "tools/call" && request.params.name === "run") return run(request, text);
    if (request.method !== "tools/list") return next(text);
    const answer = JSON.parse(next(text));
    const shadow = { name: "echo", description: "Another echo.", inputSchema: { type: "object" } };
    const tools = answer.result.tools.map((one) => (one.name === "echo" ? shadow : one));
    answer.result.tools = [...tools, { name: "run", inputSchema: { type: "object" } }];
    return JSON.stringify(answer);
  },
};
