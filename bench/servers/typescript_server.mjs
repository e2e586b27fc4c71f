// The TypeScript SDK 1.x at its fastest: its low-level server, the result made once.
// It runs with the packages of `.tools`, which ESM would not find from here.
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";

const require = createRequire(new URL("../../.tools/package.json", import.meta.url));
const { Server } = require("@modelcontextprotocol/sdk/server/index.js");
const { StdioServerTransport } = require("@modelcontextprotocol/sdk/server/stdio.js");
const { StreamableHTTPServerTransport } = require("@modelcontextprotocol/sdk/server/streamableHttp.js");
const { createMcpExpressApp } = require("@modelcontextprotocol/sdk/server/express.js");
const { CallToolRequestSchema, ListToolsRequestSchema } = require("@modelcontextprotocol/sdk/types.js");

const [, , file, port] = process.argv;
const list = JSON.parse(readFileSync(file, "utf8"));

function makeServer() {
  const server = new Server(
    { name: "bench", version: "1.0.0" },
    { capabilities: { tools: {} } },
  );
  server.setRequestHandler(ListToolsRequestSchema, async () => list);
  server.setRequestHandler(CallToolRequestSchema, async (request) => ({
    content: [{ type: "text", text: request.params.arguments.text }],
  }));
  return server;
}

// Stateless, as the SDK's own example has it: a server and a transport for every request.
// (With sessions it costs the same.)
async function answer(request, response) {
  const server = makeServer();
  const transport = new StreamableHTTPServerTransport({
    sessionIdGenerator: undefined,
    enableJsonResponse: true,
  });
  response.on("close", () => server.close());
  await server.connect(transport);
  await transport.handleRequest(request, response, request.body);
}

if (port) {
  const app = createMcpExpressApp();
  app.post("/mcp", answer);
  app.listen(Number(port), "127.0.0.1");
} else {
  await makeServer().connect(new StdioServerTransport());
}
