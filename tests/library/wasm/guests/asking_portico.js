// Each tool calls one function of the host with the text that it is given.
import { cancelled } from "portico:mcp/call@0.1.0";
import { get as config } from "portico:mcp/config@0.1.0";
import { get as secret } from "portico:mcp/secrets@0.1.0";
import { fetch } from "portico:mcp/http@0.1.0";

const functions = { cancelled: () => String(cancelled()), config, secret, fetch };

export const toolsCapability = {
  listTools: () => JSON.stringify({
    tools: Object.keys(functions).map((name) => ({ name, inputSchema: { type: "object" } })),
  }),
  callTool(name, args) {
    let text;
    try {
      text = functions[name](JSON.parse(args).text ?? "");
    } catch (error) {
      throw String(error.payload ?? error.val ?? error.message ?? error);
    }
    return JSON.stringify({ content: [{ type: "text", text }] });
  },
};
